//! Ctrl-C while a model answers: word for whoever makes the answer.
//!
//! Guarantee: after [`Interrupts::watch`] a signal is never lost. It ends the
//! process only while a person is waited for, and the terminal is as it was.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::Notify;

use crate::commands::serve::SIGNAL_BASE;
use crate::error::{CliError, Code};

/// Signals that have come.
#[derive(Debug, Clone)]
pub(super) struct Interrupts {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last signal that nobody has taken; 0 is none.
    signal: AtomicI32,
    /// Whether a line is waited for, so that nobody would take a signal.
    is_at_prompt: AtomicBool,
    news: Notify,
}

impl Interrupts {
    /// Watches for signals until the process ends.
    ///
    /// # Errors
    /// [`Code::SignalWatch`].
    pub(super) fn watch() -> Result<Self, CliError> {
        let failed = |error: io::Error| {
            CliError::new(Code::SignalWatch, "cannot watch for signals").with_cause(&error)
        };
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
        let state = Arc::new(State::default());
        let told = Arc::clone(&state);
        // What editing a line changes.
        let terminal = rustix::termios::tcgetattr(io::stdin()).ok();
        let watching = thread::Builder::new().name("signals".to_owned());
        let watching = watching.spawn(move || {
            for signal in signals.forever() {
                if told.is_at_prompt.load(Ordering::Acquire) {
                    if let Some(terminal) = &terminal {
                        let now = rustix::termios::OptionalActions::Now;
                        rustix::termios::tcsetattr(io::stdin(), now, terminal).ok();
                    }
                    // Ends the process; if it does not, the signal is kept.
                    drop(signal_hook::low_level::emulate_default_handler(signal));
                }
                told.signal.store(signal, Ordering::Release);
                told.news.notify_one();
            }
        });
        watching.map_err(failed)?;
        Ok(Self { state })
    }

    /// Waits for a line; a signal ends the process meanwhile.
    pub(super) fn at_prompt<T>(&self, read: impl FnOnce() -> T) -> T {
        self.state.is_at_prompt.store(true, Ordering::Release);
        let line = read();
        self.state.is_at_prompt.store(false, Ordering::Release);
        line
    }

    /// Waits for a signal and takes it.
    pub(super) async fn next(&self) -> i32 {
        loop {
            match self.take() {
                Some(signal) => return signal,
                None => self.state.news.notified().await,
            }
        }
    }

    /// Takes a signal that has come.
    pub(super) fn take(&self) -> Option<i32> {
        match self.state.signal.swap(0, Ordering::AcqRel) {
            0 => None,
            signal => Some(signal),
        }
    }
}

/// The exit status of a run that a signal ended.
pub(super) fn exit_status(signal: i32) -> u8 {
    SIGNAL_BASE + u8::try_from(signal).unwrap_or_default()
}
