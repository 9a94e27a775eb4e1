//! The check that a reader, and CI, runs: content, history, claims.

use std::fs;
use std::io;
use std::path::Path;

use super::chain::LedgerFiles;
use super::history::{self, History};
use super::{VerifyFailure, claims};

/// The document whose performance claims are checked.
const README: &str = "README.md";

/// What was checked and found in order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VerifyReport {
    /// Records in the chain.
    pub num_records: usize,
    /// Claims in `README.md` that quote their record.
    pub num_claims: usize,
    /// What git says about the past.
    pub history: History,
}

/// Checks records, chain and `BENCHMARKS.md`, which is what [`append`](super::append) will ask for.
///
/// Call it before a long run, or the run may have nowhere to go.
///
/// # Errors
///
/// Returns the first thing found wrong.
pub fn check(root: &Path) -> Result<(), VerifyFailure> {
    LedgerFiles::read(root)?.check().map(drop)
}

/// Verifies the ledger below `root`.
///
/// An empty ledger is in order. Without git, or in a shallow clone, the past cannot be checked in
/// full; the report says so.
///
/// # Errors
///
/// Returns the first thing found wrong.
pub fn verify(root: &Path) -> Result<VerifyReport, VerifyFailure> {
    let files = LedgerFiles::read(root)?;
    let chain = files.check()?;
    let readme_path = root.join(README);
    let num_claims = match fs::read_to_string(&readme_path) {
        Ok(text) => claims::check(README, &text, &chain)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(source) => {
            return Err(VerifyFailure::Unreadable {
                path: readme_path,
                source,
            });
        }
    };
    Ok(VerifyReport {
        num_records: chain.links.len(),
        num_claims,
        history: history::check(root, &files)?,
    })
}
