//! What writes to or is drawn from the ledger: strikes, claims, charts, a page.

use std::fs;
use std::path::Path;

use justapi_bench::ledger::{self, Struck};
use justapi_bench::{Error, VerifyFailure};
use serde_json::{Value, json};

use super::failure;
use super::verify::broken;
use crate::config::shown_path;
use crate::error::{CliError, Code};
use crate::ui::{Ui, document, faint};

pub(super) fn supersede(ui: &Ui, root: &Path, strikes: Vec<Struck>) -> Result<u8, CliError> {
    let appended = ledger::supersede(root, strikes).map_err(|error| match error {
        Error::Ledger(failure @ VerifyFailure::Strike { .. }) => {
            CliError::new(Code::BenchInput, failure.to_string())
                .with_hint("name a record, and a row, rule or cell in it that is not struck yet")
        }
        error => explained(&error),
    })?;
    let path = appended.path.strip_prefix(".").unwrap_or(&appended.path);
    let path = shown_path(path).display().to_string();
    ui.event(
        "recorded",
        json!({"record": path, "sha256": appended.sha256}),
        &format!("{}\n{}\n", appended.section.trim(), faint(&path)),
    )?;
    Ok(0)
}

pub(super) fn claims(ui: &Ui, root: &Path) -> Result<u8, CliError> {
    let claimed = ledger::fill_claims(root).map_err(|error| explained(&error))?;
    if ui.is_json() {
        document(&json!({
            "v": 1,
            "claims": claimed.num_claims,
            "changed": claimed.changed,
        }))?;
    } else {
        let changed = match claimed.changed.as_slice() {
            [] => String::from("nothing had to change"),
            changed => format!("written: {}", changed.join(", ")),
        };
        ui.data(&format!("{} claims, {changed}\n", claimed.num_claims))?;
    }
    Ok(0)
}

pub(super) fn charts(ui: &Ui, root: &Path, records: &[String]) -> Result<u8, CliError> {
    let drawn = ledger::draw(root, records).map_err(|error| match error {
        error @ Error::NoRecord { .. } => failure(Code::BenchInput, &error)
            .with_hint("records are the files in benches/results, with or without `.json`"),
        error => explained(&error),
    })?;
    if ui.is_json() {
        document(&json!({
            "v": 1,
            "charts": drawn.charts,
            "written": drawn.num_written,
        }))?;
    } else {
        let mut list = drawn.charts.join("\n");
        if !list.is_empty() {
            list.push('\n');
        }
        let written = drawn.num_written;
        ui.data(&format!(
            "{list}{} charts, {written} written\n",
            drawn.charts.len()
        ))?;
    }
    Ok(0)
}

pub(super) fn throughput(ui: &Ui, reports: &Path, out: &Path) -> Result<u8, CliError> {
    let values = read_reports(reports)?;
    let name = reports.file_stem().unwrap_or_default().to_string_lossy();
    let svg = ledger::throughput(&name, &values).ok_or_else(|| {
        let text = format!("no report in {} has an offered rate", reports.display());
        CliError::new(Code::BenchInput, text)
            .with_hint("make them with `justapi bench URL --rate N --json`, one after the other")
    })?;
    write(out, &svg)?;
    written(ui, out, values.len())
}

pub(super) fn report(ui: &Ui, root: &Path, out: &Path) -> Result<u8, CliError> {
    let page = ledger::page(root).map_err(|error| explained(&error))?;
    write(out, &page)?;
    written(ui, out, page.len())
}

/// The JSON documents of a file, one after the other.
pub(super) fn read_reports(path: &Path) -> Result<Vec<Value>, CliError> {
    let input = |text: String| {
        CliError::new(Code::BenchInput, text)
            .with_hint("`justapi bench URL --json >> FILE` adds one report to a file")
    };
    let text = fs::read_to_string(path)
        .map_err(|error| input(format!("cannot read {}", path.display())).with_cause(&error))?;
    let values = serde_json::Deserializer::from_str(&text)
        .into_iter()
        .collect::<Result<Vec<Value>, _>>()
        .map_err(|error| input(format!("{} is not JSON: {error}", path.display())))?;
    if values.is_empty() {
        return Err(input(format!("{} holds no report", path.display())));
    }
    Ok(values)
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    fs::write(path, text).map_err(|error| {
        CliError::new(
            Code::BenchFailed,
            format!("cannot write {}", path.display()),
        )
        .with_cause(&error)
    })
}

fn written(ui: &Ui, path: &Path, count: usize) -> Result<u8, CliError> {
    let path = shown_path(path).display().to_string();
    if ui.is_json() {
        document(&json!({"v": 1, "written": path, "size": count}))?;
    } else {
        ui.data(&format!("{path}\n"))?;
    }
    Ok(0)
}

/// A ledger that does not verify has an exit status of its own.
fn explained(error: &Error) -> CliError {
    match error {
        Error::Ledger(found) => broken(found),
        error => failure(Code::BenchFailed, error),
    }
}
