//! The forward pass on a processor: packed weights, paged keys and values, a
//! few threads.
//!
//! Guarantee: a row's logits are the same bits alone or among others, in any
//! chunks, in any blocks, with any number of threads and any instructions.

mod arena;
mod kv;
mod layout;
mod load;
mod step;
mod threads;

use std::thread;

use crate::backend::cpu::arena::Arena;
use crate::backend::cpu::kv::KvPool;
use crate::backend::cpu::layout::Layout;
use crate::backend::cpu::load::Weights;
use crate::backend::cpu::step::Step;
use crate::backend::cpu::threads::ThreadPool;
use crate::backend::{Backend, ForwardBatch, Outputs};
use crate::error::Error;
use crate::ids::BlockId;
use crate::kernels::buffer::Shared;
use crate::kernels::isa::Isa;
use crate::kernels::kv_cache::KvShape;
use crate::model::{ModelConfig, TensorNaming};
use crate::weights::WeightSource;

pub use self::kv::KvType;

/// How a [`CpuBackend`] computes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CpuOptions {
    /// Threads of a step, the caller's included; at least one.
    pub num_threads: usize,
    /// Type that keys and values are stored in.
    pub kv_type: KvType,
}

impl Default for CpuOptions {
    /// All processors that the process may use, and f16.
    fn default() -> Self {
        Self {
            num_threads: thread::available_parallelism().map_or(1, usize::from),
            kv_type: KvType::default(),
        }
    }
}

/// A model in memory, and the threads that run it.
#[derive(Debug)]
pub struct CpuBackend {
    config: ModelConfig,
    options: CpuOptions,
    isa: Isa,
    layout: Layout,
    weights: Weights,
    kv: Option<KvPool>,
    block_size: usize,
    arena: Arena,
    threads: ThreadPool,
}

impl CpuBackend {
    /// Reads the weights of a model, and starts threads.
    ///
    /// `JUSTAPI_CPU` forces the instructions: `scalar` or `avx2`.
    ///
    /// # Errors
    /// [`Error::Tensor`] where a tensor is absent or has another shape,
    /// [`Error::Read`], [`Error::Unsupported`] for a shape that cannot be run, and
    /// [`Error::Setting`] if memory or threads do not suffice.
    pub fn load(
        source: &dyn WeightSource,
        config: ModelConfig,
        naming: TensorNaming,
        options: CpuOptions,
    ) -> Result<Self, Error> {
        let isa = Isa::from_environment()?;
        Self::load_for(isa, source, config, naming, options)
    }

    fn load_for(
        isa: Isa,
        source: &dyn WeightSource,
        config: ModelConfig,
        naming: TensorNaming,
        options: CpuOptions,
    ) -> Result<Self, Error> {
        check_shape(&config)?;
        let refuse = |reason: String| Error::Setting {
            setting: "threads",
            value: options.num_threads.to_string(),
            reason,
        };
        if options.num_threads == 0 {
            return Err(refuse("at least one is needed".to_owned()));
        }
        let threads =
            ThreadPool::new(options.num_threads).map_err(|error| refuse(error.to_string()))?;
        let weights = Weights::load(source, &config, naming)?;
        Ok(Self {
            options,
            isa,
            layout: Layout::new(&config),
            config,
            weights,
            kv: None,
            block_size: 0,
            arena: Arena::default(),
            threads,
        })
    }

    /// Returns the bytes that matrices take in memory.
    pub fn weight_bytes(&self) -> usize {
        self.weights.num_bytes()
    }
}

/// Refuses what the arithmetic of heads has no meaning for.
fn check_shape(config: &ModelConfig) -> Result<(), Error> {
    let ropes = [Some(&config.rope), config.local_rope.as_ref()];
    let mut rotated = ropes.into_iter().flatten().map(|rope| rope.num_rotated);
    let refuse = |what: &str| {
        Err(Error::Unsupported {
            what: what.to_owned(),
        })
    };
    if config.head_dim == 0 || config.num_key_value_heads == 0 || config.hidden_size == 0 {
        return refuse("a model without heads");
    }
    if !config
        .num_attention_heads
        .is_multiple_of(config.num_key_value_heads)
    {
        return refuse("query heads that are no multiple of key heads");
    }
    if rotated.any(|count| count > config.head_dim || !count.is_multiple_of(2)) {
        return refuse("a rotation of more elements than a head has, or of an odd number");
    }
    if config.sliding_window == Some(0) {
        return refuse("a sliding window of no tokens");
    }
    Ok(())
}

impl Backend for CpuBackend {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn allocate(&mut self, num_blocks: usize, block_size: usize) -> Result<(), Error> {
        let refuse = |setting, value: usize, reason: &str| Error::Setting {
            setting,
            value: value.to_string(),
            reason: reason.to_owned(),
        };
        if block_size == 0 {
            return Err(refuse("block-size", 0, "a block holds at least one token"));
        }
        // What it held goes first, so that both need not fit.
        self.kv = None;
        let shape = KvShape {
            num_layers: self.config.num_hidden_layers,
            num_blocks,
            block_size,
            num_heads: self.config.num_key_value_heads,
            head_dim: self.config.head_dim,
        };
        let pool = KvPool::new(self.options.kv_type, shape);
        let no_memory = || refuse("num-blocks", num_blocks, "memory does not suffice");
        self.kv = Some(pool.ok_or_else(no_memory)?);
        self.block_size = block_size;
        Ok(())
    }

