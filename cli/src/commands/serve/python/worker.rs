//! One worker process: its start, what it says, and its end.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;
use std::{fs, io};

use justapi_core::{MetricsMount, SharedListener};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::commands::OWNER;

/// Variable that tells a worker what to do.
pub(crate) const VARIABLE: &str = "JUSTAPI_WORKER";
/// What an interpreter is told to run.
pub(crate) const PYTHON_WORKER: &[&str] = &["-m", "justapi._worker"];
/// Longest line that a worker says: a traceback is much shorter.
const MAX_LINE_BYTES: usize = 1024 * 1024;

/// What the supervisor hears.
#[derive(Debug)]
pub(crate) enum Event {
    /// A signal to the supervisor.
    Signal(i32),
    /// What a worker said of its start.
    Started(u64, Started),
    /// A worker has ended.
    Ended(u64, io::Result<ExitStatus>),
}

/// A worker's line about its start.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Started {
    pub(crate) ready: bool,
    /// Why it does not serve.
    pub(crate) failed: Option<String>,
    pub(crate) traceback: Option<String>,
    /// What to do about it.
    pub(crate) hint: Option<String>,
    /// It has served as many requests as it should.
    pub(crate) recycle: bool,
    /// Whether its lane does not move on, when that has changed.
    pub(crate) stuck: Option<bool>,
    /// The route that the thread ran last that has crashed.
    pub(crate) ran: Option<String>,
    /// What it says to `justapi dev` alone.
    pub(crate) dev: Box<Loaded>,
}

/// What a worker of `justapi dev` has loaded.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Loaded {
    /// It has loaded what it was asked to, and waits to be told to go on.
    pub(crate) standby: bool,
    /// Why it must not be used: it has loaded what may change.
    pub(crate) spoilt: Option<String>,
    /// Files of the application, and others outside of the environment.
    pub(crate) files: Vec<PathBuf>,
    /// Modules that come from the environment.
    pub(crate) modules: Vec<String>,
    /// Folders of the environment that packages are installed in.
    pub(crate) environment: Vec<PathBuf>,
    /// Whether a debugger has the terminal, when that has changed.
    pub(crate) debugged: Option<bool>,
    /// Where its start is, while that takes long.
    pub(crate) at: Option<Whereabouts>,
    /// What its end waits for.
    pub(crate) stopping: Option<Whereabouts>,
    /// What came of a build.
    pub(crate) build: Option<Box<BuildWord>>,
}

/// What a worker says that builds what it is to run.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct BuildWord {
    /// What was built: it waits for the word to become that.
    pub(crate) built: Option<Built>,
    /// What the compiler has found wrong.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// What else was said of a build that has failed.
    pub(crate) said: String,
}

/// Where a worker of `justapi dev` is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Whereabouts {
    /// `import` and `startup` of a start; `requests`, `background tasks` and
    /// `lifespan` of an end.
    pub(crate) during: String,
    /// The line of the application that it is in, if it is in any.
    pub(crate) file: Option<PathBuf>,
    pub(crate) line: Option<usize>,
    /// The module that this line imports.
    pub(crate) module: Option<String>,
}

/// An executable, and what it is made of.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct Built {
    pub(crate) executable: PathBuf,
    /// Whether nothing had to be done for it.
    pub(crate) is_fresh: bool,
    pub(crate) files: Vec<PathBuf>,
}

/// An error that a compiler has found.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub(crate) struct Diagnostic {
    /// In one line.
    pub(crate) message: String,
    pub(crate) file: Option<PathBuf>,
    pub(crate) line: usize,
    /// As the compiler shows it in a terminal.
    pub(crate) rendered: String,
}

/// A worker that runs.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) number: u64,
    pub(crate) pid: Pid,
    pub(crate) started: Instant,
    pub(crate) phase: Phase,
    /// Whether it has ever answered requests.
    pub(crate) has_served: bool,
    /// Whether its lane does not move on.
    pub(crate) is_stuck: bool,
    /// Whether it is to be replaced whatever became of an attempt.
    pub(crate) is_worn: bool,
    /// The worker that ends once this one serves.
    pub(crate) replaces: Option<u64>,
    /// What it said when its start failed.
    pub(crate) failure: Option<Started>,
    /// When it said so.
    pub(crate) failed: Option<Instant>,
    /// The route that it crashed in, or just after.
    pub(crate) ran: Option<String>,
}

/// Life of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It loads nothing of the application before it is told to.
    Waiting,
    Starting,
    Serving,
    Stopping,
}

/// What a worker is started with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [&'a str],
    /// What it is told.
    pub(crate) settings: &'a Value,
    /// What it serves.
    pub(crate) sockets: &'a [SharedListener],
    /// Where its metrics are, if they have an address of their own.
    pub(crate) metrics: Option<&'a SharedListener>,
}

