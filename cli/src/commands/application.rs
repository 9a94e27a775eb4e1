//! The server that `bench` or `profile` starts for itself: `justapi serve`, as a process of its own.
//!
//! Guarantee: nothing of it outlives the command. It is stopped and awaited on every way out; what
//! its processes left behind is ended, too (`cli/src/reaper.rs`). Where this process is killed, the
//! kernel tells the server (`cli/src/commands/serve/owner.rs`).

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::commands::OWNER;
use crate::error::{CliError, Code};
use crate::reaper::Reaper;
use crate::ui::Ui;

/// How often a wait looks at Ctrl-C and at the server.
const TICK: Duration = Duration::from_millis(20);
/// What the server is told to wait for requests at its stop: only ours are left then.
const GRACE: &str = "1s";
/// When a server that was asked to stop is ended by force: its grace, its margin for workers, and some.
const MAX_STOP: Duration = Duration::from_secs(5);

/// What is to be measured: a running server or an application to start, as the command line has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured<'a> {
    /// URL or application; `justapi serve` serves something without one, too.
    pub(super) target: Option<&'a str>,
    /// Further arguments for `justapi serve`.
    pub(super) serve: &'a [String],
}

impl Measured<'_> {
    /// The target, where it is a URL; an application is none.
    ///
    /// # Errors
    /// [`Code::BenchInput`] for what was probably meant as a URL, and for arguments that only one
    /// of the two takes.
    pub(super) fn url(self) -> Result<Option<String>, CliError> {
        let Some(target) = self.target else {
            return Ok(None);
        };
        if target.contains("://") || target.starts_with("unix:") {
            if !self.serve.is_empty() {
                return Err(CliError::new(
                    Code::BenchInput,
                    "arguments after `--` are for an application that is started, and a URL is none",
                )
                .with_hint("leave them away, or name an application such as `main.py`"));
            }
            return Ok(Some(target.to_owned()));
        }
        let (host, rest) = target.rsplit_once(':').unwrap_or((target, ""));
        let port = rest.split('/').next().unwrap_or_default();
        let is_address = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        if is_address {
            let host = if host.is_empty() { "127.0.0.1" } else { host };
            return Err(CliError::new(
                Code::BenchInput,
                format!("{target} is neither a URL nor an application"),
            )
            .with_hint(format!("for a running server write `http://{host}:{rest}`")));
        }
        Ok(None)
    }
}

/// A server that was started, and serves.
#[derive(Debug)]
pub(super) struct Started {
    server: Server,
    /// As it was named, or what is served without a name.
    pub(super) name: String,
    /// Where it serves.
    pub(super) url: String,
    /// Where its metrics are.
    pub(super) metrics: Option<String>,
    /// Goes after the server.
    _reaper: Reaper,
}

impl Started {
    /// Starts a server and waits until it serves; its `url` is empty when Ctrl-C came first.
    ///
    /// # Errors
    /// [`Code::ProfiledServer`] with what the server said.
    pub(super) fn start(
        ui: &Ui,
        measured: Measured<'_>,
        config: Option<&Path>,
        stop: &AtomicBool,
    ) -> Result<Self, CliError> {
        let reaper = Reaper::begin();
        let failed = |error: &io::Error| {
            CliError::new(Code::ProfiledServer, "the server cannot be started").with_cause(error)
        };
        let program = env::current_exe().map_err(|error| failed(&error))?;
        let mut command = Command::new(program);
        command.args(words(measured, config));
        let (events, inbox) = channel();
        let server = Server::spawn(&mut command, ui, events).map_err(|error| failed(&error))?;
        let mut started = Self {
            server,
            name: String::new(),
            url: String::new(),
            metrics: None,
            _reaper: reaper,
        };
        if let Some(listening) = started.await_it(&inbox, stop)? {
            let text = |key: &str| listening[key].as_str().map(str::to_owned);
            let named = measured.target.map(str::to_owned);
            let served = named.or_else(|| text("application"));
            started.name = served.unwrap_or_else(|| "justapi serve".to_owned());
            started.url = text("url").unwrap_or_default();
            started.metrics = text("metrics");
            if started.url.is_empty() {
                return Err(CliError::new(
                    Code::ProfiledServer,
                    "the server does not say where it serves",
                ));
            }
        }
        Ok(started)
    }

    /// Process id of the server, whose children are its workers.
    pub(super) fn pid(&self) -> u32 {
        self.server.child.id()
    }

    /// How it has ended, if it has.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.server.child.try_wait().ok()??;
        Some(how(status))
    }

    /// What it says when it serves; `None` when Ctrl-C came first.
    fn await_it(
        &mut self,
        inbox: &Receiver<Value>,
        stop: &AtomicBool,
    ) -> Result<Option<Value>, CliError> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            match inbox.recv_timeout(TICK) {
                Ok(said) if said["event"] == "listening" => return Ok(Some(said)),
                Ok(said) if said["error"].is_object() => return Err(not_started(&said["error"])),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.server.child.wait().ok();
                    let how = status.map_or_else(|| "no status".to_owned(), how);
                    return Err(CliError::new(
                        Code::ProfiledServer,
                        format!("the server ended with {how} before it served"),
                    )
                    .with_hint("start it alone with `justapi serve` to see what it says"));
                }
            }
        }
    }
}

