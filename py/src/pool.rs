//! Threads for sync handlers that wait.
//!
//! Guarantee: there are at most [`MAX_THREADS`]; a job's context is a copy of
//! the one that it was submitted in. A thread keeps its interpreter state for
//! its whole life. Once the interpreter ends, no thread asks for it any more:
//! it would be torn down in the middle of its call, and the process with it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::shared::{Outcome, Shared};

/// Threads of the pool; what users of `FastAPI` know.
const MAX_THREADS: usize = 40;
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
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    num_threads: usize,
    num_idle: usize,
    /// Whether the interpreter ends.
    is_closing: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    jobs: VecDeque::new(),
    num_threads: 0,
    num_idle: 0,
    is_closing: false,
});
static CHANGED: Condvar = Condvar::new();
/// Whether the end of the interpreter is going to be told.
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a thread call `target`; the result goes to `shared`.
pub(crate) fn submit(
    py: Python<'_>,
    target: &Bound<'_, PyAny>,
    arguments: &[Bound<'_, PyAny>],
    shared: &Arc<Shared>,
    cancels: bool,
) -> PyResult<()> {
    if !IS_REGISTERED.swap(true, Ordering::Relaxed) {
        let atexit = py.import(intern!(py, "atexit"))?;
        let close = wrap_pyfunction!(close, py)?;
        atexit.call_method1(intern!(py, "register"), (close,))?;
    }
    let context = py
        .import(intern!(py, "contextvars"))?
        .call_method0(intern!(py, "copy_context"))?;
    let mut all = vec![target.clone()];
    all.extend(arguments.iter().cloned());
    let job = Job {
        call: context.getattr(intern!(py, "run"))?.unbind(),
        arguments: PyTuple::new(py, all)?.unbind(),
        shared: Arc::clone(shared),
        cancels,
    };
    let mut queue = queue();
    queue.jobs.push_back(job);
    if queue.num_idle > 0 {
        CHANGED.notify_one();
    }
    // A thread that was woken counts as idle until it has taken its job.
    if queue.num_idle < queue.jobs.len() && queue.num_threads < MAX_THREADS {
        queue.num_threads += 1;
        drop(queue);
        let spawned = thread::Builder::new()
            .name("handlers".to_owned())
            .spawn(work);
        if let Err(error) = spawned {
            let mut queue = self::queue();
            queue.num_threads -= 1;
            // Others will come to it, if there are any.
            let job = (queue.num_threads == 0).then(|| queue.jobs.pop_back());
            drop(queue);
            if job.is_some() {
                return Err(error.into());
            }
        }
    }
    Ok(())
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
        while let Some(job) = py.detach(next) {
            if job.cancels && job.shared.has_left() {
                continue;
            }
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
