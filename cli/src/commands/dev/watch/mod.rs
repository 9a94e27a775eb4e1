//! Tells the supervisor which files have changed.
//!
//! Guarantee: each change is told once, however many events it makes, and none
//! is lost: where events overflow or do not come, everything is looked at
//! again. Between the first word of a change and the verdict on it the gate is
//! closed, so that nobody is answered by code of which it is not known whether
//! it is old.

mod native;
mod rules;
mod stamp;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{io, thread};

use notify::Watcher as _;

use self::native::{Native, polled_file_system};
pub(super) use self::rules::{Kind, Language, Rules};
pub(super) use self::stamp::Stamp;
pub(super) use self::tree::{Change, Sight, Snapshot};
use self::tree::{Found, Tree};
use super::gate::Gate;
use crate::config::Warning;
use crate::error::Code;

/// Quiet after which a change is taken to be over.
const QUIET: Duration = Duration::from_millis(10);
/// The same when many files change.
const STORM_QUIET: Duration = Duration::from_millis(50);
/// Files that make a storm.
const STORM_FILES: usize = 20;
/// Longest wait for quiet.
const MAX_WAIT: Duration = Duration::from_millis(200);
/// Longest wait for git.
const MAX_GIT_WAIT: Duration = Duration::from_secs(2);
/// Between two looks at a root that is not there.
const ROOT_PERIOD: Duration = Duration::from_millis(300);

/// How changes are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The system tells.
    Native,
    /// Everything is looked at, this often.
    Polling(Duration),
}

/// What the watcher has found.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) changes: Vec<Change>,
    /// Doubts of the gate that are answered once these changes are dealt with.
    pub(crate) doubt: u64,
    /// When the first word of it came.
    pub(crate) since: Instant,
}

impl Batch {
    /// Both in one.
    pub(crate) fn with(mut self, later: Self) -> Self {
        for change in later.changes {
            if !self.changes.contains(&change) {
                self.changes.push(change);
            }
        }
        self.doubt = self.doubt.max(later.doubt);
        self.since = self.since.min(later.since);
        self
    }

    /// Whether it is for new code.
    pub(crate) fn is_of_code(&self) -> bool {
        let is_of_code = |one: &Change| matches!(one.kind, Kind::Code | Kind::Settings);
        self.changes.iter().any(is_of_code)
    }

    /// Whether it is for nothing but the lock file of cargo.
    pub(crate) fn is_of_lock(&self) -> bool {
        let is_lock = |one: &Change| {
            one.path
                .file_name()
                .is_some_and(|name| name == "Cargo.lock")
        };
        self.changes.iter().all(is_lock)
    }
}

/// What the watcher tells.
#[derive(Debug)]
pub(crate) enum Word {
    Batch(Batch),
    /// It has begun.
    Watching {
        mode: Mode,
        num_files: usize,
        num_folders: usize,
    },
    Warning(Warning),
}

/// What the watcher hears.
#[derive(Debug)]
enum Message {
    Event(notify::Result<notify::Event>),
    /// Files that do not look as when they were loaded.
    Suspects(Vec<PathBuf>),
    /// Files that the application has loaded, and how they were then.
    Loaded(Vec<(PathBuf, Stamp)>),
}

/// What is watched, and how.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) root: PathBuf,
    pub(crate) rules: Rules,
    /// `None` for whatever works.
    pub(crate) mode: Option<Mode>,
    pub(crate) period: Duration,
    /// What is younger has been changed while nobody watched.
    pub(crate) begun: SystemTime,
}

/// The other end of the watcher's thread.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    messages: Sender<Message>,
    pub(crate) sight: Sight,
}

impl Handle {
    /// Has files looked at that do not look as they should.
    pub(crate) fn suspect(&self, paths: Vec<PathBuf>) {
        drop(self.messages.send(Message::Suspects(paths)));
    }

    /// Says which files the application has loaded.
    pub(crate) fn loaded(&self, files: Vec<(PathBuf, Stamp)>) {
        drop(self.messages.send(Message::Loaded(files)));
    }
}

