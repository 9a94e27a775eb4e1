//! One arm of one round: fresh server, probe, warm-up, measurement, clean stop.
//!
//! CPU time is read right before and after the measuring run and divided by all its good answers,
//! so it includes opening the connections of that run. What goes wrong with a server is the text
//! of an invalid round, not an error of the bench.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::Error;
use crate::ledger::{
    ArmRecord, CellRecord, EngagementRecord, LoadRecord, RoundRecord, Workload, hexadecimal,
    sha256_hex,
};
use crate::load::{
    self, EventFeed, Exchange, Expectation, ExpectedBody, LoadPlan, LoadReport, Outcome,
    RequestTemplate, ResponseDigest, Stop, Trust, WebSocketEcho, parse_target,
};
use crate::machine::{Placement, process_usage};

use super::coded::decode;
use super::content;
use super::exchange::{get_and_hold, get_body, get_counter};
use super::plan::{Matrix, StopSignal};
use super::programs::Config;
use super::server::Server;

/// Far above any answer of a healthy server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where servers show their counters.
const METRICS_PATH: &str = "/metrics";

/// Where rounds run: CPUs, and a folder with a self-signed certificate, configurations and files.
#[derive(Debug)]
pub(super) struct Bench {
    placement: Placement,
    folder: tempfile::TempDir,
    /// Configurations by program name.
    configs: BTreeMap<String, Config>,
    /// What ends them, by program name.
    stop_signals: BTreeMap<String, StopSignal>,
    /// Content of the current cell's file.
    content: Option<Vec<u8>>,
}

