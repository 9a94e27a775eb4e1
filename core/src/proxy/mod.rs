//! A reverse proxy as a route: requests go on to an upstream server, and its
//! responses come back, both as streams (RFC 9110 §7.6, RFC 9112); a WebSocket
//! passes too.
//!
//! Guarantees: every way an upstream can fail has an answer (502, 503, 504) or
//! breaks the message off; a request is repeated only when it is idempotent
//! and a reused connection died before a byte of the answer.

mod body;
mod forward;
mod pool;
mod secure;
mod target;
mod tunnel;
mod websocket;

use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;

use self::body::{HeadBody, Progress, RequestBody, ResponseBody};
use self::forward::{Client, add_via, remove_hop_by_hop, request_headers, same_headers};
use self::pool::{ConnectError, Connection};
use self::target::{Upstream, num_segments};
use self::tunnel::Patience;
use self::websocket::Upgrade;
use crate::body::Body;
use crate::error::{BodyError, Error};
use crate::handler::{FutureSlot, Handler};
use crate::problem::Problem;
use crate::request::{Peer, Request};
use crate::response::{IntoResponse as _, Response};
use crate::router::Router;

/// Time to open a connection: an upstream is near.
pub const PROXY_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait for the upstream to take more of the request, or to begin its answer.
pub const PROXY_HEAD_TIMEOUT: Duration = Duration::from_mins(1);
/// Wait for the next bytes of an upstream's response body.
pub const PROXY_BODY_TIMEOUT: Duration = Duration::from_mins(1);
/// Time without a byte in either direction of a WebSocket; usual elsewhere.
pub const PROXY_TUNNEL_TIMEOUT: Duration = Duration::from_hours(1);
/// Time for the other side of a WebSocket once one has ended, and for both once
/// they have been told to.
const TUNNEL_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Open connections of a lane to one upstream.
pub const MAX_PROXY_CONNECTIONS: usize = 512;

/// Name of [`MAX_PROXY_CONNECTIONS`] in an answer.
const CONNECTIONS_KEY: &str = "server.proxy_connections";

/// An upstream that routes can be given to.
///
/// Its host is resolved once, when the proxy is made. The upstream is spoken
/// to in HTTP/1.1, inside of TLS where its URL begins with `https://`.
///
/// A WebSocket passes, of clients that speak HTTP/1.1 or HTTP/2; any other
/// upgrade does not.
#[derive(Debug, Clone)]
pub struct Proxy {
    upstream: Arc<Upstream>,
    settings: Settings,
}

#[derive(Debug, Clone)]
struct Settings {
    connect_timeout: Duration,
    head_timeout: Duration,
    body_timeout: Duration,
    tunnel_timeout: Duration,
    max_connections: usize,
    is_tls: bool,
    trusted: Vec<IpAddr>,
    authorities: Option<PathBuf>,
    hop: Hop,
}

/// What a request shows of its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hop {
    /// That of a proxy between servers.
    Proxy,
    /// Nothing but the client, as if there were no proxy.
    Plain { keeps_claims: bool },
}

impl Proxy {
    /// A proxy to a server of ours that listens on a Unix socket.
    ///
    /// A request arrives there as it came here: with the host, the path and
    /// the headers that the client has sent, and with its address and scheme as
    /// `X-Forwarded-For` and `X-Forwarded-Proto`. What the client itself says
    /// in such headers stays before that if it `keeps_claims`. Every request has a
    /// connection of its own, so that none meets one that ends.
    pub fn unix(path: impl Into<PathBuf>, keeps_claims: bool) -> Self {
        let mut proxy = Self::to(Upstream::unix(path.into()));
        proxy.settings.hop = Hop::Plain { keeps_claims };
        proxy
    }

    fn to(upstream: Upstream) -> Self {
        Self {
            upstream: Arc::new(upstream),
            settings: Settings {
                connect_timeout: PROXY_CONNECT_TIMEOUT,
                head_timeout: PROXY_HEAD_TIMEOUT,
                body_timeout: PROXY_BODY_TIMEOUT,
                tunnel_timeout: PROXY_TUNNEL_TIMEOUT,
                max_connections: MAX_PROXY_CONNECTIONS,
                is_tls: false,
                trusted: Vec::new(),
                authorities: None,
                hop: Hop::Proxy,
            },
        }
    }

