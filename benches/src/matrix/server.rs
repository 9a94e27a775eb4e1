//! A server under measurement: started pinned, watched, and stopped for certain.
//!
//! Each server is its own process group, which is killed when the value is dropped, so no failed
//! round leaves a process behind.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::exchange::get_once;
use super::plan::StopSignal;
use super::programs::{Config, not_started, without_folders};
use crate::machine::pin_current_thread;

/// Longest wait for the first answer of a server.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// Longest wait for a server to end after its stop signal; no request is in flight then.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between attempts to connect; far below any start-up time.
const CONNECT_PAUSE: Duration = Duration::from_micros(50);

/// Environment variables that would configure our server besides its command line.
pub(super) const SETTINGS: &[u8] = b"JUSTAPI_";

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    started: Instant,
    address: SocketAddr,
    stderr: PathBuf,
}

impl Server {
    /// Starts `command` in `folder` with `{port}` and `{dir}` replaced, pinned to `cpu`; its
    /// configuration is written first. What it says on standard error goes to `stderr`.
    pub(super) fn start(
        command: &[String],
        config: Option<&Config>,
        (folder, stderr): (&Path, PathBuf),
        cpu: Option<usize>,
    ) -> Result<Self, String> {
        let address = free_address().map_err(|error| format!("no free port: {error}"))?;
        if let Some(config) = config {
            let written = config.write(folder, address.port());
            written.map_err(|error| format!("cannot write its configuration: {error}"))?;
        }
        let folder_text = folder.to_string_lossy();
        let arguments: Vec<String> = command
            .iter()
            .map(|part| {
                part.replace("{port}", &address.port().to_string())
                    .replace("{dir}", &folder_text)
            })
            .collect();
        let (program, arguments) = arguments.split_first().ok_or("the command is empty")?;
        let log = File::create(&stderr).map_err(|error| format!("no log file: {error}"))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .current_dir(folder)
            .process_group(0);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(SETTINGS) {
                command.env_remove(name);
            }
        }
        // A child inherits the affinity of the thread that starts it, so a thread of its own.
        let spawned = thread::scope(|scope| {
            let body = || {
                let pinned = pin_current_thread(cpu);
                let started = Instant::now();
                (pinned, started, command.spawn())
            };
            scope.spawn(body).join()
        });
        let (pinned, started, child) = spawned.map_err(|_| "the starting thread panicked")?;
        let child = child.map_err(|error| not_started(program, &error))?;
        let server = Self {
            child,
            started,
            address,
            stderr,
        };
        if !pinned {
            return Err(String::from("cannot pin the server to its CPU"));
        }
        Ok(server)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the port accepts a connection.
    pub(super) fn wait_until_it_accepts(&mut self) -> Result<(), String> {
        let address = self.address;
        self.wait(|| TcpStream::connect(address).map(drop))
    }

    /// Waits for a 200 on `path` and returns the time since the start.
    pub(super) fn wait_until_it_answers(&mut self, path: &str) -> Result<Duration, String> {
        let address = self.address;
        self.wait(|| get_once(address, path))?;
        Ok(self.started.elapsed())
    }

    fn wait(&mut self, mut attempt: impl FnMut() -> io::Result<()>) -> Result<(), String> {
        loop {
            let Err(error) = attempt() else { return Ok(()) };
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!(
                    "it ended early with {status}{}",
                    self.stderr_tail()
                ));
            }
            if self.started.elapsed() > START_TIMEOUT {
                return Err(format!(
                    "no good answer in time: {error}{}",
                    self.stderr_tail()
                ));
            }
            thread::sleep(CONNECT_PAUSE);
        }
    }

    /// Sends the signal and waits; the end must be clean.
    pub(super) fn stop(mut self, stop_signal: StopSignal) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!(
                "it ended under load with {status}{}",
                self.stderr_tail()
            ));
        }
        let signal = match stop_signal {
            StopSignal::Terminate => Signal::TERM,
            StopSignal::Interrupt => Signal::INT,
        };
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| format!("cannot signal it: {error}"))?;
        let asked = Instant::now();
        while asked.elapsed() < STOP_TIMEOUT {
            match self.child.try_wait() {
                Ok(Some(status)) if is_clean(status, signal) => return Ok(()),
                Ok(Some(status)) => {
                    return Err(format!("it stopped with {status}{}", self.stderr_tail()));
                }
                Ok(None) => thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(format!("cannot wait for it: {error}")),
            }
        }
        Err(format!(
            "still running {} s after {}",
            STOP_TIMEOUT.as_secs(),
            stop_signal.name()
        ))
    }

    fn stderr_tail(&self) -> String {
        const MAX_CHARACTERS: usize = 300;
        let bytes = std::fs::read(&self.stderr).unwrap_or_default();
        let text = without_folders(&String::from_utf8_lossy(&bytes));
        let text = text.trim();
        if text.is_empty() {
            return String::new();
        }
        let skip = text.chars().count().saturating_sub(MAX_CHARACTERS);
        format!(": {}", text.chars().skip(skip).collect::<String>())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails when all of the group has ended, which is what is wanted.
        kill_process_group(Pid::from_child(&self.child), Signal::KILL).ok();
        self.child.wait().ok();
    }
}

/// Zero, or ended by the very signal that was sent: a peer without a handler.
fn is_clean(status: ExitStatus, sent: Signal) -> bool {
    status.success() || status.signal() == Some(sent.as_raw())
}

/// A port that was free a moment ago.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}
