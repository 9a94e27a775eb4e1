//! The files that `static` cells serve: pseudo-random, and a function of their length alone.
//!
//! Content that does not compress and does not repeat: a wrong offset anywhere in an answer is
//! another body.

use std::fs;
use std::path::Path;

use crate::Error;
use crate::ledger::ServedFile;
use crate::stats::SplitMix64;

/// Largest file: it is also held in memory, to compare each answer with.
pub(super) const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Folder of the files, inside `{dir}`.
const FOLDER: &str = "files";

/// Returns the content of a file of this length.
pub(super) fn content(bytes: u64) -> Vec<u8> {
    let length = usize::try_from(bytes).expect("the matrix keeps the limit of a file");
    let mut random = SplitMix64(bytes);
    let mut content = Vec::with_capacity(length + size_of::<u64>());
    while content.len() < length {
        content.extend_from_slice(&random.next().to_le_bytes());
    }
    content.truncate(length);
    content
}

/// Writes the file into `folder` and returns its content.
pub(super) fn write(folder: &Path, file: &ServedFile) -> Result<Vec<u8>, Error> {
    let folder = folder.join(FOLDER);
    fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
    let content = content(file.bytes);
    let path = folder.join(&file.name);
    fs::write(&path, &content).map_err(Error::file("write", &path))?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::sha256_hex;

    #[test]
    fn each_length_has_its_own_content() {
        assert!(content(0).is_empty());
        assert_eq!(content(11).len(), 11);
        assert_ne!(content(4096)[..16], content(4097)[..16]);
    }

    /// Digests of an independent implementation, in Python.
    #[test]
    fn the_digests_are_those_of_another_implementation() {
        for (bytes, expected) in [
            (
                4096,
                "6f98b4a98d406393863b06d8787c8c0cf62f694bc062450dab6b08b26e3b8ed1",
            ),
            (
                1_048_576,
                "01ac200d5808b9d6e3ab5f05977d9bf4b88eabc21bad6a30c72cc3ad7d53341e",
            ),
        ] {
            assert_eq!(sha256_hex(&content(bytes)), expected);
        }
    }

    #[test]
    fn a_file_is_written_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = ServedFile {
            name: String::from("f.bin"),
            bytes: 70_001,
        };
        let content = write(folder.path(), &file).unwrap();
        let found = fs::read(folder.path().join("files/f.bin")).unwrap();
        assert_eq!((found.len(), found == content), (70_001, true));
    }
}
