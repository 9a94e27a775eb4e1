//! The files that `static` cells serve: pseudo-random, and a function of their length alone.
//!
//! Content that does not compress and does not repeat: a wrong offset anywhere in an answer is
//! another body. SplitMix64 (Steele, Lea, Flood, 2014) is spelled out, because the bytes are part
//! of what a record says and may not change with a library.

use std::fs;
use std::path::Path;

use crate::Error;
use crate::ledger::ServedFile;

/// Largest file: it is also held in memory, to compare each answer with.
pub(super) const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Folder of the files, inside `{dir}`.
const FOLDER: &str = "files";

/// Returns the content of a file of this length.
pub(super) fn content(bytes: u64) -> Vec<u8> {
    let length = usize::try_from(bytes).expect("the matrix keeps the limit of a file");
    let mut state = bytes;
    let mut content = Vec::with_capacity(length + size_of::<u64>());
    while content.len() < length {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        content.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
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
    fn content_is_fixed_by_its_length() {
        // The first words of another implementation for the seed 16.
        assert!(content(0).is_empty());
        let expected: [u64; 2] = [0x5de1_86dc_ba77_9207, 0x145a_11ca_c985_644b];
        let bytes = expected.map(u64::to_le_bytes).concat();
        assert_eq!(content(16), bytes);
        assert_eq!(content(11).len(), 11);
        assert_ne!(content(4096)[..16], content(4097)[..16]);
    }

    /// Digests of an independent implementation, in Python.
    #[test]
    fn the_digests_are_those_of_another_implementation() {
        for (bytes, expected) in [
            (4096, "6f98b4a98d406393863b06d8787c8c0cf62f694bc062450dab6b08b26e3b8ed1"),
            (1_048_576, "01ac200d5808b9d6e3ab5f05977d9bf4b88eabc21bad6a30c72cc3ad7d53341e"),
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
