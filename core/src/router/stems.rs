//! A short cut into the trie: the first few segments of a path at once.
//!
//! Guarantee: a lookup that begins at a stem's node is as if it had taken the
//! stem's literals one by one, which is what it tries first anyway.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::router::path::{Key, Path};

/// The literals that routes have before their first parameter.
#[derive(Debug, Default)]
pub(super) struct Stems {
    /// Of stems with the same key only the first: the others are walked to.
    by_key: HashMap<Key, Stem, BuildHasherDefault<KeyHasher>>,
    /// How many routes begin with one literal, with two, and so on.
    num_routes: [usize; MAX_SEGMENTS],
    /// The length of stem that saves most steps; one segment saves none.
    num_segments: usize,
}

/// Of a stem; APIs seldom have more in common.
const MAX_SEGMENTS: usize = 6;

impl Stems {
    /// Adds `node`, below `num_segments` literals that read `text`, for one
    /// more route.
    pub(super) fn insert(&mut self, text: &str, num_segments: usize, node: u32) {
        if num_segments > MAX_SEGMENTS {
            return;
        }
        let key = Key::new(text.as_bytes(), 0, text.len());
        self.by_key.entry(key).or_insert_with(|| Stem {
            text: text.as_bytes().into(),
            node,
        });
        self.num_routes[num_segments - 1] += 1;
        let saved = |num_segments: &usize| (num_segments - 1) * self.num_routes[num_segments - 1];
        self.num_segments = (1..=MAX_SEGMENTS).max_by_key(saved).unwrap_or(0);
    }

    /// The node to begin at, and where its stem ends.
    #[inline]
    pub(super) fn find(&self, path: Path<'_>) -> Option<(u32, usize)> {
        if self.num_segments < 2 {
            return None;
        }
        let end = path.segments_end(self.num_segments)?;
        let stem = self.by_key.get(&Key::new(path.text, 0, end))?;
        if end > Key::MAX_EXACT_LEN && *stem.text != path.text[..end] {
            return None;
        }
        Some((stem.node, end))
    }
}

#[derive(Debug)]
struct Stem {
    text: Box<[u8]>,
    node: u32,
}

/// Takes the hash that a [`Key`] has computed itself.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("a key writes one word");
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
