//! What `asyncio.all_tasks()` is made of, before Python 3.12.
//!
//! There each new task enters a `weakref.WeakSet`, which is Python code both
//! when the task begins and when it ends: a seventh of what a short request
//! takes. Guarantee: the set holds what it held before, in its own fields;
//! whatever is unusual is left to its own methods.

use std::sync::OnceLock;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet, PyWeakrefReference};

/// Methods for the set, which need no Python.
#[pyclass(frozen)]
struct Registry {
    /// References to the tasks.
    data: Py<PySet>,
    /// Who goes through the tasks at the moment; nothing is removed meanwhile.
    iterating: Py<PySet>,
    /// What was to be removed meanwhile.
    pending: Py<PyList>,
    own_add: Py<PyAny>,
    own_remove: Py<PyAny>,
    /// `self.remove`.
    remove: OnceLock<Py<PyAny>>,
}

#[pymethods]
impl Registry {
    fn add(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = task.py();
        match self.remove.get() {
            Some(remove) if self.pending.bind(py).is_empty() => {
                let reference = PyWeakrefReference::new_with(task, remove.bind(py))?;
                self.data.bind(py).add(reference)
            }
            _ => self.own_add.bind(py).call1((task,)).map(drop),
        }
    }

    /// Called with the reference to a task that is gone.
    fn remove(&self, reference: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = reference.py();
        if self.iterating.bind(py).is_empty() {
            self.data.bind(py).discard(reference).map(drop)
        } else {
            self.own_remove.bind(py).call1((reference,)).map(drop)
        }
    }
}

/// Gives asyncio's set of tasks the methods, once a process.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    let tasks = py.import("asyncio.tasks")?.getattr("_all_tasks")?;
    let fields = tasks.getattr("__dict__")?.cast_into::<PyDict>()?;
    let field = |name: &str| fields.get_item(name);
    let (None, Some(data), Some(iterating), Some(pending), Some(own_remove)) = (
        field("add")?,
        field("data")?,
        field("_iterating")?,
        field("_pending_removals")?,
        field("_remove")?,
    ) else {
        return Ok(());
    };
    let registry = Registry {
        data: data.cast_into::<PySet>()?.unbind(),
        iterating: iterating.cast_into::<PySet>()?.unbind(),
        pending: pending.cast_into::<PyList>()?.unbind(),
        own_add: tasks.getattr("add")?.unbind(),
        own_remove: own_remove.unbind(),
        remove: OnceLock::new(),
    };
    let registry = Bound::new(py, registry)?;
    let remove = registry.getattr(intern!(py, "remove"))?.unbind();
    // It was made two lines above, without one.
    drop(registry.get().remove.set(remove));
    fields.set_item("add", registry.getattr(intern!(py, "add"))?)
}
