//! `justapi bench`: one URL or application under load, a model server, a matrix into the
//! ledger, or what is done with the ledger: proof, strikes, claims, comparison,
//! charts, a page.
//!
//! Guarantee: Ctrl-C ends a measurement within moments and still reports what
//! was measured; a second one ends the process.

mod compare;
mod ledger;
mod llm;
pub(super) mod load;
pub(super) mod load_plan;
mod matrix;
mod micro;
mod verify;

use std::error::Error as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use justapi_bench::ledger::{Struck, Verdict};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::args::{Bench, BenchCommand};
use crate::error::{CliError, Code, plain};
use crate::ui::Ui;

/// Exit status after Ctrl-C.
pub(super) const INTERRUPTED: u8 = 130;

pub(crate) fn bench(ui: &Ui, arguments: &Bench, config: Option<&Path>) -> Result<u8, CliError> {
    match (&arguments.matrix, &arguments.target) {
        (Some(matrix), _) => matrix::run(ui, matrix, arguments),
        (None, Some(_)) => load::run(ui, arguments, config),
        (None, None) => unreachable!("clap requires a target or a matrix"),
    }
}

/// A model server, or what is done with the ledger rather than for it.
pub(crate) fn command(ui: &Ui, command: &BenchCommand) -> Result<u8, CliError> {
    match command {
        BenchCommand::Llm(arguments) => llm::llm(ui, arguments),
        BenchCommand::Verify { ledger } => verify::verify(ui, ledger.root()),
        BenchCommand::Supersede {
            record,
            items,
            reason,
            note,
            by,
            ledger,
        } => {
            let strikes = items.iter().map(|item| Struck {
                record: record.clone(),
                item: item.clone(),
                reason: *reason,
                note: note.clone(),
                by: by.clone(),
            });
            ledger::supersede(ui, ledger.root(), strikes.collect())
        }
        BenchCommand::Claims { ledger } => ledger::claims(ui, ledger.root()),
        BenchCommand::Compare {
            first,
            second,
            margin,
            ledger,
        } => compare::compare(ui, ledger.root(), [first, second], *margin),
        BenchCommand::Charts {
            records,
            reports,
            out,
            ledger,
        } => match (reports, out) {
            (Some(reports), Some(out)) => ledger::throughput(ui, reports, out),
            _ => ledger::charts(ui, ledger.root(), records),
        },
        BenchCommand::Report { out, ledger } => ledger::report(ui, ledger.root(), out),
    }
}

/// Exit status when a rule failed.
const FAILED: u8 = 2;
/// Exit status when the data do not decide a rule.
const INCONCLUSIVE: u8 = 3;
/// Exit status when a measurement is wrong.
const INVALID: u8 = 4;

/// The worst verdict decides; a wrong measurement is worse than a lost one.
fn status_of(verdicts: impl Iterator<Item = Verdict>) -> u8 {
    let mut worst = 0;
    for verdict in verdicts {
        worst = match (verdict, worst) {
            (Verdict::Invalid, _) | (_, INVALID) => INVALID,
            (Verdict::Fail, _) | (_, FAILED) => FAILED,
            (Verdict::Inconclusive, _) | (_, INCONCLUSIVE) => INCONCLUSIVE,
            (Verdict::Pass, worst) => worst,
        };
    }
    worst
}

/// A flag that SIGINT and SIGTERM set; the second signal ends the process.
pub(super) fn stop_flag() -> Result<Arc<AtomicBool>, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Registered first, so that it sees the flag as it was before.
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| {
                CliError::new(Code::BenchFailed, "cannot watch for Ctrl-C").with_cause(&error)
            })?;
    }
    Ok(stop)
}

/// An error of the bench library with its causes.
pub(super) fn failure(code: Code, error: &justapi_bench::Error) -> CliError {
    let mut cli = CliError::new(code, error.to_string());
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause
            .downcast_ref::<io::Error>()
            .map_or_else(|| cause.to_string(), plain);
        cli = cli.with_detail("cause", text);
        source = cause.source();
    }
    cli
}
