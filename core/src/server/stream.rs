//! Byte streams to peers, and the one that hyper's HTTP/2 sees.
//!
//! Guarantee: an HTTP/2 stream leaves a time when its peer last took data and
//! since when it takes none.

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

/// A transport of HTTP/2, behind the bytes that were read to recognise it.
#[derive(Debug)]
pub(super) struct H2Stream<S> {
    transport: S,
    connection: Rc<Connection>,
    /// Read before, and not yet taken by hyper.
    sniffed: Vec<u8>,
}

impl<S: Transport> H2Stream<S> {
    pub(super) const fn new(transport: S, connection: Rc<Connection>, sniffed: Vec<u8>) -> Self {
        Self {
            transport,
            connection,
            sniffed,
        }
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
}

impl<S: Transport> hyper::rt::Read for H2Stream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.sniffed.is_empty() {
            let length = this.sniffed.len().min(cursor.remaining());
            cursor.put_slice(&this.sniffed[..length]);
            this.sniffed.drain(..length);
            return Poll::Ready(Ok(()));
        }
        let lane = Rc::clone(&this.connection.lane);
        let mut scratch = lane.scratch.borrow_mut();
        let room = cursor.remaining().min(scratch.len());
        let mut buffer = ReadBuf::new(&mut scratch[..room]);
        let result = Pin::new(&mut this.transport).poll_read(cx, &mut buffer);
        cursor.put_slice(buffer.filled());
        result
    }
}

impl<S: Transport> hyper::rt::Write for H2Stream<S> {
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

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.transport).poll_write_vectored(cx, slices);
        this.note_written(result)
    }
}
