//! What a run has measured so far, for whoever watches it.
//!
//! Threads copy their counts into cells of their own a few times a second. Nobody else writes
//! there, so that the only wait is for a reader that is just copying.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::outcome::{Outcome, OutcomeCounts};
use super::plan::LoadPlan;
use super::tally::{Tally, Times};

/// Time between two publications: as often as numbers can be read.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);

/// Counts in the midst of a run.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Time since the begin of the warm-up.
    pub elapsed: Duration,
    /// Whether the measured part has begun.
    pub is_measuring: bool,
    /// Time since the begin of the measured part.
    pub measured: Duration,
    /// Measured attempts so far.
    pub attempts: u64,
    /// How they ended, as far as they have.
    pub outcomes: OutcomeCounts,
    /// Outcomes `ok` per second since the measured part began.
    pub rate: Option<f64>,
    /// Median time of an answer that was right.
    pub p50: Option<Duration>,
    /// Time that one right answer in a hundred takes at least.
    pub p99: Option<Duration>,
}

/// The counts that a thread shows.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    attempts: u64,
    outcomes: OutcomeCounts,
    latency: Times,
}

pub(super) type Cell = Mutex<Option<Shown>>;

/// Shows the counts of a thread.
#[derive(Debug)]
pub(super) struct Publisher<'a> {
    cell: &'a Cell,
    next: Option<Instant>,
}

impl<'a> Publisher<'a> {
    pub(super) const fn new(cell: &'a Cell) -> Self {
        Self { cell, next: None }
    }

    pub(super) fn publish(&mut self, now: Instant, tally: &Tally) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + INTERVAL);
        let shown = Shown {
            attempts: tally.attempts,
            outcomes: tally.outcomes,
            latency: tally.shown_latency().clone(),
        };
        // One that panicked while it copied has left a copy that is whole.
        *self
            .cell
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(shown);
    }
}

/// The sum of what all threads show.
pub(super) fn sum(plan: &LoadPlan, cells: &[Cell], start: Instant) -> Progress {
    let elapsed = start.elapsed();
    let measured = elapsed.saturating_sub(plan.warm_up);
    let mut latency: Option<Times> = None;
    let mut progress = Progress {
        elapsed,
        is_measuring: elapsed >= plan.warm_up,
        measured,
        attempts: 0,
        outcomes: OutcomeCounts::default(),
        rate: None,
        p50: None,
        p99: None,
    };
    for cell in cells {
        let shown = cell
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        let Some(shown) = shown else { continue };
        progress.attempts += shown.attempts;
        progress.outcomes.merge(&shown.outcomes);
        match &mut latency {
            Some(sum) => sum.merge(&shown.latency),
            None => latency = Some(shown.latency),
        }
    }
    if let Some(latency) = latency.filter(|_| !measured.is_zero()) {
        let ok = progress.outcomes.get(Outcome::Ok);
        let quantile = |quantile| latency.quantile(quantile).map(Duration::from_nanos);
        progress.rate = Some(ok as f64 / measured.as_secs_f64());
        progress.p50 = quantile(0.5);
        progress.p99 = quantile(0.99);
    }
    progress
}
