//! The report of a profile: data alone, of which text, JSON and page are forms.
//!
//! Guarantee: what was not seen is `None` beside its reason, and every form shows the same numbers.
//! The fields of the JSON document are described in `docs/profiling.md`; [`VERSION`] grows when one
//! changes its meaning or goes.

use std::fs;

use serde::Serialize;

use super::counters::{RouteCounters, ServerSide};
use super::measure::{Measured, Sides};
use crate::load::{LatencySummary, LoadReport, ResponseDigest};
use crate::machine::{Machine, ProcessUsage};

/// Version of the JSON document.
const VERSION: u32 = 1;

/// Share of the answers that the server must have counted on the route, and may have beyond.
const TOLERANCE: f64 = 0.01;

/// A whole profile.
#[derive(Debug, Clone, Serialize)]
pub struct ProfileReport {
    v: u32,
    /// Version of justapi that measured.
    pub justapi: &'static str,
    /// Where the requests went.
    pub url: String,
    /// What was started for the profile; `null` for a server that ran already.
    pub application: Option<Application>,
    /// What was sent.
    pub request: RequestSummary,
    /// The machine of the client.
    pub machine: Machine,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// How the server was lost, if it was.
    pub server_lost: Option<String>,
    /// The routes, in the order of the command line.
    pub routes: Vec<RouteProfile>,
    /// Paths to which it did not come.
    pub not_measured: Vec<String>,
}

/// What was started for the profile.
#[derive(Debug, Clone, Serialize)]
pub struct Application {
    /// As it was named: `module:attribute`, a file; or what is served without one.
    pub name: String,
    /// Process id of the server.
    pub pid: u32,
}

/// What all routes have in common.
#[derive(Debug, Clone, Serialize)]
pub struct RequestSummary {
    /// Method.
    pub method: String,
    /// Names of the header fields given; values may be secret.
    pub headers: Vec<String>,
    /// Length of the body.
    pub body_bytes: u64,
    /// Measured time of each route asked for, in nanoseconds.
    pub duration_ns: u64,
    /// Load ahead of it that is in no number, in nanoseconds.
    pub warm_up_ns: u64,
    /// Connections.
    pub connections: usize,
    /// Whether a connection is used again.
    pub keep_alive: bool,
    /// Requests offered per second; `null` in a closed loop.
    pub rate: Option<f64>,
}

/// One route, seen from three sides.
#[derive(Debug, Clone, Serialize)]
pub struct RouteProfile {
    /// Path that was asked for, with its query.
    pub path: String,
    /// The answer to the request before the load.
    pub probe: ResponseDigest,
    /// What the client saw.
    pub load: LoadReport,
    /// Bytes read by the client for each whole response.
    pub bytes_per_response: Option<f64>,
    /// What the server counted.
    pub server: Option<ServerSide>,
    /// Why that is missing.
    pub server_missing: Option<String>,
    /// Mean time of a request in the server, in nanoseconds.
    pub in_server_mean_ns: Option<f64>,
    /// Mean time of a request anywhere else: queues, kernel, network, client.
    pub elsewhere_mean_ns: Option<f64>,
    /// What it cost the processes of the server.
    pub process: Option<ProcessCost>,
    /// Why that is missing.
    pub process_missing: Option<String>,
    /// What a reader could take wrongly.
    pub notes: Vec<String>,
}

/// What a load cost a tree of processes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessCost {
    /// Root of the tree.
    pub pid: u32,
    /// Its program, as the kernel names it.
    pub program: Option<String>,
    /// Processes of the tree at the end.
    pub num_processes: usize,
    /// CPU time of the tree, user and system, in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// CPU time over whole responses, in nanoseconds.
    pub cpu_ns_per_response: Option<f64>,
    /// CPU time over the time of the load: busy processors.
    pub busy_cpus: Option<f64>,
    /// Resident memory at the end, summed over the tree.
    pub rss_bytes: Option<u64>,
    /// Resident memory before the load.
    pub rss_before_bytes: Option<u64>,
    /// Highest resident memory of each process since its start, summed.
    pub peak_rss_bytes: Option<u64>,
}

impl ProfileReport {
    /// A report without routes.
    pub fn new(
        url: String,
        application: Option<Application>,
        request: RequestSummary,
        machine: Machine,
    ) -> Self {
        Self {
            v: VERSION,
            justapi: env!("CARGO_PKG_VERSION"),
            url,
            application,
            request,
            machine,
            interrupted: false,
            server_lost: None,
            routes: Vec::new(),
            not_measured: Vec::new(),
        }
    }
}

