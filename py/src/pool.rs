//! Threads for sync handlers that wait.
//!
//! Guarantee: there are at most [`MAX_THREADS`], and no more calls wait for
//! one than was allowed, of which none has a client that has left where that
//! would keep another out; a job's context is a copy of the one that it was
//! submitted in. A thread keeps its interpreter state for its whole life. Once
//! the interpreter ends, no thread asks for it any more: it would be torn down
//! in the middle of its call, and the process with it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple};

use crate::event_loop::EventLoop;
use crate::interpreter::set_last_words;
use crate::route::Plan;
use crate::shared::{Outcome, Shared, num_departures};

/// Threads of the pool; what users of `FastAPI` know.
const MAX_THREADS: usize = 40;
/// Calls that may wait for a thread, unless told otherwise: the default of
/// `python.thread_queue`, which gives the reason.
const MAX_WAITING: usize = 1000;
/// How often the end of the last call is looked for when the pool closes.
const CLOSE_CHECK: Duration = Duration::from_millis(5);
/// A thread without work for this long ends.
const IDLE: Duration = Duration::from_secs(30);

/// One call.
struct Job {
    call: Py<PyAny>,
    arguments: Py<PyTuple>,
    shared: Arc<Shared>,
    /// Whether it is not begun once its client has left.
    cancels: bool,
    last_words: &'static str,
}

impl Job {
    /// Whether its client has left before it was begun.
    fn is_left(&self) -> bool {
        self.cancels && self.shared.has_left()
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    num_threads: usize,
    num_idle: usize,
    /// Threads that have not come to ask for a job yet.
    num_starting: usize,
    /// Departures of clients when jobs of such were last looked for.
    num_departures: u64,
    /// Whether the interpreter ends.
    is_closing: bool,
}

impl Queue {
    /// Jobs that threads are about to take, or could be started for.
    fn num_prompt(&self) -> usize {
        self.num_idle + self.num_starting + MAX_THREADS.saturating_sub(self.num_threads)
    }

    /// Whether no job more may wait where `limit` may.
    fn is_full(&self, limit: usize) -> bool {
        self.jobs.len() >= limit.saturating_add(self.num_prompt())
    }

    /// Takes out the jobs that nobody waits for any more.
    fn take_left(&mut self) -> VecDeque<Job> {
        let num_departures = num_departures();
        // A flood of calls that are refused is not to cost a look at all jobs each.
        if num_departures == self.num_departures {
            return VecDeque::new();
        }
        self.num_departures = num_departures;
        let jobs = std::mem::take(&mut self.jobs);
        let (left, kept) = jobs.into_iter().partition(Job::is_left);
        self.jobs = kept;
        left
    }
}

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Submitted {
    Taken,
    /// As many wait as may, which is that many.
    Full(usize),
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    jobs: VecDeque::new(),
    num_threads: 0,
    num_idle: 0,
    num_starting: 0,
    num_departures: 0,
    is_closing: false,
});
/// Calls that may wait for a thread.
static LIMIT: AtomicUsize = AtomicUsize::new(MAX_WAITING);
static CHANGED: Condvar = Condvar::new();
/// Whether the end of the interpreter is going to be told.
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has at most `number` calls of blocking handlers wait for a thread.
#[pyfunction]
pub(crate) fn limit_waiting_calls(number: usize) {
    LIMIT.store(number, Ordering::Relaxed);
}

