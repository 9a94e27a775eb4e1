//! Hands an upgraded connection over: the socket of HTTP/1.1, or the stream
//! of an extended CONNECT on HTTP/2 (RFC 8441).
//!
//! Guarantee: an extended CONNECT succeeds only where something takes the
//! stream over, whatever else a route answers.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::UPGRADE;
use http::{Method, StatusCode};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::rt::{Read as _, ReadBuf as HyperBuf, Write as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Connection;
use super::tracked_body::StreamTracker;
use crate::problem::Problem;
use crate::response::{IntoResponse as _, Response};
use crate::upgrade::{Backlog, Duplex, Host, OnUpgrade, Upgraded};
use crate::websocket::ExtendedConnect;

/// The stream of an extended CONNECT, once its response has been sent.
#[derive(Debug)]
pub(super) struct Tunnel(hyper::upgrade::OnUpgrade);

impl Tunnel {
    /// Takes the tunnel that `request` asks for, and shows it as a GET.
    pub(super) fn of(request: &mut http::Request<Incoming>) -> Option<Self> {
        if request.method() != Method::CONNECT {
            return None;
        }
        let protocol = request.extensions().get::<Protocol>()?;
        if protocol.as_str() != "websocket" {
            return None;
        }
        let tunnel = Self(hyper::upgrade::on(&mut *request));
        *request.method_mut() = Method::GET;
        request.extensions_mut().insert(ExtendedConnect);
        Some(tunnel)
    }
}

/// Lets what `response` asks for begin once its head is out.
///
/// `tunnel` is that of the request, which came over HTTP/2.
pub(super) fn hand_over(
    connection: &Rc<Connection>,
    tunnel: Tunnel,
    mut response: Response,
) -> Response {
    let on_upgrade = OnUpgrade::take(response.extensions_mut());
    match on_upgrade {
        Some(on_upgrade) => {
            // An open stream keeps the connection from being idle.
            let tracker = StreamTracker::new(Rc::clone(connection));
            let host = TunnelHost {
                connection: Rc::clone(connection),
                index: connection.num_tunnels.get(),
            };
            connection.num_tunnels.set(connection.num_tunnels.get() + 1);
            tokio::task::spawn_local(async move {
                let _tracker = tracker;
                if let Ok(stream) = tunnel.0.await {
                    let io = TunnelStream {
                        stream,
                        connection: Rc::clone(&host.connection),
                    };
                    let upgraded = Upgraded::new(io, Bytes::new(), Rc::new(host));
                    if let Some(work) = on_upgrade.begin(upgraded) {
                        work.await;
                    }
                }
            });
            response
        }
        None if response.status().is_success() => Problem::new(StatusCode::NOT_IMPLEMENTED)
            .with_detail("nothing here takes a CONNECT with :protocol websocket")
            .into_response(),
        None => {
            response.headers_mut().remove(UPGRADE);
            response
        }
    }
}

impl Host for Connection {
    fn poll_draining(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_draining(cx)
    }

    fn panicked(&self) {
        self.lane.metrics().panicked();
    }
}

/// The server around one stream: streams are tasks of their own.
struct TunnelHost {
    connection: Rc<Connection>,
    /// Distinct among the streams of the connection.
    index: u64,
}

impl Host for TunnelHost {
    fn poll_draining(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.connection.lane.draining_since.get().is_some() {
            return Poll::Ready(());
        }
        let mut wakers = self.connection.tunnel_wakers.borrow_mut();
        match wakers.get_mut(&self.index) {
            Some(waker) => waker.clone_from(cx.waker()),
            None => drop(wakers.insert(self.index, cx.waker().clone())),
        }
        Poll::Pending
    }

    fn panicked(&self) {
        self.connection.panicked();
    }
}

impl Drop for TunnelHost {
    fn drop(&mut self) {
        self.connection
            .tunnel_wakers
            .borrow_mut()
            .remove(&self.index);
    }
}

/// hyper's stream with the runtime's traits.
struct TunnelStream {
    stream: hyper::upgrade::Upgraded,
    connection: Rc<Connection>,
}

impl Duplex for TunnelStream {
    fn backlog(&self) -> Backlog {
        // Else the window of the stream is what holds it up.
        if self.connection.is_write_blocked() {
            Backlog::Watched
        } else {
            Backlog::Unknown
        }
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        let mut target = HyperBuf::new(room);
        ready!(Pin::new(&mut self.stream).poll_read(cx, target.unfilled()))?;
        let length = target.filled().len();
        buffer.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
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

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
