//! One step: what each thread does with the rows of a batch, phase by phase.
//!
//! Between two barriers a thread writes its own rows, columns or tasks, and
//! reads only what was written before the last one. Every element is computed
//! by one thread in one order, so that their number changes no bit.

#![expect(
    unsafe_code,
    reason = "threads write different parts of the same buffers"
)]

use std::ops::Range;

use crate::backend::ForwardBatch;
use crate::backend::cpu::arena::{RowGroup, SharedRows, num_queries};
use crate::backend::cpu::kv::KvPoolView;
use crate::backend::cpu::layout::Layout;
use crate::backend::cpu::load::{LayerWeights, Weights};
use crate::backend::cpu::threads::Worker;
use crate::kernels::attention::{self, AttentionTask};
use crate::kernels::buffer::Shared;
use crate::kernels::isa::Isa;
use crate::kernels::math;
use crate::kernels::matmul::{InputRows, Matrix, OutputRows};
use crate::kernels::packed::TILE;
use crate::kernels::quantize::{BLOCK, QuantizedRows, quantize};
use crate::kernels::rope::Rope;
use crate::model::Activation;

/// Tiles whose columns are one block of quantised activations.
const TILES_PER_BLOCK: usize = BLOCK / TILE;

/// All that the threads of a step share.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub(super) isa: Isa,
    pub(super) layout: &'a Layout,
    pub(super) weights: &'a Weights,
    pub(super) batch: &'a ForwardBatch<'a>,
    pub(super) kv: KvPoolView<'a>,
    pub(super) groups: &'a [RowGroup],
    pub(super) splits_apart: bool,
    pub(super) residual: Shared<'a, f32>,
    pub(super) normed: SharedRows<'a>,
    pub(super) inner: SharedRows<'a>,
    pub(super) up: Shared<'a, f32>,
    pub(super) projected: Shared<'a, f32>,
    pub(super) queries: Shared<'a, f32>,
    pub(super) keys: Shared<'a, f32>,
    pub(super) values: Shared<'a, f32>,
    pub(super) angles: Shared<'a, f32>,
    pub(super) local_angles: Shared<'a, f32>,
    pub(super) scratch: Shared<'a, f32>,
    pub(super) scratch_len: usize,
    pub(super) states: Shared<'a, f32>,
    /// `(num_outputs, vocab_size)`, where asked for.
    pub(super) logits: Option<Shared<'a, f32>>,
    /// `(num_outputs, hidden_size)`, where asked for.
    pub(super) hidden: Option<Shared<'a, f32>>,
}

/// A matrix, where its product goes, and what is added to it.
type Product<'a> = (&'a Matrix, Shared<'a, f32>, Option<&'a [f32]>);