impl Bench {
    pub(super) fn new(placement: Placement, matrix: &Matrix, root: &Path) -> Result<Self, Error> {
        let mut configs = BTreeMap::new();
        for (name, program) in &matrix.programs {
            if let Some(config) = Config::read(program, root)? {
                configs.insert(name.clone(), config);
            }
        }
        let folder = tempfile::tempdir().map_err(Error::file("create", std::env::temp_dir()))?;
        let names = [String::from("localhost"), String::from("127.0.0.1")];
        let certified = rcgen::generate_simple_self_signed(names)?;
        for (name, pem) in [
            ("cert.pem", certified.cert.pem()),
            ("key.pem", certified.signing_key.serialize_pem()),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, pem).map_err(Error::file("write", path))?;
        }
        Ok(Self {
            placement,
            folder,
            configs,
            stop_signals: (matrix.programs.iter())
                .map(|(name, program)| (name.clone(), program.stop_signal))
                .collect(),
            content: None,
        })
    }

    /// Makes the file of a cell; the rounds that follow are of that cell.
    pub(super) fn prepare(&mut self, cell: &CellRecord) -> Result<(), Error> {
        let file = (cell.workload.as_ref()).and_then(|workload| workload.file.as_ref());
        self.content = file
            .map(|file| content::write(self.folder.path(), file))
            .transpose()?;
        Ok(())
    }

    /// Measures a running server under load; returns why the round is invalid.
    ///
    /// # Errors
    ///
    /// A plan that the load engine refuses, and [`Error::Interrupted`].
    pub(super) fn load_round(
        &self,
        cell: &CellRecord,
        arm: usize,
        result: &mut RoundRecord,
        stop_flag: &AtomicBool,
    ) -> Result<Option<String>, Error> {
        let arm = &cell.arms[arm];
        let Some(workload) = arm.workload(cell) else {
            return Ok(Some(String::from("no workload")));
        };
        let mut server = match self.start(arm) {
            Ok(server) => server,
            Err(reason) => return Ok(Some(reason)),
        };
        if let Err(reason) = server.wait_until_it_accepts() {
            return Ok(Some(reason));
        }
        let mut plan = self.plan(cell, workload, arm, &server)?;
        let probed = match probe(&plan, workload, &server) {
            Ok(found) => found,
            Err(reason) => return Ok(Some(reason)),
        };
        let Probed { digest, coded } = probed;
        let body = digest.body_sha256;
        result.probe_body_sha256 = Some(hexadecimal(&body));
        // From here on every body is compared, so errors and other work cannot count. Bytes where
        // they are at hand: hashing a large body costs more than all that is measured.
        plan.expect.body = match (&plan.exchange, coded, &self.content, &workload.file) {
            // Messages and events are compared with what was sent.
            (Exchange::Echo(_) | Exchange::Feed(_), ..) => None,
            (_, Some(coded), ..) => Some(ExpectedBody::Bytes(coded)),
            (_, _, Some(content), Some(_)) => Some(ExpectedBody::Bytes(content.clone())),
            _ => Some(ExpectedBody::Sha256(body)),
        };

        if cell.warm_up_ms > 0 {
            plan.stop = Stop::Duration(Duration::from_millis(cell.warm_up_ms));
            let warm_up = load::run(&plan, stop_flag)?;
            if let Some(reason) = errors(&warm_up, cell.connections) {
                return Ok(Some(format!("warm-up: {reason}")));
            }
        }
        plan.stop = Stop::Duration(Duration::from_millis(cell.measure_ms));
        let counter = || read_counter(arm, &server);
        let counted_before = match counter() {
            Ok(count) => count,
            Err(reason) => return Ok(Some(reason)),
        };
        let before = process_usage(server.pid());
        let report = load::run(&plan, stop_flag)?;
        let after = process_usage(server.pid());
        if report.interrupted {
            return Err(Error::Interrupted);
        }
        report.check_invariants()?;
        result.load = Some(load_record(&report, digest.body_len));
        result.rss_before_bytes = before.rss_bytes;
        result.server_cpu_ns = after.cpu_ns_since(&before);
        result.client_cpu_ns = Some(report.client_cpu_ns);
        result.rss_bytes = after.rss_bytes;
        result.peak_rss_bytes = after.peak_rss_bytes;
        if let Some(reason) = errors(&report, cell.connections) {
            return Ok(Some(reason));
        }
        match counter() {
            Ok(counted) => {
                result.engagement = engagement(arm, counted_before, counted, &report);
            }
            Err(reason) => return Ok(Some(reason)),
        }
        Ok(match probe(&plan, workload, &server) {
            Ok(again) if again.digest.body_sha256 == body => self.stop(arm, server).err(),
            Ok(_) => Some(String::from("the body changed during the round")),
            Err(reason) => Some(format!("after the load: {reason}")),
        })
    }

    /// Measures the time to the first answer, and memory; returns why the round is invalid.
    pub(super) fn start_round(
        &self,
        cell: &CellRecord,
        arm: usize,
        result: &mut RoundRecord,
    ) -> Option<String> {
        self.try_start_round(cell, &cell.arms[arm], result).err()
    }

    fn try_start_round(
        &self,
        cell: &CellRecord,
        arm: &ArmRecord,
        result: &mut RoundRecord,
    ) -> Result<(), String> {
        let workload = cell.workload.as_ref().ok_or("no workload")?;
        let mut server = self.start(arm)?;
        let time = server.wait_until_it_answers(&workload.path)?;
        result.start_ns = u64::try_from(time.as_nanos()).ok();
        result.idle_rss_bytes = process_usage(server.pid()).rss_bytes;
        let held = (0..cell.connections)
            .map(|_| get_and_hold(server.address(), &workload.path))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("cannot hold {} connections: {error}", cell.connections))?;
        let usage = process_usage(server.pid());
        result.held_rss_bytes = usage.rss_bytes;
        result.peak_rss_bytes = usage.peak_rss_bytes;
        drop(held);
        self.stop(arm, server)
    }

    fn start(&self, arm: &ArmRecord) -> Result<Server, String> {
        let config = self.configs.get(&arm.program);
        let cpu = self.placement.server_cpu;
        Server::start(&arm.command, config, self.folder.path(), cpu)
    }

    fn stop(&self, arm: &ArmRecord, server: Server) -> Result<(), String> {
        let signal = self.stop_signals.get(&arm.program).copied();
        server.stop(signal.unwrap_or_default())
    }

    fn plan(
        &self,
        cell: &CellRecord,
        workload: &Workload,
        arm: &ArmRecord,
        server: &Server,
    ) -> Result<LoadPlan, Error> {
        let scheme = if arm.tls { "https" } else { "http" };
        let url = format!("{scheme}://{}{}", server.address(), workload.path);
        let (target, path) = parse_target(&url, Some(&Trust::Insecure))?;
        let mut headers: Vec<(String, String)> = (workload.headers.iter())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let length = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let exchange = match (&workload.echo, &workload.feed) {
            (Some(echo), _) => {
                let echo = WebSocketEcho::new(echo.text, length(echo.bytes));
                headers.extend(echo.headers());
                Exchange::Echo(echo)
            }
            (None, Some(feed)) => {
                Exchange::Feed(EventFeed::new(&target, &feed.path, length(feed.bytes))?)
            }
            (None, None) => Exchange::Requests,
        };
        let body = workload.body.as_deref().unwrap_or_default().as_bytes();
        let method = &workload.method;
        let request = RequestTemplate::serialise(&target, method, &path, &headers, body, true)?;
        Ok(LoadPlan {
            target,
            requests: vec![request],
            connections: cell.connections as usize,
            threads: 1,
            stop: Stop::Requests(1),
            warm_up: Duration::ZERO,
            request_timeout: REQUEST_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            keep_alive: true,
            expect: Expectation {
                status: Some(workload.expect_status),
                body: None,
            },
            exchange,
            cpus: self.placement.client_cpu.map(|cpu| vec![cpu]),
        })
    }
}

