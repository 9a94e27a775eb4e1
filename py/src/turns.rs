//! Turns of the asyncio loop that are taken within `select()`.
//!
//! A coroutine that waits leaves a callback with its loop, and the loop's own
//! turn around a callback costs more than the callback. Guarantee: callbacks
//! run in the order they came in, each in its context, as many at a time as
//! `asyncio.BaseEventLoop._run_once` would run, and what they raise ends where
//! it would have ended there. Debug mode is left to the loop.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::handler::TaskEnd;
use crate::interpreter::{Entered, ModelSlots, copy_context, set_slot};

/// `loop.call_soon` of a stock loop, without Python.
#[pyclass(frozen, module = "justapi._core")]
pub(crate) struct CallSoon {
    /// The loop's own method, for what is unusual.
    own: Py<PyAny>,
    event_loop: Py<PyAny>,
    /// `loop.__dict__`.
    attributes: Py<PyDict>,
    /// `loop._ready.append`.
    append: Py<PyAny>,
    handles: Handles,
    /// Whether the next callback is the first step of a task that is being
    /// made, and is not for the loop.
    is_capturing: AtomicBool,
    captured: Mutex<Option<Step>>,
}

/// A callback without arguments, and its context.
type Step = (Py<PyAny>, Py<PyAny>);

impl CallSoon {
    /// Gives the loop the method, unless it has it.
    ///
    /// It stays for as long as the loop: what a dict has had and lost makes it
    /// grow.
    pub(crate) fn install<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let py = event_loop.py();
        let name = intern!(py, "call_soon");
        let attributes = event_loop.getattr("__dict__")?.cast_into::<PyDict>()?;
        if let Some(found) = attributes.get_item(name)?
            && let Ok(own) = found.getattr("__self__")
            && let Ok(own) = own.cast_into::<Self>()
        {
            return Ok(own);
        }
        let made = Self {
            own: event_loop.getattr(name)?.unbind(),
            event_loop: event_loop.clone().unbind(),
            append: event_loop.getattr("_ready")?.getattr("append")?.unbind(),
            handles: Handles::new(py)?,
            is_capturing: AtomicBool::new(false),
            captured: Mutex::new(None),
            attributes: attributes.clone().unbind(),
        };
        let made = Bound::new(py, made)?;
        attributes.set_item(name, made.getattr(name)?)?;
        Ok(made)
    }

    fn captured(&self) -> MutexGuard<'_, Option<Step>> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `make`, which makes a task, and returns its first step as well.
    pub(crate) fn capture<T>(&self, make: impl FnOnce() -> T) -> (T, Option<Step>) {
        self.is_capturing.store(true, Ordering::Relaxed);
        let made = make();
        self.is_capturing.store(false, Ordering::Relaxed);
        let step = self.captured().take();
        (made, step)
    }

    fn is_set(&self, py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<bool> {
        is_set(self.attributes.bind(py), name)
    }
}

/// Whether an attribute of the loop is there and true.
pub(crate) fn is_set(attributes: &Bound<'_, PyDict>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    match attributes.get_item(name)? {
        Some(value) => value.is_truthy(),
        None => Ok(false),
    }
}

#[pymethods]
impl CallSoon {
    #[pyo3(signature = (callback, *args, context=None))]
    fn call_soon<'py>(
        &self,
        callback: Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        context: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = callback.py();
        let context = context.filter(|context| !context.is_none());
        if self.is_capturing.load(Ordering::Relaxed)
            && args.is_empty()
            && let Some(context) = &context
        {
            // What finalisers ask meanwhile is for the loop.
            self.is_capturing.store(false, Ordering::Relaxed);
            let step = (callback.unbind(), context.clone().unbind());
            let replaced = self.captured().replace(step);
            drop(replaced);
            return Ok(None);
        }
        if let Ok(end) = callback.cast_exact::<TaskEnd>()
            && let Ok(task) = args.get_item(0)
            && end.get().hear_now(&task)
        {
            return Ok(None);
        }
        if self.is_set(py, intern!(py, "_debug"))? || self.is_set(py, intern!(py, "_closed"))? {
            let mut all = vec![callback];
            all.extend(args.iter());
            let kwargs = PyDict::new(py);
            kwargs.set_item(intern!(py, "context"), context)?;
            let own = self.own.bind(py);
            return own.call(PyTuple::new(py, all)?, Some(&kwargs)).map(Some);
        }
        let context = match context {
            Some(context) => context,
            None => copy_context(py)?,
        };
        let event_loop = self.event_loop.bind(py);
        let handle = self.handles.make(&callback, args, event_loop, &context)?;
        self.append.bind(py).call1((&handle,))?;
        Ok(Some(handle))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.own)?;
        visit.call(&self.event_loop)?;
        visit.call(&self.attributes)?;
        visit.call(&self.append)
    }
}

/// Makes `asyncio.Handle` objects without calling their class.
struct Handles {
    class: Py<PyType>,
    context: Py<PyAny>,
    event_loop: Py<PyAny>,
    callback: Py<PyAny>,
    args: Py<PyAny>,
    /// Slots that a new handle has a fixed value in.
    is_cancelled: Py<PyAny>,
    repr: Py<PyAny>,
    traceback: Py<PyAny>,
}

