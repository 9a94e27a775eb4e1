//! Decides what the next step computes: computed tokens catch up with known
//! ones, under limits of tokens, sequences and blocks. No tensor, no clock, no
//! thread: time is passed in. Prefill, decode and prefix hits are one mechanism
//! (vLLM v1, `scheduler.py`).
//!
//! `submit` → Waiting → Running → Finished, with Running ⇄ Preempted; `abort`
//! leads from each to Finished.

mod admission;
mod batch;
mod config;
mod fairness;
mod sequence;
mod stats;
mod step;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::block_pool::BlockPool;
use crate::engine::Refusal;
use crate::error::Error;
use crate::ids::{BlockId, SequenceId, TokenId};
use crate::prefix_cache::PrefixCache;

pub use self::batch::{BlockCopy, SampledToken, ScheduledBatch, ScheduledSequence};
pub use self::config::SchedulerConfig;
use self::fairness::{DrainRate, Tenants};
use self::sequence::Sequence;
pub use self::sequence::{SequenceRequest, SequenceState};
pub use self::stats::SchedulerStats;

/// Sequences, their blocks, and the order in which they are served.
///
/// What it keeps to: the first of the running by class and arrival is never
/// preempted while it is not paused, and finds blocks in each of its turns, so
/// finite work ends; blocks are shared only between sequences of the same salt.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    pool: BlockPool,
    cache: PrefixCache,
    sequences: BTreeMap<SequenceId, Sequence>,
    /// By arrival.
    waiting: Vec<SequenceId>,
    /// By rank.
    running: Vec<SequenceId>,
    /// By rank.
    preempted: Vec<SequenceId>,
    num_waiting_tokens: usize,
    tenants: Tenants,
    drain_rate: DrainRate,
    next_id: u64,
    /// What is counted ever; the rest is filled in when asked for.
    counters: SchedulerStats,
}

impl Scheduler {
    /// Makes a scheduler with an empty pool.
    ///
    /// # Errors
    /// [`Error::Setting`] for a limit that allows no progress.
    pub fn new(config: SchedulerConfig) -> Result<Self, Error> {
        config.validate()?;
        Ok(Self {
            pool: BlockPool::new(config.num_blocks),
            cache: PrefixCache::new(config.block_size),
            sequences: BTreeMap::new(),
            waiting: Vec::new(),
            running: Vec::new(),
            preempted: Vec::new(),
            num_waiting_tokens: 0,
            tenants: Tenants::new(config.tenant_quantum_tokens),
            drain_rate: DrainRate::new(),
            next_id: 0,
            counters: SchedulerStats::default(),
            config,
        })
    }

    /// Takes a sequence into the queue and returns its number; numbers ascend.
    /// `now` is the time since some start, and never goes back.
    ///
    /// # Errors
    /// [`Refusal`], with nothing kept: no token, too long to ever fit, or the queue is full.
    pub fn submit(
        &mut self,
        request: SequenceRequest,
        now: Duration,
    ) -> Result<SequenceId, Refusal> {
        self.check_size(&request)?;
        let num_prompt_tokens = request.prompt.len();
        let num_waiting = self.waiting.len();
        let is_long = num_waiting > 0
            && self.num_waiting_tokens + num_prompt_tokens > self.config.max_waiting_tokens;
        if num_waiting >= self.config.max_waiting || is_long {
            return Err(Refusal::QueueFull {
                num_waiting,
                max_waiting: self.config.max_waiting,
                retry_after: self.drain_rate.refuse(now, num_waiting),
            });
        }
        if num_waiting == 0 {
            self.drain_rate.begin(now);
        }
        let id = self.take_id();
        self.waiting.push(id);
        self.num_waiting_tokens += num_prompt_tokens;
        let sequence = Sequence {
            id,
            tokens: request.prompt,
            num_prompt_tokens,
            max_tokens: request.max_tokens,
            priority: request.priority,
            tenant: self.tenants.enter(request.tenant.as_ref()),
            salt: request.cache_salt,
            bypass_prefix_cache: request.bypass_prefix_cache,
            arrival: now,
            state: SequenceState::Waiting,
            class: i64::from(request.priority),
            num_overtaken: 0,
            paused: false,
            num_paused_steps: 0,
            num_computed: 0,
            num_committed_blocks: 0,
            node: None,
            block_table: Vec::new(),
            num_cached_tokens: None,
            is_prompt_counted: false,
            last_step: 0,
        };
        self.sequences.insert(id, sequence);
        Ok(id)
    }

