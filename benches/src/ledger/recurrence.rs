//! Rules that have failed before: a FAIL needs two runs that agree, and this finds the other one.
//!
//! Guarantee: what it finds is a function of the entries before a record, so the verifier finds the
//! same. The newest run that decided the very same rule counts; one that is struck through does not,
//! unless it was only measured again.

use std::collections::BTreeMap;
use std::path::Path;

use super::chain::{Chain, LedgerFiles, strikes_of};
use super::entry::Entry;
use super::strike::{Marks, StrikeReason};
use super::{CellRecord, Previous, Target, Verdict};
use crate::matrix::FAILED_ONCE;

/// The first edition of the rules that asks for a second run.
const FIRST_EDITION: u32 = 4;

/// The runs before a new one.
#[derive(Debug, Default)]
pub(crate) struct EarlierRuns(Chain);

impl EarlierRuns {
    /// Reads them below `root`; none where the ledger is not in order, to which nothing can be added.
    pub(crate) fn read(root: &Path) -> Self {
        let chain = LedgerFiles::read(root).and_then(|files| files.check_entries());
        chain.map_or_else(|_| Self::default(), Self)
    }

    /// The rules of a cell that have failed, each with the file of its record.
    pub(crate) fn failures(&self, cell: &CellRecord) -> BTreeMap<String, String> {
        failures(self.0.links(), cell)
    }
}

/// As [`EarlierRuns::failures`], of entries that precede a record.
pub(super) fn failures(
    before: &[(Previous, Entry)],
    cell: &CellRecord,
) -> BTreeMap<String, String> {
    if cell.rules_edition < FIRST_EDITION {
        return BTreeMap::new();
    }
    (cell.targets.iter())
        .filter_map(|target| Some((target.id.clone(), failure(before, cell, target)?)))
        .collect()
}

fn failure(before: &[(Previous, Entry)], cell: &CellRecord, target: &Target) -> Option<String> {
    let id = format!("{}/{}", cell.id, target.id);
    let decided = before.iter().rev().find_map(|(link, entry)| {
        let record = entry.record()?;
        let mut cells = record.cells.iter();
        let same = cells.find(|same| same.id == cell.id && same.targets.contains(target))?;
        let row = same.verdicts.iter().find(|row| row.id == id)?;
        let struck = Marks::on(&link.file, strikes_of(before)).item(record, &id);
        if struck.is_some_and(|struck| struck.reason != StrikeReason::Remeasure) {
            return None;
        }
        match row.verdict {
            Verdict::Pass => Some((&link.file, false)),
            Verdict::Fail => Some((&link.file, true)),
            _ if row.reason.as_deref() == Some(FAILED_ONCE) => Some((&link.file, true)),
            _ => None,
        }
    });
    decided
        .filter(|(_, has_failed)| *has_failed)
        .map(|(file, _)| file.clone())
}