/// Starts to watch; `tell` is called on the watcher's thread.
///
/// # Errors
/// The system has no thread to spare.
pub(crate) fn start(
    task: Task,
    gate: Arc<Gate>,
    tell: impl Fn(Word) + Send + 'static,
) -> io::Result<Handle> {
    let (messages, inbox) = channel();
    let sight = Sight::default();
    let handle = Handle {
        messages: messages.clone(),
        sight: sight.clone(),
    };
    let Task {
        root,
        rules,
        mode,
        period,
        begun,
    } = task;
    let mut watcher = Watcher {
        tree: Tree::new(root, Arc::new(rules), sight),
        native: None,
        mode: mode.unwrap_or(Mode::Native),
        may_poll: mode.is_none(),
        period,
        gate,
        inbox,
        messages,
        tell,
        pending: Pending::default(),
    };
    thread::Builder::new()
        .name("watcher".to_owned())
        .spawn(move || {
            watcher.begin(begun);
            watcher.run();
        })?;
    Ok(handle)
}

/// What has been heard of and not looked at yet.
#[derive(Default)]
struct Pending {
    paths: Vec<PathBuf>,
    is_everything: bool,
    since: Option<Instant>,
}

struct Watcher<F> {
    tree: Tree,
    /// `None` while everything is polled.
    native: Option<Native>,
    mode: Mode,
    /// Whether polling may take the place of events.
    may_poll: bool,
    period: Duration,
    gate: Arc<Gate>,
    inbox: Receiver<Message>,
    messages: Sender<Message>,
    tell: F,
    pending: Pending,
}

