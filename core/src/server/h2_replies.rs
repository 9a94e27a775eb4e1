//! The refusals that h2 sends by itself, read off the frames as they leave.
//!
//! Guarantee: what is counted was written to the peer. h2 tells nobody of a
//! stream beyond `SETTINGS_MAX_CONCURRENT_STREAMS` (RFC 9113 §5.1.2), of a
//! header list over its limit, which it answers with 431 (§10.5.1), nor of a
//! stream that overruns its window (§6.9.1); and why it ends a connection
//! stands in the debug data of its GOAWAY alone (§6.8).

use super::h2_frames::Replies;
use crate::limits::Reject;

const HEAD_BYTES: usize = 9;
/// The most that is kept of a payload: what h2 sends has fewer bytes.
const KEPT_BYTES: usize = 64;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;

const FLOW_CONTROL_ERROR: u8 = 3;
const REFUSED_STREAM: u8 = 7;

/// Reads the heads of a server's frames as they pass.
#[derive(Debug)]
pub(super) struct ReplyWatch {
    head: [u8; HEAD_BYTES],
    num_head: usize,
    /// Start of the payload of a frame that is of interest.
    kept: [u8; KEPT_BYTES],
    num_kept: usize,
    /// Bytes of the payload that are to come.
    left: usize,
    /// Streams whose answer has begun and not ended: what more HEADERS they
    /// get are trailers.
    begun: Vec<u32>,
    fault: Option<Reject>,
}

impl ReplyWatch {
    /// Before the first frame.
    pub(super) const fn new() -> Self {
        Self {
            head: [0; HEAD_BYTES],
            num_head: 0,
            kept: [0; KEPT_BYTES],
            num_kept: 0,
            left: 0,
            begun: Vec::new(),
            fault: None,
        }
    }

    /// The limit that the connection was told to end for.
    pub(super) const fn fault(&self) -> Option<Reject> {
        self.fault
    }

    /// Where the frames are that have been written.
    pub(super) fn place(&self) -> Replies {
        let [high, middle, low, ..] = self.head;
        let payload = u32::from_be_bytes([0, high, middle, low]) as usize;
        let length = HEAD_BYTES + payload;
        let written = if self.num_head < HEAD_BYTES {
            self.num_head
        } else {
            length - self.left
        };
        Replies {
            head: self.head,
            written,
            length,
        }
    }

    /// Looks at the next bytes, and calls `count` for each refusal in them.
    pub(super) fn watch(&mut self, mut bytes: &[u8], mut count: impl FnMut(Reject)) {
        while !bytes.is_empty() {
            if self.num_head < HEAD_BYTES {
                let length = bytes.len().min(HEAD_BYTES - self.num_head);
                self.head[self.num_head..][..length].copy_from_slice(&bytes[..length]);
                self.num_head += length;
                bytes = &bytes[length..];
                if self.num_head < HEAD_BYTES {
                    return;
                }
                let [high, middle, low, ..] = self.head;
                self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.num_kept = 0;
            } else {
                let length = bytes.len().min(self.left);
                let kept = length.min(KEPT_BYTES - self.num_kept);
                self.kept[self.num_kept..][..kept].copy_from_slice(&bytes[..kept]);
                self.num_kept += kept;
                self.left -= length;
                bytes = &bytes[length..];
            }
            if self.left == 0 {
                self.num_head = 0;
                if let Some(reject) = self.judge() {
                    count(reject);
                }
            }
        }
    }

    /// What the frame that has just ended refuses.
    fn judge(&mut self) -> Option<Reject> {
        let [high, middle, low, kind, flags, stream @ ..] = self.head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let stream = u32::from_be_bytes(stream);
        let is_end = flags & END_STREAM != 0;
        match kind {
            HEADERS if !is_end => {
                self.begun.push(stream);
                None
            }
            HEADERS => {
                let is_bare = length <= KEPT_BYTES && is_one_field(&self.kept[..length]);
                (!self.ends(stream) && is_bare).then_some(Reject::H2HeaderList)
            }
            DATA if is_end => {
                self.ends(stream);
                None
            }
            RST_STREAM => {
                self.ends(stream);
                match self.kept[..self.num_kept] {
                    [0, 0, 0, FLOW_CONTROL_ERROR] => Some(Reject::H2Window),
                    [0, 0, 0, REFUSED_STREAM] => Some(Reject::H2Streams),
                    _ => None,
                }
            }
            GOAWAY => {
                self.fault = fault_of(&self.kept[..self.num_kept]).or(self.fault);
                None
            }
            _ => None,
        }
    }

    /// Forgets a stream; whether its answer had begun.
    fn ends(&mut self, stream: u32) -> bool {
        let index = self.begun.iter().position(|begun| *begun == stream);
        index.map(|index| self.begun.swap_remove(index)).is_some()
    }
}

