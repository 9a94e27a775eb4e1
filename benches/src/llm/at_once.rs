//! Scenarios with many requests at once: levels of concurrency, and arrivals at a rate.
//!
//! Guarantees: all of a level are released together, and a level has ended before the next one
//! begins; a request of an open loop is due when the schedule says, however the others fare.

use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use tokio::sync::{Barrier, Semaphore};
use tokio::task::{JoinHandle, spawn_local};

use super::client::Client;
use super::dataset::Job;
use super::harness::{Harness, Measured, RequestShape, run_job};
use super::plan::Arrivals;
use super::prompt::PromptWriter;
use super::report::{Level, OpenLoop};
use super::sample::{MetricSummary, Sample, Summary};
use super::server::{GaugeWatch, Gauges};
use super::{schedule, totals};
use crate::Error;

/// Time between the last preparation and the first due request.
const LEAD: Duration = Duration::from_millis(20);

/// `concurrency` clients, each of which asks its next request when the last is answered.
pub(super) async fn level(
    harness: &Harness<'_>,
    writer: &mut PromptWriter<'_>,
    concurrency: u32,
) -> Result<Level, Error> {
    let num_clients = concurrency as usize;
    let num_jobs = num_clients * harness.plan.requests_per_client as usize;
    let skipped = too_long(harness);
    let (samples, gauges) = if skipped.is_some() {
        (Vec::new(), Gauges::default())
    } else {
        let jobs = harness.jobs(num_jobs, writer).await?;
        if harness.plan.keep_alive {
            harness.client.prepare_connections(num_clients).await;
        }
        let watch = GaugeWatch::start(Rc::clone(&harness.control));
        let measured = release(harness, jobs, num_clients).await;
        (harness.samples(&measured), watch.finish())
    };
    Ok(Level {
        concurrency_offered: concurrency,
        skipped,
        totals: totals::totals(&samples),
        start_spread_ms: totals::start_spread_ms(&samples, num_clients),
        server_max_running: harness.before.max_running(),
        server_gauges: gauges,
        summary: Summary::of(&samples),
        samples,
    })
}

async fn release(harness: &Harness<'_>, jobs: Vec<Job>, num_clients: usize) -> Vec<Measured> {
    let mut shares: Vec<Vec<Job>> = vec![Vec::new(); num_clients];
    for (index, job) in jobs.into_iter().enumerate() {
        shares[index % num_clients].push(job);
    }
    let barrier = Rc::new(Barrier::new(num_clients));
    let clients = shares.into_iter().map(|jobs| {
        let (client, shape) = (Rc::clone(&harness.client), Rc::clone(&harness.shape));
        spawn_local(work(client, shape, Rc::clone(&barrier), jobs))
    });
    join(clients.collect()).await
}

/// One client of a level.
async fn work(
    client: Rc<Client>,
    shape: Rc<RequestShape>,
    barrier: Rc<Barrier>,
    jobs: Vec<Job>,
) -> Vec<Measured> {
    let mut jobs: Vec<_> = jobs
        .into_iter()
        .map(|job| (shape.first_body(&job), job))
        .collect();
    let mut measured = Vec::new();
    barrier.wait().await;
    for (body, job) in jobs.drain(..) {
        if client.is_stopped() {
            break;
        }
        measured.extend(run_job(&client, &shape, job, body, None).await);
    }
    measured
}

