//! Event streams to which each event that is posted must come (WHATWG HTML §9.2).
//!
//! It guarantees that an event counts as delivered only if its data is every byte of what was
//! posted, and its id is the one after that of the event before on the same stream.

use justapi_core::{EventDecoder, ReceivedEvent};

use super::target::Target;
use super::template::RequestTemplate;
use crate::Error;
use crate::stats::SplitMix64;

/// Digits at the start of each event that tell it from every other one.
pub(super) const NUMBER_BYTES: usize = 16;

/// Events to post, and to receive on every stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFeed {
    /// The POST of event 0: its body ends the request.
    publish: RequestTemplate,
    /// Length of the body, which becomes the data of the event.
    bytes: usize,
}

impl EventFeed {
    /// Events of `bytes`, at least 16, posted to `path` as they are.
    ///
    /// # Errors
    ///
    /// As [`RequestTemplate::serialise`].
    pub fn new(target: &Target, path: &str, bytes: usize) -> Result<Self, Error> {
        let mut random = SplitMix64(bytes as u64);
        let data: Vec<u8> = (0..bytes)
            .map(|index| match index {
                ..NUMBER_BYTES => b'0',
                // Letters, digits and what lies between: no line break, no space at an end.
                _ => b'0' + (random.next() % 75) as u8,
            })
            .collect();
        let headers = [("content-type", "text/plain")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let publish = RequestTemplate::serialise(target, "POST", path, &headers, &data, true)?;
        Ok(Self { publish, bytes })
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The request that posts one event after the other.
#[derive(Debug)]
pub(super) struct Post {
    request: RequestTemplate,
    bytes: usize,
    next_number: u64,
}

impl Post {
    pub(super) fn new(feed: &EventFeed) -> Self {
        Self {
            request: feed.publish.clone(),
            bytes: feed.bytes,
            next_number: 0,
        }
    }

    /// Makes it the next event's.
    pub(super) fn advance(&mut self) {
        let number = format!("{:016}", self.next_number);
        self.next_number += 1;
        let start = self.request.bytes.len() - self.bytes;
        self.request.bytes[start..start + NUMBER_BYTES].copy_from_slice(number.as_bytes());
    }

    pub(super) const fn request(&self) -> &RequestTemplate {
        &self.request
    }

    /// Data that the event must have.
    pub(super) fn data(&self) -> &[u8] {
        &self.request.bytes[self.request.bytes.len() - self.bytes..]
    }
}

/// What is read of one stream.
#[derive(Debug)]
pub(super) struct EventStream {
    decoder: EventDecoder,
    last_id: Option<u64>,
    is_broken: bool,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is the one that was posted, and follows the one before.
    Right,
    /// Another data or type, or an id that leaves a gap or goes back.
    Wrong,
}

impl EventStream {
    pub(super) fn new() -> Self {
        Self {
            decoder: EventDecoder::new(),
            last_id: None,
            is_broken: false,
        }
    }

    /// Takes a part of the response's body.
    pub(super) fn feed(&mut self, part: &[u8]) {
        self.is_broken |= self.decoder.feed(part).is_err();
    }

    /// Compares the next event that has come with `data`.
    pub(super) fn next_arrival(&mut self, data: &[u8]) -> Option<Arrival> {
        let Some(event) = self.decoder.next_event() else {
            return self.is_broken.then_some(Arrival::Wrong);
        };
        let ReceivedEvent {
            name,
            data: found,
            last_event_id,
            ..
        } = event;
        let id = last_event_id.parse().ok();
        let follows = match (self.last_id, id) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(last), Some(id)) => last + 1 == id,
        };
        self.last_id = id;
        Some(
            if follows && name == "message" && found.as_bytes() == data {
                Arrival::Right
            } else {
                Arrival::Wrong
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stream: &str, data: &str, expected: &[Arrival]) {
        let bytes = stream.as_bytes();
        for split in 0..=bytes.len() {
            let mut events = EventStream::new();
            let mut found = Vec::new();
            for part in [&bytes[..split], &bytes[split..]] {
                events.feed(part);
                while let Some(arrival) = events.next_arrival(data.as_bytes()) {
                    found.push(arrival);
                }
            }
            assert_eq!(found, expected, "{stream:?} at {split}");
        }
    }

    #[test]
    fn only_the_posted_event_with_the_next_id_is_right() {
        use Arrival::{Right, Wrong};
        for (stream, expected) in [
            ("id: 7\ndata: a\n\nid: 8\ndata: a\n\n", &[Right, Right][..]),
            (":\n\nid: 7\ndata: a\n\n:\n\n", &[Right]),
            ("data: a\nid: 7\n\n", &[Right]),
            // A gap, a repetition, one that is older.
            ("id: 7\ndata: a\n\nid: 9\ndata: a\n\n", &[Right, Wrong]),
            ("id: 7\ndata: a\n\nid: 7\ndata: a\n\n", &[Right, Wrong]),
            ("id: 7\ndata: a\n\nid: 6\ndata: a\n\n", &[Right, Wrong]),
            // No id, or none that is a number.
            ("data: a\n\n", &[Wrong]),
            ("id: x\ndata: a\n\n", &[Wrong]),
            // Other data, another type, a second line.
            ("id: 7\ndata: b\n\n", &[Wrong]),
            ("id: 7\nevent: b\ndata: a\n\n", &[Wrong]),
            ("id: 7\ndata: a\ndata: a\n\n", &[Wrong]),
            // Not over.
            ("id: 7\ndata: a\n", &[]),
        ] {
            check(stream, "a", expected);
        }
    }

    #[test]
    fn each_post_has_a_number_and_the_same_length() {
        let (target, _) = super::super::parse_target("http://127.0.0.1:1/", None).unwrap();
        let mut post = Post::new(&EventFeed::new(&target, "/feed", 40).unwrap());
        let length = post.request().bytes.len();
        for number in 0..12 {
            post.advance();
            assert_eq!(post.request().bytes.len(), length);
            assert!(post.request().bytes.ends_with(post.data()));
            let data = std::str::from_utf8(post.data()).unwrap();
            assert_eq!(data.len(), 40);
            assert_eq!(data[..NUMBER_BYTES].parse(), Ok(number));
            assert!(data.bytes().all(|byte| byte.is_ascii_graphic()));
        }
    }
}
