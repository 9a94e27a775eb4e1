//! A server: how it is configured, and what its lanes are given.
//!
//! Guarantee: a server that cannot work says so before it listens: routes,
//! TLS files and addresses are all checked by [`Server::bind`].

mod connection;
mod date;
mod embedded;
mod exchange;
mod executor;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod h2_frames;
mod h2_replies;
mod handover;
mod http1;
mod lane;
mod listener;
mod memory;
mod running;
pub(crate) mod scope;
mod stream;
mod tls;
mod tracked_body;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::{fmt, io};

use http::StatusCode;
use http::header::HeaderValue;
use rustls::ServerConfig;

pub use self::embedded::{EmbeddedLane, LaneSeat, ParkHooks};
use self::lane::App;
pub use self::listener::{BoundAddress, Listen, SharedListener, num_inherited};
use self::listener::{LaneListener, bind};
pub use self::memory::MemoryClient;
pub use self::running::{Bound, DrainReport, Running, StopSignals};
pub use self::scope::Drain;
pub(crate) use self::scope::{count_on_lane, count_rejected, with_compression, with_limits};
pub use self::tls::TlsFiles;
pub(crate) use self::tls::read_certificates;
use crate::cache::ResponseCache;
use crate::compression::Compression;
use crate::decompression::Decompression;
use crate::error::Error;
use crate::handler::inline;
use crate::health::{HealthState, Probe};
use crate::limits::Limits;
use crate::metrics::{Metrics, MetricsSource, RouteLabel};
use crate::middleware::{
    AccessLog, Builtins, Cors, Forwarded, HttpsRedirect, Middleware, RateLimit, RequestId,
    SecurityHeaders, Trace, TrustedHosts,
};
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse as _, Response};
use crate::router::Router;
use crate::session::Sessions;

/// Connections that may wait for accept; Linux caps it at `somaxconn`.
const DEFAULT_BACKLOG: u32 = 1024;

/// Where the Prometheus metrics are served.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum MetricsMount {
    /// Nowhere.
    Off,
    /// On this path of the server itself.
    Path(String),
    /// On `/metrics` of an address of its own, with the health routes.
    Address(SocketAddr),
    /// The same on a listening TCP socket that another process has bound.
    Inherited(i32),
}

/// What a server wants its operator to know.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerEvent<'a> {
    /// A connection could not be accepted; reported at most once in 10 s.
    AcceptFailed {
        /// What the operating system said.
        error: &'a io::Error,
    },
}

