//! The one thread that runs a model: take commands, plan a step, run it, choose
//! tokens, tell the readers.
//!
//! ```text
//! commands ─▶ schedule ─▶ forward ─▶ sample ─▶ detokenise ─▶ events
//!     ▲                                                  │
//!     └────────────── sleep while nothing can run ◀──────┘
//! ```
//!
//! Guarantee: whatever becomes of one request, of its reader or of its numbers,
//! the others get the text that they would have got alone.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use crate::backend::{Backend, ForwardBatch, Outputs, SequenceRows};
use crate::engine::handle::{Command, Engine, EngineStats};
use crate::engine::options::EngineOptions;
use crate::engine::request::{EngineEvent, EngineRequest, FinishReason, Refusal};
use crate::engine::text::TextRequest;
use crate::error::Error;
use crate::ids::{SequenceId, TokenId};
use crate::sampling::{Sampler, SamplingContext};
use crate::scheduler::{
    SampledToken, ScheduledBatch, ScheduledSequence, Scheduler, SequenceRequest,
};
use crate::tokenizer::Tokenizer;

/// Rows of a prompt whose logits are held at once: a vocabulary of 262,144 makes each one MiB.
const MAX_LOGIT_ROWS: usize = 16;

/// Starts the thread of a model.
///
/// # Errors
/// [`Error::Setting`] for limits that allow no progress, or more memory than there is.
pub fn start(
    backend: Box<dyn Backend>,
    tokenizer: Arc<Tokenizer>,
    options: &EngineOptions,
) -> Result<(Engine, JoinHandle<()>), Error> {
    let mut backend = backend;
    let config = options.scheduler(backend.as_ref())?;
    let scheduler = Scheduler::new(config.clone())?;
    backend.allocate(config.num_blocks, config.block_size)?;
    let (sender, commands) = std::sync::mpsc::channel();
    let stats = Arc::new(Mutex::new(EngineStats::default()));
    let engine = Engine::new(sender, Arc::clone(&stats), config.max_model_len);
    let mut eos_token_ids = backend.config().eos_token_ids.clone();
    eos_token_ids.extend_from_slice(tokenizer.eos_ids());
    eos_token_ids.retain(|&id| (id as usize) < backend.config().vocab_size);
    eos_token_ids.sort_unstable();
    eos_token_ids.dedup();
    let mut running = Thread {
        backend,
        eos_token_ids,
        tokenizer,
        scheduler,
        commands,
        stats,
        requests: BTreeMap::new(),
        sampler: Sampler::default(),
        outputs: Outputs::default(),
        rows: StepInput::default(),
        begun: Instant::now(),
        is_stopping: false,
    };
    running.publish();
    let thread = std::thread::Builder::new()
        .name("justapi-engine".to_owned())
        .spawn(move || running.run())
        .map_err(|source| Error::Setting {
            setting: "threads",
            value: "1".to_owned(),
            reason: source.to_string(),
        })?;
    Ok((engine, thread))
}

/// What a sequence is for.
enum Purpose {
    /// Text, as its reader asked for it.
    Text(Box<TextRequest>),
    /// The mean of the states behind the last norm.
    Embedding {
        /// Sums of the rows so far, in the order of positions. (`hidden_size`)
        sums: Vec<f64>,
        num_tokens: usize,
        result: Option<oneshot::Sender<Result<Vec<f32>, Refusal>>>,
    },
}

/// Rows of a step, in buffers that are kept.
#[derive(Default)]
struct StepInput {
    token_ids: Vec<TokenId>,
    positions: Vec<u32>,
    output_rows: Vec<u32>,
}

struct Thread {
    backend: Box<dyn Backend>,
    tokenizer: Arc<Tokenizer>,
    scheduler: Scheduler,
    commands: Receiver<Command>,
    stats: Arc<Mutex<EngineStats>>,
    requests: BTreeMap<SequenceId, Purpose>,
    /// Tokens that end a text, by the model's configuration and by its tokenizer.
    eos_token_ids: Vec<TokenId>,
    sampler: Sampler,
    outputs: Outputs,
    rows: StepInput,
    begun: Instant,
    is_stopping: bool,
}