    /// A proxy to `url`, such as `http://127.0.0.1:9000/base`.
    ///
    /// # Errors
    /// [`Error::Config`] when it is no such URL or its host has no address.
    pub fn new(url: &str) -> Result<Self, Error> {
        Upstream::parse(url).map(Self::to)
    }

    /// Replaces [`PROXY_CONNECT_TIMEOUT`], [`PROXY_HEAD_TIMEOUT`] and
    /// [`PROXY_BODY_TIMEOUT`].
    #[must_use]
    pub const fn timeouts(mut self, connect: Duration, head: Duration, body: Duration) -> Self {
        self.settings.connect_timeout = connect;
        self.settings.head_timeout = head;
        self.settings.body_timeout = body;
        self
    }

    /// Replaces [`PROXY_TUNNEL_TIMEOUT`].
    #[must_use]
    pub const fn tunnel_timeout(mut self, timeout: Duration) -> Self {
        self.settings.tunnel_timeout = timeout;
        self
    }

    /// Believes certificates of an `https://` upstream that the authorities of
    /// this PEM file have signed, instead of those of the system.
    #[must_use]
    pub fn authorities(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings.authorities = Some(file.into());
        self
    }

    /// Replaces [`MAX_PROXY_CONNECTIONS`].
    #[must_use]
    pub const fn max_connections(mut self, connections: usize) -> Self {
        self.settings.max_connections = connections;
        self
    }

    /// Whether clients reach this server by TLS, for `X-Forwarded-Proto`.
    #[must_use]
    pub const fn tls(mut self, is_tls: bool) -> Self {
        self.settings.is_tls = is_tls;
        self
    }

    /// Peers whose `Forwarded` and `X-Forwarded-*` are believed and extended;
    /// of everybody else they are replaced.
    #[must_use]
    pub fn trust(mut self, peers: impl IntoIterator<Item = IpAddr>) -> Self {
        self.settings.trusted = peers.into_iter().collect();
        self
    }

    /// Gives `route` and everything below it to the upstream, for all methods.
    ///
    /// The path of the URL takes the place of `route`, which has no
    /// parameters. The server's body limit holds.
    ///
    /// # Errors
    /// When a route is there already or `route` is no pattern, and
    /// [`Error::TlsFile`] or [`Error::Config`] for authorities that cannot be
    /// used.
    pub fn mount(self, router: Router, route: &str) -> Result<Router, Error> {
        if route.contains(['{', '}']) {
            return Err(Error::RoutePattern {
                path: route.to_owned(),
                reason: "the route of a proxy has no parameters",
            });
        }
        let handler = ProxyHandler(Arc::new(self.into_route(num_segments(route))?));
        let bare = route.trim_end_matches('/');
        let mut router = router;
        if !bare.is_empty() {
            router = router.any(bare, handler.clone())?;
        }
        router
            .any(&format!("{bare}/"), handler.clone())?
            .any(&format!("{bare}/{{*rest}}"), handler)
    }

    /// What passes requests on that somebody else has routed.
    ///
    /// # Errors
    /// [`Error::TlsFile`] or [`Error::Config`] for authorities that cannot be
    /// used.
    pub fn forwarder(self) -> Result<Forwarder, Error> {
        self.into_route(0).map(|route| Forwarder(Arc::new(route)))
    }

    fn into_route(self, num_segments: usize) -> Result<ProxyRoute, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let authorities = self.settings.authorities.as_deref();
        let is_secure = self.upstream.tls_name.is_some();
        let tls = is_secure.then(|| secure::connector(authorities));
        Ok(ProxyRoute {
            tls: tls.transpose()?,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            num_segments,
            upstream: self.upstream,
            settings: self.settings,
        })
    }
}

/// Passes requests on to one upstream, on a lane; made by [`Proxy::forwarder`].
#[derive(Clone)]
pub struct Forwarder(Arc<ProxyRoute>);

