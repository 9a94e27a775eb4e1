//! The seam between the engine and whatever multiplies: one batch of rows in,
//! logits of the rows that were asked for out.
//!
//! Guarantee of each implementation: a row's result depends on its sequence's
//! tokens up to it and on nothing else, to the last bit.

mod cpu;

use crate::error::Error;
use crate::ids::{BlockId, TokenId};
use crate::model::ModelConfig;

pub use self::cpu::{CpuBackend, CpuOptions, KvType};

/// Weights and the keys and values of a model, on one device.
pub trait Backend: Send {
    /// Describes the model.
    fn config(&self) -> &ModelConfig;

    /// Gives the pool this many blocks of this many tokens; what it held is lost.
    ///
    /// # Errors
    /// [`Error::Setting`] if memory does not suffice.
    fn allocate(&mut self, num_blocks: usize, block_size: usize) -> Result<(), Error>;

    /// Returns the bytes that keys and values of one token take.
    fn kv_bytes_per_token(&self) -> usize;

    /// Runs the rows of a batch: keys and values are written to the blocks of
    /// each sequence, and `outputs` is filled for the rows asked for.
    ///
    /// # Errors
    /// A device that failed; a batch within the pool never fails on a processor.
    fn forward(&mut self, batch: &ForwardBatch<'_>, outputs: &mut Outputs) -> Result<(), Error>;

    /// Copies the keys and values of a block: a shared tail is copied before it is written.
    fn copy_block(&mut self, from: BlockId, to: BlockId);
}

/// Rows of one step. A row is one token of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct ForwardBatch<'a> {
    /// Token of each row. `(num_rows)`
    pub token_ids: &'a [TokenId],
    /// Place of each row in its sequence; row p sees positions 0 to p. `(num_rows)`
    pub positions: &'a [u32],
    /// Sequences in the order of their rows.
    pub sequences: &'a [SequenceRows<'a>],
    /// Rows that `outputs` is filled for, ascending. `(num_outputs)`
    pub output_rows: &'a [u32],
}

/// The rows of one sequence: consecutive in the batch and in position.
#[derive(Clone, Copy, Debug)]
pub struct SequenceRows<'a> {
    /// Number of rows, at least one.
    pub num_rows: usize,
    /// Position p lives in block p / `block_size`, at p % `block_size`.
    pub block_table: &'a [BlockId],
}

/// What a step computes, in buffers that are kept from step to step.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Set to have `logits` filled.
    pub wants_logits: bool,
    /// Set to have `hidden` filled.
    pub wants_hidden: bool,
    /// Logits of the output rows. `(num_outputs, vocab_size)`
    pub logits: Vec<f32>,
    /// State behind the last norm of the output rows. `(num_outputs, hidden_size)`
    pub hidden: Vec<f32>,
}
