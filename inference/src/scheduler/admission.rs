//! Who begins: preempted sequences first, then the best class, tenants in turn,
//! by arrival within a tenant, where a longer cached prefix or less need of
//! blocks may overtake a bounded number of times.

use std::cmp::Reverse;
use std::time::Duration;

use super::Scheduler;
use super::sequence::SequenceState;
use super::step::Plan;
use crate::ids::SequenceId;
use crate::prefix_cache::PrefixMatch;

/// Sequences of a tenant that are looked at: bounds the work of a step.
const MAX_CANDIDATES: usize = 8;

impl Scheduler {
    /// Lets sequences begin as far as seats, blocks and the budget of prefill allow.
    pub(super) fn admit(&mut self, now: Duration, plan: &mut Plan) {
        while self.prefill_budget(plan) > 0 {
            let candidates = self.candidates(now);
            if candidates.is_empty() {
                return;
            }
            let has_seat = self.running.len() < self.config.max_seqs;
            let started = has_seat && self.admit_one(&candidates, now, plan);
            if !started && !self.reclaim_paused() {
                return;
            }
        }
    }

    /// Starts the first candidate that fits, unless that passes over one that was overtaken enough.
    fn admit_one(&mut self, candidates: &[SequenceId], now: Duration, plan: &mut Plan) -> bool {
        for (index, &id) in candidates.iter().enumerate() {
            let found = self.find_prefix(id);
            if self.fits(id, &found) {
                self.count_overtaken(id, &candidates[..index], now);
                self.start(id, found, now);
                self.plan_prefill(id, plan);
                return true;
            }
            let sequence = &self.sequences[&id];
            if sequence.state == SequenceState::Preempted
                || sequence.num_overtaken >= self.config.max_overtakes
            {
                return false;
            }
        }
        false
    }

    /// Returns who may begin, in the order to try. A preempted sequence is alone:
    /// it gave its blocks up for others, and nobody overtakes it.
    fn candidates(&mut self, now: Duration) -> Vec<SequenceId> {
        let is_ready = |id: &&SequenceId| !self.sequences[id].paused;
        if let Some(&id) = self.preempted.iter().find(is_ready) {
            return vec![id];
        }
        let class_of = |id: &SequenceId| self.sequences[id].class_at(now, self.config.aging);
        let waiting = || self.waiting.iter().filter(is_ready);
        let Some(best) = waiting().map(class_of).min() else {
            return Vec::new();
        };
        let mut by_tenant = vec![Vec::new(); self.tenants.num_slots()];
        for id in waiting().filter(|id| class_of(id) == best) {
            let window: &mut Vec<SequenceId> = &mut by_tenant[self.sequences[id].tenant];
            let is_closed = window.last().is_some_and(|last| {
                self.sequences[last].num_overtaken >= self.config.max_overtakes
            });
            if !is_closed && window.len() < MAX_CANDIDATES {
                window.push(*id);
            }
        }
        let is_eligible: Vec<bool> = by_tenant.iter().map(|ids| !ids.is_empty()).collect();
        let mut candidates = Vec::new();
        for slot in self.tenants.order(&is_eligible) {
            let mut window = std::mem::take(&mut by_tenant[slot]);
            if window.len() > 1 {
                window.sort_by_cached_key(|&id| Reverse(self.find_prefix(id).num_blocks));
            }
            candidates.append(&mut window);
        }
        candidates
    }

    fn find_prefix(&self, id: SequenceId) -> PrefixMatch {
        let sequence = &self.sequences[&id];
        if sequence.bypass_prefix_cache || !self.config.prefix_caching {
            return self.cache.find_nothing(&sequence.salt);
        }
        // The last token is computed in any case: its logits choose the next.
        let max_tokens = sequence.tokens.len() - 1;
        self.cache
            .find(&sequence.salt, &sequence.tokens, max_tokens)
    }

    /// Returns whether there are blocks for all known tokens, for all that the
    /// running ones still need for theirs, and a reserve for their next ones.
    fn fits(&self, id: SequenceId, found: &PrefixMatch) -> bool {
        let block_size = self.config.block_size;
        let promised: usize = self
            .running
            .iter()
            .map(|id| {
                let sequence = &self.sequences[id];
                sequence.tokens.len().div_ceil(block_size) - sequence.block_table.len()
            })
            .sum();
        let needed = self.sequences[&id].tokens.len().div_ceil(block_size) - found.num_blocks;
        let reserve = match self.running.len() {
            0 => 0,
            num_running => num_running.max(self.pool.num_blocks() / 100),
        };
        let available = self.pool.num_free() + self.cache.num_evictable();
        needed + promised + reserve + found.num_unlocked_blocks <= available
    }

    /// Counts for the older of class and tenant, and for those of other tenants whose turn it was.
    fn count_overtaken(&mut self, id: SequenceId, passed_over: &[SequenceId], now: Duration) {
        let started = &self.sequences[&id];
        if started.state != SequenceState::Waiting {
            return;
        }
        let aging = self.config.aging;
        let (class, tenant) = (started.class_at(now, aging), started.tenant);
        for other in &self.waiting {
            let Some(sequence) = self.sequences.get_mut(other) else {
                continue;
            };
            let is_older = *other < id
                && sequence.tenant == tenant
                && sequence.class_at(now, aging) == class
                && !sequence.paused;
            let lost_turn = sequence.tenant != tenant && passed_over.contains(other);
            if is_older || lost_turn {
                sequence.num_overtaken += 1;
            }
        }
    }

    /// Gives a sequence its seat and what of its tokens is cached.
    fn start(&mut self, id: SequenceId, found: PrefixMatch, now: Duration) {
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        if sequence.state == SequenceState::Waiting {
            self.waiting.retain(|&other| other != id);
            self.num_waiting_tokens -= sequence.num_prompt_tokens;
            sequence.class = sequence.class_at(now, self.config.aging);
            self.tenants.pass(sequence.tenant);
            self.drain_rate.record_start(now);
            let num_cached = found.num_blocks * self.config.block_size;
            sequence.num_cached_tokens = Some(num_cached);
            if self.config.prefix_caching && !sequence.bypass_prefix_cache {
                self.counters.prefix_queries += sequence.num_prompt_tokens as u64;
                self.counters.prefix_hits += num_cached as u64;
            }
        } else {
            self.preempted.retain(|&other| other != id);
        }
        let node = self.cache.acquire(
            &sequence.salt,
            found,
            &mut self.pool,
            &mut sequence.block_table,
        );
        sequence.node = Some(node);
        sequence.state = SequenceState::Running;
        sequence.num_committed_blocks = found.num_blocks;
        sequence.num_computed = found.num_blocks * self.config.block_size;
        self.insert_running(id);
    }
}
