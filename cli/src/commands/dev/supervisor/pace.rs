//! Whether newer code ends a start that is on its way, or waits for it.
//!
//! Guarantee: however often files are saved, some new code serves after about
//! two starts, and after each further one; a start that hangs holds newer code
//! up for a bounded time.

use std::time::Duration;

/// Age of the oldest change up to which its start is thrown away for newer
/// code: an editor and its formatter save one after the other.
const FRESH: Duration = Duration::from_millis(500);
/// Least time that a start gets which newer code waits for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Starts in a row that are given up, each of which doubles that time.
const MAX_GIVEN_UP: u32 = 6;

/// What starts have taken so far.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// What the last start took that has come to its end.
    usual: Duration,
    /// Starts since then that took too long for newer code to wait.
    num_given_up: u32,
}

impl Pace {
    /// Whether newer code waits for a start that has taken `elapsed`, for
    /// changes the oldest of which is `waiting` old.
    pub(super) fn keeps(&self, waiting: Duration, elapsed: Duration) -> bool {
        waiting >= self.usual.max(FRESH) && elapsed < self.patience()
    }

    /// Longest time of a start that newer code waits for.
    pub(super) fn patience(&self) -> Duration {
        let once = (self.usual + self.usual / 2).max(PATIENCE);
        once * 2_u32.pow(self.num_given_up)
    }

    /// Notes that new code serves after that time.
    pub(super) const fn served(&mut self, elapsed: Duration) {
        self.usual = elapsed;
        self.num_given_up = 0;
    }

    /// Notes that new code does not work.
    pub(super) const fn failed(&mut self) {
        self.num_given_up = 0;
    }

    /// Notes that a start took longer than newer code waits.
    pub(super) fn gave_up(&mut self) {
        self.num_given_up = (self.num_given_up + 1).min(MAX_GIVEN_UP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 50;

    const fn time(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// When new code serves within a minute, if it takes `takes` to start and
    /// is saved every `period` all the time; in milliseconds.
    fn served(takes: u64, period: u64) -> Vec<u64> {
        let mut pace = Pace::default();
        let mut served = Vec::new();
        let (mut begun, mut oldest, mut behind) = (0, 0, None);
        for now in (STEP..60_000).step_by(STEP as usize) {
            let elapsed = now - begun;
            let is_over = elapsed >= takes;
            if is_over {
                served.push(now);
                pace.served(time(elapsed));
            }
            let is_given_up = !is_over && behind.is_some() && time(elapsed) >= pace.patience();
            if is_given_up {
                pace.gave_up();
            }
            if is_over || is_given_up {
                begun = now;
                oldest = if is_over {
                    behind.unwrap_or(now)
                } else {
                    oldest
                };
                behind = None;
            }
            if now.is_multiple_of(period) {
                if pace.keeps(time(now - oldest), time(now - begun)) {
                    behind.get_or_insert(now);
                } else {
                    begun = now;
                }
            }
        }
        served
    }

    fn largest_gap(served: &[u64]) -> u64 {
        let before = [0].into_iter().chain(served.iter().copied());
        let gaps = before.zip(served).map(|(one, next)| next - one);
        gaps.max().expect("something is served")
    }

    #[test]
    fn saves_without_end_keep_no_code_from_serving() {
        for takes in [300, 700, 900] {
            for period in [100, 200, 450] {
                let found = served(takes, period);
                let most = takes * 2 + FRESH.as_millis() as u64 + STEP;
                assert!(largest_gap(&found) <= most, "{takes} {period}: {found:?}");
                assert!(found.len() > 20, "{takes} {period}: {found:?}");
            }
        }
    }

    #[test]
    fn a_start_that_takes_longer_than_ever_comes_to_its_end_as_well() {
        let takes = 8000;
        let found = served(takes, 200);
        assert!(found[0] <= takes * 3, "{found:?}");
        assert!(found[1] - found[0] <= takes * 2, "{found:?}");
    }

    #[test]
    fn two_saves_at_once_are_one_start() {
        let mut pace = Pace::default();
        let short = Duration::from_millis(400);
        assert!(!pace.keeps(short, short));
        // What takes long to start is worth a start less.
        pace.served(Duration::from_secs(4));
        let long = Duration::from_secs(3);
        assert!(!pace.keeps(long, long));
        // One that does not come to its end is given up.
        let hanging = Duration::from_mins(1);
        assert!(!pace.keeps(hanging, hanging));
    }
}
