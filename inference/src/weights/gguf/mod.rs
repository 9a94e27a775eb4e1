//! GGUF, versions 2 and 3 in little-endian order: metadata and tensors.
//! Source: `docs/gguf.md` (ggml-org/ggml).
//!
//! Guarantee: for any file an answer or an error, no more memory than a small
//! multiple of the file, and no tensor that is not wholly inside the file.

#[cfg(test)]
pub(crate) mod builder;
mod header;
mod metadata;
mod tensors;

use std::ops::Range;
use std::path::Path;

pub use self::metadata::{Metadata, Strings};

use super::file::ModelFile;
use super::tensor_table::{self, TensorTable};
use super::{StoredTensor, WeightSource};
use crate::error::Error;
use header::HeaderReader;

const MAGIC: &[u8] = b"GGUF";

/// An open GGUF.
#[derive(Debug)]
pub struct GgufFile {
    file: ModelFile,
    metadata: Metadata,
    tensors: TensorTable,
}

impl GgufFile {
    /// Opens a file and reads all but the tensors' bytes.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Malformed`], and [`Error::Unsupported`] for
    /// other versions, for big-endian files, for one of several parts and for
    /// formats of tensors that are not in [`crate::DataType`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::read(ModelFile::open(path)?)
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        Self::read(ModelFile::of_bytes("model.gguf", bytes))
    }

    fn read(file: ModelFile) -> Result<Self, Error> {
        let mut reader = HeaderReader::new(&file);
        check_magic(&file, &mut reader)?;
        check_version(&file, &mut reader)?;
        let num_tensors = reader.u64(&"header", "number of tensors")?;
        let num_keys = reader.u64(&"header", "number of metadata keys")?;
        let entries = metadata::read_entries(&mut reader, num_keys)?;
        let infos = tensors::read_infos(&file, &mut reader, num_tensors)?;
        let header_end = reader.position() as u64;
        let metadata = Metadata::new(file.path(), reader.finish(), entries);
        check_parts(&file, &metadata)?;
        let tensors = tensors::place(&file, &metadata, header_end, infos)?;
        Ok(Self {
            file,
            metadata,
            tensors,
        })
    }

    /// Returns what the file says about the model.
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the path that the file was opened by.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl WeightSource for GgufFile {
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
        tensor_table::read_rows(&self.file, tensor, rows, bytes)
    }
}

fn check_magic(file: &ModelFile, reader: &mut HeaderReader<'_>) -> Result<(), Error> {
    let magic = reader.skip(4, &"header", "magic")?;
    let found = reader.bytes(magic);
    if found == MAGIC {
        return Ok(());
    }
    Err(file.malformed(format!(
        "is not a GGUF: it begins with \"{}\", not \"GGUF\"",
        found.escape_ascii()
    )))
}

fn check_version(file: &ModelFile, reader: &mut HeaderReader<'_>) -> Result<(), Error> {
    match reader.u32(&"header", "version")? {
        2 | 3 => Ok(()),
        version if version.swap_bytes() <= 0xFFFF && version > 0xFFFF => {
            Err(file.unsupported("a GGUF in big-endian order"))
        }
        version => Err(file.unsupported(format!("GGUF of version {version}, only 2 and 3"))),
    }
}

/// The tensors of one part are not a model.
fn check_parts(file: &ModelFile, metadata: &Metadata) -> Result<(), Error> {
    match metadata.unsigned("split.count")? {
        None | Some(0 | 1) => Ok(()),
        Some(count) => Err(file.unsupported(format!(
            "one of {count} parts of a model; `llama-gguf-split --merge` joins them"
        ))),
    }
}

#[cfg(test)]
mod tests;
