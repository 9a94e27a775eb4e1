//! One line a request, as text or JSON.
//!
//! Guarantees: serving never waits for the log (what does not fit is dropped
//! and counted), and every line is printable ASCII, so no client can forge a
//! line or drive a terminal (CVE-2020-7694). A lane appends to one of a few
//! buffers without waiting; one thread empties them every [`BATCH_INTERVAL`].

mod line;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, Write};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::Duration;

use self::line::Line;
use crate::error::Error;

pub use self::line::AccessLogFormat;

pub(crate) use self::line::Entry;

/// Buffers, so that lanes seldom meet; more lanes than this share some.
const NUM_BUFFERS: usize = 8;
/// One buffer; about 5,000 lines. All of them and the writer's: 9 MiB.
const MAX_BUFFER_BYTES: usize = 1024 * 1024;
/// How long lines are collected before a write: one wake-up for all of them,
/// and still at once for a reader.
const BATCH_INTERVAL: Duration = Duration::from_millis(20);
/// How long dropping the log may wait for a writer that is stuck.
const MAX_FLUSH_WAIT: Duration = Duration::from_secs(2);

/// Writes access lines from a thread of its own.
///
/// Dropping it writes what is left, and waits for that at most 2 seconds.
pub struct AccessLog {
    format: AccessLogFormat,
    shared: Arc<Shared>,
    writer: Thread,
    /// Disconnects when the writer thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog")
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

impl AccessLog {
    /// Starts the writer thread.
    ///
    /// `writer` gets whole lines in large pieces; it needs no buffer.
    ///
    /// # Errors
    /// [`Error::Config`] when the thread cannot be started.
    pub fn new(format: AccessLogFormat, writer: Box<dyn Write + Send>) -> Result<Self, Error> {
        let shared = Arc::new(Shared::default());
        let (alive, ended) = mpsc::channel();
        let thread = thread::Builder::new().name("access-log".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                shared.write_until_stopped(Output {
                    writer,
                    inside_line: false,
                });
                drop(alive);
            }
        });
        let handle = thread.map_err(|source| Error::Config {
            key: "server.access_log",
            reason: format!("cannot start its thread: {source}"),
        })?;
        Ok(Self {
            format,
            shared,
            writer: handle.thread().clone(),
            ended: Mutex::new(ended),
        })
    }

    /// Logs one request; never waits.
    ///
    /// Returns how many lines were lost since the last call said so: this one
    /// because the buffer is full, or earlier ones that could not be written.
    #[must_use = "lost lines are to be counted"]
    pub(crate) fn record(&self, entry: &Entry<'_>) -> u64 {
        let pushed = LINE.with_borrow_mut(|line| {
            line.format(self.format, entry);
            self.shared.push(BUFFER_INDEX.get(), &line.text)
        });
        match pushed {
            Pushed::Dropped => {
                self.shared.num_lost.fetch_add(1, Ordering::Relaxed);
            }
            Pushed::HalfFull => self.writer.unpark(),
            Pushed::Kept => {}
        }
        let pending = &self.shared.pending;
        if !pending.load(Ordering::Relaxed) && !pending.swap(true, Ordering::AcqRel) {
            self.writer.unpark();
        }
        if self.shared.num_lost.load(Ordering::Relaxed) == 0 {
            0
        } else {
            self.shared.num_lost.swap(0, Ordering::Relaxed)
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.writer.unpark();
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        match ended.recv_timeout(MAX_FLUSH_WAIT) {
            Ok(()) | Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {}
        }
    }
}

#[derive(Default)]
struct Shared {
    buffers: [LineBuffer; NUM_BUFFERS],
    /// Set by the first line after the writer began to empty the buffers.
    pending: AtomicBool,
    stopping: AtomicBool,
    num_lost: AtomicU64,
}

/// Whole lines; a cache line of its own (two, for the adjacent-line prefetcher).
#[derive(Default)]
#[repr(align(128))]
struct LineBuffer(Mutex<Vec<u8>>);

enum Pushed {
    Kept,
    /// Kept, and the writer should come soon.
    HalfFull,
    Dropped,
}

