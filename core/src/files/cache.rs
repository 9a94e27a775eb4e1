//! What one lane remembers of the files of one mount.
//!
//! Guarantee: an entry is used without asking the file system for at most the
//! mount's `revalidate`, and what it says of an open file is true at each use.
//! Bounded in bytes, entries and descriptors; the least recently used goes
//! first. Nothing that is missing is remembered.

use std::time::{Duration, Instant};

use ahash::RandomState;
use lru::LruCache;
use rustix::io::Errno;

use super::encoding::Encoding;
use super::open::{Root, Stamp};
use super::representation::{Content, Resource};

/// Bytes that an entry takes besides bodies, heads and its path, rounded up.
const ENTRY_BYTES: usize = 1024;

/// Bounds of the cache that each lane has for a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileCache {
    /// Largest file that is read into memory, in bytes; a larger one is kept
    /// open and read while it is sent.
    pub max_file_bytes: u64,
    /// Memory for bodies, heads and paths, in bytes; 0 remembers nothing.
    pub max_bytes: usize,
    /// Paths that are remembered.
    pub max_entries: usize,
    /// Descriptors that are kept open.
    pub max_open_files: usize,
}

impl FileCache {
    /// 64 KiB a file, which one write takes; 32 MiB; 4096 paths; and 32
    /// descriptors, so that many lanes together leave most to connections.
    pub const DEFAULT: Self = Self {
        max_file_bytes: 64 * 1024,
        max_bytes: 32 * 1024 * 1024,
        max_entries: 4096,
        max_open_files: 32,
    };
}

impl Default for FileCache {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A path's resource, and when it was what the disk has.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) resource: Resource,
    /// Path of the file below the root.
    pub(super) path: Box<str>,
    /// When the root was opened in which it was last found: the root may have
    /// been replaced since, so no later moment is sure.
    pub(super) true_at: Instant,
}

/// Entries by the raw path of the request.
///
/// The hash is keyed at random, and only what is found is remembered.
#[derive(Debug)]
pub(super) struct LaneCache {
    entries: LruCache<Box<[u8]>, Entry, RandomState>,
    limits: FileCache,
    num_bytes: usize,
    num_open_files: usize,
    root: Option<(Root, Instant)>,
}

impl LaneCache {
    pub(super) fn new(limits: FileCache) -> Self {
        Self {
            entries: LruCache::unbounded_with_hasher(RandomState::new()),
            limits,
            num_bytes: 0,
            num_open_files: 0,
            root: None,
        }
    }

    /// The root and when it was opened: anew by `open` when it is older than
    /// `revalidate`.
    pub(super) fn root(
        &mut self,
        now: Instant,
        revalidate: Duration,
        open: impl FnOnce() -> Result<Root, Errno>,
    ) -> Result<&(Root, Instant), Errno> {
        young_root(&mut self.root, now, revalidate, open)
    }

    /// What `answer` makes of the entry of `key`, if there is one and it is
    /// still true.
    pub(super) fn hit<R>(
        &mut self,
        key: &[u8],
        now: Instant,
        revalidate: Duration,
        open: impl FnOnce() -> Result<Root, Errno>,
        answer: impl FnOnce(&Resource) -> R,
    ) -> Option<R> {
        let entry = self.entries.get_mut(key)?;
        let is_current = now.duration_since(entry.true_at) < revalidate
            || young_root(&mut self.root, now, revalidate, open).is_ok_and(|(root, opened_at)| {
                entry.true_at = *opened_at;
                is_unchanged(entry, root)
            });
        if is_current && has_true_sizes(&entry.resource) {
            return Some(answer(&entry.resource));
        }
        self.remove(key);
        None
    }

    /// Remembers an entry, forgetting others as the limits demand.
    pub(super) fn insert(&mut self, key: &[u8], entry: Entry) {
        self.remove(key);
        let (num_bytes, num_open_files) = cost(key, &entry);
        let limits = self.limits;
        if num_bytes > limits.max_bytes
            || num_open_files > limits.max_open_files
            || limits.max_entries == 0
        {
            return;
        }
        while self.num_bytes + num_bytes > limits.max_bytes
            || self.num_open_files + num_open_files > limits.max_open_files
            || self.entries.len() >= limits.max_entries
        {
            let Some((key, entry)) = self.entries.pop_lru() else {
                break;
            };
            self.discount(&key, &entry);
        }
        self.num_bytes += num_bytes;
        self.num_open_files += num_open_files;
        self.entries.put(key.into(), entry);
    }

    /// Forgets everything, so that its descriptors are free.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.limits);
    }

    #[cfg(test)]
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains(key.as_bytes())
    }

    /// Whether the sums are those of the entries, and none exceeds its limit.
    #[cfg(test)]
    pub(super) fn is_within_limits(&self) -> bool {
        let costs = self.entries.iter().map(|(key, entry)| cost(key, entry));
        let sums = costs.fold((0, 0), |sum, cost| (sum.0 + cost.0, sum.1 + cost.1));
        sums == (self.num_bytes, self.num_open_files)
            && sums.0 <= self.limits.max_bytes
            && sums.1 <= self.limits.max_open_files
            && self.entries.len() <= self.limits.max_entries
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some((key, entry)) = self.entries.pop_entry(key) {
            self.discount(&key, &entry);
        }
    }

    fn discount(&mut self, key: &[u8], entry: &Entry) {
        let (num_bytes, num_open_files) = cost(key, entry);
        self.num_bytes -= num_bytes;
        self.num_open_files -= num_open_files;
    }
}

/// Bytes and descriptors that an entry takes.
fn cost(key: &[u8], entry: &Entry) -> (usize, usize) {
    let num_bytes = ENTRY_BYTES + key.len() + entry.path.len() + entry.resource.num_bytes();
    (num_bytes, entry.resource.num_open_files())
}

fn young_root(
    kept: &mut Option<(Root, Instant)>,
    now: Instant,
    revalidate: Duration,
    open: impl FnOnce() -> Result<Root, Errno>,
) -> Result<&(Root, Instant), Errno> {
    let young = kept
        .take()
        .filter(|(_, opened_at)| now.duration_since(*opened_at) < revalidate);
    let root = match young {
        Some(root) => root,
        None => (open()?, now),
    };
    Ok(kept.insert(root))
}

/// Whether the disk still has what `entry` says, encoded forms included.
fn is_unchanged(entry: &Entry, root: &Root) -> bool {
    let resource = &entry.resource;
    let original = resource.representation(Encoding::Identity).stamp;
    let mut path = String::with_capacity(entry.path.len() + 4);
    let mut is_same = |encoding: Encoding| {
        path.clear();
        path.push_str(&entry.path);
        path.push_str(encoding.suffix());
        match (root.stamp(&path), &resource.stored[encoding as usize]) {
            (Ok(stamp), Some(stored)) => stamp == stored.stamp && !stored.has_matured(),
            (Ok(stamp), None) => !stamp.can_stand_for(original),
            (Err(_), stored) => stored.is_none(),
        }
    };
    is_same(Encoding::Identity)
        && (!resource.has_encoded_forms || Encoding::ENCODED.into_iter().all(is_same))
}

/// Whether each open file is as it was: one that is written to in place has
/// another size or time at once.
fn has_true_sizes(resource: &Resource) -> bool {
    let mut representations = resource.stored.iter().flatten();
    representations.all(|representation| match &representation.content {
        Content::Bytes(_) => true,
        Content::File(file) => Stamp::of_file(file) == Ok(representation.stamp),
    })
}