impl RouteProfile {
    /// Puts the sides of one load together.
    pub fn new(path: String, probe: ResponseDigest, measured: Measured) -> Self {
        let Sides {
            load,
            server,
            process,
        } = measured.0;
        let responses = load.outcomes.responses();
        let (server, server_missing) = apart(server);
        let (process, process_missing) = apart(process);
        let mut profile = Self {
            path,
            probe,
            bytes_per_response: (responses > 0).then(|| load.bytes_read as f64 / responses as f64),
            load,
            server,
            server_missing,
            in_server_mean_ns: None,
            elsewhere_mean_ns: None,
            process,
            process_missing,
            notes: Vec::new(),
        };
        let time = profile.route().and_then(|route| route.time.as_ref());
        profile.in_server_mean_ns = time.and_then(|time| time.mean_ns);
        profile.elsewhere_mean_ns = (client_mean_ns(&profile.load))
            .zip(profile.in_server_mean_ns)
            .map(|(client, server)| client - server)
            .filter(|elsewhere| *elsewhere >= 0.0);
        profile.notes = profile.find_notes();
        profile
    }

    /// The route that the server counted our requests on, by its own name.
    pub fn route(&self) -> Option<&RouteCounters> {
        self.server.as_ref()?.routes.first()
    }

    fn find_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let responses = self.load.outcomes.responses();
        // What was in flight at the end of the warm-up is answered in the measured part.
        let sent = self.load.attempts + self.load.resent + self.load.connections as u64;
        if let (Some(server), true) = (&self.server, responses > 0) {
            let counted = server.requests();
            let on_route = self.route().map_or(0, |route| route.requests);
            if (counted as f64) < responses as f64 * (1.0 - TOLERANCE) {
                notes.push(format!(
                    "the server counted {counted} of {responses} answers: its page is that of one \
                     of several processes, and stands for the others"
                ));
            } else if counted as f64 > sent as f64 * (1.0 + TOLERANCE) {
                notes.push(format!(
                    "the server answered {counted} requests, of which at most {sent} are ours: \
                     somebody else asked it, too"
                ));
            } else if (on_route as f64) < counted as f64 * (1.0 - TOLERANCE) {
                notes.push(format!(
                    "{} of {counted} requests were answered on other routes",
                    counted - on_route
                ));
            }
        }
        let errors = self.load.errors();
        if errors > 0 {
            notes.push(format!(
                "{errors} of {} attempts failed; the latencies are those of the others",
                self.load.attempts
            ));
        }
        if self.load.client_bound {
            notes
                .push("the client may be the limit: offer less, or give it `--threads`".to_owned());
        }
        if let Some(cost) = &self.process
            && cost.cpu_ns.is_none()
        {
            notes.push(
                "a process of the server ended meanwhile and took its CPU time along".to_owned(),
            );
        }
        match self.load.oldest_aborted_ns {
            Some(age) if Some(age) > self.load.latency.max_ns => notes.push(format!(
                "the oldest request in flight at the stop was {} old: the true maximum is unknown",
                crate::load::show_time(Some(age))
            )),
            _ => {}
        }
        notes
    }
}

impl ProcessCost {
    pub(super) fn between(
        pid: u32,
        before: &ProcessUsage,
        after: &ProcessUsage,
        load: &LoadReport,
    ) -> Result<Self, String> {
        if after.num_processes() == 0 {
            return Err(format!("process {pid} has ended"));
        }
        let cpu_ns = after.cpu_ns_since(before);
        let over = |count: u64| {
            cpu_ns
                .filter(|_| count > 0)
                .map(|cpu| cpu as f64 / count as f64)
        };
        Ok(Self {
            pid,
            program: program(pid),
            num_processes: after.num_processes(),
            cpu_ns,
            cpu_ns_per_response: over(load.outcomes.responses()),
            busy_cpus: load.window_ns.and_then(over),
            rss_bytes: after.rss_bytes,
            rss_before_bytes: before.rss_bytes,
            peak_rss_bytes: after.peak_rss_bytes,
        })
    }
}

/// Name of a program, without its arguments: those may be secret.
fn program(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_owned())
}

/// Mean over all whole responses, as the server's is.
fn client_mean_ns(load: &LoadReport) -> Option<f64> {
    let sum = |summary: &LatencySummary| {
        let mean = summary.mean_ns.unwrap_or(0.0);
        mean * summary.count as f64
    };
    let count = load.latency.count + load.latency_error.count;
    (count > 0).then(|| (sum(&load.latency) + sum(&load.latency_error)) / count as f64)
}

fn apart<T>(side: Result<T, String>) -> (Option<T>, Option<String>) {
    match side {
        Ok(seen) => (Some(seen), None),
        Err(reason) => (None, Some(reason)),
    }
}