impl Shared {
    /// Appends to buffer `first`, or to the next that nobody holds.
    ///
    /// A line that finds its buffer full is dropped although others may have
    /// room: so the lines of a lane stay in order.
    fn push(&self, first: usize, line: &[u8]) -> Pushed {
        for offset in 0..NUM_BUFFERS {
            let mut buffer = match self.buffers[(first + offset) % NUM_BUFFERS].0.try_lock() {
                Ok(buffer) => buffer,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            let before = buffer.len();
            if before + line.len() > MAX_BUFFER_BYTES {
                return Pushed::Dropped;
            }
            buffer.extend_from_slice(line);
            let half = MAX_BUFFER_BYTES / 2;
            return if before < half && buffer.len() >= half {
                Pushed::HalfFull
            } else {
                Pushed::Kept
            };
        }
        Pushed::Dropped
    }

    fn write_until_stopped(&self, mut output: Output) {
        let mut batch = Vec::new();
        loop {
            let stopping = self.stopping.load(Ordering::Acquire);
            if !stopping {
                if !self.pending.load(Ordering::Acquire) {
                    thread::park();
                    continue;
                }
                thread::park_timeout(BATCH_INTERVAL);
            }
            // Before the buffers are emptied: a line that comes later finds it
            // unset, because it takes the same lock after us, and wakes us.
            self.pending.store(false, Ordering::Release);
            for buffer in &self.buffers {
                {
                    let mut lines = buffer.0.lock().unwrap_or_else(PoisonError::into_inner);
                    mem::swap(&mut *lines, &mut batch);
                }
                let num_lost = output.write(&batch);
                if num_lost > 0 {
                    self.num_lost.fetch_add(num_lost, Ordering::Relaxed);
                }
                batch.clear();
            }
            if stopping {
                return;
            }
        }
    }
}

/// The sink, and whether a failed write left it inside a line.
struct Output {
    writer: Box<dyn Write + Send>,
    inside_line: bool,
}

impl Output {
    /// Writes whole lines; returns how many were lost.
    fn write(&mut self, lines: &[u8]) -> u64 {
        if lines.is_empty() {
            return 0;
        }
        if self.inside_line && self.writer.write_all(b"\n").is_err() {
            return num_lines(lines);
        }
        self.inside_line = false;
        let mut rest = lines;
        let failed = loop {
            match self.writer.write(rest) {
                Ok(0) => break true,
                Ok(written) => {
                    self.inside_line = rest[written - 1] != b'\n';
                    rest = &rest[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break true,
            }
            if rest.is_empty() {
                break self.writer.flush().is_err();
            }
        };
        if failed { num_lines(rest) } else { 0 }
    }
}

fn num_lines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}

thread_local! {
    static LINE: RefCell<Line> = const { RefCell::new(Line::new()) };
    /// The buffer that this thread tries first.
    static BUFFER_INDEX: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % NUM_BUFFERS)
    };
}

#[cfg(test)]
mod tests {
    use super::line::tests::PLAIN;
    use super::*;

    /// A sink that tests can read.
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Sink {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_line_of_every_thread_is_written() {
        let sink = Sink::default();
        let log = AccessLog::new(AccessLogFormat::Text, Box::new(sink.clone())).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        assert_eq!(log.record(&PLAIN), 0);
                    }
                });
            }
        });
        drop(log);
        assert_eq!(sink.text().lines().count(), 4000);
    }

    /// A sink that takes nothing until it is opened.
    struct Gate(mpsc::Receiver<()>, Sink);

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Disconnected means open for good.
            let _closed = self.0.recv();
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_writer_loses_lines_and_never_blocks() {
        let sink = Sink::default();
        let (open, gate) = mpsc::channel();
        let log =
            AccessLog::new(AccessLogFormat::Text, Box::new(Gate(gate, sink.clone()))).unwrap();
        let num_lines = 3 * MAX_BUFFER_BYTES / 100;
        let num_lost: u64 = (0..num_lines).map(|_| log.record(&PLAIN)).sum();
        assert!(num_lost > 0);
        drop(open);
        drop(log);
        let num_written = sink.text().lines().count() as u64;
        assert_eq!(num_written + num_lost, num_lines as u64);
    }

    /// A sink that fails after some bytes, once, then recovers.
    struct Failing {
        left: Option<usize>,
        sink: Sink,
    }

    impl Write for Failing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.left {
                None => self.sink.write(bytes),
                Some(0) => {
                    self.left = None;
                    Err(io::ErrorKind::StorageFull.into())
                }
                Some(left) => {
                    let taken = left.min(bytes.len());
                    self.left = Some(left - taken);
                    self.sink.write(&bytes[..taken])
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_failed_write_cut_are_counted_and_ended() {
        let sink = Sink::default();
        let mut output = Output {
            writer: Box::new(Failing {
                left: Some(4),
                sink: sink.clone(),
            }),
            inside_line: false,
        };
        assert_eq!(output.write(b"1\n23456\n7\n"), 2);
        assert_eq!(output.write(b"8\n"), 0);
        assert_eq!(sink.text(), "1\n23\n8\n");
    }
}
