//! What h2 leaves unchecked of the frames that a peer sends, or answers with
//! a vaguer error than is due (RFC 9113 §3.4, §4.2, §6).
//!
//! Guarantee: a frame passes as it came, or the connection ends with the error
//! that the RFC names: h2 is shown one that it answers with that error.

/// The connection preface, which comes before all frames.
const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
/// The most that a frame may have: this server announces no more.
const MAX_PAYLOAD_BYTES: usize = 16_384;
const MAX_WINDOW_BYTES: u32 = 0x7fff_ffff;

const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// DATA on stream 0, which is answered with `PROTOCOL_ERROR`.
const PROTOCOL_ERROR: &[u8] = &[0; HEAD_BYTES];
/// A frame larger than any may be: `FRAME_SIZE_ERROR`.
const FRAME_SIZE_ERROR: &[u8] = &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0];
/// More window than a connection can have: `FLOW_CONTROL_ERROR`.
const FLOW_CONTROL_ERROR: &[u8] = &[
    0,
    0,
    4,
    WINDOW_UPDATE,
    0,
    0,
    0,
    0,
    0,
    0x7f,
    0xff,
    0xff,
    0xff,
];

/// Reads the heads of a peer's frames as they pass.
#[derive(Debug)]
pub(super) struct FrameCheck {
    /// Bytes of a head, or of a SETTINGS frame, that is not complete.
    held: Vec<u8>,
    /// Bytes to come that need no look.
    passing: usize,
    /// No frame has come.
    is_first: bool,
    is_over: bool,
}

/// What to do with bytes that were read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// So many pass; the rest is kept for the next read, or is of no interest.
    pub(super) passed: usize,
    /// What takes the place of a wrong frame; nothing passes after it.
    pub(super) instead: Option<&'static [u8]>,
}

impl FrameCheck {
    /// Expects the preface.
    pub(super) const fn new() -> Self {
        Self {
            held: Vec::new(),
            passing: PREFACE_BYTES,
            is_first: true,
            is_over: false,
        }
    }

    /// Whether a wrong frame has come: what follows it is of no interest.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Puts what has been kept at the start of `buffer`; its length.
    ///
    /// The next [`Self::check`] has to see it again.
    pub(super) fn restore(&mut self, buffer: &mut [u8]) -> usize {
        let length = self.held.len();
        buffer[..length].copy_from_slice(&self.held);
        self.held.clear();
        length
    }

    /// Looks at the next bytes.
    pub(super) fn check(&mut self, bytes: &[u8]) -> Verdict {
        let mut at = 0;
        loop {
            let passed = self.passing.min(bytes.len() - at);
            at += passed;
            self.passing -= passed;
            if at == bytes.len() {
                return Verdict {
                    passed: at,
                    instead: None,
                };
            }
            let rest = &bytes[at..];
            let Some(&[length @ .., kind, flags, _, _, _, _]) = rest.first_chunk::<HEAD_BYTES>()
            else {
                return self.keep(rest, at);
            };
            let [high, middle, low] = length;
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            if let Some(wrong) = self.judge_head(kind, flags, length) {
                return self.end(wrong, at);
            }
            let whole = HEAD_BYTES + length;
            if kind == SETTINGS && length <= MAX_PAYLOAD_BYTES {
                let Some(frame) = rest.get(..whole) else {
                    return self.keep(rest, at);
                };
                if has_too_wide_window(&frame[HEAD_BYTES..]) {
                    return self.end(FLOW_CONTROL_ERROR, at);
                }
            }
            self.is_first = false;
            self.passing = whole;
        }
    }

    /// What is due for a frame by its head alone.
    fn judge_head(&self, kind: u8, flags: u8, length: usize) -> Option<&'static [u8]> {
        let is_ack = flags & ACK != 0;
        let is_sized = match kind {
            PRIORITY => length == 5,
            RST_STREAM | WINDOW_UPDATE => length == 4,
            SETTINGS if is_ack => length == 0,
            SETTINGS => length.is_multiple_of(6),
            PING => length == 8,
            GOAWAY => length >= 8,
            _ => true,
        };
        if self.is_first && (kind != SETTINGS || is_ack) {
            return Some(PROTOCOL_ERROR);
        }
        (!is_sized).then_some(FRAME_SIZE_ERROR)
    }

    fn keep(&mut self, rest: &[u8], passed: usize) -> Verdict {
        self.held.extend_from_slice(rest);
        Verdict {
            passed,
            instead: None,
        }
    }

    const fn end(&mut self, instead: &'static [u8], passed: usize) -> Verdict {
        self.is_over = true;
        Verdict {
            passed,
            instead: Some(instead),
        }
    }
}

