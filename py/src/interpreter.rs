//! What the lane needs of the interpreter that pyo3 has no safe call for.
//!
//! Guarantee: the lane's thread is attached to the interpreter whenever it
//! runs anything, and detached only while it waits for its sockets.
#![expect(
    unsafe_code,
    reason = "thread states and contexts are only reachable through the C API, crashes by signals"
)]

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use justapi_core::ParkHooks;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet, PyTuple, PyType};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::progress::Progress;

thread_local! {
    /// Thread state that was put aside while the thread waits.
    static SAVED: Cell<*mut ffi::PyThreadState> = const { Cell::new(ptr::null_mut()) };
}

/// Hooks that let other threads have the interpreter while a lane waits.
pub(crate) fn park_hooks(progress: &Arc<Progress>) -> ParkHooks {
    let (parked, unparked) = (Arc::clone(progress), Arc::clone(progress));
    ParkHooks {
        before: Box::new(move || {
            parked.set_waiting(true);
            // SAFETY: the lane runs only within `select`, which holds a
            // `Python` token, so this thread is attached; `after` restores the
            // state on the same thread before anything else runs.
            SAVED.set(unsafe { ffi::PyEval_SaveThread() });
        }),
        after: Box::new(move || {
            // Before the interpreter is waited for: that counts, too.
            unparked.set_waiting(false);
            let saved = SAVED.replace(ptr::null_mut());
            if !saved.is_null() {
                // SAFETY: the state was saved by `before` on this thread.
                unsafe { ffi::PyEval_RestoreThread(saved) };
            }
        }),
    }
}

/// A context that code runs in.
pub(crate) struct Entered<'py> {
    context: Bound<'py, PyAny>,
}

impl<'py> Entered<'py> {
    /// Copies the thread's context and enters the copy.
    pub(crate) fn copy_of_current(py: Python<'py>) -> PyResult<Self> {
        Self::enter(copy_context(py)?)
    }

    /// Enters `context`.
    ///
    /// # Errors
    /// It is none, or was entered already.
    pub(crate) fn enter(context: Bound<'py, PyAny>) -> PyResult<Self> {
        // SAFETY: attached; the function looks at the type of its argument, and
        // whether it was entered.
        if unsafe { ffi::PyContext_Enter(context.as_ptr()) } < 0 {
            return Err(PyErr::fetch(context.py()));
        }
        Ok(Self { context })
    }
}

/// A copy of the thread's context.
pub(crate) fn copy_context(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: attached; the result is a new reference or null with an exception
    // set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyContext_CopyCurrent()) }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // An exception that is on its way must survive the call.
        // SAFETY: attached, and the context was entered by `enter` on this
        // thread; enters and exits nest as scopes do.
        unsafe {
            if ffi::PyContext_Exit(self.context.as_ptr()) < 0 {
                ffi::PyErr_WriteUnraisable(self.context.as_ptr());
            }
        }
    }
}

/// The slots of pydantic's models, which hold what is not a field.
///
/// Instances are made and filled as pydantic itself does it: without running
/// code of their class.
#[derive(Debug)]
pub(crate) struct ModelSlots {
    fields_set: Py<PyAny>,
    extra: Py<PyAny>,
    private: Py<PyAny>,
}

impl ModelSlots {
    /// Of the descriptors of fields set, extra members and private attributes.
    ///
    /// # Errors
    /// One of them is no descriptor of a slot.
    pub(crate) fn of(slots: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = slots.py();
        let descriptor = py.import("types")?.getattr("MemberDescriptorType")?;
        let slots: [Bound<'_, PyAny>; 3] = slots.extract()?;
        for slot in &slots {
            if !slot.is_exact_instance(&descriptor) {
                return Err(PyTypeError::new_err("the model has no slots"));
            }
        }
        let [fields_set, extra, private] = slots.map(Bound::unbind);
        Ok(Self {
            fields_set,
            extra,
            private,
        })
    }

    /// A bare instance of `class`, whose `__new__` is that of `object`.
    pub(crate) fn new_instance<'py>(class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
        let py = class.py();
        let class = class.as_type_ptr();
        let arguments = PyTuple::empty(py);
        // SAFETY: attached, and `class` is a type that is ready, so its slot
        // is settled; it takes a tuple and may be given no keywords.
        unsafe {
            let make = (*class)
                .tp_new
                .ok_or_else(|| PyTypeError::new_err("the class has no instances"))?;
            let made = make(class, arguments.as_ptr(), ptr::null_mut());
            Bound::from_owned_ptr_or_err(py, made)
        }
    }

    /// The attributes of an instance, as `object` keeps them.
    pub(crate) fn attributes<'py>(instance: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let py = instance.py();
        // SAFETY: attached; the result is a new reference or null with an
        // exception set.
        let attributes = unsafe {
            let made = ffi::PyObject_GenericGetDict(instance.as_ptr(), ptr::null_mut());
            Bound::from_owned_ptr_or_err(py, made)?
        };
        Ok(attributes.cast_into::<PyDict>()?)
    }

    /// A new set of the same names.
    pub(crate) fn copy_of<'py>(names: &Bound<'py, PySet>) -> PyResult<Bound<'py, PyAny>> {
        let py = names.py();
        // SAFETY: attached; the result is a new reference or null with an
        // exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PySet_New(names.as_ptr())) }
    }

    /// Fills the slots of a bare instance.
    pub(crate) fn fill(
        &self,
        instance: &Bound<'_, PyAny>,
        fields_set: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = instance.py();
        let none = py.None();
        let none = none.bind(py);
        set_slot(self.fields_set.bind(py), instance, fields_set)?;
        set_slot(self.extra.bind(py), instance, none)?;
        set_slot(self.private.bind(py), instance, none)
    }
}

