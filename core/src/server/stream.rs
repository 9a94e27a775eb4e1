//! The socket as hyper sees it: reads pass the gate, stalls leave a time.
//!
//! Guarantees: hyper only ever reads bytes that the gate admitted; after a
//! refusal it reads end-of-file, so it finishes earlier answers and stops. One
//! read call a request, through the lane's scratch buffer; an idle connection
//! holds no buffer here.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::ReadBufCursor;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use super::connection::{Connection, Waiting};
use crate::gate::{Expecting, Gate};
use crate::upgrade::Upgraded;

/// Head and body up to this size are sent from one buffer: copying them is
/// cheaper than having the kernel read a vector.
const MAX_GATHERED_BYTES: usize = 4096;

/// Writes up to this size are pings and the like, not progress of a response.
const H2_CONTROL_BYTES: usize = 64;

/// First bytes of an HTTP/2 connection (RFC 9113 §3.4).
pub(super) const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A byte stream to a peer, as accepted or inside TLS.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + 'static {
    /// Makes closing drop what the peer has not taken, instead of keeping it.
    fn discard_unsent(&self);
}

impl Transport for TcpStream {
    fn discard_unsent(&self) {
        // Without it the kernel would go on sending in vain: not worth failing.
        drop(SockRef::from(self).set_linger(Some(Duration::ZERO)));
    }
}

impl Transport for UnixStream {
    fn discard_unsent(&self) {}
}

impl<S: Transport> Transport for TlsStream<S> {
    fn discard_unsent(&self) {
        self.get_ref().0.discard_unsent();
    }
}

/// A transport whose input is checked; `gate` is `None` for HTTP/2.
#[derive(Debug)]
pub(super) struct GatedStream<S> {
    transport: S,
    connection: Rc<Connection>,
    gate: Option<Gate>,
    /// Read but not admitted: an incomplete head.
    unadmitted: Vec<u8>,
    /// Admitted but not yet taken by hyper.
    admitted: Vec<u8>,
    end: bool,
}

impl<S: Transport> GatedStream<S> {
    pub(super) fn new(transport: S, connection: Rc<Connection>) -> Self {
        Self {
            transport,
            connection,
            gate: None,
            unadmitted: Vec::new(),
            admitted: Vec::new(),
            end: false,
        }
    }

    /// Reads until the first bytes tell the protocol: `true` for HTTP/2.
    ///
    /// What was read stays for the protocol that is chosen. Cancel safe.
    pub(super) fn poll_is_h2(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            let seen = self.unadmitted.len().min(H2_PREFACE.len());
            if self.unadmitted[..seen] != H2_PREFACE[..seen] {
                return Poll::Ready(Ok(false));
            }
            if seen == H2_PREFACE.len() {
                return Poll::Ready(Ok(true));
            }
            let lane = Rc::clone(&self.connection.lane);
            let mut scratch = lane.scratch.borrow_mut();
            let mut buffer = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut self.transport).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            if self.unadmitted.is_empty() {
                self.connection.wait_for(Waiting::HeadRest, Instant::now());
            }
            self.unadmitted.extend_from_slice(buffer.filled());
        }
    }

    /// Serves HTTP/1.1 through `gate`.
    pub(super) fn with_gate(mut self, mut gate: Gate) -> Self {
        let length = gate.admit(&self.unadmitted);
        self.admitted = self.unadmitted.drain(..length).collect();
        self.note_gate(&gate);
        self.gate = Some(gate);
        self
    }

    /// Serves HTTP/2, whose framing h2 checks itself.
    pub(super) fn without_gate(mut self) -> Self {
        self.admitted = std::mem::take(&mut self.unadmitted);
        self.connection.wait_for(Waiting::Request, Instant::now());
        self
    }

    /// The transport, and whether the peer may still be sending to us.
    pub(super) fn into_transport(self) -> (S, bool) {
        let unread = match &self.gate {
            Some(gate) => gate.expecting(self.unadmitted.len()) != Expecting::Request,
            None => false,
        };
        (self.transport, unread)
    }

    /// The bare transport, with what was read beyond the last request.
    ///
    /// `None` when those bytes broke a framing rule: the peer sent them before
    /// it could know that they would not be HTTP.
    pub(super) fn into_upgraded(self, taken: &[u8]) -> Option<Upgraded> {
        if self.connection.refusal.get().is_some() {
            return None;
        }
        let unread = [taken, &self.admitted, &self.unadmitted].concat();
        Some(Upgraded::new(
            self.transport,
            unread.into(),
            self.connection,
        ))
    }

    fn note_gate(&mut self, gate: &Gate) {
        self.connection.num_complete.set(gate.num_complete());
        if gate.is_closed() {
            self.connection.refusal.set(gate.refusal());
            self.unadmitted = Vec::new();
            self.end = true;
        }
    }

    /// Gives hyper what has been admitted, as far as it has room.
    fn deliver(&mut self, cursor: &mut ReadBufCursor<'_>) {
        let length = self.admitted.len().min(cursor.remaining());
        cursor.put_slice(&self.admitted[..length]);
        self.admitted.drain(..length);
        if self.admitted.is_empty() {
            self.admitted = Vec::new();
        }
    }

    /// Passes `bytes` through the gate; whether hyper got any.
    fn admit(&mut self, bytes: &[u8], cursor: &mut ReadBufCursor<'_>) -> bool {
        let Some(mut gate) = self.gate.take() else {
            cursor.put_slice(bytes);
            return true;
        };
        let delivered = if self.unadmitted.is_empty() {
            let length = gate.admit(bytes);
            cursor.put_slice(&bytes[..length]);
            self.unadmitted.extend_from_slice(&bytes[length..]);
            length > 0
        } else {
            self.unadmitted.extend_from_slice(bytes);
            let length = gate.admit(&self.unadmitted);
            self.admitted.extend(self.unadmitted.drain(..length));
            self.deliver(cursor);
            length > 0
        };
        self.note_gate(&gate);
        self.gate = Some(gate);
        delivered
    }

    fn note_progress(&self) {
        if self.gate.is_some() {
            self.connection.waiting.set(Waiting::Nothing);
        }
    }

    /// Notes what the connection waits for, now that no byte is there.
    fn note_waiting(&self) {
        // On HTTP/2 the exchanges know it: any frame may belong to any stream.
        let Some(gate) = &self.gate else {
            return;
        };
        let waiting = match gate.expecting(self.unadmitted.len()) {
            Expecting::Request => Waiting::Request,
            Expecting::HeadRest => Waiting::HeadRest,
            Expecting::Body => Waiting::Body,
            Expecting::Nothing => Waiting::Nothing,
        };
        // A wait that goes on keeps its start: a head that drips in one byte
        // at a time has one deadline. A body's wait starts anew with each byte.
        if self.connection.waiting.get() != waiting {
            let now = match waiting {
                // hyper reads on right after a short answer, whose time is known.
                Waiting::Request => self.connection.answered_at.take(),
                _ => None,
            };
            let now = now.unwrap_or_else(Instant::now);
            self.connection.wait_for(waiting, now);
        }
    }
}

