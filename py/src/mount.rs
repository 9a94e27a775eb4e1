//! What all requests of one application share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::shared::report;

/// The application, and what its scopes are made of.
pub(crate) struct Mount {
    /// ASGI application.
    pub(crate) app: Py<PyAny>,
    /// `{"version": "3.0", "spec_version": …}`.
    pub(crate) asgi: Py<PyDict>,
    pub(crate) root_path: Py<PyString>,
    /// Address of the server: `(host, port)`, or None.
    pub(crate) server: Py<PyAny>,
    /// What the lifespan left for requests.
    pub(crate) state: Py<PyDict>,
    /// ASGI extensions of HTTP scopes.
    pub(crate) extensions: Py<PyDict>,
    /// `justapi.responses.Response`.
    pub(crate) response_class: Py<PyAny>,
    /// `justapi._lane` functions.
    pub(crate) helpers: Helpers,
    /// Whether a handler is cancelled when its client leaves.
    pub(crate) cancels: bool,
    pub(crate) counters: Counters,
}

/// Which ways requests have taken.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Sync handlers called on the lane.
    pub(crate) inline: Arc<AtomicU64>,
    /// Sync handlers called in a thread.
    pub(crate) threaded: Arc<AtomicU64>,
    /// Coroutines that ended at their first step.
    pub(crate) eager: Arc<AtomicU64>,
    /// Coroutines that waited for something.
    pub(crate) suspended: Arc<AtomicU64>,
    /// Requests handed to an ASGI application.
    pub(crate) asgi: Arc<AtomicU64>,
    /// Arguments that were made by the slow path.
    pub(crate) slow_path: Arc<AtomicU64>,
    /// Requests of native routes.
    pub(crate) native: Arc<AtomicU64>,
}

impl Counters {
    /// All of them, by their names in Python and among the metrics.
    ///
    /// The first five count each request that Python was asked to answer once.
    pub(crate) fn all(&self) -> [Counter<'_>; 7] {
        let counter = |name, metric, help, value| Counter {
            name,
            metric,
            help,
            value,
        };
        [
            counter(
                "inline",
                "justapi_python_inline_total",
                "Sync handlers called on the lane.",
                &self.inline,
            ),
            counter(
                "threaded",
                "justapi_python_threaded_total",
                "Sync handlers called in a thread.",
                &self.threaded,
            ),
            counter(
                "eager",
                "justapi_python_eager_total",
                "Coroutines that ended at their first step.",
                &self.eager,
            ),
            counter(
                "suspended",
                "justapi_python_suspended_total",
                "Coroutines that waited for something.",
                &self.suspended,
            ),
            counter(
                "asgi",
                "justapi_python_asgi_total",
                "Requests handed to an ASGI application.",
                &self.asgi,
            ),
            counter(
                "slow_path",
                "justapi_python_slow_path_total",
                "Requests whose arguments were made by the slow path.",
                &self.slow_path,
            ),
            counter(
                "native",
                "justapi_python_native_total",
                "Requests of native routes, which run no Python.",
                &self.native,
            ),
        ]
    }
}

/// One way that requests take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter<'a> {
    /// Name in Python.
    pub(crate) name: &'static str,
    /// Name among the metrics.
    pub(crate) metric: &'static str,
    pub(crate) help: &'static str,
    pub(crate) value: &'a Arc<AtomicU64>,
}

/// Counts one; only the lane's thread does.
pub(crate) fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Coroutine functions that the lane starts tasks with.
pub(crate) struct Helpers {
    /// `answer(response, exchange)`: sends a response, then what comes after it.
    pub(crate) answer: Py<PyAny>,
    /// `bind_and_call(plan.bind, plan.target, kind, exchange, body)`.
    pub(crate) bind_and_call: Py<PyAny>,
    /// `wait_for(awaitable)`: what it gives.
    pub(crate) wait_for: Py<PyAny>,
    /// `run_app(app, exchange)`: calls an ASGI application.
    pub(crate) run_app: Py<PyAny>,
    /// `run_socket(app, socket)`: calls an ASGI application for a WebSocket.
    pub(crate) run_socket: Py<PyAny>,
    /// `log(exception)`: shows what nobody handled.
    pub(crate) log: Py<PyAny>,
    /// `start_after(after)`: starts what runs after an answer.
    pub(crate) start_after: Py<PyAny>,
}

impl Mount {
    /// Reads what `justapi._lane` prepared.
    pub(crate) fn read(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = given.py();
        let get = |name: &str| given.getattr(name).map(Bound::unbind);
        let dict = |name: &str| -> PyResult<Py<PyDict>> {
            Ok(given.getattr(name)?.cast_into::<PyDict>()?.unbind())
        };
        let helpers = py.import(intern!(py, "justapi._lane"))?;
        let helper = |name: &str| helpers.getattr(name).map(Bound::unbind);
        Ok(Self {
            app: get("app")?,
            asgi: dict("asgi")?,
            root_path: given
                .getattr("root_path")?
                .cast_into::<PyString>()?
                .unbind(),
            server: get("server")?,
            state: dict("state")?,
            extensions: dict("extensions")?,
            response_class: py
                .import(intern!(py, "justapi.responses"))?
                .getattr("Response")?
                .unbind(),
            helpers: Helpers {
                answer: helper("answer")?,
                bind_and_call: helper("bind_and_call")?,
                wait_for: helper("wait_for")?,
                run_app: helper("run_app")?,
                run_socket: helper("run_socket")?,
                log: helper("log")?,
                start_after: helper("start_after")?,
            },
            cancels: given.getattr("cancels")?.extract()?,
            counters: Counters::default(),
        })
    }
}

impl Mount {
    /// Shows an exception that nobody handled.
    pub(crate) fn log(&self, py: Python<'_>, error: PyErr) {
        let logged = self.helpers.log.bind(py).call1((error.into_value(py),));
        report(py, logged.map(drop));
    }
}
