//! What h2 is shown of a peer's frames, against a reader of whole streams.

use super::h2_frames::FrameCheck;
use crate::fuzzing::Input;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;

/// It does not depend on the cuts, it is what was sent up to the first wrong
/// frame, and the error is the one that is due.
pub(crate) fn check_h2_frames(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut pieces = input.pieces();
    pieces.insert(0, PREFACE);
    let sent = pieces.concat();
    let (length, wrong) = read(&sent);
    let due = [&sent[..length], wrong.unwrap_or_default()].concat();
    assert_eq!(shown(&[&sent]), due, "in one piece");
    assert_eq!(shown(&pieces), due, "in {} pieces", pieces.len());
}

/// What passes of pieces that are read one after the other.
fn shown(pieces: &[&[u8]]) -> Vec<u8> {
    let mut frames = FrameCheck::new();
    let mut shown = Vec::new();
    let mut buffer = Vec::new();
    for piece in pieces {
        if frames.is_over() {
            break;
        }
        buffer.resize(64 * 1024, 0);
        let held = frames.restore(&mut buffer);
        buffer.truncate(held);
        buffer.extend_from_slice(piece);
        let verdict = frames.check(&buffer);
        shown.extend_from_slice(&buffer[..verdict.passed]);
        shown.extend_from_slice(verdict.instead.unwrap_or_default());
    }
    shown
}

/// How much of a stream may pass, and what stands for the frame after it.
fn read(sent: &[u8]) -> (usize, Option<&'static [u8]>) {
    let mut at = PREFACE.len();
    loop {
        let Some(head) = sent.get(at..at + 9) else {
            return (at.min(sent.len()), None);
        };
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let (kind, is_ack) = (head[3], head[4] & 1 == 1);
        if at == PREFACE.len() && (kind != SETTINGS || is_ack) {
            return (at, Some(&[0; 9]));
        }
        let is_wrong = match kind {
            2 => length != 5,
            3 | 8 => length != 4,
            SETTINGS => is_ack && length > 0 || !length.is_multiple_of(6),
            6 => length != 8,
            7 => length < 8,
            _ => false,
        };
        if is_wrong {
            return (at, Some(&[255, 255, 255, 0, 0, 0, 0, 0, 0]));
        }
        let end = at + 9 + length;
        if kind == SETTINGS && length <= 16_384 {
            let Some(payload) = sent.get(at + 9..end) else {
                return (at, None);
            };
            let is_too_wide = |entry: &[u8]| entry[..2] == [0, 4] && entry[2] >= 128;
            if payload.chunks(6).any(is_too_wide) {
                let overflow = &[0, 0, 4, 8, 0, 0, 0, 0, 0, 127, 255, 255, 255];
                return (at, Some(overflow));
            }
        }
        if end >= sent.len() {
            return (sent.len(), None);
        }
        at = end;
    }
}
