//! One arm of one round: fresh server, probe, warm-up, measurement, clean stop.
//!
//! CPU time is read right before and after the measuring run and divided by all its good answers,
//! so it includes opening the connections of that run. What goes wrong with a server is the text
//! of an invalid round, not an error of the bench.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::Error;
use crate::ledger::{
    ArmRecord, CellRecord, EngagementRecord, LoadRecord, OpenRecord, RoundRecord, Workload,
    hexadecimal, sha256_hex,
};
use crate::load::{
    self, EventFeed, Exchange, Expectation, ExpectedBody, LatencySummary, LoadPlan, LoadReport,
    OpenLoop, Outcome, Pace, RequestTemplate, ResponseDigest, Stop, Trust, WebSocketEcho,
    parse_target,
};
use crate::machine::{Placement, Watch, process_usage};

use super::background::{Measured, beside};
use super::client;
use super::coded::decode;
use super::content;
use super::exchange::{get_and_hold, get_body, get_counter};
use super::plan::{Matrix, StopSignal};
use super::printed;
use super::programs::Config;
use super::reload::{self, Application, first_line};
use super::server::Server;

/// Far above any answer of a healthy server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Length from which of the bodies of a file a sample is compared: sixteen receive buffers. Below,
/// most of what an answer costs the client is not the copy of its body.
const SAMPLED_BYTES: usize = 1024 * 1024;