/// Requests at the times of a schedule.
pub(super) async fn open_loop(
    harness: &Harness<'_>,
    writer: &mut PromptWriter<'_>,
    arrivals: Arrivals,
) -> Result<OpenLoop, Error> {
    let plan = harness.plan;
    let due = schedule::due_times(
        arrivals,
        plan.num_arrivals as usize,
        plan.seed,
        &plan.dataset,
    );
    let skipped = too_long(harness);
    let (samples, gauges) = if skipped.is_some() {
        (Vec::new(), Gauges::default())
    } else {
        let jobs = harness.jobs(due.len(), writer).await?;
        let watch = GaugeWatch::start(Rc::clone(&harness.control));
        let measured = send_on_time(harness, jobs, &due).await;
        (harness.samples(&measured), watch.finish())
    };
    let delays: Vec<_> = samples
        .iter()
        .filter_map(|sample| sample.client_wall_sched_delay_ms)
        .collect();
    let schedule_ms: Vec<_> = due.iter().map(|time| *time as f64 / 1e6).collect();
    let due_seconds: Vec<_> = due.iter().map(|time| *time as f64 / 1e9).collect();
    let (arrivals, rate_offered) = match arrivals {
        Arrivals::Poisson(rate) => ("poisson", Some(rate)),
        Arrivals::Constant(rate) => ("constant", Some(rate)),
        Arrivals::Trace(_) => ("trace", schedule::rate(&due_seconds)),
    };
    Ok(OpenLoop {
        arrivals,
        rate_offered,
        rate_scheduled: schedule::rate(&due_seconds),
        rate_achieved: rate_achieved(&samples),
        max_in_flight: plan.max_in_flight,
        skipped,
        schedule_sha256: schedule::digest(&due),
        schedule_ms,
        client_wall_sched_delay_ms: MetricSummary::of(&delays),
        goodput: totals::goodput(&plan.slo, &samples),
        totals: totals::totals(&samples),
        server_gauges: gauges,
        summary: Summary::of(&samples),
        samples,
    })
}

async fn send_on_time(harness: &Harness<'_>, jobs: Vec<Job>, due: &[u64]) -> Vec<Measured> {
    let requests: Vec<(Option<Bytes>, Job)> = jobs
        .into_iter()
        .map(|job| (harness.shape.first_body(&job), job))
        .collect();
    let limit = harness
        .plan
        .max_in_flight
        .map_or(requests.len(), |limit| limit as usize);
    let places = Rc::new(Semaphore::new(limit));
    let start = Instant::now() + LEAD;
    let mut tasks = Vec::with_capacity(requests.len());
    for ((body, job), due) in requests.into_iter().zip(due) {
        let scheduled = start + Duration::from_nanos(*due);
        if !wait_until(&harness.client, scheduled).await {
            break;
        }
        let (client, shape) = (Rc::clone(&harness.client), Rc::clone(&harness.shape));
        let places = Rc::clone(&places);
        tasks.push(spawn_local(async move {
            // Never closed: it always gives a place.
            let place = places.acquire().await;
            let measured = run_job(&client, &shape, job, body, Some(scheduled)).await;
            drop(place);
            measured
        }));
    }
    join(tasks).await
}

/// Waits for an instant; false when the run is to end before it.
async fn wait_until(client: &Client, instant: Instant) -> bool {
    const LOOK: Duration = Duration::from_millis(50);
    loop {
        if client.is_stopped() {
            return false;
        }
        let left = instant.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

async fn join(tasks: Vec<JoinHandle<Vec<Measured>>>) -> Vec<Measured> {
    let mut measured = Vec::new();
    for task in tasks {
        match task.await {
            Ok(found) => measured.extend(found),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    measured
}

fn too_long(harness: &Harness<'_>) -> Option<String> {
    if harness.plan.dataset.path().is_some() {
        return None;
    }
    let output = harness
        .plan
        .output_tokens
        .unwrap_or(super::dataset::OUTPUT_TOKENS);
    harness.too_long(harness.plan.input_tokens, output)
}

/// Requests per second between the first and the last that were sent.
fn rate_achieved(samples: &[Sample]) -> Option<f64> {
    let mut sent: Vec<_> = samples.iter().filter_map(|s| s.marks.sent).collect();
    sent.sort_unstable();
    let first = *sent.first()?;
    let seconds: Vec<_> = sent.iter().map(|at| (*at - first).as_secs_f64()).collect();
    schedule::rate(&seconds)
}
