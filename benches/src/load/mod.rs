//! The load engine: threads that each drive their own connections, in a closed or an open loop.
//!
//! ```text
//! plan ──► worker (one per thread) ──► connection ──► transport ──► server
//!  │          │  tally                    ├ response (parser)
//!  │          └──► report ──► threshold   └ websocket, events
//!  └ arrivals ──► backlog (open loop)
//! ```
//!
//! It guarantees that each measured attempt has exactly one [`Outcome`], and that
//! only correct answers are throughput.

mod arrivals;
mod backlog;
mod body;
#[cfg(test)]
mod body_tests;
mod client;
mod connection;
mod events;
mod fan_out;
#[cfg(test)]
mod library_tests;
#[cfg(test)]
mod littles_law_tests;
mod null_server;
#[cfg(test)]
mod open_tests;
mod outcome;
mod plan;
mod progress;
mod raw;
mod render;
mod report;
mod response;
mod run_loop;
#[cfg(test)]
mod stream_tests;
mod summary;
mod supply;
mod tally;
mod target;
mod tasks;
mod template;
#[cfg(test)]
mod tests;
mod thread;
mod threshold;
mod transport;
mod websocket;
mod worker;

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub use arrivals::{ArrivalProcess, OpenLoop, Stage};
pub use events::EventFeed;
pub use null_server::NullServer;
pub use outcome::{Outcome, OutcomeCounts};
pub use plan::{Client, Exchange, Expectation, ExpectedBody, JsonRule, LoadPlan, Pace, Stop};
pub use progress::Progress;
pub use raw::RawReport;
pub use report::{LoadReport, OpenLoopReport, ResponseDigest, ThreadReport};
pub use summary::LatencySummary;
pub use target::{Address, Target, Tls, Trust, parse_target};
pub use template::RequestTemplate;
pub use threshold::{InvalidThreshold, Judgement, Threshold, Verdict};
pub use websocket::WebSocketEcho;

pub(crate) use self::render::time as show_time;

use self::fan_out::FanOut;
use self::progress::{Cell, Publisher};
use self::raw::{RawLog, Recorder};
use self::run_loop::drive;
use self::tally::Tally;
use self::tasks::Tasks;
use self::thread::Share;
use self::worker::Worker;
use crate::Error;

/// Time in which the ceiling of the client is measured.
const CALIBRATION: Duration = Duration::from_secs(2);

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
    run_watched(plan, stop_flag, None)
}