/// An answer that is the declared one.
struct Probed {
    digest: ResponseDigest,
    /// The body as it was sent, where it has a coding.
    coded: Option<Vec<u8>>,
}

/// Asks once and describes the body if the answer is the declared one.
fn probe(plan: &LoadPlan, workload: &Workload, server: &Server) -> Result<Probed, String> {
    let digest = load::probe(plan).map_err(|error| error.to_string())?;
    if digest.status != workload.expect_status {
        return Err(format!(
            "status {} instead of {}",
            digest.status, workload.expect_status
        ));
    }
    let mut found = hexadecimal(&digest.body_sha256);
    let mut coded = None;
    if let Some(coding) = workload.coding {
        let answer = get_body(server.address(), &workload.path, &workload.headers)
            .map_err(|error| error.to_string())?;
        if sha256_hex(&answer.body) != found {
            return Err(String::from(
                "two answers have different codings of the body",
            ));
        }
        let decoded = decode(coding, &answer).map_err(|error| error.to_string())?;
        found = sha256_hex(&decoded);
        coded = Some(answer.body);
    }
    match &workload.expect_body_sha256 {
        Some(expected) if *expected != found => Err(format!(
            "another body than declared: {} bytes, sha256 {found}",
            digest.body_len
        )),
        _ => Ok(Probed { digest, coded }),
    }
}

/// The counter that the arm claims, as the server shows it now; `None` if it claims none.
fn read_counter(arm: &ArmRecord, server: &Server) -> Result<Option<u64>, String> {
    let Some(name) = &arm.engagement else {
        return Ok(None);
    };
    get_counter(server.address(), METRICS_PATH, name)
        .map(Some)
        .map_err(|error| format!("cannot read {name}: {error}"))
}

fn engagement(
    arm: &ArmRecord,
    before: Option<u64>,
    after: Option<u64>,
    report: &LoadReport,
) -> Option<EngagementRecord> {
    Some(EngagementRecord {
        counter: arm.engagement.clone()?,
        // A counter that fell belongs to a server that was restarted, which no count makes good.
        counted: after?.saturating_sub(before?),
        answers: report.outcomes.responses(),
    })
}

/// What is wrong with the outcomes of a run; aborted at its end is what every run has.
fn errors(report: &LoadReport, connections: u32) -> Option<String> {
    let bad: Vec<String> = report
        .outcomes
        .iter()
        .filter(|(outcome, count)| match outcome {
            Outcome::Ok => false,
            Outcome::AbortedAtDeadline | Outcome::NotSent => *count > u64::from(connections),
            _ => *count > 0,
        })
        .map(|(outcome, count)| format!("{count} {outcome}"))
        .collect();
    if !bad.is_empty() {
        return Some(bad.join(", "));
    }
    (report.outcomes.get(Outcome::Ok) == 0).then(|| String::from("no good answer"))
}

fn load_record(report: &LoadReport, body_bytes: u64) -> LoadRecord {
    let latency = &report.latency;
    let latencies = [
        ("min", latency.min_ns),
        ("p50", latency.p50_ns),
        ("p90", latency.p90_ns),
        ("p95", latency.p95_ns),
        ("p99", latency.p99_ns),
        ("p99_9", latency.p99_9_ns),
        ("max", latency.max_ns),
    ];
    LoadRecord {
        window_ns: report.window_ns,
        attempts: report.attempts,
        ok: report.outcomes.get(Outcome::Ok),
        outcomes: (report.outcomes.iter())
            .filter(|(_, count)| *count > 0)
            .map(|(outcome, count)| (outcome.name().to_owned(), count))
            .collect(),
        latency_ns: latencies.map(|(name, ns)| (name.to_owned(), ns)).into(),
        body_bytes: Some(body_bytes),
    }
}
