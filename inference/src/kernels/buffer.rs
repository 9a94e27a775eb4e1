//! Memory of kernels: aligned to cache lines, zeroed, and an error where the
//! system has none; and slices that threads write at different places.

#![expect(
    unsafe_code,
    reason = "owned memory that is aligned and may be refused"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

/// Bytes of a cache line, and of the widest vector.
const ALIGNMENT: usize = 64;

/// Numbers whose every pattern of bits is one, zero included.
///
/// # Safety
/// As said, and no destructor, and an alignment of at most 64.
pub(crate) unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: every pattern is a number.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for half::f16 {}
// SAFETY: as above.
unsafe impl Plain for half::bf16 {}

/// A fixed number of zeroes, to be written; pages are taken as they are touched.
#[derive(Debug)]
pub(crate) struct Buffer<T: Plain> {
    start: NonNull<T>,
    len: usize,
}

// SAFETY: it owns plain numbers.
unsafe impl<T: Plain> Send for Buffer<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for Buffer<T> {}

impl<T: Plain> Buffer<T> {
    /// Takes memory; `None` if there is none.
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        let layout = Self::layout(len)?;
        if layout.size() == 0 {
            let start = NonNull::dangling();
            return Some(Self { start, len });
        }
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?.cast();
        Some(Self { start, len })
    }

    fn layout(len: usize) -> Option<Layout> {
        Layout::from_size_align(len.checked_mul(size_of::<T>())?, ALIGNMENT).ok()
    }
}

impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        let layout = Self::layout(self.len).expect("it was taken with this layout");
        if layout.size() != 0 {
            // SAFETY: taken from this allocator with this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) }
        }
    }
}

impl<T: Plain> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: it owns that many numbers, and zero is one.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and it is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// A slice that several threads write at different places between barriers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: every access states that no other thread writes there.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// Borrows a slice for as long as threads write it.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            lifetime: PhantomData,
        }
    }

    /// Returns elements to read.
    ///
    /// # Safety
    /// Nobody writes them while the result lives.
    #[inline]
    pub(crate) unsafe fn read(&self, start: usize, len: usize) -> &'a [T] {
        assert!(start <= self.len && len <= self.len - start);
        // SAFETY: within the slice, and the caller's promise.
        unsafe { slice::from_raw_parts(self.start.add(start), len) }
    }

    /// Returns elements to write.
    ///
    /// # Safety
    /// Nobody else reads or writes them while the result lives.
    #[inline]
    pub(crate) unsafe fn write(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.len && len <= self.len - start);
        // SAFETY: within the slice, and the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::Buffer;

    #[test]
    fn buffers_are_zeroed_and_aligned() {
        let buffer = Buffer::<f32>::zeroed(1000).unwrap();
        assert_eq!(buffer.len(), 1000);
        assert!(buffer.iter().all(|&x| x.to_bits() == 0));
        assert_eq!(buffer.as_ptr() as usize % 64, 0);
        assert!(Buffer::<f32>::zeroed(0).unwrap().is_empty());
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        assert!(Buffer::<f32>::zeroed(usize::MAX / 2).is_none());
        assert!(Buffer::<f32>::zeroed(1 << 58).is_none());
    }
}
