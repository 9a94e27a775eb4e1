//! A matrix of workloads, run against us and our peers, into the ledger.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use justapi_bench::Error;
use justapi_bench::ledger::{self, Record, Verdict};
use justapi_bench::machine::BusyMachine;
use justapi_bench::matrix::{self, MicroBenchmarks, Progress, RunOptions};
use serde_json::json;

use super::{INTERRUPTED, failure, micro, status_of, stop_flag};
use crate::args::Bench;
use crate::config::shown_path;
use crate::error::{CliError, Code};
use crate::spelling;
use crate::ui::{Ui, faint, heading};

/// How long a busy machine is waited for: a load average of builds that have ended is gone by then.
const PATIENCE: Duration = Duration::from_mins(2);

pub(super) fn run(ui: &Ui, name: &str, arguments: &Bench) -> Result<u8, CliError> {
    let root = arguments.root.clone().unwrap_or_else(|| PathBuf::from("."));
    let mut options = options(name, root)?;
    options.rounds = arguments.rounds;
    options.cells.clone_from(&arguments.cell);
    options.busy = if arguments.allow_busy {
        BusyMachine::Accept
    } else {
        let after = arguments.patience.unwrap_or(PATIENCE);
        BusyMachine::Refuse { after }
    };
    let stop: &AtomicBool = &*stop_flag()?;
    let mut functions = MicroBenchmarks::default();
    micro::register(&mut functions);
    let mut lost = None;
    let mut observe = |progress: Progress<'_>| {
        // A reader that has left does not end the measurement.
        if let Err(error) = say(ui, progress) {
            lost = Some(error);
        }
    };
    let record = match matrix::run(&options, &mut functions, &mut observe, stop) {
        Ok(record) => record,
        Err(Error::Interrupted) => {
            let human = "interrupted; nothing was added to the ledger\n";
            ui.event("interrupted", json!({}), human)?;
            return Ok(INTERRUPTED);
        }
        Err(error @ Error::Busy { .. }) => {
            return Err(failure(Code::BenchFailed, &error).with_hint(
                "end what else runs, wait longer with `--patience 10m`, or measure all the same \
                 with `--allow-busy`, which the record then says",
            ));
        }
        Err(error @ Error::NotReleaseBuild { .. }) => {
            return Err(failure(Code::BenchInput, &error)
                .with_hint("build with `cargo build --release`, and run that binary"));
        }
        Err(error @ (Error::Matrix { .. } | Error::MatrixSyntax { .. })) => {
            return Err(failure(Code::BenchInput, &error)
                .with_hint("correct the matrix file; nothing was measured"));
        }
        Err(error) => return Err(failure(Code::BenchFailed, &error)),
    };
    let status = status(&record);
    let appended = ledger::append(&options.root, record).map_err(|error| match error {
        Error::Ledger(_) => failure(Code::LedgerBroken, &error)
            .with_hint("`justapi bench verify` says what is wrong with the ledger"),
        error => failure(Code::BenchFailed, &error),
    })?;
    let path = appended.path.strip_prefix(".").unwrap_or(&appended.path);
    let path = shown_path(path).display().to_string();
    ui.event(
        "recorded",
        json!({"record": path, "sha256": appended.sha256}),
        &format!("\n{}\n{}\n", appended.section.trim(), faint(&path)),
    )?;
    lost.map_or(Ok(status), Err)
}

/// The declared matrix, with our own binary and the peers beside it.
fn options(name: &str, root: PathBuf) -> Result<RunOptions, CliError> {
    let subject = env::current_exe().map_err(|error| {
        CliError::new(Code::BenchFailed, "cannot find the path of this binary").with_cause(&error)
    })?;
    let folder = subject
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_owned);
    let mut options = RunOptions::new(matrix_file(name, &root)?, subject, folder);
    options.root = root;
    Ok(options)
}

/// `name` as a file, or as `benches/matrix/NAME.toml` below `root`.
fn matrix_file(name: &str, root: &Path) -> Result<PathBuf, CliError> {
    let named = root.join("benches/matrix").join(format!("{name}.toml"));
    [PathBuf::from(name), named.clone()]
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| {
            let near = spelling::nearest_file(&named).filter(|near| near.is_file());
            let near = near.and_then(|near| Some(near.file_stem()?.to_string_lossy().into_owned()));
            let meant = near.map(|near| format!(" – did you mean `{near}`?"));
            let meant = meant.unwrap_or_default();
            CliError::new(Code::BenchInput, format!("no matrix `{name}`{meant}"))
                .with_detail("looked for", format!("{name}, {}", named.display()))
                .with_hint("run in the workspace, or name its folder with `--root`")
        })
}

fn say(ui: &Ui, progress: Progress<'_>) -> Result<(), CliError> {
    match progress {
        Progress::CellStarted { id, num_steps } => ui.event(
            "cell",
            json!({"cell": id, "steps": num_steps}),
            &format!("{}   {num_steps} steps\n", heading(id)),
        ),
        Progress::RoundFinished { id, round } => {
            let trouble = round
                .invalid
                .as_ref()
                .map_or_else(String::new, |reason| format!("   INVALID: {reason}"));
            ui.event(
                "round",
                json!({
                    "cell": id,
                    "round": round.round,
                    "arm": round.label,
                    "invalid": round.invalid,
                }),
                &format!("  round {:<3} {}{trouble}\n", round.round + 1, round.label),
            )
        }
        Progress::CellFinished { cell } => {
            let lines: Vec<_> = cell
                .verdicts
                .iter()
                .map(|verdict| {
                    let reason = (verdict.reason.as_ref())
                        .map_or_else(String::new, |reason| format!(": {reason}"));
                    format!("  {}   {}{reason}\n", verdict.verdict.name(), verdict.rule)
                })
                .collect();
            let verdicts: Vec<_> = cell
                .verdicts
                .iter()
                .map(|verdict| {
                    json!({
                        "id": verdict.id,
                        "verdict": verdict.verdict.name(),
                        "reason": verdict.reason,
                    })
                })
                .collect();
            ui.event(
                "judged",
                json!({"cell": cell.id, "verdicts": verdicts}),
                &lines.concat(),
            )
        }
        _ => Ok(()),
    }
}

fn status(record: &Record) -> u8 {
    let rows = record.cells.iter().flat_map(|cell| &cell.rows);
    let invalid_rows = rows
        .filter(|row| row.invalid.is_some())
        .map(|_| Verdict::Invalid);
    status_of(record.verdicts().map(|row| row.verdict).chain(invalid_rows))
}
