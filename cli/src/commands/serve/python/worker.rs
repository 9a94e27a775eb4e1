//! One worker process: its start, what it says, and its end.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;
use std::{fs, io};

use justapi_core::SharedListener;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::{Value, json};

use super::interpreter::Interpreter;

/// Variable that tells a worker what to do.
const VARIABLE: &str = "JUSTAPI_WORKER";

/// What the supervisor hears.
#[derive(Debug)]
pub(super) enum Event {
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
pub(super) struct Started {
    pub(super) ready: bool,
    /// Why it does not serve.
    pub(super) failed: Option<String>,
    pub(super) traceback: Option<String>,
    /// It has served as many requests as it should.
    pub(super) recycle: bool,
}

/// A worker that runs.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) number: u64,
    pub(super) pid: Pid,
    pub(super) started: Instant,
    pub(super) phase: Phase,
    /// Whether it has ever answered requests.
    pub(super) has_served: bool,
    /// The worker that ends once this one serves.
    pub(super) replaces: Option<u64>,
    /// What it said when its start failed.
    pub(super) failure: Option<Started>,
}

/// Life of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Starting,
    Serving,
    Stopping,
}

impl Worker {
    /// Starts a worker on `sockets`; its life is told to `events`.
    pub(super) fn start(
        number: u64,
        interpreter: &Interpreter,
        settings: &Value,
        sockets: &[SharedListener],
        events: &Sender<Event>,
    ) -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfd(&writer, FdFlags::empty())?;
        for socket in sockets {
            fcntl_setfd(&socket.socket, FdFlags::empty())?;
        }
        let descriptors = sockets.iter().map(|one| one.socket.as_raw_fd());
        let descriptors: Vec<_> = descriptors.collect();
        let mut settings = settings.clone();
        settings["ready_fd"] = json!(writer.as_raw_fd());
        settings["fds"] = json!(descriptors);
        settings["supervisor"] = json!(std::process::id());
        settings["worker"] = json!(number);
        let child = Command::new(&interpreter.path)
            .args(["-m", "justapi._worker"])
            .env(VARIABLE, settings.to_string())
            .stdin(Stdio::null())
            // Ctrl-C in a terminal is for the supervisor alone.
            .process_group(0)
            .spawn()?;
        drop(writer);
        let pid = Pid::from_child(&child);
        watch(number, child, reader, events);
        Ok(Self {
            number,
            pid,
            started: Instant::now(),
            phase: Phase::Starting,
            has_served: false,
            replaces: None,
            failure: None,
        })
    }

    /// Asks the worker to drain and end.
    pub(super) fn stop(&mut self) {
        self.phase = Phase::Stopping;
        self.signal(Signal::TERM);
    }

    /// Sends a signal; one that has ended meanwhile needs none.
    pub(super) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap_or_default();
    }

    /// Memory that it has in use, in bytes; `None` once it has ended.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        let path = format!("/proc/{}/statm", self.pid.as_raw_nonzero());
        let text = fs::read_to_string(path).ok()?;
        let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }
}

/// Tells `events` what the worker says, then how it ended.
fn watch(number: u64, mut child: Child, reader: OwnedFd, events: &Sender<Event>) {
    let events = events.clone();
    // A supervisor without threads to spare hears nothing, and ends the worker.
    drop(
        thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || {
                for line in BufReader::new(File::from(reader)).lines() {
                    let Ok(line) = line else { break };
                    if let Ok(started) = serde_json::from_str(&line) {
                        drop(events.send(Event::Started(number, started)));
                    }
                }
                drop(events.send(Event::Ended(number, child.wait())));
            }),
    );
}

/// How a worker ended, in words.
pub(super) fn how(status: &io::Result<ExitStatus>) -> String {
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
