//! The tree against a list of all that was ever inserted and not evicted.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const BLOCK_SIZE: usize = 2;
const NUM_BLOCKS: usize = 24;

impl PrefixCache {
    /// Panics unless locks, leaves and counts agree with the tree; returns its blocks
    /// and the locks of each.
    pub(crate) fn verify(&self) -> Vec<(BlockId, u32)> {
        let mut unused = vec![false; self.nodes.len()];
        for id in &self.unused {
            unused[id.0 as usize] = true;
        }
        let is_unused = |id: NodeId| unused[id.0 as usize];
        let mut blocks = Vec::new();
        let mut num_leaves = 0;
        let mut num_unlocked = 0;
        for (index, node) in self.nodes.iter().enumerate() {
            let id = NodeId(index as u32);
            if is_unused(id) {
                continue;
            }
            match &node.content {
                Content::Root(salt) => {
                    assert_eq!(self.roots.get(salt), Some(&id));
                    assert!(
                        node.lock_count > 0 || !node.children.is_empty(),
                        "an empty root is forgotten"
                    );
                }
                Content::Block(tokens, block) => {
                    let parent = node.parent.expect("a block hangs on a parent");
                    assert!(
                        !is_unused(parent),
                        "a parent is never evicted before its child"
                    );
                    assert_eq!(self.node(parent).children.get(tokens), Some(&id));
                    assert!(self.node(parent).lock_count >= node.lock_count);
                    blocks.push((*block, node.lock_count));
                    if node.lock_count == 0 {
                        num_unlocked += 1;
                        if node.children.is_empty() {
                            num_leaves += 1;
                            assert!(self.evictable_leaves.contains(&(node.last_used, id)));
                        }
                    }
                }
            }
        }
        assert_eq!(self.evictable_leaves.len(), num_leaves);
        assert_eq!(self.num_unlocked, num_unlocked);
        assert_eq!(self.num_blocks, blocks.len());
        blocks
    }
}

fn salt(name: &str) -> Salt {
    (!name.is_empty()).then(|| name.into())
}

/// A table and the path that it holds.
struct Holder {
    salt: Salt,
    tokens: Vec<TokenId>,
    node: NodeId,
    table: Vec<BlockId>,
}

struct Fixture {
    cache: PrefixCache,
    pool: BlockPool,
}

impl Fixture {
    fn new() -> Self {
        Self {
            cache: PrefixCache::new(BLOCK_SIZE),
            pool: BlockPool::new(NUM_BLOCKS),
        }
    }

    /// Holds a prefix and adds the rest of its full blocks; `None` if the pool is full.
    fn hold(&mut self, salt: &Salt, tokens: &[TokenId]) -> Option<Holder> {
        let found = self.cache.find(salt, tokens, tokens.len());
        let mut table = Vec::new();
        let mut node = self.cache.acquire(salt, found, &mut self.pool, &mut table);
        for chunk in tokens.chunks_exact(BLOCK_SIZE).skip(found.num_blocks) {
            let Ok(block) = self.pool.allocate(&mut self.cache) else {
                self.cache.unlock_path(node);
                table.drain(..).for_each(|block| self.pool.release(block));
                return None;
            };
            let (child, block) = self.cache.insert(node, chunk, block, &mut self.pool);
            node = child;
            table.push(block);
        }
        Some(Holder {
            salt: salt.clone(),
            tokens: tokens.to_vec(),
            node,
            table,
        })
    }

    fn release(&mut self, holder: Holder) {
        self.cache.unlock_path(holder.node);
        for block in holder.table {
            self.pool.release(block);
        }
    }

    fn num_found(&self, salt: &Salt, tokens: &[TokenId]) -> usize {
        self.cache.find(salt, tokens, tokens.len()).num_blocks
    }
}

