//! Bytes on their way to an HTTP/1.1 peer.
//!
//! Guarantee: what is small leaves in one write from one buffer, because
//! copying it is cheaper than having the kernel read a vector; what is large
//! is not copied. An output that is empty holds no buffer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};

use super::super::connection::Connection;
use super::super::stream::Transport;

/// Pieces up to this size are copied behind what is there.
const MAX_COPIED_BYTES: usize = 4096;
/// Copied bytes that wait for a write at the most, and one piece more.
const MAX_BUFFERED_BYTES: usize = 16 * 1024;
/// Largest capacity that is given back for the next output.
const MAX_KEPT_BYTES: usize = 64 * 1024;

/// Heads and pieces of bodies that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Output {
    buffer: Vec<u8>,
    num_written: usize,
    /// A piece that was not worth copying, behind the buffer.
    large: Bytes,
    /// What follows it.
    suffix: &'static [u8],
    /// Whether the transport may hold bytes that were written.
    needs_flush: bool,
}

impl Output {
    /// The buffer, to write a head into; `make` gives one if there is none.
    pub(super) fn start(&mut self, make: impl FnOnce() -> Vec<u8>) -> &mut Vec<u8> {
        if self.buffer.capacity() == 0 {
            self.buffer = make();
        }
        &mut self.buffer
    }

    /// Adds bytes that are copied.
    pub(super) fn push_small(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Adds a piece and what follows it; only while there is room.
    pub(super) fn push(&mut self, bytes: Bytes, suffix: &'static [u8]) {
        if bytes.len() <= MAX_COPIED_BYTES {
            self.buffer.extend_from_slice(&bytes);
            self.buffer.extend_from_slice(suffix);
        } else {
            self.large = bytes;
            self.suffix = suffix;
        }
    }

    /// Whether another piece may be added.
    pub(super) fn has_room(&self) -> bool {
        self.large.is_empty() && self.suffix.is_empty() && self.buffer.len() < MAX_BUFFERED_BYTES
    }

    /// Whether nothing is left to do: all is with the socket.
    pub(super) fn is_empty(&self) -> bool {
        !self.needs_flush && self.is_written()
    }

    fn is_written(&self) -> bool {
        self.num_written == self.buffer.len() && self.large.is_empty() && self.suffix.is_empty()
    }

    /// Gives the buffer back once it is written.
    pub(super) fn release(&mut self) -> Vec<u8> {
        self.num_written = 0;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        if buffer.capacity() > MAX_KEPT_BYTES {
            return Vec::new();
        }
        buffer
    }

    /// Writes everything; `is_before_file` when a file follows at once.
    pub(super) fn poll_write<S: Transport>(
        &mut self,
        is_before_file: bool,
        transport: &mut S,
        connection: &Connection,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_written() {
            let rest = &self.buffer[self.num_written..];
            let result = if is_before_file {
                transport.poll_write_before_file(cx, rest)
            } else if self.large.is_empty() && self.suffix.is_empty() {
                Pin::new(&mut *transport).poll_write(cx, rest)
            } else {
                let pieces = [rest, &self.large, self.suffix].map(IoSlice::new);
                let pieces = if rest.is_empty() {
                    &pieces[1..]
                } else {
                    &pieces
                };
                Pin::new(&mut *transport).poll_write_vectored(cx, pieces)
            };
            connection.note_write(&result, transport);
            self.needs_flush = true;
            match ready!(result)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                length => {
                    connection.lane.metrics().sent(length);
                    self.advance(length);
                }
            }
        }
        // TLS keeps bytes that the socket does not take: only a flush tells.
        let result = Pin::new(&mut *transport).poll_flush(cx);
        connection.note_flush(&result, transport);
        self.needs_flush = !matches!(result, Poll::Ready(Ok(())));
        result
    }

    fn advance(&mut self, mut length: usize) {
        let of_buffer = length.min(self.buffer.len() - self.num_written);
        self.num_written += of_buffer;
        length -= of_buffer;
        let of_large = length.min(self.large.len());
        self.large.advance(of_large);
        self.suffix = &self.suffix[length - of_large..];
        if self.large.is_empty() {
            self.large = Bytes::new();
        }
    }
}
