//! Keys of the terminal, while nobody else reads it.
//!
//! Guarantee: the terminal is as it was once a [`Keys`] is gone, also after a
//! panic; while a debugger has it no key is taken.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// What the keys do, in the line that says where it listens.
pub(super) const SUMMARY: &str = "   keys: r reload, o open, c clear, q quit, h help";
/// The same, one in a line.
pub(super) const HELP: &str = "  r  reload now\n  o  open the page in a browser\n  \
     c  clear the screen\n  q  quit\n  h  this help\n";

/// Makes the job of a program's parent the one that the terminal belongs to.
const TAKE_BACK: &str = "import os, signal
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(0, os.getpgrp())
";

/// A key that was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Reload,
    Open,
    Clear,
    Quit,
    Help,
}

impl Key {
    fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            b'r' => Self::Reload,
            b'o' => Self::Open,
            b'c' => Self::Clear,
            b'q' => Self::Quit,
            b'h' | b'?' => Self::Help,
            _ => return None,
        })
    }
}

/// The terminal in the mode that gives single keys.
#[derive(Debug)]
pub(super) struct Keys {
    before: Termios,
    /// Closed to end the thread that reads.
    _end: OwnedFd,
}

impl Keys {
    /// Takes single keys from the terminal; `None` where standard input or
    /// error is none, or belongs to another job.
    pub(super) fn listen(tell: impl Fn(Key) -> bool + Send + 'static) -> Option<Self> {
        let input = io::stdin();
        if !input.is_terminal() || !io::stderr().is_terminal() {
            return None;
        }
        if !has_terminal() {
            return None;
        }
        let before = tcgetattr(&input).ok()?;
        single_keys(&before).ok()?;
        let (wait, end) = pipe_with(PipeFlags::CLOEXEC).ok()?;
        let keys = Self { before, _end: end };
        let reading = thread::Builder::new().name("keys".to_owned());
        reading.spawn(move || drop(read_keys(&wait, tell))).ok()?;
        Some(keys)
    }

    /// Takes the terminal back from a job that has ended.
    ///
    /// Only who ignores SIGTTOU may do so, which `interpreter` can.
    pub(super) fn take_back(&self, interpreter: &Path) {
        if !has_terminal() {
            let mut taker = Command::new(interpreter);
            taker
                .args(["-I", "-S", "-c", TAKE_BACK])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            // Where that fails the keys stay without effect.
            drop(taker.status());
        }
        if has_terminal() {
            // A terminal that has gone takes the program along anyway.
            single_keys(&self.before).unwrap_or_default();
        }
    }

    fn restore(&self) {
        if has_terminal() {
            let input = io::stdin();
            tcsetattr(&input, OptionalActions::Now, &self.before).unwrap_or_default();
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Whether this is the job that the terminal belongs to: any other would be
/// stopped for touching it.
fn has_terminal() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

fn single_keys(before: &Termios) -> io::Result<()> {
    let mut single = before.clone();
    single
        .local_modes
        .remove(LocalModes::ICANON | LocalModes::ECHO);
    Ok(tcsetattr(io::stdin(), OptionalActions::Now, &single)?)
}

fn read_keys(end: &OwnedFd, tell: impl Fn(Key) -> bool) -> io::Result<()> {
    let input = io::stdin();
    loop {
        // Whoever reads it from the background is stopped.
        if !has_terminal() {
            let mut waits = [PollFd::new(end, PollFlags::IN)];
            let pause = rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: 50_000_000,
            };
            if poll(&mut waits, Some(&pause))? > 0 {
                return Ok(());
            }
            continue;
        }
        let mut waits = [
            PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN),
            PollFd::new(end, PollFlags::IN),
        ];
        match poll(&mut waits, None) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        if !waits[1].revents().is_empty() {
            return Ok(());
        }
        if !has_terminal() {
            continue;
        }
        let mut bytes = [0; 64];
        let length = match read(&input, &mut bytes) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(error) => return Err(error.into()),
        };
        for key in bytes[..length].iter().copied().filter_map(Key::of) {
            if !tell(key) {
                return Ok(());
            }
        }
    }
}

/// Has the desktop show a page.
pub(super) fn open(url: &str) -> io::Result<()> {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let mut child = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // Somebody has to wait for it.
    thread::spawn(move || child.wait());
    Ok(())
}