/// As [`run`], telling `watch` a few times a second what was measured so far.
///
/// # Errors
///
/// As for [`run`].
pub fn run_watched(
    plan: &LoadPlan,
    stop_flag: &AtomicBool,
    watch: Option<&dyn Fn(&Progress)>,
) -> Result<LoadReport, Error> {
    plan.validate()?;
    let raw = plan.raw.as_deref().map(RawLog::create).transpose()?;
    let shares = shares(plan);
    let cells: Vec<Cell> = shares.iter().map(|_| Cell::default()).collect();
    let results = std::thread::scope(|scope| {
        let (ready, is_ready) = mpsc::channel();
        let (alive, all_gone) = mpsc::channel::<()>();
        let mut starts = Vec::new();
        let mut handles = Vec::new();
        let mut failure = None;
        for (share, cell) in shares.into_iter().zip(&cells) {
            let (start, begin) = mpsc::channel::<Instant>();
            let (ready, alive) = (ready.clone(), alive.clone());
            let publisher = watch.map(|_| Publisher::new(cell));
            let recorder = raw.as_ref().map(|raw| raw.recorder(share.index));
            let body = move || {
                let load = Load::new(plan, share, recorder);
                let result = work(load, stop_flag, publisher, ready, &begin);
                drop(alive);
                result
            };
            match std::thread::Builder::new()
                .name(format!("load-{}", share.index))
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
        drop((ready, alive));
        // All set-up is done before any thread sends: one start for all.
        if is_ready.iter().all(|ready| ready) && failure.is_none() {
            let now = Instant::now();
            for start in &starts {
                // A thread that is gone says why when it is joined.
                let _ = start.send(now);
            }
            if let Some(watch) = watch {
                // Nothing is ever sent: the channel closes when the last thread ends.
                while all_gone.recv_timeout(progress::INTERVAL)
                    == Err(mpsc::RecvTimeoutError::Timeout)
                {
                    watch(&progress::sum(plan, &cells, now));
                }
            }
        }
        drop(starts);
        let results: Vec<_> = handles.into_iter().map(joined).collect();
        failure.map_or(Ok(results), Err)
    })?;
    let mut sum = Tally::new(plan);
    let mut per_thread = Vec::new();
    for result in results {
        if let Some((tally, thread)) = result? {
            sum.merge(tally);
            per_thread.push(thread);
        }
    }
    let mut report = LoadReport::new(plan, &sum, per_thread);
    report.raw = raw.map(|raw| raw.finish(sum.raw_dropped));
    Ok(report)
}

/// What a thread returned; its panic goes on here.
fn joined<T>(handle: std::thread::ScopedJoinHandle<'_, T>) -> T {
    (handle.join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What a thread measured; `None` if the run was given up before it began.
type Worked = Result<Option<(Tally, ThreadReport)>, Error>;

/// The life of a thread.
fn work(
    worker: Result<Load<'_>, Error>,
    stop_flag: &AtomicBool,
    publisher: Option<Publisher<'_>>,
    ready: mpsc::Sender<bool>,
    begin: &mpsc::Receiver<Instant>,
) -> Worked {
    // Fails only if the run was given up, which `begin` tells as well.
    let _ = ready.send(worker.is_ok());
    // The last of these to go ends the wait for all threads.
    drop(ready);
    let worker = worker?;
    match begin.recv() {
        Ok(start) => worker.run(start, stop_flag, publisher).map(Some),
        Err(mpsc::RecvError) => Ok(None),
    }
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
    probe_until(plan, &AtomicBool::new(false))
}

/// As [`probe`], ending early once `stop_flag` is true.
///
/// # Errors
///
/// As for [`probe`], and [`Error::Interrupted`] when it was stopped.
pub fn probe_until(plan: &LoadPlan, stop_flag: &AtomicBool) -> Result<ResponseDigest, Error> {
    let plan = LoadPlan {
        requests: plan.requests.iter().take(1).cloned().collect(),
        connections: 1,
        threads: 1,
        stop: Stop::Requests(1),
        warm_up: Duration::ZERO,
        expect: Expectation::default(),
        pace: Pace::Closed,
        cpus: None,
        expected_interval: None,
        raw: None,
        ..plan.clone()
    };
    let report = run(&plan, stop_flag)?;
    report.check_invariants()?;
    if report.interrupted && report.first_response.is_none() {
        return Err(Error::Interrupted);
    }
    report.first_response.ok_or_else(|| {
        let ended = report.outcomes.iter().find(|(_, count)| *count > 0);
        Error::Probe {
            outcome: ended.map_or(Outcome::NotSent, |(outcome, _)| outcome),
        }
    })
}

/// Runs the load of a plan against a server that does nothing, in a closed loop.
///
/// The server answers as `like` was; what is reached is the ceiling of the client.
///
/// # Errors
///
/// As for [`run`]; [`Error::LoadPlan`] also for TLS and HTTP/2, which that server has not.
pub fn calibrate(
    plan: &LoadPlan,
    like: &ResponseDigest,
    server_cpu: Option<usize>,
    stop_flag: &AtomicBool,
) -> Result<LoadReport, Error> {
    let invalid = |problem| Error::LoadPlan {
        field: "calibrate",
        problem,
    };
    if plan.target.tls.is_some() {
        return Err(invalid("cannot be done over TLS"));
    }
    if matches!(plan.client, Client::Http2 { .. }) {
        return Err(invalid("cannot be done over HTTP/2"));
    }
    let server = NullServer::start(like.status, like.body_len, server_cpu)?;
    let plan = LoadPlan {
        target: Target {
            address: Address::Tcp(server.address()),
            ..plan.target.clone()
        },
        stop: Stop::Duration(CALIBRATION),
        warm_up: CALIBRATION / 4,
        expect: Expectation {
            status: Some(like.status),
            body: None,
        },
        exchange: Exchange::Requests,
        pace: Pace::Closed,
        expected_interval: None,
        raw: None,
        ..plan.clone()
    };
    run(&plan, stop_flag)
}

/// What runs on a thread.
enum Load<'a> {
    /// Each connection for itself.
    Connections(Box<Worker<'a>>),
    /// All of them listen to one.
    FanOut(Box<FanOut<'a>>),
    /// Requests by a client library.
    Tasks(Box<Tasks<'a>>),
}

impl<'a> Load<'a> {
    fn new(plan: &'a LoadPlan, share: Share, raw: Option<Recorder>) -> Result<Self, Error> {
        if plan.client != Client::Raw {
            let mut tasks = Tasks::new(plan, share)?;
            tasks.raw = raw;
            return Ok(Self::Tasks(Box::new(tasks)));
        }
        let mut load = match &plan.exchange {
            Exchange::Requests | Exchange::Echo(_) => {
                Self::Connections(Box::new(Worker::new(plan, share)?))
            }
            Exchange::Feed(feed) => Self::FanOut(Box::new(FanOut::new(plan, feed, share)?)),
        };
        match &mut load {
            Self::Connections(worker) => worker.tally().raw = raw,
            Self::FanOut(fan_out) => fan_out.tally().raw = raw,
            Self::Tasks(_) => {}
        }
        Ok(load)
    }

    fn run(
        self,
        start: Instant,
        stop_flag: &AtomicBool,
        publisher: Option<Publisher<'_>>,
    ) -> Result<(Tally, ThreadReport), Error> {
        let (mut tally, report) = match self {
            Self::Connections(mut worker) => {
                worker.tally().begin_raw(start);
                let report = drive(&mut *worker, start, stop_flag, publisher)?;
                (worker.into_tally(), report)
            }
            Self::FanOut(mut fan_out) => {
                fan_out.tally().begin_raw(start);
                let report = drive(&mut *fan_out, start, stop_flag, publisher)?;
                (fan_out.into_tally(), report)
            }
            Self::Tasks(tasks) => tasks.run(start, stop_flag, publisher),
        };
        tally.end_raw();
        Ok((tally, report))
    }
}

/// Divides connections and attempts among the threads, the first getting the rest.
fn shares(plan: &LoadPlan) -> Vec<Share> {
    let threads = plan.threads.min(plan.connections);
    let (each, rest) = (plan.connections / threads, plan.connections % threads);
    (0..threads)
        .map(|index| Share {
            index,
            threads,
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
