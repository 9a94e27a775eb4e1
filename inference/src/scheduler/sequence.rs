//! One text under way: what is known of it, and what of that is computed.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{BlockId, SequenceId, TokenId};
use crate::prefix_cache::{NodeId, Salt};

/// What the scheduler is told of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SequenceRequest {
    /// Tokens to continue; at least one.
    pub prompt: Vec<TokenId>,
    /// Most tokens of the answer; at least one.
    pub max_tokens: usize,
    /// Lower comes first.
    pub priority: i32,
    /// Whose it is: tenants share the engine evenly.
    pub tenant: Option<Arc<str>>,
    /// Only sequences of the same salt share cached prefixes; an adapter's name belongs into it.
    pub cache_salt: Option<Arc<str>>,
    /// Whether each prompt token is computed, found or not: its logits are asked for.
    pub bypass_prefix_cache: bool,
}

/// Where a sequence stands; see the diagram in the scheduler's header.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SequenceState {
    /// Not begun.
    Waiting,
    /// Holds blocks and is computed, unless paused.
    Running,
    /// Lost its blocks, keeps its tokens, begins again.
    Preempted,
    /// At its end, aborted, or never known: the scheduler holds nothing of it.
    Finished,
}

/// Order of those that hold blocks: class, then arrival. The first is never preempted for another.
pub(super) type Rank = (i64, SequenceId);

#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) id: SequenceId,
    /// Prompt and answer.
    pub(super) tokens: Vec<TokenId>,
    pub(super) num_prompt_tokens: usize,
    pub(super) max_tokens: usize,
    pub(super) priority: i32,
    /// Slot of its tenant.
    pub(super) tenant: usize,
    pub(super) salt: Salt,
    pub(super) bypass_prefix_cache: bool,
    pub(super) arrival: Duration,
    pub(super) state: SequenceState,
    /// Class that it started in: fixed, so that the order of preemption is total and stable.
    pub(super) class: i64,
    /// Younger ones that started before.
    pub(super) num_overtaken: u32,
    pub(super) paused: bool,
    pub(super) num_paused_steps: u32,
    /// Tokens whose keys and values are in `block_table`.
    pub(super) num_computed: usize,
    /// Full blocks at the front that the prefix cache holds as well.
    pub(super) num_committed_blocks: usize,
    /// End of the path of committed blocks, while it runs.
    pub(super) node: Option<NodeId>,
    pub(super) block_table: Vec<BlockId>,
    /// Known once it started.
    pub(super) num_cached_tokens: Option<usize>,
    /// Whether its prompt is in the figures.
    pub(super) is_prompt_counted: bool,
    /// Step that it last took part in.
    pub(super) last_step: u64,
}

impl Sequence {
    pub(super) fn rank(&self) -> Rank {
        (self.class, self.id)
    }

    /// Tokens that are known and not computed; at least one between steps.
    pub(super) fn num_remaining(&self) -> usize {
        self.tokens.len() - self.num_computed
    }

    pub(super) fn num_generated(&self) -> usize {
        self.tokens.len() - self.num_prompt_tokens
    }

    /// Class at this moment: the priority, bettered by each `aging` that it waited.
    pub(super) fn class_at(&self, now: Duration, aging: Duration) -> i64 {
        let waited = now.saturating_sub(self.arrival).as_nanos();
        let steps = waited.checked_div(aging.as_nanos()).unwrap_or(0);
        i64::from(self.priority) - i64::try_from(steps).unwrap_or(i64::MAX / 2)
    }
}
