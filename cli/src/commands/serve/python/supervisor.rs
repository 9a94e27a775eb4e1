//! Keeps the workers of a Python application running.
//!
//! ```text
//! Starting --ready--> Serving --SIGTERM--> Stopping --> ended
//!     |                  |
//!     failed             crashed: started again, ever later
//! ```
//!
//! Guarantees: a worker that is replaced ends only once its replacement
//! serves; one whose thread a handler keeps is replaced, too, and ended by
//! force if it still does not hear; an application that cannot start ends the
//! supervisor instead of being tried for ever; a system that has no process to
//! spare costs no worker that serves; no worker outlives the supervisor.
//! Longer than most, as whatever changes a worker's state stands here.

use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use std::{cmp, io};

use justapi_core::SharedListener;
use rustix::process::Signal;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::backoff::Backoff;
use super::crew::Crew;
use super::failures;
use super::interpreter::Interpreter;
use super::worker::{Event, PYTHON_WORKER, Phase, Start, Started, Worker, how};
use crate::config::Warning;
use crate::error::{CliError, Code};
use crate::ui::Ui;

/// A worker that ends before this has failed fast.
const FAST: Duration = Duration::from_secs(10);
/// Fast failures in a row that are answered without a pause.
const PATIENT_FAILURES: u32 = 3;
/// Fast failures in a row after which nobody tries again.
const MAX_FAILURES: u32 = 8;
/// Longest pause before a worker is started again.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Longest pause before a worker that serves is replaced after all.
const MAX_REPLACEMENT_PAUSE: Duration = Duration::from_mins(1);
/// How often memory is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long workers get beyond their grace time.
const MARGIN: Duration = Duration::from_secs(2);

/// What the supervisor was told.
#[derive(Debug)]
pub(super) struct Orders {
    pub(super) interpreter: Interpreter,
    /// What every worker is told.
    pub(super) settings: Value,
    pub(super) sockets: Vec<SharedListener>,
    /// Where metrics have an address of their own.
    pub(super) metrics: Option<SharedListener>,
    pub(super) num_workers: usize,
    pub(super) start_timeout: Duration,
    pub(super) grace: Duration,
    pub(super) max_resident_bytes: Option<u64>,
}

/// How it ended.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) signal: i32,
    pub(super) finished: bool,
}

pub(super) struct Supervisor<'a> {
    ui: &'a Ui,
    orders: Orders,
    crew: Crew<Event>,
    inbox: Receiver<Event>,
    /// Workers to be replaced, one after the other.
    to_replace: Vec<u64>,
    /// Workers that ended soon after their start.
    fast_ends: Backoff,
    /// Starts that the system refused.
    refusals: Backoff,
    /// Replacements that did not come to serve.
    replacements: Backoff,
    stop: Option<Stop>,
}

/// A stop that has begun.
struct Stop {
    signal: i32,
    deadline: Instant,
    finished: bool,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(
        ui: &'a Ui,
        orders: Orders,
        events: Sender<Event>,
        inbox: Receiver<Event>,
    ) -> Self {
        Self {
            ui,
            orders,
            crew: Crew::new(events),
            inbox,
            to_replace: Vec::new(),
            fast_ends: Backoff::new(PATIENT_FAILURES, MAX_PAUSE),
            refusals: Backoff::new(0, MAX_PAUSE),
            replacements: Backoff::new(0, MAX_REPLACEMENT_PAUSE),
            stop: None,
        }
    }

