//! Settings of the engine, as users name them, made into limits of the scheduler.

use std::time::Duration;

use crate::backend::Backend;
use crate::error::Error;
use crate::scheduler::SchedulerConfig;

/// Bytes of keys and values that the pool takes where nobody says how many blocks.
pub const DEFAULT_KV_BYTES: usize = 1 << 30;

/// Settings of the engine. `None` is chosen by what the model needs.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOptions {
    /// Most sequences that run at once.
    pub max_seqs: usize,
    /// Blocks in the pool; as many as [`DEFAULT_KV_BYTES`] hold and all
    /// sequences at full length can use.
    pub pool_blocks: Option<usize>,
    /// Tokens in a block.
    pub block_size: usize,
    /// Most prompt tokens of one sequence in a step.
    pub chunk_size: usize,
    /// Most sequences whose prompts are computed in a step.
    pub max_prefill: usize,
    /// Most sequences that are given a token in a step.
    pub max_decode: usize,
    /// Longest context in tokens; the model's own.
    pub max_model_len: Option<usize>,
    /// Most requests that wait.
    pub max_waiting: usize,
    /// Whether computed prefixes are kept for later requests.
    pub prefix_caching: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_seqs: 32,
            pool_blocks: None,
            block_size: 16,
            chunk_size: 512,
            max_prefill: 4,
            max_decode: 32,
            max_model_len: None,
            max_waiting: 256,
            prefix_caching: true,
        }
    }
}

impl EngineOptions {
    /// Makes the limits that the scheduler keeps for this model.
    ///
    /// # Errors
    /// [`Error::Setting`] for a context that is longer than the model's.
    pub(super) fn scheduler(&self, backend: &dyn Backend) -> Result<SchedulerConfig, Error> {
        let trained = backend.config().max_position_embeddings;
        let max_model_len = self.max_model_len.unwrap_or(trained);
        if max_model_len > trained {
            return Err(Error::Setting {
                setting: "max-model-len",
                value: max_model_len.to_string(),
                reason: format!("the model's context is {trained} tokens"),
            });
        }
        let block_size = self.block_size.max(1);
        let num_blocks = self.pool_blocks.unwrap_or_else(|| {
            let block_bytes = block_size
                .saturating_mul(backend.kv_bytes_per_token())
                .max(1);
            let needed = max_model_len
                .div_ceil(block_size)
                .saturating_mul(self.max_seqs);
            (DEFAULT_KV_BYTES / block_bytes).clamp(1, needed.max(1))
        });
        Ok(SchedulerConfig {
            block_size: self.block_size,
            num_blocks,
            max_model_len,
            max_num_batched_tokens: self.chunk_size.saturating_add(self.max_decode),
            max_seqs: self.max_seqs,
            chunk_size: self.chunk_size,
            max_prefill_seqs: self.max_prefill,
            max_prefill: self.chunk_size,
            // A step with a quarter of a chunk beside its decodes: what a running stream waits longer.
            max_prefill_while_decoding: (self.chunk_size / 4).max(1),
            max_decode: self.max_decode,
            max_waiting: self.max_waiting,
            aging: Duration::from_secs(10),
            prefix_caching: self.prefix_caching,
            ..SchedulerConfig::default()
        })
    }
}
