//! The lane's asyncio loop, as the lane's code sees it.
//!
//! The loop is a stock `asyncio.SelectorEventLoop` whose selector is the lane:
//! connections are served from inside `select()`. Guarantee: whatever the
//! loop has to run next is noticed at once: after each call into Python the
//! loop's ready queue and timers are looked at, and `select()` returns when
//! they have changed.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Waker;

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet, PyString};
use smallvec::SmallVec;

use crate::interpreter::Entered as EnteredContext;
use crate::task_registry;
use crate::turns::{CallSoon, Turned, Turns, is_set};

thread_local! {
    static CURRENT: RefCell<Option<Rc<EventLoop>>> = const { RefCell::new(None) };
}

/// Handles into one asyncio loop.
pub(crate) struct EventLoop {
    object: Py<PyAny>,
    /// `loop.__dict__`.
    attributes: Py<PyDict>,
    /// `loop._ready`: callbacks that run next.
    ready: Py<PyAny>,
    /// `loop._scheduled`: the heap of timers. The loop makes a new one when
    /// it sweeps out cancelled timers, which it does between two `select()`.
    scheduled: RefCell<Py<PyAny>>,
    num_scheduled: Cell<usize>,
    is_selecting: Cell<bool>,
    starter: TaskStarter,
    /// Takes the loop's turns within `select()`, if it is asyncio's own.
    turns: Option<Turns>,
    /// Tasks of requests that wait for something.
    tasks: Py<PySet>,
    /// Wakes what `select()` waits for; set while it runs.
    select_waker: RefCell<Option<Waker>>,
    /// Tasks of the lane that were completed outside of `select()`.
    completed: RefCell<Vec<Waker>>,
    /// Work for the lane from outside of `select()`.
    spawned: RefCell<Vec<Pin<Box<dyn Future<Output = ()>>>>>,
}

/// How a task runs its first step at once.
enum TaskStarter {
    /// `asyncio.Task(coro, loop=loop, eager_start=True)`, from Python 3.12 on.
    Eager { task: Py<PyAny>, kwargs: Py<PyDict> },
    /// The first step that a new task leaves with the loop is taken and run.
    Captured {
        task: Py<PyAny>,
        kwargs: Py<PyDict>,
        call_soon: Py<CallSoon>,
        num_started: Cell<u64>,
    },
    /// The loop is not asyncio's own, which the one before needs.
    Later,
}

/// Keeps a loop the current one of its thread, unless another has taken over.
///
/// What a thread leaves in its variables is dropped when it ends, where it is
/// not attached to the interpreter any more.
#[must_use]
pub(crate) struct Entered(Rc<EventLoop>);

impl Drop for Entered {
    fn drop(&mut self) {
        let left = CURRENT.with_borrow_mut(|current| {
            let is_ours = current
                .as_ref()
                .is_some_and(|current| Rc::ptr_eq(current, &self.0));
            if is_ours { current.take() } else { None }
        });
        drop(left);
    }
}

/// A `select()` that goes on.
pub(crate) struct Selecting<'a>(&'a EventLoop);

impl Drop for Selecting<'_> {
    fn drop(&mut self) {
        self.0.is_selecting.set(false);
        self.0.select_waker.replace(None);
    }
}

