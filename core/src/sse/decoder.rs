//! Reads an event stream as a browser does (WHATWG HTML §9.2.6).
//!
//! Guarantees: the events do not depend on where the bytes were split, and no
//! more than the limit is kept of an event that does not end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one event that a decoder keeps: more than a server should send,
/// and little enough for each of many streams.
pub const MAX_RECEIVED_EVENT_BYTES: usize = 1024 * 1024;

/// UTF-8 byte order mark, which a stream may begin with.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// An event as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceivedEvent {
    /// Type of the event; `message` when the server gave none.
    pub name: String,
    /// Lines of data, joined by LF.
    pub data: String,
    /// The last id that the server has set, perhaps with an earlier event.
    ///
    /// Shared: a server that sets a long one does so for all that follow.
    pub last_event_id: Arc<str>,
}

/// An event is larger than the decoder may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event exceeds {limit} bytes")]
#[non_exhaustive]
pub struct EventTooLarge {
    /// Limit in bytes.
    pub limit: usize,
}

/// Reads events from bytes as they come.
///
/// ```
/// use justapi_core::EventDecoder;
///
/// let mut decoder = EventDecoder::new();
/// decoder.feed(b"data: a\nda")?;
/// assert_eq!(decoder.next_event(), None);
/// decoder.feed(b"ta: b\n\n")?;
/// assert_eq!(decoder.next_event().expect("an event").data, "a\nb");
/// # Ok::<(), justapi_core::EventTooLarge>(())
/// ```
#[derive(Debug, Clone)]
pub struct EventDecoder {
    limit: usize,
    /// Bytes of a line whose end has not come.
    line: Vec<u8>,
    data: String,
    name: String,
    id: Arc<str>,
    last_event_id: Arc<str>,
    retry: Option<Duration>,
    events: VecDeque<ReceivedEvent>,
    /// Whether the last byte was a CR, so that an LF belongs to it.
    after_cr: bool,
    /// Whether no line has ended yet, so that a mark may begin the stream.
    at_start: bool,
}

impl EventDecoder {
    /// A decoder of a stream that begins, with
    /// [`MAX_RECEIVED_EVENT_BYTES`] for each event.
    pub fn new() -> Self {
        Self::with_limit(MAX_RECEIVED_EVENT_BYTES)
    }

    /// A decoder that keeps at most `limit` bytes of an event.
    pub fn with_limit(limit: usize) -> Self {
        let no_id = Arc::<str>::from("");
        Self {
            limit,
            line: Vec::new(),
            data: String::new(),
            name: String::new(),
            id: Arc::clone(&no_id),
            last_event_id: no_id,
            retry: None,
            events: VecDeque::new(),
            after_cr: false,
            at_start: true,
        }
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// [`EventTooLarge`] when an event exceeds the limit. The events before it
    /// can still be taken; the rest of the stream has no meaning.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), EventTooLarge> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = memchr::memchr2(b'\r', b'\n', bytes);
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let kept = self.line.len() + part.len() + self.data.len() + self.name.len();
            if kept > self.limit {
                return Err(EventTooLarge { limit: self.limit });
            }
            let Some(end) = end else {
                self.line.extend_from_slice(part);
                return Ok(());
            };
            if self.line.is_empty() {
                self.take_line(part)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(part);
                self.take_line(&line)?;
                line.clear();
                self.line = line;
            }
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
        }
        Ok(())
    }

    /// Takes the next complete event.
    ///
    /// An event that has no blank line behind it is none, also at the end of
    /// the stream.
    pub fn next_event(&mut self) -> Option<ReceivedEvent> {
        self.events.pop_front()
    }

    /// Id to send as `Last-Event-ID` when reconnecting; empty for none.
    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// How long the server wants a client to wait before it reconnects.
    pub const fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn take_line(&mut self, mut line: &[u8]) -> Result<(), EventTooLarge> {
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix(MARK).unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch();
            return Ok(());
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                self.data.push_str(&String::from_utf8_lossy(value));
                self.data.push('\n');
            }
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            b"id" if !value.contains(&0) => self.id = String::from_utf8_lossy(value).into(),
            b"retry" => {
                if let Some(milliseconds) = digits(value) {
                    self.retry = Some(Duration::from_millis(milliseconds));
                }
            }
            // Comments begin with a colon: their field is empty.
            _ => {}
        }
        // U+FFFD takes three bytes for one that is not UTF-8.
        let kept = (self.data.len() + self.name.len()).max(self.id.len());
        if kept > self.limit {
            return Err(EventTooLarge { limit: self.limit });
        }
        Ok(())
    }

    fn dispatch(&mut self) {
        self.last_event_id = Arc::clone(&self.id);
        let name = std::mem::take(&mut self.name);
        if self.data.pop().is_none() {
            return;
        }
        let is_default = name.is_empty();
        self.events.push_back(ReceivedEvent {
            name: if is_default {
                "message".to_owned()
            } else {
                name
            },
            data: std::mem::take(&mut self.data),
            last_event_id: Arc::clone(&self.last_event_id),
        });
    }
}

impl Default for EventDecoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Value of ASCII digits alone; one too large is none.
fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}
