//! Blocks that are kept because their tokens may come again: a radix tree
//! whose edges are whole blocks and whose keys are the tokens themselves.
//!
//! Guarantees: a match is a prefix of what was asked for and ends with a block;
//! a node is evicted only when nobody holds it and nothing hangs on it; trees
//! of different salts share nothing. After SGLang's `radix_cache.py`, one block
//! an edge, so that no edge is ever split.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::block_pool::BlockPool;
use crate::ids::{BlockId, TokenId};

/// Keeps sequences of different owners, or of different adapters, apart.
pub(crate) type Salt = Option<Arc<str>>;

/// Number of a node; used again after eviction.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct NodeId(u32);

/// The longest prefix that is cached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PrefixMatch {
    /// Last node of the path; none if the salt is unknown.
    node: Option<NodeId>,
    /// Blocks of the path.
    pub(crate) num_blocks: usize,
    /// Of these, those that nobody holds: they cannot be evicted any more once acquired.
    pub(crate) num_unlocked_blocks: usize,
}

/// The tree, and which of its leaves were used least recently.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    block_size: usize,
    nodes: Vec<Node>,
    unused: Vec<NodeId>,
    roots: HashMap<Salt, NodeId>,
    /// Leaves that nobody holds, by time of last use.
    evictable_leaves: BTreeSet<(u64, NodeId)>,
    num_blocks: usize,
    num_unlocked: usize,
    clock: u64,
}

#[derive(Debug)]
struct Node {
    /// None in a root.
    parent: Option<NodeId>,
    children: HashMap<Arc<[TokenId]>, NodeId>,
    content: Content,
    /// Sequences whose table holds this node's block; in a root, all of its tree.
    lock_count: u32,
    last_used: u64,
}

#[derive(Debug)]
enum Content {
    Root(Salt),
    Block(Arc<[TokenId]>, BlockId),
}

impl PrefixCache {
    /// Makes an empty cache of blocks of this many tokens.
    pub(crate) fn new(block_size: usize) -> Self {
        Self {
            block_size,
            nodes: Vec::new(),
            unused: Vec::new(),
            roots: HashMap::new(),
            evictable_leaves: BTreeSet::new(),
            num_blocks: 0,
            num_unlocked: 0,
            clock: 0,
        }
    }

    /// Finds the longest cached prefix of at most `max_tokens` tokens.
    pub(crate) fn find(&self, salt: &Salt, tokens: &[TokenId], max_tokens: usize) -> PrefixMatch {
        let mut found = PrefixMatch {
            node: self.roots.get(salt).copied(),
            num_blocks: 0,
            num_unlocked_blocks: 0,
        };
        let Some(mut node) = found.node else {
            return found;
        };
        let max_tokens = max_tokens.min(tokens.len());
        for block in tokens[..max_tokens].chunks_exact(self.block_size) {
            let Some(&child) = self.node(node).children.get(block) else {
                break;
            };
            node = child;
            found.num_blocks += 1;
            found.num_unlocked_blocks += usize::from(self.node(child).lock_count == 0);
        }
        found.node = Some(node);
        found
    }

    /// Finds nothing.
    pub(crate) fn find_nothing(&self, salt: &Salt) -> PrefixMatch {
        self.find(salt, &[], 0)
    }

    /// Locks a path that was just found, and appends its blocks to a table.
    /// Returns the node to insert below and to release.
    pub(crate) fn acquire(
        &mut self,
        salt: &Salt,
        found: PrefixMatch,
        pool: &mut BlockPool,
        block_table: &mut Vec<BlockId>,
    ) -> NodeId {
        let node = match found.node {
            Some(node) => node,
            None => self.insert_root(salt),
        };
        let start = block_table.len();
        let mut next = Some(node);
        while let Some(id) = next {
            self.lock(id);
            let node = self.node(id);
            if let Content::Block(_, block) = node.content {
                pool.retain(block);
                block_table.push(block);
            }
            next = node.parent;
        }
        block_table[start..].reverse();
        node
    }

    /// Locks a path once more, for a table that is a copy of its holder's.
    pub(crate) fn lock_path(&mut self, node: NodeId) {
        let mut next = Some(node);
        while let Some(id) = next {
            self.lock(id);
            next = self.node(id).parent;
        }
    }