impl Handles {
    fn new(py: Python<'_>) -> PyResult<Self> {
        let class = py.import("asyncio")?.getattr("Handle")?;
        let class = class.cast_into::<PyType>()?;
        let slot = |name: &str| class.getattr(name).map(Bound::unbind);
        Ok(Self {
            context: slot("_context")?,
            event_loop: slot("_loop")?,
            callback: slot("_callback")?,
            args: slot("_args")?,
            is_cancelled: slot("_cancelled")?,
            repr: slot("_repr")?,
            traceback: slot("_source_traceback")?,
            class: class.unbind(),
        })
    }

    fn make<'py>(
        &self,
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        event_loop: &Bound<'py, PyAny>,
        context: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = callback.py();
        let handle = ModelSlots::new_instance(self.class.bind(py))?;
        let none = py.None().into_bound(py);
        let no = pyo3::types::PyBool::new(py, false).to_owned().into_any();
        set_slot(self.context.bind(py), &handle, context)?;
        set_slot(self.event_loop.bind(py), &handle, event_loop)?;
        set_slot(self.callback.bind(py), &handle, callback)?;
        set_slot(self.args.bind(py), &handle, args.as_any())?;
        set_slot(self.is_cancelled.bind(py), &handle, &no)?;
        set_slot(self.repr.bind(py), &handle, &none)?;
        set_slot(self.traceback.bind(py), &handle, &none)?;
        Ok(handle)
    }
}

/// Runs what a stock loop has ready.
pub(crate) struct Turns {
    /// `loop.__dict__`.
    attributes: Py<PyDict>,
    ready: Py<PyAny>,
    /// `loop._ready.popleft`.
    take: Py<PyAny>,
    handle_class: Py<PyAny>,
    /// `justapi._lane.callback_failed`.
    failed: Py<PyAny>,
    /// What came in during the turn that stopped the loop, which does not run
    /// before the loop does again.
    held: RefCell<Vec<Py<PyAny>>>,
}

/// Whether `select()` may go on after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turned {
    /// It may.
    On,
    /// The loop was stopped, or has to take its turn itself.
    Over,
}

impl Turns {
    pub(crate) fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = event_loop.py();
        let ready = event_loop.getattr("_ready")?;
        let failed = py.import("justapi._lane")?.getattr("callback_failed")?;
        Ok(Self {
            attributes: event_loop.getattr("__dict__")?.cast_into()?.unbind(),
            take: ready.getattr("popleft")?.unbind(),
            ready: ready.unbind(),
            handle_class: py.import("asyncio")?.getattr("Handle")?.unbind(),
            failed: failed.unbind(),
            held: RefCell::default(),
        })
    }

    /// Runs the callbacks that are ready, but none that come in meanwhile.
    ///
    /// # Errors
    /// What ends the loop: `SystemExit`, `KeyboardInterrupt`.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Turned> {
        let attributes = self.attributes.bind(py);
        let stopping = intern!(py, "_stopping");
        if is_set(attributes, intern!(py, "_debug"))? || is_set(attributes, stopping)? {
            return Ok(Turned::Over);
        }
        let mut num_left = self.ready.bind(py).len()?;
        while num_left > 0 {
            num_left -= 1;
            let Ok(handle) = self.take.bind(py).call0() else {
                break;
            };
            if !handle.getattr(intern!(py, "_cancelled"))?.is_truthy()? {
                self.run(&handle)?;
            }
        }
        if !is_set(attributes, stopping)? {
            return Ok(Turned::On);
        }
        // The loop takes one more turn before it looks whether it was stopped.
        let mut held = self.held.borrow_mut();
        while let Ok(handle) = self.take.bind(py).call0() {
            held.push(handle.unbind());
        }
        Ok(Turned::Over)
    }

    fn run(&self, handle: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = handle.py();
        if !handle.get_type().is(&self.handle_class) {
            return handle.call_method0(intern!(py, "_run")).map(drop);
        }
        let result = Self::call(handle);
        let Err(error) = result else {
            return Ok(());
        };
        if error.is_instance_of::<PySystemExit>(py)
            || error.is_instance_of::<PyKeyboardInterrupt>(py)
        {
            return Err(error);
        }
        let failed = self.failed.bind(py);
        failed.call1((handle, error.into_value(py))).map(drop)
    }

    fn call(handle: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = handle.py();
        let args = handle.getattr(intern!(py, "_args"))?;
        let args = args.cast_into::<PyTuple>()?;
        let callback = handle.getattr(intern!(py, "_callback"))?;
        let entered = Entered::enter(handle.getattr(intern!(py, "_context"))?)?;
        let result = callback.call1(args).map(drop);
        drop(entered);
        result
    }

    /// Gives the loop back what was held when it stopped; whether that was
    /// anything.
    pub(crate) fn put_back(&self, py: Python<'_>) -> PyResult<bool> {
        let held = self.held.take();
        let is_any = !held.is_empty();
        for handle in held.into_iter().rev() {
            let ready = self.ready.bind(py);
            ready.call_method1(intern!(py, "appendleft"), (handle,))?;
        }
        Ok(is_any)
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        if !self.held.borrow().is_empty() {
            Python::attach(|py| crate::shared::report(py, self.put_back(py).map(drop)));
        }
    }
}