impl Worker {
    /// Starts a worker whose life is told to `events`; `prepare` has the last
    /// word about its process, but for what it is told.
    pub(crate) fn start<E: From<Event> + Send + 'static>(
        number: u64,
        start: Start<'_>,
        events: &Sender<E>,
        prepare: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        let Start {
            program,
            arguments,
            settings,
            sockets,
            metrics,
        } = start;
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfd(&writer, FdFlags::empty())?;
        for socket in sockets.iter().chain(metrics) {
            fcntl_setfd(&socket.socket, FdFlags::empty())?;
        }
        let descriptors = sockets.iter().map(|one| one.socket.as_raw_fd());
        let descriptors: Vec<_> = descriptors.collect();
        let mut settings = settings.clone();
        settings["ready_fd"] = json!(writer.as_raw_fd());
        settings["fds"] = json!(descriptors);
        if let Some(metrics) = metrics {
            let descriptor = metrics.socket.as_raw_fd();
            settings["metrics_fd"] = json!(descriptor);
            settings["server"]["metrics"] = json!(MetricsMount::Inherited(descriptor));
        }
        settings["supervisor"] = json!(std::process::id());
        settings["worker"] = json!(number);
        // First, so that a process is never left without somebody who waits for it.
        let watcher = watch(number, reader, events)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            // What owns the supervisor is nothing to programs that the application starts.
            .env_remove(OWNER)
            .stdin(Stdio::null())
            // Ctrl-C in a terminal is for the supervisor alone.
            .process_group(0);
        prepare(&mut command);
        // Whatever the user's own variables are: without this it is no worker.
        command.env(VARIABLE, settings.to_string());
        let child = command.spawn()?;
        drop(writer);
        let pid = Pid::from_child(&child);
        watcher
            .send(child)
            .expect("the watcher waits for the process");
        Ok(Self {
            number,
            pid,
            started: Instant::now(),
            phase: Phase::Starting,
            has_served: false,
            is_stuck: false,
            is_worn: false,
            replaces: None,
            failure: None,
            failed: None,
            ran: None,
        })
    }

    /// Asks the worker to drain and end; one that cannot hear it is ended.
    pub(crate) fn stop(&mut self) {
        self.phase = Phase::Stopping;
        self.signal(if self.is_stuck {
            Signal::KILL
        } else {
            Signal::TERM
        });
    }

    /// Has the worker show what its threads do.
    pub(crate) fn show_stacks(&self) {
        self.signal(Signal::QUIT);
    }

    /// Sends a signal; one that has ended meanwhile needs none.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap_or_default();
    }

    /// Memory that it has in use, in bytes; `None` once it has ended.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        let path = format!("/proc/{}/statm", self.pid.as_raw_nonzero());
        let text = fs::read_to_string(path).ok()?;
        let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }
}

/// Tells `events` what the process that it is sent says, then how it ended.
fn watch<E: From<Event> + Send + 'static>(
    number: u64,
    reader: OwnedFd,
    events: &Sender<E>,
) -> io::Result<SyncSender<Child>> {
    let events = events.clone();
    let (sender, receiver) = sync_channel::<Child>(1);
    thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(move || {
            // None when it could not be started.
            let Ok(mut child) = receiver.recv() else {
                return;
            };
            // What cannot be heard is no reason to leave the process alone.
            let heard = hear(&child, File::from(reader), |started| {
                drop(events.send(Event::Started(number, started).into()));
            });
            drop(heard);
            drop(events.send(Event::Ended(number, child.wait()).into()));
        })?;
    Ok(sender)
}

/// Tells what a worker says until it has ended.
///
/// Processes that the application has forked may keep the pipe for longer.
fn hear(child: &Child, mut reader: File, tell: impl Fn(Started)) -> io::Result<()> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok();
    ioctl_fionbio(&reader, true)?;
    let mut lines = Lines::default();
    loop {
        let mut waits = vec![PollFd::new(&reader, PollFlags::IN)];
        if let Some(process) = &process {
            waits.push(PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN));
        }
        match poll(&mut waits, None) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        let has_ended = waits.get(1).is_some_and(|one| !one.revents().is_empty());
        let is_closed = lines.read(&mut reader, &tell)?;
        if has_ended || is_closed {
            return Ok(());
        }
    }
}

/// Lines of a worker; what has come of the last is kept.
#[derive(Default)]
struct Lines {
    said: Vec<u8>,
}

impl Lines {
    /// Tells what there is to read, which is more than a pipe holds at most;
    /// returns whether it was the end.
    fn read(&mut self, reader: &mut impl io::Read, tell: impl Fn(Started)) -> io::Result<bool> {
        let mut piece = reader.take(MAX_LINE_BYTES as u64);
        let is_closed = match piece.read_to_end(&mut self.said) {
            Ok(_) => piece.limit() > 0,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => return Err(error),
        };
        if let Some(end) = self.said.iter().rposition(|byte| *byte == b'\n') {
            for line in self.said[..end].split(|byte| *byte == b'\n') {
                if let Ok(started) = serde_json::from_slice(line) {
                    tell(started);
                }
            }
            self.said.drain(..=end);
        }
        if self.said.len() > MAX_LINE_BYTES {
            self.said.clear();
        }
        Ok(is_closed)
    }
}

/// How a worker ended, in words.
pub(crate) fn how(status: &io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => format!("killed by {}", signal_name(signal)),
            (None, Some(code)) => format!("exit status {code}"),
            (None, None) => "ended".to_owned(),
        },
        Err(error) => error.to_string(),
    }
}

fn signal_name(signal: i32) -> String {
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => name.to_owned(),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_worker_that_never_ends_its_line_fills_no_memory() {
        let mut lines = Lines::default();
        let num_ready = Cell::new(0);
        let tell = |started: Started| num_ready.set(num_ready.get() + u32::from(started.ready));
        for _ in 0..5 {
            let is_closed = lines.read(&mut io::repeat(b'x'), tell);
            assert!(!is_closed.expect("it can be read"));
            assert!(lines.said.capacity() <= 4 * MAX_LINE_BYTES);
        }
        // Lines that follow are heard, in pieces, too.
        for (piece, expected) in [("\n{\"ready\":", 0), ("true}\n{\"ready\":true}\n{", 2)] {
            let is_closed = lines.read(&mut piece.as_bytes(), tell);
            assert!(is_closed.expect("it can be read"));
            assert_eq!(num_ready.get(), expected);
        }
    }
}
