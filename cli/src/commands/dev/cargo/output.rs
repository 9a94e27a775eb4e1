//! What a server writes to standard error: passed on, and the end of it kept.
//!
//! Guarantee: what it has said before its end is known once that end is.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};

use super::launcher::FIRST_FREE;

/// Kept of what it has said.
const MAX_KEPT_BYTES: usize = 32 * 1024;
/// Longest wait for the rest of what one has said that has ended: another
/// process may have its standard error.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// Standard error of one server.
#[derive(Debug)]
pub(crate) struct Output {
    kept: Arc<Mutex<VecDeque<u8>>>,
    ended: Receiver<()>,
}

/// The end of it that the server gets.
#[derive(Debug)]
pub(crate) struct Input(OwnedFd);

impl Input {
    /// The descriptor that a program finds it under.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Output {
    /// # Errors
    /// The system has no descriptor or thread to spare.
    pub(crate) fn open() -> io::Result<(Self, Input)> {
        Self::open_to(io::stderr())
    }

    fn open_to(target: impl io::Write + Send + 'static) -> io::Result<(Self, Input)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let writer = fcntl_dupfd_cloexec(&writer, FIRST_FREE)?;
        fcntl_setfd(&writer, FdFlags::empty())?;
        let kept: Arc<Mutex<VecDeque<u8>>> = Arc::default();
        let (end, ended) = channel();
        let keeper = Arc::clone(&kept);
        let passing = thread::Builder::new().name("errors".to_owned());
        passing.spawn(move || {
            // Nobody is left to tell what cannot be passed on.
            drop(pass_on(File::from(reader), &keeper, target));
            drop(end);
        })?;
        Ok((Self { kept, ended }, Input(writer)))
    }

    /// The last that was said, of a server that has ended.
    pub(crate) fn last_words(&self) -> String {
        // Its end is that nobody can send any more.
        self.ended.recv_timeout(MAX_WAIT).unwrap_or_default();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        anstream::adapter::strip_str(&String::from_utf8_lossy(kept.make_contiguous())).to_string()
    }
}

fn pass_on(
    mut reader: File,
    kept: &Mutex<VecDeque<u8>>,
    mut target: impl io::Write,
) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let count = reader.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        let said = &buffer[..count];
        {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(said);
            let surplus = kept.len().saturating_sub(MAX_KEPT_BYTES);
            kept.drain(..surplus);
        }
        // A terminal that has gone is no reason to have the server wait.
        drop(target.write_all(said));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_end_of_what_was_said_is_kept() {
        let (output, input) = Output::open_to(io::sink()).expect("a pipe");
        let mut writer = File::from(input.0);
        let text = format!("\x1b[1m{}\x1b[0m", "x".repeat(MAX_KEPT_BYTES + 100));
        writer.write_all(text.as_bytes()).expect("it is read");
        writer.write_all(b"\nthe end\n").expect("it is read");
        drop(writer);
        let words = output.last_words();
        assert!(words.ends_with("x\nthe end\n"), "{words}");
        assert!(words.len() <= MAX_KEPT_BYTES);
    }
}
