//! Sessions of the server as the dicts that Python has of them.

use justapi_core::Session;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

/// A dict of what a session holds.
pub(crate) fn write<'py>(py: Python<'py>, session: &Session) -> PyResult<Bound<'py, PyAny>> {
    if session.is_empty() {
        return Ok(PyDict::new(py).into_any());
    }
    let text = PyBytes::new(py, &session.to_json());
    let json = py.import(intern!(py, "json"))?;
    json.call_method1(intern!(py, "loads"), (text,))
}

/// The session that a dict makes.
///
/// # Errors
/// What JSON does not know, and a session that is too large for a cookie.
pub(crate) fn read(dict: &Bound<'_, PyAny>) -> PyResult<Session> {
    let py = dict.py();
    let options = PyDict::new(py);
    options.set_item(intern!(py, "allow_nan"), false)?;
    let json = py.import(intern!(py, "json"))?;
    let text = json.call_method(intern!(py, "dumps"), (dict,), Some(&options))?;
    let text = text.cast_into::<PyString>()?;
    Session::from_json(text.to_str()?.as_bytes())
        .map_err(|error| PyValueError::new_err(error.to_string()))
}
