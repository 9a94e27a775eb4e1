//! The ends of workers: asked for, by themselves, and with everything.
//!
//! Guarantee: whoever is sent to a worker has an answer before it is told to
//! end, and none lives longer than it is good for.

use std::io::{self, IsTerminal as _};
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::super::failure::Failure;
use super::super::team::Program;
use super::boot::{Boot, place, stamps, told};
use super::{Event, LOOK, Retiring, Stop, Supervisor};
use crate::commands::serve::python::worker::{self, Phase, how};
use crate::error::CliError;

/// Time for what is on its way to a worker that nobody is sent to any more.
const LAST_CALL: Duration = Duration::from_millis(100);
/// Beyond the grace time, before a worker is ended by force.
const MARGIN: Duration = Duration::from_secs(1);
/// Crashes in a row that are answered by another start.
const MAX_CRASHES: u32 = 3;
/// A worker that lives longer than this has not crashed in a row.
const FAST: Duration = Duration::from_secs(10);

impl Supervisor<'_> {
    pub(super) fn ended(
        &mut self,
        number: u64,
        status: &io::Result<ExitStatus>,
    ) -> Result<(), CliError> {
        let (worker, output) = self.team.remove(number);
        self.retiring.retain(|one| one.number != number);
        if self.ahead == Some(number) {
            // One that cannot wait is not tried again before it is asked for.
            self.ahead = None;
        }
        if self.debugged == Some(number) {
            self.debugged = None;
            if let (Some(keys), Program::Python(interpreter)) =
                (&self.keys, &self.team.orders.program)
            {
                keys.take_back(&interpreter.path);
            }
        }
        if self.stop.is_some() {
            return Ok(());
        }
        self.catch_up_with_changes()?;
        if self.serving == Some(number) {
            return self.crashed(worker, status);
        }
        if self
            .boot
            .as_ref()
            .is_some_and(|boot| boot.number == Some(number))
        {
            let is_judged = self
                .boot
                .as_ref()
                .is_some_and(|boot| boot.verdict.is_some());
            if is_judged {
                return Ok(());
            }
            let failure = worker.and_then(|mut worker| worker.failure.take());
            let (failure, files) = match failure {
                Some(failure) => told(failure),
                None => {
                    let what = format!("the worker ended before it served: {}", how(status));
                    let words = output.map(|output| output.last_words());
                    let words = words.unwrap_or_default();
                    (self.last_words(what, &words), Vec::new())
                }
            };
            return self.judge(failure, files);
        }
        if self.retiring.is_empty() {
            self.start_built()?;
            return self.launch_waiting();
        }
        Ok(())
    }

    /// The worker that serves has ended by itself.
    pub(super) fn crashed(
        &mut self,
        worker: Option<worker::Worker>,
        status: &io::Result<ExitStatus>,
    ) -> Result<(), CliError> {
        self.serving = None;
        self.front.gate.raise(|| ());
        self.front.stop_serving();
        if worker.is_some_and(|worker| worker.started.elapsed() >= FAST) {
            self.num_crashes = 0;
        }
        self.num_crashes += 1;
        self.voice.crashed(&how(status))?;
        if self.boot.is_some() {
            // What replaces it is on its way, and answers for it.
            let doubt = self.front.gate.raised(|| ());
            self.doubt_with_newest(doubt);
            return Ok(());
        }
        let doubt = self.front.gate.raised(|| ());
        if self.num_crashes <= MAX_CRASHES {
            return self.begin_boot(Vec::new(), Instant::now(), doubt);
        }
        self.boot = Some(Boot::new(Vec::new(), Instant::now(), doubt));
        let mut failure = Failure::new(format!(
            "the worker has ended {} times in a row: {}",
            self.num_crashes,
            how(status)
        ));
        failure.hint = Some("it is started again when a file changes, or by the key r".to_owned());
        self.fail(&failure, &[])
    }

    /// Has a worker end that nobody is sent to any more.
    pub(super) fn retire(&mut self, number: u64) {
        if self.team.crew.get_mut(number).is_none() {
            // It has ended meanwhile, and nothing is heard of it any more.
            return;
        }
        self.retiring.push(Retiring {
            number,
            told_by: Instant::now() + self.rules.grace,
            ended_by: None,
            is_missed: false,
        });
    }

    /// Has those end that are due; returns those that are ended by force.
    pub(super) fn retire_due(&mut self, now: Instant) -> Vec<u64> {
        let mut forced = Vec::new();
        let force_after = self.rules.grace + MARGIN;
        for one in &mut self.retiring {
            if self.debugged == Some(one.number) {
                continue;
            }
            let generation = self.team.generation(one.number);
            let is_awaited = generation.is_some_and(|one| one.is_awaited());
            let Some(worker) = self.team.crew.get_mut(one.number) else {
                continue;
            };
            match one.ended_by {
                None => {
                    if !is_awaited || now >= one.told_by {
                        worker.stop();
                        one.ended_by = Some(now + force_after);
                    }
                }
                Some(ended_by) if now >= ended_by => {
                    worker.signal(Signal::KILL);
                    one.ended_by = Some(now + LOOK);
                    if !std::mem::replace(&mut one.is_missed, true) {
                        forced.push(one.number);
                    }
                }
                Some(_) => {}
            }
        }
        forced
    }

    /// Says which workers did not end in time, and what they waited for.
    pub(super) fn tell_of_killed(&mut self, killed: &[u64]) -> Result<(), CliError> {
        let given = self.rules.grace + MARGIN;
        for number in killed {
            let Some(worker) = self.team.crew.get_mut(*number) else {
                continue;
            };
            let pid = worker.pid.as_raw_nonzero().get();
            self.voice.killed(pid, given, self.team.stopping(*number))?;
        }
        Ok(())
    }

    /// Gives a worker its time anew, some of which a debugger has taken.
    pub(super) fn postpone_end(&mut self, number: u64) {
        let now = Instant::now();
        for one in &mut self.retiring {
            if one.number == number {
                one.told_by = now + self.rules.grace;
                one.ended_by = (one.ended_by).map(|_| now + self.rules.grace + MARGIN);
            }
        }
    }

    /// Starts the next interpreter, unless there is one.
    pub(super) fn start_ahead(&mut self) {
        let is_wanted = self.rules.starts_ahead && self.ahead.is_none();
        let is_too_early = self.boot.is_some() && self.behind.is_none();
        if !is_wanted || is_too_early || self.stop.is_some() {
            return;
        }
        // Where there is no process to spare a reload says so.
        self.packages = stamps(&self.package_folders);
        self.ahead_place = place(&self.team.orders.folder);
        self.ahead = self.team.start_ahead(&self.modules).ok();
    }

    pub(super) fn drop_ahead(&mut self) {
        if let Some(number) = self.ahead.take() {
            self.team.kill(number);
        }
    }

    pub(super) fn begin_stop(&mut self, signal: i32) -> Result<(), CliError> {
        debug_assert!(signal == SIGINT || signal == SIGTERM, "others do not stop");
        if let Some(stop) = &mut self.stop {
            stop.finished = false;
            stop.answered &= stop.is_drained;
            stop.is_drained = true;
            self.team.crew.kill_all();
            return Ok(());
        }
        let now = Instant::now();
        self.stop = Some(Stop {
            signal,
            deadline: now + self.rules.grace + MARGIN,
            workers_due: Some(now + LAST_CALL),
            is_drained: self.open.is_none(),
            finished: true,
            answered: true,
            num_forced: 0,
        });
        self.keys = None;
        self.heading_due = None;
        self.behind = None;
        self.cancel_boot();
        self.drop_ahead();
        // Nobody who waits for a verdict gets one any more.
        let doubt = self.front.gate.raised(|| ());
        self.front.gate.answer(doubt);
        if let Some(open) = self.open.take() {
            let events = self.events.clone();
            // It blocks; the workers are told meanwhile.
            let drained = thread::Builder::new()
                .name("drain".to_owned())
                .spawn(move || drop(events.send(Event::Drained(open.drain()))));
            if drained.is_err()
                && let Some(stop) = &mut self.stop
            {
                stop.is_drained = true;
            }
        }
        self.voice.stopping(signal, io::stderr().is_terminal())
    }

    /// Tells workers to end, and ends those by force that have not.
    pub(super) fn end_overdue(&mut self, now: Instant) -> Result<(), CliError> {
        let Some(stop) = &mut self.stop else {
            return Ok(());
        };
        if stop.workers_due.is_some_and(|due| now >= due) {
            stop.workers_due = None;
            self.end_workers();
        }
        let Some(stop) = self.stop.as_mut().filter(|stop| now >= stop.deadline) else {
            return Ok(());
        };
        stop.num_forced += 1;
        stop.answered &= stop.is_drained;
        stop.finished = false;
        stop.is_drained = true;
        // Once more if one does not go even so, but not all the time.
        stop.deadline = now + LOOK;
        let is_first = stop.num_forced == 1;
        let missed = self.retiring.iter().filter(|one| one.is_missed);
        let missed: Vec<u64> = missed.map(|one| one.number).collect();
        let late = self.team.crew.workers.iter().map(|worker| worker.number);
        let late: Vec<u64> = late.filter(|number| !missed.contains(number)).collect();
        self.team.crew.kill_all();
        if is_first {
            return self.tell_of_killed(&late);
        }
        Ok(())
    }

    /// Has every worker end.
    pub(super) fn end_workers(&mut self) {
        for worker in &mut self.team.crew.workers {
            if worker.phase == Phase::Serving {
                worker.stop();
            } else if worker.phase != Phase::Stopping {
                worker.phase = Phase::Stopping;
                worker.signal(Signal::KILL);
            }
        }
    }
}
