//! Byte-level BPE: text is cut into words, and each word's bytes are merged by
//! rank.
//!
//! The alphabet that vocabularies write bytes in is GPT-2's `bytes_to_unicode`.
//! The crate `tokenizers` has the same algorithm; this one works on ids and
//! bytes only, and its pre-tokenizers are linear for every text.

use std::cell::RefCell;

use ahash::AHashMap;

use super::merge::{Merger, NONE};
use super::pre_tokenizer::PreTokenizer;
use crate::ids::TokenId;

/// Merges and words of a byte-level vocabulary.
#[derive(Debug)]
pub(super) struct ByteLevel {
    pre_tokenizer: PreTokenizer,
    /// Token of each single byte, [`NONE`] where there is none. (256)
    byte_tokens: Box<[TokenId; 256]>,
    /// Rank of a pair of tokens, and what it becomes.
    merges: AHashMap<(TokenId, TokenId), (u32, TokenId)>,
    /// Words that are tokens as they are, whatever the merges say (Llama 3, Tekken).
    whole_words: Option<AHashMap<Box<[u8]>, TokenId>>,
}

thread_local! {
    static MERGER: RefCell<Merger> = RefCell::default();
}

impl ByteLevel {
    pub(super) fn new(
        pre_tokenizer: PreTokenizer,
        byte_tokens: Box<[TokenId; 256]>,
        merges: AHashMap<(TokenId, TokenId), (u32, TokenId)>,
        whole_words: Option<AHashMap<Box<[u8]>, TokenId>>,
    ) -> Self {
        Self {
            pre_tokenizer,
            byte_tokens,
            merges,
            whole_words,
        }
    }

    /// Adds the tokens of a text to `ids`. Bytes that the vocabulary lacks are
    /// left out.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<TokenId>) {
        MERGER.with_borrow_mut(|merger| {
            self.pre_tokenizer
                .split(text, |word| self.encode_word(word, merger, ids));
        });
    }

    fn encode_word(&self, word: &str, merger: &mut Merger, ids: &mut Vec<TokenId>) {
        let whole = self
            .whole_words
            .as_ref()
            .and_then(|words| words.get(word.as_bytes()));
        if let Some(&id) = whole {
            ids.push(id);
            return;
        }
        for &byte in word.as_bytes() {
            merger.push(1, self.byte_tokens[usize::from(byte)]);
        }
        merger.merge(
            |left, right| self.merges.get(&(left.id, right.id)).copied(),
            |symbol| {
                if symbol.id != NONE {
                    ids.push(symbol.id);
                }
            },
        );
    }
}

/// Character that stands for a byte in a byte-level vocabulary.
pub(super) fn byte_to_char(byte: u8) -> char {
    // Bytes that print stand for themselves; the others follow from U+0100, in order.
    let offset = match byte {
        0..=32 => u32::from(byte),
        127..=160 => u32::from(byte) - 127 + 33,
        173 => 67,
        _ => return char::from(byte),
    };
    char::from_u32(0x100 + offset).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Bytes that a token of a byte-level vocabulary stands for; `None` if it has
/// characters that stand for none.
pub(super) fn token_to_bytes(token: &str) -> Option<Vec<u8>> {
    token.chars().map(char_to_byte).collect()
}

fn char_to_byte(character: char) -> Option<u8> {
    let code = u32::from(character);
    Some(match code {
        33..=126 | 161..=172 | 174..=255 => code as u8,
        0x100..=0x120 => (code - 0x100) as u8,
        0x121..=0x142 => (code - 0x121 + 127) as u8,
        0x143 => 173,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_of_its_own() {
        for byte in 0..=255 {
            assert_eq!(char_to_byte(byte_to_char(byte)), Some(byte));
        }
        assert_eq!(byte_to_char(b' '), 'Ġ');
        assert_eq!(byte_to_char(b'\n'), 'Ċ');
        assert_eq!(char_to_byte(' '), None);
        assert_eq!(char_to_byte('\u{144}'), None);
    }
}
