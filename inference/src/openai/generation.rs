//! The generations that one answer is made of: started together, read as one
//! stream of events, given up together.
//!
//! Guarantee: dropping them aborts what still runs, so a client that leaves
//! costs no further step.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::future::join_all;

use super::error::ApiError;
use super::metrics::Stopwatch;
use super::model::ServedModel;
use crate::{EngineEvent, EngineRequest, FinishReason, Generation, TokenLogprobs, Usage};

/// Generations by their index in the answer.
#[derive(Debug)]
pub(super) struct Choices {
    running: Vec<Option<Running>>,
    /// Whose turn it is to be asked first.
    turn: usize,
}

#[derive(Debug)]
struct Running {
    generation: Generation,
    watch: Stopwatch,
}

impl Choices {
    /// Submits every request, or none: if one is refused, the others are given up.
    ///
    /// All are sent at once: the engine answers between two steps.
    pub(super) async fn start(
        model: &ServedModel,
        requests: Vec<EngineRequest>,
        started: Instant,
        prompt_name: &'static str,
    ) -> Result<Self, ApiError> {
        let submitted = requests.into_iter().map(|one| model.engine.submit(one));
        let mut running = Vec::new();
        for generation in join_all(submitted).await {
            let refused = |refusal| ApiError::refused(&refusal, prompt_name);
            running.push(Some(Running {
                generation: generation.map_err(refused)?,
                watch: Stopwatch::new(model.metrics(), started),
            }));
        }
        Ok(Self { running, turn: 0 })
    }

    /// The next event and whose it is; `None` when all have finished.
    pub(super) async fn next(&mut self) -> Option<(usize, EngineEvent)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, EngineEvent)>> {
        let num_choices = self.running.len();
        let mut are_all_finished = true;
        for offset in 0..num_choices {
            let index = (self.turn + offset) % num_choices;
            let Some(running) = &mut self.running[index] else {
                continue;
            };
            are_all_finished = false;
            let Poll::Ready(event) = pin!(running.generation.next()).poll(cx) else {
                continue;
            };
            self.turn = index + 1;
            // An engine that dies says nothing more.
            let event = event.unwrap_or_else(|| EngineEvent::Finished {
                reason: FinishReason::Failed,
                text: String::new(),
                usage: Usage::default(),
            });
            match &event {
                EngineEvent::Prompt { .. } => {}
                EngineEvent::Token { .. } => running.watch.token(),
                EngineEvent::Finished { reason, .. } => {
                    running.watch.finished(*reason);
                    self.running[index] = None;
                }
            }
            return Poll::Ready(Some((index, event)));
        }
        if are_all_finished {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    }

    /// Waits for the end of every choice.
    pub(super) async fn collect(mut self) -> Result<Vec<Finished>, ApiError> {
        let mut all: Vec<_> = self.running.iter().map(|_| Finished::default()).collect();
        while let Some((index, event)) = self.next().await {
            let choice = &mut all[index];
            match event {
                EngineEvent::Prompt { logprobs } => choice.prompt = Some(logprobs),
                EngineEvent::Token { text, logprobs, .. } => {
                    choice.text += &text;
                    choice.tokens.extend(logprobs);
                }
                EngineEvent::Finished {
                    reason,
                    text,
                    usage,
                } => {
                    choice.text += &text;
                    choice.finish_reason = finish_reason(reason)?;
                    choice.usage = usage;
                }
            }
        }
        Ok(all)
    }
}

/// A choice at its end.
#[derive(Debug, Default)]
pub(super) struct Finished {
    pub(super) text: String,
    /// Where asked for.
    pub(super) tokens: Vec<TokenLogprobs>,
    /// Where asked for. (`num_prompt_tokens`)
    pub(super) prompt: Option<Vec<Option<TokenLogprobs>>>,
    pub(super) finish_reason: &'static str,
    pub(super) usage: Usage,
}

/// OpenAI's word for the end of a text, or the error that stands in its place.
///
/// A text that its time limit ended is incomplete, as one of the greatest length.
pub(super) fn finish_reason(reason: FinishReason) -> Result<&'static str, ApiError> {
    match reason {
        FinishReason::Stop => Ok("stop"),
        FinishReason::Length | FinishReason::Deadline => Ok("length"),
        // Nobody here has: the engine ends.
        FinishReason::Aborted => Err(ApiError::stopped()),
        FinishReason::Failed => Err(ApiError::failed()),
    }
}