    /// Starts all workers; returns once each serves.
    ///
    /// `None` when a stop signal came first.
    ///
    /// # Errors
    /// [`Code::Application`] when one cannot; none is left then.
    pub(super) fn start(&mut self) -> Result<Option<Report>, CliError> {
        for _ in 0..self.orders.num_workers {
            self.spawn(None)
                .map_err(|error| failures::cannot_spawn(&error))?;
        }
        let deadline = Instant::now() + self.orders.start_timeout;
        let mut is_old = false;
        while self
            .crew
            .workers
            .iter()
            .any(|one| one.phase == Phase::Starting)
        {
            let until = self
                .crew
                .last_words_end()
                .map_or(deadline, |end| end.min(deadline));
            let wait = until.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(wait) {
                // Some may have loaded what has changed since.
                Ok(Event::Signal(SIGHUP)) => is_old = true,
                Ok(Event::Signal(SIGQUIT)) => self.crew.show_stacks(),
                Ok(Event::Signal(signal)) => {
                    self.begin_stop(signal);
                    return self.run().map(Some);
                }
                Ok(Event::Started(number, started)) => self.started(number, started),
                Ok(Event::Ended(number, status)) => {
                    let failure = self.crew.get_mut(number).and_then(|one| one.failure.take());
                    self.crew.workers.retain(|one| one.number != number);
                    self.crew.kill_all();
                    return Err(failures::not_started(failure, &status));
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.crew.kill_all();
                    let failure = self
                        .crew
                        .workers
                        .iter_mut()
                        .find_map(|one| one.failure.take());
                    return Err(failure.map_or_else(failures::late, failures::reported));
                }
            }
        }
        if is_old {
            self.roll();
        }
        Ok(None)
    }

    /// Process ids of the workers.
    pub(super) fn pids(&self) -> Vec<i32> {
        let pids = self.crew.workers.iter().map(|one| one.pid.as_raw_nonzero());
        pids.map(std::num::NonZero::get).collect()
    }

    /// Supervises until all workers have ended.
    ///
    /// # Errors
    /// [`Code::WorkersFail`] when workers end as fast as they start.
    pub(super) fn run(&mut self) -> Result<Report, CliError> {
        loop {
            if let Some(stop) = &self.stop
                && self.crew.workers.is_empty()
            {
                return Ok(Report {
                    signal: stop.signal,
                    finished: stop.finished,
                });
            }
            match self.inbox.recv_timeout(self.pause()) {
                Ok(Event::Signal(SIGHUP)) => self.roll(),
                Ok(Event::Signal(SIGQUIT)) => self.crew.show_stacks(),
                Ok(Event::Signal(signal)) => self.begin_stop(signal),
                Ok(Event::Started(number, started)) => self.started(number, started),
                Ok(Event::Ended(number, status)) => self.ended(number, &status)?,
                Err(_) => {}
            }
            self.catch_up()?;
        }
    }

    /// Time until something is due without an event.
    fn pause(&self) -> Duration {
        let now = Instant::now();
        let next = match &self.stop {
            Some(stop) => Some(stop.deadline),
            None if self.num_missing() > 0 => self.start_due(now),
            None => None,
        };
        let wait = next.map_or(LOOK, |next| next.saturating_duration_since(now));
        cmp::min(wait, LOOK)
    }

    /// When a worker may be started, if that is not now.
    fn start_due(&self, now: Instant) -> Option<Instant> {
        self.fast_ends.due(now).max(self.refusals.due(now))
    }

    /// Workers that there should be, and are not.
    fn num_missing(&self) -> usize {
        let workers = self.crew.workers.iter();
        let there = workers.filter(|one| one.phase != Phase::Stopping && one.replaces.is_none());
        self.orders.num_workers.saturating_sub(there.count())
    }

    /// Does what has become due.
    fn catch_up(&mut self) -> Result<(), CliError> {
        let now = Instant::now();
        if let Some(stop) = &mut self.stop {
            if now >= stop.deadline && !self.crew.workers.is_empty() {
                stop.finished = false;
                self.crew.kill_all();
            }
            return Ok(());
        }
        self.crew.end_late_starts(now, self.orders.start_timeout);
        while self.num_missing() > 0 && self.start_due(now).is_none() {
            if let Err(error) = self.spawn(None) {
                self.refused(&error)?;
            }
        }
        self.look_at_memory();
        self.replace_next(now)
    }

    /// Notes that the system has no process to spare.
    ///
    /// # Errors
    /// [`Code::WorkersFail`] if that goes on, and no worker is left.
    fn refused(&mut self, error: &io::Error) -> Result<(), CliError> {
        let num_refusals = self.refusals.failed(Instant::now());
        if num_refusals > MAX_FAILURES && self.crew.workers.is_empty() {
            return Err(failures::given_up(error));
        }
        // What comes after it has the same reason.
        if num_refusals == 1 {
            self.ui.warning(&failures::refused(error));
        }
        Ok(())
    }

