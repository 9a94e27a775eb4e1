//! A strike: the entry that marks rows of earlier records as superseded.
//!
//! It is a link of the chain like any record, so a mark can be proved and never be taken back. The
//! row stays where it is; the renderer strikes it through and says why.

use serde::{Deserialize, Serialize};

use super::record::{CellRecord, Record, VerdictRow};
use super::{Previous, VerifyFailure};

/// What is struck through by one `justapi bench supersede`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Strike {
    /// Version of this layout.
    pub schema_version: u32,
    /// Random part of the file name.
    pub id: String,
    /// When it was written, `2026-11-29T14:49:46Z`.
    pub recorded_utc: String,
    /// The program that wrote it.
    pub recorded_by: String,
    /// The entry before this one. Set by [`supersede`](super::supersede).
    pub previous: Option<Previous>,
    /// The items.
    pub strikes: Vec<Struck>,
}

/// One item that is struck through.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Struck {
    /// File name of the record that has it.
    pub record: String,
    /// A row `cell/label`, a verdict `cell/target`, or a whole `cell`.
    pub item: String,
    /// The kind of mistake.
    pub reason: StrikeReason,
    /// What happened, in words.
    pub note: String,
    /// File name of the record that stands in its place, if it was measured again.
    pub by: Option<String>,
}

/// Why a result is no longer one to rely on.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StrikeReason {
    /// The measured program was not the one that was meant.
    BadBuild,
    /// The load engine or its use was wrong.
    BadClient,
    /// The exchange that the cell promises has changed.
    ContractChanged,
    /// The machine was not in the state that the record says.
    FixtureChanged,
    /// The bench itself was wrong.
    HarnessBug,
    /// Nothing was wrong; a newer run counts.
    Remeasure,
}

impl StrikeReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::BadBuild,
        Self::BadClient,
        Self::ContractChanged,
        Self::FixtureChanged,
        Self::HarnessBug,
        Self::Remeasure,
    ];

    /// Returns the name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::BadBuild => "bad_build",
            Self::BadClient => "bad_client",
            Self::ContractChanged => "contract_changed",
            Self::FixtureChanged => "fixture_changed",
            Self::HarnessBug => "harness_bug",
            Self::Remeasure => "remeasure",
        }
    }
}

/// The strikes on one record, with the file of the entry that holds each.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks<'a>(Vec<(&'a str, &'a Struck)>);

impl<'a> Marks<'a> {
    /// Those among `strikes` that are on the record `file`.
    pub(super) fn on(file: &str, strikes: impl Iterator<Item = (&'a str, &'a Strike)>) -> Self {
        Self(
            strikes
                .flat_map(|(entry, strike)| strike.strikes.iter().map(move |s| (entry, s)))
                .filter(|(_, struck)| struck.record == file)
                .collect(),
        )
    }

    fn find(&self, is_meant: impl Fn(&str) -> bool) -> Option<&'a Struck> {
        let mut all = self.0.iter();
        all.find(|(_, struck)| is_meant(&struck.item))
            .map(|(_, struck)| *struck)
    }

    /// The strike on a row, or on its cell.
    pub(super) fn row(&self, cell: &CellRecord, row: &str) -> Option<&'a Struck> {
        self.find(|item| item == row || item == cell.id)
    }

    /// The strike on a verdict: its own, that of its cell, or that of a row it was computed from.
    pub(super) fn verdict(&self, cell: &CellRecord, verdict: &VerdictRow) -> Option<&'a Struck> {
        let rows = rows_behind(cell, verdict);
        self.find(|item| item == verdict.id || item == cell.id || rows.iter().any(|r| r == item))
    }

    /// The strike on what a claim or another strike names.
    pub(super) fn item(&self, record: &Record, item: &str) -> Option<&'a Struck> {
        let whole = self.find(|struck| struck == item);
        whole.or_else(|| {
            record.cells.iter().find_map(|cell| {
                let is_row = cell.rows.iter().any(|row| row.id == item);
                if is_row {
                    return self.row(cell, item);
                }
                let verdict = cell.verdicts.iter().find(|verdict| verdict.id == item)?;
                self.verdict(cell, verdict)
            })
        })
    }
}

/// The ids of the rows that a verdict compares, with the repetitions that gave its noise.
fn rows_behind(cell: &CellRecord, verdict: &VerdictRow) -> Vec<String> {
    let id = verdict.id.rsplit('/').next().unwrap_or_default();
    let Some(target) = cell.targets.iter().find(|target| target.id == id) else {
        return Vec::new();
    };
    let repetitions = (cell.arms.iter())
        .filter(|arm| target.versus.is_some() && arm.same_as.is_some())
        .map(|arm| &arm.label);
    std::iter::once(&target.label)
        .chain(&target.versus)
        .chain(&target.less)
        .chain(repetitions)
        .map(|label| format!("{}/{label}", cell.id))
        .collect()
}

/// Checks the items of a strike against the chain before it.
///
/// # Errors
///
/// An item that is not there, that is struck through already, or whose replacement is not there.
pub(super) fn check<'a>(
    file: &str,
    strike: &Strike,
    record_of: &dyn Fn(&str) -> Option<&'a Record>,
    struck_on: &dyn Fn(&str) -> Vec<String>,
) -> Result<(), VerifyFailure> {
    let fail = |item: &str, problem: &str| {
        Err(VerifyFailure::Strike {
            file: file.to_owned(),
            item: item.to_owned(),
            problem: problem.to_owned(),
        })
    };
    if strike.strikes.is_empty() {
        return fail("nothing", "it strikes nothing through");
    }
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for struck in &strike.strikes {
        let Some(record) = record_of(&struck.record) else {
            return fail(&struck.record, "no such record before it");
        };
        let is_there = record.cells.iter().any(|cell| {
            cell.id == struck.item
                || cell.rows.iter().any(|row| row.id == struck.item)
                || cell.verdicts.iter().any(|row| row.id == struck.item)
        });
        if !is_there {
            return fail(&struck.item, "the record has no such row, verdict or cell");
        }
        let key = (struck.record.as_str(), struck.item.as_str());
        if seen.contains(&key) || struck_on(&struck.record).contains(&struck.item) {
            return fail(&struck.item, "it is struck through already");
        }
        seen.push(key);
        if struck.note.trim().is_empty() {
            return fail(&struck.item, "the note is empty");
        }
        if let Some(by) = &struck.by {
            if *by == struck.record {
                return fail(&struck.item, "a record cannot stand in its own place");
            }
            if record_of(by).is_none() {
                return fail(by, "no such record before it");
            }
        }
    }
    Ok(())
}
