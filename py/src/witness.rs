//! What a test client is told of a request that it made on this thread.
//!
//! Guarantee: only connections in memory have one; any other request pays a
//! look at its peer.

use std::sync::Arc;

use justapi_core::{Peer, Request};
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;

use crate::mount::Mount;
use crate::shared::report;

/// A `justapi._lane_server.Witness`.
#[derive(Clone)]
pub(crate) struct Witness(Arc<Py<PyAny>>);

impl Witness {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self(Arc::new(object))
    }

    /// Who watches `request`, if anybody does.
    pub(crate) fn of(mount: &Mount, request: &Request) -> Option<Self> {
        match request.peer() {
            Peer::Memory(number) => mount.witness(*number),
            _ => None,
        }
    }

    /// The Python object.
    pub(crate) fn object<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.0.bind(py).clone()
    }

    /// `what` goes on after the first call of the handler.
    pub(crate) fn begin(&self, what: &Bound<'_, PyAny>) {
        let py = what.py();
        let told = self.0.bind(py).call_method1(intern!(py, "begin"), (what,));
        report(py, told.map(drop));
    }

    /// `what` has ended.
    pub(crate) fn end(&self, what: &Bound<'_, PyAny>) {
        let py = what.py();
        let told = self.0.bind(py).call_method1(intern!(py, "end"), (what,));
        report(py, told.map(drop));
    }

    /// Nobody handled `error`.
    pub(crate) fn failed(&self, py: Python<'_>, error: &PyErr) {
        let told = self
            .0
            .bind(py)
            .call_method1(intern!(py, "failed"), (error.value(py),));
        report(py, told.map(drop));
    }

    /// The application refused a WebSocket with a close.
    pub(crate) fn refused(&self, py: Python<'_>, code: u16, reason: &str) {
        let told = self
            .0
            .bind(py)
            .call_method1(intern!(py, "refused"), (code, reason));
        report(py, told.map(drop));
    }

    /// What a template engine has for tests.
    pub(crate) fn debug(&self, py: Python<'_>, info: &Bound<'_, PyAny>) -> PyResult<()> {
        if info.is_none() {
            return Err(PyException::new_err("http.response.debug without its info"));
        }
        self.0.bind(py).setattr(intern!(py, "debug"), info)
    }
}
