//! The part of a step that runs already: decodes first, then chunks of prefill,
//! each with blocks for its rows, taken from others if there are none.

use super::batch::{BlockCopy, ScheduledBatch, ScheduledSequence};
use super::sequence::SequenceState;
use super::{Scheduler, running};
use crate::block_pool::OutOfBlocks;
use crate::ids::SequenceId;

/// A step while it is put together.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) batch: ScheduledBatch,
    pub(super) num_preemptions: usize,
    /// Most prefill tokens of this step.
    max_prefill: usize,
    num_prefill_tokens: usize,
    num_prefills: usize,
}

impl Plan {
    fn add(&mut self, entry: ScheduledSequence) {
        self.batch.num_tokens += entry.num_tokens;
        self.num_prefill_tokens += num_prefill_tokens(&entry);
        self.num_prefills += usize::from(num_prefill_tokens(&entry) > 0);
        self.batch.entries.push(entry);
    }

    /// Gives back what was planned for a sequence that lost its blocks.
    fn remove(&mut self, id: SequenceId) {
        if let Some(index) = self.batch.entries.iter().position(|entry| entry.id == id) {
            let entry = self.batch.entries.remove(index);
            self.batch.num_tokens -= entry.num_tokens;
            self.num_prefill_tokens -= num_prefill_tokens(&entry);
            self.num_prefills -= usize::from(num_prefill_tokens(&entry) > 0);
        }
        self.batch.copies.retain(|copy| copy.owner != id);
    }
}

/// One row that samples is a decode, whether its sequence has an answer yet or not.
fn num_prefill_tokens(entry: &ScheduledSequence) -> usize {
    if entry.num_tokens == 1 && entry.samples {
        0
    } else {
        entry.num_tokens
    }
}

impl Scheduler {
    /// Plans rows for sequences that hold blocks.
    pub(super) fn plan_running(&mut self) -> Plan {
        let mut plan = Plan::default();
        let (mut decodes, prefills): (Vec<_>, Vec<_>) = self
            .running
            .iter()
            .filter(|id| !self.sequences[id].paused)
            .partition(|id| self.sequences[id].num_remaining() == 1);
        if decodes.len() > self.config.max_decode {
            decodes.sort_by_key(|id| self.sequences[id].last_step);
        }
        let max_decodes = self
            .config
            .max_decode
            .min(self.config.max_num_batched_tokens);
        for id in decodes {
            // One that finds no block leaves its turn to the next.
            if plan.batch.entries.len() < max_decodes {
                self.plan_rows(id, 1, &mut plan);
            }
        }
        plan.max_prefill = if plan.batch.is_empty() {
            self.config.max_prefill
        } else {
            self.config.max_prefill_while_decoding
        };
        for id in prefills {
            self.plan_prefill(id, &mut plan);
        }
        plan
    }

    /// Plans as much of a prompt as the budget allows.
    pub(super) fn plan_prefill(&mut self, id: SequenceId, plan: &mut Plan) {
        let num_remaining = self.sequences[&id].num_remaining();
        let num_tokens = num_remaining
            .min(self.config.chunk_size)
            .min(self.prefill_budget(plan));
        if num_tokens > 0 {
            self.plan_rows(id, num_tokens, plan);
        }
    }

    /// Returns the prefill tokens that a step can still take.
    pub(super) fn prefill_budget(&self, plan: &Plan) -> usize {
        if plan.num_prefills >= self.config.max_prefill_seqs {
            return 0;
        }
        let batched = self.config.max_num_batched_tokens - plan.batch.num_tokens;
        batched.min(plan.max_prefill.saturating_sub(plan.num_prefill_tokens))
    }

