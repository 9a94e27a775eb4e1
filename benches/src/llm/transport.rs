//! A connection to a model server whose socket is stamped at each read and write.
//!
//! Guarantee: the stamp that belongs to a piece of a body is the instant at which its last byte
//! left the socket, before anything parsed it. The driver of the HTTP library runs in the task of
//! the request and hands over one piece at a time, so no later read can slip in between.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::load::{Address, Target};

/// Instants at which bytes passed a socket.
#[derive(Debug, Default)]
pub(super) struct SocketClock {
    first_write: Cell<Option<Instant>>,
    last_read: Cell<Option<Instant>>,
}

impl SocketClock {
    /// When the first byte of the last request was written.
    pub(super) fn sent(&self) -> Option<Instant> {
        self.first_write.get()
    }
}

/// A TCP connection whose small writes wait for nothing.
async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// One HTTP/1.1 connection.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Pin<Box<dyn Future<Output = hyper::Result<()>>>>,
    clock: Rc<SocketClock>,
    is_closed: bool,
    pub(super) num_requests: u64,
}

impl Connection {
    /// Connects; returns how long that took, TLS included.
    pub(super) async fn open(target: &Target) -> io::Result<(Self, Duration)> {
        let start = Instant::now();
        let clock = Rc::new(SocketClock::default());
        let socket: Box<dyn Socket> = match &target.address {
            Address::Tcp(address) => Box::new(connect(*address).await?),
            Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
        };
        let stamped = Stamped {
            socket,
            clock: Rc::clone(&clock),
        };
        let stream: Box<dyn Socket> = match &target.tls {
            Some(tls) => {
                let connector = TlsConnector::from(Arc::clone(&tls.config));
                let name = tls.server_name.clone();
                Box::new(connector.connect(name, stamped).await?)
            }
            None => Box::new(stamped),
        };
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let connection = Self {
            sender,
            driver: Box::pin(driver),
            clock,
            is_closed: false,
            num_requests: 0,
        };
        Ok((connection, start.elapsed()))
    }

    /// Whether another request can be sent.
    pub(super) async fn is_usable(&mut self) -> bool {
        // The peer may have closed it since; a look at the socket costs nothing.
        poll_fn(|cx| {
            self.poll_driver(cx);
            Poll::Ready(!self.is_closed && self.sender.is_ready())
        })
        .await
    }

    /// Sends a request and waits for the head of its response.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        self.num_requests += 1;
        self.clock.first_write.set(None);
        self.clock.last_read.set(None);
        let mut response = pin!(self.sender.send_request(request));
        let (driver, is_closed) = (&mut self.driver, &mut self.is_closed);
        poll_fn(|cx| {
            drive(driver, is_closed, cx);
            response.as_mut().poll(cx)
        })
        .await
    }

    /// The next piece of a body with its stamp; `None` at the end of a whole message.
    pub(super) async fn next_piece(
        &mut self,
        body: &mut Incoming,
    ) -> Option<hyper::Result<(Bytes, Instant)>> {
        loop {
            let frame = poll_fn(|cx| {
                self.poll_driver(cx);
                Pin::new(&mut *body).poll_frame(cx)
            })
            .await?;
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(bytes)) => {
                    let at = self.last_read().unwrap_or_else(Instant::now);
                    return Some(Ok((bytes, at)));
                }
                // Trailers.
                Ok(Err(_)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The stamps of its socket.
    pub(super) fn clock(&self) -> Rc<SocketClock> {
        Rc::clone(&self.clock)
    }

    /// When bytes last came out of the socket, since the last request.
    pub(super) fn last_read(&self) -> Option<Instant> {
        self.clock.last_read.get()
    }

    fn poll_driver(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.driver, &mut self.is_closed, cx);
    }
}

fn drive(
    driver: &mut Pin<Box<dyn Future<Output = hyper::Result<()>>>>,
    is_closed: &mut bool,
    cx: &mut Context<'_>,
) {
    // Its error also reaches who waits for the response or the body.
    if !*is_closed && driver.as_mut().poll(cx).is_ready() {
        *is_closed = true;
    }
}

trait Socket: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket for S {}

/// A socket that notes when bytes pass.
struct Stamped {
    socket: Box<dyn Socket>,
    clock: Rc<SocketClock>,
}

impl Stamped {
    /// Writes, and notes the instant before the first write that took bytes.
    fn write(
        &mut self,
        write: impl FnOnce(Pin<&mut Box<dyn Socket>>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let is_first = self.clock.first_write.get().is_none();
        let before = is_first.then(Instant::now);
        let result = write(Pin::new(&mut self.socket));
        if is_first && matches!(result, Poll::Ready(Ok(length)) if length > 0) {
            self.clock.first_write.set(before);
        }
        result
    }
}

impl AsyncRead for Stamped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.clock.last_read.set(Some(Instant::now()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(|socket| socket.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(|socket| socket.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_in_two_writes_waits_for_no_acknowledgement() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let stream = runtime.block_on(connect(address)).unwrap();
        assert!(stream.nodelay().unwrap());
    }
}
