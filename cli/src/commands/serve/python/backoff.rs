//! How long to wait before something is tried again that has failed.
//!
//! Guarantee: the pauses grow up to a limit, and what goes well once begins
//! anew.

use std::time::{Duration, Instant};

/// Unit of the pauses: twice as much is the first, each other doubles the last.
const UNIT: Duration = Duration::from_millis(100);
/// Doublings after which no limit is left to be reached.
const MAX_DOUBLINGS: u32 = 16;

/// Failures in a row of one kind.
#[derive(Debug)]
pub(crate) struct Backoff {
    /// Failures that are answered without a pause.
    patience: u32,
    max_pause: Duration,
    num_failures: u32,
    not_before: Option<Instant>,
}

impl Backoff {
    pub(crate) const fn new(patience: u32, max_pause: Duration) -> Self {
        Self {
            patience,
            max_pause,
            num_failures: 0,
            not_before: None,
        }
    }

    /// Notes a failure; returns how many there have been in a row.
    pub(crate) fn failed(&mut self, now: Instant) -> u32 {
        self.num_failures = self.num_failures.saturating_add(1);
        self.not_before = Some(now + self.pause());
        self.num_failures
    }

    /// Notes that it went well.
    pub(crate) const fn succeeded(&mut self) {
        self.num_failures = 0;
        self.not_before = None;
    }

    /// When it may be tried again, if that is not now.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        self.not_before.filter(|due| *due > now)
    }

    fn pause(&self) -> Duration {
        match self.num_failures.saturating_sub(self.patience) {
            0 => Duration::ZERO,
            beyond => (UNIT * 2_u32.pow(beyond.min(MAX_DOUBLINGS))).min(self.max_pause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(mut backoff: Backoff, count: usize) -> Vec<u128> {
        let now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..count {
            backoff.failed(now);
            let due = backoff.due(now).unwrap_or(now);
            pauses.push((due - now).as_millis());
        }
        pauses
    }

    #[test]
    fn pauses_double_up_to_the_limit() {
        let limit = Duration::from_secs(5);
        assert_eq!(
            pauses(Backoff::new(3, limit), 11),
            [0, 0, 0, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]
        );
        assert_eq!(pauses(Backoff::new(0, limit), 3), [200, 400, 800]);
        let last = pauses(Backoff::new(0, Duration::MAX), 40).pop();
        assert_eq!(last, Some(100 << MAX_DOUBLINGS));
    }

    #[test]
    fn success_begins_anew() {
        let now = Instant::now();
        let mut backoff = Backoff::new(0, Duration::from_secs(5));
        assert_eq!((backoff.failed(now), backoff.failed(now)), (1, 2));
        backoff.succeeded();
        assert_eq!(backoff.due(now), None);
        assert_eq!(backoff.failed(now), 1);
        assert_eq!(backoff.due(now), Some(now + UNIT * 2));
        assert_eq!(backoff.due(now + UNIT * 2), None);
    }
}
