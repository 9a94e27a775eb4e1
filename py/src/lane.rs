//! The lane as a Python object: the selector of an asyncio loop asks it.
//!
//! Guarantee: a lane is used, and ended, by the thread that made it alone. The
//! lanes of one server share its routes and what these have learned.

use std::cell::{Cell, RefCell};
use std::future::{Future as _, poll_fn};
use std::os::fd::{OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use http::Method;
use justapi_core::{
    EmbeddedLane, Error, Handler, LaneSeat, Listen, MetricsMount, Router, Server, ServerConfig,
    TrailingSlash,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tokio::io::unix::AsyncFd;

use crate::event_loop::{Entered, EventLoop};
use crate::handler::{AsgiHandler, PythonHandler};
use crate::interpreter::{duplicate, park_hooks, watch};
use crate::layers::Stack;
use crate::mount::{Mount, enter_lane};
use crate::native::NativePlan;
use crate::on_thread::OnThread;
use crate::pipe::Pipe;
use crate::progress::Progress;
use crate::route::Plan;
use crate::websocket::{Either, SocketHandler};
use crate::witness::Witness;

/// A lane that serves while its asyncio loop waits.
#[pyclass(frozen, module = "justapi._core")]
pub(crate) struct Lane(OnThread<Inner>);

/// What stays on the thread of the loop.
struct Inner {
    embedded: EmbeddedLane,
    event_loop: Rc<EventLoop>,
    mount: Arc<Mount>,
    /// The loop's own selector, watched by the lane's runtime.
    watched: Rc<AsyncFd<OwnedFd>>,
    progress: Arc<Progress>,
    num_connected: Cell<u64>,
    /// Number among the server's lanes.
    index: usize,
    /// The server's other lanes, until somebody takes them.
    others: RefCell<Vec<LaneSeat>>,
    // Last: what the others leave behind may ask for the loop. Lanes beside
    // each other share it, whichever of them ends first.
    entered: Rc<Entered>,
}

impl Inner {
    /// Makes `seat` a lane of the calling thread.
    fn embed(
        seat: LaneSeat,
        mount: Arc<Mount>,
        event_loop: &Bound<'_, PyAny>,
        selector_fd: RawFd,
    ) -> PyResult<Self> {
        let index = seat.index();
        let progress = Arc::<Progress>::default();
        let embedded = seat.embed(park_hooks(&progress)).map_err(failed)?;
        let watched = embedded.run_until(async { watch(selector_fd) })?;
        let event_loop = Rc::new(EventLoop::new(event_loop)?);
        enter_lane(index);
        let entered = Rc::new(event_loop.enter());
        Ok(Self {
            embedded,
            event_loop,
            mount,
            watched: Rc::new(watched),
            progress,
            num_connected: Cell::new(0),
            index,
            others: RefCell::default(),
            entered,
        })
    }
}

/// A lane of a server that has no thread yet.
#[pyclass(frozen, module = "justapi._core")]
pub(crate) struct Seat {
    seat: Mutex<Option<LaneSeat>>,
    mount: Arc<Mount>,
}

#[pymethods]
impl Seat {
    /// Makes it a lane of the calling thread, once.
    fn embed(&self, event_loop: &Bound<'_, PyAny>, selector_fd: RawFd) -> PyResult<Lane> {
        let seat = {
            let mut seat = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
            seat.take()
        };
        let seat = seat.ok_or_else(|| PyRuntimeError::new_err("the lane has a thread already"))?;
        let lane = Inner::embed(seat, Arc::clone(&self.mount), event_loop, selector_fd)?;
        Ok(Lane(OnThread::new(lane)))
    }
}

/// Methods or None for all, pattern, plan or None, and whether there is a
/// WebSocket.
type GivenRoute = (Option<Vec<String>>, String, Option<Py<PyAny>>, bool);

/// Pattern of the route that takes what no other does.
const EVERYTHING: &str = "/{path:path}";

fn failed(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// A setting that cannot be used, in the words of who gave it.
fn refused(error: &Error) -> PyErr {
    let text = match error {
        Error::RouteConflict { path, existing, .. } => format!(
            "the server's route {path} and the application's {existing} match the same requests"
        ),
        Error::FilesRoot { path, source } => {
            format!("cannot serve the files of {}: {source}", path.display())
        }
        Error::Config { key, reason } => format!("`{key}`: {reason}"),
        other => other.to_string(),
    };
    PyValueError::new_err(text)
}

/// The routes of the application.
fn router_of(
    py: Python<'_>,
    routes: Vec<GivenRoute>,
    redirects_slashes: bool,
    config: &ServerConfig,
    mount: &Arc<Mount>,
) -> PyResult<Router> {
    let mut router = Router::new();
    if redirects_slashes {
        router = router.trailing_slash(TrailingSlash::Redirect);
    }
    let takes_everything = |route: &GivenRoute| route.0.is_none() && route.1 == EVERYTHING;
    let mut folders = config.files.folders.iter();
    if routes.iter().any(takes_everything) && folders.any(|(route, _)| route == "/") {
        return Err(PyValueError::new_err(
            "`server.static` on / would hide an application that answers every path itself, \
             over ASGI; serve the folder on a route of its own",
        ));
    }
    for (methods, pattern, plan, has_websocket) in routes {
        let plan = plan.as_ref().map(|plan| plan.bind(py));
        router = add(router, methods, &pattern, plan, has_websocket, mount)?;
    }
    Ok(router)
}

#[pymethods]
impl Lane {
    /// Serves what `descriptors` listen on, once the loop waits.
    ///
    /// `config` is a `justapi_core::ServerConfig` as JSON.
    /// `routes` holds `(methods or None, pattern, plan or None, has_websocket)`;
    /// without a plan the application answers over ASGI. Nobody else has the
    /// descriptors if this process `owns` them. A lane `beside` another shares
    /// its loop, and has connections in memory only. The server has
    /// `num_lanes` lanes; this is the first.
    #[new]
    #[pyo3(signature = (event_loop, selector_fd, descriptors, mount, routes, redirects_slashes,
                        config, owns=false, beside=None, num_lanes=1))]
    #[expect(
        clippy::too_many_arguments,
        reason = "they are what a lane is made of, and only few callers name them"
    )]
    fn new(
        py: Python<'_>,
        event_loop: &Bound<'_, PyAny>,
        selector_fd: RawFd,
        descriptors: Vec<RawFd>,
        mount: &Bound<'_, PyAny>,
        routes: Vec<GivenRoute>,
        redirects_slashes: bool,
        config: &str,
        owns: bool,
        beside: Option<&Bound<'_, Self>>,
        num_lanes: usize,
    ) -> PyResult<Self> {
        if num_lanes == 0 {
            return Err(PyValueError::new_err("a server has at least one lane"));
        }
        let mut config: ServerConfig = serde_json::from_str(config)
            .map_err(|error| PyValueError::new_err(format!("the settings: {error}")))?;
        let layers = mount.getattr("layers")?;
        let mount = Mount::read(mount, config.sessions.is_some(), num_lanes)?;
        let mount = Arc::new(mount);
        let router = router_of(py, routes, redirects_slashes, &config, &mount)?;
        let router = match Stack::read(&layers, &mount)? {
            Some(stack) => router.layer(stack),
            None => router,
        };
        let router = config.mount(router).map_err(|error| refused(&error))?;
        // As with the probes, a route of the application's own wins.
        if let MetricsMount::Path(path) = &config.metrics
            && router.routes().any(|route| route.pattern == *path)
        {
            config.metrics = MetricsMount::Off;
        }
        let server = config
            .apply(Server::new(router))
            .map_err(|error| refused(&error))?;
        let mut server = server.lanes(num_lanes);
        for counter in mount.counters.all() {
            for part in counter.value.parts() {
                server = server.counter(counter.metric, counter.help, part);
            }
        }
        for descriptor in descriptors {
            server = server.listen(if owns {
                Listen::OwnFd(descriptor)
            } else {
                Listen::Fd(descriptor)
            });
        }
        let bound = server.unbound().map_err(failed)?;
        if let Some(other) = beside {
            let other = other.get().0.get()?;
            let (embedded, life) = bound.embed_beside(&other.embedded).map_err(failed)?;
            other.event_loop.spawn(life);
            return Ok(Self(OnThread::new(Inner {
                embedded,
                event_loop: Rc::clone(&other.event_loop),
                mount,
                watched: Rc::clone(&other.watched),
                progress: Arc::clone(&other.progress),
                num_connected: Cell::new(0),
                index: 0,
                others: RefCell::default(),
                entered: Rc::clone(&other.entered),
            })));
        }
        let mut seats = bound.seats().map_err(failed)?;
        let first = seats.remove(0);
        let lane = Inner::embed(first, mount, event_loop, selector_fd)?;
        lane.others.replace(seats);
        Ok(Self(OnThread::new(lane)))
    }

    /// Takes the server's other lanes, each for a thread of its own.
    fn others(&self) -> PyResult<Vec<Seat>> {
        let lane = self.0.get()?;
        let others = lane.others.take().into_iter();
        let seats = others.map(|seat| Seat {
            seat: Mutex::new(Some(seat)),
            mount: Arc::clone(&lane.mount),
        });
        Ok(seats.collect())
    }

    /// Connects a client of this thread without a socket.
    ///
    /// `witness` hears of the connection's requests; one that is `secure` is
    /// taken to have come over TLS.
    fn connect(&self, witness: Py<PyAny>, secure: bool) -> PyResult<Pipe> {
        let lane = self.0.get()?;
        let number = lane.num_connected.get();
        lane.num_connected.set(number + 1);
        lane.mount.watch(number, Witness::new(witness));
        let (client, admit) = lane.embedded.connect(number, secure);
        lane.event_loop.spawn(admit);
        Ok(Pipe::new(client, &lane.event_loop, &lane.mount, number))
    }

    /// Writes a line to `descriptor` when the lane has not moved on for
    /// `seconds`, and another when it does again.
    fn watch_progress(&self, seconds: f64, descriptor: RawFd) -> PyResult<()> {
        let lane = self.0.get()?;
        let counters = lane.mount.counters.all();
        let counters = counters.map(|counter| counter.value.part(lane.index));
        let limit = Duration::from_secs_f64(seconds);
        let descriptor = duplicate(descriptor)?;
        lane.progress
            .watch(limit, descriptor, counters.into_iter().flatten().collect())?;
        Ok(())
    }

    /// Serves until the loop has something to do, at most `timeout` seconds.
    ///
    /// Returns whether the loop's own descriptors may be ready.
    fn select(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let lane = self.0.get()?;
        let (selecting, has_held) = lane.event_loop.begin_select(py)?;
        lane.progress.note();
        let timeout = timeout.map(|seconds| Duration::from_secs_f64(seconds.max(0.0)));
        let is_poll = has_held || timeout.is_some_and(|timeout| timeout.is_zero());
        let mut ending = None;
        let fired = lane.embedded.run_until(async {
            let mut timer: Option<Pin<Box<tokio::time::Sleep>>> = None;
            let mut is_first = true;
            poll_fn(|cx| {
                lane.event_loop.watch(cx.waker());
                if let Poll::Ready(ready) = lane.watched.poll_read_ready(cx) {
                    if let Ok(mut ready) = ready {
                        ready.clear_ready();
                    }
                    return Poll::Ready(true);
                }
                if !std::mem::take(&mut is_first) {
                    if is_poll {
                        return Poll::Ready(false);
                    }
                    match lane.event_loop.turn(py, cx.waker()) {
                        Ok(false) => {}
                        Ok(true) => return Poll::Ready(false),
                        Err(error) => {
                            ending = Some(error);
                            return Poll::Ready(false);
                        }
                    }
                }
                if is_poll {
                    // The runtime asks for its sockets before it polls again.
                    cx.waker().wake_by_ref();
                } else if let Some(timeout) = timeout {
                    let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
                    if timer.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(false);
                    }
                }
                Poll::Pending
            })
            .await
        });
        drop(selecting);
        ending.map_or(Ok(fired), Err)
    }

    /// Gives the loop back the callbacks that came in while it was stopped:
    /// the lane is not asked any more.
    fn put_back(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get()?.event_loop.put_back(py)
    }

    /// Addresses as URLs.
    fn addresses(&self) -> PyResult<Vec<String>> {
        let lane = self.0.get()?;
        let addresses = lane.embedded.running().addresses().iter();
        Ok(addresses.map(ToString::to_string).collect())
    }

    /// Has every lane stop accepting and finish what is in flight.
    fn drain(&self) -> PyResult<()> {
        self.0.get()?.embedded.drain();
        Ok(())
    }

    /// Has every lane end what is in flight.
    fn kill(&self) -> PyResult<()> {
        self.0.get()?.embedded.kill();
        Ok(())
    }

    /// Whether everything was finished, once this lane has drained; else None.
    fn drained(&self) -> PyResult<Option<bool>> {
        let report = self.0.get()?.embedded.report();
        Ok(report.map(|report| report.finished))
    }

    /// Which ways requests of all lanes have taken, by name.
    fn counters(&self) -> PyResult<[(&'static str, u64); 7]> {
        let lane = self.0.get()?;
        let counters = lane.mount.counters.all();
        Ok(counters.map(|counter| (counter.name, counter.value.total())))
    }

    /// Requests of all lanes that Python has been asked to answer.
    fn num_requests(&self) -> PyResult<u64> {
        let counted = self.counters()?;
        Ok(counted[..5].iter().map(|(_, count)| count).sum())
    }

    /// Threads that call blocking handlers now.
    #[staticmethod]
    fn num_handler_threads() -> usize {
        crate::pool::num_threads()
    }

    /// Threads that are within a blocking handler now.
    #[staticmethod]
    fn num_busy_threads() -> usize {
        crate::pool::num_busy()
    }
}

