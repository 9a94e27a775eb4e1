//! Replaces the running code by the newest that works.
//!
//! ```text
//! change ──▶ Booting ──ready──▶ Serving ──next one serves──▶ Retiring ──▶ ended
//!               │  └─ next change: ended, and the newest code boots
//!               └─failed──▶ the last good worker goes on, or the front says why
//! ```
//!
//! Guarantees: a worker is told to end only once another one serves; a change
//! is never lost, also one that comes while a worker boots; nothing but the
//! user ends this; no worker outlives it.
//! Longer than most, as whatever decides about a worker stands here.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use std::{io, thread};

use justapi_core::DrainReport;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::failure::Failure;
use super::front::{Front, Open};
use super::keys::{Key, Keys};
use super::team::Team;
use super::voice::{Heading, Voice};
use super::watch::{Batch, Change, Handle, Kind, Snapshot, Stamp, Word};
use crate::commands::serve::python::worker::{self, Phase, Started, how};
use crate::error::CliError;

/// Time for what is on its way to a worker that nobody is sent to any more.
const LAST_CALL: Duration = Duration::from_millis(100);
/// Beyond the grace time, before a worker is ended by force.
const MARGIN: Duration = Duration::from_secs(1);
/// Time for a worker that starts too slowly to show where it is.
const SHOW: Duration = Duration::from_millis(200);
/// Age that a file has to have before the word that it does not work counts:
/// some editors write it in two steps.
const SETTLED: Duration = Duration::from_millis(60);
/// Quiet after which the next interpreter is started ahead of time.
const AHEAD: Duration = Duration::from_millis(40);
/// Longest sleep.
const LOOK: Duration = Duration::from_secs(1);
/// Crashes in a row that are answered by another start.
const MAX_CRASHES: u32 = 3;
/// A worker that lives longer than this has not crashed in a row.
const FAST: Duration = Duration::from_secs(10);

/// What the supervisor hears.
#[derive(Debug)]
pub(super) enum Event {
    Worker(worker::Event),
    Watcher(Word),
    Key(Key),
    /// The front has let everybody go.
    Drained(DrainReport),
}

impl From<worker::Event> for Event {
    fn from(event: worker::Event) -> Self {
        Self::Worker(event)
    }
}

/// When the last good worker goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Once the new one serves.
    Overlap,
    /// Before the new one starts.
    StopFirst,
}

/// How it is done.
pub(super) struct Rules {
    pub(super) strategy: Strategy,
    pub(super) start_timeout: Duration,
    pub(super) grace: Duration,
    /// Whether interpreters are started ahead of time.
    pub(super) starts_ahead: bool,
    /// Files that the settings come from.
    pub(super) settings: Vec<PathBuf>,
    /// Reads the settings anew; what else has to be said of them.
    pub(super) reread: Box<Reread>,
}

pub(super) type Reread = dyn Fn(&mut Team) -> Result<Option<String>, CliError>;

/// How it ended.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) signal: i32,
    pub(super) finished: bool,
}

/// New code on its way to serve.
#[derive(Debug)]
struct Boot {
    /// Its worker; `None` while it waits for the old one to go.
    number: Option<u64>,
    changes: Vec<Change>,
    /// When the first word of the change came.
    since: Instant,
    /// When its worker was told to load it.
    begun: Instant,
    /// How all files were before that.
    seen: Snapshot,
    /// Doubts that the verdict answers.
    doubt: u64,
    /// A verdict that is not final yet.
    verdict: Option<(Failure, Vec<PathBuf>, Instant)>,
    is_retried: bool,
}

/// A worker that is to end.
#[derive(Debug)]
struct Retiring {
    number: u64,
    /// When it is told so at the latest.
    told_by: Instant,
    /// When it is ended by force.
    ended_by: Option<Instant>,
}

struct Stop {
    signal: i32,
    deadline: Instant,
    /// When workers are told.
    workers_due: Option<Instant>,
    is_drained: bool,
    finished: bool,
}

