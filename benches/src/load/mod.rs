//! The load engine: threads that each drive their own connections, closed loop.
//!
//! ```text
//! plan ──► worker (one per thread) ──► connection ──► transport ──► server
//!             │  tally                    ├ response (parser)
//!             └──► report                 └ websocket, events
//! ```
//!
//! It guarantees that each measured attempt has exactly one [`Outcome`], and that
//! only correct answers are throughput.

mod body;
mod connection;
mod events;
mod fan_out;
mod outcome;
mod plan;
mod report;
mod response;
mod share;
#[cfg(test)]
mod stream_tests;
mod tally;
mod target;
#[cfg(test)]
mod tests;
mod transport;
mod websocket;
mod worker;

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub use events::EventFeed;
pub use outcome::{Outcome, OutcomeCounts};
pub use plan::{Exchange, Expectation, ExpectedBody, LoadPlan, RequestTemplate, Stop};
pub use report::{LatencySummary, LoadReport, ResponseDigest, ThreadReport};
pub use target::{Address, Target, Tls, Trust, parse_target};
pub use websocket::WebSocketEcho;

use self::fan_out::FanOut;
use self::share::Share;
use self::tally::Tally;
use self::worker::Worker;
use crate::Error;

/// Runs a plan and returns what was measured.
///
/// Blocks until the plan is done. Once `stop_flag` is true the run ends within
/// about 50 ms, and the report says `interrupted`.
///
/// # Errors
///
/// [`Error::LoadPlan`] for a plan that cannot run, [`Error::LoadThread`] for a
/// thread that could not be set up. What the server does is never an error here: it
/// is an [`Outcome`].
pub fn run(plan: &LoadPlan, stop_flag: &AtomicBool) -> Result<LoadReport, Error> {
    plan.validate()?;
    let results = thread::scope(|scope| {
        let (ready, is_ready) = mpsc::channel();
        let mut starts = Vec::new();
        let mut handles = Vec::new();
        let mut failure = None;
        for (index, share) in shares(plan).into_iter().enumerate() {
            let (start, begin) = mpsc::channel::<Instant>();
            let ready = ready.clone();
            let body = move || {
                let worker = Driver::new(plan, share);
                // Fails only if the run was given up, which `begin` tells as well.
                let _ = ready.send(worker.is_ok());
                // The last of these to go ends the wait for all threads.
                drop(ready);
                let worker = worker?;
                match begin.recv() {
                    Ok(start) => worker.run(start, stop_flag).map(Some),
                    Err(mpsc::RecvError) => Ok(None),
                }
            };
            match thread::Builder::new()
                .name(format!("load-{index}"))
                .spawn_scoped(scope, body)
            {
                Ok(handle) => handles.push(handle),
                Err(source) => {
                    failure = Some(Error::LoadThread {
                        operation: "start",
                        source,
                    });
                }
            }
            starts.push(start);
        }
        drop(ready);
        // All set-up is done before any thread sends: one start for all.
        if is_ready.iter().all(|ready| ready) && failure.is_none() {
            let now = Instant::now();
            for start in &starts {
                // A thread that is gone says why when it is joined.
                let _ = start.send(now);
            }
        }
        drop(starts);
        let results: Vec<_> = handles
            .into_iter()
            .map(|handle| {
                handle
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect();
        failure.map_or(Ok(results), Err)
    })?;
    let mut sum = Tally::new(plan.request_timeout, plan.connect_timeout);
    let mut per_thread = Vec::new();
    for result in results {
        if let Some((tally, thread)) = result? {
            sum.merge(tally);
            per_thread.push(thread);
        }
    }
    Ok(LoadReport::new(plan, &sum, per_thread))
}

/// Sends the first request of a plan once and describes the answer.
///
/// The expectation of the plan is not applied: this is how to learn what to expect,
/// and to see that it still holds afterwards.
///
/// # Errors
///
/// As for [`run`], and [`Error::Probe`] if there was no whole response.
pub fn probe(plan: &LoadPlan) -> Result<ResponseDigest, Error> {
    let plan = LoadPlan {
        requests: plan.requests.iter().take(1).cloned().collect(),
        connections: 1,
        threads: 1,
        stop: Stop::Requests(1),
        warm_up: Duration::ZERO,
        expect: Expectation::default(),
        cpus: None,
        ..plan.clone()
    };
    let report = run(&plan, &AtomicBool::new(false))?;
    report.check_invariants()?;
    report.first_response.ok_or_else(|| {
        let ended = report.outcomes.iter().find(|(_, count)| *count > 0);
        Error::Probe {
            outcome: ended.map_or(Outcome::NotSent, |(outcome, _)| outcome),
        }
    })
}

/// What runs on a thread.
enum Driver<'a> {
    /// Each connection for itself.
    Connections(Box<Worker<'a>>),
    /// All of them listen to one.
    FanOut(Box<FanOut<'a>>),
}

impl<'a> Driver<'a> {
    fn new(plan: &'a LoadPlan, share: Share) -> Result<Self, Error> {
        Ok(match &plan.exchange {
            Exchange::Requests | Exchange::Echo(_) => {
                Self::Connections(Box::new(Worker::new(plan, share)?))
            }
            Exchange::Feed(feed) => Self::FanOut(Box::new(FanOut::new(plan, feed, share)?)),
        })
    }

    fn run(self, start: Instant, stop_flag: &AtomicBool) -> Result<(Tally, ThreadReport), Error> {
        match self {
            Self::Connections(worker) => worker.run(start, stop_flag),
            Self::FanOut(fan_out) => fan_out.run(start, stop_flag),
        }
    }
}

/// Divides connections and attempts among the threads, the first getting the rest.
fn shares(plan: &LoadPlan) -> Vec<Share> {
    let threads = plan.threads.min(plan.connections);
    let (each, rest) = (plan.connections / threads, plan.connections % threads);
    (0..threads)
        .map(|index| Share {
            first: index * each + index.min(rest),
            connections: each + usize::from(index < rest),
            attempts: match plan.stop {
                Stop::Duration(_) => None,
                Stop::Requests(total) => {
                    let (threads, index) = (threads as u64, index as u64);
                    Some(total / threads + u64::from(index < total % threads))
                }
            },
            cpu: plan.cpus.as_ref().map(|cpus| cpus[index % cpus.len()]),
        })
        .collect()
}
