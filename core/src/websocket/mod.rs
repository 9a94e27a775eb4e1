//! The WebSocket protocol: RFC 6455, permessage-deflate (RFC 7692), HTTP/2 (RFC 8441).
//!
//! Guarantee: whatever the peer sends, memory stays within the socket's
//! limits and the answer is the close code that the RFCs name; what is
//! received is valid, whole and in order. A socket stays on its lane, and one
//! that is idle holds no buffer and, without context takeover, no compressor.
//! The codec is our own: `docs/adr/0007-own-websocket-codec.md`.

mod decoder;
mod deflate;
mod extension;
mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod handshake;
mod limits;
mod message;
mod runner;
mod session;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use self::extension::Deflate;
use self::handshake::{Accepted, Origins, Terms, shake};
pub(crate) use self::handshake::{ExtendedConnect, accept_key, has_option};
pub use self::limits::WebSocketLimits;
pub use self::message::{CloseCode, CloseFrame, Message};
use self::runner::{Home, run};
use self::session::Session;
use crate::error::WebSocketError;
use crate::handler::{FutureSlot, Handler};
use crate::request::Request;
use crate::response::Response;
use crate::server::with_limits;
use crate::upgrade::OnUpgrade;

/// Makes a handler that opens a WebSocket and gives it to `serve`.
///
/// Pages of the same origin and clients that send no `Origin` may open it;
/// [`WebSocketUpgrade`] has everything else that can be chosen. When `serve`
/// returns, the socket is closed with code 1000; when it panics, with 1011.
///
/// ```
/// use justapi_core::{Router, WebSocket, websocket};
///
/// async fn echo(mut socket: WebSocket) {
///     while let Some(Ok(message)) = socket.recv().await {
///         if socket.send(message).await.is_err() {
///             break;
///         }
///     }
/// }
///
/// # fn main() -> Result<(), justapi_core::Error> {
/// let router = Router::new().get("/ws", websocket(echo))?;
/// # Ok(()) }
/// ```
pub fn websocket<F, Fut>(serve: F) -> WebSocketHandler<F>
where
    F: Fn(WebSocket) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + 'static,
{
    WebSocketUpgrade::new().handler(serve)
}

/// How a route accepts a WebSocket.
#[derive(Debug, Clone)]
pub struct WebSocketUpgrade {
    terms: Terms,
    /// Those of the server, where none were chosen.
    limits: Option<WebSocketLimits>,
}

impl WebSocketUpgrade {
    /// No subprotocols, no compression, same-origin pages only, the limits of
    /// the server.
    pub const fn new() -> Self {
        Self {
            terms: Terms {
                protocols: Vec::new(),
                origins: Origins::Same,
                deflate: None,
            },
            limits: None,
        }
    }

    /// Subprotocols that the application speaks.
    ///
    /// The first one of the client's list that is among them is chosen; a
    /// client without any of them is accepted without a subprotocol.
    #[must_use]
    pub fn protocols<'a>(mut self, protocols: impl IntoIterator<Item = &'a str>) -> Self {
        self.terms.protocols = protocols.into_iter().map(Arc::from).collect();
        self
    }

    /// Pages of these origins may open the socket, such as
    /// `https://app.example`; no others.
    #[must_use]
    pub fn allow_origins<'a>(mut self, origins: impl IntoIterator<Item = &'a str>) -> Self {
        self.terms.origins = Origins::These(origins.into_iter().map(Into::into).collect());
        self
    }

    /// Pages of any origin may open the socket.
    ///
    /// A browser sends its user's cookies along: only for sockets that do not
    /// trust them.
    #[must_use]
    pub fn allow_any_origin(mut self) -> Self {
        self.terms.origins = Origins::Any;
        self
    }

    /// Compresses messages for clients that offer permessage-deflate.
    #[must_use]
    pub const fn deflate(mut self, deflate: Deflate) -> Self {
        self.terms.deflate = Some(deflate);
        self
    }

    /// Replaces the server's limits.
    #[must_use]
    pub const fn limits(mut self, limits: WebSocketLimits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Makes a handler that opens a WebSocket and gives it to `serve`.
    pub fn handler<F, Fut>(self, serve: F) -> WebSocketHandler<F>
    where
        F: Fn(WebSocket) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        WebSocketHandler {
            upgrade: self,
            serve: Arc::new(serve),
        }
    }

    /// Answers `request`: the handshake's response, or why there is none.
    ///
    /// For handlers that look at the request first. `serve` runs once the
    /// response has been sent; it is never called after a refusal.
    pub fn accept<F, Fut>(&self, request: &mut Request, serve: F) -> Response
    where
        F: FnOnce(WebSocket) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let Accepted {
            mut response,
            protocol,
            agreement,
        } = match shake(request, &self.terms) {
            Ok(accepted) => accepted,
            Err(refusal) => return refusal.into_response(request.version()),
        };
        let of_server = || with_limits(WebSocketLimits::of);
        let limits = self.limits.unwrap_or_else(of_server);
        let on_upgrade = OnUpgrade::new(move |upgraded| {
            let session = Session::new(upgraded, limits, agreement);
            Box::pin(run(session, protocol, limits.close_timeout, serve))
        });
        response.extensions_mut().insert(on_upgrade);
        response
    }
}

