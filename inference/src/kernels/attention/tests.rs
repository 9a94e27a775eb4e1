//! Attention over blocks against plain attention in f64, and the same bits
//! however rows, blocks and splits are cut.

use half::f16;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::kernels::buffer::Shared;
use crate::kernels::isa::Isa;
use crate::kernels::kv_cache::{KvCache, KvShape};
use crate::kernels::lanes::ElementKind;
use crate::kernels::noise::Noise;

/// A sequence's queries, keys and values: `(tokens, heads, head_dim)` each.
struct Sequence {
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    num_tokens: usize,
    group: usize,
    num_kv_heads: usize,
    head_dim: usize,
    window: usize,
    soft_cap: Option<f32>,
}

impl Sequence {
    fn new(num_tokens: usize, [group, num_kv_heads, head_dim]: [usize; 3], seed: u64) -> Self {
        let mut noise = Noise(seed);
        let mut numbers = |len: usize| (0..len).map(|_| noise.unit()).collect::<Vec<f32>>();
        let elements = num_tokens * num_kv_heads * head_dim;
        Self {
            queries: numbers(elements * group),
            keys: numbers(elements),
            values: numbers(elements),
            num_tokens,
            group,
            num_kv_heads,
            head_dim,
            window: usize::MAX,
            soft_cap: None,
        }
    }

    fn num_heads(&self) -> usize {
        self.group * self.num_kv_heads
    }

    /// Fills blocks, of which the table names `order` in turn.
    fn cache<E: Element + Plain>(&self, block_size: usize, order: &[BlockId]) -> KvCache<E> {
        let mut cache = KvCache::new(KvShape {
            num_layers: 2,
            num_blocks: order.len(),
            block_size,
            num_heads: self.num_kv_heads,
            head_dim: self.head_dim,
        })
        .unwrap();
        let view = cache.view();
        for position in 0..self.num_tokens {
            for head in 0..self.num_kv_heads {
                let at = (position * self.num_kv_heads + head) * self.head_dim;
                let key = &self.keys[at..][..self.head_dim];
                let value = &self.values[at..][..self.head_dim];
                // SAFETY: one thread.
                unsafe { view.write(1, order, position, head, (key, value)) };
            }
        }
        cache
    }

