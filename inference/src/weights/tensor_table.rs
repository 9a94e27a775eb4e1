//! Tensors by name, and their bytes out of the files.

use std::ops::Range;

use super::file::ModelFile;
use super::{DataType, StoredTensor};
use crate::error::Error;

/// Tensors of a model's files, no two with the same name.
#[derive(Debug)]
pub(super) struct TensorTable {
    tensors: Vec<StoredTensor>,
    /// Indices of `tensors`, in the order of names.
    by_name: Vec<usize>,
}

impl TensorTable {
    /// Takes the tensors, or gives back the name that two of them have.
    pub(super) fn new(tensors: Vec<StoredTensor>) -> Result<Self, String> {
        let mut by_name: Vec<usize> = (0..tensors.len()).collect();
        by_name.sort_unstable_by_key(|index| &tensors[*index].name);
        let twice = by_name
            .windows(2)
            .find(|pair| tensors[pair[0]].name == tensors[pair[1]].name);
        if let Some(pair) = twice {
            return Err(tensors[pair[0]].name.clone());
        }
        Ok(Self { tensors, by_name })
    }

    pub(super) fn get(&self, name: &str) -> Option<&StoredTensor> {
        let compare = |index: &usize| self.tensors[*index].name.as_str().cmp(name);
        let place = self.by_name.binary_search_by(compare).ok()?;
        Some(&self.tensors[self.by_name[place]])
    }

    pub(super) fn all(&self) -> &[StoredTensor] {
        &self.tensors
    }
}

/// Reads rows of a tensor out of its file, and checks that what scales them is finite.
pub(super) fn read_rows(
    file: &ModelFile,
    tensor: &StoredTensor,
    rows: Range<usize>,
    bytes: &mut Vec<u8>,
) -> Result<(), Error> {
    let num_rows = tensor.num_rows();
    assert!(
        rows.start <= rows.end && rows.end <= num_rows,
        "rows {rows:?} of {}, which has {num_rows}",
        tensor.name
    );
    let row_bytes = tensor.row_bytes();
    bytes.clear();
    bytes.resize(rows.len() * row_bytes, 0);
    let offset = tensor.offset + (rows.start * row_bytes) as u64;
    file.read_at(bytes, offset)?;
    match non_finite_block(tensor.data_type, bytes) {
        None => Ok(()),
        Some(block) => {
            let place = rows.start * row_bytes / tensor.data_type.block_bytes() + block;
            Err(file.malformed(format!(
                "tensor {}: block {place} of {} is infinite or not a number",
                tensor.name, tensor.data_type
            )))
        }
    }
}

/// Finds the first block whose values are infinite or not numbers: all bits
/// of a number's exponent are set.
fn non_finite_block(data_type: DataType, bytes: &[u8]) -> Option<usize> {
    let is_non_finite = |block: &[u8], offset: usize| block[offset + 1] & 0x7C == 0x7C;
    let block_bytes = data_type.block_bytes();
    let mut blocks = bytes.chunks_exact(block_bytes);
    match data_type {
        DataType::F32 => blocks.position(|block| block[3] & 0x7F == 0x7F && block[2] & 0x80 != 0),
        DataType::BF16 => blocks.position(|block| block[1] & 0x7F == 0x7F && block[0] & 0x80 != 0),
        DataType::F16 | DataType::Q8_0 | DataType::Q4_0 | DataType::Q5_0 => {
            blocks.position(|block| is_non_finite(block, 0))
        }
        DataType::Q4_1 | DataType::Q5_1 | DataType::Q4K | DataType::Q5K => {
            blocks.position(|block| is_non_finite(block, 0) || is_non_finite(block, 2))
        }
        DataType::Q2K => {
            blocks.position(|block| is_non_finite(block, 80) || is_non_finite(block, 82))
        }
        DataType::Q3K | DataType::Q6K => {
            blocks.position(|block| is_non_finite(block, block_bytes - 2))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::non_finite_block;
    use crate::weights::DataType;

    #[test]
    fn a_block_is_found_exactly_when_a_value_is_not_finite() {
        for data_type in DataType::ALL {
            let clean = vec![0x11; data_type.block_bytes() * 3];
            assert_eq!(non_finite_block(data_type, &clean), None, "{data_type}");
            for place in 0..data_type.block_bytes() {
                let mut bytes = clean.clone();
                let byte = data_type.block_bytes() + place;
                bytes[byte] = 0xFF;
                // Numbers of 16 bits have their exponent in one byte, f32 in two.
                if matches!(data_type, DataType::F32 | DataType::BF16) && place > 0 {
                    bytes[byte - 1] = 0xFF;
                }
                let mut values = vec![0.0; data_type.block_len() * 3];
                data_type.dequantize(&bytes, &mut values);
                let expected = values.iter().any(|value| !value.is_finite());
                let found = non_finite_block(data_type, &bytes);
                assert_eq!(found, expected.then_some(1), "{data_type}, byte {place}");
            }
        }
    }
}
