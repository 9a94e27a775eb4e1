//! Buffers of a step, kept from step to step: they grow to the largest step
//! there was, and then nothing is allocated.

use crate::backend::ForwardBatch;
use crate::backend::cpu::layout::Layout;
use crate::kernels::attention::{self, AttentionTask};
use crate::kernels::buffer::Shared;
use crate::kernels::quantize::{BLOCK, BlockScale};

/// Rows of a task of attention: keys and values are read once for each task.
const ROWS_PER_TASK: usize = 16;

/// Rows of numbers, as they are and as integers.
#[derive(Debug, Default)]
pub(super) struct RowsBuffer {
    values: Vec<f32>,
    integers: Vec<i8>,
    scales: Vec<BlockScale>,
}

impl RowsBuffer {
    fn grow(&mut self, num_elements: usize) {
        grow(&mut self.values, num_elements);
        grow(&mut self.integers, num_elements);
        grow(&mut self.scales, num_elements.div_ceil(BLOCK));
    }

    pub(super) fn share(&mut self) -> SharedRows<'_> {
        SharedRows {
            values: Shared::new(&mut self.values),
            integers: Shared::new(&mut self.integers),
            scales: Shared::new(&mut self.scales),
        }
    }
}

/// A [`RowsBuffer`] that threads write.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedRows<'a> {
    /// `(num_rows, width)`
    pub(super) values: Shared<'a, f32>,
    /// `(num_rows, width)`
    pub(super) integers: Shared<'a, i8>,
    /// `(num_rows, width / BLOCK)`
    pub(super) scales: Shared<'a, BlockScale>,
}

/// Rows of one sequence that attend together.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowGroup {
    /// Index of the sequence in the batch.
    pub(super) sequence: usize,
    /// First row in the batch.
    pub(super) first_row: usize,
    /// Rows, at most [`ROWS_PER_TASK`].
    pub(super) num_rows: usize,
    /// Position of the first row.
    pub(super) first_position: usize,
}

/// All buffers of a step.
#[derive(Debug, Default)]
pub(super) struct Arena {
    /// Residual stream. `(num_rows, hidden_size)`
    pub(super) residual: Vec<f32>,
    /// Behind a norm. `(num_rows, hidden_size)`
    pub(super) normed: RowsBuffer,
    /// Behind attention, and behind the gate. `(num_rows, width)`
    pub(super) inner: RowsBuffer,
    /// `(num_rows, intermediate_size)`
    pub(super) up: Vec<f32>,
    /// What is added to the residual stream next. `(num_rows, hidden_size)`
    pub(super) projected: Vec<f32>,
    /// `(num_rows, num_attention_heads, head_dim)`
    pub(super) queries: Vec<f32>,
    /// `(num_rows, num_key_value_heads, head_dim)`
    pub(super) keys: Vec<f32>,
    /// `(num_rows, num_key_value_heads, head_dim)`
    pub(super) values: Vec<f32>,
    /// `(num_rows, angles of the rotation)`
    pub(super) angles: Vec<f32>,
    /// `(num_rows, angles of the rotation of local layers)`
    pub(super) local_angles: Vec<f32>,
    /// Each thread's own. `(num_threads, scratch_len)`
    pub(super) scratch: Vec<f32>,
    /// Numbers of one thread's scratch.
    pub(super) scratch_len: usize,
    /// States of splits that are computed apart.
    pub(super) states: Vec<f32>,
    /// Whether splits of a query are computed apart, for want of other work.
    pub(super) splits_apart: bool,
    /// All rows.
    pub(super) groups: Vec<RowGroup>,
}

impl Arena {
    /// Makes room for a batch.
    pub(super) fn prepare(
        &mut self,
        layout: &Layout,
        batch: &ForwardBatch<'_>,
        num_threads: usize,
    ) {
        let num_rows = batch.token_ids.len();
        grow(&mut self.residual, num_rows * layout.hidden_size);
        self.normed.grow(num_rows * layout.hidden_size);
        let inner = layout.intermediate_size.max(layout.query_width());
        self.inner.grow(num_rows * inner);
        grow(&mut self.up, num_rows * layout.intermediate_size);
        grow(&mut self.projected, num_rows * layout.hidden_size);
        grow(&mut self.queries, num_rows * layout.query_width());
        grow(&mut self.keys, num_rows * layout.kv_width());
        grow(&mut self.values, num_rows * layout.kv_width());
        grow(&mut self.angles, num_rows * layout.rope.num_angles());
        if let Some(rope) = &layout.local_rope {
            grow(&mut self.local_angles, num_rows * rope.num_angles());
        }
        self.group_rows(batch);
        let group = layout.num_heads / layout.num_kv_heads;
        let largest = self.groups.iter().map(|rows| rows.num_rows).max();
        let num_queries = largest.unwrap_or(0) * group;
        // A head is normed in it as well.
        self.scratch_len = attention::scratch_len(num_queries, layout.head_dim);
        grow(&mut self.scratch, num_threads * self.scratch_len);
        self.plan_splits(layout, num_threads);
    }

    fn group_rows(&mut self, batch: &ForwardBatch<'_>) {
        self.groups.clear();
        let mut first_row = 0;
        for (sequence, rows) in batch.sequences.iter().enumerate() {
            let end = first_row + rows.num_rows;
            while first_row < end {
                let num_rows = ROWS_PER_TASK.min(end - first_row);
                self.groups.push(RowGroup {
                    sequence,
                    first_row,
                    num_rows,
                    first_position: batch.positions[first_row] as usize,
                });
                first_row += num_rows;
            }
        }
    }

    /// Keeps the splits of a query apart where groups and heads are too few
    /// to keep the threads busy; the result is the same.
    fn plan_splits(&mut self, layout: &Layout, num_threads: usize) {
        let num_tasks = self.groups.len() * layout.num_kv_heads;
        self.splits_apart = num_threads > 1 && num_tasks < 4 * num_threads;
        if !self.splits_apart {
            return;
        }
        let group = layout.num_heads / layout.num_kv_heads;
        let states = self.groups.iter().map(|rows| {
            let splits = (rows.first_position + rows.num_rows).div_ceil(attention::SPLIT);
            splits * rows.num_rows * group
        });
        let num_states = states.sum::<usize>() * layout.num_kv_heads;
        let state_len = attention::state_len(layout.head_dim);
        grow(&mut self.states, num_states * state_len);
    }
}

/// Returns the number of states of a task in one split.
pub(super) fn num_queries(task: &AttentionTask<'_>, layout: &Layout) -> usize {
    task.num_rows * (layout.num_heads / layout.num_kv_heads)
}

fn grow<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
}
