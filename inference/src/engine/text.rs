//! One text on its way to its reader: characters made whole, stop texts found,
//! events held for a reader who is slow.
//!
//! Guarantee: the reader gets each event once and in order, exactly one
//! [`EngineEvent::Finished`], and nothing behind it; no event is waited for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::engine::request::{EngineEvent, EngineRequest, FinishReason, TokenLogprobs, Usage};
use crate::ids::TokenId;
use crate::sampling::SamplingParams;
use crate::tokenizer::{Detokenizer, StopMatcher, Tokenizer};

/// A request that generates text.
pub(super) struct TextRequest {
    sampling: SamplingParams,
    num_prompt_tokens: usize,
    deadline: Option<Instant>,
    eos_token_ids: Vec<TokenId>,
    detokenizer: Detokenizer,
    stop: StopMatcher,
    /// How many of the greatest, and what is known so far. (`num_prompt_tokens`)
    prompt_logprobs: Option<(u32, Vec<Option<TokenLogprobs>>)>,
    num_cached_tokens: usize,
    num_completion_tokens: u32,
    events: mpsc::Sender<EngineEvent>,
    /// Events that found the reader's queue full.
    backlog: VecDeque<EngineEvent>,
    is_finished: bool,
    is_reader_gone: bool,
}

impl TextRequest {
    pub(super) fn new(
        request: EngineRequest,
        events: mpsc::Sender<EngineEvent>,
        tokenizer: Arc<Tokenizer>,
        eos_token_ids: Vec<TokenId>,
    ) -> Self {
        let num_prompt_tokens = request.prompt.len();
        Self {
            stop: StopMatcher::new(&request.sampling.stop),
            sampling: request.sampling,
            num_prompt_tokens,
            deadline: request.deadline,
            eos_token_ids,
            detokenizer: Detokenizer::new(tokenizer),
            prompt_logprobs: request
                .prompt_logprobs
                .map(|num_top| (num_top, vec![None; num_prompt_tokens])),
            num_cached_tokens: 0,
            num_completion_tokens: 0,
            events,
            backlog: VecDeque::new(),
            is_finished: false,
            is_reader_gone: false,
        }
    }

    pub(super) fn sampling(&self) -> &SamplingParams {
        &self.sampling
    }

    pub(super) fn num_prompt_tokens(&self) -> usize {
        self.num_prompt_tokens
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline.filter(|_| !self.is_finished)
    }

    /// Returns how many of the greatest log-probabilities are wanted of each prompt token.
    pub(super) fn wants_prompt_logprobs(&self) -> Option<u32> {
        self.prompt_logprobs.as_ref().map(|(num_top, _)| *num_top)
    }

    /// Keeps the log-probabilities of the prompt's token at this position.
    pub(super) fn set_prompt_logprobs(&mut self, position: usize, logprobs: TokenLogprobs) {
        if let Some((_, known)) = &mut self.prompt_logprobs
            && let Some(place) = known.get_mut(position)
        {
            *place = Some(logprobs);
        }
    }

    pub(super) fn set_cached(&mut self, num_tokens: usize) {
        self.num_cached_tokens = num_tokens;
    }

    pub(super) fn eos_token_ids(&self) -> &[TokenId] {
        &self.eos_token_ids
    }

    /// Whether this token ends the text.
    fn is_last(&self, id: TokenId) -> bool {
        let is_eos = !self.sampling.ignore_eos && self.eos_token_ids.contains(&id);
        is_eos || self.sampling.stop_token_ids.contains(&id)
    }

    /// Takes the next token; returns whether the text is at its end.
    pub(super) fn take(&mut self, id: TokenId, logprobs: Option<TokenLogprobs>) -> bool {
        self.send_prompt();
        self.num_completion_tokens += 1;
        if self.is_last(id) {
            self.finish(FinishReason::Stop);
            return true;
        }
        let certain = self.detokenizer.push(id);
        let may_stop = self.num_completion_tokens > self.sampling.min_tokens;
        let text = if may_stop {
            self.stop.push(&certain)
        } else {
            certain
        };
        self.send(EngineEvent::Token { id, text, logprobs });
        if self.stop.is_stopped() {
            self.end(FinishReason::Stop, String::new());
        } else if self.num_completion_tokens >= self.sampling.max_tokens {
            self.finish(FinishReason::Length);
        }
        self.is_finished || self.is_reader_gone
    }

    /// Ends the text as it is; a second time does nothing.
    pub(super) fn finish(&mut self, reason: FinishReason) {
        if self.is_finished {
            return;
        }
        let rest = self.detokenizer.finish();
        let mut text = self.stop.push(&rest);
        text.push_str(&self.stop.finish());
        self.end(reason, text);
    }

    /// Sends what is known of the prompt, once.
    pub(super) fn send_prompt(&mut self) {
        if let Some((_, logprobs)) = self.prompt_logprobs.take() {
            self.send(EngineEvent::Prompt { logprobs });
        }
    }

    fn end(&mut self, reason: FinishReason, text: String) {
        let usage = Usage {
            num_prompt_tokens: self.num_prompt_tokens as u32,
            num_cached_tokens: self.num_cached_tokens as u32,
            num_completion_tokens: self.num_completion_tokens,
        };
        self.send(EngineEvent::Finished {
            reason,
            text,
            usage,
        });
        self.is_finished = true;
    }

    fn send(&mut self, event: EngineEvent) {
        if self.is_finished || self.is_reader_gone {
            return;
        }
        if !self.backlog.is_empty() {
            self.backlog.push_back(event);
            return;
        }
        match self.events.try_send(event) {
            Ok(()) => {}
            Err(TrySendError::Full(event)) => self.backlog.push_back(event),
            Err(TrySendError::Closed(_)) => self.is_reader_gone = true,
        }
    }

    /// Returns whether nobody reads any more.
    pub(super) fn is_reader_gone(&self) -> bool {
        self.is_reader_gone || self.events.is_closed()
    }

    /// Returns whether events wait for the reader.
    pub(super) fn is_held_up(&self) -> bool {
        !self.backlog.is_empty() && !self.is_reader_gone
    }

    /// Returns whether nothing is left to do for this request.
    pub(super) fn is_done(&self) -> bool {
        self.is_reader_gone || (self.is_finished && self.backlog.is_empty())
    }

    /// Sends what waits; returns whether all of it went.
    pub(super) fn flush(&mut self) -> bool {
        while let Some(event) = self.backlog.pop_front() {
            match self.events.try_send(event) {
                Ok(()) => {}
                Err(TrySendError::Full(event)) => {
                    self.backlog.push_front(event);
                    return false;
                }
                Err(TrySendError::Closed(_)) => {
                    self.is_reader_gone = true;
                    self.backlog.clear();
                    return true;
                }
            }
        }
        true
    }
}
