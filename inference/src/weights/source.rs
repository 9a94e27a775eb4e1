//! What the loader of a backend sees of a model's files, whatever their format.

use std::ops::Range;

use super::DataType;
use crate::error::Error;

/// Tensors of a model's files.
pub trait WeightSource: Send {
    /// Finds a tensor by the name it has in the file.
    fn tensor(&self, name: &str) -> Option<&StoredTensor>;

    /// Lists every tensor, in the order of the files.
    fn tensors(&self) -> &[StoredTensor];

    /// Reads rows of a tensor of this source; `bytes` is overwritten.
    ///
    /// # Errors
    /// [`Error::Read`] where the file cannot be read, or was cut since it was opened.
    ///
    /// # Panics
    /// If `rows` goes past [`StoredTensor::num_rows`].
    fn read_rows(
        &self,
        tensor: &StoredTensor,
        rows: Range<usize>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Error>;

    /// Reads all of a tensor; `bytes` is overwritten.
    ///
    /// # Errors
    /// As [`WeightSource::read_rows`].
    fn read(&self, tensor: &StoredTensor, bytes: &mut Vec<u8>) -> Result<(), Error> {
        self.read_rows(tensor, 0..tensor.num_rows(), bytes)
    }
}

/// A tensor in a file. Its rows lie one after another, each of whole blocks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredTensor {
    /// Name in the file.
    pub name: String,
    /// Format of its numbers.
    pub data_type: DataType,
    /// Lengths of the axes, outermost first: `(rows, columns)` of a matrix.
    pub shape: Vec<usize>,
    /// Which file of the source holds it.
    pub(super) file_index: usize,
    /// Where it begins in the file, in bytes.
    pub(super) offset: u64,
    /// Its length, in bytes.
    pub(super) num_bytes: usize,
}

impl StoredTensor {
    /// Describes a tensor that is in no file.
    #[cfg(test)]
    pub(crate) fn in_memory(name: String, data_type: DataType, shape: Vec<usize>) -> Self {
        let num_bytes = data_type.num_bytes(shape.iter().product());
        Self {
            name,
            data_type,
            shape,
            file_index: 0,
            offset: 0,
            num_bytes: num_bytes.expect("whole blocks"),
        }
    }

    /// Returns its length in bytes.
    pub const fn num_bytes(&self) -> usize {
        self.num_bytes
    }

    /// Returns the number of values in a row: the length of the last axis.
    pub fn row_len(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Returns the number of rows: 1 of a vector.
    pub fn num_rows(&self) -> usize {
        let (_, outer) = self.shape.split_last().unwrap_or((&1, &[]));
        outer.iter().product()
    }

    /// Returns the number of values.
    pub fn num_values(&self) -> usize {
        self.num_rows() * self.row_len()
    }

    /// Returns the number of bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.num_bytes.checked_div(self.num_rows()).unwrap_or(0)
    }
}
