//! Bytes of an open file as a body: what the codec sends without copying, and
//! what everybody else reads in pieces.
//!
//! Guarantee: it yields exactly the bytes it announced or fails, so a file
//! that shrinks while it is sent breaks the message off and never its framing.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use rustix::buffer::spare_capacity;

use crate::error::BodyError;

/// Largest piece that is read at once, and so held in memory for one body.
pub(crate) const MAX_READ_BYTES: usize = 64 * 1024;

/// A range of an open file that has not been sent yet.
#[derive(Debug, Clone)]
pub(crate) struct FileSpan {
    file: Arc<File>,
    range: Range<u64>,
}

impl FileSpan {
    /// A range that ends before it starts is empty.
    pub(crate) fn new(file: Arc<File>, range: Range<u64>) -> Self {
        let end = range.end.max(range.start);
        Self {
            file,
            range: range.start..end,
        }
    }

    /// Bytes that are left.
    pub(crate) const fn remaining(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The file, the offset of the next byte, and how many bytes are left.
    pub(crate) fn position(&self) -> (&Arc<File>, u64, u64) {
        (&self.file, self.range.start, self.remaining())
    }

    /// Notes that `length` bytes have been sent.
    pub(crate) fn advance(&mut self, length: u64) {
        self.range.start = self.range.end.min(self.range.start + length);
    }

    /// Reads the next piece at its position; `None` at the end.
    ///
    /// # Errors
    /// [`BodyError::File`] when the file ends early or cannot be read; nothing
    /// follows then.
    pub(crate) fn next_chunk(&mut self) -> Option<Result<Bytes, BodyError>> {
        if self.range.is_empty() {
            return None;
        }
        let length = self.remaining().min(MAX_READ_BYTES as u64) as usize;
        let chunk = read_exactly(&self.file, self.range.start, length);
        match chunk {
            Ok(bytes) => {
                self.range.start += bytes.len() as u64;
                Some(Ok(bytes))
            }
            Err(source) => {
                self.range.start = self.range.end;
                Some(Err(BodyError::File { source }))
            }
        }
    }
}

/// Reads `length` bytes at `offset`.
///
/// # Errors
/// `UnexpectedEof` when the file ends before.
pub(super) fn read_exactly(file: &File, offset: u64, length: usize) -> io::Result<Bytes> {
    let mut buffer = Vec::with_capacity(length);
    while buffer.len() < length {
        let position = offset + buffer.len() as u64;
        // The capacity may be more than was asked for, the file longer.
        match rustix::io::pread(file, spare_capacity(&mut buffer), position) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    buffer.truncate(length);
    Ok(buffer.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use http_body::Body as _;
    use proptest::prelude::*;

    use super::*;
    use crate::body::Body;

    fn file(content: &[u8]) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        Arc::new(file)
    }

    fn read(mut span: FileSpan) -> Result<Vec<u8>, BodyError> {
        let mut all = Vec::new();
        while let Some(chunk) = span.next_chunk() {
            let chunk = chunk?;
            assert!(!chunk.is_empty() && chunk.len() <= MAX_READ_BYTES);
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }

    proptest! {
        #[test]
        fn a_span_reads_as_the_slice(size in 0_usize..200_000, from in 0_usize..200_000, to in 0_usize..200_000) {
            let content: Vec<u8> = (0..size).map(|index| (index * 7 / 3) as u8).collect();
            let (from, to) = (from.min(size), to.min(size));
            let span = FileSpan::new(file(&content), from as u64..to as u64);
            let expected = content.get(from..to).unwrap_or_default();
            prop_assert_eq!(span.remaining(), expected.len() as u64);
            prop_assert_eq!(read(span).unwrap(), expected);
        }
    }

    #[test]
    fn a_file_that_shrank_is_an_error_and_then_the_end() {
        let file = file(&vec![1; 100_000]);
        let mut span = FileSpan::new(Arc::clone(&file), 0..100_000);
        assert_eq!(span.next_chunk().unwrap().unwrap().len(), MAX_READ_BYTES);
        file.set_len(90_000).unwrap();
        let error = span.next_chunk().unwrap().unwrap_err();
        assert!(
            matches!(&error, BodyError::File { source } if source.kind() == io::ErrorKind::UnexpectedEof)
        );
        assert!(span.next_chunk().is_none());
    }

    #[test]
    fn the_position_of_the_descriptor_does_not_matter() {
        let shared = file(b"0123456789");
        (&*shared).seek(io::SeekFrom::Start(7)).unwrap();
        let body = Body::file(Arc::clone(&shared), 2..6);
        assert_eq!(body.size_hint().exact(), Some(4));
        let mut span = body.into_file().unwrap();
        assert_eq!((span.position().1, span.remaining()), (2, 4));
        span.advance(3);
        assert_eq!((span.position().1, span.remaining()), (5, 1));
        span.advance(3);
        assert_eq!(span.remaining(), 0);
        assert_eq!(read(FileSpan::new(shared, 2..6)).unwrap(), b"2345");
    }
}
