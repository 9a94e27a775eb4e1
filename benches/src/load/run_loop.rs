//! The loop that every thread of the load engine runs, whatever it drives.
//!
//! It guarantees that the stop, the stop flag and the begin of the measured part are seen in the
//! same way by all drivers, and that the time a thread waits is told from the time it works.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use mio::Events;
use mio::event::Event;

use super::progress::Publisher;
use super::report::ThreadReport;
use super::tally::Usage;
use super::thread::{TIMER, Thread};
use crate::Error;

/// Events taken from the poll at once.
const EVENT_CAPACITY: usize = 1024;

/// What a thread does when something happens.
pub(super) trait Driver<'a> {
    fn thread(&mut self) -> &mut Thread<'a>;
    /// Starts what is to run from the beginning.
    fn begin(&mut self);
    /// Whether nothing is left to do before the stop.
    fn is_done(&self) -> bool;
    /// When [`Driver::tick`] has something to end.
    fn next_expiry(&self) -> Option<Instant>;
    /// When it has something to send, to the microsecond.
    fn next_due(&self) -> Option<Instant>;
    /// Does what an event makes possible, which was there when the poll returned, at `awake`.
    fn event(&mut self, event: &Event, awake: Instant);
    /// Does what the clock makes due; called after all events.
    fn tick(&mut self, now: Instant);
    /// Ends everything at the stop.
    fn abort(&mut self, now: Instant);
    /// Ends what must not outlive the run.
    fn finish(&mut self);
}

/// Runs from `start` to the end of the plan, or until `stop_flag` is set.
pub(super) fn drive<'a>(
    driver: &mut impl Driver<'a>,
    start: Instant,
    stop_flag: &AtomicBool,
    mut publisher: Option<Publisher<'_>>,
) -> Result<ThreadReport, Error> {
    driver.thread().begin(start);
    let mut measuring = driver.thread().plan.warm_up.is_zero();
    let mut usage = Usage::begin();
    let mut events = Events::with_capacity(EVENT_CAPACITY);
    driver.begin();
    while !driver.is_done() {
        let (expiry, due) = (driver.next_expiry(), driver.next_due());
        let thread = driver.thread();
        let asleep = Instant::now();
        match thread.wait(&mut events, expiry, due, asleep) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => {
                return Err(Error::LoadThread {
                    operation: "poll in",
                    source,
                });
            }
        }
        let awake = Instant::now();
        usage.idle += awake - asleep;
        if !measuring && awake >= thread.window.measure_from {
            measuring = true;
            usage = Usage::begin();
        }
        if stop_flag.load(Ordering::Relaxed) {
            thread.interrupt(awake);
        }
        if thread.window.is_over(awake) {
            driver.abort(awake);
            break;
        }
        for event in events.iter().filter(|event| event.token() != TIMER) {
            driver.event(event, awake);
            if driver.is_done() {
                break;
            }
        }
        driver.tick(awake);
        if let Some(publisher) = &mut publisher {
            publisher.publish(awake, &driver.thread().tally);
        }
    }
    let thread = driver.thread();
    if let Some(stop) = thread.window.stop_at {
        thread.tally.end = Some(stop);
    }
    let report = usage.end();
    driver.finish();
    Ok(report)
}