/// Receiver of a server's events, called on any lane.
type Observer = Box<dyn Fn(&ServerEvent<'_>) + Send + Sync>;

/// An HTTP server that is being set up.
///
/// ```no_run
/// use justapi_core::{Listen, Request, Response, Router, Server};
///
/// async fn hello(_request: Request) -> Response {
///     Response::text("hello")
/// }
///
/// # fn main() -> Result<(), justapi_core::Error> {
/// let router = Router::new().get("/hello", hello)?;
/// Server::new(router)
///     .listen(Listen::Tcp(([127, 0, 0, 1], 8000).into()))
///     .run()
/// # }
/// ```
pub struct Server {
    router: Router,
    listen: Vec<Listen>,
    lanes: usize,
    limits: Limits,
    backlog: u32,
    tls: Option<TlsFiles>,
    builtins: Builtins,
    decompression: bool,
    cache: Option<ResponseCache>,
    middleware: Vec<Box<dyn Middleware>>,
    counters: Vec<(&'static str, &'static str, Arc<AtomicU64>)>,
    metrics_sources: Vec<MetricsSource>,
    metrics: MetricsMount,
    health: bool,
    observer: Option<Observer>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("listen", &self.listen)
            .field("lanes", &self.lanes)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// A server of `router` with one lane, default limits, health routes and
    /// metrics on `/metrics`.
    pub fn new(router: Router) -> Self {
        Self {
            router,
            listen: Vec::new(),
            lanes: 1,
            limits: Limits::DEFAULT,
            backlog: DEFAULT_BACKLOG,
            tls: None,
            builtins: Builtins::default(),
            decompression: false,
            cache: None,
            middleware: Vec::new(),
            counters: Vec::new(),
            metrics_sources: Vec::new(),
            metrics: MetricsMount::Path("/metrics".into()),
            health: true,
            observer: None,
        }
    }

    /// Adds an address; without one, 127.0.0.1:8000 is used.
    #[must_use]
    pub fn listen(mut self, listen: Listen) -> Self {
        self.listen.push(listen);
        self
    }

    /// Number of lanes, at least one: one for each core that serves.
    #[must_use]
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes.max(1);
        self
    }

    /// Replaces the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Connections that may wait for accept, on each socket.
    #[must_use]
    pub fn backlog(mut self, backlog: u32) -> Self {
        self.backlog = backlog;
        self
    }

    /// Serves TLS on all TCP addresses.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Switches cross-origin resource sharing on.
    #[must_use]
    pub fn cors(mut self, cors: Cors) -> Self {
        self.builtins.cors = Some(cors);
        self
    }

    /// Switches security headers on.
    #[must_use]
    pub fn security_headers(mut self, headers: SecurityHeaders) -> Self {
        self.builtins.security_headers = Some(headers);
        self
    }

    /// Switches request ids on.
    #[must_use]
    pub fn request_id(mut self, request_id: RequestId) -> Self {
        self.builtins.request_id = Some(request_id);
        self
    }

    /// Switches the access log on.
    #[must_use]
    pub fn access_log(mut self, log: AccessLog) -> Self {
        self.builtins.access_log = Some(log);
        self
    }

    /// Takes client, scheme and host from listed proxies.
    #[must_use]
    pub fn forwarded(mut self, forwarded: Forwarded) -> Self {
        self.builtins.forwarded = Some(forwarded);
        self
    }

    /// Answers only for listed hosts; the server's own probes answer for all.
    #[must_use]
    pub fn trusted_hosts(mut self, hosts: TrustedHosts) -> Self {
        self.builtins.trusted_hosts = Some(hosts);
        self
    }

    /// Redirects plain HTTP to HTTPS; the server's own probes answer in clear.
    #[must_use]
    pub fn https_redirect(mut self, redirect: HttpsRedirect) -> Self {
        self.builtins.https_redirect = Some(redirect);
        self
    }

    /// Limits the rate of each client; the server's own probes are free.
    #[must_use]
    pub fn rate_limit(mut self, limit: RateLimit) -> Self {
        self.builtins.rate_limit = Some(limit);
        self
    }

    /// Switches sessions in cookies on.
    #[must_use]
    pub fn sessions(mut self, sessions: Sessions) -> Self {
        self.builtins.sessions = Some(sessions);
        self
    }

    /// Takes part in traces.
    #[must_use]
    pub fn trace(mut self, trace: Trace) -> Self {
        self.builtins.trace = Some(trace);
        self
    }

    /// Switches response compression on.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.builtins.compression = Some(compression);
        self
    }

    /// Whether compressed request bodies are decoded for the handlers.
    ///
    /// See [`Limits::max_decompression_ratio`] for what keeps bombs out.
    #[must_use]
    pub fn decompression(mut self, decode: bool) -> Self {
        self.decompression = decode;
        self
    }

    /// Shows the counters of a response cache among the metrics.
    #[must_use]
    pub fn response_cache(mut self, cache: &ResponseCache) -> Self {
        self.cache = Some(cache.clone());
        self
    }

    /// Adds middleware inside of what was added before.
    #[must_use]
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Box::new(middleware));
        self
    }

    /// Shows a counter of the application's own among the metrics.
    ///
    /// `name` ends in `_total`, and `help` says what is counted; both are shown as they are.
    /// Of counters of one name, such as each lane's own, the sum is shown.
    #[must_use]
    pub fn counter(
        mut self,
        name: &'static str,
        help: &'static str,
        value: Arc<AtomicU64>,
    ) -> Self {
        self.counters.push((name, help, value));
        self
    }

    /// Shows what `render` returns among the metrics: whole families in the
    /// Prometheus text format 0.0.4, under names that nobody else uses.
    ///
    /// It is called on a lane each time that somebody asks, and must not wait.
    #[must_use]
    pub fn metrics_source(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics_sources.push(MetricsSource::new(render));
        self
    }

    /// Where metrics are served.
    #[must_use]
    pub fn metrics(mut self, mount: MetricsMount) -> Self {
        self.metrics = mount;
        self
    }

    /// Whether `/health`, `/live` and `/ready` are served.
    #[must_use]
    pub fn health(mut self, serve: bool) -> Self {
        self.health = serve;
        self
    }

    /// Calls `observer` on what the operator should know.
    #[must_use]
    pub fn observer(mut self, observer: impl Fn(&ServerEvent<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Serves until SIGINT or SIGTERM, then drains.
    ///
    /// # Errors
    /// As [`Self::bind`] and [`Bound::run`].
    pub fn run(self) -> Result<(), Error> {
        let signals = StopSignals::watch()?;
        self.bind()?.run(signals).map(drop)
    }

    /// Binds and starts every lane on a thread of its own.
    ///
    /// # Errors
    /// As [`Self::bind`] and [`Bound::start`].
    pub fn start(self) -> Result<Running, Error> {
        self.bind()?.start()
    }

    /// Checks everything and binds all addresses; nothing is accepted yet.
    ///
    /// # Errors
    /// When an address cannot be bound, TLS files do not work, a limit is too
    /// high for the parsers, or a configured path is already a route.
    pub fn bind(mut self) -> Result<Bound, Error> {
        if self.listen.is_empty() {
            self.listen.push(Listen::Tcp(([127, 0, 0, 1], 8000).into()));
        }
        self.unbound()
    }

    /// As [`Self::bind`], and without an address where none was named: for
    /// clients in this process, see [`EmbeddedLane::connect`].
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn unbound(self) -> Result<Bound, Error> {
        self.limits.check()?;
        let tls = match &self.tls {
            Some(files) => Some(files.load()?),
            None => None,
        };
        let mut sockets = Vec::new();
        let backlog = i32::try_from(self.backlog).unwrap_or(i32::MAX);
        for listen in &self.listen {
            sockets.extend(bind(listen, self.lanes, backlog, tls.is_some())?);
        }
        let admin_socket = match &self.metrics {
            MetricsMount::Address(address) => Some(bind_admin(&Listen::Tcp(*address))?),
            MetricsMount::Inherited(fd) => Some(bind_admin(&Listen::Fd(*fd))?),
            MetricsMount::Off | MetricsMount::Path(_) => None,
        };
        let lanes = self.lanes;
        let health = Arc::new(HealthState::new());
        let admin_address = admin_socket.as_ref().map(|(_, address)| *address);
        let (app, admin) = self.into_apps(tls, &health, admin_address)?;
        Ok(Bound::new(
            lanes,
            app,
            sockets,
            admin.zip(admin_socket),
            health,
        ))
    }

    /// The application of the main addresses, and that of the metrics address.
    fn into_apps(
        self,
        tls: Option<Arc<ServerConfig>>,
        health: &Arc<HealthState>,
        admin_address: Option<SocketAddr>,
    ) -> Result<(Arc<App>, Option<Arc<App>>), Error> {
        let metrics = Arc::new(OnceLock::new());
        let mut router = self.router;
        let mut builtins = self.builtins;
        if self.health {
            builtins.probe_paths = own_probes(&router);
            router = mount_health(router, health)?;
        }
        if let MetricsMount::Path(path) = &self.metrics {
            router = mount_metrics(router, path, &metrics)?;
        }
        let mut admin = None;
        if let Some(address) = admin_address {
            let router = mount_health(Router::new(), health)?;
            let router = mount_metrics(router, "/metrics", &metrics)?;
            let mut app = App::new(router, self.limits.clone(), 1);
            if builtins.trusted_hosts.is_some() && address.ip().is_loopback() {
                app.builtins.trusted_hosts = Some(TrustedHosts::loopback());
            }
            admin = Some(app);
        }
        let mut app = App::new(router, self.limits, self.lanes);
        app.middleware = self.middleware;
        let own = Arc::get_mut(&mut app.metrics).expect("nobody else has the metrics yet");
        own.add_counters(builtins.counters());
        own.add_counters(self.counters);
        own.add_sources(self.metrics_sources);
        app.builtins = builtins.prepared();
        app.builtins.decompression = self.decompression.then(|| Decompression::new(&app.limits));
        app.tls = tls;
        app.observer = self.observer;
        if let Some(cache) = self.cache {
            app.metrics.watch_cache(cache);
        }
        metrics.get_or_init(|| Arc::clone(&app.metrics));
        Ok((Arc::new(app), admin.map(Arc::new)))
    }
}

impl App {
    fn new(router: Router, limits: Limits, lanes: usize) -> Self {
        let labels: Vec<RouteLabel> = router
            .routes()
            .map(|route| RouteLabel {
                method: route.method,
                pattern: route.pattern,
            })
            .collect();
        let patterns = labels.iter().map(|label| label.pattern.clone()).collect();
        Self {
            router,
            middleware: Vec::new(),
            builtins: Builtins::default(),
            limits,
            metrics: Arc::new(Metrics::new(labels, lanes)),
            tls: None,
            num_connections: AtomicUsize::new(0),
            body_memory: Arc::default(),
            patterns,
            observer: None,
        }
    }
}

fn bind_admin(listen: &Listen) -> Result<(LaneListener, SocketAddr), Error> {
    let mut bound = bind(listen, 1, 16, false)?;
    let bound = bound.pop().expect("one address gives one socket");
    match (bound.address, bound.lanes.into_iter().next()) {
        (BoundAddress::Tcp { address, .. }, Some(socket)) => Ok((socket, address)),
        (address, _) => Err(Error::Config {
            key: "metrics.addr",
            reason: format!("{address} is no TCP address"),
        }),
    }
}

/// Paths of the probes that [`mount_health`] will add.
fn own_probes(router: &Router) -> Vec<&'static str> {
    let is_taken = |path: &str| router.routes().any(|route| route.pattern == path);
    let paths = Probe::ALL.map(Probe::path);
    paths.into_iter().filter(|path| !is_taken(path)).collect()
}

/// Adds the health routes that the application does not have itself.
fn mount_health(mut router: Router, health: &Arc<HealthState>) -> Result<Router, Error> {
    for probe in Probe::ALL {
        if router.routes().any(|route| route.pattern == probe.path()) {
            continue;
        }
        let health = Arc::clone(health);
        let answer = inline(move |_: Request| health.answer(probe));
        router = router.get(probe.path(), answer)?;
    }
    Ok(router)
}

fn mount_metrics(
    router: Router,
    path: &str,
    metrics: &Arc<OnceLock<Arc<Metrics>>>,
) -> Result<Router, Error> {
    let metrics = Arc::clone(metrics);
    router.get(
        path,
        inline(move |_: Request| match metrics.get() {
            Some(metrics) => Response::with_content(
                HeaderValue::from_static(Metrics::CONTENT_TYPE),
                metrics.render().into(),
            ),
            None => Problem::new(StatusCode::SERVICE_UNAVAILABLE).into_response(),
        }),
    )
}
