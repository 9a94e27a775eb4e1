//! Products of rows with a matrix, whatever its numbers are.
//!
//! Guarantee: an element of the result depends on its row and on its column of
//! weights alone, to the last bit: not on other rows, nor on how tiles are shared
//! among threads, nor on the instructions.

#![expect(
    unsafe_code,
    reason = "threads write different columns of the same rows"
)]

use std::ops::Range;

use half::{bf16, f16};

use crate::kernels::buffer::Shared;
use crate::kernels::dense::{self, DenseMatrix};
#[cfg(target_arch = "x86_64")]
use crate::kernels::dot_avx2;
use crate::kernels::dot_portable;
use crate::kernels::gguf_blocks::BlockType;
use crate::kernels::isa::Isa;
use crate::kernels::packed::{PackedMatrix, TILE};
use crate::kernels::quantize::QuantizedRows;
use crate::weights::DataType;

/// A matrix that rows are multiplied with. `(num_rows, num_columns)`, as files have it: (out, in)
#[derive(Debug)]
pub(crate) enum Matrix {
    /// Quantised in blocks.
    Packed(PackedMatrix),
    /// Single precision.
    F32(DenseMatrix<f32>),
    /// Half precision.
    F16(DenseMatrix<f16>),
    /// Upper halves of single precision.
    Bf16(DenseMatrix<bf16>),
}

/// Rows that a matrix is multiplied with: `(num_rows, width)` both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputRows<'a> {
    /// As they are; read by matrices that are not quantised.
    pub(crate) values: &'a [f32],
    /// As integers; read by quantised matrices.
    pub(crate) quantized: QuantizedRows<'a>,
}

/// Where products go. `(num_rows, width)`
#[derive(Debug)]
pub(crate) struct OutputRows<'a> {
    rows: Shared<'a, f32>,
    width: usize,
}

impl<'a> OutputRows<'a> {
    /// Borrows rows of `width` for columns of some tiles.
    ///
    /// # Safety
    /// Nobody else reads or writes the columns that are written while it lives.
    pub(crate) unsafe fn new(rows: Shared<'a, f32>, width: usize) -> Self {
        Self { rows, width }
    }

    /// Returns columns of a row.
    ///
    /// # Safety
    /// They are among those promised at `new`, and are not borrowed twice.
    pub(crate) unsafe fn columns(&self, row: usize, first: usize, count: usize) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.rows.write(row * self.width + first, count) }
    }

    /// Writes the columns of a tile that exist.
    #[inline(always)]
    pub(crate) fn put(&mut self, row: usize, tile: usize, values: &[f32; TILE]) {
        let first = tile * TILE;
        let count = TILE.min(self.width - first);
        // SAFETY: the promise at `new`.
        let to = unsafe { self.rows.write(row * self.width + first, count) };
        match to.as_mut_array() {
            Some(to) => *to = *values,
            None => to.copy_from_slice(&values[..count]),
        }
    }
}

impl Matrix {
    /// Takes memory for a matrix of numbers that are stored so; `None` if there is not as much.
    pub(crate) fn zeroed(data_type: DataType, num_rows: usize, num_columns: usize) -> Option<Self> {
        let block_type = match data_type {
            DataType::F32 => return DenseMatrix::zeroed(num_rows, num_columns).map(Self::F32),
            DataType::F16 => return DenseMatrix::zeroed(num_rows, num_columns).map(Self::F16),
            DataType::BF16 => return DenseMatrix::zeroed(num_rows, num_columns).map(Self::Bf16),
            DataType::Q4_0 => BlockType::Q4_0,
            DataType::Q4_1 => BlockType::Q4_1,
            DataType::Q5_0 => BlockType::Q5_0,
            DataType::Q5_1 => BlockType::Q5_1,
            DataType::Q8_0 => BlockType::Q8_0,
            DataType::Q2K => BlockType::Q2K,
            DataType::Q3K => BlockType::Q3K,
            DataType::Q4K => BlockType::Q4K,
            DataType::Q5K => BlockType::Q5K,
            DataType::Q6K => BlockType::Q6K,
        };
        PackedMatrix::zeroed(block_type, num_rows, num_columns).map(Self::Packed)
    }