impl Thread {
    fn run(&mut self) {
        while !self.is_stopping {
            self.take_commands();
            self.forget_the_gone();
            self.end_overdue();
            if self.is_stopping {
                break;
            }
            let batch = self.scheduler.schedule(self.begun.elapsed());
            if batch.is_empty() {
                self.publish();
                self.sleep();
                continue;
            }
            // A fault of the model ends the requests of this step, and not the others.
            let result = catch_unwind(AssertUnwindSafe(|| self.step(&batch)));
            if !matches!(result, Ok(Ok(()))) {
                self.fail(&batch);
            }
            self.publish();
        }
        for purpose in std::mem::take(&mut self.requests).into_values() {
            if let Purpose::Text(mut text) = purpose {
                text.finish(FinishReason::Aborted);
            }
        }
        self.publish();
    }

    /// Takes what has been sent, and does not wait for more.
    fn take_commands(&mut self) {
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    // No handle is left, so nobody can be waiting for an answer.
                    self.is_stopping = self.requests.is_empty();
                    return;
                }
            }
        }
    }

    /// Waits for a command, or for the next deadline.
    fn sleep(&mut self) {
        let next = self.deadlines().min();
        let received = match next {
            Some(at) => self
                .commands
                .recv_timeout(at.saturating_duration_since(Instant::now())),
            None => self
                .commands
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
        };
        match received {
            Ok(command) => self.obey(command),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.is_stopping = true,
        }
    }

    fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.requests.values().filter_map(|purpose| match purpose {
            Purpose::Text(text) => text.deadline(),
            Purpose::Embedding { .. } => None,
        })
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit {
                request,
                events,
                accepted,
            } => {
                let answer = self.submit(*request, events);
                let id = answer.as_ref().ok().copied();
                // Whoever hears that a request was taken finds it in the figures.
                self.publish();
                if accepted.send(answer).is_err()
                    && let Some(id) = id
                {
                    self.forget(id);
                }
            }
            Command::Abort(id) => {
                self.forget(id);
                self.publish();
            }
            Command::Embed { tokens, result } => self.embed(tokens, result),
            Command::Wake => self.wake(),
            Command::Stop => self.is_stopping = true,
        }
    }

    fn submit(
        &mut self,
        request: EngineRequest,
        events: mpsc::Sender<EngineEvent>,
    ) -> Result<SequenceId, Refusal> {
        let vocab_size = self.backend.config().vocab_size;
        check_tokens(&request.prompt, vocab_size)?;
        let mut sampling = request.sampling.clone();
        if request.prompt_logprobs.is_some() {
            // Nothing may be wanted but what is said of the prompt; a step ends with a token all the same.
            sampling.max_tokens = sampling.max_tokens.max(1);
        }
        sampling.validate(vocab_size)?;
        let sequence = SequenceRequest {
            prompt: request.prompt.clone(),
            max_tokens: sampling.max_tokens as usize,
            priority: request.priority,
            tenant: request.tenant.clone(),
            cache_salt: request.cache_salt.clone(),
            bypass_prefix_cache: request.prompt_logprobs.is_some(),
        };
        let id = self.scheduler.submit(sequence, self.begun.elapsed())?;
        let eos = self.eos_token_ids.clone();
        let text = TextRequest::new(request, events, Arc::clone(&self.tokenizer), eos);
        self.requests.insert(id, Purpose::Text(Box::new(text)));
        Ok(id)
    }

    fn embed(&mut self, tokens: Vec<TokenId>, result: oneshot::Sender<Result<Vec<f32>, Refusal>>) {
        let config = self.backend.config();
        let hidden_size = config.hidden_size;
        let num_tokens = tokens.len();
        let submitted = check_tokens(&tokens, config.vocab_size).and_then(|()| {
            let sequence = SequenceRequest {
                prompt: tokens,
                max_tokens: 1,
                priority: 0,
                tenant: None,
                cache_salt: None,
                bypass_prefix_cache: true,
            };
            self.scheduler.submit(sequence, self.begun.elapsed())
        });
        match submitted {
            Ok(id) => {
                let purpose = Purpose::Embedding {
                    sums: vec![0.0; hidden_size],
                    num_tokens,
                    result: Some(result),
                };
                self.requests.insert(id, purpose);
            }
            // Whoever asked may be gone.
            Err(refusal) => drop(result.send(Err(refusal))),
        }
    }

    /// Ends a request whose reader is gone.
    fn forget(&mut self, id: SequenceId) {
        self.scheduler.abort(id);
        if let Some(Purpose::Text(mut text)) = self.requests.remove(&id) {
            text.finish(FinishReason::Aborted);
        }
    }

    /// Ends what nobody waits for any more.
    fn forget_the_gone(&mut self) {
        let scheduler = &mut self.scheduler;
        self.requests.retain(|&id, purpose| {
            let is_gone = match purpose {
                Purpose::Text(text) => text.is_reader_gone(),
                Purpose::Embedding { result, .. } => {
                    result.as_ref().is_none_or(oneshot::Sender::is_closed)
                }
            };
            if is_gone {
                scheduler.abort(id);
            }
            !is_gone
        });
    }

    /// Looks at the readers that were slow.
    fn wake(&mut self) {
        for (id, purpose) in &mut self.requests {
            if let Purpose::Text(text) = purpose
                && text.is_held_up()
                && text.flush()
            {
                self.scheduler.resume(*id);
            }
        }
        // Whose last events were waiting is done now.
        self.requests.retain(|_, purpose| match purpose {
            Purpose::Text(text) => !text.is_done(),
            Purpose::Embedding { .. } => true,
        });
    }

    fn end_overdue(&mut self) {
        let now = Instant::now();
        if self.deadlines().all(|deadline| deadline > now) {
            return;
        }
        let overdue: Vec<SequenceId> = self
            .requests
            .iter()
            .filter_map(|(id, purpose)| match purpose {
                Purpose::Text(text) if text.deadline().is_some_and(|at| at <= now) => Some(*id),
                _ => None,
            })
            .collect();
        for id in overdue {
            self.end(id, FinishReason::Deadline);
        }
    }

    /// Ends a request and tells its reader why.
    fn end(&mut self, id: SequenceId, reason: FinishReason) {
        let num_cached = self.scheduler.num_cached_tokens(id);
        self.scheduler.abort(id);
        if let Some(Purpose::Text(text)) = self.requests.get_mut(&id) {
            text.set_cached(num_cached);
            text.finish(reason);
            if text.is_done() {
                self.requests.remove(&id);
            }
        }
    }

    /// Runs one planned step, all of it.
    fn step(&mut self, batch: &ScheduledBatch) -> Result<(), Error> {
        for copy in &batch.copies {
            self.backend.copy_block(copy.from, copy.to);
        }
        let mut answers: Vec<Option<SampledToken>> = vec![None; batch.entries.len()];
        let (row_by_row, plain): (Vec<usize>, Vec<usize>) =
            (0..batch.entries.len()).partition(|&index| self.needs_each_row(&batch.entries[index]));
        self.step_plain(batch, &plain, &mut answers)?;
        for index in row_by_row {
            answers[index] = self.step_row_by_row(&batch.entries[index])?;
        }
        let sampled: Vec<SampledToken> = answers.into_iter().flatten().collect();
        self.scheduler.update(batch, &sampled);
        for answer in &sampled {
            self.settle(*answer);
        }
        Ok(())
    }

    /// Whether more rows of this entry than its last have a result that is wanted.
    fn needs_each_row(&self, entry: &ScheduledSequence) -> bool {
        match self.requests.get(&entry.id) {
            Some(Purpose::Text(text)) => text.wants_prompt_logprobs().is_some(),
            Some(Purpose::Embedding { .. }) => true,
            None => false,
        }
    }

    /// Runs all entries of which at most the last row is sampled, at once.
    fn step_plain(
        &mut self,
        batch: &ScheduledBatch,
        plain: &[usize],
        answers: &mut [Option<SampledToken>],
    ) -> Result<(), Error> {
        if plain.is_empty() {
            return Ok(());
        }
        self.rows.clear();
        let mut sequences = Vec::with_capacity(plain.len());
        for &index in plain {
            let entry = &batch.entries[index];
            let end = entry.start + entry.num_tokens;
            self.rows
                .push(self.scheduler.tokens(entry.id), entry.start, end);
            if entry.samples {
                self.rows.mark_last();
            }
            sequences.push(SequenceRows {
                num_rows: entry.num_tokens,
                block_table: self.scheduler.block_table(entry.id),
            });
        }
        self.outputs.wants_logits = true;
        self.outputs.wants_hidden = false;
        self.backend
            .forward(&self.rows.batch(&sequences), &mut self.outputs)?;
        let mut row = 0;
        for &index in plain {
            let entry = &batch.entries[index];
            if entry.samples {
                answers[index] = Some(self.choose(entry, row));
                row += 1;
            }
        }
        Ok(())
    }

    /// Runs an entry in slices short enough that the results of all their rows can be held.
    fn step_row_by_row(
        &mut self,
        entry: &ScheduledSequence,
    ) -> Result<Option<SampledToken>, Error> {
        let is_embedding = matches!(
            self.requests.get(&entry.id),
            Some(Purpose::Embedding { .. })
        );
        if entry.start == 0
            && let Some(Purpose::Embedding { sums, .. }) = self.requests.get_mut(&entry.id)
        {
            // The first time, or again from the beginning after a preemption.
            sums.fill(0.0);
        }
        let end = entry.start + entry.num_tokens;
        let mut start = entry.start;
        while start < end {
            let slice_end = end.min(start + MAX_LOGIT_ROWS);
            self.rows.clear();
            self.rows
                .push(self.scheduler.tokens(entry.id), start, slice_end);
            self.rows.mark_all();
            self.outputs.wants_logits = !is_embedding;
            self.outputs.wants_hidden = is_embedding;
            let sequences = [SequenceRows {
                num_rows: slice_end - start,
                block_table: self.scheduler.block_table(entry.id),
            }];
            self.backend
                .forward(&self.rows.batch(&sequences), &mut self.outputs)?;
            if is_embedding {
                self.add_states(entry.id);
            } else {
                self.keep_prompt_logprobs(entry.id, start, slice_end);
            }
            start = slice_end;
        }
        if !entry.samples {
            return Ok(None);
        }
        if is_embedding {
            self.answer_embedding(entry.id);
            return Ok(Some(SampledToken {
                id: entry.id,
                token: 0,
                finished: true,
            }));
        }
        let last_row = (entry.num_tokens - 1) % MAX_LOGIT_ROWS;
        Ok(Some(self.choose(entry, last_row)))
    }

    /// Takes the log-probabilities of the tokens behind these positions.
    fn keep_prompt_logprobs(&mut self, id: SequenceId, start: usize, end: usize) {
        let vocab_size = self.backend.config().vocab_size;
        let Some(Purpose::Text(text)) = self.requests.get_mut(&id) else {
            return;
        };
        let Some(num_top) = text.wants_prompt_logprobs() else {
            return;
        };
        let tokens = self.scheduler.tokens(id);
        let last = text.num_prompt_tokens().min(end + 1);
        let rows = self.outputs.logits.chunks_exact(vocab_size);
        for ((index, &token), logits) in tokens[..last].iter().enumerate().skip(start + 1).zip(rows)
        {
            // One that is not a number is none, and fails the request where it is chosen from.
            if let Ok(logprobs) = self.sampler.logprobs(logits, token, num_top) {
                text.set_prompt_logprobs(index, logprobs);
            }
        }
    }

    /// Adds the states of the last rows to the sums of an embedding.
    fn add_states(&mut self, id: SequenceId) {
        if let Some(Purpose::Embedding { sums, .. }) = self.requests.get_mut(&id) {
            for row in self.outputs.hidden.chunks_exact(sums.len()) {
                for (sum, state) in sums.iter_mut().zip(row) {
                    *sum += f64::from(*state);
                }
            }
        }
    }

    fn answer_embedding(&mut self, id: SequenceId) {
        if let Some(Purpose::Embedding {
            sums,
            num_tokens,
            result,
        }) = self.requests.get_mut(&id)
            && let Some(result) = result.take()
        {
            let count = *num_tokens as f64;
            let mean: Vec<f32> = sums.iter().map(|sum| (sum / count) as f32).collect();
            let is_sound = mean.iter().all(|value| value.is_finite());
            // Whoever asked may be gone.
            drop(result.send(if is_sound {
                Ok(mean)
            } else {
                Err(Refusal::Failed)
            }));
        }
    }

    /// Chooses the token behind an entry from a row of the logits.
    fn choose(&mut self, entry: &ScheduledSequence, row: usize) -> SampledToken {
        let vocab_size = self.backend.config().vocab_size;
        let logits = &mut self.outputs.logits[row * vocab_size..(row + 1) * vocab_size];
        let num_cached = self.scheduler.num_cached_tokens(entry.id);
        let tokens = self.scheduler.tokens(entry.id);
        let mut answer = SampledToken {
            id: entry.id,
            token: 0,
            finished: true,
        };
        let Some(Purpose::Text(text)) = self.requests.get_mut(&entry.id) else {
            return answer;
        };
        text.set_cached(num_cached);
        if text.sampling().max_tokens == 0 {
            text.send_prompt();
            text.finish(FinishReason::Length);
            return answer;
        }
        let context = SamplingContext {
            tokens,
            num_prompt_tokens: text.num_prompt_tokens(),
            eos_token_ids: text.eos_token_ids(),
        };
        match self.sampler.sample(logits, &context, text.sampling()) {
            Ok(sampled) => {
                answer.token = sampled.token;
                answer.finished = text.take(sampled.token, sampled.logprobs);
            }
            // Numbers of the model that cannot be compared: this request's, not the others'.
            Err(_) => text.finish(FinishReason::Failed),
        }
        answer
    }

    /// Lets go of what has ended, and of who is slow.
    fn settle(&mut self, answer: SampledToken) {
        let Some(purpose) = self.requests.get(&answer.id) else {
            return;
        };
        let is_done = match purpose {
            Purpose::Text(text) => {
                if text.is_held_up() && !answer.finished {
                    self.scheduler.pause(answer.id);
                }
                text.is_done()
            }
            Purpose::Embedding { .. } => answer.finished,
        };
        if is_done {
            self.requests.remove(&answer.id);
            if !answer.finished {
                self.scheduler.abort(answer.id);
            }
        }
    }

    /// Ends each request of a step that failed.
    fn fail(&mut self, batch: &ScheduledBatch) {
        for entry in &batch.entries {
            self.end(entry.id, FinishReason::Failed);
            if let Some(Purpose::Embedding { result, .. }) = self.requests.get_mut(&entry.id) {
                if let Some(result) = result.take() {
                    drop(result.send(Err(Refusal::Failed)));
                }
                self.requests.remove(&entry.id);
            }
        }
        self.scheduler.update(batch, &[]);
    }

    /// Copies the figures to where others read them.
    fn publish(&self) {
        let now = self.scheduler.stats();
        let mut shared = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        *shared = EngineStats {
            num_waiting: now.num_waiting + now.num_preempted,
            num_running: now.num_running,
            num_blocks: now.num_blocks,
            num_free_blocks: now.num_free_blocks,
            num_cached_blocks: now.num_cached_blocks,
            block_size: now.block_size,
            prefix_queries: now.prefix_queries,
            prefix_hits: now.prefix_hits,
            num_preemptions: now.num_preemptions,
            prompt_tokens: now.prompt_tokens,
            generation_tokens: now.generation_tokens,
            num_steps: now.num_steps,
        };
    }
}

