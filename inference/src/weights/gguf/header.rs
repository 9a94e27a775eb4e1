//! Walks over the beginning of a GGUF, which is read as far as it is needed.
//!
//! Guarantee: a length is compared with what is left of the file before a byte
//! is allocated for it.

use std::fmt::Display;
use std::ops::Range;

use crate::error::Error;
use crate::weights::file::ModelFile;

/// Most bytes of metadata and tensor table; those of large vocabularies have some 40 MiB.
const MAX_HEADER_BYTES: u64 = 1 << 30;

/// Read at once, at least: the headers of small vocabularies whole.
const MIN_READ_BYTES: usize = 256 * 1024;

/// A position in a file, and everything before it.
pub(super) struct HeaderReader<'file> {
    file: &'file ModelFile,
    bytes: Vec<u8>,
    position: usize,
}

impl<'file> HeaderReader<'file> {
    pub(super) const fn new(file: &'file ModelFile) -> Self {
        Self {
            file,
            bytes: Vec::new(),
            position: 0,
        }
    }

    /// Returns everything up to the position, and the position.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.truncate(self.position);
        self.bytes.shrink_to_fit();
        self.bytes
    }

    pub(super) const fn position(&self) -> usize {
        self.position
    }

    pub(super) const fn num_bytes_left(&self) -> u64 {
        self.file.num_bytes() - self.position as u64
    }

    pub(super) fn malformed(&self, what: impl Into<String>) -> Error {
        self.file.malformed(what)
    }

    /// Passes over bytes, and returns where they are; `place` and `what` name them in an error.
    pub(super) fn skip(
        &mut self,
        num_bytes: u64,
        place: &dyn Display,
        what: &str,
    ) -> Result<Range<usize>, Error> {
        if num_bytes > self.num_bytes_left() {
            return Err(self.file.malformed(format!(
                "{place}: {what} of {num_bytes} bytes at byte {}, where {} bytes are left",
                self.position,
                self.num_bytes_left()
            )));
        }
        let start = self.position;
        let end = start + num_bytes as usize;
        if end > self.bytes.len() {
            self.fill(end)?;
        }
        self.position = end;
        Ok(start..end)
    }

    pub(super) fn u32(&mut self, place: &dyn Display, what: &str) -> Result<u32, Error> {
        let range = self.skip(4, place, what)?;
        let bytes = self.bytes[range].try_into().expect("4 bytes");
        Ok(u32::from_le_bytes(bytes))
    }

    pub(super) fn u64(&mut self, place: &dyn Display, what: &str) -> Result<u64, Error> {
        let range = self.skip(8, place, what)?;
        let bytes = self.bytes[range].try_into().expect("8 bytes");
        Ok(u64::from_le_bytes(bytes))
    }

    /// Passes over a string: its length and its text, which is checked to be UTF-8.
    pub(super) fn string(
        &mut self,
        place: &dyn Display,
        what: &str,
    ) -> Result<Range<usize>, Error> {
        let num_bytes = self.u64(place, what)?;
        let range = self.skip(num_bytes, place, what)?;
        match std::str::from_utf8(&self.bytes[range.clone()]) {
            Ok(_) => Ok(range),
            Err(error) => Err(self.file.malformed(format!(
                "{place}: {what} of {num_bytes} bytes at byte {} is not UTF-8 at its byte {}",
                range.start,
                error.valid_up_to()
            ))),
        }
    }

    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Returns a text that `string` has passed over.
    pub(super) fn text(&self, range: Range<usize>) -> &str {
        std::str::from_utf8(&self.bytes[range]).expect("checked when it was passed over")
    }

    /// Reads on, to `end` at least and to the end of the file at most.
    fn fill(&mut self, end: usize) -> Result<(), Error> {
        let old = self.bytes.len();
        let some_more = old + MIN_READ_BYTES.max(old / 2);
        let most = usize::try_from(self.file.num_bytes()).unwrap_or(usize::MAX);
        let new = some_more.max(end).min(most);
        if end as u64 > MAX_HEADER_BYTES {
            return Err(self.file.malformed(format!(
                "metadata and tensor table reach beyond byte {MAX_HEADER_BYTES}"
            )));
        }
        self.bytes.reserve_exact(new - old);
        self.bytes.resize(new, 0);
        self.file.read_at(&mut self.bytes[old..], old as u64)
    }
}