impl Forwarder {
    /// Passes a request on; `Err` is this server's own answer, as the upstream
    /// has given none.
    pub async fn forward(&self, request: Request) -> Result<Response, Box<Response>> {
        let answer = self.0.forward(request).await;
        answer.map_err(|failure| Box::new(failure.into_response()))
    }
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder")
            .field("upstream", &self.0.upstream)
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct ProxyHandler(Arc<ProxyRoute>);

struct ProxyRoute {
    /// Tells the pools of a lane apart.
    number: u32,
    num_segments: usize,
    upstream: Arc<Upstream>,
    tls: Option<TlsConnector>,
    settings: Settings,
}

impl fmt::Debug for ProxyHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyHandler")
            .field("upstream", &self.0.upstream)
            .finish_non_exhaustive()
    }
}

impl Handler for ProxyHandler {
    fn call(&self, request: Request, slot: &mut FutureSlot) -> Option<Response> {
        let route = Arc::clone(&self.0);
        slot.set(async move {
            match route.forward(request).await {
                Ok(response) => response,
                Err(failure) => failure.into_response(),
            }
        });
        None
    }
}

/// Why a request got no answer from the upstream.
#[derive(Debug)]
enum Failure {
    Path(&'static str),
    Connect(ConnectError, usize),
    /// The client's own body failed.
    Client(BodyError),
    /// The upstream neither read nor answered for too long.
    Silent,
    /// The connection broke, or what came was not HTTP.
    Broken,
}

impl Failure {
    fn into_response(self) -> Response {
        let (status, detail) = match self {
            Self::Path(reason) => (StatusCode::BAD_REQUEST, reason),
            Self::Client(error) => return error.into_response(),
            Self::Connect(ConnectError::Full, limit) => {
                return Problem::new(StatusCode::SERVICE_UNAVAILABLE)
                    .with_detail("too many requests are at the upstream server")
                    .with_limit(CONNECTIONS_KEY, limit as u64)
                    .into_response()
                    .with_header(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::Connect(ConnectError::Refused, _) => (
                StatusCode::BAD_GATEWAY,
                "the upstream server cannot be reached",
            ),
            Self::Connect(ConnectError::Insecure, _) => (
                StatusCode::BAD_GATEWAY,
                "the upstream server cannot be reached securely",
            ),
            Self::Connect(ConnectError::TimedOut, _) => (
                StatusCode::GATEWAY_TIMEOUT,
                "the upstream server cannot be reached in time",
            ),
            Self::Silent => (
                StatusCode::GATEWAY_TIMEOUT,
                "the upstream server did not answer in time",
            ),
            Self::Broken => (
                StatusCode::BAD_GATEWAY,
                "the upstream server gave no valid answer",
            ),
        };
        Problem::new(status).with_detail(detail).into_response()
    }
}

type Outgoing = http::Request<RequestBody>;

/// The target of a request as it came.
fn same_target(request: &Request) -> Result<Uri, &'static str> {
    let path = request.uri().path_and_query().cloned();
    path.map(Uri::from).ok_or("the path is not valid")
}

impl ProxyRoute {
    async fn forward(&self, mut request: Request) -> Result<Response, Failure> {
        let target = match self.settings.hop {
            Hop::Proxy => self
                .upstream
                .target(self.num_segments, request.path(), request.query()),
            Hop::Plain { .. } => same_target(&request),
        };
        let target = target.map_err(Failure::Path)?;
        let method = request.method().clone();
        let upgrade = Upgrade::of(&mut request);
        let client = Client {
            peer: *request.peer(),
            version: request.version(),
            is_tls: self.settings.is_tls && matches!(request.peer(), Peer::Tcp(_)),
            trusted: &self.settings.trusted,
        };
        let mut outgoing = http::Request::new(());
        *outgoing.method_mut() = method.clone();
        *outgoing.uri_mut() = target;
        *outgoing.version_mut() = Version::HTTP_11;
        *outgoing.headers_mut() = match self.settings.hop {
            Hop::Proxy => request_headers(&mut request, &self.upstream.host, &client),
            Hop::Plain { keeps_claims } => same_headers(&mut request, &client, keeps_claims),
        };
        if upgrade.is_some() {
            Upgrade::ask(outgoing.headers_mut());
        }
        let body = request.into_body();
        let progress = (!body.is_end_stream()).then(|| Arc::new(Progress::new()));
        let reused = match self.settings.hop {
            Hop::Proxy => Connection::take(self.number).await,
            Hop::Plain { .. } => None,
        };
        // What it takes to send the request a second time.
        let again = (reused.is_some() && progress.is_none() && method.is_idempotent())
            .then(|| outgoing.clone());
        let mut outgoing = outgoing.map(|()| RequestBody::new(body, progress.clone()));
        let mut connection = match reused {
            Some(connection) => connection,
            None => self.open().await?,
        };
        let mut again =
            again.map(|request| request.map(|()| RequestBody::new(Body::empty(), None)));
        loop {
            let before = connection.num_received();
            match self
                .exchange(&mut connection, outgoing, progress.as_deref())
                .await
            {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    let patience = Patience {
                        idle: self.settings.tunnel_timeout,
                        close: TUNNEL_CLOSE_TIMEOUT,
                    };
                    let switched =
                        upgrade.and_then(|upgrade| upgrade.answer(response, connection, patience));
                    // One that nobody asked for, or to another handshake.
                    return switched.ok_or(Failure::Broken);
                }
                Ok(response) => return self.answer(&method, response, connection),
                Err((failure, unsent)) => {
                    let is_stale = connection.is_reused && connection.num_received() == before;
                    let next = unsent.or_else(|| again.take()).filter(|_| is_stale);
                    let (Failure::Broken, Some(next)) = (&failure, next) else {
                        return Err(failure);
                    };
                    outgoing = next;
                    connection = self.open().await?;
                }
            }
        }
    }

