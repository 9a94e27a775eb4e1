//! Figures of the scheduler, for metrics and status pages.

/// Figures at one moment; what says "ever" only grows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SchedulerStats {
    /// Sequences that wait for their first step.
    pub num_waiting: usize,
    /// Sequences that hold blocks, paused ones included.
    pub num_running: usize,
    /// Sequences that lost their blocks and wait to begin again.
    pub num_preempted: usize,
    /// Blocks in the pool.
    pub num_blocks: usize,
    /// Blocks that hold nothing worth keeping.
    pub num_free_blocks: usize,
    /// Blocks that only the prefix cache holds.
    pub num_cached_blocks: usize,
    /// Tokens in a block.
    pub block_size: usize,
    /// Prompt tokens that were looked up in the prefix cache, ever; once for each sequence.
    pub prefix_queries: u64,
    /// Of these, those that were there.
    pub prefix_hits: u64,
    /// Sequences that lost their blocks and began again, ever.
    pub num_preemptions: u64,
    /// Prompt tokens computed or found, ever; once for each sequence, at the end of its prompt.
    pub prompt_tokens: u64,
    /// Tokens chosen, ever.
    pub generation_tokens: u64,
    /// Steps that computed something, ever.
    pub num_steps: u64,
}
