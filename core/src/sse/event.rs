//! One event to send, and its bytes on the wire.
//!
//! Guarantee: whatever an event was given, its bytes are exactly one event to
//! a client: no text can end the event early, begin another one or set a
//! field that was not asked for (WHATWG HTML §9.2.5, §9.2.6).

use std::time::Duration;

use bytes::Bytes;

/// An event under construction.
///
/// ```
/// use justapi_core::Event;
///
/// let event = Event::new().with_id("7")?.with_data("two\nlines");
/// assert_eq!(&event.encode().bytes()[..], b"id: 7\ndata: two\ndata: lines\n\n");
/// # Ok::<(), justapi_core::EventError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    id: Option<Box<str>>,
    name: Option<Box<str>>,
    data: Option<Box<str>>,
    retry: Option<Duration>,
    comment: Option<Box<str>>,
}

/// A text that cannot be a field of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {field} of an event holds a line break or NUL")]
#[non_exhaustive]
pub struct EventError {
    /// `id` or `event`.
    pub field: &'static str,
}

impl Event {
    /// An event without any field, which clients ignore.
    pub const fn new() -> Self {
        Self {
            id: None,
            name: None,
            data: None,
            retry: None,
            comment: None,
        }
    }

    /// Sets what the client sends back as `Last-Event-ID` when it reconnects.
    ///
    /// # Errors
    /// [`EventError`] on CR, LF or NUL: a client could not keep such an id.
    pub fn with_id(mut self, id: impl Into<Box<str>>) -> Result<Self, EventError> {
        self.id = Some(check("id", id.into())?);
        Ok(self)
    }

    /// Sets the type for which the client listens; without one it is `message`.
    ///
    /// # Errors
    /// [`EventError`] on CR, LF or NUL.
    pub fn with_name(mut self, name: impl Into<Box<str>>) -> Result<Self, EventError> {
        self.name = Some(check("event", name.into())?);
        Ok(self)
    }

    /// Sets the data; clients do not see an event without data.
    ///
    /// Each CR, LF or CRLF becomes a line of its own, which the client reads
    /// as LF.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<Box<str>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Sets how long the client waits before it reconnects, in whole
    /// milliseconds.
    #[must_use]
    pub const fn with_retry(mut self, retry: Duration) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Adds a text that clients skip; each of its lines is a comment.
    #[must_use]
    pub fn with_comment(mut self, comment: impl Into<Box<str>>) -> Self {
        self.comment = Some(comment.into());
        self
    }

    /// Its bytes, to send once or to many clients.
    pub fn encode(&self) -> EncodedEvent {
        let mut bytes = Vec::with_capacity(self.size_estimate());
        if let Some(comment) = &self.comment {
            write_lines(&mut bytes, b": ", comment);
        }
        if let Some(id) = &self.id {
            write_line(&mut bytes, b"id: ", id.as_bytes());
        }
        if let Some(name) = &self.name {
            write_line(&mut bytes, b"event: ", name.as_bytes());
        }
        if let Some(retry) = self.retry {
            let mut buffer = itoa::Buffer::new();
            let retry = buffer.format(retry.as_millis());
            write_line(&mut bytes, b"retry: ", retry.as_bytes());
        }
        if let Some(data) = &self.data {
            write_lines(&mut bytes, b"data: ", data);
        }
        bytes.push(b'\n');
        EncodedEvent {
            id: self.id.clone(),
            bytes: bytes.into(),
        }
    }

    /// Exact for one line of data and no comment.
    fn size_estimate(&self) -> usize {
        let length = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len() + 8);
        let retry = if self.retry.is_some() { 48 } else { 0 };
        length(&self.id)
            + length(&self.name)
            + length(&self.data)
            + length(&self.comment)
            + retry
            + 1
    }
}

/// An event as bytes; cloning it copies no data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedEvent {
    id: Option<Box<str>>,
    bytes: Bytes,
}

impl EncodedEvent {
    /// Id of the event, if it has one.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// What goes over the wire.
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl From<EncodedEvent> for Bytes {
    fn from(event: EncodedEvent) -> Self {
        event.bytes
    }
}

impl From<&Event> for EncodedEvent {
    fn from(event: &Event) -> Self {
        event.encode()
    }
}

impl From<Event> for EncodedEvent {
    fn from(event: Event) -> Self {
        event.encode()
    }
}

fn check(field: &'static str, text: Box<str>) -> Result<Box<str>, EventError> {
    if text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        return Err(EventError { field });
    }
    Ok(text)
}

fn write_line(bytes: &mut Vec<u8>, field: &[u8], line: &[u8]) {
    bytes.extend_from_slice(field);
    bytes.extend_from_slice(line);
    bytes.push(b'\n');
}

/// Writes each line of `text`, whatever ends it, as one line of `field`.
fn write_lines(bytes: &mut Vec<u8>, field: &[u8], text: &str) {
    let mut rest = text.as_bytes();
    while let Some(end) = memchr::memchr2(b'\r', b'\n', rest) {
        write_line(bytes, field, &rest[..end]);
        let is_crlf = rest[end..].starts_with(b"\r\n");
        rest = &rest[end + 1 + usize::from(is_crlf)..];
    }
    write_line(bytes, field, rest);
}
