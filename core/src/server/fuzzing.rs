//! What h2 is shown of a peer's frames, against a reader of whole streams; records of TLS have a
//! module of their own.

use std::collections::BTreeSet;

use super::h2_frames::{BlockWalk, FrameCheck};
pub(crate) use super::tls::fuzzing::check as check_tls_records;
use crate::fuzzing::Input;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;

/// It does not depend on the cuts, it is what was sent up to the first wrong
/// frame, and the error is the one that is due.
pub(crate) fn check_h2_frames(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut pieces = input.pieces();
    pieces.insert(0, PREFACE);
    let due = Reader::default().read(&pieces.concat());
    assert_eq!(shown(&[&pieces.concat()]), due, "in one piece");
    assert_eq!(shown(&pieces), due, "in {} pieces", pieces.len());
}

/// What passes of pieces that are read one after the other, and the error.
fn shown(pieces: &[&[u8]]) -> (Vec<u8>, Option<u8>) {
    let mut frames = FrameCheck::new();
    let mut shown = Vec::new();
    let mut buffer = Vec::new();
    for piece in pieces {
        if frames.wrong().is_some() {
            break;
        }
        buffer.resize(64 * 1024, 0);
        let held = frames.restore(&mut buffer);
        buffer.truncate(held);
        buffer.extend_from_slice(piece);
        let verdict = frames.check(&mut buffer);
        shown.extend_from_slice(&buffer[..verdict.passed]);
    }
    (shown, frames.wrong().map(|code| code as u8))
}

/// Reads whole streams; blocks are put together before they are walked.
#[derive(Default)]
struct Reader {
    ended: BTreeSet<u32>,
    newest: u32,
    /// Stream, whether it is trailers, the block so far, and whether it had a
    /// pseudo-header when its first frame had been read.
    open: Option<(u32, bool, Vec<u8>, bool)>,
    /// The complete blocks before.
    blocks: Vec<Vec<u8>>,
}

impl Reader {
    /// What passes, and the code of the first wrong frame.
    fn read(&mut self, sent: &[u8]) -> (Vec<u8>, Option<u8>) {
        let mut passed = sent.to_vec();
        let mut at = PREFACE.len().min(sent.len());
        loop {
            let rest = &sent[at..];
            let Some(&[high, middle, low, kind, flags, a, b, c, d]) = rest.first_chunk() else {
                passed.truncate(at);
                return (passed, None);
            };
            let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            let stream = u32::from_be_bytes([a & 127, b, c, d]);
            let is_held = matches!(kind, HEADERS | SETTINGS | CONTINUATION) && length <= 16_384;
            let payload = is_held.then(|| rest.get(9..9 + length));
            let wrong = self.wrong_head(at == PREFACE.len(), kind, flags, length, stream);
            let wrong = wrong.or_else(|| match payload {
                Some(Some(payload)) => self.wrong_payload(kind, flags, stream, payload),
                _ => None,
            });
            match wrong {
                Some(0) => passed[at + 4] &= !1,
                Some(code) => {
                    passed.truncate(at);
                    return (passed, Some(code));
                }
                None if payload == Some(None) => {
                    passed.truncate(at);
                    return (passed, None);
                }
                None => {}
            }
            at += 9 + length;
            if at >= sent.len() {
                return (passed, None);
            }
        }
    }

    fn wrong_head(
        &mut self,
        is_first: bool,
        kind: u8,
        flags: u8,
        length: usize,
        stream: u32,
    ) -> Option<u8> {
        let is_ack = flags & 1 == 1;
        if is_first && (kind != SETTINGS || is_ack) {
            return Some(1);
        }
        let is_wrong = match kind {
            2 => length != 5,
            RST_STREAM | 8 => length != 4,
            SETTINGS => is_ack && length > 0 || !length.is_multiple_of(6),
            6 => length != 8,
            7 => length < 8,
            _ => false,
        };
        if is_wrong {
            return Some(6);
        }
        if let Some((open, ..)) = self.open {
            let goes_on = kind == CONTINUATION && stream == open;
            return (!goes_on).then_some(1);
        }
        if kind == CONTINUATION {
            return Some(1);
        }
        if matches!(kind, DATA | HEADERS) && self.ended.contains(&stream) {
            return Some(5);
        }
        if kind == RST_STREAM || kind == DATA && flags & 1 == 1 {
            self.end(stream);
        }
        None
    }

    /// The code of a wrong frame; 0 for trailers that are not to end.
    fn wrong_payload(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Option<u8> {
        let is_too_wide = |entry: &[u8]| entry[..2] == [0, 4] && entry[2] >= 128;
        match (kind, self.open.take()) {
            (SETTINGS, open) => {
                self.open = open;
                payload.chunks(6).any(is_too_wide).then_some(3)
            }
            (HEADERS, None) => {
                let head = 5 * usize::from(flags >> 5 & 1);
                let block = block_of(flags, stream, head, payload);
                let Some(block) = block else {
                    return Some(1);
                };
                let is_trailers = stream <= self.newest;
                if stream > self.newest && stream % 2 == 1 {
                    self.newest = stream;
                    self.ended = self.ended.split_off(&stream.saturating_sub(2047));
                }
                if flags & 1 == 1 {
                    self.end(stream);
                }
                self.go_on(flags, (stream, is_trailers, block.to_vec(), false), true)
            }
            (CONTINUATION, Some(mut open)) => {
                open.2.extend_from_slice(payload);
                self.go_on(flags, open, false)
            }
            (_, open) => {
                self.open = open;
                None
            }
        }
    }

    fn go_on(
        &mut self,
        flags: u8,
        mut open: (u32, bool, Vec<u8>, bool),
        is_first: bool,
    ) -> Option<u8> {
        let mut walk = BlockWalk::new();
        for block in &self.blocks {
            walk.begin();
            assert!(walk.read(block).is_ok(), "it was right before");
        }
        walk.begin();
        if walk.read(&open.2).is_err() || flags & 4 == 4 && walk.end().is_err() {
            return Some(9);
        }
        let (is_trailers, had_pseudo) = (open.1, open.3);
        open.3 = walk.has_pseudo();
        let is_new = open.3 && !had_pseudo;
        if flags & 4 == 4 {
            self.blocks.push(open.2);
        } else {
            self.open = Some(open);
        }
        match (is_trailers && is_new, is_first) {
            (true, true) => Some(0),
            (true, false) => Some(1),
            (false, _) => None,
        }
    }

    fn end(&mut self, stream: u32) {
        if stream % 2 == 1 && stream <= self.newest && self.newest - stream < 2048 {
            self.ended.insert(stream);
        }
    }
}

/// The block in HEADERS behind `head` bytes of a priority; none of wrong ones.
fn block_of(flags: u8, stream: u32, head: usize, payload: &[u8]) -> Option<&[u8]> {
    let (padding, payload) = match flags & 8 {
        0 => (0, payload),
        _ => (usize::from(*payload.first()?), &payload[1..]),
    };
    let block = payload.get(head..payload.len().checked_sub(padding)?)?;
    let on_itself = head > 0 && {
        let [first, rest @ ..] = *payload.first_chunk::<4>()?;
        let [b, c, d] = rest;
        u32::from_be_bytes([first & 127, b, c, d]) == stream
    };
    (!on_itself).then_some(block)
}