#[test]
fn a_match_is_block_aligned_and_capped() {
    let mut fixture = Fixture::new();
    let tokens = [1, 2, 3, 4, 5, 6];
    let holder = fixture.hold(&None, &tokens).expect("there is room");
    for (max_tokens, expected) in [(0, 0), (1, 0), (2, 1), (3, 1), (5, 2), (6, 3), (9, 3)] {
        let found = fixture.cache.find(&None, &tokens, max_tokens);
        assert_eq!(found.num_blocks, expected, "of {max_tokens} tokens");
    }
    assert_eq!(fixture.num_found(&None, &[1, 2, 3, 9]), 1);
    assert_eq!(fixture.num_found(&None, &[9, 2, 3, 4]), 0);
    fixture.release(holder);
}

#[test]
fn salts_share_nothing() {
    let mut fixture = Fixture::new();
    let holder = fixture.hold(&salt("a"), &[1, 2]).expect("there is room");
    assert_eq!(fixture.num_found(&salt("a"), &[1, 2]), 1);
    assert_eq!(fixture.num_found(&salt("b"), &[1, 2]), 0);
    assert_eq!(fixture.num_found(&None, &[1, 2]), 0);
    fixture.release(holder);
}

#[test]
fn a_duplicate_is_freed_and_the_kept_block_taken() {
    let mut fixture = Fixture::new();
    let first = fixture.hold(&None, &[1, 2]).expect("there is room");
    let found = fixture.cache.find_nothing(&None);
    let mut table = Vec::new();
    let (cache, pool) = (&mut fixture.cache, &mut fixture.pool);
    let root = cache.acquire(&None, found, pool, &mut table);
    let own = pool.allocate(cache).expect("there is room");
    let (node, kept) = cache.insert(root, &[1, 2], own, pool);
    assert_eq!(kept, first.table[0]);
    assert_eq!(pool.ref_count(own), 0);
    assert_eq!(pool.ref_count(kept), 3, "two tables and a node");
    cache.unlock_path(node);
    pool.release(kept);
    fixture.release(first);
    assert_eq!(fixture.cache.num_evictable(), 1);
}

#[test]
fn the_least_recently_used_leaf_is_evicted_first() {
    let mut fixture = Fixture::new();
    for tokens in [[1, 1, 2, 2], [1, 1, 3, 3], [4, 4, 5, 5]] {
        let holder = fixture.hold(&None, &tokens).expect("there is room");
        fixture.release(holder);
    }
    let used_again = fixture.hold(&None, &[1, 1, 2, 2]).expect("it is there");
    fixture.release(used_again);
    let mut left = Vec::new();
    while let Some(block) = fixture.cache.evict() {
        fixture.pool.release(block);
        fixture.cache.verify();
        left.push([[1, 1, 2, 2], [1, 1, 3, 3], [4, 4, 5, 5]].map(|t| fixture.num_found(&None, &t)));
    }
    assert_eq!(
        left,
        [[2, 1, 2], [2, 1, 1], [2, 1, 0], [1, 1, 0], [0, 0, 0]]
    );
}

#[test]
fn what_is_held_is_not_evicted() {
    let mut fixture = Fixture::new();
    let holder = fixture.hold(&None, &[1, 1, 2, 2]).expect("there is room");
    let longer = fixture
        .hold(&None, &[1, 1, 2, 2, 3, 3])
        .expect("there is room");
    fixture.release(longer);
    fixture.cache.clear(&mut fixture.pool);
    assert_eq!(fixture.num_found(&None, &[1, 1, 2, 2, 3, 3]), 2);
    fixture.release(holder);
    fixture.cache.clear(&mut fixture.pool);
    assert_eq!(fixture.pool.num_free(), NUM_BLOCKS);
    assert!(
        fixture.cache.roots.is_empty(),
        "no salt is remembered for ever"
    );
}

#[derive(Clone, Debug)]
enum Operation {
    Hold(u8, Vec<TokenId>),
    Release(usize),
    Fork(usize),
    Evict,
    Find(u8, Vec<TokenId>),
}

