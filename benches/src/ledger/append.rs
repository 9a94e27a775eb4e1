//! The only writer of the ledger.
//!
//! Order: check what is there, write the record (temporary file, fsync, rename without replacing,
//! fsync of the folder), then append its section with one write and fsync. All under an exclusive
//! lock of `BENCHMARKS.md`, so two runs follow each other instead of forking the chain.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::chain::{LedgerFiles, record_bytes};
use super::render::{HEADER, section};
use super::{BENCHMARKS, RESULTS, Record, sha256_hex};
use crate::Error;

/// Where a record went.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Appended {
    /// The record file.
    pub path: PathBuf,
    /// Its SHA-256, as the next record will hold it.
    pub sha256: String,
    /// The section that was added to `BENCHMARKS.md`.
    pub section: String,
}

/// Appends a run to the ledger below `root`, setting `record.previous`.
///
/// # Errors
///
/// Refuses a record with a program that reports a build profile other than release, and a ledger
/// that does not verify: a torn tail is reported with its offset and left as it is.
pub fn append(root: &Path, mut record: Record) -> Result<Appended, Error> {
    refuse_debug_builds(&record)?;
    let folder = root.join(RESULTS);
    fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
    let document_path = root.join(BENCHMARKS);
    let mut document = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&document_path)
        .map_err(Error::file("open", &document_path))?;
    document
        .lock()
        .map_err(Error::file("lock", &document_path))?;

    let files = LedgerFiles::read(root)?;
    record.previous = files.check()?.last();
    let file = record.file_name();
    let path = folder.join(&file);
    let bytes = record_bytes(&record).map_err(|source| Error::File {
        operation: "encode",
        path: path.clone(),
        source: source.into(),
    })?;
    let sha256 = sha256_hex(&bytes);
    write_new(&folder, &path, &bytes)?;

    let section = section(&file, &sha256, &record);
    let is_new = files.benchmarks.is_none_or(|bytes| bytes.is_empty());
    let text = format!("{}{section}", if is_new { HEADER } else { "" });
    document
        .write_all(text.as_bytes())
        .and_then(|()| document.sync_all())
        .map_err(Error::file("append to", &document_path))?;
    if is_new {
        sync_folder(root)?;
    }
    Ok(Appended {
        path,
        sha256,
        section,
    })
}

fn refuse_debug_builds(record: &Record) -> Result<(), Error> {
    for program in record.programs.values() {
        if let Some(profile) = &program.profile
            && profile != "release"
        {
            return Err(Error::NotReleaseBuild {
                program: program.path.clone(),
                found: profile.clone(),
            });
        }
    }
    Ok(())
}

fn write_new(folder: &Path, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        file.as_file()
            .set_permissions(Permissions::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path)?;
        Ok(())
    };
    write().map_err(Error::file("write", path))?;
    sync_folder(folder)
}

fn sync_folder(folder: &Path) -> Result<(), Error> {
    File::open(folder)
        .and_then(|handle| handle.sync_all())
        .map_err(Error::file("sync", folder))
}
