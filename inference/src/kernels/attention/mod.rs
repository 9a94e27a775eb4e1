//! Attention over paged keys and values: each key and value is read once for
//! all query heads that share it, and for up to four queries at once.
//!
//! Guarantee: a query's result does not depend on how its sequence was cut
//! into chunks, blocks and tasks. Positions are taken in splits of
//! [`SPLIT`] at fixed places; a split's softmax stands alone (arXiv 2205.14135),
//! and splits are merged in order.

#![expect(unsafe_code, reason = "keys and values are walked by pointer")]

use std::ops::Range;

use half::f16;

use crate::ids::BlockId;
use crate::kernels::buffer::Plain;
use crate::kernels::isa::dispatch;
use crate::kernels::kv_cache::KvView;
use crate::kernels::lanes::{Element, Lanes, NUM_LANES, greatest, sum};
use crate::kernels::math::{capped, exp, exp_of};
use crate::kernels::matmul::OutputRows;

/// Positions of a split.
pub(crate) const SPLIT: usize = 128;

/// Queries at once.
const AT_ONCE: usize = 4;

/// Numbers before the sums of a state: the greatest score, and the sum of weights.
const STATE_HEAD: usize = 2;

/// Rows of one sequence, consecutive, and the query heads that share one head of keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionTask<'a> {
    /// Rotated, and scaled, of all rows of the step. `(num_rows, num_heads, head_dim)`
    pub(crate) queries: &'a [f32],
    /// Query heads.
    pub(crate) num_heads: usize,
    /// Which head of keys and values.
    pub(crate) kv_head: usize,
    /// Which layer.
    pub(crate) layer: usize,
    /// First row of the task.
    pub(crate) first_row: usize,
    /// Rows of the task.
    pub(crate) num_rows: usize,
    /// Position of the first row.
    pub(crate) first_position: usize,
    /// Blocks of the sequence.
    pub(crate) block_table: &'a [BlockId],
    /// Tokens that a row sees, itself included; `usize::MAX` for all.
    pub(crate) window: usize,
    /// Soft limit of scores.
    pub(crate) soft_cap: Option<f32>,
}

impl AttentionTask<'_> {
    /// Returns the query heads that share the head of keys.
    fn group(&self, num_kv_heads: usize) -> usize {
        self.num_heads / num_kv_heads
    }

    /// Returns the positions that a row of the task sees.
    fn visible(&self, row: usize) -> Range<usize> {
        let end = self.first_position + row + 1;
        end.saturating_sub(self.window)..end
    }

    /// Returns the splits that any row sees.
    pub(crate) fn splits(&self) -> Range<usize> {
        let last = self.visible(self.num_rows - 1);
        self.visible(0).start / SPLIT..last.end.div_ceil(SPLIT)
    }
}

/// Returns the numbers of a query's state.
pub(crate) const fn state_len(head_dim: usize) -> usize {
    STATE_HEAD + head_dim
}

/// Returns the numbers that [`attend_f16`] works in, for tasks of so many queries.
pub(crate) const fn scratch_len(num_queries: usize, head_dim: usize) -> usize {
    AT_ONCE * SPLIT + 2 * num_queries * state_len(head_dim)
}

/// Computes the states of all queries in one split. `(num_rows * group, state_len)`
#[inline(always)]
fn attend_split<L: Lanes, E: Element + Plain>(
    l: L,
    kv: KvView<'_, E>,
    task: &AttentionTask<'_>,
    split: usize,
    weights: &mut [f32],
    states: &mut [f32],
) {
    let shape = kv.shape();
    let group = task.group(shape.num_heads);
    let state_len = state_len(shape.head_dim);
    let num_queries = task.num_rows * group;
    let mut first = 0;
    while first < num_queries {
        let count = AT_ONCE.min(num_queries - first);
        let to = &mut states[first * state_len..][..count * state_len];
        match count {
            1 => attend_some::<L, E, 1>(l, kv, task, [split, first], weights, to),
            2 => attend_some::<L, E, 2>(l, kv, task, [split, first], weights, to),
            3 => attend_some::<L, E, 3>(l, kv, task, [split, first], weights, to),
            _ => attend_some::<L, E, AT_ONCE>(l, kv, task, [split, first], weights, to),
        }
        first += count;
    }
}

