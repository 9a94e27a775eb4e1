//! A model that is no model stands in for the real one: what a slot of a block
//! holds is a hash of all tokens up to it, and the next token is a hash of what
//! the block table leads to. A wrong table, a block written while shared, or a
//! token that is lost or computed twice changes the text.

mod behaviour;
mod random;

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;

const VOCAB_SIZE: u64 = 50;
/// Ends a text.
const LAST_TOKEN: TokenId = 0;

/// What is known of a sequence outside the scheduler.
#[derive(Clone, Debug)]
struct Record {
    salt: Option<String>,
    tenant: Option<String>,
    priority: i32,
    arrival: Duration,
    /// Tokens that were given; those behind are chosen.
    num_given: usize,
    num_prompt_tokens: usize,
    max_tokens: usize,
    has_started: bool,
    is_paused: bool,
    num_overtaken: u32,
    /// All tokens, known when it ended.
    text: Option<Vec<TokenId>>,
}

/// The scheduler, the stand-in for a model, and what should be.
struct World {
    scheduler: Scheduler,
    now: Duration,
    /// (`num_blocks`, `block_size`)
    slots: Vec<Vec<u64>>,
    records: BTreeMap<SequenceId, Record>,
}

fn mix(state: u64, value: u64) -> u64 {
    let mixed = (state ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ mixed >> 32
}

fn first_state(salt: Option<&str>) -> u64 {
    let salt = salt.map_or(1, |salt| salt.bytes().fold(2, |s, b| mix(s, b.into())));
    mix(salt, 3)
}

fn token_of(state: u64) -> TokenId {
    (state % VOCAB_SIZE) as TokenId
}

/// What the slots of a text should hold. (`num_tokens`)
fn states(salt: Option<&str>, tokens: &[TokenId]) -> Vec<u64> {
    let states = tokens.iter().scan(first_state(salt), |state, &token| {
        *state = mix(*state, u64::from(token));
        Some(*state)
    });
    states.collect()
}

/// The text that a prompt has when nothing else is there.
fn text_alone(salt: Option<&str>, prompt: &[TokenId], max_tokens: usize) -> Vec<TokenId> {
    let mut tokens = prompt.to_vec();
    let mut state = *states(salt, prompt).last().expect("a prompt is not empty");
    for _ in 0..max_tokens {
        tokens.push(token_of(state));
        if token_of(state) == LAST_TOKEN {
            break;
        }
        state = mix(state, u64::from(token_of(state)));
    }
    tokens
}

fn request(prompt: &[TokenId], max_tokens: usize) -> SequenceRequest {
    SequenceRequest {
        prompt: prompt.to_vec(),
        max_tokens,
        priority: 0,
        tenant: None,
        cache_salt: None,
        bypass_prefix_cache: false,
    }
}

/// Tokens that are the same for the same family, and never the last token.
fn prompt(family: u64, len: usize) -> Vec<TokenId> {
    (0..len as u64)
        .map(|index| 1 + (mix(family, index) % (VOCAB_SIZE - 1)) as TokenId)
        .collect()
}

impl World {
    fn new(config: SchedulerConfig) -> Self {
        Self {
            slots: vec![vec![0; config.block_size]; config.num_blocks],
            scheduler: Scheduler::new(config).expect("the limits are sound"),
            now: Duration::ZERO,
            records: BTreeMap::new(),
        }
    }

    fn submit(&mut self, request: SequenceRequest) -> Result<SequenceId, Refusal> {
        let record = Record {
            salt: request.cache_salt.as_deref().map(str::to_owned),
            tenant: request.tenant.as_deref().map(str::to_owned),
            priority: request.priority,
            arrival: self.now,
            num_given: request.prompt.len(),
            num_prompt_tokens: request.prompt.len(),
            max_tokens: request.max_tokens,
            has_started: false,
            is_paused: false,
            num_overtaken: 0,
            text: None,
        };
        let id = self.scheduler.submit(request, self.now)?;
        assert!(
            self.records.insert(id, record).is_none(),
            "numbers are unique"
        );
        Ok(id)
    }

    fn fork(&mut self, parent: SequenceId, last_token: TokenId) -> Option<SequenceId> {
        let id = self.scheduler.fork(parent, last_token)?;
        let mut record = self.records[&parent].clone();
        record.num_given = self.scheduler.tokens(id).len();
        record.is_paused = false;
        self.records.insert(id, record);
        Some(id)
    }

    fn abort(&mut self, id: SequenceId) -> bool {
        self.records.remove(&id);
        self.scheduler.abort(id)
    }

    fn pause(&mut self, id: SequenceId, is_paused: bool) {
        if let Some(record) = self.records.get_mut(&id) {
            record.is_paused = is_paused;
        }
        if is_paused {
            self.scheduler.pause(id);
        } else {
            self.scheduler.resume(id);
        }
    }

    fn state(&self, id: SequenceId) -> SequenceState {
        self.scheduler.state(id)
    }

    fn text(&self, id: SequenceId) -> Option<&[TokenId]> {
        self.records.get(&id)?.text.as_deref()
    }

    /// Sequences that did not end yet.
    fn alive(&self) -> Vec<SequenceId> {
        let alive = self.records.iter().filter(|(_, r)| r.text.is_none());
        alive.map(|(&id, _)| id).collect()
    }

    fn step(&mut self) -> ScheduledBatch {
        self.step_with_abort(None)
    }

    /// Runs a step; one sequence may be aborted while the model runs.
    fn step_with_abort(&mut self, abort: Option<SequenceId>) -> ScheduledBatch {
        let has_work = self.scheduler.has_work();
        let batch = self.scheduler.schedule(self.now);
        assert!(!has_work || !batch.is_empty(), "work that is there is done");
        self.note_starts();
        let mut sampled = self.forward(&batch);
        for answer in &mut sampled {
            let record = &self.records[&answer.id];
            let num_tokens = self.scheduler.tokens(answer.id).len() + 1;
            answer.finished = answer.token == LAST_TOKEN
                || num_tokens == record.num_prompt_tokens + record.max_tokens;
        }
        if let Some(id) = abort {
            self.abort(id);
        }
        let ended: Vec<(SequenceId, Vec<TokenId>)> = sampled
            .iter()
            .filter(|answer| answer.finished)
            .map(|answer| {
                let tokens = self.scheduler.tokens(answer.id);
                (answer.id, [tokens, &[answer.token]].concat())
            })
            .collect();
        self.scheduler.update(&batch, &sampled);
        for (id, text) in ended {
            assert_eq!(self.state(id), SequenceState::Finished);
            if let Some(record) = self.records.get_mut(&id) {
                let given = &text[..record.num_given];
                let num_left = record.num_prompt_tokens + record.max_tokens - given.len();
                let alone = text_alone(record.salt.as_deref(), given, num_left);
                assert_eq!(text, alone, "a text is the same as alone");
                assert!(record.text.replace(text).is_none(), "a text ends once");
            }
        }
        batch
    }

    /// Writes the slots of a step's rows, and reads what the block tables lead to.
    fn forward(&mut self, batch: &ScheduledBatch) -> Vec<SampledToken> {
        for copy in &batch.copies {
            assert_eq!(self.scheduler.pool.ref_count(copy.to), 1);
            self.slots[copy.to.0 as usize] = self.slots[copy.from.0 as usize].clone();
        }
        let block_size = self.scheduler.config.block_size;
        let mut sampled = Vec::new();
        for entry in &batch.entries {
            let salt = self.records[&entry.id].salt.as_deref();
            let tokens = self.scheduler.tokens(entry.id);
            let table = self.scheduler.block_table(entry.id);
            let expected = states(salt, tokens);
            let end = entry.start + entry.num_tokens;
            assert_eq!(entry.samples, end == tokens.len());
            let mut state = first_state(salt);
            for position in 0..end {
                let block = table[position / block_size];
                let slot = &mut self.slots[block.0 as usize][position % block_size];
                if position >= entry.start {
                    assert_eq!(
                        self.scheduler.pool.ref_count(block),
                        1,
                        "nobody shares what is written"
                    );
                    *slot = mix(state, u64::from(tokens[position]));
                }
                assert_eq!(
                    *slot, expected[position],
                    "a block holds the tokens of its table"
                );
                state = *slot;
            }
            if entry.samples {
                sampled.push(SampledToken {
                    id: entry.id,
                    token: token_of(state),
                    finished: false,
                });
            }
        }
        sampled
    }

    /// Counts whom the sequences that just started overtook.
    fn note_starts(&mut self) {
        let is_waiting = |id: &SequenceId| self.scheduler.state(*id) == SequenceState::Waiting;
        let started: Vec<SequenceId> = self
            .records
            .iter()
            .filter(|(id, record)| !record.has_started && record.text.is_none() && !is_waiting(id))
            .map(|(&id, _)| id)
            .collect();
        let aging = self.scheduler.config.aging.as_secs();
        let class = |record: &Record, now: Duration| {
            let waited = now.saturating_sub(record.arrival).as_secs();
            i64::from(record.priority) - (waited / aging).cast_signed()
        };
        let waiting: Vec<SequenceId> = self.records.keys().copied().filter(is_waiting).collect();
        for id in started {
            let started = self.records[&id].clone();
            for &other in waiting.iter().filter(|&&other| other < id) {
                let now = self.now;
                let record = self.records.get_mut(&other).expect("it waits");
                if record.tenant == started.tenant
                    && class(record, now) == class(&started, now)
                    && !record.is_paused
                {
                    record.num_overtaken += 1;
                }
            }
            if let Some(record) = self.records.get_mut(&id) {
                record.has_started = true;
                let cached = self.scheduler.num_cached_tokens(id);
                assert!(
                    cached < record.num_prompt_tokens,
                    "the last token is computed"
                );
            }
        }
        let most = self.scheduler.config.max_overtakes;
        assert!(
            self.records
                .values()
                .all(|record| record.num_overtaken <= most)
        );
    }

    /// Runs until nothing is left to do; panics if that takes more steps than there are tokens.
    fn finish(&mut self) -> usize {
        let alive = self.alive();
        for &id in &alive {
            self.pause(id, false);
        }
        let num_tokens: usize = alive
            .iter()
            .map(|id| self.records[id].num_prompt_tokens + self.records[id].max_tokens)
            .sum();
        let mut num_steps = 0;
        while self.scheduler.has_work() {
            self.step();
            num_steps += 1;
            assert!(num_steps <= 2 * num_tokens, "finite work ends");
        }
        assert!(self.alive().is_empty(), "each text ends");
        num_steps
    }

    /// Checks all that must hold between two operations.
    fn verify(&self) {
        let scheduler = &self.scheduler;
        let (pool, cache) = (&scheduler.pool, &scheduler.cache);
        let num_blocks = pool.num_blocks();
        let mut num_tables = vec![0_u32; num_blocks];
        for sequence in scheduler.sequences.values() {
            let is_running = sequence.state == SequenceState::Running;
            assert_eq!(is_running, sequence.node.is_some());
            assert!(is_running || sequence.block_table.is_empty());
            let len = sequence.num_computed.div_ceil(scheduler.config.block_size);
            assert_eq!(sequence.block_table.len(), len);
            for block in &sequence.block_table {
                num_tables[block.0 as usize] += 1;
            }
        }
        let cached = cache.verify();
        let mut num_holders = num_tables.clone();
        for (block, lock_count) in cached {
            num_holders[block.0 as usize] += 1;
            assert_eq!(lock_count, num_tables[block.0 as usize]);
        }
        let mut is_free = vec![false; num_blocks];
        for block in pool.free_blocks() {
            assert!(!is_free[block.0 as usize], "a block is free once");
            is_free[block.0 as usize] = true;
        }
        for index in 0..num_blocks {
            assert_eq!(pool.ref_count(BlockId(index as u32)), num_holders[index]);
            assert_eq!(is_free[index], num_holders[index] == 0);
        }
        let num_pinned = num_tables.iter().filter(|&&num| num > 0).count();
        let stats = scheduler.stats();
        let parts = stats.num_free_blocks + stats.num_cached_blocks + num_pinned;
        assert_eq!(parts, num_blocks, "no block is lost");
        let alive = stats.num_waiting + stats.num_running + stats.num_preempted;
        assert_eq!(alive, scheduler.sequences.len());
        assert_eq!(alive, self.alive().len());
        assert!(stats.num_running <= scheduler.config.max_seqs);
        assert!(stats.prefix_hits <= stats.prefix_queries);
        let waiting = scheduler.waiting.iter().map(|id| &scheduler.sequences[id]);
        let num_waiting_tokens: usize = waiting.map(|s| s.num_prompt_tokens).sum();
        assert_eq!(num_waiting_tokens, scheduler.num_waiting_tokens);
    }

    /// Checks that nothing is held when all is over.
    fn verify_empty(&mut self) {
        self.verify();
        let stats = self.scheduler.stats();
        assert_eq!(
            stats.num_free_blocks + stats.num_cached_blocks,
            stats.num_blocks
        );
        self.scheduler.clear_prefix_cache();
        assert_eq!(self.scheduler.stats().num_free_blocks, stats.num_blocks);
        assert_eq!(self.scheduler.tenants.num_in_use(), 0);
    }
}
