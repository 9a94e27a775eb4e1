//! New code from the change to the verdict.
//!
//! Guarantee: the newest code is what boots: a change that comes meanwhile ends
//! the boot and begins another one, which answers for both. Where changes come
//! all the time the boot goes on, and the next one follows at once.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::failure::Failure;
use super::super::voice::Verdict;
use super::super::watch::{Batch, Change, Kind, Snapshot, Stamp};
use super::building::Build;
use super::{Retiring, Settings, Strategy, Supervisor};
use crate::commands::serve::python::worker::{Phase, Started, Whereabouts};
use crate::error::CliError;

/// Age that a file has to have before the word that it does not work counts:
/// some editors write it in two steps.
const SETTLED: Duration = Duration::from_millis(60);
/// Quiet after which the next interpreter is started ahead of time.
const AHEAD: Duration = Duration::from_millis(40);
/// Time to answer those who have waited for code that goes before the next starts.
const SHOWN: Duration = Duration::from_millis(100);
/// What takes longer to start is told of, and again at three times that.
const SLOW: Duration = Duration::from_secs(1);

/// New code on its way to serve.
#[derive(Debug)]
pub(super) struct Boot {
    /// Its worker; `None` while it waits for the old one to go.
    pub(super) number: Option<u64>,
    pub(super) build: Build,
    pub(super) changes: Vec<Change>,
    /// When the first word of the change came.
    pub(super) since: Instant,
    /// When its worker was told to build or load it.
    pub(super) launched: Instant,
    /// When its worker was told to load it, or to become what it has built.
    pub(super) begun: Instant,
    /// How all files were before that.
    pub(super) seen: Snapshot,
    /// Doubts that the verdict answers.
    pub(super) doubt: u64,
    /// A verdict that is not final yet.
    pub(super) verdict: Option<(Failure, Vec<PathBuf>, Instant)>,
    pub(super) is_retried: bool,
    /// Where its worker was last, if it has said so.
    at: Option<Whereabouts>,
    /// How often it was said that it takes long.
    num_words: u32,
}

