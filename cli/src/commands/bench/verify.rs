//! `justapi bench verify`: whether the ledger is what was measured.

use std::error::Error as _;
use std::path::Path;

use justapi_bench::ledger::{self, History};
use serde_json::json;

use crate::error::{CliError, Code};
use crate::ui::{Ui, document, good};

pub(crate) fn verify(ui: &Ui, root: Option<&Path>) -> Result<u8, CliError> {
    let root = root.unwrap_or_else(|| Path::new("."));
    let report = ledger::verify(root).map_err(|failure| {
        let error = CliError::new(Code::LedgerBroken, failure.to_string())
            .with_hint("restore the file from version control; records are never edited");
        match failure.source() {
            Some(cause) => error.with_detail("cause", cause.to_string()),
            None => error,
        }
    })?;
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
            "claims": report.num_claims,
            "history": history,
        }))?;
    } else {
        ui.data(&format!(
            "ledger {}: {} records, {} claims, {history}\n",
            good("verifies"),
            report.num_records,
            report.num_claims
        ))?;
    }
    Ok(0)
}
