//! A path to look up: where its segments end, and each as two words.
//!
//! Guarantee: texts of up to [`Key::MAX_EXACT_LEN`] bytes are equal when
//! their keys are. One pass, eight bytes at a time, finds the slashes and
//! whether anything must be percent-decoded first.

use std::hash::{Hash, Hasher};

use memchr::memchr;

/// A path, cut into segments on demand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path<'p> {
    pub(super) text: &'p [u8],
    /// Whether there is nothing to decode: ASCII without `%`.
    pub(super) is_plain: bool,
    /// Bit `i` is set when byte `i` is a slash or `i` is the path's length.
    ends: u64,
}

impl<'p> Path<'p> {
    #[inline]
    pub(super) fn new(text: &'p [u8]) -> Self {
        let mut to_decode = 0;
        let mut ends = 0;
        let mut shift = 0;
        for word in text.as_chunks().0 {
            let word = u64::from_le_bytes(*word);
            to_decode |= bytes_to_decode(word);
            ends |= slashes(word).unbounded_shl(shift);
            shift += 8;
        }
        // The last word overlaps the one before.
        let last_at = text.len().saturating_sub(8);
        let last = word_at(text, last_at);
        to_decode |= bytes_to_decode(last);
        ends |= slashes(last).unbounded_shl(last_at as u32);
        ends |= 1_u64.unbounded_shl(text.len() as u32);
        Self {
            text,
            is_plain: to_decode == 0,
            ends,
        }
    }

    /// Where the segment after the slash at `slash` ends.
    #[inline]
    pub(super) fn segment_end(&self, slash: usize) -> usize {
        let start = slash + 1;
        if start < 64 {
            let ahead = self.ends >> start;
            if ahead != 0 {
                return start + ahead.trailing_zeros() as usize;
            }
        }
        self.far_segment_end(start)
    }

    /// Where the first `count` segments end, if the path has them and they end
    /// within 64 bytes.
    #[inline]
    pub(super) fn segments_end(&self, count: usize) -> Option<usize> {
        let mut ends = self.ends;
        for _ in 0..count {
            // Clears the lowest bit; the first is the slash in front.
            ends &= ends.wrapping_sub(1);
        }
        (ends != 0).then(|| ends.trailing_zeros() as usize)
    }

    #[cold]
    #[inline(never)]
    fn far_segment_end(&self, start: usize) -> usize {
        let from = start.max(64).min(self.text.len());
        memchr(b'/', &self.text[from..]).map_or(self.text.len(), |index| from + index)
    }
}

/// What a segment, with the slash before it, is compared and hashed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Key {
    /// The first eight bytes, padded with zeros.
    head: u64,
    /// The last eight bytes, which may overlap `head`; `head` when shorter.
    tail: u64,
    len: u32,
}

impl Key {
    /// Longer texts are equal only if the bytes between are, too.
    pub(super) const MAX_EXACT_LEN: usize = 16;

    /// Key of `bytes[start..end]`, which is not empty.
    ///
    /// There is no branch on the lengths, which are as good as random.
    #[inline]
    pub(super) fn new(bytes: &[u8], start: usize, end: usize) -> Self {
        let len = end - start;
        // A word that starts early enough to lie in the path.
        let at = start.min(bytes.len().saturating_sub(8));
        let head = word_at(bytes, at) >> (8 * (start - at));
        let head = head & LOW_BYTES[len.min(8)];
        let last = word_at(bytes, end.saturating_sub(8));
        let tail = if len < 8 { head } else { last };
        Self {
            head,
            tail,
            len: len as u32,
        }
    }

    /// Length in bytes.
    #[inline]
    pub(super) fn len(self) -> usize {
        self.len as usize
    }

    /// Unkeyed: what is stored by it are the program's own routes, so a client
    /// cannot make them collide.
    #[inline]
    pub(super) fn hash(self) -> u64 {
        let head = self.head ^ HEAD_SEED;
        let tail = self.tail.wrapping_add(u64::from(self.len)) ^ TAIL_SEED;
        let product = u128::from(head) * u128::from(tail);
        product as u64 ^ (product >> 64) as u64
    }
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(Self::hash(*self));
    }
}