/// Of each connection every so many answers is in that sample: 1/32 of the copies remain.
const SAMPLE: NonZeroU32 = NonZeroU32::new(32).expect("it is not zero");

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
    ///
    /// # Errors
    ///
    /// A file that cannot be written, an application without the line that saves change.
    pub(super) fn prepare(&mut self, cell: &CellRecord) -> Result<(), Error> {
        self.check_applications(cell)?;
        let file = (cell.workload.as_ref()).and_then(|workload| workload.file.as_ref());
        self.content = file
            .map(|file| content::write(self.folder.path(), file))
            .transpose()?;
        Ok(())
    }

    fn check_applications(&self, cell: &CellRecord) -> Result<(), Error> {
        let Some(saves) = &cell.reload else {
            return Ok(());
        };
        let line = first_line(&saves.constant);
        for arm in &cell.arms {
            let config = self.configs.get(&arm.program);
            if !config.is_some_and(|config| config.template().contains(&line)) {
                return Err(Error::Matrix {
                    item: cell.id.clone(),
                    problem: format!(
                        "the config of {} has no line `{}` that a save could change",
                        arm.program,
                        line.trim_end()
                    ),
                });
            }
        }
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
        let mut plan = self.plan(cell.connections, workload, arm, &server)?;
        plan.stop = Stop::Duration(Duration::from_millis(cell.measure_ms));
        if let Some(rate) = cell.offered_rate {
            plan.pace = Pace::Open(OpenLoop::constant(rate.value()));
        }
        let probed = match probe(&plan, workload, &server) {
            Ok(found) => found,
            Err(reason) => return Ok(Some(reason)),
        };
        let Probed { digest, coded } = probed;
        let body = digest.body_sha256;
        result.probe_body_sha256 = Some(hexadecimal(&body));
        // From here on every body is compared, so errors and other work cannot count. Bytes where
        // they are at hand: hashing a large body costs more than all that is measured. Of files so
        // large that the client would be the limit, a sample; each has its length and status.
        plan.expect.body = match (&plan.exchange, coded, &self.content, &workload.file) {
            // Messages and events are compared with what was sent.
            (Exchange::Echo(_) | Exchange::Feed(_), ..) => None,
            (_, Some(coded), ..) => Some(ExpectedBody::Bytes(coded)),
            (_, _, Some(content), Some(_)) if content.len() >= SAMPLED_BYTES => {
                Some(ExpectedBody::Sampled {
                    bytes: content.clone(),
                    every: SAMPLE,
                })
            }
            (_, _, Some(content), Some(_)) => Some(ExpectedBody::Bytes(content.clone())),
            _ => Some(ExpectedBody::Sha256(body)),
        };

        let background = match self.background_plan(cell, arm, &server)? {
            Ok(plan) => plan,
            Err(reason) => return Ok(Some(reason)),
        };
        let warm = WarmServer {
            cell,
            arm,
            server: &server,
            plan: &plan,
            body_bytes: digest.body_len,
        };
        match beside(background, || self.loaded(&warm, result, stop_flag))? {
            Ok(((), Some(report))) => {
                result.background = Some(load_record(&report));
                // It was for both, and nobody knows how much for which.
                result.server_cpu_ns = None;
                result.client_cpu_ns = both_clients(result, &report);
            }
            Ok(((), None)) => {}
            Err(reason) => return Ok(Some(reason)),
        }
        for name in &arm.counters {
            match get_counter(server.address(), METRICS_PATH, name) {
                Ok(count) => {
                    result.counters.insert(name.clone(), count);
                }
                Err(error) => return Ok(Some(format!("cannot read {name}: {error}"))),
            }
        }
        Ok(match probe(&plan, workload, &server) {
            Ok(again) if again.digest.body_sha256 == body => self.stop(arm, server).err(),
            Ok(_) => Some(String::from("the body changed during the round")),
            Err(reason) => Some(format!("after the load: {reason}")),
        })
    }

    /// The loop beside the measured one, held to the body that the server sends now.
    fn background_plan(
        &self,
        cell: &CellRecord,
        arm: &ArmRecord,
        server: &Server,
    ) -> Measured<Option<LoadPlan>> {
        let Some(background) = &cell.background else {
            return Ok(Ok(None));
        };
        let workload = &background.workload;
        let mut plan = self.plan(background.connections, workload, arm, server)?;
        Ok(probe(&plan, workload, server)
            .map(|found| {
                plan.expect.body = Some(ExpectedBody::Sha256(found.digest.body_sha256));
                Some(plan)
            })
            .map_err(|reason| format!("background: {reason}")))
    }

    /// Warms a probed server up and measures it; returns why the round is invalid.
    fn loaded(
        &self,
        warm: &WarmServer<'_>,
        result: &mut RoundRecord,
        stop_flag: &AtomicBool,
    ) -> Measured<()> {
        let WarmServer {
            cell, arm, server, ..
        } = *warm;
        if cell.warm_up_ms > 0 {
            let plan = LoadPlan {
                stop: Stop::Duration(Duration::from_millis(cell.warm_up_ms)),
                ..warm.plan.clone()
            };
            let warm_up = load::run(&plan, stop_flag)?;
            if let Some(reason) = errors(&warm_up, cell.connections) {
                return Ok(Err(format!("warm-up: {reason}")));
            }
        }
        let counter = || read_counter(arm, server);
        let counted_before = match counter() {
            Ok(count) => count,
            Err(reason) => return Ok(Err(reason)),
        };
        let answers = match self.measured(warm, result, stop_flag)? {
            Ok(answers) => answers,
            Err(reason) => return Ok(Err(reason)),
        };
        Ok(counter().map(|counted| {
            result.engagement = engagement(arm, counted_before, counted, answers);
        }))
    }

    /// Loads a warm server for the measured time; returns how many answers it gave, or why the round
    /// is invalid.
    fn measured(
        &self,
        warm: &WarmServer<'_>,
        result: &mut RoundRecord,
        stop_flag: &AtomicBool,
    ) -> Measured<u64> {
        let WarmServer {
            cell, arm, server, ..
        } = *warm;
        let watch = Watch::start();
        let before = process_usage(server.pid());
        let loaded = match &arm.client {
            None => own_load(warm.plan, stop_flag)?,
            Some(client) => {
                let path = arm.workload(cell).map_or("/", |workload| &workload.path);
                let url = format!("http://{}{path}", server.address());
                let (folder, cpu) = (self.folder.path(), self.placement.client_cpu);
                match client::measure(client, &url, cell, folder, cpu) {
                    Ok(loaded) => loaded,
                    Err(reason) => return Ok(Err(reason)),
                }
            }
        };
        let after = process_usage(server.pid());
        result.fixture = watch.stop();
        if let (Some(fixture), Some(_)) = (&mut result.fixture, &arm.client) {
            // It has ended, and took its time along.
            let foreign_ns = fixture.foreign_ns;
            fixture.foreign_ns = foreign_ns.map(|ns| ns.saturating_sub(loaded.client_cpu_ns));
        }
        result.rss_before_bytes = before.rss_bytes;
        result.server_cpu_ns = after.cpu_ns_since(&before);
        result.client_cpu_ns = Some(loaded.client_cpu_ns);
        result.rss_bytes = after.rss_bytes;
        result.peak_rss_bytes = after.peak_rss_bytes;
        result.load = Some(LoadRecord {
            body_bytes: Some(warm.body_bytes),
            ..loaded.load
        });
        Ok(loaded.errors.map_or(Ok(loaded.answers), Err))
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

    /// Saves the application of a development server again and again; returns why the round is
    /// invalid.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], and a folder that cannot be made.
    pub(super) fn reload_round(
        &self,
        cell: &CellRecord,
        arm: usize,
        result: &mut RoundRecord,
        stop_flag: &AtomicBool,
    ) -> Result<Option<String>, Error> {
        let arm = &cell.arms[arm];
        let config = self.configs.get(&arm.program);
        let (Some(saves), Some(workload), Some(config)) = (&cell.reload, &cell.workload, config)
        else {
            return Ok(Some(String::from("nothing to save")));
        };
        let parent = self.folder.path();
        let folder = (tempfile::Builder::new().prefix("application-"))
            .tempdir_in(parent)
            .map_err(Error::file("create", parent))?;
        let template = config.template();
        let mut application = Application::new(folder.path(), config.name(), template, saves);
        if let Err(error) = application.save("0") {
            return Ok(Some(format!("cannot write its application: {error}")));
        }
        let places = (folder.path(), self.log());
        let started = Server::start(&arm.command, None, places, self.placement.server_cpu);
        let started = started.and_then(|mut server| {
            let time = server.wait_until_it_answers(&workload.path)?;
            Ok((server, time))
        });
        let (server, time) = match started {
            Ok(started) => started,
            Err(reason) => return Ok(Some(reason)),
        };
        result.start_ns = u64::try_from(time.as_nanos()).ok();
        let watch = Watch::start();
        let target = (server.address(), &*workload.path);
        let measured = reload::measure(&mut application, target, stop_flag)?;
        result.fixture = watch.stop();
        Ok(match measured {
            Ok(record) => {
                result.reload = Some(record);
                self.stop(arm, server).err()
            }
            Err(reason) => Some(reason),
        })
    }

    /// Runs a program that measures something itself and prints the mean nanoseconds of one call;
    /// returns why the round is invalid.
    pub(super) fn printed_round(
        &self,
        cell: &CellRecord,
        arm: usize,
        result: &mut RoundRecord,
    ) -> Option<String> {
        let command = &cell.arms[arm].command;
        match printed::measure(command, self.folder.path(), self.placement.server_cpu) {
            Ok(mean) => {
                result.ns_per_op = Some(mean);
                None
            }
            Err(reason) => Some(reason),
        }
    }

    fn start(&self, arm: &ArmRecord) -> Result<Server, String> {
        let config = self.configs.get(&arm.program);
        let cpu = self.placement.server_cpu;
        let places = (self.folder.path(), self.log());
        Server::start(&arm.command, config, places, cpu)
    }

    /// Where the servers' standard error goes: not into a folder that one of them watches.
    fn log(&self) -> PathBuf {
        self.folder.path().join("server-stderr")
    }

    fn stop(&self, arm: &ArmRecord, server: Server) -> Result<(), String> {
        let signal = self.stop_signals.get(&arm.program).copied();
        server.stop(signal.unwrap_or_default())
    }

    fn plan(
        &self,
        connections: u32,
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
            connections: connections as usize,
            request_timeout: REQUEST_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            expect: Expectation {
                status: Some(workload.expect_status),
                body: None,
            },
            exchange,
            cpus: self.placement.client_cpu.map(|cpu| vec![cpu]),
            ..LoadPlan::new(target, vec![request])
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
    answers: u64,
) -> Option<EngagementRecord> {
    Some(EngagementRecord {
        counter: arm.engagement.clone()?,
        // A counter that fell belongs to a server that was restarted, which no count makes good.
        counted: after?.saturating_sub(before?),
        answers,
    })
}

/// A server that has been probed and warmed up, and what it is to be loaded with.
struct WarmServer<'a> {
    cell: &'a CellRecord,
    arm: &'a ArmRecord,
    server: &'a Server,
    plan: &'a LoadPlan,
    /// Length of the body of each answer.
    body_bytes: u64,
}