fn has_too_wide_window(settings: &[u8]) -> bool {
    let (settings, _) = settings.as_chunks::<6>();
    settings.iter().any(|&[high, low, value @ ..]| {
        u16::from_be_bytes([high, low]) == INITIAL_WINDOW_SIZE
            && u32::from_be_bytes(value) > MAX_WINDOW_BYTES
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    /// The preface, SETTINGS, and these bytes.
    fn start(frames: &[Vec<u8>]) -> Vec<u8> {
        let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0]);
        [&[b'P'; PREFACE_BYTES][..], &settings, &frames.concat()].concat()
    }

    /// What h2 gets of bytes that come in parts of this size.
    fn passed(bytes: &[u8], part: usize) -> Vec<u8> {
        let mut check = FrameCheck::new();
        let mut shown = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        for part in bytes.chunks(part) {
            if check.is_over() {
                break;
            }
            let held = check.restore(&mut buffer);
            buffer[held..held + part.len()].copy_from_slice(part);
            let verdict = check.check(&buffer[..held + part.len()]);
            shown.extend_from_slice(&buffer[..verdict.passed]);
            shown.extend_from_slice(verdict.instead.unwrap_or_default());
        }
        shown
    }

    #[test]
    fn right_frames_pass_as_they_came_wherever_they_are_cut() {
        let bytes = start(&[
            frame(SETTINGS, ACK, 0, &[]),
            frame(1, 5, 1, b"block"),
            frame(0, 1, 1, &[7; 200]),
            frame(PRIORITY, 0, 3, &[0; 5]),
            frame(RST_STREAM, 0, 1, &[0; 4]),
            frame(PING, 0, 0, &[0; 8]),
            frame(WINDOW_UPDATE, 0, 0, &[0; 4]),
            frame(0x16, 0xff, 9, &[1]),
            frame(GOAWAY, 0, 0, &[0; 9]),
        ]);
        for part in 1..bytes.len() {
            assert_eq!(passed(&bytes, part), bytes, "parts of {part}");
        }
    }

    #[test]
    fn a_wrong_frame_is_replaced_and_nothing_passes_after_it() {
        let too_wide = [0, 3, 0, 0, 0, 9, 0, 4, 0x80, 0, 0, 0];
        for (wrong, due) in [
            (frame(SETTINGS, 0, 0, &too_wide), FLOW_CONTROL_ERROR),
            (frame(SETTINGS, 0, 0, &[0; 7]), FRAME_SIZE_ERROR),
            (frame(SETTINGS, ACK, 0, &[0; 6]), FRAME_SIZE_ERROR),
            (frame(PRIORITY, 0, 1, &[0; 4]), FRAME_SIZE_ERROR),
            (frame(RST_STREAM, 0, 1, &[0; 5]), FRAME_SIZE_ERROR),
            (frame(PING, 0, 0, &[0; 7]), FRAME_SIZE_ERROR),
            (frame(GOAWAY, 0, 0, &[0; 7]), FRAME_SIZE_ERROR),
            (frame(WINDOW_UPDATE, 0, 1, &[0; 3]), FRAME_SIZE_ERROR),
        ] {
            let before = start(&[frame(PING, 0, 0, &[0; 8])]);
            let bytes = [&before[..], &wrong, &frame(PING, 0, 0, &[1; 8])].concat();
            for part in 1..bytes.len() {
                let shown = [&before[..], due].concat();
                assert_eq!(passed(&bytes, part), shown, "{wrong:?} in parts of {part}");
            }
        }
    }

    #[test]
    fn the_first_frame_is_settings() {
        for first in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, ACK, 0, &[])] {
            let preface = [b'P'; PREFACE_BYTES];
            let shown = [&preface[..], PROTOCOL_ERROR].concat();
            assert_eq!(passed(&[&preface[..], &first].concat(), 5), shown);
        }
    }
}
