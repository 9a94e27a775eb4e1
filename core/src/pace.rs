//! How long to wait for a peer that sends the body of a request, or takes an
//! answer.
//!
//! Guarantee: a peer is waited for at most the stall limit at a time, and, but
//! for that time once, no longer than its bytes pay for at the lowest rate: a
//! body in drops ends, a pause in one that otherwise flows does not end it.

use std::time::Duration;

use crate::limits::Limits;

/// The time that a peer may still take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    most: Duration,
    left: Duration,
    /// Bytes a second; 0 for no minimum.
    rate: u32,
}

impl Pace {
    /// That of a body of which nothing has been waited for.
    pub(crate) const fn of_body(limits: &Limits) -> Self {
        Self::new(limits.body_stall_timeout, limits.min_body_rate)
    }

    /// That of a peer that has not been waited for to take anything.
    pub(crate) const fn of_writes(limits: &Limits) -> Self {
        Self::new(limits.write_stall_timeout, limits.min_write_rate)
    }

    /// At most so long at a time, at this many bytes a second; 0 for any.
    pub(crate) const fn new(most: Duration, rate: u32) -> Self {
        Self {
            most,
            left: most,
            rate,
        }
    }

    /// How long to wait for the next bytes to come or go.
    pub(crate) const fn left(&self) -> Duration {
        self.left
    }

    /// Whether a wait as long as that is too slow, rather than a stall.
    pub(crate) fn is_slow(&self) -> bool {
        self.left < self.most
    }

    /// Notes that bytes have come or gone after a wait.
    pub(crate) fn note(&mut self, waited: Duration, num_bytes: u64) {
        if self.rate == 0 {
            return;
        }
        let paid = num_bytes as f64 / f64::from(self.rate);
        let paid = Duration::try_from_secs_f64(paid).unwrap_or(self.most);
        let left = self.left.saturating_sub(waited);
        self.left = left.saturating_add(paid).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Seconds that a peer can send so many bytes each time it is waited for
    /// so long.
    fn lasts(num_bytes: u64, waited: Duration, rate: u32) -> Option<Duration> {
        let mut pace = Pace::new(30 * SECOND, rate);
        let mut lasted = Duration::ZERO;
        for _ in 0..10_000 {
            if waited > pace.left() {
                return Some(lasted + pace.left());
            }
            lasted += waited;
            pace.note(waited, num_bytes);
        }
        None
    }

    #[test]
    fn drops_end_and_what_flows_does_not() {
        // A byte at a time, as late as the stall limit allows.
        let soon = lasts(1, 29 * SECOND, 240).unwrap();
        assert!(soon < 31 * SECOND, "{soon:?}");
        assert!(lasts(1, SECOND, 240).unwrap() < 31 * SECOND);
        assert!(lasts(239, SECOND, 240).is_some());
        assert_eq!(lasts(241, SECOND, 240), None);
        // Pauses that larger parts pay for.
        assert_eq!(lasts(16_384, 29 * SECOND, 240), None);
        assert_eq!(lasts(16_384, 31 * SECOND, 240), Some(30 * SECOND));
        assert_eq!(lasts(1, 29 * SECOND, 0), None);
    }
}
