//! Whether the lane moves on, watched from a thread that needs no interpreter.
//!
//! Guarantee: a lane that waits for its sockets, or answers requests, moves
//! on; one that is kept by a handler, or by whoever holds the interpreter, is
//! reported once, and once more when it has moved on after all.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

/// Looks within the time after which a lane counts as stuck, at least.
const MIN_LOOKS: u32 = 8;
/// Longest time between two looks.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// What the lane's thread tells, at no cost but two stores for each wait.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    is_waiting: AtomicBool,
    num_steps: AtomicU64,
}

impl Progress {
    /// Notes that the lane's loop goes on.
    pub(crate) fn note(&self) {
        // Only the lane's thread writes.
        let steps = self.num_steps.load(Ordering::Relaxed);
        self.num_steps.store(steps + 1, Ordering::Relaxed);
    }

    /// Notes whether the lane waits for its sockets.
    pub(crate) fn set_waiting(&self, is_waiting: bool) {
        self.note();
        self.is_waiting.store(is_waiting, Ordering::Relaxed);
    }

    /// Watches until the lane is gone; `counters` move with its requests.
    ///
    /// # Errors
    /// What the system says of a new thread.
    pub(crate) fn watch(
        self: &Arc<Self>,
        limit: Duration,
        listener: OwnedFd,
        counters: Vec<Arc<AtomicU64>>,
    ) -> io::Result<()> {
        let watch = Watch {
            progress: Arc::downgrade(self),
            limit,
            listener: File::from(listener),
            counters,
        };
        thread::Builder::new()
            .name("progress".to_owned())
            .spawn(move || watch.run())
            .map(drop)
    }
}

/// What one look at the lane shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// It has ended.
    Gone,
    /// It waits for its sockets.
    Waits,
    /// It works, and is so far.
    Works(u64),
}

struct Watch {
    progress: Weak<Progress>,
    limit: Duration,
    listener: File,
    counters: Vec<Arc<AtomicU64>>,
}

impl Watch {
    fn run(mut self) {
        let pause = (self.limit / MIN_LOOKS).min(MAX_PAUSE);
        let mut seen = Look::Waits;
        // Looks are counted and not the time: a process that was stopped as a
        // whole has not been stuck.
        let mut unmoved = Duration::ZERO;
        let mut is_stuck = false;
        loop {
            thread::sleep(pause);
            let now = self.look();
            if now == Look::Gone {
                return;
            }
            if now == Look::Waits || now != seen {
                (seen, unmoved) = (now, Duration::ZERO);
                if is_stuck {
                    is_stuck = false;
                    self.tell("{\"stuck\":false}\n");
                }
                continue;
            }
            unmoved += pause;
            if !is_stuck && unmoved >= self.limit {
                is_stuck = true;
                self.tell("{\"stuck\":true}\n");
            }
        }
    }

    fn look(&self) -> Look {
        let Some(progress) = self.progress.upgrade() else {
            return Look::Gone;
        };
        if progress.is_waiting.load(Ordering::Relaxed) {
            return Look::Waits;
        }
        let requests = self.counters.iter();
        let requests = requests.map(|counter| counter.load(Ordering::Relaxed));
        let steps = progress.num_steps.load(Ordering::Relaxed);
        Look::Works(requests.fold(steps, u64::wrapping_add))
    }

    fn tell(&mut self, line: &str) {
        // A supervisor that is gone ends this process.
        self.listener.write_all(line.as_bytes()).unwrap_or_default();
    }
}