    /// Plans up to `num_tokens` rows, fewer if there are no more blocks.
    fn plan_rows(&mut self, id: SequenceId, num_tokens: usize, plan: &mut Plan) {
        if self.sequences[&id].state != SequenceState::Running || !self.own_tail(id, plan) {
            return;
        }
        let block_size = self.config.block_size;
        loop {
            let sequence = running(&mut self.sequences, id);
            let start = sequence.num_computed;
            let capacity = sequence.block_table.len() * block_size - start;
            if capacity < num_tokens {
                match self.pool.allocate(&mut self.cache) {
                    Ok(block) => {
                        sequence.block_table.push(block);
                        continue;
                    }
                    Err(OutOfBlocks) if self.preempt_for(id, plan) => continue,
                    Err(OutOfBlocks) => {}
                }
            }
            let sequence = &self.sequences[&id];
            let num_tokens = num_tokens.min(capacity);
            if num_tokens > 0 {
                plan.add(ScheduledSequence {
                    id,
                    start,
                    num_tokens,
                    samples: num_tokens == sequence.num_remaining(),
                });
            }
            return;
        }
    }

    /// Makes sure that nobody else holds the block that is written next: a
    /// shared one is copied. Returns false if there is no block to copy to.
    fn own_tail(&mut self, id: SequenceId, plan: &mut Plan) -> bool {
        let block_size = self.config.block_size;
        loop {
            let sequence = running(&mut self.sequences, id);
            let index = sequence.num_computed / block_size;
            if sequence.num_computed.is_multiple_of(block_size) {
                return true;
            }
            let tail = sequence.block_table[index];
            if self.pool.ref_count(tail) == 1 {
                return true;
            }
            match self.pool.allocate(&mut self.cache) {
                Ok(block) => {
                    sequence.block_table[index] = block;
                    self.pool.release(tail);
                    plan.batch.copies.push(BlockCopy {
                        owner: id,
                        from: tail,
                        to: block,
                    });
                    return true;
                }
                Err(OutOfBlocks) if self.preempt_for(id, plan) => {}
                Err(OutOfBlocks) => return false,
            }
        }
    }

    /// Takes the blocks of a sequence that must give way to this one: a paused
    /// one, else the last by rank if it stands behind. Returns false if there is none.
    fn preempt_for(&mut self, id: SequenceId, plan: &mut Plan) -> bool {
        let rank = self.sequences[&id].rank();
        let victim = self.last_paused(Some(id)).or_else(|| {
            let last = *self.running.last()?;
            (self.sequences[&last].rank() > rank).then_some(last)
        });
        let Some(victim) = victim else {
            return false;
        };
        plan.remove(victim);
        plan.num_preemptions += 1;
        self.preempt(victim);
        true
    }

    /// Returns the last paused sequence that holds blocks.
    fn last_paused(&self, except: Option<SequenceId>) -> Option<SequenceId> {
        let mut paused = self.running.iter().rev().copied();
        paused.find(|id| self.sequences[id].paused && Some(*id) != except)
    }

    /// Preempts the last paused sequence if all that hold blocks are paused, so that others can begin.
    pub(super) fn reclaim_paused(&mut self) -> bool {
        let all_paused = self.running.iter().all(|id| self.sequences[id].paused);
        match self.last_paused(None).filter(|_| all_paused) {
            Some(victim) => {
                self.preempt(victim);
                true
            }
            None => false,
        }
    }

    /// Preempts sequences whose readers were slow for too long.
    pub(super) fn expire_pauses(&mut self) {
        let mut expired = Vec::new();
        for &id in &self.running {
            let sequence = running(&mut self.sequences, id);
            if sequence.paused {
                sequence.num_paused_steps += 1;
                if sequence.num_paused_steps > self.config.max_paused_steps {
                    expired.push(id);
                }
            }
        }
        for id in expired {
            self.preempt(id);
        }
    }

    fn preempt(&mut self, id: SequenceId) {
        self.release_blocks(id);
        self.running.retain(|&other| other != id);
        self.counters.num_preemptions += 1;
        let sequence = running(&mut self.sequences, id);
        sequence.state = SequenceState::Preempted;
        let rank = sequence.rank();
        let index = self
            .preempted
            .partition_point(|other| self.sequences[other].rank() < rank);
        self.preempted.insert(index, id);
    }
}
