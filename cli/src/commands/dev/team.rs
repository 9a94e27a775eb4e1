//! The workers of `justapi dev`: how they are started, told to go on, and ended.
//!
//! Guarantee: each worker listens on a socket of its own, so that nothing that
//! was meant for one meets another, and nobody but this program connects to it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use justapi_core::{Listen, Proxy, SharedListener};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::cargo::{self, Output, Package};
use super::front::Generation;
use super::supervisor::Event;
use crate::commands::serve::python::crew::Crew;
use crate::commands::serve::python::interpreter::Interpreter;
use crate::commands::serve::python::worker::{PYTHON_WORKER, Phase, Start, Whereabouts, Worker};

/// As good as for ever: a debugger may hold an answer for as long as it likes.
const NO_TIMEOUT: Duration = Duration::from_hours(24 * 365);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// More than there are descriptors for.
const MAX_CONNECTIONS: usize = 100_000;
const BACKLOG: u32 = 1024;
/// Longest folder that the name of a socket fits behind, of 108 bytes.
const MAX_FOLDER_BYTES: usize = 80;
/// Variable that tells which worker has started a process.
pub(super) const MARK: &str = "JUSTAPI_DEV_WORKER";

/// This program, also once another one has taken its place on the disk.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// What makes workers of an application.
#[derive(Debug)]
pub(super) enum Program {
    Python(Interpreter),
    /// It is built each time, by a worker that then waits for [`Team::go`].
    Rust(Package),
}

/// What every worker is started with.
#[derive(Debug)]
pub(super) struct Orders {
    pub(super) program: Program,
    pub(super) settings: Value,
    pub(super) metrics: Option<SharedListener>,
    /// Where they run: by its path, as it may be another folder by then.
    pub(super) folder: PathBuf,
    /// Variables that are not in this program's environment.
    pub(super) environment: Vec<(String, String)>,
    /// Whether standard output is for events alone.
    pub(super) has_json: bool,
    /// Whether what clients say of themselves in headers is passed on.
    pub(super) keeps_claims: bool,
    pub(super) is_tls: bool,
}

/// What is known of a worker beside its process.
#[derive(Debug)]
struct Member {
    generation: Arc<Generation>,
    /// What it waits for the word on.
    go: Option<File>,
    socket: PathBuf,
    /// What its end waits for, as it has said.
    stopping: Option<Whereabouts>,
    /// What it has said on standard error, where that is kept.
    output: Option<Output>,
}

/// The workers there are.
#[derive(Debug)]
pub(super) struct Team {
    pub(super) orders: Orders,
    pub(super) crew: Crew<Event>,
    members: BTreeMap<u64, Member>,
    folder: TempDir,
    num_sockets: u64,
    /// Whether anything was built, so that the rest is quick.
    has_built: bool,
}

impl Team {
    /// # Errors
    /// There is no place for sockets.
    pub(super) fn new(orders: Orders, events: Sender<Event>) -> io::Result<Self> {
        let builder = || {
            let mut builder = tempfile::Builder::new();
            builder.prefix("justapi-dev-");
            builder
        };
        let mut folder = builder().tempdir()?;
        if folder.path().as_os_str().as_bytes().len() > MAX_FOLDER_BYTES {
            folder = builder().tempdir_in("/tmp")?;
        }
        Ok(Self {
            orders,
            crew: Crew::new(events),
            members: BTreeMap::new(),
            folder,
            num_sockets: 0,
            has_built: false,
        })
    }

    /// Starts a worker that loads the application at once, or builds it.
    ///
    /// # Errors
    /// The system has no process to spare, or the interpreter is gone.
    pub(super) fn start(&mut self) -> io::Result<u64> {
        match &self.orders.program {
            Program::Python(_) => self.spawn(json!({}), None, None),
            Program::Rust(package) => {
                let (output, input) = Output::open()?;
                let told = json!({
                    "cargo": {
                        "cargo": package.cargo,
                        "manifest": package.manifest,
                        "bin": package.bin,
                        "is_shown": !self.has_built,
                        "has_color": package.has_color,
                    },
                    "errors_fd": input.descriptor(),
                });
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
                let go = (Some(reader), File::from(writer));
                let number = self.spawn(told, Some(go), Some(output))?;
                drop(input);
                self.has_built = true;
                if let Some(worker) = self.crew.get_mut(number) {
                    worker.phase = Phase::Waiting;
                }
                Ok(number)
            }
        }
    }