/// The limit that the payload of a GOAWAY names.
fn fault_of(payload: &[u8]) -> Option<Reject> {
    let (code, data) = payload.get(4..)?.split_first_chunk()?;
    match (code, data) {
        ([0, 0, 0, FLOW_CONTROL_ERROR], _) => Some(Reject::H2Window),
        (_, b"too_many_resets") => Some(Reject::H2PendingResets),
        (_, b"too_many_internal_resets") => Some(Reject::H2LocalResets),
        // So many that the header list cannot be within its limit.
        (_, b"too_many_continuations") => Some(Reject::H2HeaderList),
        _ => None,
    }
}

/// Whether a field block (RFC 7541 §6) holds one field that is no status of
/// the static table: a 431 by itself. Every answer of ours has a date too.
fn is_one_field(block: &[u8]) -> bool {
    let mut rest = block;
    // Changes of the table's size come first.
    while let [byte @ 0x20..=0x3f, after @ ..] = rest {
        rest = if *byte == 0x3f {
            after_number(after)
        } else {
            after
        };
    }
    match rest {
        // Out of the dynamic table: index 62 and above.
        [0xff, after @ ..] => after_number(after).is_empty(),
        [0xbe..=0xfe] => true,
        // A literal value of `:status`, which is index 8.
        [0x48 | 0x08 | 0x18, length, value @ ..] => value.len() == usize::from(length & 0x7f),
        _ => false,
    }
}

/// What follows the further bytes of a number (RFC 7541 §5.1).
fn after_number(bytes: &[u8]) -> &[u8] {
    let last = bytes.iter().position(|byte| byte & 0x80 == 0);
    last.map_or(&[], |last| &bytes[last + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        [&head, payload].concat()
    }

    /// The same whatever the pieces.
    #[track_caller]
    fn check(frames: &[Vec<u8>], expected: &[Reject]) {
        let bytes = frames.concat();
        for size in [1, 2, 7, 10, bytes.len()] {
            let mut watch = ReplyWatch::new();
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                watch.watch(piece, |reject| found.push(reject));
            }
            assert_eq!(found, expected, "in pieces of {size}");
            assert!(watch.begun.is_empty(), "{watch:?}");
        }
    }

    #[test]
    fn resets_are_told_by_their_code() {
        let reset = |stream, code: u32| frame(RST_STREAM, 0, stream, &code.to_be_bytes());
        check(&[reset(1, 7)], &[Reject::H2Streams]);
        check(
            &[reset(1, 3), reset(3, 7)],
            &[Reject::H2Window, Reject::H2Streams],
        );
        check(&[reset(1, 0), reset(3, 1), reset(5, 8)], &[]);
        // A frame of another kind with the same payload.
        check(&[frame(8, 0, 0, &[0, 0, 0, 7]), frame(4, 1, 0, &[])], &[]);
    }

    #[test]
    fn a_431_of_h2_is_a_status_by_itself() {
        let end = END_STREAM | 4;
        let bare = |stream, block: &[u8]| frame(HEADERS, end, stream, block);
        for block in [
            &b"\x48\x03431"[..],
            b"\x48\x82\x68\x41",
            b"\x08\x03431",
            b"\xbe",
            b"\xff\x00",
            b"\x20\x3f\x81\x01\x48\x03431",
        ] {
            check(&[bare(1, block)], &[Reject::H2HeaderList]);
        }
        for block in [
            &b"\x89"[..],
            b"\x88\xbe",
            b"\xbe\xbf",
            b"\x48\x03431\xbe",
            b"\xff\x00\xbe",
            b"\x48",
            b"",
            b"\x40\x01a\x01b",
        ] {
            check(&[bare(1, block)], &[]);
        }
    }

    #[test]
    fn a_goaway_says_which_limit_it_is_for() {
        for (code, data, expected) in [
            (0, "", None),
            (1, "", None),
            (3, "", Some(Reject::H2Window)),
            (11, "too_many_resets", Some(Reject::H2PendingResets)),
            (11, "too_many_internal_resets", Some(Reject::H2LocalResets)),
            (11, "too_many_continuations", Some(Reject::H2HeaderList)),
            (11, "another", None),
        ] {
            let payload = [&[0, 0, 0, 9, 0, 0, 0, code], data.as_bytes()].concat();
            let mut watch = ReplyWatch::new();
            for byte in frame(GOAWAY, 0, 0, &payload) {
                watch.watch(&[byte], |reject| panic!("{reject:?}"));
            }
            assert_eq!(watch.fault(), expected, "{code} {data}");
        }
        assert_eq!(fault_of(b"\0\0\0\0\0"), None);
    }

    #[test]
    fn trailers_are_no_answer() {
        let answer = [
            frame(HEADERS, 4, 1, b"\x88\xbe"),
            frame(DATA, 0, 1, &[0; 40]),
            frame(HEADERS, END_STREAM | 4, 1, b"\xbe"),
        ];
        check(&answer, &[]);
        let ended = frame(DATA, END_STREAM, 1, b"x");
        let fresh = frame(HEADERS, END_STREAM | 4, 3, b"\xbe");
        let answer = [answer[0].clone(), ended, fresh];
        check(&answer, &[Reject::H2HeaderList]);
    }
}
