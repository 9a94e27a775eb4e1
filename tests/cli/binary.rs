//! Runs the built `justapi`, once or as a server, in a folder of its own and
//! with an environment that holds nothing but `PATH`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use tempfile::TempDir;

/// The built binary.
pub(crate) const JUSTAPI: &str = env!("CARGO_BIN_EXE_justapi");

/// A folder to run in, with what it takes to run there.
pub(crate) struct Folder {
    folder: TempDir,
    variables: Vec<(String, String)>,
}

impl Folder {
    /// An empty folder that no configuration above it can reach.
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join(".git")).unwrap();
        Self {
            folder,
            variables: Vec::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file.
    pub(crate) fn with(self, name: &str, content: &str) -> Self {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Prepares a program of any name.
    pub(crate) fn program(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.path())
            .stdin(Stdio::null())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs `justapi` to its end; `arguments` are split at spaces.
    pub(crate) fn run(&self, arguments: &str) -> Run {
        let arguments: Vec<_> = arguments.split_whitespace().collect();
        Run::of(&self.program(JUSTAPI, &arguments).output().unwrap())
    }

    /// Starts `justapi serve --json` and waits until it listens.
    pub(crate) fn serve(&self, arguments: &str) -> Served {
        let arguments: Vec<_> = ["serve", "--json"]
            .into_iter()
            .chain(arguments.split_whitespace())
            .collect();
        Served::start(self.program(JUSTAPI, &arguments))
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    /// Panics with everything that was printed unless the status is this one.
    #[track_caller]
    pub(crate) fn expect(self, status: i32) -> Self {
        assert_eq!(self.status, status, "{self:#?}");
        self
    }

    /// Standard output as one JSON document.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// A running server; killed when the test forgets to stop it.
pub(crate) struct Served {
    child: Child,
    events: BufReader<ChildStdout>,
    pub(crate) listening: Value,
}

impl Served {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let events = BufReader::new(child.stdout.take().unwrap());
        let mut served = Self {
            child,
            events,
            listening: Value::Null,
        };
        while served.listening["event"] != "listening" {
            let mut line = String::new();
            served.events.read_line(&mut line).unwrap();
            let has_ended = line.is_empty();
            assert!(!has_ended, "never listened: {}", served.rest_of_stderr());
            served.listening = serde_json::from_str(&line).unwrap();
        }
        served
    }

    /// Where it listens first.
    pub(crate) fn url(&self) -> &str {
        self.listening["url"].as_str().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A connection to its first TCP address.
    pub(crate) fn connect(&self) -> TcpStream {
        let (_, address) = self.url().split_once("://").unwrap();
        TcpStream::connect(address).unwrap()
    }

    /// Sends a request without a body; status line, headers and body.
    pub(crate) fn get(&self, path: &str) -> String {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        ))
    }

    /// Sends bytes and reads the answer to the end of the connection.
    pub(crate) fn send(&self, request: &str) -> String {
        exchange(self.connect(), request)
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn stop(self, signal: Signal) -> Run {
        self.signal(signal);
        self.wait()
    }

    /// Waits for the end; `stdout` holds the events after `listening`.
    pub(crate) fn wait(mut self) -> Run {
        let mut stdout = String::new();
        self.events.read_to_string(&mut stdout).unwrap();
        let stderr = self.rest_of_stderr();
        Run {
            status: self.child.wait().unwrap().code().unwrap_or(-1),
            stdout,
            stderr,
        }
    }

    fn rest_of_stderr(&mut self) -> String {
        let mut stderr = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut stderr).unwrap();
        }
        stderr
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A terminal: the side of the person, and what opens the side of commands.
pub(crate) fn terminal() -> (fs::File, impl Fn() -> fs::File) {
    let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keys).unwrap();
    unlockpt(&keys).unwrap();
    let name = ptsname(&keys, Vec::new()).unwrap();
    let side = move || {
        let mut options = fs::OpenOptions::new();
        let opened = options.read(true).write(true).open(name.to_str().unwrap());
        opened.unwrap()
    };
    (fs::File::from(keys), side)
}

/// Runs a command to its end with standard error on a terminal; what it showed there, and the rest.
pub(crate) fn on_a_terminal(mut command: Command) -> (String, Run) {
    let (mut keys, side) = terminal();
    let child = command
        .env("TERM", "xterm")
        .stdout(Stdio::piped())
        .stderr(side())
        .spawn()
        .unwrap();
    // It has the other side of the terminal open, too.
    drop(command);
    let mut shown = Vec::new();
    // The end of the last process on a terminal is an error, not an end of file.
    drop(keys.read_to_end(&mut shown));
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&shown).into_owned();
    (shown, Run::of(&output))
}

/// Sends bytes over any stream and reads to its end.
pub(crate) fn exchange(mut stream: impl std::io::Read + std::io::Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

/// The body of an answer.
pub(crate) fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

/// A self-signed certificate for localhost and its key, written to `folder`.
pub(crate) fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (cert, key)
}
