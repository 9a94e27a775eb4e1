//! What all requests of one application share.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::shared::report;
use crate::witness::Witness;

/// The application, and what its scopes are made of.
pub(crate) struct Mount {
    /// The application as its scopes name it.
    pub(crate) app: Py<PyAny>,
    /// What is called over ASGI: the application inside of what the lane does.
    pub(crate) called: Py<PyAny>,
    /// Whether calling that only makes a coroutine.
    pub(crate) is_coroutine_function: bool,
    /// What a scope is a copy of: that of a plain request without a query.
    pub(crate) scope: Py<PyDict>,
    /// Address of clients in memory: `(host, port)`, or None.
    pub(crate) client: Py<PyAny>,
    /// Who watches the connections in memory, by their numbers.
    witnesses: Mutex<HashMap<u64, Witness>>,
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
    /// Whether the server opens sessions.
    pub(crate) has_sessions: bool,
    pub(crate) counters: Counters,
}

thread_local! {
    /// Number of the calling thread's lane.
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// A counter that every lane has a part of.
#[derive(Clone, Debug)]
pub(crate) struct LaneCounter(Arc<[Arc<AtomicU64>]>);

impl LaneCounter {
    /// The sum over all lanes.
    pub(crate) fn total(&self) -> u64 {
        let parts = self.0.iter();
        parts.map(|part| part.load(Ordering::Relaxed)).sum()
    }

    /// The part of lane `index`.
    pub(crate) fn part(&self, index: usize) -> Option<Arc<AtomicU64>> {
        self.0.get(index).map(Arc::clone)
    }

    /// The part of each lane.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Arc<AtomicU64>> {
        self.0.iter().map(Arc::clone)
    }
}

/// Which ways requests have taken.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Sync handlers called on the lane.
    pub(crate) inline: LaneCounter,
    /// Sync handlers called in a thread.
    pub(crate) threaded: LaneCounter,
    /// Coroutines that ended at their first step.
    pub(crate) eager: LaneCounter,
    /// Coroutines that waited for something.
    pub(crate) suspended: LaneCounter,
    /// Requests handed to an ASGI application.
    pub(crate) asgi: LaneCounter,
    /// Arguments that were made by the slow path.
    pub(crate) slow_path: LaneCounter,
    /// Requests of native routes.
    pub(crate) native: LaneCounter,
}

impl Counters {
    fn new(num_lanes: usize) -> Self {
        // Lane by lane, so that what two lanes write lies apart.
        let lanes: Vec<[Arc<AtomicU64>; 7]> = (0..num_lanes).map(|_| Default::default()).collect();
        let counter = |index: usize| {
            let parts = lanes.iter().map(|lane| Arc::clone(&lane[index]));
            LaneCounter(parts.collect())
        };
        Self {
            inline: counter(0),
            threaded: counter(1),
            eager: counter(2),
            suspended: counter(3),
            asgi: counter(4),
            slow_path: counter(5),
            native: counter(6),
        }
    }

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
    pub(crate) value: &'a LaneCounter,
}

/// Makes the calling thread that of lane `index`.
pub(crate) fn enter_lane(index: usize) {
    LANE.set(index);
}

/// Counts one in the part of the thread's lane, which nobody else writes to.
pub(crate) fn count(counter: &LaneCounter) {
    // A lane of a test's is a server of its own on any thread.
    if let Some(part) = counter.0.get(LANE.get()).or_else(|| counter.0.first()) {
        part.store(part.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
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
    /// `start_after(response, witness)`: starts what runs after an answer.
    pub(crate) start_after: Py<PyAny>,
}

impl Mount {
    /// Reads what `justapi._lane` prepared, for that many lanes.
    pub(crate) fn read(
        given: &Bound<'_, PyAny>,
        has_sessions: bool,
        num_lanes: usize,
    ) -> PyResult<Self> {
        let py = given.py();
        let get = |name: &str| given.getattr(name).map(Bound::unbind);
        let dict = |name: &str| -> PyResult<Py<PyDict>> {
            Ok(given.getattr(name)?.cast_into::<PyDict>()?.unbind())
        };
        let helpers = py.import(intern!(py, "justapi._lane"))?;
        let helper = |name: &str| helpers.getattr(name).map(Bound::unbind);
        Ok(Self {
            app: get("app")?,
            called: get("called")?,
            is_coroutine_function: given.getattr("is_coroutine_function")?.extract()?,
            scope: dict("scope")?,
            client: get("client")?,
            witnesses: Mutex::default(),
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
            has_sessions,
            counters: Counters::new(num_lanes),
        })
    }
}

impl Mount {
    fn witnesses(&self) -> MutexGuard<'_, HashMap<u64, Witness>> {
        self.witnesses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `witness` told of what becomes of connection `number`.
    pub(crate) fn watch(&self, number: u64, witness: Witness) {
        self.witnesses().insert(number, witness);
    }

    /// Who is told of what becomes of connection `number`.
    pub(crate) fn witness(&self, number: u64) -> Option<Witness> {
        self.witnesses().get(&number).cloned()
    }

    /// Watches connection `number` no more; its requests keep their witness.
    pub(crate) fn forget_witness(&self, number: u64) {
        let forgotten = self.witnesses().remove(&number);
        drop(forgotten);
    }

    /// Shows an exception that nobody handled, to the request's witness, too.
    pub(crate) fn failed(&self, py: Python<'_>, witness: Option<&Witness>, error: PyErr) {
        if let Some(witness) = witness {
            witness.failed(py, &error);
        }
        self.log(py, error);
    }

    /// Shows an exception that nobody handled.
    pub(crate) fn log(&self, py: Python<'_>, error: PyErr) {
        let logged = self.helpers.log.bind(py).call1((error.into_value(py),));
        report(py, logged.map(drop));
    }
}