impl Supervisor<'_> {
    pub(super) fn reload_by_hand(&mut self) -> Result<(), CliError> {
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
    pub(super) fn catch_up_with_changes(&mut self) -> Result<(), CliError> {
        let is_building = (self.boot.as_ref()).is_some_and(|boot| boot.build.is_running());
        if self.debugged.is_some() || is_building {
            return Ok(());
        }
        // As one: what answers the first would let requests through before the last.
        let Some(mut whole) = std::mem::take(&mut self.put_off)
            .into_iter()
            .reduce(Batch::with)
        else {
            return Ok(());
        };
        if whole.is_of_code() {
            // Theirs are answered, and whoever asks from now on is to get the new code.
            self.front.gate.raise(|| ());
            whole.doubt = self.front.gate.raised(|| ());
        }
        self.changed(whole)
    }

    /// Deals with what the watcher has found.
    pub(super) fn changed(&mut self, batch: Batch) -> Result<(), CliError> {
        if self.stop.is_some() {
            return Ok(());
        }
        if !batch.changes.is_empty() && self.is_by_build(&batch) {
            // Who waits for the build waits on: this doubt is newer than its own.
            self.doubt_with_newest(batch.doubt);
            self.put_off.push(batch);
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
                if !self.doubt_with_newest(doubt) {
                    self.front.gate.answer(doubt);
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
                Ok(settings) => self.tell_of_settings(settings)?,
                Err(error) => {
                    let (boot, _) = self.newest(changes, since, doubt);
                    self.boot = Some(boot);
                    let failure = Failure::of(&error);
                    return self.fail(&failure, &[]);
                }
            }
        }
        if self.boot.as_ref().is_some_and(|boot| self.keeps(boot)) {
            let later = Batch {
                changes,
                doubt,
                since,
            };
            self.behind = Some(match self.behind.take() {
                Some(behind) => behind.with(later),
                None => later,
            });
            // It is wanted as soon as this start has come to its end.
            self.start_ahead();
            return Ok(());
        }
        self.begin_boot(changes, since, doubt)
    }

    /// Says what of new settings does not hold, once for each change of that.
    fn tell_of_settings(&mut self, settings: Settings) -> Result<(), CliError> {
        for warning in &settings.warnings {
            self.voice.ui.warning(warning);
        }
        if self.unapplied != settings.unapplied {
            self.unapplied = settings.unapplied;
            if !self.unapplied.is_empty() {
                return self.voice.needs_restart(&self.unapplied);
            }
        }
        Ok(())
    }

    /// Whether newer code waits for a boot.
    fn keeps(&self, boot: &Boot) -> bool {
        !boot.waits()
            && self
                .pace
                .keeps(boot.since.elapsed(), boot.launched.elapsed())
    }

    /// Has the verdict on the newest code that is on its way answer a doubt,
    /// too; whether there is any.
    pub(super) fn doubt_with_newest(&mut self, doubt: u64) -> bool {
        let behind = self.behind.as_mut().map(|behind| &mut behind.doubt);
        let newest = behind.or(self.boot.as_mut().map(|boot| &mut boot.doubt));
        let Some(known) = newest else {
            return false;
        };
        *known = doubt.max(*known);
        true
    }

    /// When code that has waited for an older start is to start.
    pub(super) fn behind_due(&self) -> Option<Instant> {
        self.behind.as_ref()?;
        Some(match &self.boot {
            Some(boot) => boot.launched + self.pace.patience(),
            None => self.judged + self.shown_for(),
        })
    }

    /// Least time that code serves for which newer code has waited: where it has
    /// to go first nobody would meet it otherwise.
    const fn shown_for(&self) -> Duration {
        match self.rules.strategy {
            Strategy::Overlap => Duration::ZERO,
            Strategy::StopFirst => SHOWN,
        }
    }

    pub(super) fn begin_behind(&mut self, now: Instant) -> Result<(), CliError> {
        if self.behind_due().is_none_or(|due| now < due) {
            return Ok(());
        }
        if self.boot.is_some() {
            self.pace.gave_up();
        }
        match self.behind.take() {
            Some(behind) => self.begin_boot(behind.changes, behind.since, behind.doubt),
            None => Ok(()),
        }
    }

    /// Ends a boot whose code is not the newest any more; returns what it was for.
    pub(super) fn cancel_boot(&mut self) -> Option<Boot> {
        let mut boot = self.boot.take()?;
        if let Some(number) = boot.number.take() {
            self.team.kill(number);
            self.await_end(number);
        }
        Some(boot)
    }

    /// Where there can be one worker only, the next one waits for the end of this
    /// one, which is on its way.
    fn await_end(&mut self, number: u64) {
        if self.rules.strategy == Strategy::StopFirst && self.team.crew.get_mut(number).is_some() {
            self.retiring.push(Retiring::ends_soon(number));
        }
    }

    /// A boot that is also for what the one was for whose place it takes, and
    /// whether that one has waited for a worker to go.
    fn newest(&mut self, changes: Vec<Change>, since: Instant, doubt: u64) -> (Boot, bool) {
        let has_waited = self.boot.as_ref().is_some_and(Boot::waits);
        let mut whole = Batch {
            changes,
            doubt,
            since,
        };
        if let Some(behind) = self.behind.take() {
            whole = whole.with(behind);
        }
        if let Some(before) = self.cancel_boot() {
            whole = whole.with(Batch {
                changes: before.changes,
                doubt: before.doubt,
                since: before.since,
            });
        }
        let boot = Boot::new(whole.changes, whole.since, whole.doubt);
        (boot, has_waited)
    }

    pub(super) fn begin_boot(
        &mut self,
        changes: Vec<Change>,
        since: Instant,
        doubt: u64,
    ) -> Result<(), CliError> {
        let (boot, has_waited) = self.newest(changes, since, doubt);
        // What is built can be built meanwhile.
        let stops_first = self.rules.strategy == Strategy::StopFirst && !self.team.builds();
        if stops_first && let Some(old) = self.serving {
            return self.boot_after(old, boot);
        }
        if stops_first || has_waited {
            return self.boot_alone(boot);
        }
        self.launch(boot)
    }

    /// Has the old worker go before the new one starts.
    pub(super) fn boot_after(&mut self, old: u64, boot: Boot) -> Result<(), CliError> {
        self.front.stop_serving();
        self.serving = None;
        self.retire(old);
        self.boot_alone(boot)
    }

    /// Has a new worker start once no other one is on its way to its end.
    fn boot_alone(&mut self, boot: Boot) -> Result<(), CliError> {
        if self.retiring.is_empty() {
            return self.launch(boot);
        }
        self.boot = Some(boot);
        Ok(())
    }

    pub(super) fn launch_waiting(&mut self) -> Result<(), CliError> {
        match self.boot.take_if(|boot| boot.waits()) {
            Some(boot) => self.launch(boot),
            None => Ok(()),
        }
    }

    pub(super) fn launch(&mut self, mut boot: Boot) -> Result<(), CliError> {
        let has_moved = self.ahead_place != place(&self.team.orders.folder);
        if self.ahead.is_some() && (has_moved || self.packages != stamps(&self.package_folders)) {
            // It may have loaded what has been replaced since, or be in a folder that was.
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
        boot.launched = boot.begun;
        boot.num_words = 0;
        match started {
            Ok(number) => {
                boot.number = Some(number);
                self.boot = Some(boot);
                self.building()
            }
            Err(error) => {
                self.boot = Some(boot);
                let failure = Failure::new(format!("a worker cannot be started: {error}"));
                self.fail(&failure, &[])
            }
        }
    }

    pub(super) fn started(&mut self, number: u64, mut started: Started) -> Result<(), CliError> {
        if let Some(is_debugged) = started.dev.debugged {
            if is_debugged {
                self.debugged = Some(number);
            } else if self.debugged == Some(number) {
                self.debugged = None;
                self.postpone_end(number);
            }
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
                    return match self.rules.strategy {
                        Strategy::StopFirst => self.boot_alone(boot),
                        Strategy::Overlap => self.launch(boot),
                    };
                }
            }
            return Ok(());
        }
        if let Some(stopping) = started.dev.stopping {
            self.team.note_stopping(number, stopping);
            return Ok(());
        }
        let is_booting = |boot: &Boot| boot.number == Some(number);
        if let Some(at) = started.dev.at {
            if let Some(boot) = self.boot.as_mut().filter(|boot| is_booting(boot)) {
                boot.at = Some(at);
            }
            return Ok(());
        }
        if !self.boot.as_ref().is_some_and(is_booting) {
            return Ok(());
        }
        let built = (started.dev.build.as_mut()).and_then(|build| build.built.take());
        if let Some(built) = built {
            return self.built(number, built);
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
    pub(super) fn succeed(&mut self, number: u64, started: Started) -> Result<(), CliError> {
        let (Some(boot), Some(generation)) = (self.boot.take(), self.team.generation(number))
        else {
            return Ok(());
        };
        let pid = self.team.crew.get_mut(number).map(|worker| {
            worker.phase = Phase::Serving;
            worker.has_served = true;
            worker.pid.as_raw_nonzero().get()
        });
        let of_build = boot
            .build
            .built()
            .map_or(&[][..], |built| built.files.as_slice());
        self.executable = boot.build.built().and(self.built_as);
        let files = started.dev.files.iter().chain(of_build);
        let files = files.chain(&self.rules.settings);
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
        let elapsed = now.saturating_duration_since(boot.begun);
        self.judged = now;
        // The first build makes what all of the others find made.
        if self.heading.is_none() || boot.build.built().is_none() {
            self.pace
                .served(now.saturating_duration_since(boot.launched));
        }
        self.announce()?;
        if let Some(heading) = self.heading.take() {
            self.voice.ready(&heading, pid, elapsed)?;
        } else {
            let verdict = Verdict {
                changes: &boot.changes,
                elapsed: now - boot.since,
                is_superseded: self.behind.is_some(),
            };
            self.voice.reloaded(&verdict, elapsed, pid)?;
        }
        self.catch_up_with_changes()
    }

    /// Says that the newest code takes long to start, and where it is.
    pub(super) fn tell_of_slow_boot(&mut self, now: Instant) -> Result<(), CliError> {
        let Some(boot) = &mut self.boot else {
            return Ok(());
        };
        if boot.word_due().is_none_or(|due| now < due) {
            return Ok(());
        }
        while boot.word_due().is_some_and(|due| now >= due) {
            boot.num_words += 1;
        }
        let elapsed = now.saturating_duration_since(boot.begun);
        if boot.waits() || matches!(boot.build, Build::Done(_)) {
            return self.voice.waits_for_end(elapsed);
        }
        let at = boot.at.get_or_insert_with(|| Whereabouts {
            during: boot.build.starts_with().to_owned(),
            ..Whereabouts::default()
        });
        self.voice.waits(at, elapsed)
    }

    /// Notes that the newest code does not work, unless it may be half of it.
    pub(super) fn judge(&mut self, failure: Failure, files: Vec<PathBuf>) -> Result<(), CliError> {
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
    pub(super) fn fail(&mut self, failure: &Failure, files: &[PathBuf]) -> Result<(), CliError> {
        let Some(boot) = self.boot.take() else {
            return Ok(());
        };
        // It ends by itself, and is ended if it does not.
        if let Some(number) = boot.number
            && let Some(worker) = self.team.crew.get_mut(number)
        {
            worker.failed.get_or_insert_with(Instant::now);
            self.await_end(number);
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
        self.judged = Instant::now();
        self.pace.failed();
        if boot.build.is_running() {
            // What it has written itself changes nothing about it.
            self.put_off.retain(|batch| !batch.is_of_lock());
        }
        let is_stale = self.serving.is_some();
        self.front.fail(failure.clone(), &loaded);
        self.front.gate.answer(boot.doubt);
        self.ahead_due = Some(Instant::now() + AHEAD);
        self.announce()?;
        if let Some(heading) = self.heading.take() {
            self.voice.failed_first(&heading, failure)?;
        } else {
            let verdict = Verdict {
                changes: &boot.changes,
                elapsed: boot.since.elapsed(),
                is_superseded: self.behind.is_some(),
            };
            self.voice.failed(&verdict, failure, is_stale)?;
        }
        self.catch_up_with_changes()
    }
}

impl Boot {
    pub(super) fn new(changes: Vec<Change>, since: Instant, doubt: u64) -> Self {
        Self {
            number: None,
            build: Build::None,
            changes,
            since,
            launched: Instant::now(),
            begun: Instant::now(),
            seen: Snapshot::new(),
            doubt,
            verdict: None,
            is_retried: false,
            at: None,
            num_words: 0,
        }
    }

    /// When it is to be said that it takes long: ever more rarely.
    pub(super) fn word_due(&self) -> Option<Instant> {
        let after = SLOW * 3_u32.pow(self.num_words);
        // A build tells of itself.
        let is_silent = self.verdict.is_none() && !self.build.is_running();
        is_silent.then(|| self.begun + after)
    }

    /// Whether it has to wait for a worker to go.
    pub(super) const fn waits(&self) -> bool {
        self.number.is_none() && self.verdict.is_none()
    }

    /// Files, and how they were when their worker began to load them.
    pub(super) fn stamped(&self, paths: &[PathBuf]) -> Vec<(PathBuf, Stamp)> {
        let stamp = |path: &PathBuf| {
            let seen = self.seen.get(path).copied();
            (path.clone(), seen.unwrap_or_else(|| Stamp::of(path)))
        };
        paths.iter().map(stamp).collect()
    }
}

/// What tells a folder from another one at the same path, while a process is in it.
pub(super) fn place(folder: &Path) -> Option<(u64, u64)> {
    let metadata = folder.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

pub(super) fn stamps(folders: &[PathBuf]) -> Vec<Stamp> {
    folders.iter().map(|folder| Stamp::of(folder)).collect()
}

/// What a worker has said of its failure, and the files that it had loaded.
pub(super) fn told(started: Started) -> (Failure, Vec<PathBuf>) {
    let what = started.failed.unwrap_or_default();
    let mut failure = match (&started.traceback, &started.dev.build) {
        (Some(trace), _) => Failure::traced(what, trace),
        (None, Some(build)) => Failure::built(what, &build.diagnostics, &build.said),
        (None, None) => Failure::new(what),
    };
    failure.hint = started.hint;
    (failure, started.dev.files)
}
