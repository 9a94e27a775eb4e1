//! Frames on their way out: one message at a time, control frames between.
//!
//! Guarantee: what is queued is bounded by one message and
//! [`MAX_QUEUED_CONTROL_BYTES`]; dropping the future that flushes loses
//! nothing, the next flush goes on where it stopped. Nothing follows a Close
//! frame (RFC 6455 §5.5.1).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite;

use super::decoder::Control;
use super::deflate::{Agreement, CHUNK_BYTES, Deflater, MIN_COMPRESSED_BYTES};
use super::frame::{Opcode, write_header};
use super::limits::{MAX_COPIED_PAYLOAD_BYTES, MAX_KEPT_BUFFER_BYTES, MAX_QUEUED_CONTROL_BYTES};
use super::message::Message;

/// Encodes and writes the frames of one connection.
#[derive(Debug)]
pub(super) struct Writer {
    /// Frames, the last perhaps without its payload; written up to `num_sent`.
    buffer: Vec<u8>,
    num_sent: usize,
    /// Payload that follows `buffer`.
    payload: Bytes,
    /// A message that is compressed piece by piece.
    compressing: Option<Compressing>,
    deflater: Option<Deflater>,
    /// The answer to the latest ping, while there was no room for it.
    late_pong: Option<Control>,
    is_dirty: bool,
    is_closed: bool,
    num_written: u64,
}

#[derive(Debug)]
struct Compressing {
    opcode: Opcode,
    rest: Bytes,
    is_first: bool,
}

impl Writer {
    pub(super) fn new(agreement: Option<Agreement>) -> Self {
        Self {
            buffer: Vec::new(),
            num_sent: 0,
            payload: Bytes::new(),
            compressing: None,
            deflater: agreement.map(Deflater::new),
            late_pong: None,
            is_dirty: false,
            is_closed: false,
            num_written: 0,
        }
    }

    /// Whether everything has been handed to the connection.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.payload.is_empty() && self.compressing.is_none()
    }

    /// Bytes that the connection has taken so far.
    pub(super) const fn num_written(&self) -> u64 {
        self.num_written
    }

    /// Bytes that the connection will have taken when what is queued now is written.
    pub(super) fn num_queued(&self) -> u64 {
        self.num_written + (self.buffer.len() - self.num_sent + self.payload.len()) as u64
    }

    /// Queues a message; the queue must be empty.
    pub(super) fn queue_message(&mut self, message: Message) {
        debug_assert!(self.is_empty() && !self.is_closed, "one message at a time");
        let opcode = match message {
            Message::Text(_) => Opcode::Text,
            Message::Binary(_) => Opcode::Binary,
        };
        let payload = message.into_bytes();
        if self.deflater.is_some() && payload.len() >= MIN_COMPRESSED_BYTES {
            self.compressing = Some(Compressing {
                opcode,
                rest: payload,
                is_first: true,
            });
            return;
        }
        write_header(&mut self.buffer, opcode, true, false, payload.len());
        if payload.len() <= MAX_COPIED_PAYLOAD_BYTES {
            self.buffer.extend_from_slice(&payload);
        } else {
            self.payload = payload;
        }
    }

    /// Whether there was room for it.
    pub(super) fn queue_ping(&mut self) -> bool {
        let has_room = self.has_room_for_control();
        if has_room {
            self.queue_control(Opcode::Ping, &[]);
        }
        has_room
    }

    pub(super) fn queue_pong(&mut self, payload: Control) {
        if self.has_room_for_control() {
            self.queue_control(Opcode::Pong, payload.as_slice());
        } else if !self.is_closed {
            self.late_pong = Some(payload);
        }
    }

    /// Queues the Close frame, after what is queued already.
    ///
    /// The rest of a compressed message is dropped: its fragments can end at
    /// any frame. Pongs that are late are of no use any more.
    pub(super) fn queue_close(&mut self, payload: &[u8]) {
        self.compressing = None;
        self.late_pong = None;
        if !self.payload.is_empty() {
            let rest = std::mem::take(&mut self.payload);
            self.buffer.extend_from_slice(&rest);
        }
        self.queue_control(Opcode::Close, payload);
        self.is_closed = true;
    }

    fn has_room_for_control(&self) -> bool {
        // A frame must not come between a header and its payload.
        !self.is_closed
            && self.payload.is_empty()
            && self.buffer.len() - self.num_sent < MAX_QUEUED_CONTROL_BYTES
    }

    fn queue_control(&mut self, opcode: Opcode, payload: &[u8]) {
        write_header(&mut self.buffer, opcode, true, false, payload.len());
        self.buffer.extend_from_slice(payload);
    }

    /// Writes until nothing is queued and the connection has flushed.
    pub(super) fn poll_flush(
        &mut self,
        mut io: Pin<&mut (impl AsyncWrite + ?Sized)>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_write_buffer(io.as_mut(), cx))?;
            if let Some(pong) = self.late_pong.take() {
                self.queue_control(Opcode::Pong, pong.as_slice());
            } else if self.compressing.is_some() {
                self.compress_next();
            } else {
                break;
            }
        }
        if self.is_dirty {
            ready!(io.poll_flush(cx))?;
            self.is_dirty = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_buffer(
        &mut self,
        mut io: Pin<&mut (impl AsyncWrite + ?Sized)>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.num_sent < self.buffer.len() || !self.payload.is_empty() {
            let head = &self.buffer[self.num_sent..];
            let written = if self.payload.is_empty() {
                ready!(io.as_mut().poll_write(cx, head))?
            } else {
                let slices = [IoSlice::new(head), IoSlice::new(&self.payload)];
                ready!(io.as_mut().poll_write_vectored(cx, &slices))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.is_dirty = true;
            self.num_written += written as u64;
            let of_head = written.min(head.len());
            self.num_sent += of_head;
            self.payload.advance(written - of_head);
        }
        self.num_sent = 0;
        self.buffer.clear();
        if self.buffer.capacity() > MAX_KEPT_BUFFER_BYTES {
            self.buffer = Vec::new();
        }
        if self.payload.is_empty() {
            self.payload = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Encodes the next fragment of the message that is being compressed.
    fn compress_next(&mut self) {
        let (Some(message), Some(deflater)) = (&mut self.compressing, &mut self.deflater) else {
            return;
        };
        let chunk = message.rest.split_to(message.rest.len().min(CHUNK_BYTES));
        let is_last = message.rest.is_empty();
        let mut compressed = Vec::new();
        deflater.deflate(&chunk, &mut compressed, is_last);
        if compressed.is_empty() && !is_last {
            // zlib keeps it for later: no frame without content.
            return;
        }
        let opcode = if message.is_first {
            message.opcode
        } else {
            Opcode::Continuation
        };
        write_header(
            &mut self.buffer,
            opcode,
            is_last,
            message.is_first,
            compressed.len(),
        );
        self.buffer.extend_from_slice(&compressed);
        message.is_first = false;
        if is_last {
            self.compressing = None;
        }
    }
}
