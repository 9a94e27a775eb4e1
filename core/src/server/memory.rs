//! Connections without a socket, for clients in this process.
//!
//! Guarantee: all but the socket is as on any other connection: what is sent
//! waits for who reads, and either side notices at once that the other has
//! gone or has broken off.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::sync::watch;

use super::stream::{ResetWatch, Transport};

/// Bytes on their way, each way, before the sender waits: as a small socket
/// buffer, so that who is slow is noticed.
const BUFFER_BYTES: usize = 64 * 1024;

/// The client's end of a connection in memory; dropping it is a reset.
#[derive(Debug)]
pub struct MemoryClient {
    stream: DuplexStream,
    is_broken: Rc<Cell<bool>>,
    /// Closed with the client, which the server's end watches.
    _presence: watch::Sender<()>,
}

/// The server's end.
#[derive(Debug)]
pub(super) struct MemoryStream {
    stream: DuplexStream,
    is_broken: Rc<Cell<bool>>,
    presence: watch::Receiver<()>,
}

/// Both ends of a new connection.
pub(super) fn pair() -> (MemoryClient, MemoryStream) {
    let (near, far) = duplex(BUFFER_BYTES);
    let (sender, presence) = watch::channel(());
    let is_broken = Rc::new(Cell::new(false));
    let client = MemoryClient {
        stream: near,
        is_broken: Rc::clone(&is_broken),
        _presence: sender,
    };
    let server = MemoryStream {
        stream: far,
        is_broken,
        presence,
    };
    (client, server)
}

impl Transport for MemoryStream {
    fn discard_unsent(&self) {
        self.is_broken.set(true);
    }

    fn reset(&self) -> ResetWatch {
        let mut presence = self.presence.clone();
        Box::pin(async move { while presence.changed().await.is_ok() {} })
    }
}

impl AsyncRead for MemoryClient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let is_end = buffer.filled().len() == before && buffer.remaining() > 0;
        if is_end && self.is_broken.get() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let is_end = buffer.filled().len() == before && buffer.remaining() > 0;
        // A client that is still there has closed its sending side only.
        if is_end && self.presence.has_changed().is_err() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(()))
    }
}

macro_rules! write_through {
    ($end:ty) => {
        impl AsyncWrite for $end {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write(cx, bytes)
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_flush(cx)
            }

            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_shutdown(cx)
            }
        }
    };
}

write_through!(MemoryClient);
write_through!(MemoryStream);
