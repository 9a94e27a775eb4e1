//! What a request asks of the choice of tokens, checked and complete.

use std::ops::RangeInclusive;

use crate::engine::Refusal;
use crate::ids::TokenId;

/// Most texts that end an answer; OpenAI's API has 4, clients send more.
const MAX_STOP: usize = 16;
/// Far beyond what is in use (1 to 2), and far from where logits overflow.
const MAX_REPETITION_PENALTY: f32 = 100.0;
/// Least divisor of logits; less would make of a large one a number that is none.
const MIN_REPETITION_PENALTY: f32 = 0.01;
/// Most log-probabilities beside a token's own, as in OpenAI's API.
const MAX_LOGPROBS: u32 = 20;

/// How tokens are chosen, and when a text ends.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divisor of logits; 0 takes the greatest.
    pub temperature: f32,
    /// Only this many of the greatest; 0 is all.
    pub top_k: u32,
    /// Only the fewest whose probabilities sum up to this; 1 is all.
    pub top_p: f32,
    /// Only those with at least this share of the greatest probability; 0 is all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens that prompt or text hold; 1 is none.
    pub repetition_penalty: f32,
    /// Taken off for each time that the text holds a token.
    pub frequency_penalty: f32,
    /// Taken off if the text holds a token.
    pub presence_penalty: f32,
    /// Added to logits. Sorted by token, each once.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// With the position, all that randomness depends on.
    pub seed: u64,
    /// Texts that end the answer, and are not part of it.
    pub stop: Vec<String>,
    /// Tokens that end the answer besides those of the model, and are not part of it.
    pub stop_token_ids: Vec<TokenId>,
    /// Whether the model's own last token is one like any other.
    pub ignore_eos: bool,
    /// Tokens before which nothing ends the answer but its length.
    pub min_tokens: u32,
    /// Most tokens of the answer.
    pub max_tokens: u32,
    /// Log-probabilities that come with each token: its own, and those of this many of the greatest.
    pub logprobs: Option<u32>,
}

impl SamplingParams {
    /// Checks each parameter against its range and the vocabulary.
    ///
    /// # Errors
    /// [`Refusal::Parameter`] for the first that cannot be meant.
    pub fn validate(&self, vocab_size: usize) -> Result<(), Refusal> {
        check_range("temperature", self.temperature, 0.0..=2.0)?;
        check_positive("top_p", self.top_p, 1.0)?;
        check_range("min_p", self.min_p, 0.0..=1.0)?;
        let penalties = MIN_REPETITION_PENALTY..=MAX_REPETITION_PENALTY;
        check_range("repetition_penalty", self.repetition_penalty, penalties)?;
        check_range("frequency_penalty", self.frequency_penalty, -2.0..=2.0)?;
        check_range("presence_penalty", self.presence_penalty, -2.0..=2.0)?;
        for &(token, bias) in &self.logit_bias {
            check_token("logit_bias", token, vocab_size)?;
            check_range("logit_bias", bias, -100.0..=100.0)?;
        }
        check(
            self.logit_bias.is_sorted_by(|a, b| a.0 < b.0),
            "logit_bias",
            || "must name each token once, in ascending order".to_owned(),
        )?;
        check(self.stop.len() <= MAX_STOP, "stop", || {
            format!("must be at most {MAX_STOP} texts, not {}", self.stop.len())
        })?;
        check(!self.stop.iter().any(String::is_empty), "stop", || {
            "must not be empty".to_owned()
        })?;
        for &token in &self.stop_token_ids {
            check_token("stop_token_ids", token, vocab_size)?;
        }
        check(self.max_tokens >= 1, "max_tokens", || {
            "must be at least 1".to_owned()
        })?;
        check(self.min_tokens <= self.max_tokens, "min_tokens", || {
            format!("must be at most max_tokens, {}", self.max_tokens)
        })?;
        let num_logprobs = self.logprobs.unwrap_or(0);
        check(num_logprobs <= MAX_LOGPROBS, "logprobs", || {
            format!("must be at most {MAX_LOGPROBS}, not {num_logprobs}")
        })
    }
}

fn check(
    is_sound: bool,
    parameter: &'static str,
    reason: impl FnOnce() -> String,
) -> Result<(), Refusal> {
    if is_sound {
        return Ok(());
    }
    Err(Refusal::Parameter {
        parameter,
        reason: reason(),
    })
}

fn check_range(
    parameter: &'static str,
    value: f32,
    range: RangeInclusive<f32>,
) -> Result<(), Refusal> {
    check(range.contains(&value), parameter, || {
        format!(
            "must be from {} to {}, not {value}",
            range.start(),
            range.end()
        )
    })
}

fn check_positive(parameter: &'static str, value: f32, max: f32) -> Result<(), Refusal> {
    check(value > 0.0 && value <= max, parameter, || {
        format!("must be above 0 and at most {max}, not {value}")
    })
}

fn check_token(parameter: &'static str, token: TokenId, vocab_size: usize) -> Result<(), Refusal> {
    check((token as usize) < vocab_size, parameter, || {
        format!("token {token} is not one of the {vocab_size} of the vocabulary")
    })
}
