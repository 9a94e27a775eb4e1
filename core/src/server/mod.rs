//! A server: its configuration, its lanes, its end.
//!
//! Guarantee: after a stop signal the server takes what already waits in its
//! backlogs, finishes what is in flight within the grace time, and returns; a
//! second signal ends it at once.

mod connection;
mod exchange;
mod executor;
mod lane;
mod listener;
mod stream;
mod tls;
mod tracked_body;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::{fmt, io, thread};

use http::StatusCode;
use http::header::HeaderValue;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use self::lane::{App, Lane, Listener};
pub use self::listener::{BoundAddress, Listen, num_inherited};
use self::listener::{LaneListener, bind};
pub use self::tls::TlsFiles;
use crate::error::Error;
use crate::handler::inline;
use crate::health::{HealthState, Probe};
use crate::limits::Limits;
use crate::metrics::{Metrics, RouteLabel};
use crate::middleware::{AccessLog, Builtins, Cors, Middleware, RequestId, SecurityHeaders};
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse as _, Response};
use crate::router::Router;

/// Connections that may wait for accept; Linux caps it at `somaxconn`.
const DEFAULT_BACKLOG: u32 = 1024;

/// Where the Prometheus metrics are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsMount {
    /// Nowhere.
    Off,
    /// On this path of the server itself.
    Path(String),
    /// On `/metrics` of an address of its own, with the health routes.
    Address(SocketAddr),
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

/// Life of a server, as its lanes see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    Draining,
    Killed,
}

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
    middleware: Vec<Box<dyn Middleware>>,
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
            middleware: Vec::new(),
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

    /// Adds middleware inside of what was added before.
    #[must_use]
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Box::new(middleware));
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
    /// As [`Self::start`].
    pub fn run(self) -> Result<(), Error> {
        let signals = StopSignals::watch()?;
        self.start()?.drain_on(signals).map(drop)
    }

    /// Binds, starts the lanes and returns once all of them serve.
    ///
    /// # Errors
    /// When an address cannot be bound, TLS files do not work, a configured
    /// path is already a route, or a thread cannot be started.
    pub fn start(self) -> Result<Running, Error> {
        let tls = match &self.tls {
            Some(files) => Some(TlsAcceptor::from(files.load()?)),
            None => None,
        };
        let mut bound = Vec::new();
        let default = [Listen::Tcp(([127, 0, 0, 1], 8000).into())];
        let listen = if self.listen.is_empty() {
            &default[..]
        } else {
            &self.listen
        };
        let backlog = i32::try_from(self.backlog).unwrap_or(i32::MAX);
        for listen in listen {
            bound.extend(bind(listen, self.lanes, backlog, tls.is_some())?);
        }
        let admin_listener = match &self.metrics {
            MetricsMount::Address(address) => Some(bind_admin(*address)?),
            _ => None,
        };

        let mut running = Running::new(Arc::new(HealthState::new()));
        let mut sockets: Vec<Vec<LaneListener>> = (0..self.lanes).map(|_| Vec::new()).collect();
        for bound in bound {
            running.addresses.push(bound.address);
            running.unlink.extend(bound.unlink);
            for (lane, socket) in sockets.iter_mut().zip(bound.lanes) {
                lane.push(socket);
            }
        }
        let (app, admin) = self.into_apps(tls, &running.health)?;
        let mut admin = admin.zip(admin_listener);
        for (index, sockets) in sockets.into_iter().enumerate() {
            running.spawn(index, Arc::clone(&app), sockets, admin.take())?;
        }
        running.health.set_ready();
        Ok(running)
    }

    /// The application of the main addresses, and that of the metrics address.
    fn into_apps(
        self,
        tls: Option<TlsAcceptor>,
        health: &Arc<HealthState>,
    ) -> Result<(Arc<App>, Option<Arc<App>>), Error> {
        let metrics = Arc::new(OnceLock::new());
        let mut router = self.router;
        if self.health {
            router = mount_health(router, health)?;
        }
        let mut admin = None;
        match self.metrics {
            MetricsMount::Off => {}
            MetricsMount::Path(path) => router = mount_metrics(router, &path, &metrics)?,
            MetricsMount::Address(_) => {
                let router = mount_health(Router::new(), health)?;
                let router = mount_metrics(router, "/metrics", &metrics)?;
                let limits = self.limits.clone();
                admin = Some(App::new(router, limits, 1));
            }
        }
        let mut app = App::new(router, self.limits, self.lanes);
        app.middleware = self.middleware;
        app.builtins = self.builtins;
        app.tls = tls;
        app.observer = self.observer;
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
            patterns,
            observer: None,
        }
    }
}

