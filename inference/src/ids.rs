//! Numbers that must not be mistaken for one another.

/// Number of a token in the vocabulary.
pub type TokenId = u32;

/// Number of a block in the pool that keys and values live in.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BlockId(pub u32);

/// Number of a sequence, unique as long as the engine lives.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SequenceId(pub u64);
