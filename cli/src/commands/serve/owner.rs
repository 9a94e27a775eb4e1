//! A server that another command has started for itself ends with it.
//!
//! Guarantee: however the owner ends, the kernel sends this process SIGTERM (`prctl(2)`,
//! `PR_SET_PDEATHSIG`), upon which it drains, and ends whatever its workers have left.

use std::env;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::error::{CliError, Code};
use crate::reaper::Reaper;

/// Variable that holds the process id of the owner.
pub(crate) const OWNER: &str = "JUSTAPI_OWNER";

/// Ends this process with its owner, and all below this one with the returned value; `None` for a
/// server that nobody owns.
///
/// # Errors
/// [`Code::SignalWatch`] when that cannot be had, or the owner has ended already.
pub(crate) fn end_with_owner() -> Result<Option<Reaper>, CliError> {
    let Ok(owner) = env::var(OWNER) else {
        return Ok(None);
    };
    let failed = |text: &str| CliError::new(Code::SignalWatch, text.to_owned());
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(|error| {
        failed("cannot watch for the end of the owner").with_cause(&error.into())
    })?;
    // One that ended before the line above has told nobody.
    let parent = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if parent.as_deref() != Some(&owner) {
        return Err(failed("the command that started this server has ended")
            .with_hint(format!("`{OWNER}` is set by `justapi profile` alone")));
    }
    Ok(Some(Reaper::begin()))
}