impl StepInput {
    fn clear(&mut self) {
        self.token_ids.clear();
        self.positions.clear();
        self.output_rows.clear();
    }

    /// Adds the tokens at positions `start..end` of a sequence.
    fn push(&mut self, tokens: &[TokenId], start: usize, end: usize) {
        self.token_ids.extend_from_slice(&tokens[start..end]);
        self.positions.extend(start as u32..end as u32);
    }

    fn mark_last(&mut self) {
        self.output_rows.push(self.token_ids.len() as u32 - 1);
    }

    fn mark_all(&mut self) {
        self.output_rows.extend(0..self.token_ids.len() as u32);
    }

    fn batch<'a>(&'a self, sequences: &'a [SequenceRows<'a>]) -> ForwardBatch<'a> {
        ForwardBatch {
            token_ids: &self.token_ids,
            positions: &self.positions,
            sequences,
            output_rows: &self.output_rows,
        }
    }
}

/// Refuses a prompt without tokens, and tokens that the model does not know.
fn check_tokens(tokens: &[TokenId], vocab_size: usize) -> Result<(), Refusal> {
    let reason = if tokens.is_empty() {
        "has no token".to_owned()
    } else if let Some(unknown) = tokens.iter().find(|&&token| token as usize >= vocab_size) {
        format!("token {unknown} is not one of the {vocab_size} of the model")
    } else {
        return Ok(());
    };
    Err(Refusal::Parameter {
        parameter: "prompt",
        reason,
    })
}
