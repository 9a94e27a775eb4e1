//! Bytes and kind of every token, in two flat tables.

use crate::ids::TokenId;

/// Names of control tokens that end a turn or a text, in the models that have
/// them; files name only one of them as `eos_token_id`.
const ENDS_OF_TURN: &[&str] = &[
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<|eot|>",
    "<EOT>",
    "</s>",
];

/// What a token is for. The order is that of `tokenizer.ggml.token_type`, from 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TokenKind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// Tokens by their ids.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    /// Bytes of all tokens, one after the other.
    bytes: Vec<u8>,
    /// Where each ends in `bytes`. (`vocab_size`)
    ends: Vec<usize>,
    /// (`vocab_size`)
    kinds: Vec<TokenKind>,
}

impl TokenKind {
    /// Kind of a number in `tokenizer.ggml.token_type`.
    pub(super) fn from_gguf(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }

    /// Whether it steers the model and is no part of the text.
    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }

    /// Whether text is split at it before anything is merged.
    pub(super) fn stands_alone(self) -> bool {
        self.is_control() || self == Self::UserDefined
    }
}

impl Vocabulary {
    /// Adds the next token.
    pub(super) fn push(&mut self, bytes: &[u8], kind: TokenKind) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self.kinds.push(kind);
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(super) fn bytes(&self, id: TokenId) -> Option<&[u8]> {
        let index = id as usize;
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }

    pub(super) fn kind(&self, id: TokenId) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// Control tokens that end a turn or a text by their names, ascending.
    pub(super) fn ends_of_turn(&self) -> Vec<TokenId> {
        let ends = self.iter().filter(|(_, bytes, kind)| {
            kind.is_control() && ENDS_OF_TURN.iter().any(|name| name.as_bytes() == *bytes)
        });
        ends.map(|(id, _, _)| id).collect()
    }

    /// Tokens with their kinds, by ascending id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TokenId, &[u8], TokenKind)> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let kinds = self.kinds.iter().copied();
        (0..)
            .zip(starts.zip(&self.ends))
            .zip(kinds)
            .map(|((id, (start, &end)), kind)| (id, &self.bytes[start..end], kind))
    }
}
