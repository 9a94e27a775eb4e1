//! Values that stay on their thread, whoever lets go of their Python objects.
//!
//! Guarantee: a value is used and dropped on the thread that made it. The
//! collector may find its Python object on any thread; then the value waits
//! until its own thread makes another, or ends with it undropped.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

thread_local! {
    /// What is left when the thread ends has lost the interpreter, which its
    /// own end would ask for.
    static VALUES: RefCell<BTreeMap<u64, ManuallyDrop<Rc<dyn Any>>>> = RefCell::default();
}

static NEXT_KEY: AtomicU64 = AtomicU64::new(0);
/// Keys whose objects were dropped on other threads.
static ORPHANS: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// A value of one thread, for a Python object that any thread may drop.
#[derive(Debug)]
pub(crate) struct OnThread<T> {
    key: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T: 'static> OnThread<T> {
    /// Keeps `value` on the calling thread.
    pub(crate) fn new(value: T) -> Self {
        sweep();
        let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
        let value: Rc<dyn Any> = Rc::new(value);
        VALUES.with_borrow_mut(|values| values.insert(key, ManuallyDrop::new(value)));
        Self {
            key,
            kind: PhantomData,
        }
    }

    /// The value.
    ///
    /// # Errors
    /// `RuntimeError` on another thread.
    pub(crate) fn get(&self) -> PyResult<Rc<T>> {
        let value = VALUES.with_borrow(|values| Some(Rc::clone(values.get(&self.key)?)));
        value
            .and_then(|value| value.downcast().ok())
            .ok_or_else(|| PyRuntimeError::new_err("this belongs to the thread of its event loop"))
    }
}

impl<T> Drop for OnThread<T> {
    fn drop(&mut self) {
        // A thread that ends has no values any more.
        let value = VALUES.try_with(|values| values.borrow_mut().remove(&self.key));
        match value {
            Ok(Some(value)) => drop(ManuallyDrop::into_inner(value)),
            _ => ORPHANS
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(self.key),
        }
    }
}

/// Drops what other threads have let go.
fn sweep() {
    let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
    if orphans.is_empty() {
        return;
    }
    let dropped: Vec<_> = VALUES.with_borrow_mut(|values| {
        let own = |key: &mut u64| values.contains_key(key);
        let own: Vec<_> = orphans.extract_if(.., own).collect();
        let own = own.iter().filter_map(|key| values.remove(key));
        own.map(ManuallyDrop::into_inner).collect()
    });
    drop(orphans);
    // Their ends may run code of the application's.
    drop(dropped);
}
