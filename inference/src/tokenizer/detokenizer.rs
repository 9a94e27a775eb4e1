//! Tokens of a running answer to text that is certain: whole characters only,
//! and joined exactly what [`Tokenizer::decode`] gives for all of them.

use std::sync::Arc;

use super::Tokenizer;
use crate::ids::TokenId;

/// Turns the tokens of one answer into text, one by one.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    /// Whether control tokens are written out by their names.
    shows_control: bool,
    /// Bytes of a character that is not complete; at most 3 between calls.
    pending: Vec<u8>,
}

impl Detokenizer {
    /// Begins an answer. Control tokens are left out.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            tokenizer,
            shows_control: false,
            pending: Vec::new(),
        }
    }

    /// Writes control tokens out by their names.
    #[must_use]
    pub fn with_control(mut self) -> Self {
        self.shows_control = true;
        self
    }

    /// Adds a token and returns the text that has become certain, which may be
    /// empty. Bytes become U+FFFD once no further byte can make them valid.
    pub fn push(&mut self, id: TokenId) -> String {
        if self.shows_control || !self.tokenizer.is_control(id) {
            self.pending
                .extend_from_slice(self.tokenizer.token_bytes(id).unwrap_or_default());
        }
        let mut text = String::new();
        let mut start = 0;
        while start < self.pending.len() {
            match std::str::from_utf8(&self.pending[start..]) {
                Ok(valid) => {
                    text.push_str(valid);
                    start = self.pending.len();
                }
                Err(error) => {
                    let valid_end = start + error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.pending[start..valid_end]));
                    start = valid_end;
                    match error.error_len() {
                        Some(num_invalid) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            start += num_invalid;
                        }
                        None => break,
                    }
                }
            }
        }
        self.pending.drain(..start);
        text
    }

    /// Ends the answer: what is left of a character that never was completed,
    /// as U+FFFD, or nothing. The next token begins an answer anew.
    pub fn finish(&mut self) -> String {
        super::lossy(std::mem::take(&mut self.pending))
    }
}
