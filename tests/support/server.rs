//! The built `justapi` binary as a child process that dies with its owner.

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::client::{Client, Response};
use super::{PATIENCE, eventually};

/// A running server.
pub(crate) struct Server {
    child: Child,
    log: Arc<Log>,
    address: Option<SocketAddr>,
}

/// Lines of standard output and error, as they come.
#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    grown: Condvar,
}

impl Server {
    /// Serves the demo routes on a free port of 127.0.0.1.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut command = serve();
        command.args(["--port", "0"]).args(flags);
        Self::announced(command)
    }

    /// Runs a command that will say where it serves.
    pub(crate) fn announced(command: Command) -> Self {
        let mut server = Self::spawn(command);
        let line = server.wait_for_line("http");
        server.address = announced_address(&line);
        assert!(server.address.is_some(), "no address in {line:?}");
        server
    }

    /// Runs a command, and waits for nothing.
    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the built binary starts");
        let log = Arc::new(Log::default());
        log.follow(child.stdout.take().expect("stdout is piped"));
        log.follow(child.stderr.take().expect("stderr is piped"));
        Self {
            child,
            log,
            address: None,
        }
    }

    /// Where it serves.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address.expect("the server announced an address")
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// `GET path` on a connection of its own.
    pub(crate) fn get(&self, path: &str) -> Response {
        self.connect().get(path)
    }

    /// Fails unless a new connection answers within `limit`.
    pub(crate) fn answers_within(&self, limit: Duration) -> Result<(), String> {
        let start = Instant::now();
        let response = Client::try_connect(self.address()).and_then(|mut client| {
            client.set_patience(limit);
            client.try_send(super::client::get("/hello"))?;
            client
                .read()
                .map_err(|error| std::io::Error::other(error.to_string()))
        });
        match response {
            Ok(response) if response.status == 200 && start.elapsed() <= limit => Ok(()),
            Ok(response) => Err(format!("{} after {:?}", response.status, start.elapsed())),
            Err(error) => Err(format!("{error} after {:?}", start.elapsed())),
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the child has not been reaped");
    }

    /// Waits for the process to end by itself.
    pub(crate) fn exit(&mut self, limit: Duration) -> ExitStatus {
        let child = &mut self.child;
        eventually(limit, "process exit", || {
            child.try_wait().expect("own child")
        })
    }

    /// Whether it is still there.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("own child").is_none()
    }

    /// Everything it has printed so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.log
            .lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits for a line that contains `needle`.
    pub(crate) fn wait_for_line(&self, needle: &str) -> String {
        let start = Instant::now();
        let mut lines = self
            .log
            .lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(line) = lines.iter().find(|line| line.contains(needle)) {
                return line.clone();
            }
            let left = PATIENCE.saturating_sub(start.elapsed());
            assert!(!left.is_zero(), "no {needle:?} in {lines:#?}");
            let waited = self.log.grown.wait_timeout(lines, left);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Server {
    #[expect(
        clippy::print_stderr,
        reason = "a failed test shows what the server said"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ended = self.child.try_wait().ok().flatten();
            eprintln!("server: ended {ended:?}, said {:#?}", self.lines());
        }
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Log {
    fn follow(self: &Arc<Self>, stream: impl Read + Send + 'static) {
        let log = Arc::clone(self);
        std::thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                log.lines
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line);
                log.grown.notify_all();
            }
        });
    }
}

/// Most suites send any Host they like; `--trusted-host` overrides it.
const ANY_HOST: (&str, &str) = ("JUSTAPI_SERVER__TRUSTED_HOSTS", "*");

/// `justapi serve` of the demo routes, without an address.
pub(crate) fn serve() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_justapi"));
    command.arg("serve").stdin(Stdio::null());
    command.env_remove("LISTEN_FDS").env_remove("LISTEN_PID");
    command.env(ANY_HOST.0, ANY_HOST.1);
    command
}

/// The same under `sh`, after `prelude`, such as `ulimit -n 64`.
pub(crate) fn serve_after(prelude: &str, flags: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{prelude} exec \"$@\"");
    command
        .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_justapi"), "serve"])
        .args(flags);
    command.stdin(Stdio::null());
    command.env_remove("LISTEN_FDS").env_remove("LISTEN_PID");
    command.env(ANY_HOST.0, ANY_HOST.1);
    command
}

/// Raises the soft limit of open files to the hard one; the new limit.
pub(crate) fn raise_nofile() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("a soft limit may go up to the hard one");
    limit.current.unwrap_or(u64::MAX)
}

/// `http://127.0.0.1:8000` in a line that may be coloured or JSON.
fn announced_address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("://")?;
    let is_address = |c: char| c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '[' | ']');
    rest[..rest.find(|c| !is_address(c)).unwrap_or(rest.len())]
        .parse()
        .ok()
}