impl<F: Fn(Word)> Watcher<F> {
    fn begin(&mut self, begun: SystemTime) {
        if self.mode == Mode::Native {
            match polled_file_system(&self.tree.root).filter(|_| self.may_poll) {
                Some(name) => self.poll_instead(&format!(
                    "{} is on {name}, which tells nobody of changes",
                    self.tree.root.display()
                )),
                None => self.open_native(),
            }
        }
        let begun_ns = begun
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos().cast_signed());
        let is_change = |stamp: &Stamp| stamp.modified_ns() >= begun_ns;
        let mut found = self.tree.scan(is_change);
        self.watch(&found.folders);
        // What has changed before it was watched has made no event.
        let again = self.tree.scan(is_change);
        self.watch(&again.folders);
        found.changes.extend(again.changes);
        if !found.unreadable.is_empty() {
            let first = found.unreadable[0].display().to_string();
            let more = match found.unreadable.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            self.warn(
                Code::WatchFallback,
                format!("{first}{more} cannot be read, and so is not watched"),
            );
        }
        (self.tell)(Word::Watching {
            mode: self.mode,
            num_files: self.tree.num_files(),
            num_folders: self.tree.num_folders(),
        });
        if !found.changes.is_empty() {
            self.gate.raise(|| ());
            self.pending.since = Some(Instant::now());
            // What has been heard meanwhile has raised doubts, too.
            self.settle_with(found.changes);
        }
    }

    fn open_native(&mut self) {
        match Native::open(self.messages.clone(), Message::Event) {
            Ok(native) => self.native = Some(native),
            Err(error) => self.give_up_events(&error),
        }
    }

    /// Has the system tell of changes in `folders`.
    fn watch(&mut self, folders: &[PathBuf]) {
        let Some(native) = &mut self.native else {
            return;
        };
        for folder in folders {
            let watched = native
                .watcher
                .watch(folder, notify::RecursiveMode::NonRecursive);
            match watched {
                Ok(()) => {}
                Err(error) if native::is_limit(&error) => {
                    self.give_up_events(&error);
                    return;
                }
                // It is gone by now, or not readable, which has been said.
                Err(_) => {}
            }
        }
    }

    /// Watches new folders, and finds what came into them before that.
    fn watch_anew(&mut self, found: &mut Found) {
        let mut folders = std::mem::take(&mut found.folders);
        while !folders.is_empty() {
            self.watch(&folders);
            let again = self.tree.look_into(&folders);
            found.changes.extend(again.changes);
            folders = again.folders;
        }
        let of_loaded = std::mem::take(&mut found.of_loaded);
        if !of_loaded.is_empty() {
            self.watch(&of_loaded);
            let again = self.tree.look_at_known(&of_loaded);
            found.changes.extend(again.changes);
        }
    }

    fn give_up_events(&mut self, error: &notify::Error) {
        self.native = None;
        let why = native::explain(error, self.tree.num_folders());
        if self.may_poll {
            self.poll_instead(&why);
        } else {
            self.mode = Mode::Polling(self.period);
            self.warn(Code::WatchFallback, format!("{why}; polling after all"));
        }
    }

    fn poll_instead(&mut self, why: &str) {
        self.mode = Mode::Polling(self.period);
        self.warn(
            Code::WatchFallback,
            format!(
                "{why}: files are looked at every {} ms instead, `--poll-interval` says how often",
                self.period.as_millis()
            ),
        );
    }

    fn warn(&self, code: Code, message: String) {
        (self.tell)(Word::Warning(Warning {
            code,
            message,
            location: None,
        }));
    }

    /// Looks until nobody listens any more.
    fn run(&mut self) {
        loop {
            if self.pending.since.is_none() {
                match self.inbox.try_recv() {
                    Ok(message) => {
                        self.hear(message);
                        continue;
                    }
                    // There is time to read what is not known yet.
                    Err(TryRecvError::Empty) if self.tree.read_next() => continue,
                    Err(_) => {}
                }
                match self.receive(self.idle_wait()) {
                    Ok(Some(message)) => self.hear(message),
                    Ok(None) => self.tick(),
                    Err(()) => return,
                }
                continue;
            }
            self.wait_for_quiet();
            self.settle();
        }
    }

    /// Until when nothing has to be done without a message.
    fn idle_wait(&self) -> Option<Duration> {
        match self.mode {
            Mode::Polling(period) => Some(period),
            Mode::Native => (!self.tree.has_root()).then_some(ROOT_PERIOD),
        }
    }

    fn receive(&self, wait: Option<Duration>) -> Result<Option<Message>, ()> {
        match wait {
            None => self.inbox.recv().map(Some).map_err(drop),
            Some(wait) => match self.inbox.recv_timeout(wait) {
                Ok(message) => Ok(Some(message)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Err(()),
            },
        }
    }

    /// Looks at everything, as it is time to.
    fn tick(&mut self) {
        if !self.tree.root.exists() {
            return;
        }
        if self.mode == Mode::Native {
            // The root has come back, as another folder.
            self.tree.forget_folders();
            self.native = None;
            self.open_native();
        }
        let mut found = self.tree.scan(|_| true);
        self.watch_anew(&mut found);
        if !found.changes.is_empty() {
            self.gate.raise(|| ());
            self.pending.since = Some(Instant::now());
            // They are told with what else belongs to the same change.
            self.wait_for_quiet();
            self.settle_with(found.changes);
        }
    }

    /// Takes a message in; the gate closes at what may be a change.
    fn hear(&mut self, message: Message) {
        match message {
            Message::Loaded(files) => {
                let folders = self.tree.note_loaded(&files);
                self.watch(&folders);
            }
            // Whoever suspects has closed the gate.
            Message::Suspects(paths) => {
                self.pending.since.get_or_insert_with(Instant::now);
                self.pending.paths.extend(paths);
            }
            Message::Event(Err(error)) => {
                if native::is_limit(&error) {
                    self.give_up_events(&error);
                }
                self.pend_everything();
            }
            Message::Event(Ok(event)) => {
                if event.need_rescan() {
                    return self.pend_everything();
                }
                if matches!(event.kind, notify::EventKind::Access(_)) {
                    return;
                }
                let is_other = matches!(
                    event.kind,
                    notify::EventKind::Remove(_)
                        | notify::EventKind::Modify(notify::event::ModifyKind::Name(_))
                );
                for path in event.paths {
                    // Its watch has gone with it, whatever is there by now.
                    let was_folder = is_other && self.tree.forget_folder(&path);
                    self.hear_of(path, was_folder);
                }
            }
        }
    }

    fn hear_of(&mut self, path: PathBuf, was_folder: bool) {
        if path
            .file_name()
            .is_some_and(|name| name == ".gitignore" || name == ".ignore")
        {
            return self.pend_everything();
        }
        if !was_folder && !self.tree.may_matter(&path) {
            return;
        }
        self.close_gate();
        if !self.pending.paths.contains(&path) {
            self.pending.paths.push(path);
        }
    }

    fn pend_everything(&mut self) {
        self.close_gate();
        self.pending.is_everything = true;
    }

    fn close_gate(&mut self) {
        if self.pending.since.is_none() {
            self.pending.since = Some(Instant::now());
            self.gate.raise(|| ());
        }
    }

    /// Hears what comes until nothing more does, or for as long as is good.
    fn wait_for_quiet(&mut self) {
        let since = self.pending.since.unwrap_or_else(Instant::now);
        loop {
            let is_storm = self.pending.is_everything || self.pending.paths.len() >= STORM_FILES;
            let quiet = if is_storm { STORM_QUIET } else { QUIET };
            let is_in_git = self.tree.root.join(".git/index.lock").exists();
            let most = if is_in_git { MAX_GIT_WAIT } else { MAX_WAIT };
            let left = most.saturating_sub(since.elapsed());
            if left.is_zero() {
                return;
            }
            match self.inbox.recv_timeout(quiet.min(left)) {
                Ok(message) => self.hear(message),
                Err(RecvTimeoutError::Timeout) if is_in_git => {}
                Err(_) => return,
            }
        }
    }

    /// Looks at what is pending, and reports it.
    fn settle(&mut self) {
        self.settle_with(Vec::new());
    }

    fn settle_with(&mut self, mut changes: Vec<Change>) {
        // A doubt whose suspects are not in hand must not be answered.
        let mut last = Vec::new();
        let doubt = self.gate.raised(|| last.extend(self.inbox.try_iter()));
        for message in last {
            self.hear(message);
        }
        let pending = std::mem::take(&mut self.pending);
        let mut found = if pending.is_everything {
            let mut found = self.tree.scan(|_| true);
            let looked = self.tree.look(&pending.paths);
            found.changes.extend(looked.changes);
            found.folders.extend(looked.folders);
            found.of_loaded.extend(looked.of_loaded);
            found
        } else {
            self.tree.look(&pending.paths)
        };
        self.watch_anew(&mut found);
        for change in found.changes {
            if !changes.contains(&change) {
                changes.push(change);
            }
        }
        let since = pending.since.unwrap_or_else(Instant::now);
        self.report(changes, doubt, since);
    }

    fn report(&self, changes: Vec<Change>, doubt: u64, since: Instant) {
        (self.tell)(Word::Batch(Batch {
            changes,
            doubt,
            since,
        }));
    }
}

