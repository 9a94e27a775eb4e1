//! `justapi bench verify`: whether the ledger is what was measured.

use std::error::Error as _;
use std::path::Path;

use justapi_bench::VerifyFailure;
use justapi_bench::ledger::{self, History};
use serde_json::json;

use crate::error::{CliError, Code};
use crate::ui::{Ui, document, good};

pub(super) fn verify(ui: &Ui, root: &Path) -> Result<u8, CliError> {
    let report = ledger::verify(root).map_err(|failure| broken(&failure))?;
    let history = match &report.history {
        History::Checked { .. } => "whole git history checked".to_owned(),
        History::Shallow { .. } => "shallow clone: only its part of the history checked".to_owned(),
        History::Unavailable { reason } => format!("history not checked: {reason}"),
        _ => "history not checked".to_owned(),
    };
    if ui.is_json() {
        document(&json!({
            "v": 1,
            "ok": true,
            "records": report.num_records,
            "superseded": report.num_struck,
            "claims": report.num_claims,
            "charts": report.num_charts,
            "history": history,
        }))?;
    } else {
        ui.data(&format!(
            "ledger {}: {} records, {} superseded items, {} claims, {} charts, {history}\n",
            good("verifies"),
            report.num_records,
            report.num_struck,
            report.num_claims,
            report.num_charts
        ))?;
    }
    Ok(0)
}

/// What does not verify, with the way out of it.
pub(super) fn broken(failure: &VerifyFailure) -> CliError {
    let hint = match failure {
        VerifyFailure::Claim { .. } => {
            "`justapi bench claims` fills marked places from the records"
        }
        VerifyFailure::Unclaimed { .. } => {
            "mark it as a claim of a record, or say it without the number"
        }
        VerifyFailure::Chart { .. } => {
            "`justapi bench charts` draws them again; remove those of no record"
        }
        VerifyFailure::Strike { .. } => {
            "name a record of the ledger and a row, rule or cell in it that is not struck yet"
        }
        _ => "restore the file from version control; records are never edited",
    };
    let error = CliError::new(Code::LedgerBroken, failure.to_string()).with_hint(hint);
    match failure.source() {
        Some(cause) => error.with_detail("cause", cause.to_string()),
        None => error,
    }
}
