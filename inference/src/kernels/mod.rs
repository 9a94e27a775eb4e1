//! What a processor computes: products with quantised matrices, norms,
//! rotations, attention over paged keys and values.
//!
//! Guarantee of each: a row's result is the same bits whatever else is computed
//! beside it, with any instructions and any number of threads.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is not compiled with its caller's instructions"
)]

pub(crate) mod attention;
pub(crate) mod buffer;
pub(crate) mod dense;
#[cfg(target_arch = "x86_64")]
mod dot_avx2;
mod dot_portable;
pub(crate) mod gguf_blocks;
pub(crate) mod isa;
pub(crate) mod kv_cache;
mod lanes;
#[cfg(target_arch = "x86_64")]
mod lanes_avx2;
pub(crate) mod math;
pub(crate) mod matmul;
#[cfg(test)]
pub(crate) mod noise;
pub(crate) mod packed;
pub(crate) mod quantize;
pub(crate) mod rope;
