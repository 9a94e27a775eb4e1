//! Safetensors: one file, or a folder as Hugging Face lays it out, whose index
//! names the file of each tensor. Source: the format's README
//! (huggingface/safetensors), whose crate reads the headers.
//!
//! Guarantee: no file outside the folder is opened by what an index says.

mod header;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Component, Path};

use serde::Deserialize;

use super::file::{ModelFile, malformed, read_error};
use super::tensor_table::{self, TensorTable};
use super::{StoredTensor, WeightSource};
use crate::error::Error;

const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";

/// The largest models have some hundreds; each is a descriptor.
const MAX_FILES: usize = 1024;

/// Some hundred bytes for each tensor.
const MAX_INDEX_BYTES: u64 = 64 * 1024 * 1024;

/// Open safetensors files, and the tensors of all of them.
#[derive(Debug)]
pub struct SafetensorsFiles {
    files: Vec<ModelFile>,
    tensors: TensorTable,
}

/// What matters of `model.safetensors.index.json`.
#[derive(Deserialize)]
struct Index {
    /// Name of a tensor, and of its file.
    weight_map: BTreeMap<String, String>,
}

impl SafetensorsFiles {
    /// Opens one file.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Malformed`], and [`Error::Unsupported`] for
    /// numbers that are not F32, F16 or BF16.
    pub fn open_file(path: &Path) -> Result<Self, Error> {
        Self::read(vec![ModelFile::open(path)?])
    }

    /// Opens `model.safetensors` of a folder, or what its index names.
    ///
    /// # Errors
    /// As [`SafetensorsFiles::open_file`]; an index that names a path, or a
    /// tensor that is not where it says.
    pub fn open_folder(folder: &Path) -> Result<Self, Error> {
        let single = folder.join(SINGLE_FILE);
        if single.exists() {
            return Self::open_file(&single);
        }
        let index_path = folder.join(INDEX_FILE);
        let index = read_index(&index_path)?;
        let mut names: Vec<&str> = index.weight_map.values().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() > MAX_FILES {
            let what = format!("{} files, most {MAX_FILES}", names.len());
            return Err(malformed(&index_path, what));
        }
        let open = |name: &&str| {
            if !is_file_name(name) {
                let what = format!("{name:?} is not the name of a file in this folder");
                return Err(malformed(&index_path, what));
            }
            ModelFile::open(&folder.join(name))
        };
        let files = names.iter().map(open).collect::<Result<Vec<_>, Error>>()?;
        let opened = Self::read(files)?;
        for (tensor, file) in &index.weight_map {
            let found = opened.tensor(tensor).map(|found| names[found.file_index]);
            if found != Some(file) {
                let found = found.unwrap_or("no file");
                let what = format!("tensor {tensor}: should be in {file}, and is in {found}");
                return Err(malformed(&index_path, what));
            }
        }
        Ok(opened)
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        Self::read(vec![ModelFile::of_bytes(SINGLE_FILE, bytes)])
    }

    fn read(files: Vec<ModelFile>) -> Result<Self, Error> {
        let mut tensors = Vec::new();
        for (file_index, file) in files.iter().enumerate() {
            tensors.extend(header::read(file, file_index)?);
        }
        let tensors = TensorTable::new(tensors).map_err(|name| {
            let last = files.last().expect("a tensor is in a file");
            last.malformed(format!("tensor {name}: is there twice"))
        })?;
        Ok(Self { files, tensors })
    }
}

impl WeightSource for SafetensorsFiles {
    fn tensor(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.get(name)
    }

    fn tensors(&self) -> &[StoredTensor] {
        self.tensors.all()
    }

    fn read_rows(
        &self,
        tensor: &StoredTensor,
        rows: Range<usize>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Error> {
        tensor_table::read_rows(&self.files[tensor.file_index], tensor, rows, bytes)
    }
}

fn read_index(path: &Path) -> Result<Index, Error> {
    let read = || {
        if fs::metadata(path)?.len() > MAX_INDEX_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        fs::read(path)
    };
    let text = read().map_err(|source| read_error(path, source))?;
    serde_json::from_slice(&text).map_err(|error| malformed(path, error.to_string()))
}

/// Says whether this is a name, and not a way through folders.
fn is_file_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let first = parts.next();
    let is_plain = matches!(first, Some(Component::Normal(part)) if part == name);
    is_plain && parts.next().is_none() && !name.contains('\\')
}

#[cfg(test)]
mod tests;