/// Computes the states of N queries from `first` in one split.
#[inline(always)]
fn attend_some<L: Lanes, E: Element + Plain, const N: usize>(
    l: L,
    kv: KvView<'_, E>,
    task: &AttentionTask<'_>,
    [split, first]: [usize; 2],
    weights: &mut [f32],
    states: &mut [f32],
) {
    let shape = kv.shape();
    let (group, head_dim) = (task.group(shape.num_heads), shape.head_dim);
    let start = split * SPLIT;
    let within = |visible: Range<usize>| {
        visible.start.max(start) - start..visible.end.clamp(start, start + SPLIT) - start
    };
    let first_visible = within(task.visible(first / group));
    let last_visible = within(task.visible((first + N - 1) / group));
    let seen = first_visible.start..last_visible.end;
    let (weights, _) = weights.as_chunks_mut::<SPLIT>();
    let weights = &mut weights[..N];
    for state in states.chunks_exact_mut(state_len(head_dim)) {
        state.fill(0.0);
        state[0] = f32::NEG_INFINITY;
    }
    if seen.is_empty() {
        return;
    }
    let queries: [&[f32]; N] = std::array::from_fn(|n| {
        let query = first + n;
        let row = task.first_row + query / group;
        let head = task.kv_head * group + query % group;
        &task.queries[(row * task.num_heads + head) * head_dim..][..head_dim]
    });
    let span = Span {
        start,
        first: seen.start,
        end: seen.end,
        block_size: shape.block_size,
    };
    score::<L, E, N>(l, kv, task, span, &queries, weights);
    for (n, weights) in weights.iter_mut().enumerate() {
        let visible = within(task.visible((first + n) / group));
        if visible.is_empty() {
            weights[seen.clone()].fill(0.0);
            continue;
        }
        let state = &mut states[n * state_len(head_dim)..];
        [state[0], state[1]] = soften(l, weights, &seen, &visible, task.soft_cap);
    }
    gather::<L, E, N>(l, kv, task, span, weights, states);
}

/// Turns scores into weights; returns the greatest score and the sum of weights.
#[inline(always)]
fn soften<L: Lanes>(
    l: L,
    weights: &mut [f32; SPLIT],
    seen: &Range<usize>,
    visible: &Range<usize>,
    soft_cap: Option<f32>,
) -> [f32; 2] {
    let first = seen.start / NUM_LANES;
    let end = seen.end.div_ceil(NUM_LANES);
    let vectors = &mut weights.as_chunks_mut::<NUM_LANES>().0[first..end];
    if let Some(cap) = soft_cap {
        for vector in vectors.iter_mut() {
            *vector = l.to_array(capped(l, l.vector_of(vector), cap));
        }
    }
    let flat = vectors.as_flattened_mut();
    flat[..visible.start - first * NUM_LANES].fill(f32::NEG_INFINITY);
    flat[visible.end - first * NUM_LANES..].fill(f32::NEG_INFINITY);
    let mut lanes = l.splat(f32::NEG_INFINITY);
    for vector in vectors.iter() {
        lanes = l.max(l.vector_of(vector), lanes);
    }
    let most = greatest(&l.to_array(lanes));
    let mut sums = l.splat(0.0);
    for vector in vectors.iter_mut() {
        let weight = exp(l, l.sub(l.vector_of(vector), l.splat(most)));
        sums = l.add(sums, weight);
        *vector = l.to_array(weight);
    }
    [most, sum(&l.to_array(sums))]
}

/// Positions of a split that are seen.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// Position that the split begins with.
    start: usize,
    /// First that is seen, within the split.
    first: usize,
    /// Behind the last that is seen, within the split.
    end: usize,
    /// Tokens of a block.
    block_size: usize,
}

impl Span {
    /// Takes the next block: its index in the block table, the positions in
    /// it, and the first of them within the split.
    #[inline(always)]
    fn take(&mut self) -> Option<(usize, Range<usize>, usize)> {
        if self.first >= self.end {
            return None;
        }
        let (at, position) = (self.first, self.start + self.first);
        let offset = position % self.block_size;
        let count = (self.block_size - offset).min(self.end - at);
        self.first += count;
        Some((position / self.block_size, offset..offset + count, at))
    }
}

