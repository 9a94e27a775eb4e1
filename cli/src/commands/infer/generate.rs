//! One answer of a model: its text as it comes, and what it took.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use justapi_inference::{
    EngineEvent, EngineRequest, FinishReason, Generation, SamplingParams, TokenId, Usage,
};
use serde_json::{Value, json};

use super::interrupts::Interrupts;
use crate::commands::model::{RunningModel, refused};
use crate::error::CliError;

/// An answer, whole or as far as it came.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) text: String,
    /// Why it ended; `None` when a signal ended it.
    pub(super) reason: Option<FinishReason>,
    pub(super) usage: Usage,
    /// From the request to the first token.
    pub(super) prompt_time: Duration,
    /// From the first token to the last.
    pub(super) generation_time: Duration,
    /// The signal that ended it.
    pub(super) signal: Option<i32>,
}

/// A part of an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    /// The token; the last part, which was held back, has none of its own.
    pub(super) id: Option<TokenId>,
    pub(super) text: &'a str,
}

/// Makes an answer, and tells of each part of its text.
///
/// # Errors
/// A prompt that is refused, and what `tell` fails with; the answer ends then.
pub(super) fn generate(
    model: &RunningModel,
    prompt: Vec<TokenId>,
    sampling: SamplingParams,
    interrupts: &Interrupts,
    tell: &mut dyn FnMut(Part<'_>) -> Result<(), CliError>,
) -> Result<Answer, CliError> {
    let request = request(prompt, sampling);
    block_on(async {
        let begun = Instant::now();
        let num_prompt_tokens = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        let submitted = model.engine.submit(request).await;
        let mut generation = submitted.map_err(|refusal| refused(&refusal))?;
        let mut answer = Answer {
            text: String::new(),
            reason: None,
            usage: Usage {
                num_prompt_tokens,
                ..Usage::default()
            },
            prompt_time: Duration::ZERO,
            generation_time: Duration::ZERO,
            signal: None,
        };
        let mut first_at = None;
        loop {
            let event = match next_event(&mut generation, interrupts).await {
                Ok(event) => event,
                Err(signal) => {
                    answer.signal = Some(signal);
                    return Ok(answer);
                }
            };
            let (id, text) = match event {
                Some(EngineEvent::Token { id, text, .. }) => {
                    let first = *first_at.get_or_insert_with(Instant::now);
                    answer.prompt_time = first.duration_since(begun);
                    answer.generation_time = first.elapsed();
                    answer.usage.num_completion_tokens += 1;
                    (Some(id), text)
                }
                Some(EngineEvent::Finished {
                    reason,
                    text,
                    usage,
                }) => {
                    answer.reason = Some(reason);
                    answer.usage = usage;
                    (None, text)
                }
                Some(EngineEvent::Prompt { .. }) => continue,
                // The thread of the engine is gone.
                None => {
                    answer.reason = Some(FinishReason::Failed);
                    return Ok(answer);
                }
            };
            answer.text.push_str(&text);
            if id.is_some() || !text.is_empty() {
                tell(Part { id, text: &text })?;
            }
            if answer.reason.is_some() {
                return Ok(answer);
            }
        }
    })
}

/// Waits for the next event, or for the signal that comes before it.
async fn next_event(
    generation: &mut Generation,
    interrupts: &Interrupts,
) -> Result<Option<EngineEvent>, i32> {
    let mut signal = pin!(interrupts.next());
    let mut event = pin!(generation.next());
    poll_fn(|context| {
        if let Poll::Ready(signal) = signal.as_mut().poll(context) {
            return Poll::Ready(Err(signal));
        }
        event.as_mut().poll(context).map(Ok)
    })
    .await
}

/// A request as one user alone has it.
pub(super) fn request(prompt: Vec<TokenId>, sampling: SamplingParams) -> EngineRequest {
    EngineRequest {
        prompt,
        sampling,
        priority: 0,
        tenant: None,
        cache_salt: None,
        deadline: None,
        prompt_logprobs: None,
    }
}

/// Runs something to its end on this thread.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without a driver asks the system for nothing")
        .block_on(work)
}

impl Answer {
    /// What ended it, as the API says it.
    pub(super) fn finish_reason(&self) -> &'static str {
        match self.reason {
            Some(FinishReason::Stop) => "stop",
            Some(FinishReason::Length) => "length",
            Some(FinishReason::Deadline) => "deadline",
            Some(FinishReason::Failed) => "failed",
            Some(FinishReason::Aborted) | None => "interrupted",
        }
    }

    /// Tokens per second of the prompt, those that were cached left out.
    fn prompt_rate(&self) -> Option<f64> {
        let computed = self.usage.num_prompt_tokens - self.usage.num_cached_tokens;
        rate(computed, self.prompt_time)
    }

    /// Tokens per second behind the first.
    fn generation_rate(&self) -> Option<f64> {
        rate(
            self.usage.num_completion_tokens.saturating_sub(1),
            self.generation_time,
        )
    }

    /// One line for people.
    pub(super) fn summary(&self, seed: u64) -> String {
        let shown = |rate: Option<f64>| {
            rate.map_or_else(String::new, |rate| format!(" ({rate:.1} tokens/s)"))
        };
        let cached = match self.usage.num_cached_tokens {
            0 => String::new(),
            cached => format!(", {cached} of them cached"),
        };
        format!(
            "prompt {} tokens{cached} in {:.2} s{}   answer {} tokens in {:.2} s{}   {}   seed {seed}",
            self.usage.num_prompt_tokens,
            self.prompt_time.as_secs_f64(),
            shown(self.prompt_rate()),
            self.usage.num_completion_tokens,
            self.generation_time.as_secs_f64(),
            shown(self.generation_rate()),
            self.finish_reason(),
        )
    }

    /// The same for programs.
    pub(super) fn document(&self, model: &str, seed: u64) -> Value {
        json!({
            "v": 1,
            "event": "finished",
            "model": model,
            "text": self.text,
            "finish_reason": self.finish_reason(),
            "seed": seed,
            "usage": {
                "prompt_tokens": self.usage.num_prompt_tokens,
                "cached_tokens": self.usage.num_cached_tokens,
                "completion_tokens": self.usage.num_completion_tokens,
            },
            "seconds": {
                "prompt": self.prompt_time.as_secs_f64(),
                "generation": self.generation_time.as_secs_f64(),
            },
            "tokens_per_second": {
                "prompt": self.prompt_rate(),
                "generation": self.generation_rate(),
            },
        })
    }
}

fn rate(num_tokens: u32, time: Duration) -> Option<f64> {
    (num_tokens > 0 && !time.is_zero()).then(|| f64::from(num_tokens) / time.as_secs_f64())
}
