//! Log-probabilities in the two shapes of OpenAI's API: a list of objects for
//! chats, four lists side by side for completions.
//!
//! Guarantees: a number is never NaN or infinite, which JSON has not, −9999
//! stands for −∞; the bytes of tokens joined are the bytes of the text.
//! Source: OpenAI API reference; vLLM for −9999 and `prompt_logprobs`.

use std::fmt::Write as _;

use serde::Serialize as DeriveSerialize;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::model::ServedModel;
use crate::{TokenId, TokenLogprobs};

/// In place of −∞.
const LOWEST: f32 = -9999.0;

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { LOWEST }
}

/// `logprobs` of a chat's choice.
#[derive(Debug, DeriveSerialize)]
pub(super) struct ChatLogprobs {
    content: Vec<ChatToken>,
    refusal: Option<()>,
}

#[derive(Debug, DeriveSerialize)]
struct ChatToken {
    #[serde(flatten)]
    token: Spelled,
    top_logprobs: Vec<Spelled>,
}

#[derive(Debug, DeriveSerialize)]
struct Spelled {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl Spelled {
    fn new(model: &ServedModel, id: TokenId, logprob: f32) -> Self {
        let bytes = model.token_bytes(id);
        Self {
            token: String::from_utf8_lossy(bytes).into_owned(),
            logprob: finite(logprob),
            bytes: bytes.to_vec(),
        }
    }
}

impl ChatLogprobs {
    pub(super) fn new(model: &ServedModel, tokens: &[TokenLogprobs]) -> Self {
        let spell = |(id, logprob): &(TokenId, f32)| Spelled::new(model, *id, *logprob);
        let tokens = tokens.iter().map(|token| ChatToken {
            token: Spelled::new(model, token.token, token.logprob),
            top_logprobs: token.top.iter().map(spell).collect(),
        });
        Self {
            content: tokens.collect(),
            refusal: None,
        }
    }
}

/// `logprobs` of a completion's choice.
#[derive(Debug, Default, DeriveSerialize)]
pub(super) struct TextLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<Greatest>>,
    text_offset: Vec<usize>,
}

/// The greatest at one position by their text, descending, and the one that
/// stands there.
#[derive(Debug)]
struct Greatest(Vec<(String, f32)>);

impl Serialize for Greatest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (token, logprob) in &self.0 {
            map.serialize_entry(token, logprob)?;
        }
        map.end()
    }
}

impl Greatest {
    fn new(model: &ServedModel, token: &TokenLogprobs) -> Self {
        let mut all: Vec<(String, f32)> = Vec::with_capacity(token.top.len() + 1);
        let own = (token.token, token.logprob);
        for (id, logprob) in token.top.iter().copied().chain([own]) {
            let text = readable(model.token_bytes(id));
            // Two tokens may read the same; the likelier one stays.
            if !all.iter().any(|(known, _)| *known == text) {
                all.push((text, finite(logprob)));
            }
        }
        Self(all)
    }
}

/// A token as text; `bytes:\xff` where it is none, as OpenAI writes it.
fn readable(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut text = "bytes:".to_owned();
    for byte in bytes {
        write!(text, "\\x{byte:02x}").expect("writing to memory cannot fail");
    }
    text
}

/// The same with at most so many of the greatest: the engine was asked once,
/// for the more of two members.
pub(super) fn with_fewer(
    logprobs: &[Option<TokenLogprobs>],
    num_top: u32,
) -> Vec<Option<TokenLogprobs>> {
    let mut fewer = logprobs.to_vec();
    for token in fewer.iter_mut().flatten() {
        token.top.truncate(num_top as usize);
    }
    fewer
}

/// Where the next token of a choice begins, in characters of its text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TextOffset(usize);

impl TextLogprobs {
    /// Adds a token that was chosen.
    pub(super) fn push(
        &mut self,
        model: &ServedModel,
        token: &TokenLogprobs,
        offset: &mut TextOffset,
    ) {
        let bytes = model.token_bytes(token.token);
        self.tokens.push(readable(bytes));
        self.token_logprobs.push(Some(finite(token.logprob)));
        self.top_logprobs.push(Some(Greatest::new(model, token)));
        self.text_offset.push(offset.0);
        offset.pass(bytes);
    }

    /// Adds the tokens of a prompt; the first has no probability.
    ///
    /// `has_hidden_first` if the first is no part of the text.
    pub(super) fn push_prompt(
        &mut self,
        model: &ServedModel,
        prompt: &[TokenId],
        logprobs: &[Option<TokenLogprobs>],
        has_hidden_first: bool,
        offset: &mut TextOffset,
    ) {
        for (index, id) in prompt.iter().enumerate() {
            match logprobs.get(index).and_then(Option::as_ref) {
                Some(token) => self.push(model, token, offset),
                None => {
                    let bytes = model.token_bytes(*id);
                    self.tokens.push(readable(bytes));
                    self.token_logprobs.push(None);
                    self.top_logprobs.push(None);
                    self.text_offset.push(offset.0);
                    if !(index == 0 && has_hidden_first) {
                        offset.pass(bytes);
                    }
                }
            }
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

impl TextOffset {
    /// Characters are counted by their first bytes: a token may hold a part of one.
    fn pass(&mut self, bytes: &[u8]) {
        let is_first = |byte: &&u8| **byte & 0b1100_0000 != 0b1000_0000;
        self.0 += bytes.iter().filter(is_first).count();
    }
}

/// `prompt_logprobs` of a choice as vLLM has it: for each token of the prompt
/// the greatest and its own by their numbers; `null` for the first.
#[derive(Debug)]
pub(super) struct PromptLogprobs(Vec<Option<Vec<Ranked>>>);

#[derive(Debug)]
struct Ranked {
    id: TokenId,
    value: RankedValue,
}

#[derive(Debug, DeriveSerialize)]
struct RankedValue {
    logprob: f32,
    /// From 1; unknown for a token that is not among the greatest.
    rank: Option<usize>,
    decoded_token: String,
}

impl PromptLogprobs {
    pub(super) fn new(model: &ServedModel, logprobs: &[Option<TokenLogprobs>]) -> Self {
        let position = |token: &TokenLogprobs| {
            let is_own = |(id, _): &(TokenId, f32)| *id == token.token;
            let own = (!token.top.iter().any(is_own)).then_some((token.token, token.logprob));
            let ranked = token.top.iter().copied().enumerate();
            let ranked = ranked.map(|(index, pair)| (Some(index + 1), pair));
            ranked
                .chain(own.map(|pair| (None, pair)))
                .map(|(rank, (id, logprob))| Ranked {
                    id,
                    value: RankedValue {
                        logprob: finite(logprob),
                        rank,
                        decoded_token: readable(model.token_bytes(id)),
                    },
                })
                .collect()
        };
        let positions = logprobs.iter();
        Self(
            positions
                .map(|token| token.as_ref().map(position))
                .collect(),
        )
    }
}

impl Serialize for PromptLogprobs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Position<'a>(&'a [Ranked]);
        impl Serialize for Position<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().map(|ranked| (ranked.id, &ranked.value)))
            }
        }
        let positions = self.0.iter();
        serializer.collect_seq(positions.map(|position| position.as_deref().map(Position)))
    }
}
