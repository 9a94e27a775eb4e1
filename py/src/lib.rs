//! The extension module `justapi._core`: core's lanes with Python handlers.

mod arguments;
mod awaitable;
mod decode;
mod demotion;
mod event_loop;
mod exchange;
mod handler;
mod heads;
mod interpreter;
mod json;
mod kept;
mod lane;
mod layers;
mod mount;
mod native;
mod on_thread;
mod pipe;
mod pool;
mod progress;
mod respond;
mod route;
mod session;
mod shape;
mod shape_decode;
mod shape_encode;
mod shared;
mod stream;
mod task_registry;
mod turns;
mod websocket;
mod witness;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Encodes `value` as JSON; `default` makes plain values of others.
#[pyfunction]
#[pyo3(signature = (value, default=None))]
fn encode_json<'py>(
    value: &Bound<'py, PyAny>,
    default: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = json::encode(value, default)?;
    Ok(PyBytes::new(value.py(), &bytes))
}

/// Has this process asked to end once its parent, process `parent`, has.
#[pyfunction]
fn end_with_parent(parent: i32) -> PyResult<()> {
    interpreter::end_with_parent()?;
    let now = rustix::process::getppid().map(rustix::process::Pid::as_raw_nonzero);
    if now.is_none_or(|now| now.get() != parent) {
        return Err(PyRuntimeError::new_err("the supervisor has ended"));
    }
    Ok(())
}

/// Has a crash of this process told to `descriptor`, with the route that the
/// thread ran last.
#[pyfunction]
fn listen_for_crashes(descriptor: i32) -> PyResult<()> {
    let listener = interpreter::duplicate(descriptor)?;
    Ok(interpreter::listen_for_crashes(listener)?)
}

/// The extension module.
///
/// It does not need the lock of the interpreter: what threads share is
/// immutable, atomic, or behind a lock under which no Python runs.
#[pymodule(gil_used = false)]
mod _core {
    #[pymodule_export]
    use super::{encode_json, end_with_parent, listen_for_crashes};
    #[pymodule_export]
    use crate::pool::limit_waiting_calls;
    /// Version of the package and of the program that belongs to it.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use crate::exchange::Exchange;
    #[pymodule_export]
    use crate::lane::{Lane, Seat};
    #[pymodule_export]
    use crate::native::NativeRoute;
    #[pymodule_export]
    use crate::pipe::Pipe;
    #[pymodule_export]
    use crate::shape::Codec;
    #[pymodule_export]
    use crate::websocket::Socket;
}
