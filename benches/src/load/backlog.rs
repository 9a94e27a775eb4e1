//! The requests of an open loop that are due, and when each of them should have been sent.
//!
//! It guarantees that every arrival of the schedule before the stop is one measured attempt,
//! and that a request keeps its intended instant however long it waits for a connection. What
//! waits is not stored: two cursors on one schedule say how much it is.

use std::time::{Duration, Instant};

use super::arrivals::{Cursor, OpenLoop};
use super::thread::Share;

/// A request to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    /// When it should have been sent.
    pub(super) intended: Instant,
    pub(super) measured: bool,
}

/// What is due on one thread.
#[derive(Debug)]
pub(super) struct Backlog {
    warm_up_from: Instant,
    measure_from: Instant,
    warm_up: Cursor,
    /// The next request to send, and the next that becomes due.
    next: Cursor,
    due: Cursor,
    max_waiting: u64,
}

impl Backlog {
    pub(super) fn new(
        schedule: &OpenLoop,
        share: Share,
        start: Instant,
        warm_up: Duration,
    ) -> Self {
        let (first, step) = (share.index as u64, share.threads as u64);
        let cursor = Cursor::new(schedule, first, step, share.attempts);
        Self {
            warm_up_from: start,
            measure_from: start + warm_up,
            warm_up: Cursor::new(&schedule.warm_up(warm_up), first, step, None),
            next: cursor.clone(),
            due: cursor,
            max_waiting: 0,
        }
    }

    /// Counts what became due until `now`, which must not be behind the stop.
    pub(super) fn count_due(&mut self, now: Instant) -> u64 {
        let before = self.due.taken();
        while self
            .due
            .peek()
            .is_some_and(|offset| self.measure_from + offset < now)
        {
            self.due.advance();
        }
        self.max_waiting = self.max_waiting.max(self.waiting());
        self.due.taken() - before
    }

    /// Takes the request that has waited longest.
    ///
    /// What the warm-up leaves unsent is dropped: it must not delay what is measured.
    pub(super) fn take(&mut self, now: Instant) -> Option<Due> {
        if now < self.measure_from {
            let intended = self.warm_up_from + self.warm_up.peek()?;
            if intended > now {
                return None;
            }
            self.warm_up.advance();
            return Some(Due {
                intended,
                measured: false,
            });
        }
        if self.waiting() == 0 {
            return None;
        }
        let intended = self.measure_from + self.next.peek()?;
        self.next.advance();
        Some(Due {
            intended,
            measured: true,
        })
    }

    /// When the next request is due; earlier than now if one waits.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let measured = self.next.peek().map(|offset| self.measure_from + offset);
        if now < self.measure_from {
            let warm_up = self.warm_up.peek().map(|offset| self.warm_up_from + offset);
            return warm_up.or(measured);
        }
        measured
    }

    /// Gives up the request that has waited longest; when it was due.
    pub(super) fn give_up(&mut self) -> Option<Instant> {
        let intended = self.measure_from + self.next.peek().filter(|_| self.waiting() > 0)?;
        self.next.advance();
        Some(intended)
    }

    /// Requests that are due and not sent.
    pub(super) const fn waiting(&self) -> u64 {
        self.due.taken() - self.next.taken()
    }

    pub(super) const fn max_waiting(&self) -> u64 {
        self.max_waiting
    }

    /// Whether nothing more will be due.
    pub(super) const fn is_exhausted(&self) -> bool {
        self.next.peek().is_none()
    }
}
