//! What tells two states of a file apart: cheaply by its inode, surely by its
//! content.

use std::hash::{BuildHasher as _, RandomState};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::LazyLock;
use std::{fs, io};

/// Files above this are told apart by their stamps alone.
const MAX_HASHED_BYTES: u64 = 4 * 1024 * 1024;

static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// What the inode says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Also moved by what sets the other time back.
    changed: (i64, i64),
}

impl Stamp {
    /// That of a file which is not there.
    pub(crate) const MISSING: Self = Self {
        device: 0,
        inode: 0,
        size: 0,
        modified: (0, 0),
        changed: (0, 0),
    };

    /// That of the file that `path` leads to.
    pub(crate) fn of(path: &Path) -> Self {
        let metadata = fs::metadata(path);
        metadata.map_or(Self::MISSING, |metadata| Self::from(&metadata))
    }

    /// Nanoseconds since the epoch at which the content was last written.
    pub(crate) fn modified_ns(&self) -> i128 {
        i128::from(self.modified.0) * 1_000_000_000 + i128::from(self.modified.1)
    }

    /// Hash of the content; `None` for what is too large or cannot be read.
    pub(crate) fn hash(&self, path: &Path) -> Option<u64> {
        if *self == Self::MISSING || self.size > MAX_HASHED_BYTES {
            return None;
        }
        read(path).ok().map(|content| KEYS.hash_one(&content))
    }
}

impl From<&fs::Metadata> for Stamp {
    fn from(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    // It may grow while it is read.
    let file = fs::File::open(path)?;
    file.take(MAX_HASHED_BYTES).read_to_end(&mut content)?;
    Ok(content)
}
