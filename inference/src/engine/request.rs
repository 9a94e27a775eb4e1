//! What goes into the engine and what comes out of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ids::TokenId;
use crate::sampling::SamplingParams;

/// One text to generate.
#[derive(Clone, Debug)]
pub struct EngineRequest {
    /// Tokens to continue; at least one.
    pub prompt: Vec<TokenId>,
    /// How, and how far.
    pub sampling: SamplingParams,
    /// Lower comes first.
    pub priority: i32,
    /// Whose it is: tenants share the engine evenly.
    pub tenant: Option<Arc<str>>,
    /// Only requests of the same salt share cached prefixes.
    pub cache_salt: Option<Arc<str>>,
    /// When the answer is ended as it is.
    pub deadline: Option<Instant>,
    /// Log-probabilities of the prompt's tokens with this many of the greatest; reads past the prefix cache.
    pub prompt_logprobs: Option<u32>,
}

/// What the engine tells of a request, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineEvent {
    /// Log-probabilities of the prompt, where asked for; the first token has none. Once, first.
    Prompt {
        /// For each token of the prompt. (`num_prompt_tokens`)
        logprobs: Vec<Option<TokenLogprobs>>,
    },
    /// A token was chosen.
    Token {
        /// Its number.
        id: TokenId,
        /// Text that is certain now: whole characters, nothing of what may become a stop text. May be empty.
        text: String,
        /// Where asked for.
        logprobs: Option<TokenLogprobs>,
    },
    /// The text is at its end. Exactly once, last.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Text that was held back, and turned out to belong to the answer.
        text: String,
        /// What it took.
        usage: Usage,
    },
}

/// Log-probabilities at one position, natural logarithm, after penalties and bias and before temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// The token that stands there.
    pub token: TokenId,
    /// Its own.
    pub logprob: f32,
    /// The greatest, descending; ties by token.
    pub top: Vec<(TokenId, f32)>,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FinishReason {
    /// The model's last token, a stop token, or a stop text.
    Stop,
    /// The most tokens that were asked for, or that the context holds.
    Length,
    /// Whoever asked is gone.
    Aborted,
    /// Its time was over.
    Deadline,
    /// The engine failed at this request, and goes on.
    Failed,
}

/// Tokens of a request, counted by their numbers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Of the prompt.
    pub num_prompt_tokens: u32,
    /// Of the prompt, those whose keys and values were in the cache.
    pub num_cached_tokens: u32,
    /// Chosen, a last one that ended the text included.
    pub num_completion_tokens: u32,
}

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The queue is full; later may help.
    #[error("{num_waiting} requests wait already, of at most {max_waiting}")]
    QueueFull {
        /// Requests that wait.
        num_waiting: usize,
        /// Most that may.
        max_waiting: usize,
        /// When to ask again, from what the engine does in a second.
        retry_after: Duration,
    },
    /// The request can never be run here.
    #[error("{num_tokens} tokens are more than the {max_tokens} of {limit}")]
    TooLong {
        /// Tokens of prompt and answer.
        num_tokens: usize,
        /// Most that fit.
        max_tokens: usize,
        /// What sets it: the context of the model, or the pool.
        limit: &'static str,
    },
    /// A parameter cannot be meant.
    #[error("{parameter}: {reason}")]
    Parameter {
        /// Name as in the API.
        parameter: &'static str,
        /// Rule that it breaks.
        reason: String,
    },
    /// The engine failed at this request, and goes on.
    #[error("the engine failed at this request")]
    Failed,
    /// The engine ends, or has failed.
    #[error("the engine is stopped")]
    Stopped,
}