/// Digits of pi, as any numbers without structure would do.
const HEAD_SEED: u64 = 0x2437_54a3_88d3_1319;
const TAIL_SEED: u64 = 0x8a2e_0370_7344_a409;

/// By the number of low bytes that are ones.
const LOW_BYTES: [u64; 9] = {
    let mut masks = [u64::MAX; 9];
    let mut num_bytes = 0;
    while num_bytes < 8 {
        masks[num_bytes] = (1 << (8 * num_bytes)) - 1;
        num_bytes += 1;
    }
    masks
};

const HIGH_BITS: u64 = 0x80 * ONES;
const LOW_BITS: u64 = 0x7f * ONES;
const PERCENTS: u64 = b'%' as u64 * ONES;
const SLASHES: u64 = b'/' as u64 * ONES;
const ONES: u64 = 0x0101_0101_0101_0101;

/// Eight bytes from `at`, the first lowest.
#[inline]
fn word_at(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at + 8).and_then(<[u8]>::first_chunk) {
        Some(word) => u64::from_le_bytes(*word),
        None => short_word(bytes),
    }
}

/// All of a path of less than eight bytes, padded with zeros.
///
/// Of pieces that overlap, because a loop over the bytes would take longer.
#[inline]
fn short_word(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let [first, last] = [first, last].map(|word| u64::from(u32::from_le_bytes(*word)));
        return first | last << (8 * (bytes.len() - 4));
    }
    let byte = |index: usize| u64::from(bytes[index]) << (8 * index);
    match bytes.len() {
        0 => 0,
        length => byte(0) | byte(length / 2) | byte(length - 1),
    }
}

/// The high bit of each byte that is `%` or not ASCII.
#[inline]
fn bytes_to_decode(word: u64) -> u64 {
    let differs = ((word ^ PERCENTS) & LOW_BITS) + LOW_BITS;
    (word | !differs) & HIGH_BITS
}

/// One bit for each byte that is a slash.
#[inline]
fn slashes(word: u64) -> u64 {
    let difference = word ^ SLASHES;
    let differs = ((difference & LOW_BITS) + LOW_BITS) | difference;
    let found = !differs & HIGH_BITS;
    // Moves the high bit of byte i to bit 56 + i.
    found.wrapping_mul(0x0002_0408_1020_4081) >> 56
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_short_word_is_its_bytes() {
        for length in 0..8 {
            let bytes = &b"abcdefgh"[..length];
            let by_byte = |word, byte: &u8| word << 8 | u64::from(*byte);
            assert_eq!(short_word(bytes), bytes.iter().rev().fold(0, by_byte));
        }
    }

    proptest! {
        #[test]
        fn segments_end_where_split_says(text in "/([a%é]{0,9}/?){0,12}") {
            let path = Path::new(text.as_bytes());
            prop_assert_eq!(path.is_plain, text.is_ascii() && !text.contains('%'));
            let mut slash = 0;
            let mut num_segments = 0;
            for segment in text[1..].split('/') {
                slash += segment.len() + 1;
                num_segments += 1;
                prop_assert_eq!(path.segment_end(slash - segment.len() - 1), slash);
                prop_assert_eq!(path.segments_end(num_segments), Some(slash).filter(|end| *end < 64));
            }
        }

        #[test]
        fn a_key_depends_on_its_segment_alone(
            before in "[a/]{0,20}", segment in "[ab]{1,20}", after in "[a/]{0,20}",
        ) {
            let text = [&*before, &*segment, &*after].concat();
            let end = before.len() + segment.len();
            let alone = Key::new(segment.as_bytes(), 0, segment.len());
            prop_assert_eq!(Key::new(text.as_bytes(), before.len(), end), alone);
        }

        #[test]
        fn equal_keys_mean_equal_segments(a in "[ab\0]{1,16}", b in "[ab\0]{1,16}") {
            let [left, right] = [&a, &b].map(|text| Key::new(text.as_bytes(), 0, text.len()));
            prop_assert_eq!(left == right, a == b);
        }
    }
}
