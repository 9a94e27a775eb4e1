//! Python objects of short texts that come again and again.
//!
//! Guarantee: the memory is bounded, whatever clients send: each text has one
//! place, and the next text that has the same place replaces it.

use pyo3::prelude::*;

/// Texts that are remembered, a power of two.
const NUM_PLACES: usize = 512;
/// Longest text in bytes that is remembered.
const MAX_KEPT_BYTES: usize = 32;

/// What is remembered of a thread, by the text that it was made of.
pub(crate) struct Kept<T>(Vec<Option<Place<T>>>);

/// A text and its object.
type Place<T> = (Box<[u8]>, Py<T>);

impl<T> Kept<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// The object of `text`, made with `make` unless it is remembered.
    pub(crate) fn get<'py>(
        &mut self,
        py: Python<'py>,
        text: &[u8],
        make: impl FnOnce() -> Bound<'py, T>,
    ) -> Bound<'py, T> {
        if text.len() > MAX_KEPT_BYTES {
            return make();
        }
        if self.0.is_empty() {
            self.0.resize_with(NUM_PLACES, || None);
        }
        let place = &mut self.0[place_of(text)];
        if let Some((known, object)) = place
            && **known == *text
        {
            return object.bind(py).clone();
        }
        let object = make();
        *place = Some((text.into(), object.clone().unbind()));
        object
    }
}

/// FNV-1a (draft-eastlake-fnv section 2), which is quick for short texts.
fn place_of(text: &[u8]) -> usize {
    let hash = text.iter().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    (hash ^ (hash >> 16)) as usize % NUM_PLACES
}