fn add(
    router: Router,
    methods: Option<Vec<String>>,
    pattern: &str,
    plan: Option<&Bound<'_, PyAny>>,
    has_websocket: bool,
    mount: &Arc<Mount>,
) -> PyResult<Router> {
    let bad = |error: Error| PyValueError::new_err(error.to_string());
    let native = match plan {
        Some(plan) if !plan.getattr("native")?.is_none() => Some(plan.getattr("native")?),
        _ => None,
    };
    let Some(methods) = methods else {
        return register(
            router,
            None,
            pattern,
            AsgiHandler::new(mount),
            has_websocket,
            mount,
        )
        .map_err(bad);
    };
    let mut router = router;
    for method in methods {
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| PyValueError::new_err(format!("{method:?} is no method")))?;
        let is_get = method == Method::GET && has_websocket;
        router = match (&native, plan) {
            (Some(native), plan) => {
                let limit = match plan {
                    Some(plan) => plan.getattr("max_body_bytes")?.extract()?,
                    None => None,
                };
                let handler = NativePlan::read(native)?
                    .into_handler(limit, &mount.counters.native)
                    .map_err(bad)?;
                register(router, Some(method), pattern, handler, is_get, mount)
            }
            (None, Some(plan)) => {
                let handler = PythonHandler::new(Plan::read(plan)?, mount);
                register(router, Some(method), pattern, handler, is_get, mount)
            }
            (None, None) => {
                let handler = AsgiHandler::new(mount);
                register(router, Some(method), pattern, handler, is_get, mount)
            }
        }
        .map_err(bad)?;
    }
    Ok(router)
}

fn register(
    router: Router,
    method: Option<Method>,
    pattern: &str,
    handler: impl Handler,
    has_websocket: bool,
    mount: &Arc<Mount>,
) -> Result<Router, Error> {
    if has_websocket {
        let handler = Either {
            http: handler,
            socket: SocketHandler::new(mount),
        };
        return match method {
            Some(method) => router.route(method, pattern, handler),
            None => router.any(pattern, handler),
        };
    }
    match method {
        Some(method) => router.route(method, pattern, handler),
        None => router.any(pattern, handler),
    }
}
