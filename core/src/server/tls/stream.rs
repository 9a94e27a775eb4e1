//! TLS over a socket: a byte stream like the socket itself.
//!
//! Guarantee: one receive and one send where plain TCP has one; a write that
//! was taken is sent before anything that follows, and only a flush tells that
//! all is with the socket. An idle connection holds no buffer: those of the
//! lane serve them all, and only what the socket did not take is kept.

use std::cell::{RefCell, RefMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::server::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::super::stream::{ResetWatch, Transport};
use super::session::{MAX_RECORD_BYTES, Records, Session};

/// Bytes received at once, like those of plain sockets.
const WIRE_BYTES: usize = 32 * 1024;
/// Plaintext that one write takes, and so what a connection keeps at the most
/// for a peer that does not read.
const MAX_WRITE_BYTES: usize = 4 * MAX_RECORD_BYTES;

/// What all TLS connections of a lane work in, one after the other.
#[derive(Debug, Default)]
pub(in crate::server) struct TlsBuffers {
    wire: RefCell<Vec<u8>>,
    records: RefCell<Records>,
    /// Where pieces are put together that share a record.
    gathered: RefCell<Vec<u8>>,
}

impl TlsBuffers {
    fn wire(&self) -> RefMut<'_, Vec<u8>> {
        let mut wire = self.wire.borrow_mut();
        wire.resize(WIRE_BYTES, 0);
        wire
    }
}

/// A TLS connection of a server.
#[derive(Debug)]
pub(in crate::server) struct TlsStream {
    socket: TcpStream,
    session: Session,
    /// Records that the socket has not taken, sent up to `num_sent`.
    unsent: Vec<u8>,
    num_sent: usize,
    /// Whether the end of this side has been announced.
    is_shut: bool,
    buffers: Rc<TlsBuffers>,
}

impl TlsStream {
    /// Shakes hands with the client.
    ///
    /// # Errors
    /// When the client leaves or no connection can be agreed on, which it has
    /// been told then.
    pub(in crate::server) async fn accept(
        socket: TcpStream,
        config: Arc<ServerConfig>,
        buffers: Rc<TlsBuffers>,
    ) -> io::Result<Self> {
        let session = Session::new(config).map_err(io::Error::other)?;
        let mut stream = Self {
            socket,
            session,
            unsent: Vec::new(),
            num_sent: 0,
            is_shut: false,
            buffers,
        };
        std::future::poll_fn(|cx| stream.poll_handshake(cx)).await?;
        Ok(stream)
    }

    /// The protocol that client and server have agreed on.
    pub(in crate::server) fn alpn_protocol(&self) -> Option<&[u8]> {
        self.session.alpn_protocol()
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(cx))?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            // What comes behind the handshake waits for its reader.
            if ready!(self.poll_receive(cx, &mut ReadBuf::new(&mut [])))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Receives once; how many bytes of TLS came.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut wire = self.buffers.wire();
        let mut received = ReadBuf::new(&mut wire);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut received))?;
        let wire = received.filled_mut();
        let mut records = self.buffers.records.borrow_mut();
        records.clear();
        let result = self.session.receive(wire, target, &mut records);
        say(&self.socket, &mut self.unsent, records.as_slice());
        result.map_err(broken)?;
        Poll::Ready(Ok(wire.len()))
    }

    /// Runs `work`, and sends or keeps what the protocol says in its course.
    fn with_records(
        &mut self,
        work: impl FnOnce(&mut Session, &mut Records) -> Result<(), rustls::Error>,
    ) -> io::Result<()> {
        let mut records = self.buffers.records.borrow_mut();
        records.clear();
        let result = work(&mut self.session, &mut records);
        say(&self.socket, &mut self.unsent, records.as_slice());
        result.map_err(broken)
    }

    /// Sends what is kept.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.num_sent < self.unsent.len() {
            let rest = &self.unsent[self.num_sent..];
            match ready!(Pin::new(&mut self.socket).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                length => self.num_sent += length,
            }
        }
        if self.num_sent > 0 {
            self.unsent = Vec::new();
            self.num_sent = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the records that `seal` makes, and keeps what the socket does not
    /// take; only while nothing is kept.
    fn poll_sealed(
        &mut self,
        cx: &mut Context<'_>,
        seal: impl FnOnce(&mut Session, &mut Records) -> Result<(), rustls::Error>,
    ) -> Poll<io::Result<()>> {
        let mut records = self.buffers.records.borrow_mut();
        records.clear();
        seal(&mut self.session, &mut records).map_err(broken)?;
        let bytes = records.as_slice();
        let sent = match Pin::new(&mut self.socket).poll_write(cx, bytes) {
            Poll::Ready(Ok(length)) => length,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => 0,
        };
        if sent < bytes.len() {
            self.unsent = bytes[sent..].to_vec();
        }
        Poll::Ready(Ok(()))
    }
}

/// Sends what the protocol says, or keeps it.
fn say(socket: &TcpStream, unsent: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    // Not by a poll: the waker of whoever writes must stay. What the socket
    // does not take now goes before the next write.
    let sent = if unsent.is_empty() {
        socket.try_write(bytes).unwrap_or(0)
    } else {
        0
    };
    unsent.extend_from_slice(&bytes[sent..]);
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Transport for TlsStream {
    fn reset(&self) -> ResetWatch {
        self.socket.reset()
    }

    fn discard_unsent(&self) {
        self.socket.discard_unsent();
    }

    fn num_unsent(&self) -> Option<u64> {
        let kept = (self.unsent.len() - self.num_sent) as u64;
        Some(kept + self.socket.num_unsent()?)
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = target.filled().len();
        if this.session.has_kept() {
            this.with_records(|session, records| session.read(target, records))?;
        }
        while target.filled().len() == before && target.remaining() > 0 && !this.session.is_closed()
        {
            if ready!(this.poll_receive(cx, target))? == 0 {
                // Without `close_notify` it may be an attacker's work.
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        let bytes = &bytes[..bytes.len().min(MAX_WRITE_BYTES)];
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(this.poll_sealed(cx, |session, records| {
            bytes
                .chunks(MAX_RECORD_BYTES)
                .try_for_each(|plain| session.seal(plain, records))
        }))?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        let buffers = Rc::clone(&this.buffers);
        let mut gathered = buffers.gathered.borrow_mut();
        gathered.clear();
        for slice in slices {
            let room = MAX_WRITE_BYTES - gathered.len();
            gathered.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        Pin::new(this).poll_write(cx, &gathered)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        if !this.is_shut {
            this.is_shut = true;
            // A session that has failed has said so already.
            drop(this.with_records(Session::close));
            ready!(this.poll_send(cx))?;
        }
        match ready!(Pin::new(&mut this.socket).poll_shutdown(cx)) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}
