//! Reading at positions, and what can be wrong with a file before it is known
//! which file it is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Bytes that can be read from any position.
pub(super) trait PositionedRead: Send {
    /// Fills `bytes` from `offset` on.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl PositionedRead for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }
}

#[cfg(any(test, fuzzing))]
impl PositionedRead for Vec<u8> {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.checked_add(bytes.len());
        let found = end.and_then(|end| self.get(start..end));
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A file of a model, its length as it was when it was opened.
pub(super) struct ModelFile {
    path: PathBuf,
    file: Box<dyn PositionedRead>,
    num_bytes: u64,
}

impl std::fmt::Debug for ModelFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ModelFile")
            .field("path", &self.path)
            .field("num_bytes", &self.num_bytes)
            .finish_non_exhaustive()
    }
}

impl ModelFile {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let open = || {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            // A folder opens, and says only at the first read what it is.
            if metadata.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok((file, metadata.len()))
        };
        let (file, num_bytes) = open().map_err(|source| read_error(path, source))?;
        Ok(Self {
            path: path.to_owned(),
            file: Box::new(file),
            num_bytes,
        })
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn of_bytes(path: &str, bytes: Vec<u8>) -> Self {
        Self {
            path: path.into(),
            num_bytes: bytes.len() as u64,
            file: Box::new(bytes),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn num_bytes(&self) -> u64 {
        self.num_bytes
    }

    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), Error> {
        let result = self.file.read_at(bytes, offset);
        result.map_err(|source| read_error(&self.path, source))
    }

    pub(super) fn malformed(&self, what: impl Into<String>) -> Error {
        malformed(&self.path, what)
    }

    pub(super) fn unsupported(&self, what: impl std::fmt::Display) -> Error {
        Error::Unsupported {
            what: format!("{}: {what}", self.path.display()),
        }
    }
}

pub(super) fn read_error(path: &Path, source: io::Error) -> Error {
    Error::Read {
        path: path.to_owned(),
        source,
    }
}

pub(super) fn malformed(path: &Path, what: impl Into<String>) -> Error {
    Error::Malformed {
        path: path.to_owned(),
        what: what.into(),
    }
}