    fn spawn(&mut self, replaces: Option<u64>) -> io::Result<()> {
        let orders = &self.orders;
        let start = Start {
            program: &orders.interpreter.path,
            arguments: PYTHON_WORKER,
            settings: &orders.settings,
            sockets: &orders.sockets,
            metrics: orders.metrics.as_ref(),
        };
        let worker = self.crew.spawn(start, |_| ())?;
        worker.replaces = replaces;
        self.refusals.succeeded();
        Ok(())
    }

    fn started(&mut self, number: u64, started: Started) {
        if let Some(is_stuck) = started.stuck {
            return self.note_stuck(number, is_stuck);
        }
        if started.recycle {
            return self.replace_worn(number);
        }
        let Some(worker) = self.crew.get_mut(number) else {
            return;
        };
        if started.ran.is_some() {
            worker.ran = started.ran;
            return;
        }
        if !started.ready {
            worker.failure = Some(started);
            worker.failed = Some(Instant::now());
            return;
        }
        if worker.phase == Phase::Starting {
            worker.phase = Phase::Serving;
            worker.has_served = true;
        }
        let Some(old) = worker.replaces.take() else {
            return;
        };
        self.replacements.succeeded();
        // A second signal would end one that drains already.
        if let Some(old) = self.crew.get_mut(old)
            && old.phase != Phase::Stopping
        {
            old.stop();
        }
    }

    /// Has a worker replaced, as soon as a replacement serves.
    fn replace_worn(&mut self, number: u64) {
        let Some(worker) = self.crew.get_mut(number) else {
            return;
        };
        worker.is_worn = true;
        self.replace(number);
    }

    /// Has a worker replaced, unless that has begun.
    fn replace(&mut self, number: u64) {
        let has_begun = self.to_replace.contains(&number)
            || self
                .crew
                .workers
                .iter()
                .any(|one| one.replaces == Some(number));
        if !has_begun {
            self.to_replace.push(number);
        }
    }

    fn ended(&mut self, number: u64, status: &io::Result<ExitStatus>) -> Result<(), CliError> {
        let Some(worker) = self.crew.remove(number) else {
            return Ok(());
        };
        self.to_replace.retain(|one| *one != number);
        let is_clean = matches!(status, Ok(status) if status.success());
        if let Some(stop) = &mut self.stop {
            // One that had not served yet had nothing to finish.
            stop.finished &= is_clean || !worker.has_served;
            return Ok(());
        }
        if worker.phase == Phase::Stopping {
            return Ok(());
        }
        self.ui.warning(&failures::has_ended(&worker, status));
        if let Some(old) = worker.replaces {
            self.replacement_failed(old);
            return Ok(());
        }
        // Whoever was to replace it has its place now.
        if let Some(replacement) = self.replacement_of(number) {
            replacement.replaces = None;
        }
        if worker.has_served && worker.started.elapsed() >= FAST {
            self.fast_ends.succeeded();
        }
        if self.fast_ends.failed(Instant::now()) > MAX_FAILURES {
            self.crew.kill_all();
            return Err(CliError::new(
                Code::WorkersFail,
                format!("workers end as fast as they start: {}", how(status)),
            )
            .with_hint("the lines above say what the last of them did"));
        }
        Ok(())
    }

    fn replacement_of(&mut self, number: u64) -> Option<&mut Worker> {
        let mut workers = self.crew.workers.iter_mut();
        workers.find(|one| one.replaces == Some(number))
    }

    /// Has the worker `old`, and those that should have been next, go on.
    fn replacement_failed(&mut self, old: u64) {
        self.replacements.failed(Instant::now());
        self.to_replace.insert(0, old);
        // What is only of an older version is better than what does not start.
        let workers = &self.crew.workers;
        self.to_replace.retain(|number| {
            workers
                .iter()
                .any(|one| one.number == *number && one.is_worn)
        });
        // One that is stuck does not go on: its place is one to be filled as any.
        if let Some(old) = self.crew.get_mut(old)
            && old.is_stuck
        {
            old.signal(Signal::KILL);
        }
    }

