//! Values of one block of each format, plainly: what every kernel is measured
//! against. Source: `ggml-quants.c` (ggml-org/ggml) for the order of bits and
//! of operations.
//!
//! Each function takes the bytes of a block and room for its values.

mod blocks_of_256;
mod blocks_of_32;

pub(super) use self::blocks_of_32::{q4_0, q4_1, q5_0, q5_1, q8_0};
pub(super) use self::blocks_of_256::{q2_k, q3_k, q4_k, q5_k, q6_k};

/// A number in little-endian order.
pub(super) fn f32(block: &[u8], values: &mut [f32]) {
    values[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
}

/// Half precision in little-endian order; also the scales in blocks of all other formats.
pub(super) fn f16(block: &[u8], values: &mut [f32]) {
    values[0] = half_at(block, 0);
}

/// The upper half of a number in little-endian order.
pub(super) fn bf16(block: &[u8], values: &mut [f32]) {
    values[0] = half::bf16::from_le_bytes([block[0], block[1]]).to_f32();
}

fn half_at(block: &[u8], offset: usize) -> f32 {
    half::f16::from_le_bytes([block[offset], block[offset + 1]]).to_f32()
}
