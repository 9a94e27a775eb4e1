//! Matrices of f32, f16 and bf16 in tiles of eight rows, one vector a column,
//! and their products with rows of f32.
//!
//! An element of the result is a chain of fused multiply-adds over each 32
//! columns, and the sum of these in order.

#![expect(unsafe_code, reason = "tiles are walked by pointer")]

use std::ops::Range;

use half::{bf16, f16};

use crate::kernels::buffer::{Buffer, Plain};
use crate::kernels::isa::dispatch;
use crate::kernels::lanes::{Element, Lanes};
use crate::kernels::matmul::OutputRows;
use crate::kernels::packed::TILE;

/// Columns of one chain.
const CHAIN: usize = 32;

/// Tiles at once for a single row, and rows at once for a single tile: chains
/// that hide each other's latency.
const AT_ONCE: usize = 4;

/// A matrix of numbers as they are. `(num_rows, num_columns)`
#[derive(Debug)]
pub(crate) struct DenseMatrix<E: Plain> {
    num_rows: usize,
    num_columns: usize,
    /// `(tiles, num_columns, 8)`
    data: Buffer<E>,
}

impl<E: Element + Plain> DenseMatrix<E> {
    /// Takes memory for a matrix; `None` if there is not as much.
    pub(crate) fn zeroed(num_rows: usize, num_columns: usize) -> Option<Self> {
        let padded = num_rows.div_ceil(TILE) * TILE;
        Some(Self {
            num_rows,
            num_columns,
            data: Buffer::zeroed(padded.checked_mul(num_columns)?)?,
        })
    }

    /// Packs whole rows of numbers, in order.
    pub(crate) fn put_rows(&mut self, first_row: usize, elements: impl Iterator<Item = E>) {
        let (mut row, mut column) = (first_row, 0);
        for element in elements {
            let start = row / TILE * TILE * self.num_columns + row % TILE;
            self.data[start + column * TILE] = element;
            column += 1;
            if column == self.num_columns {
                (row, column) = (row + 1, 0);
            }
        }
    }

    /// Returns the number of rows.
    pub(crate) fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Returns the number of columns.
    pub(crate) fn num_columns(&self) -> usize {
        self.num_columns
    }

    /// Returns the bytes in memory.
    pub(crate) fn num_bytes(&self) -> usize {
        self.data.len() * size_of::<E>()
    }

    /// Writes the numbers of a row.
    pub(crate) fn read_row(&self, row: usize, to: &mut [f32]) {
        let start = row / TILE * TILE * self.num_columns + row % TILE;
        for (column, to) in to.iter_mut().enumerate() {
            *to = self.data[start + column * TILE].to_f32();
        }
    }
}

#[inline(always)]
fn multiply_body<L: Lanes, E: Element + Plain>(
    l: L,
    matrix: &DenseMatrix<E>,
    rows: &[f32],
    tiles: Range<usize>,
    output: &mut OutputRows<'_>,
) {
    let width = matrix.num_columns;
    let num_rows = rows.len() / width;
    assert!(tiles.end * TILE * width <= matrix.data.len());
    for first in (0..num_rows).step_by(AT_ONCE) {
        let mut tile = tiles.start;
        while tile < tiles.end {
            let count = num_rows - first;
            // SAFETY: the tiles are in the matrix, and the rows in `rows`.
            unsafe {
                if count == 1 && tiles.end - tile >= AT_ONCE {
                    product::<L, E, AT_ONCE, 1>(l, matrix, rows, first, tile, output);
                    tile += AT_ONCE;
                    continue;
                }
                match count {
                    1 => product::<L, E, 1, 1>(l, matrix, rows, first, tile, output),
                    2 => product::<L, E, 1, 2>(l, matrix, rows, first, tile, output),
                    3 => product::<L, E, 1, 3>(l, matrix, rows, first, tile, output),
                    _ => product::<L, E, 1, AT_ONCE>(l, matrix, rows, first, tile, output),
                }
            }
            tile += 1;
        }
    }
}

/// Multiplies T tiles with M rows.
///
/// # Safety
/// T tiles from `tile` and M rows from `row` exist.
#[inline(always)]
unsafe fn product<L: Lanes, E: Element + Plain, const T: usize, const M: usize>(
    l: L,
    matrix: &DenseMatrix<E>,
    rows: &[f32],
    row: usize,
    tile: usize,
    output: &mut OutputRows<'_>,
) {
    let width = matrix.num_columns;
    let mut totals = [[l.splat(0.0); M]; T];
    // SAFETY: the caller's promise.
    unsafe {
        let weights = matrix.data.as_ptr().add(tile * TILE * width);
        let values = rows.as_ptr().add(row * width);
        for start in (0..width).step_by(CHAIN) {
            let mut chains = [[l.splat(0.0); M]; T];
            for column in start..width.min(start + CHAIN) {
                for (t, chains) in chains.iter_mut().enumerate() {
                    let weights = l.load(weights.add((t * width + column) * TILE));
                    for (m, chain) in chains.iter_mut().enumerate() {
                        let value = l.splat(*values.add(m * width + column));
                        *chain = l.fma(weights, value, *chain);
                    }
                }
            }
            for (totals, chains) in totals.iter_mut().zip(&chains) {
                for (total, chain) in totals.iter_mut().zip(chains) {
                    *total = l.add(*total, *chain);
                }
            }
        }
    }
    for (t, totals) in totals.iter().enumerate() {
        for (m, total) in totals.iter().enumerate() {
            output.put(row + m, tile + t, &l.to_array(*total));
        }
    }
}

dispatch! {
    /// Writes the columns of some tiles, for all rows. `(num_rows, num_columns of the matrix)`
    fn multiply_f32(matrix: &DenseMatrix<f32>, rows: &[f32], tiles: Range<usize>, output: &mut OutputRows<'_>) = multiply_body::<_, f32>;
}
dispatch! {
    /// As [`multiply_f32`].
    fn multiply_f16(matrix: &DenseMatrix<f16>, rows: &[f32], tiles: Range<usize>, output: &mut OutputRows<'_>) = multiply_body::<_, f16>;
}
dispatch! {
    /// As [`multiply_f32`].
    fn multiply_bf16(matrix: &DenseMatrix<bf16>, rows: &[f32], tiles: Range<usize>, output: &mut OutputRows<'_>) = multiply_body::<_, bf16>;
}