impl Step<'_> {
    fn num_rows(&self) -> usize {
        self.batch.token_ids.len()
    }

    /// Runs a thread's part of the step.
    pub(super) fn run(&self, worker: Worker<'_>) {
        let hidden_size = self.layout.hidden_size;
        self.embed(worker);
        // What the layer before has yet to add, by its norm.
        let mut pending: Option<Option<&[f32]>> = None;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            let quantized = [&layer.q_proj, &layer.k_proj, &layer.v_proj]
                .iter()
                .any(|projection| projection.matrix.is_quantized());
            for row in worker.share(self.num_rows()) {
                if let Some(norm) = pending {
                    self.add_projected(row, row, norm);
                }
                self.norm_row(row, row, &layer.attention_norm, quantized);
            }
            worker.wait();
            self.attention(worker, index, layer);
            self.multiply_some(
                worker,
                Self::input(self.inner, self.layout.query_width(), self.num_rows()),
                &[(&layer.o_proj, self.projected, None)],
            );
            worker.wait();
            let quantized = layer.gate_proj.is_quantized() || layer.up_proj.is_quantized();
            for row in worker.share(self.num_rows()) {
                self.add_projected(row, row, layer.attention_output_norm.as_deref());
                self.norm_row(row, row, &layer.feed_forward_norm, quantized);
            }
            worker.wait();
            self.gate(worker, layer);
            worker.wait();
            self.multiply_some(
                worker,
                Self::input(self.inner, self.layout.intermediate_size, self.num_rows()),
                &[(&layer.down_proj, self.projected, None)],
            );
            worker.wait();
            pending = Some(layer.feed_forward_output_norm.as_deref());
        }
        for output in worker.share(self.batch.output_rows.len()) {
            let row = self.batch.output_rows[output] as usize;
            if let Some(norm) = pending {
                self.add_projected(row, output, norm);
            }
            let quantized = self.weights.output().is_quantized();
            self.norm_row(row, output, &self.weights.norm, quantized);
            if let Some(hidden) = self.hidden {
                // SAFETY: this thread's output.
                let (from, to) = unsafe {
                    (
                        self.normed.values.read(output * hidden_size, hidden_size),
                        hidden.write(output * hidden_size, hidden_size),
                    )
                };
                to.copy_from_slice(from);
            }
        }
        self.output(worker);
    }

    /// Writes the residual stream and the angles of this thread's rows.
    fn embed(&self, worker: Worker<'_>) {
        let width = self.layout.hidden_size;
        for row in worker.share(self.num_rows()) {
            // SAFETY: this thread's row.
            let residual = unsafe { self.residual.write(row * width, width) };
            let token = self.batch.token_ids[row] as usize;
            self.weights.embed_tokens.read_row(token, residual);
            for x in residual {
                *x *= self.layout.embedding_scale;
            }
            let position = self.batch.positions[row];
            let write_angles = |rope: &Rope, angles: &Shared<'_, f32>| {
                let len = rope.num_angles();
                // SAFETY: this thread's row.
                rope.angles(position, unsafe { angles.write(row * len, len) });
            };
            write_angles(&self.layout.rope, &self.angles);
            if let Some(rope) = &self.layout.local_rope {
                write_angles(rope, &self.local_angles);
            }
        }
    }

    /// Adds to a row what was projected for it, normed where `norm` is given.
    /// Row `spare` of `normed` is overwritten, and this thread's.
    fn add_projected(&self, row: usize, spare: usize, norm: Option<&[f32]>) {
        let width = self.layout.hidden_size;
        // SAFETY: this thread's rows.
        let (residual, projected, normed) = unsafe {
            (
                self.residual.write(row * width, width),
                self.projected.read(row * width, width),
                self.normed.values.write(spare * width, width),
            )
        };
        match norm {
            Some(norm) => {
                math::rms_norm(self.isa, projected, norm, self.layout.eps, normed);
                math::add(self.isa, residual, normed);
            }
            None => math::add(self.isa, residual, projected),
        }
    }

    /// Writes row `to` of `normed` from a row of the residual stream; both are this thread's.
    fn norm_row(&self, row: usize, to: usize, norm: &[f32], quantized: bool) {
        let width = self.layout.hidden_size;
        // SAFETY: this thread's rows.
        let (residual, normed) = unsafe {
            (
                self.residual.read(row * width, width),
                self.normed.values.write(to * width, width),
            )
        };
        math::rms_norm(self.isa, residual, norm, self.layout.eps, normed);
        if quantized {
            self.quantize_columns(self.normed, width, to, 0..width);
        }
    }

    /// Quantises columns of a row, which are this thread's and whole blocks.
    fn quantize_columns(
        &self,
        rows: SharedRows<'_>,
        width: usize,
        row: usize,
        columns: Range<usize>,
    ) {
        let (start, len) = (row * width + columns.start, columns.len());
        // SAFETY: this thread's columns.
        let (values, integers, scales) = unsafe {
            (
                rows.values.read(start, len),
                rows.integers.write(start, len),
                rows.scales.write(start / BLOCK, len / BLOCK),
            )
        };
        quantize(self.isa, values, integers, scales);
    }

    /// Returns rows that were written before the last barrier.
    fn input(rows: SharedRows<'_>, width: usize, num_rows: usize) -> InputRows<'_> {
        let len = num_rows * width;
        // SAFETY: phases that read them write other buffers.
        unsafe {
            InputRows {
                values: rows.values.read(0, len),
                quantized: QuantizedRows {
                    values: rows.integers.read(0, len),
                    scales: rows.scales.read(0, len / BLOCK),
                    width,
                },
            }
        }
    }

    /// Computes this thread's share of the tiles of some matrices.
    fn multiply_some(&self, worker: Worker<'_>, input: InputRows<'_>, products: &[Product<'_>]) {
        let num_tiles = products.iter().map(|product| product.0.num_tiles()).sum();
        let share = worker.share(num_tiles);
        let mut first = 0;
        for &(matrix, to, bias) in products {
            let tiles = share.start.clamp(first, first + matrix.num_tiles()) - first
                ..share.end.clamp(first, first + matrix.num_tiles()) - first;
            first += matrix.num_tiles();
            self.multiply(matrix, input, tiles, to, bias);
        }
    }

    /// Computes tiles of a product, which are this thread's.
    fn multiply(
        &self,
        matrix: &Matrix,
        input: InputRows<'_>,
        tiles: Range<usize>,
        to: Shared<'_, f32>,
        bias: Option<&[f32]>,
    ) {
        let width = matrix.num_rows();
        let columns = tiles.start * TILE..width.min(tiles.end * TILE);
        // SAFETY: this thread's columns.
        let mut output = unsafe { OutputRows::new(to, width) };
        matrix.multiply(self.isa, input, tiles, &mut output);
        if let Some(bias) = bias.filter(|_| !columns.is_empty()) {
            for row in 0..input.values.len() / matrix.num_columns() {
                // SAFETY: as above.
                let to = unsafe { output.columns(row, columns.start, columns.len()) };
                math::add(self.isa, to, &bias[columns.clone()]);
            }
        }
    }

    /// Computes queries, keys and values, and from them `inner`; ends behind a barrier.
    fn attention(&self, worker: Worker<'_>, index: usize, layer: &LayerWeights) {
        let input = Self::input(self.normed, self.layout.hidden_size, self.num_rows());
        let (q, k, v) = (&layer.q_proj, &layer.k_proj, &layer.v_proj);
        self.multiply_some(
            worker,
            input,
            &[
                (&q.matrix, self.queries, q.bias.as_deref()),
                (&k.matrix, self.keys, k.bias.as_deref()),
                (&v.matrix, self.values, v.bias.as_deref()),
            ],
        );
        worker.wait();
        self.rotate(worker, index, layer);
        worker.wait();
        let quantized = layer.o_proj.is_quantized();
        if self.splits_apart {
            self.attend_splits(worker, index);
            worker.wait();
            self.merge_splits(worker, index, quantized);
        } else {
            self.attend(worker, index, quantized);
        }
        worker.wait();
        if quantized && !self.layout.head_dim.is_multiple_of(BLOCK) {
            let width = self.layout.query_width();
            for row in worker.share(self.num_rows()) {
                self.quantize_columns(self.inner, width, row, 0..width);
            }
            worker.wait();
        }
    }

    /// Norms and rotates queries and keys, and writes keys and values to the pool.
    fn rotate(&self, worker: Worker<'_>, index: usize, layer: &LayerWeights) {
        let layout = self.layout;
        let (num_heads, head_dim) = (layout.num_heads, layout.head_dim);
        let local = layout
            .local_rope
            .as_ref()
            .filter(|_| layout.windows[index].1);
        let (rope, angles) = match local {
            Some(rope) => (rope, self.local_angles),
            None => (&layout.rope, self.angles),
        };
        let per_row = num_heads + layout.num_kv_heads;
        let mut sequence = SequenceOfRow::default();
        for item in worker.share(self.num_rows() * per_row) {
            let (row, head) = (item / per_row, item % per_row);
            let len = rope.num_angles();
            // SAFETY: angles were written before the last barrier.
            let angles = unsafe { angles.read(row * len, len) };
            if head < num_heads {
                // SAFETY: this thread's head.
                let query = unsafe {
                    let start = (row * num_heads + head) * head_dim;
                    self.queries.write(start, head_dim)
                };
                self.norm_head(worker, query, layer.q_norm.as_deref());
                rope.rotate(query, angles);
                for x in query {
                    *x *= layout.attention_scale;
                }
                continue;
            }
            let head = head - num_heads;
            let start = (row * layout.num_kv_heads + head) * head_dim;
            // SAFETY: this thread's head.
            let (key, value) = unsafe {
                (
                    self.keys.write(start, head_dim),
                    self.values.read(start, head_dim),
                )
            };
            self.norm_head(worker, key, layer.k_norm.as_deref());
            rope.rotate(key, angles);
            let table = self.batch.sequences[sequence.find(self.batch, row)].block_table;
            let position = self.batch.positions[row] as usize;
            // SAFETY: rows of a batch are different tokens, and the head is this thread's.
            unsafe { self.kv.write(index, table, position, head, (key, value)) };
        }
    }

    fn norm_head(&self, worker: Worker<'_>, head: &mut [f32], norm: Option<&[f32]>) {
        if let Some(norm) = norm {
            let before = &mut self.scratch(worker)[..head.len()];
            before.copy_from_slice(head);
            math::rms_norm(self.isa, before, norm, self.layout.eps, head);
        }
    }

    /// Returns this thread's scratch; it is not asked for twice at a time.
    #[expect(clippy::mut_from_ref, reason = "each thread has its own part")]
    fn scratch(&self, worker: Worker<'_>) -> &mut [f32] {
        // SAFETY: this thread's part.
        unsafe {
            self.scratch
                .write(worker.index * self.scratch_len, self.scratch_len)
        }
    }

    /// Returns the task of rows and a head of keys.
    fn task(&self, layer: usize, rows: &RowGroup, kv_head: usize) -> AttentionTask<'_> {
        let len = self.num_rows() * self.layout.query_width();
        AttentionTask {
            // SAFETY: queries were written before the last barrier.
            queries: unsafe { self.queries.read(0, len) },
            num_heads: self.layout.num_heads,
            kv_head,
            layer,
            first_row: rows.first_row,
            num_rows: rows.num_rows,
            first_position: rows.first_position,
            block_table: self.batch.sequences[rows.sequence].block_table,
            window: self.layout.windows[layer].0,
            soft_cap: self.layout.score_cap,
        }
    }

    fn tasks(&self, layer: usize) -> impl Iterator<Item = AttentionTask<'_>> {
        self.groups.iter().flat_map(move |rows| {
            (0..self.layout.num_kv_heads).map(move |head| self.task(layer, rows, head))
        })
    }

    /// Attends, task by task.
    fn attend(&self, worker: Worker<'_>, layer: usize, quantized: bool) {
        let (width, head_dim) = (self.layout.query_width(), self.layout.head_dim);
        for (index, task) in self.tasks(layer).enumerate() {
            if !worker.takes(index) {
                continue;
            }
            // SAFETY: the heads of the task's rows are this thread's.
            let mut output = unsafe { OutputRows::new(self.inner.values, width) };
            let scratch = self.scratch(worker);
            self.kv.attend(self.isa, &task, scratch, &mut output);
            if quantized && head_dim.is_multiple_of(BLOCK) {
                let group = self.layout.num_heads / self.layout.num_kv_heads * head_dim;
                let columns = task.kv_head * group..(task.kv_head + 1) * group;
                for row in task.first_row..task.first_row + task.num_rows {
                    self.quantize_columns(self.inner, width, row, columns.clone());
                }
            }
        }
    }

    /// Computes states, split by split.
    fn attend_splits(&self, worker: Worker<'_>, layer: usize) {
        let state_len = attention::state_len(self.layout.head_dim);
        let (mut start, mut item) = (0, 0);
        for task in self.tasks(layer) {
            let len = num_queries(&task, self.layout) * state_len;
            for split in task.splits() {
                if worker.takes(item) {
                    // SAFETY: this thread's item.
                    let states = unsafe { self.states.write(start, len) };
                    let scratch = self.scratch(worker);
                    self.kv
                        .attend_split(self.isa, &task, split, scratch, states);
                }
                start += len;
                item += 1;
            }
        }
    }

    /// Merges the states of each query.
    fn merge_splits(&self, worker: Worker<'_>, layer: usize, quantized: bool) {
        let (width, head_dim) = (self.layout.query_width(), self.layout.head_dim);
        let state_len = attention::state_len(head_dim);
        let group = self.layout.num_heads / self.layout.num_kv_heads;
        let (mut start, mut item) = (0, 0);
        for task in self.tasks(layer) {
            let num_queries = num_queries(&task, self.layout);
            let num_splits = task.splits().len();
            for query in 0..num_queries {
                item += 1;
                if !worker.takes(item) {
                    continue;
                }
                let state = &mut self.scratch(worker)[..state_len];
                state.fill(0.0);
                for split in 0..num_splits {
                    let at = start + (split * num_queries + query) * state_len;
                    // SAFETY: states were written before the last barrier.
                    let next = unsafe { self.states.read(at, state_len) };
                    attention::merge(self.isa, state, next);
                }
                let row = task.first_row + query / group;
                let first = (task.kv_head * group + query % group) * head_dim;
                // SAFETY: this thread's query.
                let to = unsafe { self.inner.values.write(row * width + first, head_dim) };
                attention::finish(state, to);
                if quantized && head_dim.is_multiple_of(BLOCK) {
                    self.quantize_columns(self.inner, width, row, first..first + head_dim);
                }
            }
            start += num_splits * num_queries * state_len;
        }
    }

    /// Computes the gate and what goes through it, by blocks of columns.
    fn gate(&self, worker: Worker<'_>, layer: &LayerWeights) {
        let width = self.layout.intermediate_size;
        let blocks = worker.share(width.div_ceil(BLOCK));
        let last = layer.gate_proj.num_tiles();
        let tiles = blocks.start * TILES_PER_BLOCK..last.min(blocks.end * TILES_PER_BLOCK);
        if tiles.is_empty() {
            return;
        }
        let input = Self::input(self.normed, self.layout.hidden_size, self.num_rows());
        let to = self.inner.values;
        self.multiply(&layer.gate_proj, input, tiles.clone(), to, None);
        self.multiply(&layer.up_proj, input, tiles, self.up, None);
        let columns = blocks.start * BLOCK..width.min(blocks.end * BLOCK);
        for row in 0..self.num_rows() {
            let start = row * width + columns.start;
            // SAFETY: this thread's columns.
            let (gate, up) = unsafe {
                (
                    to.write(start, columns.len()),
                    self.up.read(start, columns.len()),
                )
            };
            match self.layout.activation {
                Activation::Silu => math::silu_gate(self.isa, gate, up),
                Activation::GeluTanh => math::gelu_tanh_gate(self.isa, gate, up),
            }
            if layer.down_proj.is_quantized() {
                self.quantize_columns(self.inner, width, row, columns.clone());
            }
        }
    }

    /// Computes the logits of the output rows, where asked for.
    fn output(&self, worker: Worker<'_>) {
        let num_outputs = self.batch.output_rows.len();
        let Some(logits) = self.logits.filter(|_| num_outputs > 0) else {
            return;
        };
        worker.wait();
        let matrix = self.weights.output();
        let input = Self::input(self.normed, self.layout.hidden_size, num_outputs);
        let tiles = worker.share(matrix.num_tiles());
        self.multiply(matrix, input, tiles.clone(), logits, None);
        let Some(cap) = self.layout.logit_cap else {
            return;
        };
        let width = self.layout.vocab_size;
        let columns = tiles.start * TILE..width.min(tiles.end * TILE);
        for row in 0..num_outputs {
            let start = row * width + columns.start.min(columns.end);
            // SAFETY: this thread's columns.
            let logits = unsafe { logits.write(start, columns.len()) };
            math::soft_cap(self.isa, logits, cap);
        }
    }
}

/// Finds the sequences of rows that are asked for in order.
#[derive(Debug, Default)]
struct SequenceOfRow {
    sequence: usize,
    first_row: usize,
}

impl SequenceOfRow {
    fn find(&mut self, batch: &ForwardBatch<'_>, row: usize) -> usize {
        while row >= self.first_row + batch.sequences[self.sequence].num_rows {
            self.first_row += batch.sequences[self.sequence].num_rows;
            self.sequence += 1;
        }
        self.sequence
    }
}
