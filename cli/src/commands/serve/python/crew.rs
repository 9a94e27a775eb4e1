//! The workers that a supervisor has, whatever it does with them.
//!
//! Guarantee: none of them outlives it.

use std::io;
use std::process::Command;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::worker::{Event, Phase, Start, Started, Worker};

/// How long a worker gets to end once it has said why it does not serve.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);
/// Time for the stacks of one worker, which take about a millisecond.
const STACK_PAUSE: Duration = Duration::from_millis(20);

/// Workers by number; `E` is what their supervisor hears.
#[derive(Debug)]
pub(crate) struct Crew<E> {
    pub(crate) workers: Vec<Worker>,
    next_number: u64,
    events: Sender<E>,
}

impl<E: From<Event> + Send + 'static> Crew<E> {
    pub(crate) const fn new(events: Sender<E>) -> Self {
        Self {
            workers: Vec::new(),
            next_number: 1,
            events,
        }
    }

    /// The number of the worker that is started next.
    pub(crate) const fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Starts a worker; `prepare` has the last word about its process.
    ///
    /// # Errors
    /// The system has no process to spare, or the interpreter is gone.
    pub(crate) fn spawn(
        &mut self,
        start: Start<'_>,
        prepare: impl FnOnce(&mut Command),
    ) -> io::Result<&mut Worker> {
        let number = self.next_number;
        self.next_number += 1;
        let worker = Worker::start(number, start, &self.events, prepare)?;
        self.workers.push(worker);
        Ok(self.workers.last_mut().expect("one was added"))
    }
}

impl<E> Crew<E> {
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Worker> {
        self.workers.iter_mut().find(|one| one.number == number)
    }

    /// Takes out a worker that has ended.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Worker> {
        let index = self.workers.iter().position(|one| one.number == number)?;
        Some(self.workers.remove(index))
    }

    /// When the first of the workers that have failed should have ended.
    pub(crate) fn last_words_end(&self) -> Option<Instant> {
        let failed = self.workers.iter().filter_map(|one| one.failed);
        failed.min().map(|failed| failed + LAST_WORDS)
    }

    /// Ends workers that take too long to start, or to end when that has failed.
    pub(crate) fn end_late_starts(&mut self, now: Instant, start_timeout: Duration) {
        for worker in &mut self.workers {
            if worker.phase != Phase::Starting {
                continue;
            }
            let since = |then| now.saturating_duration_since(then);
            let is_late = since(worker.started) >= start_timeout;
            let is_left_over = worker
                .failed
                .is_some_and(|failed| since(failed) >= LAST_WORDS);
            if is_late && worker.failure.is_none() {
                worker.failure = Some(Started {
                    failed: Some("the application did not start in time".to_owned()),
                    ..Started::default()
                });
            }
            // A thread of the application's may keep one that has said why it fails.
            if is_late || is_left_over {
                worker.signal(Signal::KILL);
            }
        }
    }

    /// Has the workers show what their threads do, one after the other: they write to one
    /// descriptor, in many pieces.
    pub(crate) fn show_stacks(&self) {
        for worker in &self.workers {
            // It would end one that does not listen for it yet.
            if !matches!(worker.phase, Phase::Waiting | Phase::Starting) {
                worker.show_stacks();
                thread::sleep(STACK_PAUSE);
            }
        }
    }

    pub(crate) fn kill_all(&self) {
        for worker in &self.workers {
            worker.signal(Signal::KILL);
        }
    }
}

impl<E> Drop for Crew<E> {
    fn drop(&mut self) {
        self.kill_all();
    }
}