/// Computes q * k at the positions that are seen, and at some beside them.
#[inline(always)]
fn score<L: Lanes, E: Element + Plain, const N: usize>(
    l: L,
    kv: KvView<'_, E>,
    task: &AttentionTask<'_>,
    span: Span,
    queries: &[&[f32]; N],
    weights: &mut [[f32; SPLIT]],
) {
    let block_size = span.block_size;
    let mut span = span;
    while let Some((block, offsets, at)) = span.take() {
        // SAFETY: keys are written before attention begins.
        let keys = unsafe { kv.keys(task.layer, task.block_table[block], task.kv_head) };
        if !block_size.is_multiple_of(NUM_LANES) {
            for (index, offset) in offsets.enumerate() {
                for (query, weights) in queries.iter().zip(weights.iter_mut()) {
                    let keys = keys[offset..].iter().step_by(block_size);
                    let chain = |sum: f32, (q, k): (&f32, &E)| q.mul_add(k.to_f32(), sum);
                    weights[at + index] = query.iter().zip(keys).fold(0.0, chain);
                }
            }
            continue;
        }
        // Blocks and splits begin at multiples of the lanes, hence so do vectors of both.
        let before = offsets.start % NUM_LANES;
        let mut offset = offsets.start - before;
        let mut at = at - before;
        while offset < offsets.end {
            // SAFETY: one or two vectors of tokens lie in the block, which has
            // all elements of the head.
            unsafe {
                if offset + NUM_LANES < offsets.end {
                    score_tokens::<L, E, N, 2>(
                        l,
                        &keys[offset..],
                        block_size,
                        queries,
                        weights,
                        at,
                    );
                    offset += 2 * NUM_LANES;
                    at += 2 * NUM_LANES;
                } else {
                    score_tokens::<L, E, N, 1>(
                        l,
                        &keys[offset..],
                        block_size,
                        queries,
                        weights,
                        at,
                    );
                    offset += NUM_LANES;
                    at += NUM_LANES;
                }
            }
        }
    }
}

/// # Safety
/// `keys` has V vectors in each of its lines of `block_size`, one line for each element of a query.
#[inline(always)]
unsafe fn score_tokens<L: Lanes, E: Element, const N: usize, const V: usize>(
    l: L,
    keys: &[E],
    block_size: usize,
    queries: &[&[f32]; N],
    weights: &mut [[f32; SPLIT]],
    at: usize,
) {
    let mut sums = [[l.splat(0.0); V]; N];
    let mut line = keys.as_ptr();
    for element in 0..queries[0].len() {
        let mut vectors = [l.splat(0.0); V];
        for (v, vector) in vectors.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *vector = unsafe { l.load(line.add(v * NUM_LANES)) };
        }
        for (query, sums) in queries.iter().zip(&mut sums) {
            // SAFETY: queries are of one length.
            let factor = l.splat(unsafe { *query.get_unchecked(element) });
            for (sum, vector) in sums.iter_mut().zip(&vectors) {
                *sum = l.fma(factor, *vector, *sum);
            }
        }
        line = line.wrapping_add(block_size);
    }
    for (sums, weights) in sums.iter().zip(weights) {
        for (v, sum) in sums.iter().enumerate() {
            weights[at + v * NUM_LANES..][..NUM_LANES].copy_from_slice(&l.to_array(*sum));
        }
    }
}

/// Sums values by their weights into the states.
#[inline(always)]
fn gather<L: Lanes, E: Element + Plain, const N: usize>(
    l: L,
    kv: KvView<'_, E>,
    task: &AttentionTask<'_>,
    span: Span,
    weights: &[[f32; SPLIT]],
    states: &mut [f32],
) {
    let head_dim = kv.shape().head_dim;
    let mut element = 0;
    while element < head_dim {
        let left = head_dim - element;
        if left >= 2 * NUM_LANES {
            gather_elements::<L, E, N, 2>(l, kv, task, (span, element), weights, states);
            element += 2 * NUM_LANES;
        } else if left >= NUM_LANES {
            gather_elements::<L, E, N, 1>(l, kv, task, (span, element), weights, states);
            element += NUM_LANES;
        } else {
            for (n, weights) in weights.iter().enumerate() {
                let mut sum = 0.0_f32;
                let mut span = span;
                while let Some((block, offsets, at)) = span.take() {
                    // SAFETY: values are written before attention begins.
                    let values =
                        unsafe { kv.values(task.layer, task.block_table[block], task.kv_head) };
                    for (index, offset) in offsets.enumerate() {
                        let value = values[offset * head_dim + element].to_f32();
                        sum = weights[at + index].mul_add(value, sum);
                    }
                }
                states[n * state_len(head_dim) + STATE_HEAD + element] = sum;
            }
            element += 1;
        }
    }
}

