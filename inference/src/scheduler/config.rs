//! Limits of the scheduler, each with its unit, checked once at the start.

use std::time::Duration;

use crate::error::Error;

/// Limits that the scheduler keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// Tokens in a block.
    pub block_size: usize,
    /// Blocks in the pool.
    pub num_blocks: usize,
    /// Most tokens of a sequence, prompt and answer.
    pub max_model_len: usize,
    /// Most tokens of a step, decodes and prefill together.
    pub max_num_batched_tokens: usize,
    /// Most sequences that hold blocks.
    pub max_seqs: usize,
    /// Most prefill tokens of one sequence in a step.
    pub chunk_size: usize,
    /// Most sequences with prefill tokens in a step.
    pub max_prefill_seqs: usize,
    /// Most prefill tokens of a step in which nothing decodes.
    pub max_prefill: usize,
    /// Most prefill tokens of a step in which something decodes: bounds the inter-token latency.
    pub max_prefill_while_decoding: usize,
    /// Most sequences that decode in a step; more take turns.
    pub max_decode: usize,
    /// Most sequences that wait for their first step.
    pub max_waiting: usize,
    /// Most prompt tokens that wait for their first step; a lone request may have more.
    pub max_waiting_tokens: usize,
    /// Waiting time after which a sequence counts as one class better, again and again.
    pub aging: Duration,
    /// Tokens that each tenant may have computed before the turn is another's.
    pub tenant_quantum_tokens: usize,
    /// Most times that younger sequences of its class and tenant start before one.
    pub max_overtakes: u32,
    /// Steps that a paused sequence keeps its blocks for.
    pub max_paused_steps: u32,
    /// Whether computed blocks are kept and found again.
    pub prefix_caching: bool,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            block_size: 16,
            num_blocks: 1024,
            max_model_len: 8192,
            max_num_batched_tokens: 512,
            max_seqs: 32,
            chunk_size: 256,
            max_prefill_seqs: 4,
            max_prefill: 512,
            max_prefill_while_decoding: 64,
            max_decode: 32,
            max_waiting: 256,
            max_waiting_tokens: 1 << 20,
            aging: Duration::from_secs(10),
            tenant_quantum_tokens: 512,
            max_overtakes: 8,
            max_paused_steps: 64,
            prefix_caching: true,
        }
    }
}

impl SchedulerConfig {
    /// Checks that each step can make progress.
    ///
    /// # Errors
    /// [`Error::Setting`] for the first limit that is zero.
    pub fn validate(&self) -> Result<(), Error> {
        let limits = [
            ("block-size", self.block_size),
            ("num-blocks", self.num_blocks),
            ("max-model-len", self.max_model_len),
            ("max-num-batched-tokens", self.max_num_batched_tokens),
            ("max-seqs", self.max_seqs),
            ("chunk-size", self.chunk_size),
            ("max-prefill", self.max_prefill_seqs),
            ("max-prefill-tokens", self.max_prefill),
            (
                "max-prefill-while-decoding",
                self.max_prefill_while_decoding,
            ),
            ("max-decode", self.max_decode),
            ("max-waiting", self.max_waiting),
            ("tenant-quantum-tokens", self.tenant_quantum_tokens),
        ];
        for (setting, value) in limits {
            if value == 0 {
                return Err(Error::Setting {
                    setting,
                    value: value.to_string(),
                    reason: "must be at least 1".to_owned(),
                });
            }
        }
        Ok(())
    }
}
