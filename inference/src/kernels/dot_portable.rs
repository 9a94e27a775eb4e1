//! Products of packed matrices with quantised rows in plain Rust: the meaning
//! that faster kernels have to meet, bit by bit.
//!
//! A block adds its exact sum of integers times its scale, by one fused
//! multiply-add, then its minimum by another; blocks are added in order.

use std::ops::Range;

use crate::kernels::gguf_blocks::BlockType;
use crate::kernels::matmul::OutputRows;
use crate::kernels::packed::{PackedMatrix, TILE, TileBlock};
use crate::kernels::quantize::{BLOCK, BlockScale, QuantizedRows};

/// Rows that share a block once it is taken apart.
const MAX_ROWS: usize = 32;

/// Writes the columns of some tiles, for all rows.
pub(crate) fn multiply(
    matrix: &PackedMatrix,
    rows: QuantizedRows<'_>,
    tiles: Range<usize>,
    output: &mut OutputRows<'_>,
) {
    let num_blocks = rows.width / BLOCK;
    let num_rows = rows.values.len() / rows.width;
    for tile in tiles {
        for first in (0..num_rows).step_by(MAX_ROWS) {
            let count = MAX_ROWS.min(num_rows - first);
            let mut sums = [[0.0_f32; TILE]; MAX_ROWS];
            for index in 0..num_blocks {
                let block = matrix.block(tile, index);
                for (row, sums) in sums[..count].iter_mut().enumerate() {
                    let at = (first + row) * num_blocks + index;
                    let values = &rows.values[at * BLOCK..][..BLOCK];
                    add_block(matrix.block_type(), &block, values, rows.scales[at], sums);
                }
            }
            for (row, sums) in sums[..count].iter().enumerate() {
                output.put(first + row, tile, sums);
            }
        }
    }
}

fn add_block(
    block_type: BlockType,
    block: &TileBlock,
    values: &[i8],
    scale: BlockScale,
    sums: &mut [f32; TILE],
) {
    for (lane, sum) in sums.iter_mut().enumerate() {
        let dot = |half: Range<usize>| {
            let pairs = block.quants[lane][half.clone()].iter().zip(&values[half]);
            pairs
                .map(|(&w, &x)| i32::from(w) * i32::from(x))
                .sum::<i32>()
        };
        let sub_scale = |half: usize| block.sub_scale[half][lane];
        let product = dot(0..16) * sub_scale(0) + dot(16..32) * sub_scale(1);
        *sum = (block.scale[lane] * scale.scale).mul_add(product as f32, *sum);
        let minimum = block.minimum[lane];
        match block_type {
            BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4K | BlockType::Q5K => {
                *sum = minimum.mul_add(scale.scaled_sum, *sum);
            }
            BlockType::Q2K => {
                let part =
                    |half: usize| block.sub_minimum[half][lane] * i32::from(scale.half_sums[half]);
                let whole = (part(0) + part(1)) as f32;
                *sum = (minimum * scale.scale).mul_add(whole, *sum);
            }
            BlockType::Q4_0
            | BlockType::Q5_0
            | BlockType::Q8_0
            | BlockType::Q3K
            | BlockType::Q6K => {}
        }
    }
}