/// A path as the user would name it: from the folder they are in.
pub(crate) fn shown(path: &Path, root: &Path) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .display()
        .to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_heard_while_it_begins_is_dealt_with() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let root = folder.path().to_owned();
        fs::write(root.join("app.py"), "1").expect("it is written");
        let rules = Rules::new(&root, Vec::new(), &[], &[], Language::Python).expect("no patterns");
        let (messages, inbox) = channel();
        let (words, told) = channel();
        let gate = Arc::new(Gate::new());
        let period = Duration::from_secs(1);
        let suspects = Message::Suspects(vec![root.join("app.py")]);
        gate.raise(|| messages.send(suspects).expect("it is heard"));
        let mut watcher = Watcher {
            tree: Tree::new(root, Arc::new(rules), Sight::default()),
            native: None,
            mode: Mode::Polling(period),
            may_poll: false,
            period,
            gate: Arc::clone(&gate),
            inbox,
            messages,
            tell: move |word| drop(words.send(word)),
            pending: Pending::default(),
        };
        watcher.begin(UNIX_EPOCH);
        let batches: Vec<Batch> = told
            .try_iter()
            .filter_map(|word| match word {
                Word::Batch(batch) => Some(batch),
                _ => None,
            })
            .collect();
        assert_eq!(batches.len(), 1);
        assert_eq!(batches[0].changes.len(), 1);
        assert_eq!(batches[0].doubt, gate.raised(|| ()), "none is left");
        assert!(watcher.inbox.try_recv().is_err(), "it is in hand");
        assert!(watcher.pending.since.is_none());
    }

    #[test]
    fn batches_that_were_put_off_are_one() {
        let now = Instant::now();
        let batch = |name: &str, kind, doubt| Batch {
            changes: vec![Change {
                path: PathBuf::from(name),
                kind,
            }],
            doubt,
            since: now,
        };
        let pages = batch("a.html", Kind::Page, 1).with(batch("a.html", Kind::Page, 2));
        assert!(!pages.is_of_code());
        assert_eq!((pages.changes.len(), pages.doubt), (1, 2));
        let both = batch("a.py", Kind::Code, 4).with(batch("b.css", Kind::Style, 3));
        assert!(both.is_of_code());
        assert_eq!((both.changes.len(), both.doubt), (2, 4));
    }
}
