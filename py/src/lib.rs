//! The extension module `justapi._core`: core's lanes with Python handlers.

mod arguments;
mod awaitable;
mod demotion;
mod event_loop;
mod exchange;
mod handler;
mod interpreter;
mod json;
mod lane;
mod mount;
mod native;
mod pool;
mod respond;
mod route;
mod shared;
mod stream;
mod websocket;

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

/// The extension module.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::{encode_json, end_with_parent};
    /// Version of the package and of the program that belongs to it.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use crate::exchange::Exchange;
    #[pymodule_export]
    use crate::lane::Lane;
    #[pymodule_export]
    #[pymodule_export]
    use crate::websocket::Socket;
}