fn bind_admin(address: SocketAddr) -> Result<(LaneListener, SocketAddr), Error> {
    let mut bound = bind(&Listen::Tcp(address), 1, 16, false)?;
    let bound = bound.pop().expect("one address gives one socket");
    match (bound.address, bound.lanes.into_iter().next()) {
        (BoundAddress::Tcp { address, .. }, Some(socket)) => Ok((socket, address)),
        _ => unreachable!("a TCP address gives one TCP socket"),
    }
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

/// A server whose lanes serve.
#[derive(Debug)]
pub struct Running {
    addresses: Vec<BoundAddress>,
    metrics_address: Option<SocketAddr>,
    lanes: Vec<JoinHandle<bool>>,
    phase: watch::Sender<Phase>,
    health: Arc<HealthState>,
    unlink: Vec<PathBuf>,
}

/// SIGINT and SIGTERM, caught from [`StopSignals::watch`] on.
///
/// Made before the server starts, so that a signal that comes while it starts
/// is not lost.
#[derive(Debug)]
pub struct StopSignals(Signals);

impl StopSignals {
    /// Takes both signals over from their default, which ends the process.
    ///
    /// # Errors
    /// [`Error::Signals`] when the system does not let us.
    pub fn watch() -> Result<Self, Error> {
        Signals::new([SIGINT, SIGTERM])
            .map(Self)
            .map_err(|source| Error::Signals { source })
    }
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Whether all that was in flight was finished within the grace time.
    pub finished: bool,
    /// The signal that started the drain.
    pub signal: Option<i32>,
}

/// What the thread that waits for a server's end is told.
enum Notice {
    Signal(i32),
    LanesEnded(bool),
}

impl Running {
    fn new(health: Arc<HealthState>) -> Self {
        Self {
            addresses: Vec::new(),
            metrics_address: None,
            lanes: Vec::new(),
            phase: watch::Sender::new(Phase::Serving),
            health,
            unlink: Vec::new(),
        }
    }

    /// Starts one lane and waits until it serves.
    fn spawn(
        &mut self,
        index: usize,
        app: Arc<App>,
        sockets: Vec<LaneListener>,
        admin: Option<(Arc<App>, (LaneListener, SocketAddr))>,
    ) -> Result<(), Error> {
        let error = |source| Error::Lane {
            lane: index,
            source,
        };
        let admin = admin.map(|(app, (socket, address))| {
            self.metrics_address = Some(address);
            (app, socket)
        });
        let (report, started) = mpsc::channel();
        let phase = self.phase.subscribe();
        let handle = thread::Builder::new()
            .name(format!("lane-{index}"))
            .spawn(move || run_lane(index, app, sockets, admin, phase, &report))
            .map_err(error)?;
        self.lanes.push(handle);
        started
            .recv()
            .unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
            .map_err(error)
    }

    /// Addresses as they were bound, in the order of [`Server::listen`].
    pub fn addresses(&self) -> &[BoundAddress] {
        &self.addresses
    }

    /// Address of the metrics, where they have one of their own.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Stops accepting, finishes what is in flight, and returns.
    pub fn drain(mut self) -> DrainReport {
        self.begin_drain();
        let finished = join(std::mem::take(&mut self.lanes));
        DrainReport {
            finished,
            signal: None,
        }
    }

    /// Waits for a stop signal, then drains; a second signal ends at once.
    ///
    /// # Errors
    /// [`Error::Signals`] when the threads that wait cannot be started.
    pub fn drain_on(mut self, signals: StopSignals) -> Result<DrainReport, Error> {
        let error = |source| Error::Signals { source };
        let StopSignals(mut signals) = signals;
        let handle = signals.handle();
        let (notices, received) = mpsc::channel();
        let from_signals = notices.clone();
        let watcher = thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    if from_signals.send(Notice::Signal(signal)).is_err() {
                        return;
                    }
                }
            })
            .map_err(error)?;
        let lanes = std::mem::take(&mut self.lanes);
        thread::Builder::new()
            .name("lanes".into())
            .spawn(move || notices.send(Notice::LanesEnded(join(lanes))))
            .map_err(error)?;

        let mut first = None;
        let finished = loop {
            match received.recv() {
                Ok(Notice::Signal(signal)) if first.is_none() => {
                    first = Some(signal);
                    self.begin_drain();
                }
                Ok(Notice::Signal(_)) => {
                    self.phase.send_replace(Phase::Killed);
                }
                Ok(Notice::LanesEnded(finished)) => break finished,
                Err(mpsc::RecvError) => break false,
            }
        };
        handle.close();
        drop(watcher.join());
        Ok(DrainReport {
            finished,
            signal: first,
        })
    }

    fn begin_drain(&self) {
        self.health.set_draining();
        self.phase.send_replace(Phase::Draining);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.phase.send_replace(Phase::Killed);
        for path in &self.unlink {
            // Somebody may have removed it; there is nothing else to do.
            drop(std::fs::remove_file(path));
        }
    }
}

/// Waits for all lanes; whether each finished what it had.
fn join(lanes: Vec<JoinHandle<bool>>) -> bool {
    let mut finished = true;
    for lane in lanes {
        finished &= lane.join().unwrap_or(false);
    }
    finished
}

/// Body of a lane's thread.
fn run_lane(
    index: usize,
    app: Arc<App>,
    sockets: Vec<LaneListener>,
    admin: Option<(Arc<App>, LaneListener)>,
    phase: watch::Receiver<Phase>,
    report: &mpsc::Sender<io::Result<()>>,
) -> bool {
    let runtime = match Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(LocalOptions::default())
    {
        Ok(runtime) => runtime,
        Err(error) => {
            drop(report.send(Err(error)));
            return false;
        }
    };
    runtime.block_on(async {
        let registered = sockets
            .into_iter()
            .map(Listener::register)
            .collect::<io::Result<Vec<_>>>();
        let listeners = match registered {
            Ok(listeners) => listeners,
            Err(error) => {
                drop(report.send(Err(error)));
                return false;
            }
        };
        if let Some((app, socket)) = admin {
            match Listener::register(socket) {
                Ok(listener) => {
                    let lane = Lane::new(app, 0);
                    tokio::task::spawn_local(lane.run(vec![listener], phase.clone()));
                }
                Err(error) => {
                    drop(report.send(Err(error)));
                    return false;
                }
            }
        }
        drop(report.send(Ok(())));
        Lane::new(app, index).run(listeners, phase).await
    })
}