/// The command line of the server; what is given after `--` stands in the place of ours.
fn words(measured: Measured<'_>, config: Option<&Path>) -> Vec<String> {
    let given = |flag: &str| {
        let begin = format!("{flag}=");
        let mut words = measured.serve.iter();
        words.any(|word| word == flag || word.starts_with(&begin))
    };
    let mut words = vec!["serve".to_owned(), "--json".to_owned(), "-q".to_owned()];
    words.extend(measured.target.map(str::to_owned));
    if let Some(config) = config {
        words.push("--config".to_owned());
        words.push(config.to_string_lossy().into_owned());
    }
    let has_place = ["--addr", "--host", "--port", "--uds", "--fd"]
        .into_iter()
        .any(given);
    let mut ours = Vec::new();
    if !has_place {
        ours.push(("--addr", "127.0.0.1:0"));
    }
    // An address of its own, so that no route is in the way and our looks are no requests.
    ours.push(("--metrics", "127.0.0.1:0"));
    ours.push(("--graceful", GRACE));
    // Each worker of an application counts for itself.
    ours.push(("--workers", "1"));
    for (flag, value) in ours {
        if !given(flag) {
            words.extend([flag.to_owned(), value.to_owned()]);
        }
    }
    words.extend(measured.serve.iter().cloned());
    words
}

/// The process of a server; ended when dropped.
#[derive(Debug)]
struct Server {
    child: Child,
}

impl Server {
    /// Must be called on the main thread: the kernel tells the child when the thread ends.
    fn spawn(command: &mut Command, ui: &Ui, events: Sender<Value>) -> io::Result<Self> {
        let mut child = command
            .env(OWNER, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C in a terminal is for this process alone.
            .process_group(0)
            .spawn()?;
        let stdout = child.stdout.take();
        let server = Self { child };
        if let Some(stdout) = stdout {
            let ui = ui.clone();
            thread::Builder::new()
                .name("server-output".to_owned())
                .spawn(move || read(stdout, &ui, &events))?;
        }
        Ok(server)
    }

    fn stop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // One that has ended meanwhile needs none.
        kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
        let asked = Instant::now();
        while asked.elapsed() < MAX_STOP {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(TICK);
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Tells `events` what the server says, and passes on what the application prints.
fn read(stdout: ChildStdout, ui: &Ui, events: &Sender<Value>) {
    for line in BufReader::new(stdout).split(b'\n') {
        let Ok(line) = line else { return };
        let said: Option<Value> = serde_json::from_slice(&line).ok();
        match said.filter(|said| said["event"].is_string() || said["error"]["code"].is_string()) {
            // Nobody listens any more once it serves.
            Some(said) => drop(events.send(said)),
            None => ui.note(&format!("{}\n", String::from_utf8_lossy(&line))),
        }
    }
}

/// What the server said of why it does not serve, as our own error.
fn not_started(said: &Value) -> CliError {
    let text = |key: &str| said[key].as_str().unwrap_or_default();
    let mut error = CliError::new(
        Code::ProfiledServer,
        format!("the server does not start: {}", text("message")),
    )
    .with_detail("code", text("code"));
    for (key, value) in said["details"].as_object().into_iter().flatten() {
        let label = match key.as_str() {
            "cause" => "cause",
            "found_by" => "found by",
            "held_by" => "held by",
            "traceback" => "traceback",
            _ => "detail",
        };
        error = error.with_detail(label, value.as_str().unwrap_or_default());
    }
    match text("help") {
        "" => error,
        hint => error.with_hint(hint),
    }
}

fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("status {code}"),
        (None, None) => "no status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Command as CliCommand;
    use crate::command_list::parse;

    fn words_of(command: &str) -> String {
        let all = ["justapi", "profile"].into_iter().chain(command.split(' '));
        let CliCommand::Profile(arguments) = parse(all).unwrap().command else {
            unreachable!("the first argument is profile");
        };
        let measured = Measured {
            target: arguments.target.as_deref(),
            serve: &arguments.serve,
        };
        words(measured, None).join(" ")
    }

    #[test]
    fn what_is_given_stands_in_the_place_of_ours() {
        assert_eq!(
            words_of("-z 1"),
            "serve --json -q --addr 127.0.0.1:0 --metrics 127.0.0.1:0 --graceful 1s --workers 1"
        );
        assert_eq!(
            words_of("main.py"),
            "serve --json -q main.py --addr 127.0.0.1:0 --metrics 127.0.0.1:0 --graceful 1s \
             --workers 1"
        );
        assert_eq!(
            words_of("a:b -- --port 7 --workers=4 --metrics off --access-log text"),
            "serve --json -q a:b --graceful 1s --port 7 --workers=4 --metrics off --access-log text"
        );
    }
}
