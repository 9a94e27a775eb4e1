//! The code in a GOAWAY that h2 writes, amended.
//!
//! Guarantee: bytes leave as h2 wrote them, but for the code of a GOAWAY with
//! `PROTOCOL_ERROR` once another one is due.

use super::{Code, GOAWAY, HEAD_BYTES};

/// Where the last byte of the code is in a GOAWAY, behind head, last stream and
/// the upper bytes, all zeros.
const CODE_AT: usize = HEAD_BYTES + 7;

/// A place in the frames that are written.
#[derive(Debug)]
pub(in crate::server) struct Replies {
    pub(in crate::server) head: [u8; HEAD_BYTES],
    /// Bytes of the frame that have been written, and that it has in all as
    /// soon as that is known.
    pub(in crate::server) written: usize,
    pub(in crate::server) length: usize,
}

impl Replies {
    /// These bytes, which are to be written next, with the code that is due.
    pub(in crate::server) fn amend(self, mut bytes: Vec<u8>, code: Code) -> Vec<u8> {
        let mut ahead = self;
        let mut at = 0;
        while at < bytes.len() {
            let before = ahead.written;
            let num_taken = ahead.take(&bytes[at..]);
            if ahead.head[3] == GOAWAY
                && let Some(ahead_of_code) = CODE_AT.checked_sub(before)
                && ahead_of_code < num_taken
                && let Some(last @ 1) = bytes.get_mut(at + ahead_of_code)
            {
                *last = code as u8;
            }
            at += num_taken;
        }
        bytes
    }

    /// Takes bytes up to the end of a head or of a frame; how many.
    fn take(&mut self, bytes: &[u8]) -> usize {
        if self.written < HEAD_BYTES {
            let num_taken = bytes.len().min(HEAD_BYTES - self.written);
            self.head[self.written..][..num_taken].copy_from_slice(&bytes[..num_taken]);
            self.written += num_taken;
            if self.written == HEAD_BYTES {
                let [high, middle, low, ..] = self.head;
                let payload = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.length = HEAD_BYTES + payload;
                self.end_frame();
            }
            return num_taken;
        }
        let num_taken = bytes.len().min(self.length - self.written);
        self.written += num_taken;
        self.end_frame();
        num_taken
    }

    const fn end_frame(&mut self) {
        if self.written == self.length {
            self.written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::h2_replies::ReplyWatch;

    const GOAWAY_FRAME: [u8; 17] = [0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1];

    /// What is written of these bytes, so many at a time, of which `taken` are
    /// taken each time.
    fn written(bytes: &[u8], offered: usize, taken: usize) -> Vec<u8> {
        let mut watch = ReplyWatch::new();
        let mut written = Vec::new();
        while written.len() < bytes.len() {
            let rest = &bytes[written.len()..];
            let offer = rest[..offered.min(rest.len())].to_vec();
            let offer = watch.place().amend(offer, Code::Compression);
            let taken = &offer[..taken.min(offer.len())];
            watch.watch(taken, |_| {});
            written.extend_from_slice(taken);
        }
        written
    }

    #[test]
    fn only_the_code_of_a_goaway_is_amended() {
        let data = [&[0, 0, 17, 0, 0, 0, 0, 0, 1][..], &GOAWAY_FRAME].concat();
        let empty = [0, 0, 0, 4, 1, 0, 0, 0, 0];
        let mut graceful = GOAWAY_FRAME;
        graceful[16] = 0;
        let before = [&data[..], &empty, &graceful, &data].concat();
        let bytes = [&before[..], &GOAWAY_FRAME].concat();
        let mut amended = bytes.clone();
        amended[before.len() + 16] = 9;
        for offered in 1..bytes.len() {
            for taken in 1..=offered {
                assert_eq!(
                    written(&bytes, offered, taken),
                    amended,
                    "{offered} {taken}"
                );
            }
        }
    }
}
