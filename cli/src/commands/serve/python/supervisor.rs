//! Keeps the workers of a Python application running.
//!
//! ```text
//! Starting --ready--> Serving --SIGTERM--> Stopping --> ended
//!     |                  |
//!     failed             crashed: started again, ever later
//! ```
//!
//! Guarantees: a worker that is replaced ends only once its replacement
//! serves; an application that cannot start ends the supervisor instead of
//! being tried for ever; no worker outlives the supervisor.

use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use std::{cmp, io};

use justapi_core::SharedListener;
use rustix::process::Signal;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::interpreter::Interpreter;
use super::worker::{Event, Phase, Started, Worker, how};
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
    events: Sender<Event>,
    inbox: Receiver<Event>,
    workers: Vec<Worker>,
    next_number: u64,
    /// Workers to be replaced, one after the other.
    to_replace: Vec<u64>,
    num_failures: u32,
    /// When a worker is to be started again.
    due: Vec<Instant>,
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
            events,
            inbox,
            workers: Vec::new(),
            next_number: 1,
            to_replace: Vec::new(),
            num_failures: 0,
            due: Vec::new(),
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
            self.spawn(None).map_err(|error| cannot_spawn(&error))?;
        }
        let deadline = Instant::now() + self.orders.start_timeout;
        while self.workers.iter().any(|one| one.phase == Phase::Starting) {
            match self
                .inbox
                .recv_timeout(deadline - Instant::now().min(deadline))
            {
                Ok(Event::Signal(signal)) if signal != SIGHUP => {
                    self.begin_stop(signal);
                    return self.run().map(Some);
                }
                Ok(Event::Signal(_)) => {}
                Ok(Event::Started(number, started)) => {
                    if let Some(worker) = self.worker(number) {
                        if started.ready {
                            worker.phase = Phase::Serving;
                            worker.has_served = true;
                        } else {
                            worker.failure = Some(started);
                        }
                    }
                }
                Ok(Event::Ended(number, status)) => {
                    let failure = self.worker(number).and_then(|one| one.failure.take());
                    self.workers.retain(|one| one.number != number);
                    self.kill_all();
                    return Err(not_started(failure, &status));
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.kill_all();
                    return Err(CliError::new(
                        Code::Application,
                        "the application did not start in time",
                    )
                    .with_hint("give it longer with `--start-timeout`"));
                }
            }
        }
        Ok(None)
    }

    /// Process ids of the workers.
    pub(super) fn pids(&self) -> Vec<i32> {
        let pids = self.workers.iter().map(|one| one.pid.as_raw_nonzero());
        pids.map(std::num::NonZero::get).collect()
    }

    /// Supervises until all workers have ended.
    ///
    /// # Errors
    /// [`Code::WorkersFail`] when workers end as fast as they start.
    pub(super) fn run(&mut self) -> Result<Report, CliError> {
        loop {
            if let Some(stop) = &self.stop
                && self.workers.is_empty()
            {
                return Ok(Report {
                    signal: stop.signal,
                    finished: stop.finished,
                });
            }
            match self.inbox.recv_timeout(self.pause()) {
                Ok(Event::Signal(SIGHUP)) => self.roll(),
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
        let starts = self.due.iter().copied();
        let stop = self.stop.as_ref().map(|stop| stop.deadline);
        let next = starts.chain(stop).min();
        let wait = next.map_or(LOOK, |next| next.saturating_duration_since(now));
        cmp::min(wait, LOOK)
    }

    /// Does what has become due.
    fn catch_up(&mut self) -> Result<(), CliError> {
        let now = Instant::now();
        if let Some(stop) = &mut self.stop {
            if now >= stop.deadline && !self.workers.is_empty() {
                stop.finished = false;
                self.kill_all();
            }
            return Ok(());
        }
        let num_due = self.due.iter().filter(|due| **due <= now).count();
        self.due.retain(|due| *due > now);
        for _ in 0..num_due {
            self.spawn(None).map_err(|error| cannot_spawn(&error))?;
        }
        self.look_at_memory();
        self.replace_next();
        Ok(())
    }

    fn worker(&mut self, number: u64) -> Option<&mut Worker> {
        self.workers.iter_mut().find(|one| one.number == number)
    }

    fn spawn(&mut self, replaces: Option<u64>) -> io::Result<()> {
        let number = self.next_number;
        self.next_number += 1;
        let orders = &self.orders;
        let mut worker = Worker::start(
            number,
            &orders.interpreter,
            &orders.settings,
            &orders.sockets,
            &self.events,
        )?;
        worker.replaces = replaces;
        self.workers.push(worker);
        Ok(())
    }

    fn started(&mut self, number: u64, started: Started) {
        if started.recycle {
            if !self.to_replace.contains(&number) {
                self.to_replace.push(number);
            }
            return;
        }
        let Some(worker) = self.worker(number) else {
            return;
        };
        if !started.ready {
            worker.failure = Some(started);
            return;
        }
        if worker.phase == Phase::Starting {
            worker.phase = Phase::Serving;
            worker.has_served = true;
        }
        let old = worker.replaces.take();
        if let Some(old) = old.and_then(|old| self.worker(old)) {
            old.stop();
        }
    }

    fn ended(&mut self, number: u64, status: &io::Result<ExitStatus>) -> Result<(), CliError> {
        let Some(index) = self.workers.iter().position(|one| one.number == number) else {
            return Ok(());
        };
        let worker = self.workers.remove(index);
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
        self.say_ended(&worker, status);
        if worker.replaces.is_some() {
            // The one that it should have replaced goes on.
            self.to_replace.clear();
            return Ok(());
        }
        if worker.started.elapsed() >= FAST {
            self.num_failures = 0;
        }
        self.num_failures += 1;
        if self.num_failures > MAX_FAILURES {
            self.kill_all();
            return Err(CliError::new(
                Code::WorkersFail,
                format!("workers end as fast as they start: {}", how(status)),
            )
            .with_hint("the lines above say what the last of them did"));
        }
        let exponent = self.num_failures.saturating_sub(PATIENT_FAILURES);
        let pause = if exponent == 0 {
            Duration::ZERO
        } else {
            (Duration::from_millis(100) * 2_u32.pow(exponent.min(10))).min(MAX_PAUSE)
        };
        self.due.push(Instant::now() + pause);
        Ok(())
    }

    fn say_ended(&self, worker: &Worker, status: &io::Result<ExitStatus>) {
        let why = worker
            .failure
            .as_ref()
            .and_then(|failure| failure.failed.clone());
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let trace = worker
            .failure
            .as_ref()
            .and_then(|failure| failure.traceback.as_deref())
            .map_or_else(String::new, |trace| format!("\n{}", trace.trim_end()));
        self.ui.warning(&Warning {
            code: Code::WorkerEnded,
            message: format!(
                "worker {} (pid {}) {} {}{why}{trace}",
                worker.number,
                worker.pid.as_raw_nonzero(),
                if worker.phase == Phase::Starting {
                    "did not start:"
                } else {
                    "ended:"
                },
                how(status),
            ),
            location: None,
        });
    }

    /// Replaces every worker, one after the other.
    fn roll(&mut self) {
        if self.stop.is_none() {
            let serving = self
                .workers
                .iter()
                .filter(|one| one.phase == Phase::Serving);
            self.to_replace = serving.map(|one| one.number).collect();
        }
    }

    /// Starts the next replacement unless one is starting.
    fn replace_next(&mut self) {
        let is_busy = self.workers.iter().any(|one| one.phase == Phase::Starting);
        if is_busy || self.to_replace.is_empty() {
            return;
        }
        let old = self.to_replace.remove(0);
        if self.workers.iter().any(|one| one.number == old)
            && let Err(error) = self.spawn(Some(old))
        {
            self.ui.warning(&Warning {
                code: Code::WorkerEnded,
                message: format!("a worker cannot be replaced: {error}"),
                location: None,
            });
        }
    }

    fn look_at_memory(&mut self) {
        let Some(most) = self.orders.max_resident_bytes else {
            return;
        };
        for worker in &self.workers {
            if worker.phase == Phase::Serving
                && worker.resident_bytes().is_some_and(|bytes| bytes > most)
                && !self.to_replace.contains(&worker.number)
                && !self
                    .workers
                    .iter()
                    .any(|one| one.replaces == Some(worker.number))
            {
                self.to_replace.push(worker.number);
            }
        }
    }

    fn begin_stop(&mut self, signal: i32) {
        debug_assert!(signal == SIGINT || signal == SIGTERM, "others do not stop");
        if self.stop.is_some() {
            return self.kill_all();
        }
        self.stop = Some(Stop {
            signal,
            deadline: Instant::now() + self.orders.grace + MARGIN,
            finished: true,
        });
        self.due.clear();
        // Nobody is left to be told where this cannot be written.
        drop(self.ui.event(
            "stopping",
            json!({"signal": signal}),
            "stopping; a second signal ends everything at once\n",
        ));
        for listener in &self.orders.sockets {
            listener.refuse_newcomers();
        }
        for worker in &mut self.workers {
            // A second signal would end one that drains already.
            if worker.phase != Phase::Stopping {
                worker.stop();
            }
        }
        // The last worker that closes them is to be the last that has them.
        self.orders.sockets.clear();
    }

    fn kill_all(&self) {
        for worker in &self.workers {
            worker.signal(Signal::KILL);
        }
    }
}

impl Drop for Supervisor<'_> {
    fn drop(&mut self) {
        self.kill_all();
    }
}

fn cannot_spawn(error: &io::Error) -> CliError {
    CliError::new(Code::Interpreter, "a worker cannot be started").with_cause(error)
}

/// Why the application does not serve, with the user's own frames.
fn not_started(failure: Option<Started>, status: &io::Result<ExitStatus>) -> CliError {
    let Some(failure) = failure else {
        return CliError::new(
            Code::Application,
            format!("the worker ended before it served: {}", how(status)),
        );
    };
    let what = failure.failed.unwrap_or_default();
    let error = CliError::new(Code::Application, what);
    match failure.traceback {
        Some(trace) => error.with_detail("traceback", format!("\n{}", trace.trim_end())),
        None => error,
    }
}

/// For the record of a start.
pub(super) fn workers_json(pids: &[i32]) -> Value {
    json!(pids)
}
