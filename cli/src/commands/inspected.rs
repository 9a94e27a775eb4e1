//! Asks a Python application about itself, in a process that imports it and serves nothing.
//!
//! Guarantee: the answer comes over a pipe of its own, so that what the application prints is never
//! part of a result; no process of it outlives the question.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::{Value, json};

use crate::commands::OWNER;
use crate::commands::serve::{Interpreter, find_python};
use crate::config::{Config, show_time};
use crate::error::{CliError, Code};
use crate::reaper::Reaper;

/// Variable that holds the question.
const VARIABLE: &str = "JUSTAPI_INSPECT";
/// Longest answer that is read: the document of an application with thousands of routes is shorter.
const MAX_ANSWER_BYTES: u64 = 256 * 1024 * 1024;
/// How often a wait looks at the process.
const TICK: Duration = Duration::from_millis(20);
/// Time for an answer that is under way when the process has ended, and for the process to end after it.
const LAST: Duration = Duration::from_secs(2);

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    Routes,
    OpenApi,
    Check,
}

impl Question {
    const fn name(self) -> &'static str {
        match self {
            Self::Routes => "routes",
            Self::OpenApi => "openapi",
            Self::Check => "check",
        }
    }
}

/// What an application has answered, and who was asked.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) interpreter: Interpreter,
    pub(super) value: Value,
}

/// Imports `app` and asks `question`; `server` has the settings of the server for a check.
///
/// # Errors
/// [`Code::Interpreter`]; [`Code::Application`] with the application's own traceback;
/// [`Code::ApplicationOpaque`]; [`Code::DocumentFailed`].
pub(super) fn ask(
    config: &Config,
    app: &str,
    question: Question,
    server: Option<Value>,
) -> Result<Answer, CliError> {
    let interpreter = find_python(config.value("python.interpreter").text())?;
    let patience = config
        .value("python.start_timeout")
        .time()
        .unwrap_or_default();
    let given = json!({
        "app": app,
        "app_dir": config.value("python.app_dir").text(),
        "interface": config.value("python.interface").text(),
        "question": question.name(),
        "parent": std::process::id(),
        "config": server.unwrap_or_else(|| json!({})),
    });
    // What the import has started ends with this command, too.
    let _reaper = Reaper::begin();
    let outcome = Process::start(&interpreter, given)
        .map_err(|error| {
            CliError::new(
                Code::Interpreter,
                format!("{} cannot be started", interpreter.path.display()),
            )
            .with_cause(&error)
        })?
        .answer(patience);
    let value = match outcome {
        Ok(value) => value,
        Err(Silence::Late) => {
            return Err(CliError::new(
                Code::Application,
                format!("{app} was not imported within {}", show_time(patience)),
            )
            .with_detail("python", shown(&interpreter))
            .with_hint("give it longer with `--start-timeout`"));
        }
        Err(Silence::Ended(how)) => {
            return Err(CliError::new(
                Code::Application,
                format!("the process that imported {app} ended before it answered: {how}"),
            )
            .with_detail("python", shown(&interpreter))
            .with_hint("something in the application ends its process as it is imported"));
        }
    };
    if value["failed"].is_string() {
        return Err(failed(&value, &interpreter));
    }
    Ok(Answer { interpreter, value })
}

/// An interpreter as it is shown beside a result.
pub(super) fn shown(interpreter: &Interpreter) -> String {
    format!("{} ({})", interpreter.path.display(), interpreter.version)
}

/// What the application said of why there is no answer, as our own error.
fn failed(answer: &Value, interpreter: &Interpreter) -> CliError {
    let text = |key: &str| answer[key].as_str().unwrap_or_default();
    let code = match text("kind") {
        "opaque" => Code::ApplicationOpaque,
        "document" => Code::DocumentFailed,
        _ => Code::Application,
    };
    let mut error = CliError::new(code, text("failed"));
    if !text("traceback").is_empty() {
        error = error.with_detail("traceback", format!("\n{}", text("traceback").trim_end()));
    }
    error = error.with_detail("python", shown(interpreter));
    match text("hint") {
        "" => error,
        hint => error.with_hint(hint),
    }
}

/// Why there is no answer.
#[derive(Debug)]
enum Silence {
    Late,
    Ended(String),
}

/// The process that imports the application; killed when dropped.
struct Process {
    child: Child,
    answer: Receiver<Option<Value>>,
}

impl Process {
    /// Must be called on the main thread: the kernel tells the child when the thread ends.
    fn start(interpreter: &Interpreter, mut given: Value) -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfd(&writer, FdFlags::empty())?;
        given["descriptor"] = json!(writer.as_raw_fd());
        let child = Command::new(&interpreter.path)
            .args(["-m", "justapi._inspect"])
            .env(VARIABLE, given.to_string())
            .env_remove(OWNER)
            .stdin(Stdio::null())
            // Standard output is for the result alone.
            .stdout(Stdio::from(io::stderr()))
            .spawn()?;
        drop(writer);
        let (sender, answer) = channel();
        let process = Self { child, answer };
        thread::Builder::new()
            .name("answer".to_owned())
            .spawn(move || {
                let mut line = Vec::new();
                let mut reader = BufReader::new(File::from(reader).take(MAX_ANSWER_BYTES));
                let read = reader.read_until(b'\n', &mut line);
                let answer = read.ok().and_then(|_| serde_json::from_slice(&line).ok());
                // Nobody waits any more when it was late.
                drop(sender.send(answer));
            })?;
        Ok(process)
    }

    fn answer(mut self, patience: Duration) -> Result<Value, Silence> {
        let begin = Instant::now();
        let mut ended: Option<(Instant, ExitStatus)> = None;
        let mut is_closed = false;
        loop {
            let received = if is_closed {
                thread::sleep(TICK);
                Err(RecvTimeoutError::Timeout)
            } else {
                self.answer.recv_timeout(TICK)
            };
            match received {
                Ok(Some(value)) => {
                    // It ends by itself, having written out what the application has printed.
                    let answered = Instant::now();
                    while answered.elapsed() < LAST && matches!(self.child.try_wait(), Ok(None)) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    return Ok(value);
                }
                // Most often it is ending, but it may have closed what is not its own and go on.
                Ok(None) | Err(RecvTimeoutError::Disconnected) => is_closed = true,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some((at, status)) = ended {
                // A process that it has forked may hold the pipe open.
                if is_closed || at.elapsed() > LAST {
                    return Err(Silence::Ended(how(status)));
                }
            } else if let Ok(Some(status)) = self.child.try_wait() {
                ended = Some((Instant::now(), status));
            } else if begin.elapsed() > patience {
                return Err(Silence::Late);
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended already unless it was late.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => {
            let name = signal_hook::low_level::signal_name(signal);
            format!("killed by {}", name.unwrap_or("a signal"))
        }
        (None, Some(code)) => format!("exit status {code}"),
        (None, None) => "no status".to_owned(),
    }
}