    /// Starts a running sequence's sibling that differs in the last known token
    /// and shares its blocks. `None` unless the parent runs, only that token is
    /// not computed, and there is a seat: submit it as a request then.
    pub fn fork(&mut self, parent: SequenceId, last_token: TokenId) -> Option<SequenceId> {
        let parent = self.sequences.get(&parent)?;
        if parent.state != SequenceState::Running
            || parent.num_remaining() != 1
            || parent.num_generated() == 0
            || parent.num_generated() >= parent.max_tokens
            || self.running.len() >= self.config.max_seqs
        {
            return None;
        }
        let id = SequenceId(self.next_id);
        let mut tokens = parent.tokens.clone();
        *tokens.last_mut()? = last_token;
        let sequence = Sequence {
            id,
            tokens,
            salt: parent.salt.clone(),
            block_table: parent.block_table.clone(),
            num_overtaken: 0,
            paused: false,
            num_paused_steps: 0,
            last_step: 0,
            is_prompt_counted: true,
            ..*parent
        };
        self.next_id += 1;
        for &block in &sequence.block_table {
            self.pool.retain(block);
        }
        if let Some(node) = sequence.node {
            self.cache.lock_path(node);
        }
        self.tenants.enter_again(sequence.tenant);
        self.counters.generation_tokens += 1;
        self.sequences.insert(id, sequence);
        self.insert_running(id);
        Some(id)
    }

    /// Plans the next step. Empty if nothing can be computed: nothing is there, or all is paused.
    /// Each plan that is not empty is answered by `update` before the next.
    pub fn schedule(&mut self, now: Duration) -> ScheduledBatch {
        self.expire_pauses();
        let mut plan = self.plan_running();
        if plan.num_preemptions == 0 {
            self.admit(now, &mut plan);
        }
        plan.batch
    }

    /// Takes the result of a step: an answer for each entry that samples, in
    /// their order; answers of sequences aborted since are left out or ignored.
    /// Sequences that end give up their blocks. An entry that samples and has
    /// no answer is computed again.
    pub fn update(&mut self, batch: &ScheduledBatch, sampled: &[SampledToken]) {
        self.counters.num_steps += 1;
        let mut answers = sampled.iter().peekable();
        for entry in &batch.entries {
            let answer = answers.next_if(|answer| entry.samples && answer.id == entry.id);
            let Some(sequence) = self.sequences.get_mut(&entry.id) else {
                continue;
            };
            let is_current = sequence.state == SequenceState::Running
                && sequence.num_computed == entry.start
                && entry.samples == answer.is_some();
            if !is_current {
                continue;
            }
            sequence.num_computed += entry.num_tokens;
            sequence.last_step = self.counters.num_steps;
            if !sequence.is_prompt_counted && sequence.num_computed >= sequence.num_prompt_tokens {
                sequence.is_prompt_counted = true;
                self.counters.prompt_tokens += sequence.num_prompt_tokens as u64;
            }
            self.tenants.charge(sequence.tenant, entry.num_tokens);
            self.commit(entry.id);
            if let Some(answer) = answer {
                self.push_token(*answer);
            }
        }
        debug_assert!(answers.next().is_none(), "answers follow the entries");
        debug_assert!(
            !self.running.is_empty()
                || self.pool.num_free() + self.cache.num_evictable() == self.pool.num_blocks(),
            "an idle pool is whole"
        );
    }

    /// Ends a sequence in any state and frees its blocks; returns whether it was there.
    pub fn abort(&mut self, id: SequenceId) -> bool {
        self.release_blocks(id);
        let Some(sequence) = self.sequences.remove(&id) else {
            return false;
        };
        match sequence.state {
            SequenceState::Waiting => {
                self.waiting.retain(|&other| other != id);
                self.num_waiting_tokens -= sequence.num_prompt_tokens;
            }
            SequenceState::Running => self.running.retain(|&other| other != id),
            SequenceState::Preempted => self.preempted.retain(|&other| other != id),
            SequenceState::Finished => {}
        }
        self.tenants.leave(sequence.tenant);
        true
    }

    /// Leaves a sequence out of the following steps: its reader is slow. It
    /// keeps its blocks for `max_paused_steps`, unless another needs them.
    pub fn pause(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.get_mut(&id).filter(|s| !s.paused) {
            sequence.paused = true;
            sequence.num_paused_steps = 0;
        }
    }

