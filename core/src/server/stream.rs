//! Byte streams to peers, and the one that hyper's HTTP/2 sees.
//!
//! Guarantee: an HTTP/2 stream leaves a time when its peer last took data and
//! since when it takes none, and hyper sees no frame that was not checked.

use std::cell::Cell;
use std::fs::File;
use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::ReadBufCursor;
use rustix::fs::sendfile;
use rustix::net::SendFlags;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::connection::Connection;
use super::h2_frames::FrameCheck;

/// Writes up to this size are pings and the like, not progress of a response.
const H2_CONTROL_BYTES: usize = 64;

/// A byte stream to a peer, as accepted or inside TLS.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + 'static {
    /// Makes closing drop what the peer has not taken, instead of keeping it.
    fn discard_unsent(&self);

    /// Resolves when the peer has reset the connection, without reading.
    ///
    /// Never where it cannot be told. Costs a descriptor and some system calls.
    fn reset(&self) -> ResetWatch {
        Box::pin(std::future::pending())
    }

    /// Whether [`Transport::poll_send_file`] can work.
    fn sends_files(&self) -> bool {
        false
    }

    /// Writes `bytes`, which a file follows at once.
    fn poll_write_before_file(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(cx, bytes)
    }

    /// Sends bytes of a file without copying them; 0 when the file has ended.
    fn poll_send_file(
        &mut self,
        _cx: &mut Context<'_>,
        _file: &File,
        _offset: u64,
        _length: usize,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

/// A wait for a reset.
pub(super) type ResetWatch = Pin<Box<dyn Future<Output = ()>>>;

impl Transport for TcpStream {
    fn reset(&self) -> ResetWatch {
        // A second descriptor, because this one's readiness cannot tell: it is
        // readable all along, with what nobody reads.
        let own = self.as_fd().try_clone_to_owned();
        let own = own.map(std::net::TcpStream::from).and_then(Self::from_std);
        Box::pin(async move {
            match own {
                Ok(own) if own.ready(Interest::ERROR).await.is_ok() => {}
                // Without a descriptor the next write tells.
                _ => std::future::pending().await,
            }
        })
    }

    fn discard_unsent(&self) {
        // Without it the kernel would go on sending in vain: not worth failing.
        drop(SockRef::from(self).set_linger(Some(Duration::ZERO)));
    }

    fn sends_files(&self) -> bool {
        true
    }

    fn poll_write_before_file(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = &*self;
        poll_io(
            |cx| stream.poll_write_ready(cx),
            // So that head and file share their first packet.
            || {
                let send =
                    || rustix::net::send(stream, bytes, SendFlags::MORE | SendFlags::NOSIGNAL);
                stream.try_io(Interest::WRITABLE, || Ok(send()?))
            },
            cx,
        )
    }

    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        let stream = &*self;
        poll_io(
            |cx| stream.poll_write_ready(cx),
            || {
                let send = || send_file(stream, file, offset, length);
                stream.try_io(Interest::WRITABLE, send)
            },
            cx,
        )
    }
}

impl Transport for UnixStream {
    fn discard_unsent(&self) {}

    fn sends_files(&self) -> bool {
        true
    }

    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        let stream = &*self;
        poll_io(
            |cx| stream.poll_write_ready(cx),
            || {
                let send = || send_file(stream, file, offset, length);
                stream.try_io(Interest::WRITABLE, send)
            },
            cx,
        )
    }
}

/// Sends bytes of `file` from `offset` on, wherever its own position is.
fn send_file(socket: impl AsFd, file: &File, mut offset: u64, length: usize) -> io::Result<usize> {
    Ok(sendfile(socket, file, Some(&mut offset), length)?)
}

/// Tries `operation` whenever the socket may be ready, until it is.
fn poll_io<T>(
    mut poll_ready: impl FnMut(&mut Context<'_>) -> Poll<io::Result<()>>,
    mut operation: impl FnMut() -> io::Result<T>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<T>> {
    loop {
        ready!(poll_ready(cx))?;
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return Poll::Ready(result),
        }
    }
}

/// Where a transport is put down when hyper is done with it.
pub(super) type Landing<S> = Rc<Cell<Option<S>>>;

/// A transport of HTTP/2, behind the bytes that were read to recognise it.
pub(super) struct H2Stream<S> {
    /// There until it is dropped.
    transport: Option<S>,
    landing: Landing<S>,
    connection: Rc<Connection>,
    frames: FrameCheck,
    /// Read and checked, and not yet taken by hyper.
    unread: Vec<u8>,
}

impl<S: Transport> H2Stream<S> {
    /// `sniffed` is what has been read already; `landing` gets the transport.
    pub(super) fn new(
        transport: S,
        connection: Rc<Connection>,
        sniffed: &[u8],
        landing: Landing<S>,
    ) -> Self {
        let mut frames = FrameCheck::new();
        let verdict = frames.check(sniffed);
        let instead = verdict.instead.unwrap_or_default();
        Self {
            transport: Some(transport),
            landing,
            connection,
            frames,
            unread: [&sniffed[..verdict.passed], instead].concat(),
        }
    }

    const fn transport(&mut self) -> &mut S {
        self.transport.as_mut().expect("it is there until the drop")
    }

    fn note_write<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.connection.note_write(&result);
        result
    }

    /// Notes a write, and whether it can have held data.
    fn note_written(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(length)) = &result
            && *length > H2_CONTROL_BYTES
        {
            self.connection.h2_progress.set(Instant::now());
        }
        self.note_write(result)
    }

    /// Gives hyper what has been read and checked.
    fn take_unread(&mut self, cursor: &mut ReadBufCursor<'_>) {
        let length = self.unread.len().min(cursor.remaining());
        cursor.put_slice(&self.unread[..length]);
        self.unread.drain(..length);
    }
}

impl<S> Drop for H2Stream<S> {
    fn drop(&mut self) {
        self.landing.set(self.transport.take());
    }
}

impl<S: Transport> hyper::rt::Read for H2Stream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let lane = Rc::clone(&this.connection.lane);
        loop {
            if !this.unread.is_empty() {
                this.take_unread(&mut cursor);
                return Poll::Ready(Ok(()));
            }
            if this.frames.is_over() {
                return Poll::Ready(Ok(()));
            }
            let mut scratch = lane.scratch.borrow_mut();
            let room = cursor.remaining().min(scratch.len() / 2);
            let held = this.frames.restore(&mut scratch);
            let mut buffer = ReadBuf::new(&mut scratch[..held + room]);
            buffer.set_filled(held);
            let result = Pin::new(this.transport()).poll_read(cx, &mut buffer);
            let bytes = buffer.filled();
            let verdict = this.frames.check(bytes);
            if bytes.len() == held {
                return result;
            }
            let (fitting, more) = bytes[..verdict.passed].split_at(room.min(verdict.passed));
            cursor.put_slice(fitting);
            this.unread.extend_from_slice(more);
            this.unread
                .extend_from_slice(verdict.instead.unwrap_or_default());
            if !fitting.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: Transport> hyper::rt::Write for H2Stream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(this.transport()).poll_write(cx, bytes);
        this.note_written(result)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS keeps bytes that the socket does not take: only a flush tells.
        let this = self.get_mut();
        let result = Pin::new(this.transport()).poll_flush(cx);
        this.note_write(result)
    }

    /// The transport is shut down by whoever finds it at its landing.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }

    fn is_write_vectored(&self) -> bool {
        let transport = self.transport.as_ref();
        transport.is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(this.transport()).poll_write_vectored(cx, slices);
        this.note_written(result)
    }
}
