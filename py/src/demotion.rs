//! Finds the sync handlers that block, so that they can be called elsewhere.
//!
//! A call that takes a millisecond of time and little of the processor, which
//! it gave away by itself, has waited for something: a file, a database, a
//! sleep. Guarantee: a handler that computes is never taken for one that
//! waits, however busy the machine is; nor does a call cost a system call for
//! long because one of hundreds was slow.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::interpreter::{Usage, thread_usage};

/// Shortest call that is suspected of waiting.
const SLOW: Duration = Duration::from_millis(1);
/// Calls that are seen to wait before the route moves.
const MAX_WAITS: u8 = 3;
/// Quick calls in a row after which a slow one was bad luck: what they cost
/// together is less than one wait. The collector of a free-threaded
/// interpreter makes every thread wait now and then.
const MAX_MEASURED: u16 = 500;

/// What is known of one route's calls.
#[derive(Debug, Default)]
pub(crate) struct Demotion {
    /// Quick calls that are still measured, since a slow one was seen.
    num_measured: AtomicU16,
    num_waits: AtomicU8,
    is_demoted: AtomicBool,
}

/// The clocks at the beginning of a call.
pub(crate) struct Measured {
    at: Instant,
    usage: Option<Usage>,
}

impl Demotion {
    pub(crate) fn is_demoted(&self) -> bool {
        self.is_demoted.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self) -> Measured {
        let is_suspected = self.num_measured.load(Ordering::Relaxed) > 0;
        Measured {
            usage: is_suspected.then(thread_usage).flatten(),
            at: Instant::now(),
        }
    }

    /// Judges a call; whether the route has just been demoted.
    ///
    /// Lanes may lose some of each other's counts, which does not matter here.
    pub(crate) fn end(&self, begun: &Measured) -> bool {
        let wall = begun.at.elapsed();
        if wall < SLOW {
            if begun.usage.is_some() {
                self.was_quick();
            }
            return false;
        }
        self.num_measured.store(MAX_MEASURED, Ordering::Relaxed);
        let (Some(before), Some(after)) = (&begun.usage, thread_usage()) else {
            return false;
        };
        let worked = after.processor.saturating_sub(before.processor);
        // Other threads may have had the interpreter for a part of the time,
        // and other processes the processor.
        if worked * 3 > wall || after.num_given_away == before.num_given_away {
            return false;
        }
        if self.num_waits.fetch_add(1, Ordering::Relaxed) + 1 < MAX_WAITS {
            return false;
        }
        // Two lanes may come to it at the same time; one of them says so.
        !self.is_demoted.swap(true, Ordering::Relaxed)
    }

    fn was_quick(&self) {
        let left = self.num_measured.load(Ordering::Relaxed).saturating_sub(1);
        self.num_measured.store(left, Ordering::Relaxed);
        if left == 0 {
            self.num_waits.store(0, Ordering::Relaxed);
        }
    }
}