    async fn open(&self) -> Result<Connection, Failure> {
        let limit = self.settings.max_connections;
        Connection::open(
            self.number,
            &self.upstream,
            self.tls.as_ref(),
            limit,
            self.settings.connect_timeout,
        )
        .await
        .map_err(|error| Failure::Connect(error, limit))
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// With a failure comes the request, if nothing of it was sent.
    async fn exchange(
        &self,
        connection: &mut Connection,
        outgoing: Outgoing,
        progress: Option<&Progress>,
    ) -> Result<http::Response<Incoming>, (Failure, Option<Outgoing>)> {
        let limit = self.settings.head_timeout;
        let started = Instant::now();
        let mut sending = pin!(connection.sender.try_send_request(outgoing));
        let mut timer = pin!(sleep(limit));
        let sent = poll_fn(|cx| {
            if let Poll::Ready(sent) = sending.as_mut().poll(cx) {
                return Poll::Ready(Some(sent));
            }
            while timer.as_mut().poll(cx).is_ready() {
                let idle = progress.map_or_else(|| started.elapsed(), Progress::upstream_idle);
                let Some(left) = limit.checked_sub(idle).filter(|left| !left.is_zero()) else {
                    return Poll::Ready(None);
                };
                timer.as_mut().reset(Instant::now() + left);
            }
            Poll::Pending
        })
        .await;
        match sent {
            Some(Ok(response)) => Ok(response),
            None => Err((Failure::Silent, None)),
            Some(Err(mut error)) => {
                let failure = progress
                    .and_then(Progress::take_error)
                    .map_or(Failure::Broken, Failure::Client);
                Err((failure, error.take_message()))
            }
        }
    }

    fn keep(&self, connection: Connection) {
        if self.settings.hop == Hop::Proxy {
            connection.put();
        }
    }

    /// Turns the upstream's response into the client's.
    fn answer(
        &self,
        method: &Method,
        response: http::Response<Incoming>,
        connection: Connection,
    ) -> Result<Response, Failure> {
        let (mut head, incoming) = response.into_parts();
        if head.status.is_informational() {
            return Err(Failure::Broken);
        }
        remove_hop_by_hop(&mut head.headers);
        if self.settings.hop == Hop::Proxy {
            add_via(&mut head.headers, head.version);
        }
        let body = if method == Method::HEAD {
            let length = head.headers.get(CONTENT_LENGTH);
            let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
            self.keep(connection);
            Body::custom(HeadBody(length))
        } else if incoming.is_end_stream() {
            self.keep(connection);
            Body::empty()
        } else {
            let timeout = self.settings.body_timeout;
            let is_kept = self.settings.hop == Hop::Proxy;
            Body::custom(ResponseBody::new(incoming, connection, timeout, is_kept))
        };
        head.version = Version::HTTP_11;
        Ok(http::Response::from_parts(head, body).into())
    }
}