    fn kv_bytes_per_token(&self) -> usize {
        2 * self.config.num_hidden_layers
            * self.config.num_key_value_heads
            * self.config.head_dim
            * self.options.kv_type.num_bytes()
    }

    fn forward(&mut self, batch: &ForwardBatch<'_>, outputs: &mut Outputs) -> Result<(), Error> {
        check_batch(batch, self.config.vocab_size, self.block_size);
        let num_outputs = batch.output_rows.len();
        fit(
            &mut outputs.logits,
            outputs.wants_logits,
            num_outputs * self.config.vocab_size,
        );
        fit(
            &mut outputs.hidden,
            outputs.wants_hidden,
            num_outputs * self.config.hidden_size,
        );
        if batch.token_ids.is_empty() {
            return Ok(());
        }
        let arena = &mut self.arena;
        arena.prepare(&self.layout, batch, self.options.num_threads);
        let kv = self
            .kv
            .as_mut()
            .expect("blocks are allocated before a step");
        let step = Step {
            isa: self.isa,
            layout: &self.layout,
            weights: &self.weights,
            batch,
            kv: kv.view(),
            groups: &arena.groups,
            splits_apart: arena.splits_apart,
            residual: Shared::new(&mut arena.residual),
            normed: arena.normed.share(),
            inner: arena.inner.share(),
            up: Shared::new(&mut arena.up),
            projected: Shared::new(&mut arena.projected),
            queries: Shared::new(&mut arena.queries),
            keys: Shared::new(&mut arena.keys),
            values: Shared::new(&mut arena.values),
            angles: Shared::new(&mut arena.angles),
            local_angles: Shared::new(&mut arena.local_angles),
            scratch: Shared::new(&mut arena.scratch),
            scratch_len: arena.scratch_len,
            states: Shared::new(&mut arena.states),
            logits: outputs
                .wants_logits
                .then(|| Shared::new(&mut outputs.logits)),
            hidden: outputs
                .wants_hidden
                .then(|| Shared::new(&mut outputs.hidden)),
        };
        self.threads.run(&|worker| step.run(worker));
        Ok(())
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) {
        if let Some(kv) = &mut self.kv {
            kv.copy_block(from, to);
        }
    }
}

/// Makes a buffer as long as what is written to it, and empty if nothing is.
fn fit(buffer: &mut Vec<f32>, wanted: bool, len: usize) {
    buffer.resize(if wanted { len } else { 0 }, 0.0);
}

/// Panics if two sequences write to one block.
fn check_written_blocks(batch: &ForwardBatch<'_>, block_size: usize) {
    let mut written = Vec::with_capacity(batch.token_ids.len());
    let mut first_row = 0;
    for sequence in batch.sequences {
        if sequence.num_rows > 0 {
            let first = batch.positions[first_row] as usize / block_size;
            let last = batch.positions[first_row + sequence.num_rows - 1] as usize / block_size;
            written.extend_from_slice(&sequence.block_table[first..=last]);
        }
        first_row += sequence.num_rows;
    }
    written.sort_unstable();
    let differ = written.windows(2).all(|pair| pair[0] != pair[1]);
    assert!(differ, "no two sequences write to one block");
}

/// Panics where threads would write the same places, or none that exist.
fn check_batch(batch: &ForwardBatch<'_>, vocab_size: usize, block_size: usize) {
    let num_rows = batch.token_ids.len();
    assert_eq!(batch.positions.len(), num_rows, "a position for each row");
    let in_vocabulary = |&token: &u32| (token as usize) < vocab_size;
    assert!(
        batch.token_ids.iter().all(in_vocabulary),
        "tokens are in the vocabulary"
    );
    let mut first_row = 0;
    for sequence in batch.sequences {
        let positions = &batch.positions[first_row..][..sequence.num_rows];
        let follow = positions.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        assert!(follow, "rows of a sequence are consecutive");
        let capacity = sequence.block_table.len() * block_size;
        let fits = positions
            .last()
            .is_none_or(|&last| (last as usize) < capacity);
        assert!(fits, "the block table holds all positions");
        first_row += sequence.num_rows;
    }
    assert_eq!(first_row, num_rows, "each row is of a sequence");
    if batch.sequences.len() > 1 {
        check_written_blocks(batch, block_size);
    }
    let rows = batch.output_rows;
    let ascend = rows.windows(2).all(|pair| pair[0] < pair[1]);
    let exist = rows.last().is_none_or(|&last| (last as usize) < num_rows);
    assert!(ascend && exist, "output rows are rows, ascending");
}

#[cfg(test)]
mod tests;
