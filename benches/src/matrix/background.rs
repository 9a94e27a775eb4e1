//! A closed loop on the server of a round beside what is measured there.
//!
//! Guarantee: it runs from before the warm-up to the end of the measurement, whatever becomes of
//! either, and an error of it is an error of the round.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::round::unusable;
use crate::Error;
use crate::load::{self, LoadPlan, LoadReport, Stop};

/// Longer than any round: it is stopped, and does not end.
const LONGEST: Duration = Duration::from_hours(1);

/// What was measured, or why the round is invalid.
pub(super) type Measured<T> = Result<Result<T, String>, Error>;

/// Sets a flag when it is dropped, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Measures while a background runs, where there is one; also returns what came of that.
pub(super) fn beside<T>(
    background: Option<LoadPlan>,
    measure: impl FnOnce() -> Measured<T>,
) -> Measured<(T, Option<LoadReport>)> {
    let Some(plan) = background else {
        return Ok(measure()?.map(|measured| (measured, None)));
    };
    let plan = LoadPlan {
        stop: Stop::Duration(LONGEST),
        ..plan
    };
    let stop_flag = AtomicBool::new(false);
    let (measured, report) = thread::scope(|scope| {
        let thread = scope.spawn(|| load::run(&plan, &stop_flag));
        let over = Over(&stop_flag);
        let measured = measure();
        drop(over);
        let report = (thread.join()).unwrap_or_else(|panic| resume_unwind(panic));
        (measured, report)
    });
    let measured = measured?;
    let report = report?;
    let connections = u32::try_from(plan.connections).unwrap_or(u32::MAX);
    Ok(match (measured, unusable(&report, connections)) {
        (Err(reason), _) => Err(reason),
        (Ok(_), Some(reason)) => Err(format!("background: {reason}")),
        (Ok(measured), None) => Ok((measured, Some(report))),
    })
}
