//! Bytes of a client in, messages and control frames out; no I/O.
//!
//! Guarantee: a rule is found broken at the first byte that shows it, UTF-8
//! included, and nothing is allocated for a length that was only announced.
//! Sources: RFC 6455 §5, §8.1; RFC 7692 §6.2.
//!
//! ```text
//! header ─▶ payload ─▶ header ─▶ …        any ─▶ violation (the last word)
//! ```

use bytes::Bytes;

use super::deflate::{Agreement, InflateError, Inflater};
use super::frame::{Header, HeaderReader, MAX_CONTROL_BYTES, Opcode, Violation, unmask};
use super::limits::{FIRST_ALLOCATION_BYTES, WebSocketLimits};
use super::message::{CloseCode, CloseFrame, Message};
use crate::limits::Reject;

/// What the peer has said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    Message(Message),
    Ping(Control),
    Pong,
    /// A Close frame, with a code if it had one.
    Close(Option<CloseFrame>),
}

/// Payload of a control frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Control {
    bytes: [u8; MAX_CONTROL_BYTES],
    length: usize,
}

impl Control {
    pub(super) const EMPTY: Self = Self {
        bytes: [0; MAX_CONTROL_BYTES],
        length: 0,
    };

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Appends; the frame header has bounded the total.
    fn extend(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

/// Turns a client's byte stream into events.
#[derive(Debug)]
pub(super) struct Decoder {
    max_message_bytes: usize,
    max_frame_bytes: usize,
    header: HeaderReader,
    frame: Option<Frame>,
    message: Option<Partial>,
    control: Control,
    inflater: Option<Inflater>,
}

/// The frame whose payload is being read.
#[derive(Debug)]
struct Frame {
    header: Header,
    remaining: u64,
}

/// A message that is not complete.
#[derive(Debug)]
struct Partial {
    is_text: bool,
    is_compressed: bool,
    bytes: Vec<u8>,
    /// How much of `bytes` is known to be UTF-8.
    num_valid: usize,
}

impl Decoder {
    pub(super) fn new(limits: &WebSocketLimits, agreement: Option<Agreement>) -> Self {
        Self {
            max_message_bytes: limits.max_message_bytes,
            max_frame_bytes: limits.max_frame_bytes,
            header: HeaderReader::default(),
            frame: None,
            message: None,
            control: Control::EMPTY,
            inflater: agreement.map(Inflater::new),
        }
    }

    /// Whether a frame or message has begun and not ended.
    pub(super) const fn is_amid_message(&self) -> bool {
        self.frame.is_some() || self.message.is_some() || !self.header.is_empty()
    }

    /// Takes bytes from `input` up to the next event: how many, and the event.
    ///
    /// `input` is unmasked in place. Without an event all of it was taken.
    pub(super) fn decode(&mut self, input: &mut [u8]) -> Result<(usize, Option<Event>), Violation> {
        let mut used = 0;
        loop {
            let Some(frame) = &mut self.frame else {
                let may_compress = self.inflater.is_some();
                let (taken, header) = self.header.read(&input[used..], may_compress)?;
                used += taken;
                let Some(header) = header else {
                    return Ok((used, None));
                };
                self.begin_frame(header)?;
                continue;
            };
            let available = (input.len() - used) as u64;
            let taken = frame.remaining.min(available) as usize;
            let payload = &mut input[used..used + taken];
            used += taken;
            unmask(
                payload,
                frame.header.mask,
                // The mask repeats every four bytes, so the low bits suffice.
                (frame.header.length - frame.remaining) as usize,
            );
            frame.remaining -= taken as u64;
            let is_frame_end = frame.remaining == 0;
            let header = frame.header;
            if is_frame_end {
                self.frame = None;
            }
            if header.opcode.is_control() {
                self.control.extend(payload);
                if is_frame_end {
                    let event = self.end_control(header.opcode)?;
                    return Ok((used, Some(event)));
                }
            } else {
                let is_message_end = is_frame_end && header.is_final;
                if let Some(message) = self.extend_message(payload, is_message_end)? {
                    return Ok((used, Some(Event::Message(message))));
                }
            }
            if used == input.len() && !is_frame_end {
                return Ok((used, None));
            }
        }
    }

    fn begin_frame(&mut self, header: Header) -> Result<(), Violation> {
        let is_text = header.opcode == Opcode::Text;
        match (header.opcode, &self.message) {
            (Opcode::Text | Opcode::Binary, Some(_)) => {
                return Err(Violation::protocol("a message begins inside another"));
            }
            (Opcode::Continuation, None) => {
                return Err(Violation::protocol("a continuation continues nothing"));
            }
            (Opcode::Text | Opcode::Binary, None) => {
                self.message = Some(Partial {
                    is_text,
                    is_compressed: header.is_compressed,
                    bytes: Vec::new(),
                    num_valid: 0,
                });
            }
            (Opcode::Continuation, Some(_)) => {}
            _ => self.control = Control::EMPTY,
        }
        if let Some(message) = &mut self.message
            && !header.opcode.is_control()
        {
            if header.length > self.max_frame_bytes as u64 {
                return Err(Violation::too_big(
                    Reject::WsFrame,
                    "the frame is larger than the server accepts",
                ));
            }
            if !message.is_compressed {
                let length = header.length as usize;
                if length > self.max_message_bytes - message.bytes.len() {
                    return Err(TOO_LARGE);
                }
                message.bytes.reserve(length.min(FIRST_ALLOCATION_BYTES));
            }
        }
        self.frame = Some(Frame {
            header,
            remaining: header.length,
        });
        Ok(())
    }

    fn extend_message(
        &mut self,
        payload: &[u8],
        is_end: bool,
    ) -> Result<Option<Message>, Violation> {
        let message = self.message.as_mut().expect("a data frame has a message");
        if message.is_compressed {
            let inflater = self.inflater.as_mut().expect("RSV1 was negotiated");
            let limit = self.max_message_bytes;
            let mut result = inflater.inflate(payload, &mut message.bytes, limit);
            if is_end && result.is_ok() {
                result = inflater.finish(&mut message.bytes, limit);
            }
            result.map_err(|error| match error {
                InflateError::TooLarge => TOO_LARGE,
                InflateError::Corrupt => {
                    Violation::new(CloseCode::INVALID_PAYLOAD, "the compressed data is corrupt")
                }
            })?;
        } else {
            message.bytes.extend_from_slice(payload);
        }
        if !is_end {
            message.check_text()?;
            return Ok(None);
        }
        let message = self.message.take().expect("it was just extended");
        message.finish().map(Some)
    }

    fn end_control(&self, opcode: Opcode) -> Result<Event, Violation> {
        Ok(match opcode {
            Opcode::Ping => Event::Ping(self.control),
            Opcode::Close => Event::Close(parse_close(self.control.as_slice())?),
            _ => Event::Pong,
        })
    }
}

const TOO_LARGE: Violation = Violation::too_big(
    Reject::WsMessage,
    "the message is larger than the server accepts",
);

const NOT_UTF8: Violation = Violation::new(CloseCode::INVALID_PAYLOAD, "the text is not UTF-8");

impl Partial {
    /// Fails once no further byte can make the text valid.
    fn check_text(&mut self) -> Result<(), Violation> {
        if !self.is_text {
            return Ok(());
        }
        match std::str::from_utf8(&self.bytes[self.num_valid..]) {
            Ok(_) => self.num_valid = self.bytes.len(),
            // A character whose last bytes have not come.
            Err(error) if error.error_len().is_none() => self.num_valid += error.valid_up_to(),
            Err(_) => return Err(NOT_UTF8),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Message, Violation> {
        // A message is kept for as long as the application likes.
        if self.bytes.capacity() > 2 * self.bytes.len() {
            self.bytes.shrink_to_fit();
        }
        if !self.is_text {
            return Ok(Message::Binary(Bytes::from(self.bytes)));
        }
        String::from_utf8(self.bytes)
            .map(Message::Text)
            .map_err(|_| NOT_UTF8)
    }
}

/// Code and reason of a Close frame (RFC 6455 §5.5.1, §7.4).
fn parse_close(payload: &[u8]) -> Result<Option<CloseFrame>, Violation> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return match payload {
            [] => Ok(None),
            _ => Err(Violation::protocol("half a close code")),
        };
    };
    let code = CloseCode::new(u16::from_be_bytes(*code))
        .ok_or_else(|| Violation::protocol("a close code that must not be sent"))?;
    let reason = std::str::from_utf8(reason)
        .map_err(|_| Violation::new(CloseCode::INVALID_PAYLOAD, "the close reason is not UTF-8"))?;
    Ok(Some(CloseFrame {
        code,
        reason: reason.to_owned(),
    }))
}
