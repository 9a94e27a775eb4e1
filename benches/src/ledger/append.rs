//! The only writer of the ledger.
//!
//! Order: check what is there, write the entry (temporary file, fsync, rename without replacing,
//! fsync of the folder), then put the document that follows from all entries in place of the one
//! before, by rename. All under an exclusive lock of the folder of records, so two runs follow each
//! other instead of forking the chain.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::chain::{Chain, LedgerFiles, path_of};
use super::entry::Entry;
use super::record::SCHEMA_VERSION;
use super::recurrence;
use super::{
    BENCHMARKS, Previous, RESULTS, Record, Strike, Struck, render, sha256_hex, utc_timestamp,
};
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
/// Cells in which a rule failed are judged again if what earlier runs say about it is not what the
/// record has of them.
///
/// # Errors
///
/// Refuses a record with a program that reports a build profile other than release, one with an
/// invalid row of a model server, and a ledger that does not verify: a torn tail is reported with its offset and left as it is.
pub fn append(root: &Path, mut record: Record) -> Result<Appended, Error> {
    refuse_debug_builds(&record)?;
    refuse_unusable(&record)?;
    let ledger = Locked::open(root)?;
    for cell in &mut record.cells {
        let failures = recurrence::failures(ledger.chain.links(), cell);
        if cell.failed_before != failures {
            cell.failed_before = failures;
            crate::matrix::judge(cell, record.seed);
        }
    }
    ledger.write(Entry::Run(Box::new(record)))
}

/// Strikes rows of earlier records through: they stay, marked, with the reason.
///
/// # Errors
///
/// Refuses an item that the named record does not have or that is struck through already, and a
/// ledger that does not verify.
pub fn supersede(root: &Path, strikes: Vec<Struck>) -> Result<Appended, Error> {
    let ledger = Locked::open(root)?;
    let strike = Strike {
        schema_version: SCHEMA_VERSION,
        id: format!("{:08x}", fastrand::u32(..)),
        recorded_utc: utc_timestamp(SystemTime::now()),
        recorded_by: format!("justapi-bench {}", env!("CARGO_PKG_VERSION")),
        previous: None,
        strikes: strikes
            .into_iter()
            .map(|struck| ledger.chain.with_file_names(struck))
            .collect(),
    };
    let file = path_of(&super::entry::file_name(&strike.recorded_utc, &strike.id));
    ledger.chain.check_strike(&file, &strike)?;
    ledger.write(Entry::Strike(strike))
}

/// A ledger that is in order and that nobody else writes to.
struct Locked {
    root: PathBuf,
    chain: Chain,
    _lock: File,
}

impl Locked {
    fn open(root: &Path) -> Result<Self, Error> {
        let folder = root.join(RESULTS);
        fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
        let lock = File::open(&folder).map_err(Error::file("open", &folder))?;
        lock.lock().map_err(Error::file("lock", &folder))?;
        Ok(Self {
            root: root.to_owned(),
            chain: LedgerFiles::read(root)?.check()?,
            _lock: lock,
        })
    }

    fn write(mut self, mut entry: Entry) -> Result<Appended, Error> {
        entry.set_previous(self.chain.last());
        let file = entry.file_name();
        let folder = self.root.join(RESULTS);
        let path = folder.join(&file);
        let bytes = entry.to_bytes().map_err(|source| Error::File {
            operation: "encode",
            path: path.clone(),
            source: source.into(),
        })?;
        let sha256 = sha256_hex(&bytes);
        write_new(&folder, &path, &bytes)?;

        let marks = super::strike::Marks::default();
        let section = render::section(&file, &sha256, &entry, &marks);
        let link = Previous {
            file,
            sha256: sha256.clone(),
        };
        self.chain.push(link, entry);
        write_document(&self.root, &self.chain.document())?;
        Ok(Appended {
            path,
            sha256,
            section,
        })
    }
}

/// Puts the document in place of the one before.
pub(super) fn write_document(root: &Path, text: &str) -> Result<(), Error> {
    replace(&root.join(BENCHMARKS), text.as_bytes())
}

/// Puts a whole file in place of the one before: nobody ever sees half of it.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    // A link stays one, and what it points to is replaced.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        let mode = fs::metadata(&path).map_or(0o644, |found| found.permissions().mode());
        file.as_file()
            .set_permissions(Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        Ok(())
    };
    write().map_err(Error::file("write", &path))?;
    sync_folder(folder)
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

/// A server of a matrix that fails is a result of its row; of a model server there is none then.
fn refuse_unusable(record: &Record) -> Result<(), Error> {
    for cell in record.cells.iter().filter(|cell| cell.serving.is_some()) {
        if let Some(reason) = cell.rows.iter().find_map(|row| row.invalid.as_ref()) {
            return Err(Error::NotUsable {
                reason: format!("{}: {reason}", cell.id),
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
