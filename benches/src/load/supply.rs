//! Where the attempts of a thread come from: one after the other, or from a schedule.
//!
//! It guarantees that an attempt is measured only if it begins, or is due, in the measured part,
//! and that no more of them begin than the plan has.

use std::time::Instant;

use super::backlog::{Backlog, Due};
use super::plan::{LoadPlan, Pace, Stop};
use super::tally::Tally;
use super::thread::Share;

/// The measured part of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// When the warm-up began.
    pub(super) start: Instant,
    pub(super) measure_from: Instant,
    pub(super) stop_at: Option<Instant>,
}

impl Window {
    pub(super) fn new(plan: &LoadPlan, start: Instant) -> Self {
        let measure_from = start + plan.warm_up;
        let stop_at = match plan.stop {
            Stop::Duration(duration) => Some(measure_from + duration),
            Stop::Requests(_) => None,
        };
        Self {
            start,
            measure_from,
            stop_at,
        }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.stop_at.is_some_and(|stop| now >= stop)
    }

    /// Ends it at once.
    pub(super) fn cut(&mut self, now: Instant) {
        self.stop_at = Some(self.stop_at.map_or(now, |stop| stop.min(now)));
    }

    fn clip(&self, now: Instant) -> Instant {
        self.stop_at.map_or(now, |stop| stop.min(now))
    }
}

/// An attempt that may begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    pub(super) measured: bool,
    /// When it should have been sent, in an open loop.
    pub(super) intended: Option<Instant>,
}

/// The attempts of a thread.
#[derive(Debug)]
pub(super) enum Supply {
    /// As many at once as there are connections; `budget` may still begin.
    Closed { budget: Option<u64> },
    /// Those of a schedule.
    Open(Box<Backlog>),
}

impl Supply {
    pub(super) fn new(plan: &LoadPlan, share: Share, start: Instant, tally: &mut Tally) -> Self {
        let Pace::Open(schedule) = &plan.pace else {
            return Self::Closed {
                budget: share.attempts,
            };
        };
        // What is offered begins here, whether it can be sent or not.
        let measure_from = start + plan.warm_up;
        tally.first_attempt = Some(measure_from);
        tally.first_send = Some(measure_from);
        Self::Open(Box::new(Backlog::new(schedule, share, start, plan.warm_up)))
    }

    /// The next attempt: of a closed loop as long as there are any, of an open loop what is due.
    pub(super) fn next(
        &mut self,
        now: Instant,
        window: &Window,
        tally: &mut Tally,
    ) -> Option<Begun> {
        match self {
            Self::Closed { .. } if window.is_over(now) => None,
            Self::Closed { .. } if now < window.measure_from => Some(Begun {
                measured: false,
                intended: None,
            }),
            Self::Closed { .. } => self.claim(now, window, tally).then_some(Begun {
                measured: true,
                intended: None,
            }),
            Self::Open(backlog) => {
                let Due { intended, measured } = backlog.take(now)?;
                Some(Begun {
                    measured,
                    intended: Some(intended),
                })
            }
        }
    }

    /// Counts the begin of a measured attempt of a closed loop; false if there must be no more.
    pub(super) fn claim(&mut self, now: Instant, window: &Window, tally: &mut Tally) -> bool {
        if window.is_over(now) {
            return false;
        }
        if let Self::Closed {
            budget: Some(budget),
        } = self
        {
            let Some(rest) = budget.checked_sub(1) else {
                return false;
            };
            *budget = rest;
        }
        tally.attempts += 1;
        tally.first_attempt.get_or_insert(now);
        true
    }

    /// Counts what an open loop had due until now.
    pub(super) fn count_due(&mut self, now: Instant, window: &Window, tally: &mut Tally) {
        if let Self::Open(backlog) = self {
            tally.attempts += backlog.count_due(window.clip(now));
        }
    }

    /// Counts what is left at the stop.
    pub(super) fn stop(&mut self, now: Instant, window: &Window, tally: &mut Tally) {
        self.count_due(now, window, tally);
        if let Self::Open(backlog) = self {
            tally.not_sent(backlog.waiting());
            if let Some(raw) = &mut tally.raw {
                while let Some(intended) = backlog.give_up() {
                    raw.not_sent(intended, now);
                }
            }
        }
    }

    /// Tells what only an open loop knows.
    pub(super) fn finish(&self, tally: &mut Tally) {
        if let (Self::Open(backlog), Some(open)) = (self, &mut tally.open) {
            open.max_waiting = backlog.max_waiting();
        }
    }

    /// When an open loop has something to send next, which may be past.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Closed { .. } => None,
            Self::Open(backlog) => backlog.next_due(now),
        }
    }

    /// Whether an open loop has nothing more to send, now or later.
    pub(super) const fn is_exhausted(&self) -> bool {
        match self {
            Self::Closed { .. } => true,
            Self::Open(backlog) => backlog.is_exhausted(),
        }
    }
}
