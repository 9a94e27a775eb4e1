//! Header of a safetensors file: a length of 8 bytes, and JSON that gives
//! format, shape and place of each tensor.

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::error::Error;
use crate::weights::file::ModelFile;
use crate::weights::{DataType, StoredTensor};

/// The format's own limit.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Reads the tensors of a file, in the order of their bytes.
pub(super) fn read(file: &ModelFile, file_index: usize) -> Result<Vec<StoredTensor>, Error> {
    let Some(most) = file.num_bytes().checked_sub(8) else {
        let what = format!("{} bytes are no safetensors file", file.num_bytes());
        return Err(file.malformed(what));
    };
    let mut prefix = [0; 8];
    file.read_at(&mut prefix, 0)?;
    let header_bytes = u64::from_le_bytes(prefix);
    if header_bytes > most.min(MAX_HEADER_BYTES) {
        let most = most.min(MAX_HEADER_BYTES);
        return Err(file.malformed(format!("header of {header_bytes} bytes, most {most}")));
    }
    let mut header = vec![0; header_bytes as usize];
    file.read_at(&mut header, 8)?;
    // Decoding checks that tensors follow one another without gaps, and that
    // shapes have as many bytes as their places.
    let metadata: Metadata = serde_json::from_slice(&header)
        .map_err(|error| file.malformed(format!("header: {error}")))?;
    let (expected, found) = (metadata.data_len() as u64, most - header_bytes);
    if expected != found {
        let what = format!("tensors of {expected} bytes, and the file has {found} for them");
        return Err(file.malformed(what));
    }
    let mut tensors = Vec::new();
    for name in metadata.offset_keys() {
        let info = metadata.info(&name).expect("a name of its own");
        let Some(data_type) = data_type(info.dtype) else {
            return Err(file.unsupported(format!(
                "tensor {name} has the format {:?}; supported: F32, F16, BF16",
                info.dtype
            )));
        };
        let (start, end) = info.data_offsets;
        tensors.push(StoredTensor {
            data_type,
            shape: info.shape.clone(),
            file_index,
            offset: 8 + header_bytes + start as u64,
            num_bytes: end - start,
            name,
        });
    }
    Ok(tensors)
}

fn data_type(dtype: Dtype) -> Option<DataType> {
    match dtype {
        Dtype::F32 => Some(DataType::F32),
        Dtype::F16 => Some(DataType::F16),
        Dtype::BF16 => Some(DataType::BF16),
        _ => None,
    }
}
