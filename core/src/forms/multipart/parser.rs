//! The framing of a multipart body, byte by byte (RFC 2046 §5.1.1).
//!
//! Guarantees: the steps do not depend on where the body was split; a
//! delimiter is found in linear time; what is kept between two chunks is less
//! than a delimiter, or the header lines of one part up to their limit.
//!
//! ```text
//! preamble ─▶ delimiter ─▶ header lines ─▶ data ─┐
//!                ▲  └────▶ epilogue               │
//!                └────────────────────────────────┘
//! ```

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memmem::Finder;

use super::head::PartHead;
use crate::error::FormError;
use crate::limits::Reject;

/// What the bytes so far say.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing more: give it another chunk, or the end.
    NeedMore,
    /// A part begins.
    Part(Box<PartHead>),
    /// Bytes of the part, never none.
    Data(Bytes),
    /// The part has ended.
    PartEnd,
    /// There are no more parts.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Preamble,
    /// Behind a delimiter: the line's end, or the two dashes of the last one.
    Delimiter,
    Head,
    /// Before the first byte of data: the empty line that ended the header
    /// lines may begin a delimiter.
    DataStart,
    Data,
    Epilogue,
    End,
}

/// Splits a body into its parts.
#[derive(Debug)]
pub(super) struct Parser {
    state: State,
    /// Finds CR LF, two dashes and the boundary.
    delimiter: Finder<'static>,
    max_header_bytes: usize,
    /// Bytes that have been skipped around the parts.
    num_skipped: usize,
    buffer: BytesMut,
    /// Bytes at the start of the buffer in which the end of the header lines
    /// has been looked for: each is looked at once, however slowly they come.
    num_searched: usize,
}

impl Parser {
    pub(super) fn new(boundary: &[u8], max_header_bytes: usize) -> Self {
        let delimiter = [b"\r\n--", boundary].concat();
        Self {
            state: State::Preamble,
            delimiter: Finder::new(&delimiter).into_owned(),
            max_header_bytes,
            num_skipped: 0,
            // The first delimiter may be the body's first line.
            buffer: BytesMut::from(&b"\r\n"[..]),
            num_searched: 0,
        }
    }

    pub(super) const fn set_max_header_bytes(&mut self, bytes: usize) {
        self.max_header_bytes = bytes;
    }

    /// Takes the next chunk of the body.
    pub(super) fn push(&mut self, chunk: Bytes) {
        if self.buffer.is_empty() {
            // Not copied where nobody else holds it.
            self.buffer = BytesMut::from(chunk);
        } else {
            self.buffer.extend_from_slice(&chunk);
        }
    }

    /// Takes the end of the body.
    pub(super) fn finish(&mut self) -> Result<(), FormError> {
        if self.state != State::Epilogue {
            return Err(malformed("the body ends before its last boundary"));
        }
        self.state = State::End;
        Ok(())
    }

    /// The next step; after an error there is none.
    pub(super) fn next(&mut self) -> Result<Step, FormError> {
        loop {
            match self.state {
                State::Preamble => match self.delimiter.find(&self.buffer) {
                    Some(start) => {
                        self.skip(start)?;
                        self.enter_delimiter();
                    }
                    None => {
                        let start = self.partial_delimiter();
                        self.skip(start)?;
                        return Ok(Step::NeedMore);
                    }
                },
                State::Delimiter => {
                    if !self.read_delimiter_line()? {
                        return Ok(Step::NeedMore);
                    }
                }
                State::Head => return self.read_head(),
                State::DataStart => {
                    let needle = self.delimiter.needle();
                    if needle.len() > self.buffer.len() && needle.starts_with(&self.buffer) {
                        return Ok(Step::NeedMore);
                    }
                    if !self.buffer.starts_with(needle) {
                        self.buffer.advance(2);
                    }
                    self.state = State::Data;
                }
                State::Data => return Ok(self.read_data()),
                State::Epilogue => {
                    self.skip(self.buffer.len())?;
                    return Ok(Step::NeedMore);
                }
                State::End => return Ok(Step::End),
            }
        }
    }

