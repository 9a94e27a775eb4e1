//! One route under load, with the looks at the server's page and at its processes around it.
//!
//! Order: warm-up, page, processes, load (with looks at the page in its midst), processes, page. So
//! neither the warm-up nor the first and the last page are in the CPU time of the server. The first
//! page waits until the server has done with what the warm-up left unanswered.

use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::counters::{IN_FLIGHT, Pages, ServerSide};
use super::exposition::Exposition;
use super::report::ProcessCost;
use super::scrape::Scraper;
use crate::Error;
use crate::load::{LoadPlan, LoadReport, Progress, Stop, run_watched};
use crate::machine::process_usage;

/// Looks at the page during a load: enough for a mean, and no load of their own.
const MAX_LOOKS: u32 = 20;

/// Time between two looks at least.
const MIN_PAUSE: Duration = Duration::from_millis(250);

/// Limit for the first and the last page, for which a busy handler may have to be waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Limit for a page while somebody waits.
const HASTE: Duration = Duration::from_secs(1);

/// Time between two looks at a server that finishes what the warm-up left.
const SETTLE_PAUSE: Duration = Duration::from_millis(5);

/// What is known of a server besides where it answers.
#[derive(Debug)]
pub struct Subject {
    /// Its page of metrics, or why there is none.
    pub metrics: Result<Scraper, String>,
    /// The process whose tree serves, or why it is not known.
    pub process: Result<u32, String>,
}

/// The three sides of one load.
#[derive(Debug)]
pub(super) struct Sides {
    pub(super) load: LoadReport,
    pub(super) server: Result<ServerSide, String>,
    pub(super) process: Result<ProcessCost, String>,
}

/// Loads a server by `plan`, after a warm-up that is not measured.
///
/// `watch` is told a few times a second what was measured so far. A plan that was stopped in its
/// measured part has a report that says so.
///
/// # Errors
///
/// [`Error::Interrupted`] when it was stopped before that; otherwise as for
/// [`run_load`](crate::run_load).
pub fn measure(
    plan: &LoadPlan,
    warm_up: Duration,
    subject: &mut Subject,
    stop_flag: &AtomicBool,
    watch: &dyn Fn(&Progress),
) -> Result<Measured, Error> {
    if !warm_up.is_zero() {
        let idle = num_in_flight(&mut subject.metrics);
        let ahead = LoadPlan {
            stop: Stop::Duration(warm_up),
            warm_up: Duration::ZERO,
            ..plan.clone()
        };
        let tell = |progress: &Progress| {
            watch(&Progress {
                is_measuring: false,
                ..progress.clone()
            });
        };
        let report = run_watched(&ahead, stop_flag, Some(&tell))?;
        if report.interrupted {
            return Err(Error::Interrupted);
        }
        settle(&mut subject.metrics, idle);
    }
    let mut looks = Looks::begin(&mut subject.metrics, plan);
    let usage = subject.process.clone().map(|pid| (pid, process_usage(pid)));
    let load = {
        let looks = RefCell::new(&mut looks);
        let tell = |progress: &Progress| {
            looks.borrow_mut().look_if_due();
            watch(progress);
        };
        run_watched(plan, stop_flag, Some(&tell))?
    };
    load.check_invariants()?;
    let process = usage
        .and_then(|(pid, before)| ProcessCost::between(pid, &before, &process_usage(pid), &load));
    let server = looks.end(load.interrupted);
    Ok(Measured(Sides {
        load,
        server,
        process,
    }))
}

/// Requests inside the server now, the look's own among them where it is one.
fn num_in_flight(metrics: &mut Result<Scraper, String>) -> Option<f64> {
    let page = metrics.as_mut().ok()?.scrape(HASTE).ok()?;
    page.value(IN_FLIGHT)
}

/// Waits until no more requests are inside the server than before the warm-up, [`HASTE`] at most:
/// those that its end left behind would be counted as answered to somebody else.
fn settle(metrics: &mut Result<Scraper, String>, idle: Option<f64>) {
    let Some(idle) = idle else {
        return;
    };
    let deadline = Instant::now() + HASTE;
    while num_in_flight(metrics).is_some_and(|now| now > idle) && Instant::now() < deadline {
        std::thread::sleep(SETTLE_PAUSE);
    }
}

/// What was measured of one route; [`RouteProfile::new`](super::RouteProfile::new) takes it.
#[derive(Debug)]
pub struct Measured(pub(super) Sides);

impl Measured {
    /// What the client saw.
    pub const fn load(&self) -> &LoadReport {
        &self.0.load
    }
}

/// Pages of a server around and during a load.
struct Looks<'a> {
    scraper: Result<&'a mut Scraper, String>,
    before: Option<Exposition>,
    between: Vec<Exposition>,
    pause: Duration,
    /// `None` once the server was too busy to answer in time.
    next: Option<Instant>,
}

impl<'a> Looks<'a> {
    fn begin(metrics: &'a mut Result<Scraper, String>, plan: &LoadPlan) -> Self {
        let pause = match plan.stop {
            Stop::Duration(duration) => (duration / MAX_LOOKS).max(MIN_PAUSE),
            Stop::Requests(_) => MIN_PAUSE,
        };
        let mut looks = Self {
            scraper: metrics.as_mut().map_err(|reason| reason.clone()),
            before: None,
            between: Vec::new(),
            pause,
            next: None,
        };
        looks.before = looks.page(PATIENCE);
        if let (Some(before), Ok(scraper)) = (&looks.before, &looks.scraper)
            && !ServerSide::is_known(before)
        {
            let path = scraper.path();
            looks.scraper = Err(format!(
                "{path} is Prometheus text, but has no metrics of justapi"
            ));
        }
        looks.next = Some(Instant::now() + pause);
        looks
    }

    fn look_if_due(&mut self) {
        let Ok(scraper) = &mut self.scraper else {
            return;
        };
        if self.next.is_none_or(|next| Instant::now() < next) {
            return;
        }
        // One that fails ends the looks; the last page may come all the same.
        self.next = scraper.scrape(HASTE).ok().map(|page| {
            self.between.push(page);
            Instant::now() + self.pause
        });
    }

    /// The page now; where it fails there is none of the server's side.
    fn page(&mut self, limit: Duration) -> Option<Exposition> {
        let scraper = self.scraper.as_mut().ok()?;
        match scraper.scrape(limit) {
            Ok(page) => Some(page),
            Err(failure) => {
                self.scraper = Err(format!("{}: {failure}", scraper.path()));
                None
            }
        }
    }

    fn end(mut self, is_interrupted: bool) -> Result<ServerSide, String> {
        let after = self.page(if is_interrupted { HASTE } else { PATIENCE });
        let scraper = self.scraper?;
        let (Some(before), Some(after)) = (&self.before, &after) else {
            unreachable!("a page that fails takes the scraper away");
        };
        ServerSide::of(&Pages {
            before,
            between: &self.between,
            after,
            path: scraper.path(),
        })
    }
}