    /// Ends a pause; without one it does nothing.
    pub fn resume(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.paused = false;
        }
    }

    /// Returns where a sequence stands.
    pub fn state(&self, id: SequenceId) -> SequenceState {
        self.sequences
            .get(&id)
            .map_or(SequenceState::Finished, |sequence| sequence.state)
    }

    /// Returns the tokens of prompt and answer so far; empty if finished.
    pub fn tokens(&self, id: SequenceId) -> &[TokenId] {
        self.sequences.get(&id).map_or(&[], |s| &s.tokens)
    }

    /// Returns the blocks that hold a sequence's keys and values; empty if it does not run.
    pub fn block_table(&self, id: SequenceId) -> &[BlockId] {
        self.sequences.get(&id).map_or(&[], |s| &s.block_table)
    }

    /// Returns the prompt tokens that the sequence found in the prefix cache when it began.
    pub fn num_cached_tokens(&self, id: SequenceId) -> usize {
        let sequence = self.sequences.get(&id);
        sequence.and_then(|s| s.num_cached_tokens).unwrap_or(0)
    }

    /// Returns whether a sequence is there that is not paused.
    pub fn has_work(&self) -> bool {
        self.sequences.values().any(|sequence| !sequence.paused)
    }

    /// Forgets all cached blocks that no sequence holds.
    pub fn clear_prefix_cache(&mut self) {
        self.cache.clear(&mut self.pool);
    }

    /// Returns the figures of this moment.
    pub fn stats(&self) -> SchedulerStats {
        SchedulerStats {
            num_waiting: self.waiting.len(),
            num_running: self.running.len(),
            num_preempted: self.preempted.len(),
            num_blocks: self.pool.num_blocks(),
            num_free_blocks: self.pool.num_free(),
            num_cached_blocks: self.cache.num_evictable(),
            block_size: self.config.block_size,
            ..self.counters
        }
    }

    /// A request that can never run is refused before it waits.
    fn check_size(&self, request: &SequenceRequest) -> Result<(), Refusal> {
        if request.prompt.is_empty() {
            return Err(Refusal::Parameter {
                parameter: "prompt",
                reason: "must have at least one token".to_owned(),
            });
        }
        if request.max_tokens == 0 {
            return Err(Refusal::Parameter {
                parameter: "max_tokens",
                reason: "must be at least 1".to_owned(),
            });
        }
        let num_tokens = request.prompt.len().saturating_add(request.max_tokens);
        // The last token of an answer is never computed.
        let pool_tokens = self.config.num_blocks * self.config.block_size + 1;
        let limits = [
            (self.config.max_model_len, "the context of the model"),
            (pool_tokens, "the pool of blocks"),
        ];
        for (max_tokens, limit) in limits {
            if num_tokens > max_tokens {
                return Err(Refusal::TooLong {
                    num_tokens,
                    max_tokens,
                    limit,
                });
            }
        }
        Ok(())
    }

    /// Hands full blocks over to the prefix cache.
    fn commit(&mut self, id: SequenceId) {
        if !self.config.prefix_caching {
            return;
        }
        let block_size = self.config.block_size;
        let sequence = running(&mut self.sequences, id);
        while (sequence.num_committed_blocks + 1) * block_size <= sequence.num_computed {
            let index = sequence.num_committed_blocks;
            let tokens = &sequence.tokens[index * block_size..(index + 1) * block_size];
            let parent = sequence.node.expect("a running sequence holds a path");
            let block = sequence.block_table[index];
            let (node, block) = self.cache.insert(parent, tokens, block, &mut self.pool);
            sequence.node = Some(node);
            sequence.block_table[index] = block;
            sequence.num_committed_blocks += 1;
        }
    }

    fn push_token(&mut self, answer: SampledToken) {
        self.counters.generation_tokens += 1;
        let sequence = running(&mut self.sequences, answer.id);
        sequence.tokens.push(answer.token);
        if answer.finished || sequence.num_generated() >= sequence.max_tokens {
            self.abort(answer.id);
        }
    }

    /// Takes all blocks from a sequence, whose computed tokens are lost but for the cache.
    fn release_blocks(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        if let Some(node) = sequence.node.take() {
            self.cache.unlock_path(node);
        }
        // Tail first: beginnings are shared more often, and stay longest.
        for block in sequence.block_table.drain(..).rev() {
            self.pool.release(block);
        }
        sequence.num_computed = 0;
        sequence.num_committed_blocks = 0;
    }

    fn insert_running(&mut self, id: SequenceId) {
        let rank = self.sequences[&id].rank();
        let index = self
            .running
            .partition_point(|other| self.sequences[other].rank() < rank);
        self.running.insert(index, id);
    }

    fn take_id(&mut self) -> SequenceId {
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        id
    }
}

/// The lists of ids and the map agree: who is listed is there.
fn running(sequences: &mut BTreeMap<SequenceId, Sequence>, id: SequenceId) -> &mut Sequence {
    sequences.get_mut(&id).expect("a listed sequence is there")
}
