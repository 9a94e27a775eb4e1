//! Server-sent events (WHATWG HTML §9.2): one event, a stream of them to one
//! client, a broadcast to many, and the decoder of a client.
//!
//! Guarantee: nothing an event holds can break its stream's framing.

mod broadcast;
mod decoder;
mod event;
mod stream;

#[cfg(test)]
mod tests;

pub use self::broadcast::{EventBroadcast, Lag};
pub use self::decoder::{EventDecoder, EventTooLarge, MAX_RECEIVED_EVENT_BYTES, ReceivedEvent};
pub use self::event::{EncodedEvent, Event, EventError};
pub use self::stream::{EventSender, SendEventError, Sse};
use crate::request::Request;

impl Request {
    /// Id of the last event that a reconnecting client has seen.
    ///
    /// The value of `Last-Event-ID`; `None` without one, or when it is empty
    /// or not UTF-8.
    pub fn last_event_id(&self) -> Option<&str> {
        let value = self.headers().get("last-event-id")?;
        let id = std::str::from_utf8(value.as_bytes()).ok()?;
        (!id.is_empty()).then_some(id)
    }
}