/// What a client did in the measured interval.
pub(super) struct Loaded {
    pub(super) load: LoadRecord,
    /// CPU time of the client.
    pub(super) client_cpu_ns: u64,
    /// Whole answers, good or not.
    pub(super) answers: u64,
    /// Why the round cannot be used.
    pub(super) errors: Option<String>,
}

/// CPU time of both loops in the measured window: the background's is taken to be even over its
/// longer one.
fn both_clients(result: &RoundRecord, background: &LoadReport) -> Option<u64> {
    let window_ns = result.load.as_ref()?.window_ns?;
    let share = window_ns as f64 / background.window_ns? as f64;
    let beside = background.client_cpu_ns as f64 * share;
    Some(result.client_cpu_ns? + beside as u64)
}

/// Loads the server with the bench's own engine.
fn own_load(plan: &LoadPlan, stop_flag: &AtomicBool) -> Result<Loaded, Error> {
    let report = load::run(plan, stop_flag)?;
    if report.interrupted {
        return Err(Error::Interrupted);
    }
    let connections = u32::try_from(plan.connections).unwrap_or(u32::MAX);
    Ok(Loaded {
        load: load_record(&report),
        client_cpu_ns: report.client_cpu_ns,
        answers: report.outcomes.responses(),
        errors: unusable(&report, connections),
    })
}

