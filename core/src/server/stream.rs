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
use std::time::Duration;

use hyper::rt::ReadBufCursor;
use rustix::fs::sendfile;
use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::net::SendFlags;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::connection::Connection;
use super::h2_frames::{FrameCheck, SPOILED};
use super::h2_replies::ReplyWatch;
use crate::upgrade::{Backlog, Duplex};

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

    /// Bytes that were written and that the peer has not taken.
    ///
    /// `None` where it cannot be told: there a write goes on with each byte that
    /// is taken. Costs a system call.
    fn num_unsent(&self) -> Option<u64> {
        None
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

impl<S: Transport> Duplex for S {
    fn backlog(&self) -> Backlog {
        self.num_unsent().map_or(Backlog::Unknown, Backlog::Bytes)
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

    fn num_unsent(&self) -> Option<u64> {
        num_unsent(self)
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

    fn num_unsent(&self) -> Option<u64> {
        num_unsent(self)
    }

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

/// Bytes in the send queue of a socket: `SIOCOUTQ`, which is `TIOCOUTQ`.
///
/// TCP counts what its peer has not acknowledged (tcp(7)), Unix sockets what
/// theirs has not read, with some overhead.
#[expect(unsafe_code, reason = "the ioctl has no safe wrapper")]
fn num_unsent(socket: impl AsFd) -> Option<u64> {
    const SIOCOUTQ: Opcode = libc::TIOCOUTQ as Opcode;
    // SAFETY: it writes one `int`, which the getter has room for.
    let queued = unsafe { ioctl(socket, Getter::<SIOCOUTQ, libc::c_int>::new()) };
    u64::try_from(queued.ok()?).ok()
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
    replies: ReplyWatch,
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
        let mut unread = sniffed.to_vec();
        let verdict = frames.check(&mut unread);
        unread.truncate(verdict.passed);
        if verdict.is_wrong {
            unread.extend_from_slice(SPOILED);
        }
        Self {
            transport: Some(transport),
            landing,
            connection,
            frames,
            replies: ReplyWatch::new(),
            unread,
        }
    }

    const fn transport(&mut self) -> &mut S {
        self.transport.as_mut().expect("it is there until the drop")
    }

    /// Notes a write, and whether it can have held data.
    fn note_written(&mut self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(length)) = &result {
            self.connection.lane.metrics().sent(*length);
            if *length > H2_CONTROL_BYTES {
                self.connection.note_h2_data(*length);
            }
        }
        let connection = Rc::clone(&self.connection);
        connection.note_write(&result, self.transport());
        connection.look(self.transport());
        result
    }

    /// Writes after a wrong frame: the error that h2 tells of is made the one
    /// that is due.
    fn poll_write_amended(
        &mut self,
        cx: &mut Context<'_>,
        bytes: Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let code = self.frames.wrong().expect("a wrong frame has come");
        let bytes = self.replies.place().amend(bytes, code);
        let result = Pin::new(self.transport()).poll_write(cx, &bytes);
        self.follow(&[IoSlice::new(&bytes)], &result);
        self.note_written(result)
    }

    /// Follows what has left, and counts the refusals in it.
    fn follow(&mut self, slices: &[IoSlice<'_>], result: &Poll<io::Result<usize>>) {
        let Poll::Ready(Ok(length)) = result else {
            return;
        };
        let mut left = *length;
        let metrics = self.connection.lane.metrics();
        for slice in slices {
            let written = left.min(slice.len());
            left -= written;
            self.replies
                .watch(&slice[..written], |reject| metrics.rejected(reject));
        }
        self.connection.h2_fault.set(self.replies.fault());
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
        // hyper reads whenever the connection's task is woken, by its deadline
        // too: nobody else can reach the transport.
        let transport = this.transport.as_ref();
        this.connection
            .look(transport.expect("it is there until the drop"));
        loop {
            if !this.unread.is_empty() {
                this.take_unread(&mut cursor);
                return Poll::Ready(Ok(()));
            }
            if this.frames.wrong().is_some() {
                return Poll::Ready(Ok(()));
            }
            let mut scratch = lane.scratch.borrow_mut();
            let held = this.frames.restore(&mut scratch);
            let room = cursor.remaining().min(scratch.len() - held);
            let mut buffer = ReadBuf::new(&mut scratch[..held + room]);
            buffer.set_filled(held);
            let result = Pin::new(this.transport()).poll_read(cx, &mut buffer);
            let bytes = buffer.filled_mut();
            let verdict = this.frames.check(bytes);
            if bytes.len() == held {
                return result;
            }
            lane.metrics().received(bytes.len() - held);
            let (fitting, more) = bytes[..verdict.passed].split_at(room.min(verdict.passed));
            cursor.put_slice(fitting);
            this.unread.extend_from_slice(more);
            if verdict.is_wrong {
                this.unread.extend_from_slice(SPOILED);
            }
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
        if this.frames.wrong().is_some() {
            return this.poll_write_amended(cx, bytes.to_vec());
        }
        let result = Pin::new(this.transport()).poll_write(cx, bytes);
        this.follow(&[IoSlice::new(bytes)], &result);
        this.note_written(result)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS keeps bytes that the socket does not take: only a flush tells.
        let this = self.get_mut();
        let result = Pin::new(this.transport()).poll_flush(cx);
        let connection = Rc::clone(&this.connection);
        connection.note_flush(&result, this.transport());
        connection.look(this.transport());
        result
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
        if this.frames.wrong().is_some() {
            let bytes = slices.iter().flat_map(|slice| slice.iter().copied());
            return this.poll_write_amended(cx, bytes.collect());
        }
        let result = Pin::new(this.transport()).poll_write_vectored(cx, slices);
        this.follow(slices, &result);
        this.note_written(result)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Waker;
    use std::time::Instant;

    use hyper::rt::Read as _;
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::limits::Limits;
    use crate::request::Peer;
    use crate::router::Router;
    use crate::server::lane::{App, Lane};
    use crate::server::memory;

    /// The largest HEADERS frame there is, its last bytes one by one: each
    /// read finds what came before it kept, and hyper has room for much more.
    #[test]
    fn a_large_frame_that_comes_in_parts_fits_the_buffer() {
        let lane = Lane::new(Arc::new(App::new(Router::new(), Limits::DEFAULT, 1)), 0);
        let connection = Connection::new(lane, Peer::Unknown, false, Instant::now());
        let (mut peer, transport) = memory::pair();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let mut stream = H2Stream::new(transport, connection, preface, Landing::default());
        let mut memory = vec![0; 64 * 1024];
        let mut buffer = hyper::rt::ReadBuf::new(&mut memory);
        let mut cx = Context::from_waker(Waker::noop());
        let shown = Pin::new(&mut stream).poll_read(&mut cx, buffer.unfilled());
        assert!(shown.is_ready());
        assert_eq!(buffer.filled(), preface);

        // `:method: GET` again and again: the check only walks through it.
        let payload = [0x82; 16_384];
        let frame = [&b"\0\x40\0\x01\x05\0\0\0\x01"[..], &payload].concat();
        let mut sent = 0;
        for end in [16_384, frame.len() - 2, frame.len() - 1, frame.len()] {
            let written = pin!(peer.write_all(&frame[sent..end])).poll(&mut cx);
            assert!(matches!(written, Poll::Ready(Ok(()))));
            sent = end;
            let shown = Pin::new(&mut stream).poll_read(&mut cx, buffer.unfilled());
            assert_eq!(shown.is_ready(), sent == frame.len(), "{sent}");
        }
        // The end of it had no room in that read.
        let shown = Pin::new(&mut stream).poll_read(&mut cx, buffer.unfilled());
        assert!(shown.is_ready());
        assert_eq!(buffer.filled(), [preface, &frame[..]].concat());
    }
}