fn operation() -> impl Strategy<Value = Operation> {
    let tokens = || prop::collection::vec(0..3_u32, 0..12);
    prop_oneof![
        4 => (0..3_u8, tokens()).prop_map(|(salt, tokens)| Operation::Hold(salt, tokens)),
        3 => any::<usize>().prop_map(Operation::Release),
        1 => any::<usize>().prop_map(Operation::Fork),
        1 => Just(Operation::Evict),
        2 => (0..3_u8, tokens()).prop_map(|(salt, tokens)| Operation::Find(salt, tokens)),
    ]
}

fn numbered_salt(number: u8) -> Salt {
    (number > 0).then(|| number.to_string().into())
}

/// Paths of whole blocks, by salt: what the tree should hold.
type Model = BTreeSet<(Salt, Vec<TokenId>)>;

fn longest_in_model(model: &Model, salt: &Salt, tokens: &[TokenId]) -> usize {
    let is_there = |num: &usize| model.contains(&(salt.clone(), tokens[..num * BLOCK_SIZE].into()));
    (1..=tokens.len() / BLOCK_SIZE).take_while(is_there).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_history_agrees_with_a_plain_list(
        operations in prop::collection::vec(operation(), 1..200),
    ) {
        let mut fixture = Fixture::new();
        let mut holders: Vec<Holder> = Vec::new();
        let mut model = Model::new();
        for operation in operations {
            match operation {
                Operation::Hold(number, tokens) => {
                    let salt = numbered_salt(number);
                    let num_blocks = tokens.len() / BLOCK_SIZE;
                    // Where the pool is full some were added before it was noticed.
                    for num in 1..=num_blocks {
                        model.insert((salt.clone(), tokens[..num * BLOCK_SIZE].into()));
                    }
                    if let Some(holder) = fixture.hold(&salt, &tokens) {
                        prop_assert_eq!(holder.table.len(), num_blocks);
                        holders.push(holder);
                    }
                }
                Operation::Release(index) if !holders.is_empty() => {
                    let holder = holders.swap_remove(index % holders.len());
                    fixture.release(holder);
                }
                Operation::Fork(index) if !holders.is_empty() => {
                    let parent = &holders[index % holders.len()];
                    fixture.cache.lock_path(parent.node);
                    parent.table.iter().for_each(|&block| fixture.pool.retain(block));
                    let (salt, tokens) = (parent.salt.clone(), parent.tokens.clone());
                    let (node, table) = (parent.node, parent.table.clone());
                    holders.push(Holder { salt, tokens, node, table });
                }
                Operation::Evict => {
                    if let Some(block) = fixture.cache.evict() {
                        fixture.pool.release(block);
                    }
                }
                Operation::Find(number, tokens) => {
                    let salt = numbered_salt(number);
                    prop_assert!(fixture.num_found(&salt, &tokens) <= longest_in_model(&model, &salt, &tokens));
                }
                Operation::Release(_) | Operation::Fork(_) => {}
            }
            let cached = fixture.cache.verify();
            // Evictions are found out by asking; a path whose beginning is gone must be gone as well.
            model.retain(|(salt, tokens)| fixture.num_found(salt, tokens) * BLOCK_SIZE == tokens.len());
            prop_assert_eq!(model.len(), cached.len());
            for holder in &holders {
                let found = fixture.num_found(&holder.salt, &holder.tokens);
                prop_assert_eq!(found, holder.table.len(), "what is held stays");
            }
            for block in (0..NUM_BLOCKS as u32).map(BlockId) {
                let num_tables = holders.iter().filter(|h| h.table.contains(&block)).count();
                let num_nodes = cached.iter().filter(|(b, _)| *b == block).count();
                prop_assert_eq!(fixture.pool.ref_count(block) as usize, num_tables + num_nodes);
            }
        }
        for holder in holders {
            fixture.release(holder);
        }
        fixture.cache.clear(&mut fixture.pool);
        prop_assert_eq!(fixture.pool.num_free(), NUM_BLOCKS);
    }
}
