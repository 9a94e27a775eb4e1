//! The greatest of a row without sorting it. Order is by logit, greatest first,
//! ties by token, lowest first, so that each selection is one definite set.

use std::cmp::Ordering;

use crate::ids::TokenId;

/// A token that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) logit: f32,
    pub(super) token: TokenId,
    /// Not yet divided by the sum of all.
    pub(super) weight: f32,
}

impl Candidate {
    /// Orders the better before the worse.
    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        let by_logit = other.logit.partial_cmp(&self.logit);
        by_logit
            .unwrap_or(Ordering::Equal)
            .then(self.token.cmp(&other.token))
    }
}

/// Fills `candidates` with the `num` greatest of a row above -∞, greatest first.
/// O(V + num · log num): a buffer of twice as many is pruned when it is full.
pub(super) fn select_greatest(logits: &[f32], num: usize, candidates: &mut Vec<Candidate>) {
    const LOOK_AHEAD: usize = 16;
    candidates.clear();
    if num == 0 {
        return;
    }
    let capacity = num.min(logits.len()).saturating_mul(2) + 64;
    let mut threshold = f32::NEG_INFINITY;
    for (index, chunk) in logits.chunks(LOOK_AHEAD).enumerate() {
        // One test for all, as most chunks hold nothing above the threshold.
        let is_above = |count: u32, &logit: &f32| count + u32::from(logit > threshold);
        if chunk.iter().fold(0, is_above) == 0 {
            continue;
        }
        for (offset, &logit) in chunk.iter().enumerate() {
            if logit > threshold {
                candidates.push(Candidate {
                    logit,
                    token: (index * LOOK_AHEAD + offset) as TokenId,
                    weight: 0.0,
                });
                if candidates.len() == capacity {
                    prune(candidates, num);
                    threshold = candidates[num - 1].logit;
                }
            }
        }
    }
    prune(candidates, num);
    candidates.sort_unstable_by(Candidate::cmp);
}

fn prune(candidates: &mut Vec<Candidate>, num: usize) {
    if candidates.len() > num {
        candidates.select_nth_unstable_by(num - 1, Candidate::cmp);
        candidates.truncate(num);
    }
}

/// Returns the last of the fewest candidates, best first, whose weights sum up
/// to `target`. O(n): each round halves what is left. None only if there are no candidates.
pub(super) fn select_nucleus(candidates: &mut [Candidate], target: f64) -> Option<Candidate> {
    const FEW: usize = 32;
    let mut rest = candidates;
    let mut sum = 0.0;
    while rest.len() > FEW {
        let middle = rest.len() / 2;
        rest.select_nth_unstable_by(middle - 1, Candidate::cmp);
        let (better, worse) = rest.split_at_mut(middle);
        let better_sum: f64 = better.iter().map(|c| f64::from(c.weight)).sum();
        if sum + better_sum >= target {
            rest = better;
        } else {
            sum += better_sum;
            rest = worse;
        }
    }
    rest.sort_unstable_by(Candidate::cmp);
    for candidate in rest.iter() {
        sum += f64::from(candidate.weight);
        if sum >= target {
            return Some(*candidate);
        }
    }
    rest.last().copied()
}