/// Why a report cannot be used: it contradicts itself, or its outcomes are not those of a good run.
pub(super) fn unusable(report: &LoadReport, connections: u32) -> Option<String> {
    match report.check_invariants() {
        Err(error) => Some(error.to_string()),
        Ok(()) => errors(report, connections),
    }
}

/// What is wrong with the outcomes of a run; aborted at its end is what every run has.
///
/// Where an open loop was not kept, the ratio of what was achieved says so.
pub(super) fn errors(report: &LoadReport, connections: u32) -> Option<String> {
    let is_open = report.open_loop.is_some();
    let bad: Vec<String> = report
        .outcomes
        .iter()
        .filter(|(outcome, count)| match outcome {
            Outcome::Ok => false,
            Outcome::AbortedAtDeadline | Outcome::NotSent => {
                !is_open && *count > u64::from(connections)
            }
            _ => *count > 0,
        })
        .map(|(outcome, count)| format!("{count} {outcome}"))
        .collect();
    if !bad.is_empty() {
        return Some(bad.join(", "));
    }
    (report.outcomes.get(Outcome::Ok) == 0).then(|| String::from("no good answer"))
}

fn load_record(report: &LoadReport) -> LoadRecord {
    LoadRecord {
        window_ns: report.window_ns,
        attempts: report.attempts,
        ok: report.outcomes.get(Outcome::Ok),
        outcomes: (report.outcomes.iter())
            .filter(|(_, count)| *count > 0)
            .map(|(outcome, count)| (outcome.name().to_owned(), count))
            .collect(),
        latency_ns: percentiles(report.shown_latency()),
        body_bytes: None,
        bodies_compared: report.bodies_compared,
        open: (report.open_loop.as_ref()).map(|open| OpenRecord {
            due: report.attempts,
            answered: report.outcomes.responses(),
            lateness_ns: percentiles(&open.lateness),
        }),
        client: None,
    }
}

/// A summary by the names of the record.
fn percentiles(times: &LatencySummary) -> BTreeMap<String, Option<u64>> {
    let named = [
        ("min", times.min_ns),
        ("p50", times.p50_ns),
        ("p90", times.p90_ns),
        ("p95", times.p95_ns),
        ("p99", times.p99_ns),
        ("p99_9", times.p99_9_ns),
        ("max", times.max_ns),
    ];
    named.map(|(name, ns)| (name.to_owned(), ns)).into()
}