    /// Gives up a path; blocks of the table are released by its owner.
    pub(crate) fn unlock_path(&mut self, node: NodeId) {
        self.clock += 1;
        let mut next = Some(node);
        while let Some(id) = next {
            let last_used = self.clock;
            let node = self.node_mut(id);
            next = node.parent;
            node.last_used = last_used;
            assert!(node.lock_count > 0, "each lock is given up once");
            node.lock_count -= 1;
            if node.lock_count == 0 {
                if matches!(node.content, Content::Block(..)) {
                    self.num_unlocked += 1;
                }
                self.settle(id);
            }
        }
    }

    /// Keeps a full block below a locked node and locks it. If its tokens are
    /// there already the table takes that block, and the duplicate is released.
    pub(crate) fn insert(
        &mut self,
        parent: NodeId,
        tokens: &[TokenId],
        block: BlockId,
        pool: &mut BlockPool,
    ) -> (NodeId, BlockId) {
        debug_assert_eq!(tokens.len(), self.block_size, "only full blocks are kept");
        debug_assert!(
            self.node(parent).lock_count > 0,
            "a path grows at its holder's end"
        );
        if let Some(&child) = self.node(parent).children.get(tokens) {
            self.lock(child);
            let Content::Block(_, kept) = self.node(child).content else {
                unreachable!("a child has a block");
            };
            pool.retain(kept);
            pool.release(block);
            return (child, kept);
        }
        pool.retain(block);
        let tokens: Arc<[TokenId]> = tokens.into();
        let child = self.push(Node {
            parent: Some(parent),
            children: HashMap::new(),
            content: Content::Block(Arc::clone(&tokens), block),
            lock_count: 1,
            last_used: self.clock,
        });
        self.node_mut(parent).children.insert(tokens, child);
        self.num_blocks += 1;
        (child, block)
    }

    /// Removes the least recently used leaf that nobody holds. Its block, which
    /// the cache still counts for, is released by the caller.
    pub(crate) fn evict(&mut self) -> Option<BlockId> {
        let (_, id) = self.evictable_leaves.pop_first()?;
        let Content::Block(tokens, block) =
            std::mem::replace(&mut self.node_mut(id).content, Content::Root(None))
        else {
            unreachable!("a root is never evictable");
        };
        let parent = self.node(id).parent.expect("a block hangs on a parent");
        self.node_mut(parent).children.remove(&tokens);
        self.unused.push(id);
        self.num_blocks -= 1;
        self.num_unlocked -= 1;
        self.settle(parent);
        Some(block)
    }

    /// Forgets all blocks that nobody holds.
    pub(crate) fn clear(&mut self, pool: &mut BlockPool) {
        while let Some(block) = self.evict() {
            pool.release(block);
        }
    }

    /// Returns the number of blocks that nobody else holds: all of them can be evicted.
    pub(crate) fn num_evictable(&self) -> usize {
        self.num_unlocked
    }

    /// Takes note of what became of a node that lost a lock or a child.
    fn settle(&mut self, id: NodeId) {
        let node = self.node(id);
        if node.lock_count > 0 || !node.children.is_empty() {
            return;
        }
        match &node.content {
            Content::Block(..) => {
                self.evictable_leaves.insert((node.last_used, id));
            }
            Content::Root(salt) => {
                let salt = salt.clone();
                self.roots.remove(&salt);
                self.unused.push(id);
            }
        }
    }

    fn lock(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        node.lock_count += 1;
        if node.lock_count == 1 && matches!(node.content, Content::Block(..)) {
            let key = (node.last_used, id);
            self.num_unlocked -= 1;
            self.evictable_leaves.remove(&key);
        }
    }

    fn insert_root(&mut self, salt: &Salt) -> NodeId {
        let root = self.push(Node {
            parent: None,
            children: HashMap::new(),
            content: Content::Root(salt.clone()),
            lock_count: 0,
            last_used: self.clock,
        });
        self.roots.insert(salt.clone(), root);
        root
    }

    fn push(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.unused.pop() {
            *self.node_mut(id) = node;
            return id;
        }
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }
}

#[cfg(test)]
mod tests;