impl Default for WebSocketUpgrade {
    fn default() -> Self {
        Self::new()
    }
}

/// A handler that opens a WebSocket each time, made by [`websocket`].
pub struct WebSocketHandler<F> {
    upgrade: WebSocketUpgrade,
    serve: Arc<F>,
}

impl<F> fmt::Debug for WebSocketHandler<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketHandler")
            .field("upgrade", &self.upgrade)
            .finish_non_exhaustive()
    }
}

impl<F, Fut> Handler for WebSocketHandler<F>
where
    F: Fn(WebSocket) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + 'static,
{
    fn call(&self, mut request: Request, _slot: &mut FutureSlot) -> Option<Response> {
        let serve = Arc::clone(&self.serve);
        Some(
            self.upgrade
                .accept(&mut request, move |socket| serve(socket)),
        )
    }
}

/// An open WebSocket of the server.
///
/// Pings are answered, the peer's silence is noticed and its Close frame is
/// seen while [`Self::recv`] is awaited: an application that mostly sends
/// awaits it beside its other work, for instance with `tokio::select!`.
///
/// A peer that does not read makes [`Self::send`] wait. Dropping the socket
/// closes it with code 1000.
pub struct WebSocket {
    session: Option<Box<Session>>,
    home: Rc<Home>,
    protocol: Option<Arc<str>>,
}

impl WebSocket {
    fn new(session: Box<Session>, home: &Rc<Home>, protocol: Option<Arc<str>>) -> Self {
        Self {
            session: Some(session),
            home: Rc::clone(home),
            protocol,
        }
    }

    /// Next message; `None` once the socket is closed.
    ///
    /// A failure comes once, before the `None`; [`Self::close_frame`] then
    /// says how the socket was closed. When the server drains, the closing
    /// handshake is begun here, with code 1001. Cancel safe.
    ///
    /// # Errors
    /// [`WebSocketError::Violation`] when the peer broke a rule or a limit,
    /// [`WebSocketError::Lost`] when it went without a Close frame,
    /// [`WebSocketError::TimedOut`] when it answered no ping or read nothing.
    pub async fn recv(&mut self) -> Option<Result<Message, WebSocketError>> {
        poll_fn(|cx| self.session_mut().poll_recv(cx)).await
    }

    /// Sends a message; waits while the peer is slower than the sender.
    ///
    /// A message goes out whole: when the future is dropped it has either not
    /// been taken, or the next `send` or `recv` finishes it.
    ///
    /// # Errors
    /// As [`Self::recv`]; [`WebSocketError::TooLarge`] for a message that is
    /// larger than what may be buffered, after which the socket goes on; and
    /// [`WebSocketError::Closed`] once it is closing.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), WebSocketError> {
        let session = self.session_mut();
        poll_fn(|cx| session.poll_ready(cx)).await?;
        session.queue(message.into())?;
        poll_fn(|cx| session.poll_ready(cx)).await
    }

    /// As [`Self::recv`], for who sends at the same time.
    ///
    /// With [`Self::poll_ready`] and [`Self::start_send`] it makes a sender
    /// that hears the peer while that reads nothing: its pings, its messages
    /// and its Close frame.
    ///
    /// # Errors
    /// As [`Self::recv`].
    pub fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Message, WebSocketError>>> {
        self.session_mut().poll_recv(cx)
    }

    /// Ready once the message before has left: one more can be sent.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WebSocketError>> {
        self.session_mut().poll_ready(cx)
    }

    /// Takes a message without waiting, after [`Self::poll_ready`] was ready.
    ///
    /// The next `poll_ready`, or any other wait for the socket, sends it.
    ///
    /// # Errors
    /// [`WebSocketError::TooLarge`] and [`WebSocketError::Closed`] as
    /// [`Self::send`].
    ///
    /// # Panics
    /// In debug builds, when the message before has not left.
    pub fn start_send(&mut self, message: impl Into<Message>) -> Result<(), WebSocketError> {
        self.session_mut().queue(message.into())
    }

    /// Closes with `code` and waits for the peer's Close frame, at most as
    /// long as the limits say.
    ///
    /// What the peer still sends is dropped, and a reason longer than 123
    /// bytes is cut.
    pub async fn close(mut self, code: CloseCode, reason: &str) {
        let session = self.session_mut();
        session.close(code, reason);
        // A failure now is one that nobody asked about.
        drop(poll_fn(|cx| session.poll_recv(cx)).await);
    }

    /// Subprotocol that was agreed.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Code and reason of the close, once [`Self::recv`] has given `None`.
    ///
    /// [`CloseCode::NO_STATUS`] when the peer gave none, and
    /// [`CloseCode::ABNORMAL`] when it left without a Close frame.
    pub fn close_frame(&self) -> Option<&CloseFrame> {
        self.session.as_ref()?.close_frame()
    }

    fn session_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("only dropping takes it")
    }
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocket")
            .field("session", &self.session)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

impl Drop for WebSocket {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.home.give_back(session);
        }
    }
}
