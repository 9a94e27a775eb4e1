//! Rows of activations as 8-bit integers: each block of 32 has one scale, so
//! that a product with quantised weights is one of integers, and exact.
//!
//! Guarantee: an element is off by at most half its block's scale.

#![expect(unsafe_code, reason = "compiled for several sets of instructions")]

use crate::kernels::isa::dispatch;
use crate::kernels::lanes::{Lanes, NUM_LANES, greatest};

/// Elements of a block.
pub(crate) const BLOCK: usize = 32;

/// What a product needs of a block besides its integers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub(crate) struct BlockScale {
    /// Value of the integer 1.
    pub(crate) scale: f32,
    /// Sum of the block: `scale` times the sum of its integers.
    pub(crate) scaled_sum: f32,
    /// Sums of the integers of each half.
    pub(crate) half_sums: [i16; 2],
}

/// Quantised rows to read. Rows have the same width, a multiple of [`BLOCK`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuantizedRows<'a> {
    /// From -127 to 127. `(num_rows, width)`
    pub(crate) values: &'a [i8],
    /// `(num_rows, width / BLOCK)`
    pub(crate) scales: &'a [BlockScale],
    /// Elements of a row.
    pub(crate) width: usize,
}

#[inline(always)]
fn quantize_block<L: Lanes>(l: L, block: &[f32; BLOCK], values: &mut [i8; BLOCK]) -> BlockScale {
    // 1.5 * 2^23: the sum's last bits are the nearest integer, ties to even.
    const SHIFT: f32 = 12_582_912.0;
    // Below this, 127 / greatest overflows.
    const LEAST: f32 = 1e-36;
    let mut lanes = l.splat(0.0);
    for part in block.as_chunks::<NUM_LANES>().0 {
        lanes = l.max(lanes, l.abs(l.vector_of(part)));
    }
    let greatest = greatest(&l.to_array(lanes));
    if greatest < LEAST {
        *values = [0; BLOCK];
        return BlockScale::default();
    }
    let scale = greatest / 127.0;
    let inverse = 127.0 / greatest;
    let mut half_sums = [0_i16; 2];
    for (value, &x) in values.iter_mut().zip(block) {
        *value = (x * inverse + SHIFT).to_bits() as i8;
    }
    for (sum, half) in half_sums.iter_mut().zip(values.as_chunks::<16>().0) {
        *sum = half.iter().map(|&x| i16::from(x)).sum();
    }
    let sum = i32::from(half_sums[0]) + i32::from(half_sums[1]);
    BlockScale {
        scale,
        scaled_sum: scale * sum as f32,
        half_sums,
    }
}

#[inline(always)]
fn quantize_body<L: Lanes>(l: L, row: &[f32], values: &mut [i8], scales: &mut [BlockScale]) {
    let blocks = row.as_chunks::<BLOCK>().0.iter();
    let values = values.as_chunks_mut::<BLOCK>().0.iter_mut();
    for ((block, values), scale) in blocks.zip(values).zip(scales) {
        *scale = quantize_block(l, block, values);
    }
}

dispatch! {
    /// Quantises whole blocks: `row` and `values` have a multiple of [`BLOCK`] elements.
    fn quantize(row: &[f32], values: &mut [i8], scales: &mut [BlockScale]) = quantize_body;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::isa::Isa;

    fn quantized(isa: Isa, row: &[f32]) -> (Vec<i8>, Vec<BlockScale>) {
        let mut values = vec![0; row.len()];
        let mut scales = vec![BlockScale::default(); row.len() / BLOCK];
        quantize(isa, row, &mut values, &mut scales);
        (values, scales)
    }

    #[test]
    fn nothing_becomes_nothing() {
        for x in [0.0, 1e-40, f32::MIN_POSITIVE] {
            let (values, scales) = quantized(Isa::best(), &[x; 64]);
            assert_eq!(values, [0; 64]);
            assert_eq!(scales, [BlockScale::default(); 2]);
        }
    }

    proptest! {
        #[test]
        fn elements_are_off_by_half_a_scale(
            row in prop::collection::vec(-1.0_f32..1.0, 64),
            exponent in -30_i32..30,
        ) {
            let row: Vec<f32> = row.iter().map(|x| x * 2_f32.powi(exponent)).collect();
            let (values, scales) = quantized(Isa::best(), &row);
            prop_assert_eq!(&(values.clone(), scales.clone()), &quantized(Isa::Portable, &row));
            for (index, (&x, &value)) in row.iter().zip(&values).enumerate() {
                let scale = f64::from(scales[index / BLOCK].scale);
                let error = (f64::from(x) - scale * f64::from(value)).abs();
                prop_assert!(error <= scale * 0.50001, "{error} of {scale}");
                prop_assert!(value >= -127);
            }
            for (block, scale) in values.chunks(BLOCK).zip(&scales) {
                let sum = |part: &[i8]| part.iter().map(|&x| i32::from(x)).sum::<i32>();
                prop_assert_eq!(i32::from(scale.half_sums[0]), sum(&block[..16]));
                prop_assert_eq!(i32::from(scale.half_sums[1]), sum(&block[16..]));
                let expected = scale.scale * sum(block) as f32;
                prop_assert_eq!(scale.scaled_sum.to_bits(), expected.to_bits());
            }
        }
    }
}
