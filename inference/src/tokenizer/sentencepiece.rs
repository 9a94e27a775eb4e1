//! `SentencePiece`'s BPE with scores: the neighbours whose union has the highest
//! score are merged first, and characters that are no token become their bytes.
//!
//! After llama.cpp's reading of `tokenizer.ggml.model = llama`. The crate
//! `tokenizers` has no merging by score. Only normal tokens are made by merging:
//! a control token never comes from text.

use std::borrow::Cow;
use std::cell::RefCell;

use ahash::AHashMap;

use super::merge::{Merger, NONE};
use crate::ids::TokenId;

/// How `SentencePiece` writes a space (U+2581).
pub(super) const SPACE: char = '▁';

/// Pieces with their scores.
#[derive(Debug)]
pub(super) struct SentencePiece {
    /// Priority, of which the lowest goes first, and token of each piece.
    pieces: AHashMap<Box<str>, (u32, TokenId)>,
    /// Longest piece in bytes.
    max_piece_len: usize,
    /// Token of each byte, or [`NONE`]. (256)
    byte_tokens: Box<[TokenId; 256]>,
    /// What stands for a character whose bytes have no tokens.
    unknown: Option<TokenId>,
}

thread_local! {
    static MERGER: RefCell<Merger> = RefCell::default();
}

impl SentencePiece {
    /// Of pieces with the same text the first is taken.
    pub(super) fn new<'a>(
        pieces: impl Iterator<Item = (&'a str, f32, TokenId)>,
        byte_tokens: Box<[TokenId; 256]>,
        unknown: Option<TokenId>,
    ) -> Self {
        let mut by_text = AHashMap::new();
        let mut max_piece_len = 0;
        for (text, score, id) in pieces {
            max_piece_len = max_piece_len.max(text.len());
            by_text.entry(text.into()).or_insert((priority(score), id));
        }
        Self {
            pieces: by_text,
            max_piece_len,
            byte_tokens,
            unknown,
        }
    }

    /// Adds the tokens of a text to `ids`.
    pub(super) fn encode(&self, text: &str, space_before: bool, ids: &mut Vec<TokenId>) {
        let text = if space_before {
            Cow::from(format!("{SPACE}{}", text.replace(' ', "▁")))
        } else if text.contains(' ') {
            Cow::from(text.replace(' ', "▁"))
        } else {
            Cow::from(text)
        };
        let mut buffer = [0; 4];
        MERGER.with_borrow_mut(|merger| {
            for character in text.chars() {
                let piece = self.pieces.get(&*character.encode_utf8(&mut buffer));
                merger.push(character.len_utf8(), piece.map_or(NONE, |&(_, id)| id));
            }
            merger.merge(
                |left, right| {
                    let start = left.start as usize;
                    let len = (left.len + right.len) as usize;
                    let union = (len <= self.max_piece_len).then(|| &text[start..start + len])?;
                    self.pieces.get(union).copied()
                },
                |symbol| match symbol.id {
                    NONE => {
                        let start = symbol.start as usize;
                        let bytes = &text.as_bytes()[start..start + symbol.len as usize];
                        self.fall_back(bytes, ids);
                    }
                    id => ids.push(id),
                },
            );
        });
    }

    /// A character by its bytes, or as unknown.
    fn fall_back(&self, bytes: &[u8], ids: &mut Vec<TokenId>) {
        let tokens = bytes
            .iter()
            .map(|&byte| self.byte_tokens[usize::from(byte)]);
        if tokens.clone().all(|id| id != NONE) {
            ids.extend(tokens);
        } else {
            ids.extend(self.unknown);
        }
    }
}

/// Number that is lower the higher the score is.
fn priority(score: f32) -> u32 {
    // Adding 0 makes -0 the same as 0; NaN goes last.
    let bits = if score.is_nan() {
        f32::NEG_INFINITY.to_bits()
    } else {
        (score + 0.0).to_bits()
    };
    if bits >> 31 == 1 {
        bits
    } else {
        !bits & 0x7fff_ffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_falls_as_the_score_rises() {
        let scores = [
            f32::INFINITY,
            3.5,
            0.5,
            0.0,
            -0.25,
            -1.0,
            -1e9,
            f32::NEG_INFINITY,
        ];
        for pair in scores.windows(2) {
            assert!(priority(pair[0]) < priority(pair[1]), "{pair:?}");
        }
        assert_eq!(priority(0.0), priority(-0.0));
        assert_eq!(priority(f32::NAN), priority(f32::NEG_INFINITY));
    }
}