pub(super) struct Supervisor<'a> {
    voice: Voice<'a>,
    heading: Option<Heading>,
    team: Team,
    rules: Rules,
    front: Arc<Front>,
    open: Option<Open>,
    watcher: Handle,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    keys: Option<Keys>,
    has_terminal: bool,
    serving: Option<u64>,
    boot: Option<Boot>,
    ahead: Option<u64>,
    ahead_due: Option<Instant>,
    /// What the last good worker had of the environment.
    modules: Vec<String>,
    /// A worker that a debugger holds: it is not replaced meanwhile.
    debugged: Option<u64>,
    /// What has changed since.
    put_off: Vec<Batch>,
    package_folders: Vec<PathBuf>,
    /// How these folders were when an interpreter was started ahead.
    packages: Vec<Stamp>,
    retiring: Vec<Retiring>,
    num_crashes: u32,
    stop: Option<Stop>,
}

/// What a [`Supervisor`] is made of.
pub(super) struct Parts<'a> {
    pub(super) voice: Voice<'a>,
    pub(super) heading: Heading,
    pub(super) team: Team,
    pub(super) rules: Rules,
    pub(super) front: Arc<Front>,
    pub(super) open: Open,
    pub(super) watcher: Handle,
    pub(super) events: Sender<Event>,
    pub(super) inbox: Receiver<Event>,
    pub(super) keys: Option<Keys>,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(parts: Parts<'a>) -> Self {
        Self {
            voice: parts.voice,
            heading: Some(parts.heading),
            team: parts.team,
            rules: parts.rules,
            front: parts.front,
            open: Some(parts.open),
            watcher: parts.watcher,
            events: parts.events,
            inbox: parts.inbox,
            keys: parts.keys,
            has_terminal: io::stdin().is_terminal(),
            serving: None,
            boot: None,
            ahead: None,
            ahead_due: None,
            modules: Vec::new(),
            debugged: None,
            put_off: Vec::new(),
            package_folders: Vec::new(),
            packages: Vec::new(),
            retiring: Vec::new(),
            num_crashes: 0,
            stop: None,
        }
    }

    /// Serves until the user ends it.
    ///
    /// # Errors
    /// Standard output cannot be written to.
    pub(super) fn run(&mut self) -> Result<Report, CliError> {
        self.front.gate.raise(|| ());
        let doubt = self.front.gate.raised(|| ());
        self.begin_boot(Vec::new(), Instant::now(), doubt)?;
        loop {
            if let Some(stop) = &self.stop
                && stop.is_drained
                && self.team.crew.workers.is_empty()
            {
                return Ok(Report {
                    signal: stop.signal,
                    finished: stop.finished,
                });
            }
            match self.inbox.recv_timeout(self.pause()) {
                Ok(event) => self.hear(event)?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            self.catch_up()?;
        }
    }

    fn hear(&mut self, event: Event) -> Result<(), CliError> {
        match event {
            // Its terminal has gone.
            Event::Worker(worker::Event::Signal(SIGHUP)) if self.has_terminal => {
                self.begin_stop(SIGTERM)
            }
            Event::Worker(worker::Event::Signal(SIGHUP)) | Event::Key(Key::Reload) => {
                self.reload_by_hand()
            }
            Event::Worker(worker::Event::Signal(SIGQUIT)) => {
                self.team.crew.show_stacks();
                Ok(())
            }
            Event::Worker(worker::Event::Signal(signal)) => self.begin_stop(signal),
            Event::Key(Key::Quit) => self.begin_stop(SIGINT),
            Event::Key(key) => {
                self.voice.key(key);
                Ok(())
            }
            Event::Worker(worker::Event::Started(number, started)) => self.started(number, started),
            Event::Worker(worker::Event::Ended(number, status)) => self.ended(number, &status),
            Event::Watcher(Word::Batch(batch)) => self.changed(batch),
            Event::Watcher(Word::Watching {
                mode,
                num_files,
                num_folders,
            }) => {
                if let Some(heading) = &mut self.heading {
                    heading.watching = Some((mode, num_folders));
                }
                self.voice.watching(mode, num_files, num_folders)
            }
            Event::Watcher(Word::Warning(warning)) => {
                self.voice.ui.warning(&warning);
                Ok(())
            }
            Event::Drained(report) => {
                if let Some(stop) = &mut self.stop {
                    stop.is_drained = true;
                    stop.finished &= report.finished;
                    stop.workers_due = None;
                    self.end_workers();
                }
                Ok(())
            }
        }
    }

    /// Time until something is due without an event.
    fn pause(&self) -> Duration {
        let now = Instant::now();
        let retiring = self.retiring.iter().map(|one| match one.ended_by {
            Some(ended_by) => ended_by,
            // Whoever waits for it tells nobody.
            None => one.told_by.min(now + Duration::from_millis(10)),
        });
        let stop = self.stop.iter().flat_map(|stop| {
            let workers_due = stop.workers_due.into_iter();
            workers_due.chain([stop.deadline])
        });
        let verdict = self.boot.iter().flat_map(|boot| {
            let verdict = boot.verdict.as_ref().map(|(_, _, due)| *due);
            let late = boot.number.map(|_| boot.begun + self.rules.start_timeout);
            verdict.into_iter().chain(late.filter(|late| *late > now))
        });
        let due = retiring.chain(stop).chain(verdict).chain(self.ahead_due);
        let due = due.chain(self.team.crew.last_words_end()).min();
        due.map_or(LOOK, |due| due.saturating_duration_since(now))
            .min(LOOK)
    }

    /// Does what has become due.
    fn catch_up(&mut self) -> Result<(), CliError> {
        let now = Instant::now();
        self.retire_due(now);
        if let Some(stop) = &mut self.stop {
            if stop.workers_due.is_some_and(|due| now >= due) {
                stop.workers_due = None;
                self.end_workers();
            }
            if let Some(stop) = &mut self.stop
                && now >= stop.deadline
            {
                stop.finished = false;
                stop.is_drained = true;
                self.team.crew.kill_all();
            }
            return Ok(());
        }
        if let Some(Boot {
            number: Some(number),
            begun,
            ..
        }) = self.boot
        {
            let timeout = self.rules.start_timeout;
            if let Some(worker) = self.team.crew.get_mut(number)
                && now.saturating_duration_since(begun) >= timeout
                && worker.failed.is_none()
            {
                // Said here, as it says nothing any more.
                worker.show_stacks();
                worker.failed = Some(now);
                worker.failure = Some(Started {
                    failed: Some("the application did not start in time".to_owned()),
                    hint: Some(
                        "the stacks above say what it was at; --start-timeout gives it longer"
                            .to_owned(),
                    ),
                    ..Started::default()
                });
            }
        }
        let last = self.rules.start_timeout + SHOW;
        self.team.crew.end_late_starts(now, last);
        if let Some(boot) = &mut self.boot
            && boot.verdict.as_ref().is_some_and(|(_, _, due)| now >= *due)
            && let Some((failure, files, _)) = boot.verdict.take()
        {
            self.fail(&failure, &files)?;
        }
        if self.ahead_due.is_some_and(|due| now >= due) {
            self.ahead_due = None;
            self.start_ahead();
        }
        Ok(())
    }

    fn reload_by_hand(&mut self) -> Result<(), CliError> {
        if self.stop.is_some() {
            return Ok(());
        }
        self.front.gate.raise(|| ());
        let doubt = self.front.gate.raised(|| ());
        self.num_crashes = 0;
        self.drop_ahead();
        self.begin_boot(Vec::new(), Instant::now(), doubt)
    }

    /// Deals with what was put off for a debugger.
    fn catch_up_with_changes(&mut self) -> Result<(), CliError> {
        if self.debugged.is_some() {
            return Ok(());
        }
        for batch in std::mem::take(&mut self.put_off) {
            self.changed(batch)?;
        }
        Ok(())
    }

    /// Deals with what the watcher has found.
    fn changed(&mut self, batch: Batch) -> Result<(), CliError> {
        if self.stop.is_some() {
            return Ok(());
        }
        let Batch {
            changes,
            doubt,
            since,
        } = batch;
        if self.debugged.is_some() {
            // Whoever asks meanwhile is not kept waiting for that.
            self.front.gate.answer(doubt);
            self.put_off.push(Batch {
                changes,
                doubt,
                since,
            });
            return Ok(());
        }
        let most = changes.iter().map(|change| change.kind).max();
        match most {
            Some(Kind::Code | Kind::Settings) => {}
            most => {
                if most == Some(Kind::Style) {
                    self.front.swap_styles();
                } else if most == Some(Kind::Page) {
                    self.front.reload_pages();
                }
                // While a worker boots its verdict answers this, too.
                match &mut self.boot {
                    Some(boot) => boot.doubt = boot.doubt.max(doubt),
                    None => self.front.gate.answer(doubt),
                }
                return match most {
                    Some(_) => self.voice.pages(&changes, self.front.num_pages()),
                    None => Ok(()),
                };
            }
        }
        self.num_crashes = 0;
        if most == Some(Kind::Settings) {
            self.drop_ahead();
            match (self.rules.reread)(&mut self.team) {
                Ok(note) => {
                    if let Some(note) = note {
                        self.voice.note(&note)?;
                    }
                }
                Err(error) => {
                    self.cancel_boot();
                    self.boot = Some(Boot::new(changes, since, doubt));
                    let failure = Failure::of(&error);
                    return self.fail(&failure, &[]);
                }
            }
        }
        self.begin_boot(changes, since, doubt)
    }

    /// Ends a boot whose code is not the newest any more; returns what it was for.
    fn cancel_boot(&mut self) -> Option<Boot> {
        let boot = self.boot.take()?;
        if let Some(number) = boot.number {
            self.team.kill(number);
        }
        Some(boot)
    }

    fn begin_boot(
        &mut self,
        mut changes: Vec<Change>,
        mut since: Instant,
        mut doubt: u64,
    ) -> Result<(), CliError> {
        if let Some(before) = self.cancel_boot() {
            since = since.min(before.since);
            doubt = doubt.max(before.doubt);
            for change in before.changes {
                if !changes.contains(&change) {
                    changes.push(change);
                }
            }
        }
        let boot = Boot::new(changes, since, doubt);
        if self.rules.strategy == Strategy::StopFirst
            && let Some(old) = self.serving
        {
            return self.boot_after(old, boot);
        }
        self.launch(boot)
    }

    /// Has the old worker go before the new one starts.
    fn boot_after(&mut self, old: u64, boot: Boot) -> Result<(), CliError> {
        self.front.stop_serving();
        self.serving = None;
        self.boot = Some(boot);
        self.retire(old);
        if self.retiring.is_empty() {
            return self.launch_waiting();
        }
        Ok(())
    }

    fn launch_waiting(&mut self) -> Result<(), CliError> {
        match self
            .boot
            .take_if(|boot| boot.number.is_none() && boot.verdict.is_none())
        {
            Some(boot) => self.launch(boot),
            None => Ok(()),
        }
    }

    fn launch(&mut self, mut boot: Boot) -> Result<(), CliError> {
        if self.ahead.is_some() && self.packages != stamps(&self.package_folders) {
            // It may have loaded what has been replaced since.
            self.drop_ahead();
        }
        boot.seen = self.watcher.sight.snapshot();
        let ahead = self.ahead.take().filter(|number| self.team.go(*number));
        self.ahead_due = None;
        let started = match ahead {
            Some(number) => Ok(number),
            None => self.team.start(),
        };
        boot.begun = Instant::now();
        match started {
            Ok(number) => {
                boot.number = Some(number);
                self.boot = Some(boot);
                Ok(())
            }
            Err(error) => {
                self.boot = Some(boot);
                let failure = Failure::new(format!("a worker cannot be started: {error}"));
                self.fail(&failure, &[])
            }
        }
    }

    fn started(&mut self, number: u64, started: Started) -> Result<(), CliError> {
        if let Some(is_debugged) = started.dev.debugged {
            self.debugged = is_debugged.then_some(number);
            return self.catch_up_with_changes();
        }
        if started.dev.standby {
            if let Some(name) = started.dev.spoilt {
                // It may have old code of the application in it.
                self.rules.starts_ahead = false;
                self.voice.verbose(&format!(
                    "interpreters are not started ahead: the environment loads {name}, \
                     which is the application's"
                ));
                if self.ahead == Some(number) {
                    self.drop_ahead();
                } else if self
                    .boot
                    .as_ref()
                    .is_some_and(|boot| boot.number == Some(number))
                    && let Some(boot) = self.cancel_boot()
                {
                    return self.launch(boot);
                }
            }
            return Ok(());
        }
        let is_booting = |boot: &Boot| boot.number == Some(number);
        if !self.boot.as_ref().is_some_and(is_booting) {
            return Ok(());
        }
        if started.ready {
            return self.succeed(number, started);
        }
        if started.failed.is_none() {
            return Ok(());
        }
        if let Some(worker) = self.team.crew.get_mut(number) {
            worker.failed = Some(Instant::now());
        }
        if !started.dev.environment.is_empty() {
            self.package_folders.clone_from(&started.dev.environment);
        }
        let (failure, files) = told(started);
        self.judge(failure, files)
    }

    /// The newest code serves.
    fn succeed(&mut self, number: u64, started: Started) -> Result<(), CliError> {
        let (Some(boot), Some(generation)) = (self.boot.take(), self.team.generation(number))
        else {
            return Ok(());
        };
        let pid = self.team.crew.get_mut(number).map(|worker| {
            worker.phase = Phase::Serving;
            worker.has_served = true;
            worker.pid.as_raw_nonzero().get()
        });
        let files = started.dev.files.iter().chain(&self.rules.settings);
        let loaded = boot.stamped(&files.cloned().collect::<Vec<_>>());
        self.watcher.loaded(loaded.clone());
        self.front.serve(generation, &loaded);
        self.front.gate.answer(boot.doubt);
        let old = self.serving.replace(number);
        self.modules = started.dev.modules;
        self.package_folders = started.dev.environment;
        self.ahead_due = Some(Instant::now() + AHEAD);
        if let Some(old) = old {
            self.retire(old);
        }
        let now = Instant::now();
        if let Some(heading) = self.heading.take() {
            return self.voice.listening(&heading, pid, None);
        }
        self.voice.reloaded(
            &boot.changes,
            now - boot.since,
            now.saturating_duration_since(boot.begun),
            pid,
        )
    }

    /// Notes that the newest code does not work, unless it may be half of it.
    fn judge(&mut self, failure: Failure, files: Vec<PathBuf>) -> Result<(), CliError> {
        let Some(is_retried) = self.boot.as_ref().map(|boot| boot.is_retried) else {
            return Ok(());
        };
        let is_in_use = failure
            .trace
            .as_deref()
            .is_some_and(|trace| trace.contains("ddress already in use"));
        if is_in_use
            && !is_retried
            && let Some(old) = self.serving
            && let Some(mut boot) = self.cancel_boot()
        {
            boot.is_retried = true;
            boot.number = None;
            self.voice.note(
                "the new code wants an address that the running code has: it is started again \
                 after that has stopped; --reload-strategy stop-first does so each time",
            )?;
            return self.boot_after(old, boot);
        }
        let Some(boot) = &mut self.boot else {
            return Ok(());
        };
        let youngest = boot.changes.iter().filter_map(|change| {
            let saved = change.path.metadata().ok()?.modified().ok()?;
            saved.elapsed().ok()
        });
        match youngest.min().and_then(|age| SETTLED.checked_sub(age)) {
            Some(left) => {
                boot.verdict = Some((failure, files, Instant::now() + left));
                Ok(())
            }
            None => self.fail(&failure, &files),
        }
    }

    /// The newest code does not work, and that is final.
    fn fail(&mut self, failure: &Failure, files: &[PathBuf]) -> Result<(), CliError> {
        let Some(boot) = self.boot.take() else {
            return Ok(());
        };
        // It ends by itself, and is ended if it does not.
        if let Some(number) = boot.number
            && let Some(worker) = self.team.crew.get_mut(number)
        {
            worker.failed.get_or_insert_with(Instant::now);
        }
        let mut all: Vec<PathBuf> = files.to_vec();
        all.extend(boot.changes.iter().map(|change| change.path.clone()));
        let own = failure.frames.iter().filter(|frame| frame.is_own);
        all.extend(own.map(|frame| frame.file.clone()));
        all.extend(self.rules.settings.iter().cloned());
        // What is missing may be installed by then.
        all.extend(self.package_folders.iter().cloned());
        all.retain(|path| path.is_absolute());
        all.sort_unstable();
        all.dedup();
        let loaded = boot.stamped(&all);
        self.watcher.loaded(loaded.clone());
        let is_stale = self.serving.is_some();
        self.front.fail(failure.clone(), &loaded);
        self.front.gate.answer(boot.doubt);
        self.ahead_due = Some(Instant::now() + AHEAD);
        if let Some(heading) = self.heading.take() {
            return self.voice.listening(&heading, None, Some(failure));
        }
        let elapsed = boot.since.elapsed();
        self.voice.failed(&boot.changes, failure, is_stale, elapsed)
    }

    fn ended(&mut self, number: u64, status: &io::Result<ExitStatus>) -> Result<(), CliError> {
        let worker = self.team.remove(number);
        self.retiring.retain(|one| one.number != number);
        if self.ahead == Some(number) {
            // One that cannot wait is not tried again before it is asked for.
            self.ahead = None;
        }
        if self.debugged == Some(number) {
            self.debugged = None;
            if let Some(keys) = &self.keys {
                keys.take_back(&self.team.orders.interpreter.path);
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
                    (Failure::new(what), Vec::new())
                }
            };
            return self.judge(failure, files);
        }
        if self.retiring.is_empty() {
            return self.launch_waiting();
        }
        Ok(())
    }

    /// The worker that serves has ended by itself.
    fn crashed(
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
            if let Some(boot) = &mut self.boot {
                boot.doubt = boot.doubt.max(doubt);
            }
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
    fn retire(&mut self, number: u64) {
        self.retiring.push(Retiring {
            number,
            told_by: Instant::now() + self.rules.grace,
            ended_by: None,
        });
        self.retire_due(Instant::now());
    }

    fn retire_due(&mut self, now: Instant) {
        let force_after = self.rules.grace + MARGIN;
        for one in &mut self.retiring {
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
                }
                Some(_) => {}
            }
        }
    }

    /// Starts the next interpreter, unless there is one.
    fn start_ahead(&mut self) {
        let is_wanted = self.rules.starts_ahead && self.ahead.is_none();
        if !is_wanted || self.boot.is_some() || self.stop.is_some() {
            return;
        }
        // Where there is no process to spare a reload says so.
        self.packages = stamps(&self.package_folders);
        self.ahead = self.team.start_ahead(&self.modules).ok();
    }

    fn drop_ahead(&mut self) {
        if let Some(number) = self.ahead.take() {
            self.team.kill(number);
        }
    }

    fn begin_stop(&mut self, signal: i32) -> Result<(), CliError> {
        debug_assert!(signal == SIGINT || signal == SIGTERM, "others do not stop");
        if let Some(stop) = &mut self.stop {
            stop.finished = false;
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
        });
        self.keys = None;
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

    /// Has every worker end.
    fn end_workers(&mut self) {
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

impl Boot {
    fn new(changes: Vec<Change>, since: Instant, doubt: u64) -> Self {
        Self {
            number: None,
            changes,
            since,
            begun: Instant::now(),
            seen: Snapshot::new(),
            doubt,
            verdict: None,
            is_retried: false,
        }
    }

    /// Files, and how they were when their worker began to load them.
    fn stamped(&self, paths: &[PathBuf]) -> Vec<(PathBuf, Stamp)> {
        let stamp = |path: &PathBuf| {
            let seen = self.seen.get(path).copied();
            (path.clone(), seen.unwrap_or_else(|| Stamp::of(path)))
        };
        paths.iter().map(stamp).collect()
    }
}

fn stamps(folders: &[PathBuf]) -> Vec<Stamp> {
    folders.iter().map(|folder| Stamp::of(folder)).collect()
}

/// What a worker has said of its failure, and the files that it had loaded.
fn told(started: Started) -> (Failure, Vec<PathBuf>) {
    let what = started.failed.unwrap_or_default();
    let mut failure = match &started.traceback {
        Some(trace) => Failure::traced(what, trace),
        None => Failure::new(what),
    };
    failure.hint = started.hint;
    (failure, started.dev.files)
}
