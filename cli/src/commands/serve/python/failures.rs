//! What is said of workers that do not start, or end.

use std::io;
use std::process::ExitStatus;

use rustix::io::Errno;

use super::worker::{Phase, Started, Worker, how};
use crate::config::Warning;
use crate::error::{CliError, Code};

/// That a worker has ended by itself.
pub(crate) fn has_ended(worker: &Worker, status: &io::Result<ExitStatus>) -> Warning {
    let why = worker
        .failure
        .as_ref()
        .and_then(|failure| failure.failed.clone());
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let trace = worker
        .failure
        .as_ref()
        .and_then(|failure| failure.traceback.as_deref())
        .map_or_else(String::new, |trace| format!("\n{}", trace.trim_end()));
    let ran = worker.ran.as_ref();
    let ran = ran.map_or_else(String::new, |route| {
        format!("; the last request on its thread was for {route}")
    });
    Warning {
        code: Code::WorkerEnded,
        message: format!(
            "worker {} (pid {}) {} {}{ran}{why}{trace}",
            worker.number,
            worker.pid.as_raw_nonzero(),
            if worker.phase == Phase::Starting {
                "did not start:"
            } else {
                "ended:"
            },
            how(status),
        ),
        location: None,
    }
}

/// That the system has no process to spare, and what will follow.
pub(crate) fn refused(error: &io::Error) -> Warning {
    let hint = limit_hint(error).map_or_else(String::new, |hint| format!("; {hint}"));
    Warning {
        code: Code::WorkerEnded,
        message: format!("a worker cannot be started, it is tried again: {error}{hint}"),
        location: None,
    }
}

/// That it has had none for so long that nobody tries again.
pub(crate) fn given_up(error: &io::Error) -> CliError {
    with_limit_hint(
        CliError::new(Code::WorkersFail, "a worker cannot be started again").with_cause(error),
        error,
    )
}

/// That the first workers cannot be started.
pub(crate) fn cannot_spawn(error: &io::Error) -> CliError {
    with_limit_hint(
        CliError::new(Code::Interpreter, "a worker cannot be started").with_cause(error),
        error,
    )
}

/// Says which limit of the system's has been reached, if one has.
pub(crate) fn with_limit_hint(failed: CliError, error: &io::Error) -> CliError {
    match limit_hint(error) {
        Some(hint) => failed.with_hint(hint),
        None => failed,
    }
}

/// Which limit of the system's has been reached.
fn limit_hint(error: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        Errno::AGAIN => Some(
            "there are as many processes and threads as there may be: `ulimit -u`, or `pids.max` \
             of the control group",
        ),
        Errno::MFILE => Some("there are as many open descriptors as there may be: `ulimit -n`"),
        Errno::NFILE => Some("the system has as many open files as it may: `sysctl fs.file-max`"),
        Errno::NOMEM => Some("the system has no memory left for a process"),
        _ => None,
    }
}

/// Why the first workers do not serve, when one has ended.
pub(crate) fn not_started(failure: Option<Started>, status: &io::Result<ExitStatus>) -> CliError {
    failure.map_or_else(
        || {
            CliError::new(
                Code::Application,
                format!("the worker ended before it served: {}", how(status)),
            )
        },
        reported,
    )
}

/// Why the application does not serve, with the user's own frames.
pub(crate) fn reported(failure: Started) -> CliError {
    let what = failure.failed.unwrap_or_default();
    let error = CliError::new(Code::Application, what);
    let error = match failure.traceback {
        Some(trace) => error.with_detail("traceback", format!("\n{}", trace.trim_end())),
        None => error,
    };
    match failure.hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// That the application takes too long to start.
pub(crate) fn late() -> CliError {
    CliError::new(Code::Application, "the application did not start in time")
        .with_hint("give it longer with `--start-timeout`")
}
