//! The lane as a Python object: the selector of an asyncio loop asks it.

use std::future::{Future as _, poll_fn};
use std::os::fd::{OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use http::Method;
use justapi_core::{
    EmbeddedLane, Error, Handler, Listen, MetricsMount, Router, Server, ServerConfig, TrailingSlash,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tokio::io::unix::AsyncFd;

use crate::event_loop::EventLoop;
use crate::handler::{AsgiHandler, PythonHandler};
use crate::interpreter::{park_hooks, watch};
use crate::mount::Mount;
use crate::native::NativePlan;
use crate::route::Plan;
use crate::websocket::{Either, SocketHandler};

/// A lane that serves while its asyncio loop waits.
#[pyclass(unsendable, module = "justapi._core")]
pub(crate) struct Lane {
    embedded: EmbeddedLane,
    event_loop: Rc<EventLoop>,
    mount: Arc<Mount>,
    /// The loop's own selector, watched by the lane's runtime.
    watched: AsyncFd<OwnedFd>,
}

/// Methods or None for all, pattern, plan or None, and whether there is a
/// WebSocket.
type GivenRoute = (Option<Vec<String>>, String, Option<Py<PyAny>>, bool);

fn failed(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

#[pymethods]
impl Lane {
    /// Serves what `descriptors` listen on, once the loop waits.
    ///
    /// `config` is a `justapi_core::ServerConfig` as JSON.
    /// `routes` holds `(methods or None, pattern, plan or None, has_websocket)`;
    /// without a plan the application answers over ASGI.
    #[new]
    #[expect(
        clippy::too_many_arguments,
        reason = "they are what a lane is made of, and only one caller names them"
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
    ) -> PyResult<Self> {
        let mut config: ServerConfig = serde_json::from_str(config)
            .map_err(|error| PyValueError::new_err(format!("the settings: {error}")))?;
        let mount = Arc::new(Mount::read(mount)?);
        let mut router = Router::new();
        if redirects_slashes {
            router = router.trailing_slash(TrailingSlash::Redirect);
        }
        for (methods, pattern, plan, has_websocket) in routes {
            let plan = plan.as_ref().map(|plan| plan.bind(py));
            router = add(router, methods, &pattern, plan, has_websocket, &mount)?;
        }
        // As with the probes, a route of the application's own wins.
        if let MetricsMount::Path(path) = &config.metrics
            && router.routes().any(|route| route.pattern == *path)
        {
            config.metrics = MetricsMount::Off;
        }
        let mut server = config.apply(Server::new(router)).map_err(failed)?;
        for counter in mount.counters.all() {
            server = server.counter(counter.metric, counter.help, Arc::clone(counter.value));
        }
        for descriptor in descriptors {
            server = server.listen(Listen::Fd(descriptor));
        }
        let lane = server
            .bind()
            .and_then(|bound| bound.embed(park_hooks()))
            .map_err(failed)?;
        let watched = lane.run_until(async { watch(selector_fd) })?;
        let event_loop = Rc::new(EventLoop::new(event_loop)?);
        event_loop.enter();
        Ok(Self {
            embedded: lane,
            event_loop,
            mount,
            watched,
        })
    }

    /// Serves until the loop has something to do, at most `timeout` seconds.
    ///
    /// Returns whether the loop's own descriptors may be ready.
    fn select(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let selecting = self.event_loop.begin_select(py)?;
        let timeout = timeout.map(|seconds| Duration::from_secs_f64(seconds.max(0.0)));
        let is_poll = timeout.is_some_and(|timeout| timeout.is_zero());
        let fired = self.embedded.run_until(async {
            let mut timer: Option<Pin<Box<tokio::time::Sleep>>> = None;
            let mut is_first = true;
            poll_fn(|cx| {
                self.event_loop.watch(cx.waker());
                if let Poll::Ready(ready) = self.watched.poll_read_ready(cx) {
                    if let Ok(mut ready) = ready {
                        ready.clear_ready();
                    }
                    return Poll::Ready(true);
                }
                if !std::mem::take(&mut is_first) && (is_poll || self.event_loop.has_news(py)) {
                    return Poll::Ready(false);
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
        Ok(fired)
    }

    /// Addresses as URLs.
    fn addresses(&self) -> Vec<String> {
        let addresses = self.embedded.running().addresses().iter();
        addresses.map(ToString::to_string).collect()
    }

    /// Stops accepting and lets what is in flight finish.
    fn drain(&self) {
        self.embedded.drain();
    }

    /// Ends what is in flight.
    fn kill(&self) {
        self.embedded.kill();
    }

    /// Whether everything was finished, once the lane has drained; else None.
    fn drained(&self) -> Option<bool> {
        self.embedded.report().map(|report| report.finished)
    }

    /// Which ways requests have taken, by name.
    fn counters(&self) -> [(&'static str, u64); 7] {
        let counters = self.mount.counters.all();
        counters.map(|counter| (counter.name, counter.value.load(Ordering::Relaxed)))
    }

    /// Requests that Python has been asked to answer.
    fn num_requests(&self) -> u64 {
        let counted = self.counters();
        counted[..5].iter().map(|(_, count)| count).sum()
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
            (Some(native), _) => {
                let handler = NativePlan::read(native)?
                    .into_handler(&mount.counters.native)
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