    /// Drops bytes that are no part of anything, up to their limit.
    fn skip(&mut self, num_bytes: usize) -> Result<(), FormError> {
        self.num_skipped = self.check_skipped(num_bytes)?;
        self.buffer.advance(num_bytes);
        Ok(())
    }

    /// How much has been skipped once so many bytes more are.
    fn check_skipped(&self, num_bytes: usize) -> Result<usize, FormError> {
        let num_skipped = self.num_skipped + num_bytes;
        if num_skipped > self.max_header_bytes {
            return Err(malformed("there is too much around the parts"));
        }
        Ok(num_skipped)
    }

    fn enter_delimiter(&mut self) {
        self.buffer.advance(self.delimiter.needle().len());
        self.state = State::Delimiter;
    }

    /// Where a delimiter may begin of which only the start has come.
    fn partial_delimiter(&self) -> usize {
        let needle = self.delimiter.needle();
        let start = (self.buffer.len() + 1).saturating_sub(needle.len());
        let tail = &self.buffer[start..];
        memchr::memchr_iter(b'\r', tail)
            .find(|offset| needle.starts_with(&tail[*offset..]))
            .map_or(self.buffer.len(), |offset| start + offset)
    }

    /// Reads what follows a delimiter; whether all of it has come.
    fn read_delimiter_line(&mut self) -> Result<bool, FormError> {
        if self.buffer.starts_with(b"--") {
            self.buffer.advance(2);
            self.state = State::Epilogue;
            return Ok(true);
        }
        let padding = self
            .buffer
            .iter()
            .position(|byte| !matches!(byte, b' ' | b'\t'));
        let padding = padding.unwrap_or(self.buffer.len());
        match &self.buffer[padding..] {
            [b'\r', b'\n', ..] => {
                self.skip(padding)?;
                // The CR LF stays: it may be all there is of the header lines.
                self.state = State::Head;
                self.num_searched = 0;
                Ok(true)
            }
            [] | [b'\r'] => self.check_skipped(padding).map(|_| false),
            [b'-'] if padding == 0 => Ok(false),
            _ => Err(malformed("a boundary is followed by something else")),
        }
    }

    /// Reads the header lines, which end with an empty one.
    fn read_head(&mut self) -> Result<Step, FormError> {
        const END: &[u8] = b"\r\n\r\n";
        let from = self.num_searched.saturating_sub(END.len() - 1);
        let found = memchr::memmem::find(&self.buffer[from..], END);
        // The last bytes may be the start of the end, which does not count.
        let shortest = (self.buffer.len() + 1).saturating_sub(END.len());
        let length = found.map_or(shortest, |found| from + found);
        if length.saturating_sub(2) > self.max_header_bytes {
            return Err(FormError::limit(
                Reject::FormHeaderBytes,
                "server.limits.form_header",
                self.max_header_bytes as u64,
            ));
        }
        if found.is_none() {
            self.num_searched = self.buffer.len();
            return Ok(Step::NeedMore);
        }
        let head = PartHead::parse(self.buffer[..length].strip_prefix(b"\r\n").unwrap_or(b""))?;
        // The empty line stays: the delimiter of an empty part begins with it.
        self.buffer.advance(length + 2);
        self.state = State::DataStart;
        Ok(Step::Part(Box::new(head)))
    }

    fn read_data(&mut self) -> Step {
        let end = match self.delimiter.find(&self.buffer) {
            Some(0) => {
                self.enter_delimiter();
                return Step::PartEnd;
            }
            Some(end) => end,
            None => self.partial_delimiter(),
        };
        match end {
            0 => Step::NeedMore,
            end => Step::Data(self.buffer.split_to(end).freeze()),
        }
    }
}

const fn malformed(reason: &'static str) -> FormError {
    FormError::Malformed { reason }
}
