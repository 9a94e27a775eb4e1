//! What a step computes: the plan that goes out, and the tokens that come back.

use crate::ids::{BlockId, SequenceId, TokenId};

/// Plan of one step. Tokens and block tables stay with the scheduler, unchanged
/// until the next call of `update`: ask it by id.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ScheduledBatch {
    /// Sequences of this step, each once: decodes first, then prefill.
    pub entries: Vec<ScheduledSequence>,
    /// Copies to carry out in this order before the rows run.
    pub copies: Vec<BlockCopy>,
    /// Sum of `num_tokens` of the entries.
    pub num_tokens: usize,
}

impl ScheduledBatch {
    /// Returns whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Rows of one sequence in a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ScheduledSequence {
    /// The sequence.
    pub id: SequenceId,
    /// Position of the first row: tokens `start..start + num_tokens` are computed.
    pub start: usize,
    /// Number of rows, at least one.
    pub num_tokens: usize,
    /// Whether the last row is the last known token, so that its logits choose the next.
    pub samples: bool,
}

/// A shared block that is copied because its sequence writes to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlockCopy {
    /// The sequence that writes.
    pub owner: SequenceId,
    /// Block to read.
    pub from: BlockId,
    /// Block to write, whole.
    pub to: BlockId,
}

/// Answer to an entry that samples.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SampledToken {
    /// Sequence of the entry.
    pub id: SequenceId,
    /// Token that was chosen.
    pub token: TokenId,
    /// Whether the sequence ends with it.
    pub finished: bool,
}
