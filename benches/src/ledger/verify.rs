//! The check that a reader, and CI, runs: content, history, claims, charts.

use std::path::Path;

use super::chain::LedgerFiles;
use super::history::{self, History};
use super::{VerifyFailure, charts, claims};

/// What was checked and found in order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VerifyReport {
    /// Entries in the chain: records of runs, and strikes.
    pub num_records: usize,
    /// Rows, verdicts and cells that are struck through.
    pub num_struck: usize,
    /// Claims in `README.md` and `docs/` that quote their record.
    pub num_claims: usize,
    /// Charts that show their record.
    pub num_charts: usize,
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
    Ok(VerifyReport {
        num_records: chain.len(),
        num_struck: chain.num_struck(),
        num_claims: claims::check_all(root, &chain)?,
        num_charts: charts::check(root, &chain)?,
        history: history::check(root, &files, &chain)?,
    })
}
