//! A rendered prompt: its text, and its tokens, in which control tokens come
//! from the template alone.

use super::guard::Guard;
use crate::ids::TokenId;
use crate::tokenizer::{Fragment, Tokenizer};

/// What a template made of messages.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RenderedPrompt {
    /// Text in which control tokens of users are hidden.
    guarded: String,
    guard: Guard,
}

impl RenderedPrompt {
    pub(super) fn new(guarded: String, guard: Guard) -> Self {
        Self { guarded, guard }
    }

    /// The prompt as text; what users wrote looks as they wrote it.
    pub fn text(&self) -> String {
        self.guard.restore(&self.guarded)
    }

    /// Tokens of the prompt: with the first token that the model expects exactly
    /// once, and control tokens only where the template wrote them.
    pub fn encode(&self, tokenizer: &Tokenizer) -> Vec<TokenId> {
        let pieces: Vec<_> = tokenizer
            .all_special()
            .split(&self.guarded)
            .into_iter()
            .map(|fragment| match fragment {
                Fragment::Token(id) => Piece::Token(id),
                Fragment::Text(text) => Piece::Text(self.guard.restore(text)),
            })
            .collect();
        let fragments: Vec<_> = pieces
            .iter()
            .flat_map(|piece| match piece {
                Piece::Token(id) => vec![Fragment::Token(*id)],
                // A stand-in may have hidden a user-defined token, which is one in any text.
                Piece::Text(text) => tokenizer.user_defined().split(text),
            })
            .collect();
        tokenizer.with_first_token(tokenizer.encode_fragments(&fragments))
    }
}

/// A fragment that owns its text.
enum Piece {
    Token(TokenId),
    Text(String),
}