    /// Whether workers build what they are to run, and wait then.
    pub(super) const fn builds(&self) -> bool {
        matches!(self.orders.program, Program::Rust(_))
    }

    /// The socket of a worker.
    pub(super) fn socket(&self, number: u64) -> Option<PathBuf> {
        Some(self.members.get(&number)?.socket.clone())
    }

    /// Starts a worker that loads `modules`, and waits for [`Self::go`].
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(super) fn start_ahead(&mut self, modules: &[String]) -> io::Result<u64> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfd(&reader, FdFlags::empty())?;
        let told = json!({"modules": modules, "go_fd": reader.as_raw_fd()});
        let go = (None, File::from(writer));
        let number = self.spawn(told, Some(go), None)?;
        drop(reader);
        if let Some(worker) = self.crew.get_mut(number) {
            worker.phase = Phase::Waiting;
        }
        Ok(number)
    }

    /// Has a worker that waits load the application; whether it can.
    pub(super) fn go(&mut self, number: u64) -> bool {
        let go = self
            .members
            .get_mut(&number)
            .and_then(|member| member.go.take());
        let (Some(mut go), Some(worker)) = (go, self.crew.get_mut(number)) else {
            return false;
        };
        worker.phase = Phase::Starting;
        worker.started = Instant::now();
        go.write_all(b"\n").is_ok()
    }

    /// `go` is what the worker waits for: at its standard input, if that end is
    /// given, and where it is told to otherwise.
    fn spawn(
        &mut self,
        told: Value,
        go: Option<(Option<OwnedFd>, File)>,
        output: Option<Output>,
    ) -> io::Result<u64> {
        self.num_sockets += 1;
        let socket = self.folder.path().join(self.num_sockets.to_string());
        let listen = Listen::Unix {
            path: socket.clone(),
            mode: 0o600,
        };
        let sockets = SharedListener::bind(&listen, BACKLOG, false);
        let mut sockets = sockets.map_err(|error| io::Error::other(error.to_string()))?;
        for socket in &mut sockets {
            cargo::move_away(socket)?;
        }
        let forwarder = Proxy::unix(&socket, self.orders.keeps_claims)
            .timeouts(CONNECT_TIMEOUT, NO_TIMEOUT, NO_TIMEOUT)
            .tunnel_timeout(NO_TIMEOUT)
            .max_connections(MAX_CONNECTIONS)
            .tls(self.orders.is_tls)
            .forwarder()
            .map_err(|error| io::Error::other(error.to_string()))?;
        let mut settings = self.orders.settings.clone();
        settings["dev"] = told;
        let (program, arguments): (&Path, &[&str]) = match &self.orders.program {
            Program::Python(interpreter) => (&interpreter.path, PYTHON_WORKER),
            Program::Rust(_) => (Path::new(THIS_PROGRAM), &[cargo::ARGUMENT]),
        };
        let start = Start {
            program,
            arguments,
            settings: &settings,
            sockets: &sockets,
            metrics: self.orders.metrics.as_ref(),
        };
        let has_json = self.orders.has_json;
        let (environment, folder) = (&self.orders.environment, &self.orders.folder);
        let number = self.crew.next_number();
        let (stdin, go) = match go {
            Some((stdin, go)) => (stdin, Some(go)),
            None => (None, None),
        };
        let worker = self.crew.spawn(start, |command| {
            command.current_dir(folder).env("PYTHONUNBUFFERED", "1");
            command.envs(environment.iter().map(|(name, value)| (name, value)));
            command.env(MARK, mark(number));
            // For a debugger of the application's.
            command.stdin(stdin.map_or_else(Stdio::inherit, Stdio::from));
            if has_json && let Ok(errors) = io::stderr().as_fd().try_clone_to_owned() {
                command.stdout(Stdio::from(errors));
            }
        })?;
        debug_assert_eq!(worker.number, number, "nobody else starts any");
        let generation = Generation::new(forwarder);
        self.members.insert(
            number,
            Member {
                generation,
                go,
                socket,
                stopping: None,
                output,
            },
        );
        Ok(number)
    }

    pub(super) fn generation(&self, number: u64) -> Option<Arc<Generation>> {
        let member = self.members.get(&number)?;
        Some(Arc::clone(&member.generation))
    }

    /// Notes what a worker waits for at its end.
    pub(super) fn note_stopping(&mut self, number: u64, at: Whereabouts) {
        if let Some(member) = self.members.get_mut(&number) {
            member.stopping = Some(at);
        }
    }

    /// What a worker waits for at its end, if it has said so.
    pub(super) fn stopping(&self, number: u64) -> Option<&Whereabouts> {
        self.members.get(&number)?.stopping.as_ref()
    }

    /// Ends a worker at once, with all that it has started.
    pub(super) fn kill(&mut self, number: u64) {
        let is_group = self.builds();
        if let Some(worker) = self.crew.get_mut(number) {
            worker.phase = Phase::Stopping;
            worker.signal(Signal::KILL);
            if is_group {
                // The next build waits for the lock that cargo has.
                kill_process_group(worker.pid, Signal::KILL).unwrap_or_default();
            }
        }
    }

    /// Takes out a worker that has ended, and ends what it has left behind.
    ///
    /// Returns its standard error, too, where that is kept.
    pub(super) fn remove(&mut self, number: u64) -> (Option<Worker>, Option<Output>) {
        let mut output = None;
        if let Some(member) = self.members.remove(&number) {
            drop(fs::remove_file(member.socket));
            output = member.output;
        }
        let Some(worker) = self.crew.remove(number) else {
            return (None, output);
        };
        // Its process group may be empty, which is fine.
        kill_process_group(worker.pid, Signal::KILL).unwrap_or_default();
        self.end_orphans();
        (Some(worker), output)
    }

    /// Ends what workers that have gone had started in sessions of their own,
    /// and waits for what has ended: orphans come to this process.
    fn end_orphans(&self) {
        for child in children() {
            if (self.crew.workers.iter()).any(|worker| worker.pid == child) {
                continue;
            }
            let is_left = left_by(child)
                .is_some_and(|number| self.crew.workers.iter().all(|one| one.number != number));
            if is_left {
                kill_process(child, Signal::KILL).unwrap_or_default();
                // It may hang in the kernel. Without a thread it is found again.
                let waiting = thread::Builder::new().name("orphan".to_owned());
                drop(waiting.spawn(move || waitpid(Some(child), WaitOptions::empty())));
            } else {
                // What lives, and what is no business of a worker's, goes on.
                waitpid(Some(child), WaitOptions::NOHANG).ok();
            }
        }
    }
}

/// The processes whose parent this one is.
fn children() -> Vec<Pid> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let told = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let told: Vec<String> = told.collect();
    told.iter()
        .flat_map(|children| children.split_whitespace())
        .filter_map(|child| Pid::from_raw(child.parse().ok()?))
        .collect()
}

/// What tells the processes that a worker of this process has started.
fn mark(number: u64) -> String {
    format!("{}.{number}", std::process::id())
}

/// The worker that has started a process, if one of this process has.
fn left_by(child: Pid) -> Option<u64> {
    let path = format!("/proc/{}/environ", child.as_raw_nonzero());
    let environment = fs::read(path).ok()?;
    let begin = format!("{MARK}={}.", std::process::id());
    let mut variables = environment.split(|byte| *byte == 0);
    let number = variables.find_map(|one| one.strip_prefix(begin.as_bytes()))?;
    str::from_utf8(number).ok()?.parse().ok()
}