impl EventLoop {
    /// Looks into `event_loop`, a stock selector loop.
    pub(crate) fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = event_loop.py();
        let task = py.import("asyncio")?.getattr("Task")?;
        let attributes = event_loop.getattr("__dict__")?.cast_into::<PyDict>()?;
        let kwargs = PyDict::new(py);
        kwargs.set_item("loop", event_loop)?;
        // Another loop than asyncio's own may do anything with its callbacks.
        let is_stock = py.import("justapi._lane")?.getattr("is_stock")?;
        let is_stock = is_stock.call1((event_loop,))?.is_truthy()?;
        let call_soon = is_stock
            .then(|| CallSoon::install(event_loop))
            .transpose()?;
        let starter = if py.version_info() >= (3, 12) {
            kwargs.set_item("eager_start", true)?;
            TaskStarter::Eager {
                task: task.unbind(),
                kwargs: kwargs.unbind(),
            }
        } else if let Some(call_soon) = call_soon {
            task_registry::install(py)?;
            TaskStarter::Captured {
                task: task.unbind(),
                kwargs: kwargs.unbind(),
                call_soon: call_soon.unbind(),
                num_started: Cell::new(0),
            }
        } else {
            TaskStarter::Later
        };
        let turns = is_stock.then(|| Turns::new(event_loop)).transpose()?;
        Ok(Self {
            ready: event_loop.getattr("_ready")?.unbind(),
            scheduled: RefCell::new(event_loop.getattr("_scheduled")?.unbind()),
            num_scheduled: Cell::new(0),
            is_selecting: Cell::new(false),
            attributes: attributes.unbind(),
            object: event_loop.clone().unbind(),
            starter,
            turns,
            tasks: PySet::empty(py)?.unbind(),
            select_waker: RefCell::new(None),
            completed: RefCell::new(Vec::new()),
            spawned: RefCell::new(Vec::new()),
        })
    }

    /// Makes it the loop of the calling thread, until the result is dropped.
    pub(crate) fn enter(self: &Rc<Self>) -> Entered {
        self.make_current();
        Entered(Rc::clone(self))
    }

    fn make_current(self: &Rc<Self>) {
        // Dropped after the cell is free: the end of a loop may run code of
        // the application's, which asks for the current one.
        drop(CURRENT.replace(Some(Rc::clone(self))));
    }

    /// The loop of the calling thread, which is a lane's.
    pub(crate) fn current() -> Option<Rc<Self>> {
        CURRENT.with_borrow(Option::clone)
    }

    /// The asyncio loop.
    pub(crate) fn object<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.object.bind(py).clone()
    }

    /// Starts a task on `coroutine` and runs it to its first wait.
    ///
    /// A task factory of the user's decides for itself when the task starts.
    pub(crate) fn start_task<'py>(
        &self,
        py: Python<'py>,
        coroutine: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let attributes = self.attributes.bind(py);
        let factory = attributes.get_item(intern!(py, "_task_factory"))?;
        if factory.is_some_and(|factory| !factory.is_none()) {
            return self.create_task(coroutine);
        }
        match &self.starter {
            TaskStarter::Eager { task, kwargs } => {
                task.bind(py).call((coroutine,), Some(kwargs.bind(py)))
            }
            TaskStarter::Captured {
                task,
                kwargs,
                call_soon,
                num_started,
            } => {
                let kwargs = kwargs.bind(py);
                num_started.set(num_started.get() + 1);
                kwargs.set_item(intern!(py, "name"), name(py, num_started.get()))?;
                let make = || task.bind(py).call((coroutine,), Some(kwargs));
                let (made, step) = call_soon.get().capture(make);
                let made = made?;
                if let Some((callback, context)) = step {
                    let entered = EnteredContext::enter(context.into_bound(py))?;
                    let stepped = callback.bind(py).call0();
                    drop(entered);
                    stepped?;
                }
                Ok(made)
            }
            TaskStarter::Later => self.create_task(coroutine),
        }
    }

    fn create_task<'py>(&self, coroutine: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = coroutine.py();
        let event_loop = self.object.bind(py);
        event_loop.call_method1(intern!(py, "create_task"), (coroutine,))
    }

    /// Whether the loop has something to do that it does not know of yet.
    pub(crate) fn has_news(&self, py: Python<'_>) -> bool {
        self.has_callbacks(py) || self.has_timers(py) || self.is_stopping(py)
    }

    fn is_stopping(&self, py: Python<'_>) -> bool {
        is_set(self.attributes.bind(py), intern!(py, "_stopping")).unwrap_or(false)
    }

    fn has_callbacks(&self, py: Python<'_>) -> bool {
        self.ready.bind(py).len().unwrap_or(0) > 0
    }

    fn has_timers(&self, py: Python<'_>) -> bool {
        let num_scheduled = self.scheduled.borrow().bind(py).len().unwrap_or(0);
        num_scheduled != self.num_scheduled.get()
    }

    /// Does what the loop has to do, as far as that can be done within
    /// `select()`; whether it has to return now.
    ///
    /// What is ready afterwards came in meanwhile: the sockets come first.
    ///
    /// # Errors
    /// What ends the loop.
    pub(crate) fn turn(&self, py: Python<'_>, waker: &Waker) -> PyResult<bool> {
        if self.has_callbacks(py) {
            match &self.turns {
                Some(turns) if turns.take(py)? == Turned::On => {}
                _ => return Ok(true),
            }
            if self.has_callbacks(py) {
                waker.wake_by_ref();
            }
        }
        Ok(self.has_timers(py) || self.is_stopping(py))
    }

    /// Lets `select()` return if the loop has something to do now.
    pub(crate) fn after_call(&self, py: Python<'_>) {
        if self.has_news(py)
            && let Some(waker) = &*self.select_waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// The loop of the calling thread.
    ///
    /// # Errors
    /// `RuntimeError` on a thread that is no lane's.
    pub(crate) fn of_lane() -> PyResult<Rc<Self>> {
        Self::current()
            .ok_or_else(|| PyRuntimeError::new_err("this belongs to the thread of the event loop"))
    }

    /// Keeps a task alive while it runs: the loop itself may not.
    pub(crate) fn keep(&self, py: Python<'_>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        self.tasks.bind(py).add(task)
    }

    /// Lets a task go that has ended.
    pub(crate) fn release(&self, py: Python<'_>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        self.tasks.bind(py).discard(task).map(drop)
    }

    /// A new future of the loop.
    pub(crate) fn create_future<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.object
            .bind(py)
            .call_method0(intern!(py, "create_future"))
    }

    /// Runs `future` on the lane, at once or with the next `select()`.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        if self.select_waker.borrow().is_some() {
            drop(tokio::task::spawn_local(future));
        } else {
            self.spawned.borrow_mut().push(Box::pin(future));
        }
    }

    /// Has the loop call `function` with two arguments soon.
    pub(crate) fn call_soon<'py>(
        &self,
        py: Python<'py>,
        function: &Bound<'py, PyAny>,
        (first, second): (Py<PyAny>, Option<Bound<'py, PyAny>>),
    ) -> PyResult<()> {
        let event_loop = self.object.bind(py);
        event_loop.call_method1(intern!(py, "call_soon"), (function, first, second))?;
        self.after_call(py);
        Ok(())
    }

    /// Notes that `select()` begins, until the result is dropped; whether
    /// there are callbacks that the loop did not know of.
    ///
    /// # Errors
    /// `RuntimeError` within another `select()`.
    pub(crate) fn begin_select(self: &Rc<Self>, py: Python<'_>) -> PyResult<(Selecting<'_>, bool)> {
        if self.is_selecting.replace(true) {
            return Err(PyRuntimeError::new_err("the lane is serving already"));
        }
        // A thread may have loops in turns.
        let is_current = CURRENT.with_borrow(|current| {
            let current = current.as_ref();
            current.is_some_and(|current| Rc::ptr_eq(current, self))
        });
        if !is_current {
            self.make_current();
        }
        let selecting = Selecting(self);
        let attributes = self.attributes.bind(py);
        if let Some(scheduled) = attributes.get_item(intern!(py, "_scheduled"))? {
            self.num_scheduled.set(scheduled.len().unwrap_or(0));
            self.scheduled.replace(scheduled.unbind());
        }
        // These came before everything that is ready now.
        let has_held = match &self.turns {
            Some(turns) => turns.put_back(py)?,
            None => false,
        };
        Ok((selecting, has_held))
    }

    /// Gives the loop back what was held when it was stopped, as nobody may
    /// ask a lane of it any more.
    pub(crate) fn put_back(&self, py: Python<'_>) -> PyResult<()> {
        match &self.turns {
            Some(turns) => turns.put_back(py).map(drop),
            None => Ok(()),
        }
    }

    /// Keeps what wakes the waiting `select()`; wakes what was completed
    /// before it.
    pub(crate) fn watch(&self, waker: &Waker) {
        let mut kept = self.select_waker.borrow_mut();
        if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            *kept = Some(waker.clone());
        }
        drop(kept);
        for waker in self.completed.take() {
            waker.wake();
        }
        for future in self.spawned.take() {
            drop(tokio::task::spawn_local(future));
        }
    }

    /// Wakes a task of the lane, at once or with the next `select()`.
    ///
    /// Outside of the runtime a wake would cost a system call.
    pub(crate) fn wake(&self, waker: Waker) {
        if self.select_waker.borrow().is_some() {
            waker.wake();
        } else {
            self.completed.borrow_mut().push(waker);
        }
    }
}

/// Name of a request's task: what asyncio would call it costs it more to make.
fn name(py: Python<'_>, number: u64) -> Bound<'_, PyString> {
    const PREFIX: &[u8] = b"request-";
    let mut text = SmallVec::<[u8; 32]>::from_slice(PREFIX);
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    PyString::new(py, std::str::from_utf8(&text).unwrap_or_default())
}
