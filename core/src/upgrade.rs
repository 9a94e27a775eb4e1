//! The seam where a connection stops speaking HTTP: what a response asks for,
//! and what it gets.
//!
//! A response of status 101 carries an [`OnUpgrade`]; the connection writes its
//! head, then runs it with the [`Upgraded`] byte stream, on the lane, and ends
//! when that future does (RFC 9110 §7.8). Guarantee: no upgrade begins before
//! its head has been written, and bytes that came early are not lost.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http::Extensions;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What runs on an upgraded connection; it never leaves the lane.
pub(crate) type UpgradeFuture = Pin<Box<dyn Future<Output = ()>>>;

type Callback = Box<dyn FnOnce(Upgraded) -> UpgradeFuture + Send>;

/// What a response wants done with its connection once its head is written.
///
/// It travels in the response's extensions, whose values have to be `Clone`
/// and `Sync`: hence the shared cell, which is emptied by [`Self::take`].
#[derive(Clone)]
pub(crate) struct OnUpgrade(Arc<Mutex<Option<Callback>>>);

impl OnUpgrade {
    pub(crate) fn new(run: impl FnOnce(Upgraded) -> UpgradeFuture + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(run)))))
    }

    /// Whether a response asks for an upgrade.
    pub(crate) fn is_in(extensions: &Extensions) -> bool {
        extensions.get::<Self>().is_some()
    }

    /// Takes the wish of a response out of it.
    pub(crate) fn take(extensions: &mut Extensions) -> Option<Self> {
        // An empty extension map is told by its length, without a look-up.
        if extensions.is_empty() {
            return None;
        }
        extensions.remove()
    }

    /// Begins what was asked for; the future ends with the connection's use.
    ///
    /// `None` when it has begun before.
    pub(crate) fn begin(self, upgraded: Upgraded) -> Option<UpgradeFuture> {
        let callback = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        callback.map(|callback| callback(upgraded))
    }
}

impl fmt::Debug for OnUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnUpgrade").finish_non_exhaustive()
    }
}

/// What an upgraded connection learns from, and tells, the server around it.
pub(crate) trait Host {
    /// Ready once the server drains; else wakes the task when it begins to.
    ///
    /// One task at a time: a later one replaces an earlier one.
    fn poll_draining(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Counts a panic of the code that runs on the connection.
    fn panicked(&self);
}

/// A byte stream in both directions.
pub(crate) trait Duplex: AsyncRead + AsyncWrite {
    /// What is known of bytes that were written and not taken by the peer.
    fn backlog(&self) -> Backlog {
        Backlog::Unknown
    }
}

#[cfg(test)]
impl Duplex for tokio::io::DuplexStream {}

/// What waits for a peer behind a write that it holds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backlog {
    Unknown,
    Bytes(u64),
    /// The connection below keeps the deadline of such a write.
    Watched,
}

/// A connection that has left HTTP: raw bytes in both directions.
///
/// Stays on its lane's thread. Who holds it keeps its deadlines: the server
/// watches no time on it any more.
pub struct Upgraded {
    io: Pin<Box<dyn Duplex>>,
    /// Read before the upgrade.
    unread: Bytes,
    host: Rc<dyn Host>,
}

impl Upgraded {
    /// `unread` comes before what `io` will read.
    pub(crate) fn new(io: impl Duplex + 'static, unread: Bytes, host: Rc<dyn Host>) -> Self {
        Self {
            io: Box::pin(io),
            unread,
            host,
        }
    }

    /// What is known of bytes that were written and not taken by the peer.
    pub(crate) fn backlog(&self) -> Backlog {
        self.io.backlog()
    }

    /// The server around the connection.
    pub(crate) fn host(&self) -> Rc<dyn Host> {
        Rc::clone(&self.host)
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded")
            .field("unread", &self.unread.len())
            .finish_non_exhaustive()
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return self.io.as_mut().poll_read(cx, buffer);
        }
        let length = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread[..length]);
        self.unread.advance(length);
        if self.unread.is_empty() {
            self.unread = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.io.as_mut().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io.as_mut().poll_write_vectored(cx, slices)
    }
}
