//! Replaces the running code by the newest that works.
//!
//! ```text
//! change ──▶ Booting ──ready──▶ Serving ──next one serves──▶ Retiring ──▶ ended
//!               │  └─ next change: ended, and the newest code boots; or, where
//!               │     changes do not cease, it boots after the verdict
//!               └─failed──▶ the last good worker goes on, or the front says why
//! ```
//!
//! Guarantees: a worker is told to end only once another one serves; a change
//! is never lost, also one that comes while a worker boots; nothing but the
//! user ends this; no worker outlives it.

mod boot;
mod building;
mod ending;
mod pace;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use justapi_core::DrainReport;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use self::boot::Boot;
use self::pace::Pace;
use super::front::{Front, Open};
use super::keys::{Key, Keys};
use super::team::Team;
use super::voice::{Heading, Voice};
use super::watch::{Batch, Handle, Stamp, Word};
use crate::commands::serve::python::worker::{self, Started};
use crate::config::Warning;
use crate::error::CliError;

/// Time for a worker that starts too slowly to show where it is.
const SHOW: Duration = Duration::from_millis(200);
/// Longest wait for the number of watched folders, which the first lines name.
const HEADING: Duration = Duration::from_millis(100);
/// Longest sleep.
const LOOK: Duration = Duration::from_secs(1);

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
    /// Reads the settings anew.
    pub(super) reread: Box<Reread>,
}

pub(super) type Reread = dyn Fn(&mut Team) -> Result<Settings, CliError>;

/// What has to be said of settings that were read anew.
#[derive(Debug)]
pub(super) struct Settings {
    /// Those that have changed and count after a restart.
    pub(super) unapplied: Vec<&'static str>,
    pub(super) warnings: Vec<Warning>,
}

/// How it ended.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) signal: i32,
    pub(super) finished: bool,
    /// Whether every request was answered.
    pub(super) answered: bool,
}

/// A worker that is to end.
#[derive(Debug)]
struct Retiring {
    number: u64,
    /// When it is told so at the latest.
    told_by: Instant,
    /// When it is ended by force.
    ended_by: Option<Instant>,
    /// Whether that it did not end by itself has been said, or is no news.
    is_missed: bool,
}

impl Retiring {
    /// One that has been told, or ends by itself.
    fn ends_soon(number: u64) -> Self {
        let now = Instant::now();
        Self {
            number,
            told_by: now,
            ended_by: Some(now + LOOK),
            is_missed: true,
        }
    }
}

struct Stop {
    signal: i32,
    deadline: Instant,
    /// When workers are told.
    workers_due: Option<Instant>,
    is_drained: bool,
    finished: bool,
    /// Whether every request was answered.
    answered: bool,
    /// How often all that was left was ended by force.
    num_forced: u32,
}

pub(super) struct Supervisor<'a> {
    voice: Voice<'a>,
    /// Until the first verdict.
    heading: Option<Heading>,
    /// When it is shown at the latest, until it is.
    heading_due: Option<Instant>,
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
    /// What has changed since, where newer code waits for that start.
    behind: Option<Batch>,
    pace: Pace,
    /// When the last verdict was given.
    judged: Instant,
    /// The executable that serves, and the one that was built last.
    executable: Option<Stamp>,
    built_as: Option<Stamp>,
    ahead: Option<u64>,
    ahead_due: Option<Instant>,
    /// The folder that it is in.
    ahead_place: Option<(u64, u64)>,
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
    /// Settings that were last said to count after a restart.
    unapplied: Vec<&'static str>,
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
            heading_due: Some(Instant::now() + HEADING),
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
            behind: None,
            pace: Pace::default(),
            judged: Instant::now(),
            executable: None,
            built_as: None,
            ahead: None,
            ahead_due: None,
            ahead_place: None,
            modules: Vec::new(),
            debugged: None,
            put_off: Vec::new(),
            package_folders: Vec::new(),
            packages: Vec::new(),
            retiring: Vec::new(),
            num_crashes: 0,
            unapplied: Vec::new(),
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
                    answered: stop.answered,
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
                // A server of the user's own would end of it.
                if !self.team.builds() {
                    self.team.crew.show_stacks();
                }
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
                self.announce()?;
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
                    stop.answered &= report.finished;
                    stop.workers_due = None;
                    self.end_workers();
                }
                Ok(())
            }
        }
    }

    /// Says where it listens, once.
    fn announce(&mut self) -> Result<(), CliError> {
        match (self.heading_due.take(), &self.heading) {
            (Some(_), Some(heading)) => self.voice.starting(heading),
            _ => Ok(()),
        }
    }

    /// Time until something is due without an event.
    fn pause(&self) -> Duration {
        let now = Instant::now();
        // One that a debugger holds is left alone.
        let retiring = self.retiring.iter();
        let retiring = retiring.filter(|one| self.debugged != Some(one.number));
        let retiring = retiring.map(|one| match one.ended_by {
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
            let late = boot.number.filter(|_| boot.build.is_limited());
            let late = late.map(|_| boot.begun + self.rules.start_timeout);
            let late = late.filter(|late| *late > now);
            verdict.into_iter().chain(late).chain(boot.word_due())
        });
        let due = retiring.chain(stop).chain(verdict).chain(self.ahead_due);
        let due = due.chain(self.behind_due()).chain(self.heading_due);
        let due = due.chain(self.team.crew.last_words_end()).min();
        due.map_or(LOOK, |due| due.saturating_duration_since(now))
            .min(LOOK)
    }

    /// Does what has become due.
    fn catch_up(&mut self) -> Result<(), CliError> {
        let now = Instant::now();
        let killed = self.retire_due(now);
        self.tell_of_killed(&killed)?;
        if self.stop.is_some() {
            return self.end_overdue(now);
        }
        if let Some(boot) = &mut self.boot
            && let Some(number) = self.debugged
            && boot.number == Some(number)
            && let Some(worker) = self.team.crew.get_mut(number)
        {
            // The time at a prompt is no time that the application takes to start.
            boot.begun = now;
            boot.launched = now;
            worker.started = now;
        }
        if let Some(Boot {
            number: Some(number),
            begun,
            ref build,
            ..
        }) = self.boot
            && build.is_limited()
        {
            let timeout = self.rules.start_timeout;
            if let Some(worker) = self.team.crew.get_mut(number)
                && now.saturating_duration_since(begun) >= timeout
                && worker.failed.is_none()
            {
                // Said here, as it says nothing any more.
                let hint = if build.built().is_some() {
                    building::INHERIT
                } else {
                    worker.show_stacks();
                    "the stacks above say what it was at; --start-timeout gives it longer"
                };
                worker.failed = Some(now);
                worker.failure = Some(Started {
                    failed: Some("the application did not start in time".to_owned()),
                    hint: Some(hint.to_owned()),
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
        self.begin_behind(now)?;
        self.tell_of_slow_boot(now)?;
        if self.heading_due.is_some_and(|due| now >= due) {
            self.announce()?;
        }
        if self.ahead_due.is_some_and(|due| now >= due) {
            self.ahead_due = None;
            self.start_ahead();
        }
        Ok(())
    }
}