    fn task<'a>(
        &'a self,
        rows: Range<usize>,
        kv_head: usize,
        table: &'a [BlockId],
    ) -> AttentionTask<'a> {
        AttentionTask {
            queries: &self.queries,
            num_heads: self.num_heads(),
            kv_head,
            layer: 1,
            first_row: rows.start,
            num_rows: rows.len(),
            first_position: rows.start,
            block_table: table,
            window: self.window,
            soft_cap: self.soft_cap,
        }
    }

    /// Runs rows in chunks; the second way keeps the states of splits apart.
    fn run(
        &self,
        isa: Isa,
        kind: ElementKind,
        block_size: usize,
        chunk: usize,
        apart: bool,
    ) -> Vec<f32> {
        let num_blocks = self.num_tokens.div_ceil(block_size);
        // Any order that is not the natural one.
        let order: Vec<BlockId> = (0..num_blocks)
            .map(|i| BlockId(((i * 7 + chunk) % num_blocks) as u32))
            .collect();
        let mut sorted = order.clone();
        sorted.sort();
        sorted.dedup();
        let order = if sorted.len() == num_blocks {
            order
        } else {
            (0..num_blocks as u32).rev().map(BlockId).collect()
        };
        match kind {
            ElementKind::F32 => {
                let mut cache = self.cache::<f32>(block_size, &order);
                let view = cache.view();
                self.run_in(
                    chunk,
                    &order,
                    apart,
                    isa,
                    |task, scratch, output| {
                        attend_f32(isa, view, task, scratch, output);
                    },
                    |task, split, scratch, states| {
                        attend_split_f32(isa, view, task, split, scratch, states);
                    },
                )
            }
            _ => {
                let mut cache = self.cache::<f16>(block_size, &order);
                let view = cache.view();
                self.run_in(
                    chunk,
                    &order,
                    apart,
                    isa,
                    |task, scratch, output| {
                        attend_f16(isa, view, task, scratch, output);
                    },
                    |task, split, scratch, states| {
                        attend_split_f16(isa, view, task, split, scratch, states);
                    },
                )
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "two kernels, and how they are run"
    )]
    fn run_in(
        &self,
        chunk: usize,
        order: &[BlockId],
        apart: bool,
        isa: Isa,
        whole: impl Fn(&AttentionTask<'_>, &mut [f32], &mut OutputRows<'_>),
        in_split: impl Fn(&AttentionTask<'_>, usize, &mut [f32], &mut [f32]),
    ) -> Vec<f32> {
        let mut result = vec![f32::NAN; self.queries.len()];
        let width = self.num_heads() * self.head_dim;
        let state_len = state_len(self.head_dim);
        let num_queries = chunk * self.group;
        let mut scratch = vec![0.0; scratch_len(num_queries, self.head_dim)];
        // SAFETY: one thread.
        let mut output = unsafe { OutputRows::new(Shared::new(&mut result), width) };
        for start in (0..self.num_tokens).step_by(chunk) {
            for kv_head in 0..self.num_kv_heads {
                let rows = start..self.num_tokens.min(start + chunk);
                let task = self.task(rows.clone(), kv_head, order);
                if !apart {
                    whole(&task, &mut scratch, &mut output);
                    continue;
                }
                let mut states = vec![0.0; rows.len() * self.group * state_len];
                let mut next = states.clone();
                for split in task.splits() {
                    in_split(&task, split, &mut scratch, &mut next);
                    let pairs = states.chunks_mut(state_len).zip(next.chunks(state_len));
                    pairs.for_each(|(state, next)| merge(isa, state, next));
                }
                for (query, state) in states.chunks(state_len).enumerate() {
                    let head = kv_head * self.group + query % self.group;
                    let row = start + query / self.group;
                    // SAFETY: one thread.
                    finish(state, unsafe {
                        output.columns(row, head * self.head_dim, self.head_dim)
                    });
                }
            }
        }
        result
    }

    /// Plain attention.
    fn truth(&self) -> Vec<f64> {
        let mut result = Vec::new();
        for row in 0..self.num_tokens {
            for head in 0..self.num_heads() {
                let query = &self.queries[(row * self.num_heads() + head) * self.head_dim..]
                    [..self.head_dim];
                let at = |position: usize| {
                    (position * self.num_kv_heads + head / self.group) * self.head_dim
                };
                let positions = (row + 1).saturating_sub(self.window)..row + 1;
                let scores: Vec<f64> = positions
                    .clone()
                    .map(|position| {
                        let key = &self.keys[at(position)..];
                        let pairs = query.iter().zip(key);
                        let score: f64 = pairs.map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
                        self.soft_cap.map_or(score, |cap| {
                            f64::from(cap) * (score / f64::from(cap)).tanh()
                        })
                    })
                    .collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|score| (score - most).exp()).sum();
                for element in 0..self.head_dim {
                    let pairs = positions.clone().zip(&scores);
                    let sum: f64 = pairs
                        .map(|(position, score)| {
                            (score - most).exp() * f64::from(self.values[at(position) + element])
                        })
                        .sum();
                    result.push(sum / total);
                }
            }
        }
        result
    }

    fn check(&self, block_size: usize, chunk: usize) {
        let truth = self.truth();
        for (kind, bound) in [(ElementKind::F32, 1e-5), (ElementKind::F16, 2e-3)] {
            let whole = self.run(Isa::best(), kind, block_size, self.num_tokens, false);
            for (found, expected) in whole.iter().zip(&truth) {
                assert!(
                    (f64::from(*found) - expected).abs() < bound,
                    "{found} {expected}"
                );
            }
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            let whole = bits(whole);
            let same = |isa, size, chunk, apart| {
                assert!(
                    bits(self.run(isa, kind, size, chunk, apart)) == whole,
                    "{isa:?} blocks of {size}, chunks of {chunk}, splits apart {apart}"
                );
            };
            same(Isa::Portable, block_size, self.num_tokens, false);
            same(Isa::best(), block_size, chunk, false);
            same(Isa::best(), block_size, chunk, true);
            same(Isa::best(), 5, 7, false);
            same(Isa::best(), 32, 1, true);
        }
    }
}

#[test]
fn windows_hide_what_is_too_far() {
    for window in [1, 2, 127, 128, 129] {
        let mut sequence = Sequence::new(140, [1, 1, 8], 7);
        sequence.window = window;
        sequence.check(16, 9);
    }
}

#[test]
fn long_sequences_cross_splits() {
    let mut sequence = Sequence::new(2 * SPLIT + 3, [3, 1, 8], 3);
    sequence.check(16, 50);
    sequence.soft_cap = Some(2.0);
    sequence.check(16, 50);
}

#[test]
fn paged_attention_is_plain_attention() {
    let mut runner = TestRunner::new(Config::with_cases(24));
    let cases = (
        1_usize..40,
        (1_usize..6, 1_usize..3, 1_usize..41),
        1_usize..20,
        1_usize..9,
        prop::option::of(1_usize..50),
        any::<u64>(),
    );
    runner
        .run(
            &cases,
            |(num_tokens, (group, heads, head_dim), block_size, chunk, window, seed)| {
                let mut sequence = Sequence::new(num_tokens, [group, heads, head_dim], seed);
                sequence.window = window.unwrap_or(usize::MAX);
                sequence.check(block_size, chunk);
                Ok(())
            },
        )
        .unwrap();
}

#[test]
fn blocks_are_copied_whole() {
    let sequence = Sequence::new(8, [1, 2, 4], 1);
    let order = [BlockId(2), BlockId(0)];
    let mut spare = vec![BlockId(2), BlockId(0), BlockId(1)];
    let mut cache = sequence.cache::<f32>(4, &spare);
    cache.copy_block(BlockId(2), BlockId(1));
    spare[0] = BlockId(1);
    let view = cache.view();
    for head in 0..2 {
        // SAFETY: nobody writes.
        unsafe {
            assert_eq!(view.keys(1, order[0], head), view.keys(1, BlockId(1), head));
            assert_eq!(
                view.values(1, order[0], head),
                view.values(1, BlockId(1), head)
            );
            assert_ne!(view.keys(1, order[1], head), view.keys(1, BlockId(1), head));
        }
    }
}