impl<S: Transport> hyper::rt::Read for GatedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.admitted.is_empty() {
            this.deliver(&mut cursor);
            this.note_progress();
            return Poll::Ready(Ok(()));
        }
        let lane = Rc::clone(&this.connection.lane);
        loop {
            if this.end || this.connection.body_stalled.get() {
                return Poll::Ready(Ok(()));
            }
            let mut scratch = lane.scratch.borrow_mut();
            let room = cursor.remaining().min(scratch.len());
            let mut buffer = ReadBuf::new(&mut scratch[..room]);
            match Pin::new(&mut this.transport).poll_read(cx, &mut buffer) {
                Poll::Pending => {
                    this.note_waiting();
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {}
            }
            if buffer.filled().is_empty() {
                this.end = true;
            } else if this.admit(buffer.filled(), &mut cursor) {
                this.note_progress();
                return Poll::Ready(Ok(()));
            } else {
                // Part of a head: its deadline counts from its first byte.
                this.note_waiting();
            }
        }
    }
}

impl<S: Transport> GatedStream<S> {
    fn note_write<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let blocked = &self.connection.write_blocked_since;
        match result {
            Poll::Pending if blocked.get().is_none() => blocked.set(Some(Instant::now())),
            Poll::Ready(Ok(_)) if blocked.get().is_some() => blocked.set(None),
            _ => {}
        }
        result
    }

    /// Notes a write, and on HTTP/2 whether it can have held data.
    fn note_written(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if self.gate.is_none()
            && let Poll::Ready(Ok(length)) = &result
            && *length > H2_CONTROL_BYTES
        {
            self.connection.h2_progress.set(Instant::now());
        }
        self.note_write(result)
    }
}

impl<S: Transport> hyper::rt::Write for GatedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.transport).poll_write(cx, bytes);
        this.note_written(result)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS keeps bytes that the socket does not take: only a flush tells.
        let this = self.get_mut();
        let result = Pin::new(&mut this.transport).poll_flush(cx);
        this.note_write(result)
    }

    /// Closing is the connection's business: it may still have to answer.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let result = if length <= MAX_GATHERED_BYTES {
            let lane = Rc::clone(&this.connection.lane);
            let mut scratch = lane.scratch.borrow_mut();
            let mut end = 0;
            for slice in slices {
                scratch[end..end + slice.len()].copy_from_slice(slice);
                end += slice.len();
            }
            Pin::new(&mut this.transport).poll_write(cx, &scratch[..end])
        } else {
            Pin::new(&mut this.transport).poll_write_vectored(cx, slices)
        };
        this.note_written(result)
    }
}
