//! Tensor table of a GGUF: each tensor of a known format, wholly inside the
//! file, aligned, and over none of the others.

use super::Metadata;
use super::header::HeaderReader;
use crate::error::Error;
use crate::weights::file::ModelFile;
use crate::weights::tensor_table::TensorTable;
use crate::weights::{DataType, StoredTensor};

/// The specification's limit.
const MAX_DIMENSIONS: u32 = 4;

/// Large models have some thousands.
const MAX_TENSORS: u64 = 64 * 1024;

/// ggml has room for 64, and files of other tools have more.
const MAX_NAME_BYTES: usize = 1024;

const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u64 = 32;

/// Formats of ggml that the engine does not have, for the message.
const OTHER_FORMATS: &[(u32, &str)] = &[
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
];

/// Reads the table; offsets count from the end of the header still.
pub(super) fn read_infos(
    file: &ModelFile,
    reader: &mut HeaderReader<'_>,
    num_tensors: u64,
) -> Result<Vec<StoredTensor>, Error> {
    if num_tensors > MAX_TENSORS {
        return Err(file.malformed(format!("header: {num_tensors} tensors, most {MAX_TENSORS}")));
    }
    let mut infos = Vec::new();
    for index in 0..num_tensors {
        let place = format_args!("tensor {index} of {num_tensors}");
        let range = reader.string(&place, "its name")?;
        if range.len() > MAX_NAME_BYTES {
            let what = format!(
                "{place}: name of {} bytes, most {MAX_NAME_BYTES}",
                range.len()
            );
            return Err(file.malformed(what));
        }
        if range.is_empty() {
            return Err(file.malformed(format!("{place}: has no name")));
        }
        let name = reader.text(range).to_owned();
        infos.push(read_info(file, reader, name)?);
    }
    Ok(infos)
}

fn read_info(
    file: &ModelFile,
    reader: &mut HeaderReader<'_>,
    name: String,
) -> Result<StoredTensor, Error> {
    let wrong = |what: String| file.malformed(format!("tensor {name}: {what}"));
    let place = format_args!("tensor {name}");
    let num_dimensions = reader.u32(&place, "number of dimensions")?;
    if !(1..=MAX_DIMENSIONS).contains(&num_dimensions) {
        return Err(wrong(format!(
            "{num_dimensions} dimensions, 1 to {MAX_DIMENSIONS}"
        )));
    }
    let mut shape = Vec::with_capacity(num_dimensions as usize);
    for _ in 0..num_dimensions {
        shape.push(reader.u64(&place, "dimension")? as usize);
    }
    // The file has the innermost axis first.
    shape.reverse();
    let format = reader.u32(&place, "format")?;
    let offset = reader.u64(&place, "offset")?;
    let data_type = DataType::from_gguf(format).ok_or_else(|| {
        let known = OTHER_FORMATS.iter().find(|(number, _)| *number == format);
        let format = known.map_or_else(
            || format!("number {format}"),
            |(_, name)| (*name).to_owned(),
        );
        let supported = DataType::ALL.map(DataType::name).join(", ");
        file.unsupported(format!(
            "tensor {name} has the format {format}; supported: {supported}"
        ))
    })?;
    if shape.contains(&0) {
        return Err(wrong(format!("shape {shape:?} has an empty axis")));
    }
    let num_values = shape
        .iter()
        .try_fold(1_usize, |product, len| product.checked_mul(*len));
    let row_len = shape[shape.len() - 1];
    if !row_len.is_multiple_of(data_type.block_len()) {
        return Err(wrong(format!(
            "rows of {row_len} values, in blocks of {} ({data_type})",
            data_type.block_len()
        )));
    }
    let num_bytes = num_values
        .and_then(|num_values| data_type.num_bytes(num_values))
        .ok_or_else(|| wrong(format!("shape {shape:?} is more than there can be")))?;
    Ok(StoredTensor {
        name,
        data_type,
        shape,
        file_index: 0,
        offset,
        num_bytes,
    })
}

/// Makes offsets count from the beginning of the file, and checks where tensors lie.
pub(super) fn place(
    file: &ModelFile,
    metadata: &Metadata,
    header_end: u64,
    mut tensors: Vec<StoredTensor>,
) -> Result<TensorTable, Error> {
    let alignment = metadata
        .unsigned(ALIGNMENT_KEY)?
        .unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() || alignment > u64::from(u32::MAX) {
        let what = format_args!("{alignment} is no power of two below 2^32");
        return Err(metadata.malformed(ALIGNMENT_KEY, what));
    }
    let data_start = header_end.next_multiple_of(alignment);
    for tensor in &mut tensors {
        let wrong = |what: String| file.malformed(format!("tensor {}: {what}", tensor.name));
        if !tensor.offset.is_multiple_of(alignment) {
            return Err(wrong(format!(
                "offset {} is no multiple of the alignment {alignment}",
                tensor.offset
            )));
        }
        let start = data_start.checked_add(tensor.offset);
        let end = start.and_then(|start| start.checked_add(tensor.num_bytes as u64));
        match (start, end) {
            (Some(start), Some(end)) if end <= file.num_bytes() => tensor.offset = start,
            _ => {
                return Err(wrong(format!(
                    "{} bytes at {data_start} + {}, and the file has {}",
                    tensor.num_bytes,
                    tensor.offset,
                    file.num_bytes()
                )));
            }
        }
    }
    check_overlaps(file, &tensors)?;
    TensorTable::new(tensors)
        .map_err(|name| file.malformed(format!("tensor {name}: is there twice")))
}

fn check_overlaps(file: &ModelFile, tensors: &[StoredTensor]) -> Result<(), Error> {
    let mut by_offset: Vec<&StoredTensor> = tensors.iter().collect();
    by_offset.sort_unstable_by_key(|tensor| tensor.offset);
    for pair in by_offset.windows(2) {
        let end = pair[0].offset + pair[0].num_bytes as u64;
        if end > pair[1].offset {
            return Err(file.malformed(format!(
                "tensor {}: begins at byte {}, before tensor {} ends at byte {end}",
                pair[1].name, pair[1].offset, pair[0].name
            )));
        }
    }
    Ok(())
}
