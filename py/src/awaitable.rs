//! Awaitables whose value is there already.

use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Gives its value at the first step, without a turn of the loop.
#[pyclass(frozen, module = "justapi._core")]
pub(crate) struct Ready {
    /// `None` stands for Python's None.
    value: Option<Py<PyAny>>,
}

impl Ready {
    /// An awaitable of `value`.
    pub(crate) fn of(py: Python<'_>, value: Option<Py<PyAny>>) -> PyResult<Bound<'_, PyAny>> {
        // Of None there is one for all: it remembers nothing of who waits.
        static OF_NONE: PyOnceLock<Py<Ready>> = PyOnceLock::new();
        if value.is_none() {
            let ready = OF_NONE.get_or_try_init(py, || Py::new(py, Self { value }))?;
            return Ok(ready.bind(py).clone().into_any());
        }
        Ok(Bound::new(py, Self { value })?.into_any())
    }
}

#[pymethods]
impl Ready {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match &self.value {
            None => Ok(None),
            Some(value) => Err(PyStopIteration::new_err((value.clone_ref(py),))),
        }
    }
}
