//! What a thread of the load engine has, whatever it does: its share of the plan, its poll, its
//! clock and its counts.
//!
//! It shares nothing with other threads but the stop flag and, where somebody watches, the cell
//! in which it publishes its counts.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use rustls::ClientConfig;
use rustls::client::Resumption;

use super::connection::Io;
use super::plan::LoadPlan;
use super::supply::Window;
use super::tally::{Tally, earlier};
use super::transport::Buffers;
use crate::Error;

/// Longest wait for events: the delay with which the stop flag is seen.
pub(super) const MAX_WAIT: Duration = Duration::from_millis(50);

/// How long before a request is due the thread stops sleeping and looks at the clock.
///
/// Longer than most wake-ups take on a virtual machine, some tens of µs. More would be no remedy for
/// the rest, in which the thread does not run at all.
const SPIN: Duration = Duration::from_micros(60);

/// Token of the timer's events, which say nothing but that it is time.
pub(super) const TIMER: Token = Token(usize::MAX);

/// The part of a plan that one thread does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    /// Number of the thread, and how many there are.
    pub(super) index: usize,
    pub(super) threads: usize,
    /// Index of its first connection among all.
    pub(super) first: usize,
    pub(super) connections: usize,
    /// Measured attempts to make, where the plan has a number of them.
    pub(super) attempts: Option<u64>,
    pub(super) cpu: Option<usize>,
}

/// What a thread works with.
#[derive(Debug)]
pub(super) struct Thread<'a> {
    pub(super) plan: &'a LoadPlan,
    pub(super) tls_config: Option<Arc<ClientConfig>>,
    pub(super) poll: Poll,
    /// Ends sleeps to the microsecond, where the poll counts in milliseconds.
    timer: Option<OwnedFd>,
    buffers: Buffers,
    pub(super) tally: Tally,
    pub(super) window: Window,
}

impl<'a> Thread<'a> {
    /// Pins the calling thread and makes its poll.
    pub(super) fn prepare(plan: &'a LoadPlan, share: Share) -> Result<Self, Error> {
        let failed = |operation| move |source| Error::LoadThread { operation, source };
        if let Some(cpu) = share.cpu {
            pin(cpu)?;
        }
        let poll = Poll::new().map_err(failed("create a poll for"))?;
        let timer = if plan.is_open_loop() {
            Some(timer(&poll).map_err(failed("create a timer for"))?)
        } else {
            None
        };
        // A store of sessions for each thread: a shared one would be a shared lock.
        let tls_config = plan.target.tls.as_ref().map(|tls| {
            let mut config = ClientConfig::clone(&tls.config);
            config.resumption = Resumption::default();
            Arc::new(config)
        });
        Ok(Self {
            plan,
            tls_config,
            poll,
            timer,
            buffers: Buffers::new(),
            tally: Tally::new(plan),
            window: Window::new(plan, Instant::now()),
        })
    }

    /// Sets the clock: the run begins.
    pub(super) fn begin(&mut self, start: Instant) {
        self.window = Window::new(self.plan, start);
    }

    /// Stops at once.
    pub(super) fn interrupt(&mut self, now: Instant) {
        self.tally.interrupted = true;
        self.window.cut(now);
    }

    pub(super) fn io(&mut self) -> Io<'_> {
        Io {
            registry: self.poll.registry(),
            buffers: &mut self.buffers,
            expect: &self.plan.expect,
        }
    }

    /// Waits for events, the next expiry, or the next request that is `due`.
    ///
    /// The poll counts in milliseconds, which is enough for everything but what is due.
    pub(super) fn wait(
        &mut self,
        events: &mut Events,
        expiry: Option<Instant>,
        due: Option<Instant>,
        now: Instant,
    ) -> io::Result<()> {
        let longest = earlier(expiry, self.window.stop_at).map_or(MAX_WAIT, |instant| {
            instant.saturating_duration_since(now).min(MAX_WAIT)
        });
        let (Some(due), Some(timer)) = (due, &self.timer) else {
            return self.poll.poll(events, Some(longest));
        };
        let sleep = due.saturating_duration_since(now).saturating_sub(SPIN);
        if sleep.is_zero() {
            return self.poll.poll(events, Some(Duration::ZERO));
        }
        if sleep < MAX_WAIT {
            let it_value = Timespec {
                tv_sec: 0,
                tv_nsec: sleep.subsec_nanos().into(),
            };
            let once = Itimerspec {
                it_interval: Timespec::default(),
                it_value,
            };
            timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
        }
        self.poll.poll(events, Some(longest))
    }
}

/// A timer whose end wakes the poll; each is a new edge, so that it is never read.
fn timer(poll: &Poll) -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    poll.registry()
        .register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)?;
    Ok(timer)
}

/// Pins the calling thread to a processor.
pub(super) fn pin(cpu: usize) -> Result<(), Error> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(Error::LoadPlan {
            field: "cpus",
            problem: "no such processor",
        });
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| Error::LoadThread {
        operation: "pin",
        source: error.into(),
    })
}