    /// Has a worker replaced that does not move on; says so.
    fn note_stuck(&mut self, number: u64, is_stuck: bool) {
        // A stop of the whole server has a deadline of its own.
        let is_stopping = self.stop.is_some();
        let Some(worker) = self.crew.get_mut(number) else {
            return;
        };
        worker.is_stuck = is_stuck;
        if !is_stuck {
            return;
        }
        let pid = worker.pid.as_raw_nonzero();
        if worker.phase != Phase::Serving {
            // It was to end, and does not hear of it.
            if !is_stopping {
                worker.signal(Signal::KILL);
            }
            return;
        }
        self.ui.warning(&Warning {
            code: Code::WorkerStuck,
            message: format!(
                "worker {number} (pid {pid}) is stuck: a handler has not given its thread back \
                 within --stuck-timeout; it is replaced"
            ),
            location: None,
        });
        // Not before: the worker writes them in many pieces, and the warning would be among them.
        worker.show_stacks();
        self.replace_worn(number);
        // Before those that still serve.
        self.to_replace.sort_by_key(|one| *one != number);
    }

    /// Replaces every worker there is, one after the other.
    ///
    /// That a worker has just begun to start does not say how much of the
    /// application it has loaded, so it is replaced, too.
    fn roll(&mut self) {
        if self.stop.is_some() {
            return;
        }
        let there = self.crew.workers.iter();
        let there = there.filter(|one| one.phase != Phase::Stopping);
        let numbers: Vec<u64> = there.map(|one| one.number).collect();
        for number in numbers {
            self.replace(number);
        }
        // Whoever asks for it has mended what has failed.
        self.replacements.succeeded();
    }

    /// Starts the next replacement unless one is starting.
    fn replace_next(&mut self, now: Instant) -> Result<(), CliError> {
        let is_busy = self
            .crew
            .workers
            .iter()
            .any(|one| one.phase == Phase::Starting);
        let is_early = self.replacements.due(now).is_some() || self.refusals.due(now).is_some();
        if is_busy || is_early {
            return Ok(());
        }
        let workers = &self.crew.workers;
        self.to_replace.retain(|number| {
            let worker = workers.iter().find(|one| one.number == *number);
            worker.is_some_and(|one| one.phase == Phase::Serving)
        });
        let Some(old) = self.to_replace.first().copied() else {
            return Ok(());
        };
        if let Err(error) = self.spawn(Some(old)) {
            return self.refused(&error);
        }
        self.to_replace.remove(0);
        Ok(())
    }

    fn look_at_memory(&mut self) {
        let Some(most) = self.orders.max_resident_bytes else {
            return;
        };
        let workers = self.crew.workers.iter();
        let large = workers.filter(|one| {
            one.phase == Phase::Serving && one.resident_bytes().is_some_and(|bytes| bytes > most)
        });
        let numbers: Vec<u64> = large.map(|one| one.number).collect();
        for number in numbers {
            self.replace_worn(number);
        }
    }

    fn begin_stop(&mut self, signal: i32) {
        debug_assert!(signal == SIGINT || signal == SIGTERM, "others do not stop");
        if self.stop.is_some() {
            return self.crew.kill_all();
        }
        self.stop = Some(Stop {
            signal,
            deadline: Instant::now() + self.orders.grace + MARGIN,
            finished: true,
        });
        // Nobody is left to be told where this cannot be written.
        drop(self.ui.event(
            "stopping",
            json!({"signal": signal}),
            "stopping; a second signal ends everything at once\n",
        ));
        for listener in &self.orders.sockets {
            listener.refuse_newcomers();
        }
        for worker in &mut self.crew.workers {
            // A second signal would end one that drains already.
            if worker.phase != Phase::Stopping {
                worker.stop();
            }
        }
        // The last worker that closes them is to be the last that has them.
        self.orders.sockets.clear();
        self.orders.metrics = None;
    }
}

/// For the record of a start.
pub(super) fn workers_json(pids: &[i32]) -> Value {
    json!(pids)
}
