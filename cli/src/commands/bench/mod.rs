//! `justapi bench`: one URL under load, a matrix into the ledger, or the proof
//! that the ledger is intact.
//!
//! Guarantee: Ctrl-C ends a measurement within moments and still reports what
//! was measured; a second one ends the process.

mod load;
mod matrix;
mod micro;
mod verify;

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

pub(crate) use self::verify::verify;
use crate::args::Bench;
use crate::error::{CliError, Code, plain};
use crate::ui::Ui;

/// Exit status after Ctrl-C.
const INTERRUPTED: u8 = 130;

pub(crate) fn bench(ui: &Ui, arguments: &Bench) -> Result<u8, CliError> {
    match (&arguments.matrix, &arguments.url) {
        (Some(matrix), _) => matrix::run(ui, matrix, arguments),
        (None, Some(url)) => load::run(ui, url, arguments),
        (None, None) => unreachable!("clap requires a URL or a matrix"),
    }
}

/// A flag that SIGINT and SIGTERM set; the second signal ends the process.
fn stop_flag() -> Result<Arc<AtomicBool>, CliError> {
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
fn failure(code: Code, error: &justapi_bench::Error) -> CliError {
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