/// Sets what `slot`, a descriptor, describes of `instance`.
pub(crate) fn set_slot(
    slot: &Bound<'_, PyAny>,
    instance: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    // SAFETY: attached; the type of `slot` is ready, and its function checks
    // that `instance` has such a slot.
    let status = unsafe {
        let set = (*ffi::Py_TYPE(slot.as_ptr()))
            .tp_descr_set
            .ok_or_else(|| PyTypeError::new_err("the slot cannot be set"))?;
        set(slot.as_ptr(), instance.as_ptr(), value.as_ptr())
    };
    if status < 0 {
        return Err(PyErr::fetch(slot.py()));
    }
    Ok(())
}

/// Watches what `fd` names, through a descriptor of its own.
///
/// Called within the lane's runtime.
pub(crate) fn watch(fd: RawFd) -> io::Result<AsyncFd<OwnedFd>> {
    let owned = duplicate(fd)?;
    // SAFETY: an `OwnedFd` always names the same open file until it is dropped.
    unsafe { AsyncFd::register_with_interest(owned, Interest::READABLE) }
        .map_err(|error| io::Error::other(error.to_string()))
}

/// A descriptor of its own for what `fd` names.
pub(crate) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the caller's object keeps `fd` open during the call.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}

/// Has the kernel end this process when its parent does.
///
/// # Errors
/// What the kernel says.
pub(crate) fn end_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .map_err(Into::into)
}

thread_local! {
    /// What is to be told should the thread crash: a line.
    static LAST_WORDS: Cell<&'static str> = const { Cell::new("") };
}

/// Where a crash is told.
static LISTENER: AtomicI32 = AtomicI32::new(-1);

/// The process whose crashes are told: one that it forks has its handlers and
/// its listener as well, and is not it.
static LISTENED_TO: AtomicI32 = AtomicI32::new(0);

/// What ends a process that has gone wrong.
const CRASHES: [i32; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGABRT,
];

/// What was done about each of [`CRASHES`] before.
static BEFORE: [OnceLock<libc::sigaction>; CRASHES.len()] = [const { OnceLock::new() }; 5];

/// Has `words`, a line, told if the calling thread crashes from now on.
pub(crate) fn set_last_words(words: &'static str) {
    LAST_WORDS.set(words);
}

/// Has the last words of a thread that crashes written to `listener`, once a
/// process; what was done about crashes before is done after that.
///
/// # Errors
/// What the kernel says.
pub(crate) fn listen_for_crashes(listener: OwnedFd) -> io::Result<()> {
    let listener = listener.into_raw_fd();
    if LISTENER
        .compare_exchange(-1, listener, Ordering::Relaxed, Ordering::Relaxed)
        .is_err()
    {
        // SAFETY: the descriptor was owned a line above, and nobody else has it.
        drop(unsafe { OwnedFd::from_raw_fd(listener) });
        return Ok(());
    }
    LISTENED_TO.store(process_number(), Ordering::Relaxed);
    for (signal, before) in CRASHES.into_iter().zip(&BEFORE) {
        // SAFETY: a structure of zeros is one without flags; the handler is
        // safe for signals, see there.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = tell_crash as extern "C" fn(i32) as usize;
            // On the stack that faulthandler has for threads that have none left.
            new.sa_flags = libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut new.sa_mask);
            if libc::sigaction(signal, ptr::null(), &raw mut old) != 0 {
                return Err(io::Error::last_os_error());
            }
            before.get_or_init(|| old);
            if libc::sigaction(signal, &raw const new, ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

fn process_number() -> i32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::getpid() }
}

/// Handles a crash. It only makes calls that signal-safety(7) allows, save for
/// one thing: on a thread that has never had last words, the first look at them
/// may have the dynamic linker allocate. Threads that run handlers have had some.
extern "C" fn tell_crash(signal: i32) {
    let is_listened_to = LISTENED_TO.load(Ordering::Relaxed) == process_number();
    let words = if is_listened_to { LAST_WORDS.get() } else { "" };
    let listener = LISTENER.load(Ordering::Relaxed);
    // SAFETY: the text lives for ever, and the pointers of `sigaction` are to
    // structures. The signal is blocked until this returns, and is then handled
    // as it was before.
    unsafe {
        if !words.is_empty() {
            libc::write(listener, words.as_ptr().cast(), words.len());
        }
        let known = CRASHES.iter().position(|crash| *crash == signal);
        if let Some(before) = known.and_then(|index| BEFORE[index].get()) {
            libc::sigaction(signal, before, ptr::null_mut());
            libc::raise(signal);
        }
    }
}

/// What a thread has used of the processor.
pub(crate) struct Usage {
    pub(crate) processor: Duration,
    /// How often it had to wait for something else than the processor.
    pub(crate) num_given_away: i64,
}

/// What the calling thread has used; `None` where the kernel does not say.
pub(crate) fn thread_usage() -> Option<Usage> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the pointer is to a place for the structure, which the call
    // fills when it succeeds.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) != 0 {
            return None;
        }
        usage.assume_init()
    };
    // Not the times of `getrusage`, which may be as old as a timer tick: what
    // the thread did before the call would count as the call's.
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Some(Usage {
        processor: Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32),
        num_given_away: usage.ru_nvcsw,
    })
}