/// Has a thread call the target of `plan`, unless too many calls wait for one already; the
/// result goes to `shared`.
pub(crate) fn submit(
    py: Python<'_>,
    plan: &Plan,
    arguments: &[Bound<'_, PyAny>],
    shared: &Arc<Shared>,
    cancels: bool,
) -> PyResult<Submitted> {
    let limit = LIMIT.load(Ordering::Relaxed);
    {
        let mut queue = queue();
        let left = if queue.is_full(limit) {
            queue.take_left()
        } else {
            VecDeque::new()
        };
        let is_full = queue.is_full(limit);
        drop(queue);
        // Their end may run code of the application's.
        drop(left);
        if is_full {
            return Ok(Submitted::Full(limit));
        }
    }
    if !IS_REGISTERED.swap(true, Ordering::Relaxed) {
        let atexit = py.import(intern!(py, "atexit"))?;
        let close = wrap_pyfunction!(close, py)?;
        atexit.call_method1(intern!(py, "register"), (close,))?;
    }
    let context = py
        .import(intern!(py, "contextvars"))?
        .call_method0(intern!(py, "copy_context"))?;
    let mut all = with_loop(py)?;
    all.push(plan.target.bind(py).clone());
    all.extend(arguments.iter().cloned());
    let job = Job {
        call: context.getattr(intern!(py, "run"))?.unbind(),
        arguments: PyTuple::new(py, all)?.unbind(),
        shared: Arc::clone(shared),
        cancels,
        last_words: plan.last_words,
    };
    let mut queue = queue();
    queue.jobs.push_back(job);
    if queue.num_idle > 0 {
        CHANGED.notify_one();
    }
    // A thread that was woken counts as idle until it has taken its job.
    let num_ready = queue.num_idle + queue.num_starting;
    if num_ready < queue.jobs.len() && queue.num_threads < MAX_THREADS {
        queue.num_threads += 1;
        queue.num_starting += 1;
        drop(queue);
        let spawned = thread::Builder::new()
            .name("handlers".to_owned())
            .spawn(work);
        if let Err(error) = spawned {
            let mut queue = self::queue();
            queue.num_threads -= 1;
            queue.num_starting -= 1;
            // Others will come to it, if there are any.
            if queue.num_threads > 0 {
                return Ok(Submitted::Taken);
            }
            let jobs = std::mem::take(&mut queue.jobs);
            drop(queue);
            return refuse(py, jobs, shared, error);
        }
    }
    Ok(Submitted::Taken)
}

/// What is called before a job's target, and with what, so that the target can
/// call back into the loop of this thread by means of anyio; nothing, while the
/// application has not imported that.
fn with_loop(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    static MODULES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static CALL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let modules = MODULES.import(py, "sys", "modules")?;
    if !modules.contains(intern!(py, "anyio._core._eventloop"))? {
        return Ok(Vec::new());
    }
    let Some(event_loop) = EventLoop::current() else {
        return Ok(Vec::new());
    };
    let call = CALL.import(py, "justapi._from_thread", "call_for")?;
    Ok(vec![call.clone(), event_loop.object(py)])
}

/// Ends jobs that there is no thread for; fails if that of `shared` is one.
fn refuse(
    py: Python<'_>,
    jobs: VecDeque<Job>,
    shared: &Arc<Shared>,
    error: io::Error,
) -> PyResult<Submitted> {
    let error = PyErr::from(error);
    let mut is_taken = true;
    for job in jobs {
        if Arc::ptr_eq(&job.shared, shared) {
            is_taken = false;
        } else {
            let error = error.clone_ref(py);
            job.shared.settle(Outcome::Result(Err(error)));
        }
    }
    if is_taken {
        return Ok(Submitted::Taken);
    }
    Err(error)
}

/// Number of threads that there are now.
pub(crate) fn num_threads() -> usize {
    queue().num_threads
}

/// Number of threads that have a job now.
pub(crate) fn num_busy() -> usize {
    let queue = queue();
    queue.num_threads - queue.num_idle
}

/// Ends the pool: waits for what has begun, as `concurrent.futures` does.
#[pyfunction]
fn close(py: Python<'_>) -> PyResult<()> {
    let mut queue = queue();
    queue.is_closing = true;
    let jobs = std::mem::take(&mut queue.jobs);
    drop(queue);
    drop(jobs);
    while num_busy() > 0 {
        py.detach(|| thread::sleep(CLOSE_CHECK));
        py.check_signals()?;
    }
    Ok(())
}

fn work() {
    Python::attach(|py| {
        py.detach(|| queue().num_starting -= 1);
        let mut watched = Watched::default();
        while let Some(job) = py.detach(next) {
            if job.is_left() {
                continue;
            }
            if let Err(error) = watched.follow(py) {
                error.write_unraisable(py, None);
            }
            set_last_words(job.last_words);
            let call = || job.call.bind(py).call1(job.arguments.bind(py));
            let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
                Err(PyRuntimeError::new_err("the handler's thread has panicked"))
            });
            job.shared
                .settle(Outcome::Result(result.map(Bound::unbind)));
            drop(job);
        }
    });
}

/// What watches the code of a thread: coverage, a debugger, a profiler.
///
/// `threading` hands it to its own threads as they start. These ones may have
/// been idle when it came, so it is looked for before each call.
#[derive(Default)]
struct Watched {
    trace: Option<Py<PyAny>>,
    profile: Option<Py<PyAny>>,
}

impl Watched {
    fn follow(&mut self, py: Python<'_>) -> PyResult<()> {
        static TRACE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static PROFILE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let trace = TRACE.import(py, "threading", "gettrace")?.call0()?;
        change(&mut self.trace, trace, intern!(py, "settrace"))?;
        let profile = PROFILE.import(py, "threading", "getprofile")?.call0()?;
        change(&mut self.profile, profile, intern!(py, "setprofile"))
    }
}

/// Calls this function of `sys` if another hook is wanted than was set last.
fn change(
    last: &mut Option<Py<PyAny>>,
    wanted: Bound<'_, PyAny>,
    setter: &Bound<'_, PyString>,
) -> PyResult<()> {
    let py = wanted.py();
    if last
        .as_ref()
        .map_or(wanted.is_none(), |last| wanted.is(last))
    {
        return Ok(());
    }
    py.import(intern!(py, "sys"))?
        .call_method1(setter, (&wanted,))?;
    *last = (!wanted.is_none()).then(|| wanted.unbind());
    Ok(())
}

/// The next job; `None` when the thread is not needed any more.
fn next() -> Option<Job> {
    let mut queue = queue();
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            return Some(job);
        }
        queue.num_idle += 1;
        let (woken, timeout) = CHANGED
            .wait_timeout(queue, IDLE)
            .unwrap_or_else(PoisonError::into_inner);
        queue = woken;
        if queue.is_closing {
            // For ever idle, until the process ends.
            drop(queue);
            loop {
                thread::park();
            }
        }
        queue.num_idle -= 1;
        if timeout.timed_out() && queue.jobs.is_empty() {
            queue.num_threads -= 1;
            return None;
        }
    }
}
