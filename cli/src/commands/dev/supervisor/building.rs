//! New code that is built before it starts.
//!
//! ```text
//! change ──▶ Building ──built──▶ Starting ──answers──▶ serves
//!               │                   └─ends───▶ failed
//!               ├─next change: ended with cargo, and the newest code is built
//!               └─failed──▶ the last good worker goes on
//! ```
//!
//! Guarantee: while code is built the last good worker serves, also where it has
//! to go before the next one starts.

use std::time::Instant;

use super::super::cargo::when_ready;
use super::super::failure::Failure;
use super::super::team::Program;
use super::super::watch::{Batch, Kind, Stamp};
use super::{Event, Strategy, Supervisor};
use crate::commands::serve::python::worker::{self, Built, Started};
use crate::error::CliError;

/// Where a build is.
#[derive(Debug, Clone, Default)]
pub(super) enum Build {
    /// Nothing has to be built.
    #[default]
    None,
    Running,
    /// What was built is to start once the old worker has gone.
    Done(Built),
    Started(Built),
}

impl Build {
    pub(super) const fn is_running(&self) -> bool {
        matches!(self, Self::Running)
    }

    /// Whether the time counts: a build takes what it takes, and so does the end
    /// of an old worker.
    pub(super) const fn is_limited(&self) -> bool {
        matches!(self, Self::None | Self::Started(_))
    }

    /// What a worker begins with once it is to load its code.
    pub(super) const fn starts_with(&self) -> &'static str {
        match self {
            Self::None => "import",
            Self::Running | Self::Done(_) | Self::Started(_) => "startup",
        }
    }

    /// What was built, if anything was.
    pub(super) const fn built(&self) -> Option<&Built> {
        match self {
            Self::Done(built) | Self::Started(built) => Some(built),
            Self::None | Self::Running => None,
        }
    }
}

impl Supervisor<'_> {
    /// Notes that the worker of the boot builds first.
    pub(super) fn building(&mut self) -> Result<(), CliError> {
        let Some(boot) = self.boot.as_mut().filter(|_| self.team.builds()) else {
            return Ok(());
        };
        boot.build = Build::Running;
        let is_first = self.heading.is_some();
        self.voice.building(&boot.changes, is_first)
    }

    /// Whether a batch is of what a build writes itself, and so can wait for it.
    pub(super) fn is_by_build(&self, batch: &Batch) -> bool {
        let boot = self.boot.as_ref();
        boot.is_some_and(|boot| boot.build.is_running()) && batch.is_of_lock()
    }

    /// A worker has built what it is to run.
    pub(super) fn built(&mut self, number: u64, built: Built) -> Result<(), CliError> {
        let stamp = Stamp::of(&built.executable);
        let is_same = built.is_fresh
            && self.serving.is_some()
            && self.executable == Some(stamp)
            && !self.front.has_failure();
        let now = Instant::now();
        let Some(boot) = &mut self.boot else {
            return Ok(());
        };
        let elapsed = now.saturating_duration_since(boot.begun);
        let is_of_code = boot.changes.iter().all(|change| change.kind == Kind::Code);
        if is_same && is_of_code && !boot.changes.is_empty() {
            let doubt = boot.doubt;
            self.boot = None;
            self.team.kill(number);
            self.pace.failed();
            self.front.gate.answer(doubt);
            self.voice.built(elapsed, true)?;
            return self.catch_up_with_changes();
        }
        boot.build = Build::Done(built);
        boot.begun = now;
        self.built_as = Some(stamp);
        self.voice.built(elapsed, false)?;
        if self.rules.strategy == Strategy::StopFirst
            && let Some(old) = self.serving.take()
        {
            self.front.stop_serving();
            self.retire(old);
        }
        self.start_built()
    }

    /// Has what was built start, unless it has to wait for an old worker.
    pub(super) fn start_built(&mut self) -> Result<(), CliError> {
        let waits = self.rules.strategy == Strategy::StopFirst && !self.retiring.is_empty();
        let Some(boot) = self.boot.as_mut().filter(|_| !waits) else {
            return Ok(());
        };
        let (Build::Done(built), Some(number)) = (&boot.build, boot.number) else {
            return Ok(());
        };
        boot.build = Build::Started(built.clone());
        boot.begun = Instant::now();
        // One that has ended meanwhile is heard of.
        self.team.go(number);
        let Some(socket) = self.team.socket(number) else {
            return Ok(());
        };
        let events = self.events.clone();
        let asked = when_ready(socket, move || {
            let ready = Started {
                ready: true,
                ..Started::default()
            };
            drop(events.send(Event::Worker(worker::Event::Started(number, ready))));
        });
        match asked {
            Ok(()) => Ok(()),
            Err(error) => {
                let what = format!("the server cannot be asked whether it serves: {error}");
                self.fail(&Failure::new(what), &[])
            }
        }
    }

    /// Why a program that was built does not serve, by the last that it has said.
    pub(super) fn last_words(&self, what: String, words: &str) -> Failure {
        let Program::Rust(package) = &self.team.orders.program else {
            return Failure::new(what);
        };
        let mut failure = Failure::ended(what, words, |file| package.find_file(file));
        if words.contains("ddress already in use") || words.contains("AddrInUse") {
            failure.hint = Some(INHERIT.to_owned());
        }
        failure
    }
}

/// What is most often wrong with a server that does not answer.
pub(super) const INHERIT: &str = "under `justapi dev` a server listens on the socket that it is given: \
     `Listen::Inherited` where `num_inherited() > 0`, or what else reads LISTEN_FDS";
