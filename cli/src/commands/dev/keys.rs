//! Keys of the terminal, while nobody else reads it.
//!
//! Guarantee: the terminal is as it was once a [`Keys`] is gone, also after a
//! panic, and while this job is stopped; while a debugger has it no key is
//! taken.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpgid, getpgrp, getpid, getppid, getsid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use signal_hook::consts::{SIGCONT, SIGTSTP};
use signal_hook::iterator::Signals;

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
    terminal: Arc<Terminal>,
    /// Closed to end the thread that reads.
    _end: OwnedFd,
}

/// The terminal, and how it was before.
#[derive(Debug)]
struct Terminal {
    /// `None` once nobody wants keys any more.
    before: Mutex<Option<Termios>>,
}

impl Terminal {
    fn lock(&self) -> MutexGuard<'_, Option<Termios>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it give single keys, where it belongs to this job.
    fn take(&self) {
        let before = self.lock();
        if let Some(before) = &*before
            && has_terminal()
        {
            // A terminal that has gone takes the program along anyway.
            single_keys(before).unwrap_or_default();
        }
    }

    /// Gives it back as it was, where it belongs to this job.
    fn give_back(&self) {
        if let Some(before) = &*self.lock() {
            restore(before);
        }
    }

    /// Gives it back while this job is stopped.
    ///
    /// The signals are heard as long as the program runs: without somebody who
    /// hears them they would have no effect.
    fn share(self: &Arc<Self>) -> io::Result<()> {
        let mut signals = Signals::new([SIGTSTP, SIGCONT])?;
        let terminal = Arc::clone(self);
        let hearing = thread::Builder::new().name("job".to_owned());
        hearing.spawn(move || {
            for signal in signals.forever() {
                if signal == SIGCONT {
                    terminal.take();
                } else if !is_orphaned() {
                    terminal.give_back();
                    kill_process(getpid(), Signal::STOP).unwrap_or_default();
                }
            }
        })?;
        Ok(())
    }
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
        let (wait, end) = pipe_with(PipeFlags::CLOEXEC).ok()?;
        let terminal = Arc::new(Terminal {
            before: Mutex::new(Some(before)),
        });
        terminal.share().ok()?;
        terminal.take();
        let keys = Self {
            terminal: Arc::clone(&terminal),
            _end: end,
        };
        let reading = thread::Builder::new().name("keys".to_owned());
        reading
            .spawn(move || drop(read_keys(&wait, &terminal, tell)))
            .ok()?;
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
        self.terminal.take();
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = self.terminal.lock().take() {
            restore(&before);
        }
    }
}

/// Puts the terminal into a mode, where it belongs to this job.
fn restore(before: &Termios) {
    if has_terminal() {
        tcsetattr(io::stdin(), OptionalActions::Now, before).unwrap_or_default();
    }
}

/// Whether this is the job that the terminal belongs to: any other would be
/// stopped for touching it.
fn has_terminal() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

/// Whether nobody could continue this job once it is stopped: the one who has
/// started it is of no other job of this session.
fn is_orphaned() -> bool {
    let (group, session) = (getpgrp(), getsid(None).ok());
    let mut ancestor = getppid();
    while let Some(process) = ancestor {
        match getpgid(Some(process)) {
            Ok(other) if other == group => ancestor = parent(process),
            Ok(_) => return getsid(Some(process)).ok() != session,
            Err(_) => return true,
        }
    }
    true
}

fn parent(process: Pid) -> Option<Pid> {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    let stat = fs::read_to_string(path).ok()?;
    // The name of its program may have spaces and brackets in it.
    let (_, rest) = stat.rsplit_once(')')?;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}

fn single_keys(before: &Termios) -> io::Result<()> {
    let mut single = before.clone();
    single
        .local_modes
        .remove(LocalModes::ICANON | LocalModes::ECHO);
    Ok(tcsetattr(io::stdin(), OptionalActions::Now, &single)?)
}

fn read_keys(end: &OwnedFd, terminal: &Terminal, tell: impl Fn(Key) -> bool) -> io::Result<()> {
    let input = io::stdin();
    let mut had_terminal = true;
    loop {
        let has_terminal = has_terminal();
        if has_terminal && !had_terminal {
            // Whoever had it may have left it in another mode.
            terminal.take();
        }
        had_terminal = has_terminal;
        // Whoever reads it from the background is stopped.
        if !has_terminal {
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
        if !self::has_terminal() {
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
