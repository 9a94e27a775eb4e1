//! Ctrl-C and its like while a project is made.
//!
//! Guarantee: the terminal is as it was, nothing of ours is left on the disk,
//! and the exit status is 128 plus the signal's number. A project that is
//! being put into place is put there whole, or back, first.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

use crate::commands::serve::SIGNAL_BASE;
use crate::error::{CliError, Code};

/// How long the thread of signals may be late on a machine that stands still at times.
const MAX_SIGNAL_DELAY: Duration = Duration::from_secs(10);
/// How often the terminal is restored, and how long after one another.
const NUM_RESTORES: u32 = 10;
const RESTORE_INTERVAL: Duration = Duration::from_millis(5);
/// What a question has hidden.
const SHOW_CURSOR: &[u8] = b"\x1b[?25h\r\n";

/// Waits for signals, as long as the process lives.
#[derive(Debug)]
pub(super) struct Interruption(Arc<Mutex<State>>);

/// What has to be undone.
#[derive(Debug, Default)]
pub(super) struct State {
    litter: Vec<PathBuf>,
    terminal: Option<Termios>,
}

impl Interruption {
    /// Begins to wait.
    ///
    /// # Errors
    /// [`Code::SignalWatch`].
    pub(super) fn watch() -> Result<Self, CliError> {
        let failed = |error: io::Error| {
            CliError::new(Code::SignalWatch, "cannot watch for stop signals").with_cause(&error)
        };
        let state = Arc::new(Mutex::new(State::default()));
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
        let shared = Arc::clone(&state);
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                loop {
                    let pending: Vec<i32> = signals.wait().collect();
                    // A question that any signal interrupts raises SIGINT as well.
                    let cause = pending.iter().find(|signal| **signal != SIGINT);
                    if let Some(signal) = cause.or(pending.first()) {
                        // Held to the end, so that nothing new is begun.
                        let mut state = lock(&shared);
                        state.undo();
                        end(i32::from(SIGNAL_BASE) + signal);
                    }
                }
            })
            .map_err(failed)?;
        Ok(Self(state))
    }

    /// Makes a folder of ours, to be removed should a signal come.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn will_remove(
        &self,
        make: impl FnOnce() -> io::Result<TempDir>,
    ) -> io::Result<TempDir> {
        let mut state = lock(&self.0);
        let folder = make()?;
        state.litter.push(folder.path().to_owned());
        Ok(folder)
    }

    /// Remembers how the terminal is, to be restored should a signal come.
    pub(super) fn remember_terminal(&self) {
        lock(&self.0).terminal = tcgetattr(io::stdin()).ok();
    }

    /// Keeps signals waiting while the guard lives; nothing is written without it, so that what is
    /// removed stays removed.
    pub(super) fn hold(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Ends the command as Ctrl-C does.
    pub(super) fn cancelled(&self) -> CliError {
        lock(&self.0).undo();
        CliError::interrupted(SIGNAL_BASE + u8::try_from(SIGINT).unwrap_or_default())
    }
}

impl State {
    fn undo(&mut self) {
        for folder in self.litter.drain(..) {
            drop(fs::remove_dir_all(folder));
        }
        if let Some(terminal) = self.terminal.take() {
            drop(io::stderr().write_all(SHOW_CURSOR));
            // The thread that asks may be about to wait for a key, for which it changes the
            // terminal once more.
            for _ in 0..NUM_RESTORES {
                let _ = tcsetattr(io::stdin(), OptionalActions::Now, &terminal);
                thread::sleep(RESTORE_INTERVAL);
            }
        }
    }
}

/// Waits for the thread of signals to end the process: its exit status has the signal's number.
pub(super) fn wait() {
    thread::park_timeout(MAX_SIGNAL_DELAY);
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(
    clippy::exit,
    reason = "the thread that would end the process may wait for a key"
)]
fn end(status: i32) -> ! {
    process::exit(status)
}
