//! Every measured attempt as a line of JSON, written beside the measurement.
//!
//! Guarantee: a thread that measures never waits for the disk. What the writer cannot take in time
//! is dropped and counted, so that lines and drops add up to the attempts; what waits for it is
//! bounded, however long the run is.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use serde::Serialize;

use super::outcome::Outcome;
use super::tally::{Ended, nanoseconds};
use crate::Error;

/// Lines that a thread collects before the writer gets them: a wake-up for each would be felt.
const BATCH_LINES: usize = 512;

/// Batches that may wait for the writer, about 2 MB.
const MAX_WAITING: usize = 64;

/// Bytes that go to the file at once.
const WRITE_BYTES: usize = 64 * 1024;

/// What became of the lines of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RawReport {
    /// Lines in the file.
    pub written: u64,
    /// Attempts without a line, because the file was written too slowly or not at all.
    pub dropped: u64,
    /// Why nothing more was written.
    pub error: Option<String>,
}

/// An attempt; times in nanoseconds since the begin of the run.
#[derive(Debug, Clone, Copy)]
struct Line {
    thread: u16,
    outcome: Outcome,
    status: Option<u16>,
    bytes: u64,
    intended_ns: Option<u64>,
    sent_ns: Option<u64>,
    first_byte_ns: Option<u64>,
    done_ns: u64,
}

/// The writer of a run.
#[derive(Debug)]
pub(super) struct RawLog {
    sender: SyncSender<Vec<Line>>,
    writer: JoinHandle<RawReport>,
}

impl RawLog {
    /// Creates the file and starts the thread that writes it.
    ///
    /// # Errors
    ///
    /// [`Error::File`] and [`Error::LoadThread`].
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(Error::file("create", path))?;
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let writer = std::thread::Builder::new()
            .name(String::from("load-raw"))
            .spawn(move || write_all(file, &receiver))
            .map_err(|source| Error::LoadThread {
                operation: "start",
                source,
            })?;
        Ok(Self { sender, writer })
    }

    /// What thread number `thread` writes with.
    pub(super) fn recorder(&self, thread: usize) -> Recorder {
        Recorder {
            sender: self.sender.clone(),
            lines: Vec::with_capacity(BATCH_LINES),
            begin: Instant::now(),
            thread: u16::try_from(thread).unwrap_or(u16::MAX),
            num_dropped: 0,
        }
    }

    /// Waits until all is written; `num_dropped` is what the threads could not hand over.
    ///
    /// Every [`Recorder`] must be gone.
    pub(super) fn finish(self, num_dropped: u64) -> RawReport {
        drop(self.sender);
        let mut report =
            (self.writer.join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        report.dropped += num_dropped;
        report
    }
}

/// The lines of one thread.
#[derive(Debug)]
pub(super) struct Recorder {
    sender: SyncSender<Vec<Line>>,
    lines: Vec<Line>,
    begin: Instant,
    thread: u16,
    num_dropped: u64,
}

impl Recorder {
    /// Sets the clock: the run begins.
    pub(super) const fn begin(&mut self, begin: Instant) {
        self.begin = begin;
    }

    /// Takes an attempt that has ended.
    pub(super) fn record(&mut self, ended: &Ended) {
        let line = Line {
            thread: self.thread,
            outcome: ended.outcome,
            status: ended.outcome.is_response().then_some(ended.status),
            bytes: ended.bytes_received,
            intended_ns: ended.intended.map(|at| self.since_begin(at)),
            sent_ns: ended.sent.map(|at| self.since_begin(at)),
            first_byte_ns: ended.first_byte.map(|at| self.since_begin(at)),
            done_ns: self.since_begin(ended.at),
        };
        self.push(line);
    }

    /// Takes an attempt that was due at `intended` and had not begun at `at`.
    pub(super) fn not_sent(&mut self, intended: Instant, at: Instant) {
        let line = Line {
            thread: self.thread,
            outcome: Outcome::NotSent,
            status: None,
            bytes: 0,
            intended_ns: Some(self.since_begin(intended)),
            sent_ns: None,
            first_byte_ns: None,
            done_ns: self.since_begin(at),
        };
        self.push(line);
    }

    /// Hands over what is left, for which it may wait; how many lines were dropped.
    pub(super) fn finish(self) -> u64 {
        let num_lines = self.lines.len() as u64;
        match self.sender.send(self.lines) {
            Ok(()) => self.num_dropped,
            Err(_) => self.num_dropped + num_lines,
        }
    }

    fn push(&mut self, line: Line) {
        self.lines.push(line);
        if self.lines.len() < BATCH_LINES {
            return;
        }
        match self.sender.try_send(std::mem::take(&mut self.lines)) {
            Ok(()) => self.lines.reserve_exact(BATCH_LINES),
            Err(TrySendError::Full(mut lines) | TrySendError::Disconnected(mut lines)) => {
                self.num_dropped += lines.len() as u64;
                lines.clear();
                self.lines = lines;
            }
        }
    }

    fn since_begin(&self, at: Instant) -> u64 {
        nanoseconds(at.saturating_duration_since(self.begin))
    }
}

/// Writes what comes; after an error it counts what comes, so that nobody waits.
fn write_all(file: File, batches: &Receiver<Vec<Line>>) -> RawReport {
    let mut report = RawReport {
        written: 0,
        dropped: 0,
        error: None,
    };
    let mut file = BufWriter::with_capacity(WRITE_BYTES, file);
    let mut text = Vec::new();
    for batch in batches {
        let num_lines = batch.len() as u64;
        if report.error.is_some() {
            report.dropped += num_lines;
            continue;
        }
        text.clear();
        for line in &batch {
            line.append_to(&mut text);
        }
        match file.write_all(&text) {
            Ok(()) => report.written += num_lines,
            Err(error) => report.fail(&error, num_lines),
        }
    }
    if report.error.is_none()
        && let Err(error) = file.flush()
    {
        report.fail(&error, 0);
    }
    report
}

impl RawReport {
    /// What a buffer has taken may still be lost, so nothing is known to be written then.
    fn fail(&mut self, error: &io::Error, num_lines: u64) {
        self.dropped += num_lines + std::mem::take(&mut self.written);
        self.error = Some(error.to_string());
    }
}

impl Line {
    /// Appends its JSON; keys are always the same ones in the same order.
    fn append_to(&self, text: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        let mut add = |name: &str, value: Option<u64>| {
            text.extend_from_slice(name.as_bytes());
            match value {
                Some(value) => text.extend_from_slice(number.format(value).as_bytes()),
                None => text.extend_from_slice(b"null"),
            }
        };
        add("{\"intended_ns\":", self.intended_ns);
        add(",\"sent_ns\":", self.sent_ns);
        add(",\"first_byte_ns\":", self.first_byte_ns);
        add(",\"done_ns\":", Some(self.done_ns));
        add(",\"status\":", self.status.map(u64::from));
        add(",\"bytes\":", Some(self.bytes));
        add(",\"thread\":", Some(u64::from(self.thread)));
        text.extend_from_slice(b",\"outcome\":\"");
        text.extend_from_slice(self.outcome.name().as_bytes());
        text.extend_from_slice(b"\"}\n");
    }
}

#[cfg(test)]
#[path = "raw_tests.rs"]
mod tests;
