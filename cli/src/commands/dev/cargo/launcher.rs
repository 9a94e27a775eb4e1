//! The worker's side: builds, and becomes what was built.
//!
//! Guarantee: the server gets its socket as `sd_listen_fds(3)` says, and ends
//! with the supervisor.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, process};

use justapi_core::{Listen, SharedListener};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::Deserialize;
use serde_json::{Value, json};

use super::build::{Fault, Order};
use crate::commands::dev::team::MARK;
use crate::commands::serve::python::worker::VARIABLE;

/// What this program is told to become a worker by.
pub(crate) const ARGUMENT: &str = "__build-and-serve";
/// First descriptor that sockets are passed under.
const FIRST_PASSED: RawFd = 3;
/// Descriptors from here on are never in the way of those.
pub(super) const FIRST_FREE: RawFd = 16;
/// Status of one that does not come to serve.
const FAILED: u8 = 1;

/// Has a socket leave the descriptors that sockets are passed under.
///
/// # Errors
/// The system has no descriptor to spare.
pub(crate) fn move_away(socket: &mut SharedListener) -> io::Result<()> {
    socket.socket = fcntl_dupfd_cloexec(&socket.socket, FIRST_FREE)?;
    Ok(())
}

/// What the supervisor has told.
#[derive(Debug, Deserialize)]
struct Task {
    ready_fd: RawFd,
    fds: Vec<RawFd>,
    supervisor: u32,
    dev: ForDev,
}

#[derive(Debug, Deserialize)]
struct ForDev {
    cargo: Order,
    /// Where the server's standard error goes.
    errors_fd: RawFd,
}

/// Builds an application, and becomes it; returns only if that fails.
pub(crate) fn launch() -> u8 {
    let task = env::var(VARIABLE).ok();
    let task = task.and_then(|task| serde_json::from_str::<Task>(&task).ok());
    let Some(task) = task else {
        // A word for who tries it: nobody is meant to.
        drop(writeln!(
            io::stderr(),
            "this is started by `justapi dev` alone"
        ));
        return FAILED;
    };
    // What cannot be told is known by the end.
    drop(task.run());
    FAILED
}

impl Task {
    fn run(&self) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let parent = getppid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
        if parent != Some(self.supervisor) {
            return Ok(());
        }
        // First, while nothing here has the descriptor that it is to have.
        let socket = self.socket();
        let mut supervisor = open(self.ready_fd)?;
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => {
                let what = format!("descriptor {FIRST_PASSED} cannot be used: {error}");
                return tell(&mut supervisor, &json!({"failed": what}));
            }
        };
        // What the build runs is no worker.
        let mut order = self.dev.cargo.command();
        order.env_remove(VARIABLE).env_remove(MARK);
        let built = match self.dev.cargo.build(order) {
            Ok(built) => built,
            Err(fault) => return tell(&mut supervisor, &told_of(&fault)),
        };
        tell(
            &mut supervisor,
            &json!({"dev": {"build": {"built": built}}}),
        )?;
        let mut go = [0];
        if io::stdin().read(&mut go)? == 0 {
            return Ok(());
        }
        let error = self.become_server(&built.executable, &socket);
        let what = format!("{} cannot be run: {error}", built.executable.display());
        tell(&mut supervisor, &json!({"failed": what}))
    }

    /// The listening socket under the descriptor that a server looks for it.
    fn socket(&self) -> io::Result<OwnedFd> {
        let taken = || io::Error::new(io::ErrorKind::AlreadyExists, "something else has it");
        let fd = self.fds.first().copied().unwrap_or(-1);
        let adopted = SharedListener::bind(&Listen::Fd(fd), 0, false);
        let adopted = adopted.map_err(|error| io::Error::other(error.to_string()))?;
        let adopted = adopted.into_iter().next().ok_or_else(taken)?.socket;
        let socket = if adopted.as_raw_fd() == FIRST_PASSED {
            adopted
        } else {
            fcntl_dupfd_cloexec(&adopted, FIRST_PASSED)?
        };
        if socket.as_raw_fd() == FIRST_PASSED {
            Ok(socket)
        } else {
            Err(taken())
        }
    }

    fn become_server(&self, executable: &Path, socket: &OwnedFd) -> io::Error {
        let errors = match open(self.dev.errors_fd) {
            Ok(errors) => errors,
            Err(error) => return error,
        };
        if let Err(error) = fcntl_setfd(socket, FdFlags::empty()) {
            return error.into();
        }
        Command::new(executable)
            .env("LISTEN_PID", process::id().to_string())
            .env("LISTEN_FDS", "1")
            .env_remove("LISTEN_FDNAMES")
            .env_remove(VARIABLE)
            .stdin(Stdio::null())
            .stderr(Stdio::from(errors))
            .exec()
    }
}

/// Another way into a pipe that this process was started with.
fn open(descriptor: RawFd) -> io::Result<File> {
    File::options()
        .write(true)
        .open(format!("/proc/self/fd/{descriptor}"))
}

fn tell(supervisor: &mut File, line: &Value) -> io::Result<()> {
    writeln!(supervisor, "{line}")
}

fn told_of(fault: &Fault) -> Value {
    json!({
        "failed": fault.what,
        "hint": fault.hint,
        "dev": {"build": {"diagnostics": fault.diagnostics, "said": fault.said}},
    })
}
