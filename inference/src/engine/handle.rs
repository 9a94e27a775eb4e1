//! The way to the thread that runs the model, cheap to clone.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};

use crate::engine::request::{EngineEvent, EngineRequest, Refusal};
use crate::ids::{SequenceId, TokenId};

/// Events that may wait for a reader; one who is slower pauses their own sequence.
pub(crate) const MAX_WAITING_EVENTS: usize = 64;

/// What is sent to the thread of the engine.
#[derive(Debug)]
pub enum Command {
    /// Take a request; the answer is its number, or why not.
    Submit {
        /// The request.
        request: Box<EngineRequest>,
        /// Where its events go.
        events: mpsc::Sender<EngineEvent>,
        /// Answered once, before the first event.
        accepted: oneshot::Sender<Result<SequenceId, Refusal>>,
    },
    /// Forget a request, wherever it stands; an unknown one is nothing.
    Abort(SequenceId),
    /// Compute the mean state of these tokens behind the last norm. (`hidden_size`)
    Embed {
        /// Tokens, at least one.
        tokens: Vec<TokenId>,
        /// Where the state goes.
        result: oneshot::Sender<Result<Vec<f32>, Refusal>>,
    },
    /// A reader made room: look at paused sequences again.
    Wake,
    /// End every request, and then the thread.
    Stop,
}

/// Figures of the engine at its last step, for metrics and status pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// Requests that wait for their first step.
    pub num_waiting: usize,
    /// Requests that hold blocks.
    pub num_running: usize,
    /// Blocks in the pool.
    pub num_blocks: usize,
    /// Blocks that hold nothing worth keeping.
    pub num_free_blocks: usize,
    /// Blocks that only the prefix cache holds.
    pub num_cached_blocks: usize,
    /// Tokens in a block.
    pub block_size: usize,
    /// Prompt tokens that were looked up in the prefix cache, ever.
    pub prefix_queries: u64,
    /// Of these, those that were there.
    pub prefix_hits: u64,
    /// Sequences that lost their blocks and began again, ever.
    pub num_preemptions: u64,
    /// Prompt tokens computed or found, ever.
    pub prompt_tokens: u64,
    /// Tokens chosen, ever.
    pub generation_tokens: u64,
    /// Steps, ever.
    pub num_steps: u64,
}

/// Handle of the thread that runs a model.
#[derive(Clone, Debug)]
pub struct Engine {
    commands: std::sync::mpsc::Sender<Command>,
    stats: Arc<Mutex<EngineStats>>,
    max_model_len: usize,
}

impl Engine {
    /// Makes a handle that sends to `commands` and reads `stats`.
    pub fn new(
        commands: std::sync::mpsc::Sender<Command>,
        stats: Arc<Mutex<EngineStats>>,
        max_model_len: usize,
    ) -> Self {
        Self {
            commands,
            stats,
            max_model_len,
        }
    }

    /// Returns the most tokens of prompt and answer together.
    pub fn max_model_len(&self) -> usize {
        self.max_model_len
    }

    /// Submits a request. Dropping the generation aborts it.
    ///
    /// # Errors
    /// [`Refusal`], with nothing started.
    pub async fn submit(&self, request: EngineRequest) -> Result<Generation, Refusal> {
        let (sender, events) = mpsc::channel(MAX_WAITING_EVENTS);
        let (accepted, answer) = oneshot::channel();
        let command = Command::Submit {
            request: Box::new(request),
            events: sender,
            accepted,
        };
        self.commands.send(command).map_err(|_| Refusal::Stopped)?;
        let id = answer.await.map_err(|_| Refusal::Stopped)??;
        Ok(Generation {
            id,
            events,
            commands: self.commands.clone(),
        })
    }

    /// Computes the mean state of tokens behind the last norm. (`hidden_size`)
    ///
    /// # Errors
    /// [`Refusal`], such as more tokens than the context holds.
    pub async fn embed(&self, tokens: Vec<TokenId>) -> Result<Vec<f32>, Refusal> {
        let (result, answer) = oneshot::channel();
        self.commands
            .send(Command::Embed { tokens, result })
            .map_err(|_| Refusal::Stopped)?;
        answer.await.map_err(|_| Refusal::Stopped)?
    }

    /// Returns the figures of the last step.
    pub fn stats(&self) -> EngineStats {
        self.stats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Ends every request, and then the thread.
    pub fn stop(&self) {
        // A thread that is gone has stopped.
        drop(self.commands.send(Command::Stop));
    }
}

/// Events of one request. Dropping it aborts the request.
#[derive(Debug)]
pub struct Generation {
    id: SequenceId,
    events: mpsc::Receiver<EngineEvent>,
    commands: std::sync::mpsc::Sender<Command>,
}

impl Generation {
    /// Returns the number that the engine gave the request.
    pub fn id(&self) -> SequenceId {
        self.id
    }

    /// Waits for the next event; `None` behind the last, or if the engine died.
    ///
    /// Cancel safe: an event is either returned or still there.
    pub async fn next(&mut self) -> Option<EngineEvent> {
        let was_full = self.events.len() >= MAX_WAITING_EVENTS / 2;
        let event = self.events.recv().await;
        if was_full && self.events.len() < MAX_WAITING_EVENTS / 2 {
            drop(self.commands.send(Command::Wake));
        }
        event
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        drop(self.commands.send(Command::Abort(self.id)));
    }
}
