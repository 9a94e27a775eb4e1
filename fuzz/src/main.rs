//! libFuzzer's entry: one program for all targets, of which
//! `JUSTAPI_FUZZ_TARGET` names the one to run.
//!
//! Guarantee: besides the target's own properties, an input may not take more
//! memory than the target allows.

#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::env;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use justapi_core::fuzzing::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

const CONFIG: Target = Target::new("config", justapi_cli::fuzzing::check, 1024 * 1024);
// A header's buffer grows by reads of 256 KiB, and a key or a tensor takes a small multiple of its bytes.
const GGUF: Target = Target::new("gguf", justapi_inference::fuzzing::check_gguf, 1024 * 1024);
const SAFETENSORS: Target = Target::new(
    "safetensors",
    justapi_inference::fuzzing::check_safetensors,
    1024 * 1024,
);

static TARGET: OnceLock<Target> = OnceLock::new();

/// The system's allocator, and what is allocated through it.
struct Counting;

static ALLOCATED_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = ALLOCATED_BYTES.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK_BYTES.fetch_max(now, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `pointer` came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn target() -> Target {
    let name = env::var("JUSTAPI_FUZZ_TARGET").unwrap_or_default();
    let mut targets = TARGETS.iter().copied().chain([CONFIG, GGUF, SAFETENSORS]);
    targets
        .find(|target| target.name == name)
        .unwrap_or_else(|| panic!("JUSTAPI_FUZZ_TARGET names no target: {name:?}"))
}

fuzz_target!(|bytes: &[u8]| {
    let target = TARGET.get_or_init(target);
    let before = ALLOCATED_BYTES.load(Relaxed);
    PEAK_BYTES.store(before, Relaxed);
    (target.check)(bytes);
    let taken = PEAK_BYTES.load(Relaxed) - before;
    assert!(
        taken <= target.max_memory_bytes,
        "{taken} bytes of memory, most {}",
        target.max_memory_bytes
    );
});
