//! What answers have in common: their heads, and what they took.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::generation::Finished;
use crate::Usage;

/// The members that every chunk of an answer repeats.
#[derive(Debug, Serialize)]
pub(super) struct Head {
    id: String,
    object: &'static str,
    /// Unix time in seconds.
    created: u64,
    model: String,
}

impl Head {
    /// Of an answer that is made now; its id begins with `prefix`.
    pub(super) fn new(prefix: &str, object: &'static str, model: String) -> Self {
        let bits: u128 = fastrand::u128(..);
        Self {
            id: format!("{prefix}{bits:032x}"),
            object,
            created: unix_time(),
            model,
        }
    }
}

/// Seconds since 1970.
pub(super) fn unix_time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// `usage` of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct UsageBody {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u32,
    prompt_tokens_details: PromptDetails,
    /// What the engine counted of choices that have finished.
    #[serde(skip)]
    num_finished_tokens: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct PromptDetails {
    cached_tokens: u32,
}

impl UsageBody {
    /// That of prompts without any answer yet.
    pub(super) const fn of_prompts(num_tokens: u32) -> Self {
        Self {
            prompt_tokens: num_tokens,
            completion_tokens: 0,
            total_tokens: num_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens: 0 },
            num_finished_tokens: 0,
        }
    }

    /// That of a whole answer with so many choices for each prompt.
    pub(super) fn of_choices(
        num_prompt_tokens: u32,
        choices: &[Finished],
        num_choices: u32,
        is_prompt_alone: bool,
    ) -> Self {
        let mut total = Self::of_prompts(num_prompt_tokens);
        for (index, choice) in choices.iter().enumerate() {
            let is_first = index % num_choices as usize == 0;
            total.add_choice(choice.usage, is_first, is_prompt_alone);
        }
        total.finished()
    }

    /// Sets how many tokens have been sent, while the engine still counts.
    pub(super) const fn set_completion(&mut self, num_tokens: u32) {
        self.completion_tokens = num_tokens;
        self.total_tokens = self.prompt_tokens + num_tokens;
    }

    /// Adds a choice at its end; the cache is asked once for each prompt, by
    /// its first choice.
    pub(super) const fn add_choice(&mut self, usage: Usage, is_first: bool, is_prompt_alone: bool) {
        if is_first {
            self.prompt_tokens_details.cached_tokens += usage.num_cached_tokens;
        }
        if !is_prompt_alone {
            self.num_finished_tokens += usage.num_completion_tokens;
        }
    }

    /// With the tokens that the engine counted.
    pub(super) const fn finished(mut self) -> Self {
        self.set_completion(self.num_finished_tokens);
        self
    }
}
