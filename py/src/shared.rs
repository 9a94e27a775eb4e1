//! What the lane, the handler's task and the ASGI callables of one request
//! have in common.
//!
//! Guarantee: the lane is given one answer, whoever makes it first; once the
//! client has left, everybody who waits for it learns of it once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use justapi_core::{Request, Response};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::event_loop::EventLoop;
use crate::mount::Mount;
use crate::stream::Stream;
use crate::witness::Witness;

/// Clients that have left without the whole of their answer.
static NUM_DEPARTURES: AtomicU64 = AtomicU64::new(0);
/// Waiting futures that are not worth a look for cancelled ones.
const MIN_SWEPT: usize = 16;

/// What the lane waits for.
pub(crate) enum Outcome {
    /// What the handler returned or raised.
    Result(PyResult<Py<PyAny>>),
    /// An answer that is ready to be sent.
    Response(Response),
}

/// State of one request that goes on after the first call.
#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    witness: Option<Witness>,
}

#[derive(Default)]
struct State {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
    is_answered: bool,
    has_left: bool,
    /// Whether the whole answer was handed over before that.
    has_all: bool,
    /// Futures of those who wait for the client to leave.
    leavers: Vec<Py<PyAny>>,
    /// Number of `leavers` at which the cancelled ones are let go.
    sweep_at: usize,
    task: Option<Py<PyAny>>,
    stream: Option<Arc<Stream>>,
}

impl Shared {
    /// That of `request`.
    pub(crate) fn new(mount: &Mount, request: &Request) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            witness: Witness::of(mount, request),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who watches the request, if anybody does.
    pub(crate) const fn witness(&self) -> Option<&Witness> {
        self.witness.as_ref()
    }

    /// Gives the lane what it waits for; dropped if it has an answer or does
    /// not wait any more.
    pub(crate) fn settle(&self, outcome: Outcome) {
        let mut state = self.state();
        if state.is_answered || state.has_left {
            return;
        }
        if matches!(outcome, Outcome::Response(_)) {
            state.is_answered = true;
        }
        let replaced = state.outcome.replace(outcome);
        let waker = state.waker.take();
        drop(state);
        // Its end may run code of the application's.
        drop(replaced);
        if let Some(waker) = waker {
            match EventLoop::current() {
                Some(event_loop) => event_loop.wake(waker),
                None => waker.wake(),
            }
        }
    }

    /// Waits for the outcome.
    pub(crate) fn poll_outcome(&self, cx: &Context<'_>) -> Poll<Outcome> {
        let mut state = self.state();
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Takes an answer that is there already.
    pub(crate) fn take_response(&self) -> Option<Response> {
        match self.state().outcome.take() {
            Some(Outcome::Response(response)) => Some(response),
            _ => None,
        }
    }

    /// Whether the lane has been given an answer.
    pub(crate) fn is_answered(&self) -> bool {
        self.state().is_answered
    }

    /// Notes that an answer was made without going through [`Self::settle`].
    pub(crate) fn set_answered(&self) {
        self.state().is_answered = true;
    }

    pub(crate) fn has_left(&self) -> bool {
        self.state().has_left
    }

    /// Whether the client went away without the whole of its answer.
    pub(crate) fn has_left_early(&self) -> bool {
        let state = self.state();
        state.has_left && !state.has_all
    }

    /// Notes that the whole answer was handed over.
    pub(crate) fn set_has_all(&self) {
        self.state().has_all = true;
    }

    /// The task that is to be cancelled when the client leaves.
    pub(crate) fn set_task(&self, task: Option<Py<PyAny>>) {
        let replaced = std::mem::replace(&mut self.state().task, task);
        drop(replaced);
    }

    pub(crate) fn stream(&self) -> Option<Arc<Stream>> {
        self.state().stream.clone()
    }

    pub(crate) fn set_stream(&self, stream: &Arc<Stream>) {
        self.state().stream = Some(Arc::clone(stream));
    }

    /// Keeps `future` until the client leaves; false if it has left.
    pub(crate) fn watch_leaving(&self, future: &Bound<'_, PyAny>) -> bool {
        let py = future.py();
        let mut state = self.state();
        if state.has_left {
            return false;
        }
        state.leavers.push(future.clone().unbind());
        if state.leavers.len() <= state.sweep_at.max(MIN_SWEPT) {
            return true;
        }
        // Some applications ask again and again and cancel each time.
        let mut leavers = std::mem::take(&mut state.leavers);
        drop(state);
        leavers.retain(|future| !is_done(future.bind(py)));
        let mut state = self.state();
        state.sweep_at = leavers.len() * 2;
        state.leavers.append(&mut leavers);
        let has_left = state.has_left;
        drop(state);
        if has_left {
            self.leave(py);
        }
        true
    }

    /// Notes that the lane has the answer; the end of a stream comes later.
    pub(crate) fn complete(&self) {
        if self.stream().is_none() {
            self.set_has_all();
            Python::attach(|py| self.leave(py));
        }
    }

    /// Notes that the client has left, or has all that it will get.
    ///
    /// The handler's task is cancelled if the lane had no answer yet.
    pub(crate) fn leave(&self, py: Python<'_>) {
        let mut state = self.state();
        if !state.has_left && !state.has_all {
            NUM_DEPARTURES.fetch_add(1, Ordering::Relaxed);
        }
        state.has_left = true;
        let leavers = std::mem::take(&mut state.leavers);
        let task = state.task.take();
        let is_answered = state.is_answered;
        // Nobody will ask for it: it would keep the request alive, which
        // keeps it alive.
        let outcome = state.outcome.take();
        drop(state);
        drop(outcome);
        for future in leavers {
            let message = PyDict::new(py);
            report(py, message.set_item("type", "http.disconnect"));
            resolve(future.bind(py), message.into_any().unbind());
        }
        if !is_answered && let Some(task) = task {
            report(py, task.bind(py).call_method0("cancel").map(drop));
        }
        if let Some(event_loop) = EventLoop::current() {
            event_loop.after_call(py);
        }
    }
}

/// How many clients have left without the whole of their answer.
pub(crate) fn num_departures() -> u64 {
    NUM_DEPARTURES.load(Ordering::Relaxed)
}

/// Calls into Python; a panic that comes back from there is an error as others are.
///
/// A panic of ours below a Python function is an exception in it. Handed that
/// exception, pyo3 goes on to panic, past what has to be told of the end.
pub(crate) fn guarded<T>(call: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no message");
        Err(PyRuntimeError::new_err(format!(
            "Rust code has panicked: {text}"
        )))
    })
}

/// What a task has come to, which is done.
pub(crate) fn result_of<'py>(task: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    guarded(|| task.call_method0(intern!(task.py(), "result")))
}

/// Gives a future its result unless it is done, for instance cancelled.
pub(crate) fn resolve(future: &Bound<'_, PyAny>, value: Py<PyAny>) {
    if !is_done(future) {
        let set = future.call_method1(intern!(future.py(), "set_result"), (value,));
        report(future.py(), set.map(drop));
    }
}

/// Whether a future has its result, or was cancelled.
pub(crate) fn is_done(future: &Bound<'_, PyAny>) -> bool {
    let done = future.call_method0(intern!(future.py(), "done"));
    done.and_then(|done| done.is_truthy()).unwrap_or(true)
}

/// Shows an error that nobody can be told of.
pub(crate) fn report(py: Python<'_>, result: PyResult<()>) {
    if let Err(error) = result {
        error.write_unraisable(py, None);
    }
}