    /// Packs whole rows as they are stored.
    ///
    /// `first_row` is a multiple of [`TILE`], and so is the number of rows but at the end.
    pub(crate) fn put_rows(&mut self, first_row: usize, bytes: &[u8]) {
        let halves = || bytes.as_chunks::<2>().0.iter().copied();
        match self {
            Self::Packed(matrix) => matrix.put_rows(first_row, bytes),
            Self::F32(matrix) => {
                let numbers = bytes.as_chunks::<4>().0.iter().copied();
                matrix.put_rows(first_row, numbers.map(f32::from_le_bytes));
            }
            Self::F16(matrix) => matrix.put_rows(first_row, halves().map(f16::from_le_bytes)),
            Self::Bf16(matrix) => matrix.put_rows(first_row, halves().map(bf16::from_le_bytes)),
        }
    }

    /// Returns the number of rows: elements of a result.
    pub(crate) fn num_rows(&self) -> usize {
        match self {
            Self::Packed(matrix) => matrix.num_rows(),
            Self::F32(matrix) => matrix.num_rows(),
            Self::F16(matrix) => matrix.num_rows(),
            Self::Bf16(matrix) => matrix.num_rows(),
        }
    }

    /// Returns the number of columns: elements of an input.
    pub(crate) fn num_columns(&self) -> usize {
        match self {
            Self::Packed(matrix) => matrix.num_columns(),
            Self::F32(matrix) => matrix.num_columns(),
            Self::F16(matrix) => matrix.num_columns(),
            Self::Bf16(matrix) => matrix.num_columns(),
        }
    }

    /// Returns the bytes in memory.
    pub(crate) fn num_bytes(&self) -> usize {
        match self {
            Self::Packed(matrix) => matrix.num_bytes(),
            Self::F32(matrix) => matrix.num_bytes(),
            Self::F16(matrix) => matrix.num_bytes(),
            Self::Bf16(matrix) => matrix.num_bytes(),
        }
    }

    /// Returns the number of tiles that work is shared by.
    pub(crate) fn num_tiles(&self) -> usize {
        self.num_rows().div_ceil(TILE)
    }

    /// Returns whether products read quantised rows.
    pub(crate) fn is_quantized(&self) -> bool {
        matches!(self, Self::Packed(_))
    }

    /// Writes a row. `(num_columns)`
    pub(crate) fn read_row(&self, row: usize, to: &mut [f32]) {
        match self {
            Self::Packed(matrix) => matrix.read_row(row, to),
            Self::F32(matrix) => matrix.read_row(row, to),
            Self::F16(matrix) => matrix.read_row(row, to),
            Self::Bf16(matrix) => matrix.read_row(row, to),
        }
    }

    /// Multiplies rows, and writes the columns of some tiles.
    pub(crate) fn multiply(
        &self,
        isa: Isa,
        input: InputRows<'_>,
        tiles: Range<usize>,
        output: &mut OutputRows<'_>,
    ) {
        match self {
            Self::Packed(matrix) => match isa {
                Isa::Portable => dot_portable::multiply(matrix, input.quantized, tiles, output),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2(proof) => {
                    dot_avx2::multiply(proof, matrix, input.quantized, tiles, output);
                }
            },
            Self::F32(matrix) => dense::multiply_f32(isa, matrix, input.values, tiles, output),
            Self::F16(matrix) => dense::multiply_f16(isa, matrix, input.values, tiles, output),
            Self::Bf16(matrix) => dense::multiply_bf16(isa, matrix, input.values, tiles, output),
        }
    }
}

#[cfg(test)]
mod tests;
