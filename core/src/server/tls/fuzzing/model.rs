//! What must come of a stream of records, by RFC 8446 §4.6.3, §5 and §6.
//!
//! It knows which records were sealed, and cannot decrypt: what is not one of them, byte for byte and
//! in its turn, must be refused.

use super::{ALERT, DATA, HANDSHAKE, Sealed};

/// How a stream ends before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Closed,
    /// With this alert, if one is due.
    Failed(Option<u8>),
}

const UNEXPECTED_MESSAGE: End = End::Failed(Some(10));
const BAD_RECORD_MAC: End = End::Failed(Some(20));
const RECORD_OVERFLOW: End = End::Failed(Some(22));
const ILLEGAL_PARAMETER: End = End::Failed(Some(47));
const DECODE_ERROR: End = End::Failed(Some(50));

/// What must come of a stream, by someone who cannot decrypt and knows what was sealed.
#[derive(Default)]
pub(super) struct Model {
    at: usize,
    pub(super) key: usize,
    pub(super) sequence: u64,
    pub(super) plain: Vec<u8>,
    pub(super) end: Option<End>,
    /// The part of a handshake message that has come.
    message: Vec<u8>,
    pub(super) owes_update: bool,
    num_empty: u8,
    num_updates: u8,
    num_warnings: u8,
}

impl Model {
    /// Goes on with a stream of which this much has come.
    pub(super) fn read(&mut self, wire: &[u8], sealed: &[Sealed]) {
        while self.end.is_none() {
            let Some(&[content_type, _, _, high, low]) = wire.get(self.at..self.at + 5) else {
                return;
            };
            let length = usize::from(u16::from_be_bytes([high, low]));
            if content_type != DATA {
                self.end = Some(UNEXPECTED_MESSAGE);
            } else if length > 16_384 + 256 {
                self.end = Some(RECORD_OVERFLOW);
            } else {
                let Some(record) = wire.get(self.at..self.at + 5 + length) else {
                    return;
                };
                self.at += 5 + length;
                let is_it = |sealed: &&Sealed| {
                    (sealed.key, sealed.sequence) == (self.key, self.sequence)
                        && sealed.bytes == record
                };
                self.end = match sealed.iter().find(is_it) {
                    None => Some(BAD_RECORD_MAC),
                    Some(sealed) => {
                        self.sequence += 1;
                        self.open(&sealed.inner)
                    }
                };
            }
        }
    }

    /// How a record ends the stream, if it does.
    fn open(&mut self, inner: &[u8]) -> Option<End> {
        if inner.len() > 16_384 + 1 {
            return Some(RECORD_OVERFLOW);
        }
        let zeros = inner.iter().rev().take_while(|byte| **byte == 0).count();
        let Some((content_type, content)) = inner[..inner.len() - zeros].split_last() else {
            return Some(UNEXPECTED_MESSAGE);
        };
        match (*content_type, content) {
            (HANDSHAKE, []) => Some(UNEXPECTED_MESSAGE),
            (HANDSHAKE, content) => {
                self.message.extend_from_slice(content);
                self.handshake()
            }
            _ if !self.message.is_empty() => Some(UNEXPECTED_MESSAGE),
            (DATA, []) => {
                self.num_empty += 1;
                (self.num_empty > 32).then_some(UNEXPECTED_MESSAGE)
            }
            (DATA, content) => {
                (self.num_empty, self.num_updates) = (0, 0);
                self.plain.extend_from_slice(content);
                None
            }
            (ALERT, [_, 0]) => Some(End::Closed),
            (ALERT, [_, 90]) => {
                self.num_warnings += 1;
                (self.num_warnings > 4).then_some(UNEXPECTED_MESSAGE)
            }
            (ALERT, [_, _]) => Some(End::Failed(None)),
            (ALERT, _) => Some(DECODE_ERROR),
            _ => Some(UNEXPECTED_MESSAGE),
        }
    }

    fn handshake(&mut self) -> Option<End> {
        let message = std::mem::take(&mut self.message);
        let known = message.len().min(4);
        if message[0] != 24 {
            return Some(UNEXPECTED_MESSAGE);
        }
        if message[..known] != [24, 0, 0, 1][..known] {
            return Some(DECODE_ERROR);
        }
        match message[known..] {
            [] => {
                self.message = message;
                return None;
            }
            [request] => {
                self.num_updates += 1;
                if self.num_updates > 32 {
                    return Some(UNEXPECTED_MESSAGE);
                }
                match request {
                    0 => {}
                    1 => self.owes_update = true,
                    _ => return Some(ILLEGAL_PARAMETER),
                }
            }
            _ => return Some(UNEXPECTED_MESSAGE),
        }
        self.key += 1;
        self.sequence = 0;
        None
    }
}
