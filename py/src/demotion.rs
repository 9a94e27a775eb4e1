//! Finds the sync handlers that block, so that they can be called elsewhere.
//!
//! A call that takes a millisecond of time and little of the processor has
//! waited for something: a file, a database, a sleep. Guarantee: a handler
//! that computes is never taken for one that waits.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Shortest call that is suspected of waiting.
const SLOW: Duration = Duration::from_millis(1);
/// Calls that are seen to wait before the route moves.
const MAX_WAITS: u8 = 3;

/// What is known of one route's calls.
#[derive(Debug, Default)]
pub(crate) struct Demotion {
    /// Whether a slow call has been seen: processor time is taken from then on.
    is_suspected: AtomicBool,
    num_waits: AtomicU8,
    is_demoted: AtomicBool,
}

/// The clocks at the beginning of a call.
pub(crate) struct Measured {
    at: Instant,
    cpu: Option<Duration>,
}

impl Demotion {
    pub(crate) fn is_demoted(&self) -> bool {
        self.is_demoted.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self) -> Measured {
        Measured {
            cpu: self
                .is_suspected
                .load(Ordering::Relaxed)
                .then(processor_time),
            at: Instant::now(),
        }
    }

    /// Judges a call; whether the route has just been demoted.
    pub(crate) fn end(&self, begun: &Measured) -> bool {
        let wall = begun.at.elapsed();
        if wall < SLOW {
            return false;
        }
        let Some(cpu) = begun.cpu else {
            self.is_suspected.store(true, Ordering::Relaxed);
            return false;
        };
        let worked = processor_time().saturating_sub(cpu);
        // Other threads may have had the interpreter for a part of the time.
        if worked * 3 > wall {
            return false;
        }
        if self.num_waits.fetch_add(1, Ordering::Relaxed) + 1 < MAX_WAITS {
            return false;
        }
        self.is_demoted.store(true, Ordering::Relaxed);
        true
    }
}

/// Time that the thread has been on a processor.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}
