//! What the lane needs of the interpreter that pyo3 has no safe call for.
//!
//! Guarantee: the lane's thread is attached to the interpreter whenever it
//! runs anything, and detached only while it waits for its sockets.
#![expect(
    unsafe_code,
    reason = "thread states and contexts are only reachable through the C API"
)]

use std::cell::Cell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::ptr;

use justapi_core::ParkHooks;
use pyo3::ffi;
use pyo3::prelude::*;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

thread_local! {
    /// Thread state that was put aside while the thread waits.
    static SAVED: Cell<*mut ffi::PyThreadState> = const { Cell::new(ptr::null_mut()) };
}

/// Hooks that let other threads have the interpreter while a lane waits.
pub(crate) fn park_hooks() -> ParkHooks {
    ParkHooks {
        before: Box::new(|| {
            // SAFETY: the lane runs only within `select`, which holds a
            // `Python` token, so this thread is attached; `after` restores the
            // state on the same thread before anything else runs.
            SAVED.set(unsafe { ffi::PyEval_SaveThread() });
        }),
        after: Box::new(|| {
            let saved = SAVED.replace(ptr::null_mut());
            if !saved.is_null() {
                // SAFETY: the state was saved by `before` on this thread.
                unsafe { ffi::PyEval_RestoreThread(saved) };
            }
        }),
    }
}

/// A copy of the current context that code runs in.
pub(crate) struct Entered<'py> {
    context: Bound<'py, PyAny>,
}

impl<'py> Entered<'py> {
    /// Copies the thread's context and enters the copy.
    pub(crate) fn copy_of_current(py: Python<'py>) -> PyResult<Self> {
        // SAFETY: attached; the result is a new reference or null with an
        // exception set.
        let context = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyContext_CopyCurrent())? };
        // SAFETY: `context` is a context object that nobody has entered.
        if unsafe { ffi::PyContext_Enter(context.as_ptr()) } < 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(Self { context })
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // An exception that is on its way must survive the call.
        // SAFETY: attached, and the context was entered by `copy_of_current`
        // on this thread; enters and exits nest as scopes do.
        unsafe {
            if ffi::PyContext_Exit(self.context.as_ptr()) < 0 {
                ffi::PyErr_WriteUnraisable(self.context.as_ptr());
            }
        }
    }
}

/// Watches what `fd` names, through a descriptor of its own.
///
/// Called within the lane's runtime.
pub(crate) fn watch(fd: RawFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the caller's object keeps `fd` open during the call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let owned = borrowed.try_clone_to_owned()?;
    // SAFETY: an `OwnedFd` always names the same open file until it is dropped.
    unsafe { AsyncFd::register_with_interest(owned, Interest::READABLE) }
        .map_err(|error| io::Error::other(error.to_string()))
}

/// Has the kernel end this process when its parent does.
///
/// # Errors
/// What the kernel says.
pub(crate) fn end_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .map_err(Into::into)
}
