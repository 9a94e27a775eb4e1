//! The fixed set of blocks that keys and values live in, counted by reference.
//!
//! Guarantee: a block is either free or held; it is free exactly when its count
//! is zero. Holders are block tables and nodes of the prefix cache.

use std::collections::VecDeque;

use crate::ids::BlockId;
use crate::prefix_cache::PrefixCache;

/// No block is free, and the prefix cache has none to give: wait or preempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct OutOfBlocks;

/// Reference counts of all blocks, and the free ones.
#[derive(Debug)]
pub(crate) struct BlockPool {
    /// (`num_blocks`)
    ref_counts: Vec<u32>,
    /// Least recently freed first.
    free: VecDeque<BlockId>,
}

impl BlockPool {
    /// Makes a pool in which all blocks are free.
    pub(crate) fn new(num_blocks: usize) -> Self {
        Self {
            ref_counts: vec![0; num_blocks],
            free: (0..num_blocks as u32).map(BlockId).collect(),
        }
    }

    /// Takes a block, evicting the least recently used one of the cache if none is free.
    /// Its count is one.
    ///
    /// # Errors
    /// [`OutOfBlocks`] if all blocks are held by tables.
    pub(crate) fn allocate(&mut self, cache: &mut PrefixCache) -> Result<BlockId, OutOfBlocks> {
        if self.free.is_empty() {
            let evicted = cache.evict().ok_or(OutOfBlocks)?;
            self.release(evicted);
        }
        let block = self.free.pop_front().ok_or(OutOfBlocks)?;
        self.ref_counts[block.0 as usize] = 1;
        Ok(block)
    }

    /// Adds a holder to a held block.
    pub(crate) fn retain(&mut self, block: BlockId) {
        let count = &mut self.ref_counts[block.0 as usize];
        assert!(*count > 0, "a free block has no content to share");
        *count += 1;
    }

    /// Takes a holder from a block, which is free behind the last.
    pub(crate) fn release(&mut self, block: BlockId) {
        let count = &mut self.ref_counts[block.0 as usize];
        assert!(*count > 0, "a free block has no holder");
        *count -= 1;
        if *count == 0 {
            self.free.push_back(block);
        }
    }

    /// Returns the number of holders of a block.
    pub(crate) fn ref_count(&self, block: BlockId) -> u32 {
        self.ref_counts[block.0 as usize]
    }

    /// Returns the number of free blocks.
    pub(crate) fn num_free(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of blocks.
    pub(crate) fn num_blocks(&self) -> usize {
        self.ref_counts.len()
    }

    /// Returns the free blocks, least recently freed first.
    #[cfg(test)]
    pub(crate) fn free_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.free.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_least_recently_freed_first() {
        let mut cache = PrefixCache::new(4);
        let mut pool = BlockPool::new(3);
        let blocks: Vec<_> = (0..3).map(|_| pool.allocate(&mut cache)).collect();
        assert_eq!(
            blocks,
            [Ok(BlockId(0)), Ok(BlockId(1)), Ok(BlockId(2))],
            "each block is given once"
        );
        assert_eq!(pool.allocate(&mut cache), Err(OutOfBlocks));
        pool.release(BlockId(2));
        pool.release(BlockId(0));
        assert_eq!(pool.allocate(&mut cache), Ok(BlockId(2)));
        assert_eq!(pool.allocate(&mut cache), Ok(BlockId(0)));
    }

    #[test]
    fn a_shared_block_is_free_behind_its_last_holder() {
        let mut cache = PrefixCache::new(4);
        let mut pool = BlockPool::new(1);
        let block = pool.allocate(&mut cache).expect("one is free");
        pool.retain(block);
        pool.release(block);
        assert_eq!((pool.num_free(), pool.ref_count(block)), (0, 1));
        pool.release(block);
        assert_eq!((pool.num_free(), pool.ref_count(block)), (1, 0));
    }

    #[test]
    #[should_panic(expected = "a free block has no holder")]
    fn a_double_free_is_a_bug() {
        let mut cache = PrefixCache::new(4);
        let mut pool = BlockPool::new(1);
        let block = pool.allocate(&mut cache).expect("one is free");
        pool.release(block);
        pool.release(block);
    }
}
