//! Finds special tokens in text: the leftmost first, the longest of those that
//! begin at one place, in one pass over the text.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::ids::TokenId;

/// Part of a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fragment<'a> {
    /// A special token.
    Token(TokenId),
    /// Text without any; never empty.
    Text(&'a str),
}

/// A token that text is split at.
#[derive(Clone, Debug)]
pub(super) struct SpecialToken {
    pub(super) id: TokenId,
    pub(super) text: String,
    /// Whether whitespace before it belongs to it (Hugging Face's `lstrip`).
    pub(super) strip_left: bool,
    /// Whether whitespace after it belongs to it (Hugging Face's `rstrip`).
    pub(super) strip_right: bool,
}

/// Splits text at a set of tokens.
#[derive(Debug, Default)]
pub(crate) struct SpecialSplitter {
    /// `None` where there are no tokens.
    automaton: Option<AhoCorasick>,
    tokens: Vec<SpecialToken>,
}

impl SpecialSplitter {
    /// Tokens with empty text are left out: they are nowhere.
    ///
    /// # Errors
    ///
    /// What the automaton says, for sets that are too large for it.
    pub(super) fn new(mut tokens: Vec<SpecialToken>) -> Result<Self, aho_corasick::BuildError> {
        tokens.retain(|token| !token.text.is_empty());
        if tokens.is_empty() {
            return Ok(Self::default());
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|token| &token.text))?;
        Ok(Self {
            automaton: Some(automaton),
            tokens,
        })
    }

    /// Parts of the text in their order.
    pub(crate) fn split<'a>(&self, text: &'a str) -> Vec<Fragment<'a>> {
        let mut fragments = Vec::new();
        let mut rest_start = 0;
        for (start, end, token) in self.matches(text) {
            // A token before this one may have taken whitespace on its right.
            if start < rest_start {
                continue;
            }
            let before = &text[rest_start..start];
            let before = if token.strip_left {
                before.trim_end()
            } else {
                before
            };
            if !before.is_empty() {
                fragments.push(Fragment::Text(before));
            }
            fragments.push(Fragment::Token(token.id));
            let after = &text[end..];
            let num_stripped = if token.strip_right {
                after.len() - after.trim_start().len()
            } else {
                0
            };
            rest_start = end + num_stripped;
        }
        if rest_start < text.len() {
            fragments.push(Fragment::Text(&text[rest_start..]));
        }
        fragments
    }

    /// Tokens and their names.
    pub(super) fn names(&self) -> impl Iterator<Item = (TokenId, &str)> {
        self.tokens
            .iter()
            .map(|token| (token.id, token.text.as_str()))
    }

    fn matches(&self, text: &str) -> impl Iterator<Item = (usize, usize, &SpecialToken)> {
        self.automaton
            .iter()
            .flat_map(move |automaton| automaton.find_iter(text))
            .map(|found| {
                (
                    found.start(),
                    found.end(),
                    &self.tokens[found.pattern().as_usize()],
                )
            })
    }
}