/// Sums V vectors of elements of the values.
#[inline(always)]
fn gather_elements<L: Lanes, E: Element + Plain, const N: usize, const V: usize>(
    l: L,
    kv: KvView<'_, E>,
    task: &AttentionTask<'_>,
    (span, element): (Span, usize),
    weights: &[[f32; SPLIT]],
    states: &mut [f32],
) {
    let head_dim = kv.shape().head_dim;
    let mut sums = [[l.splat(0.0); V]; N];
    let mut span = span;
    while let Some((block, offsets, at)) = span.take() {
        // SAFETY: values are written before attention begins.
        let values = unsafe { kv.values(task.layer, task.block_table[block], task.kv_head) };
        let values = &values[offsets.start * head_dim + element..];
        for index in 0..offsets.len() {
            let mut vectors = [l.splat(0.0); V];
            for (v, vector) in vectors.iter_mut().enumerate() {
                // SAFETY: V vectors from `element` lie in the head of each token.
                *vector = unsafe { l.load(values.as_ptr().add(index * head_dim + v * NUM_LANES)) };
            }
            for (weights, sums) in weights.iter().zip(&mut sums) {
                let weight = l.splat(weights[at + index]);
                for (sum, vector) in sums.iter_mut().zip(&vectors) {
                    *sum = l.fma(weight, *vector, *sum);
                }
            }
        }
    }
    for (sums, state) in sums
        .iter()
        .zip(states.chunks_exact_mut(state_len(head_dim)))
    {
        for (v, sum) in sums.iter().enumerate() {
            let to = &mut state[STATE_HEAD + element + v * NUM_LANES..][..NUM_LANES];
            to.copy_from_slice(&l.to_array(*sum));
        }
    }
}

/// Adds the state of the next split to that of the splits before.
#[inline(always)]
fn merge_body<L: Lanes>(l: L, state: &mut [f32], next: &[f32]) {
    if next[1] == 0.0 {
        return;
    }
    if state[1] == 0.0 {
        state.copy_from_slice(next);
        return;
    }
    let most = if next[0] > state[0] {
        next[0]
    } else {
        state[0]
    };
    let (kept, added) = (exp_of(l, state[0] - most), exp_of(l, next[0] - most));
    state[0] = most;
    for (x, y) in state[1..].iter_mut().zip(&next[1..]) {
        *x = *x * kept + *y * added;
    }
}

/// Computes all queries of a task.
#[inline(always)]
fn attend_body<L: Lanes, E: Element + Plain>(
    l: L,
    kv: KvView<'_, E>,
    task: &AttentionTask<'_>,
    scratch: &mut [f32],
    output: &mut OutputRows<'_>,
) {
    let head_dim = kv.shape().head_dim;
    let group = task.group(kv.shape().num_heads);
    let state_len = state_len(head_dim);
    let len = task.num_rows * group * state_len;
    let (weights, states) = scratch.split_at_mut(AT_ONCE * SPLIT);
    let (states, rest) = states.split_at_mut(len);
    let next = &mut rest[..len];
    states.fill(0.0);
    for split in task.splits() {
        attend_split(l, kv, task, split, weights, next);
        let pairs = states.chunks_exact_mut(state_len);
        for (state, next) in pairs.zip(next.chunks_exact(state_len)) {
            merge_body(l, state, next);
        }
    }
    for (query, state) in states.chunks_exact(state_len).enumerate() {
        let (row, head) = (query / group, task.kv_head * group + query % group);
        // SAFETY: each query of the task is written once.
        let to = unsafe { output.columns(task.first_row + row, head * head_dim, head_dim) };
        finish(state, to);
    }
}

/// Writes the result of a query's state once all splits are merged.
pub(crate) fn finish(state: &[f32], to: &mut [f32]) {
    for (to, x) in to.iter_mut().zip(&state[STATE_HEAD..]) {
        *to = *x / state[1];
    }
}

dispatch! {
    /// Computes all queries of a task into their heads of `output`, `(num_rows, num_heads * head_dim)`.
    fn attend_f16(kv: KvView<'_, f16>, task: &AttentionTask<'_>, scratch: &mut [f32], output: &mut OutputRows<'_>) = attend_body::<_, f16>;
}
dispatch! {
    /// As [`attend_f16`].
    fn attend_f32(kv: KvView<'_, f32>, task: &AttentionTask<'_>, scratch: &mut [f32], output: &mut OutputRows<'_>) = attend_body::<_, f32>;
}
dispatch! {
    /// Computes the states of all queries in one split, `(num_rows * group, state_len)`. `scratch` is as for [`attend_f16`].
    fn attend_split_f16(kv: KvView<'_, f16>, task: &AttentionTask<'_>, split: usize, scratch: &mut [f32], states: &mut [f32]) = attend_split::<_, f16>;
}
dispatch! {
    /// As [`attend_split_f16`].
    fn attend_split_f32(kv: KvView<'_, f32>, task: &AttentionTask<'_>, split: usize, scratch: &mut [f32], states: &mut [f32]) = attend_split::<_, f32>;
}
dispatch! {
    /// Adds a query's state in the next split to that of the splits before; zeroes are a state of none.
    fn merge(state: &mut [f32], next: &[f32]) = merge_body;
}

#[cfg(test)]
mod tests;
