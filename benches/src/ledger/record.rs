//! The record of one run: everything measured, and everything concluded from it.
//!
//! Schema version 1. Numbers are integers in base units or [`Decimal`]; what was not measured is
//! `null`. A field that came later is left out where it has no value, so that records written
//! before it keep their bytes. `rows` and `verdicts` are functions of the rest of their cell
//! ([`crate::matrix::judge`]), which is what the verifier recomputes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Decimal, Metric, ReloadRecord, Saves, ServedModel, ServingCell};
use crate::machine::Machine;
use crate::stats::IntervalMethod;

/// The schema version this code writes and reads.
pub const SCHEMA_VERSION: u32 = 1;

/// The edition of the rules that new cells are judged by; see [`crate::matrix::judge`].
pub const RULES: u32 = 4;

fn first_edition() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_first_edition(edition: &u32) -> bool {
    *edition == 1
}

/// One run of the matrix.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Version of this layout.
    pub schema_version: u32,
    /// Random part of the file name.
    pub id: String,
    /// When the run started, `2026-11-29T14:49:46Z`.
    pub recorded_utc: String,
    /// The program that wrote the record.
    pub recorded_by: String,
    /// The record before this one; `null` in the first. Set by [`append`](super::append).
    pub previous: Option<Previous>,
    /// The machine, read before the first round.
    pub machine: Machine,
    /// The source tree.
    pub source: Source,
    /// The measured programs, by arm name.
    pub programs: BTreeMap<String, Program>,
    /// The matrix file; a run of `justapi bench llm` has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix: Option<FileDigest>,
    /// Seed of the arm order and of the bootstrap.
    pub seed: u64,
    /// CPU the servers were pinned to.
    pub server_cpu: Option<usize>,
    /// CPU the load engine was pinned to.
    pub client_cpu: Option<usize>,
    /// What the machine was doing before the first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<BeforeRecord>,
    /// What this run does not show.
    pub caveats: Vec<String>,
    /// The cells, in matrix order.
    pub cells: Vec<CellRecord>,
}

/// What the machine was doing before a run, and how long it was waited for.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BeforeRecord {
    /// Runnable threads, averaged over a minute.
    pub load_average: Option<Decimal>,
    /// Time of other tenants and of other processes in the last look.
    pub fixture: Option<RoundFixture>,
    /// From the first look to the last.
    pub waited_ms: u64,
    /// What was too much, where the run went on in spite of it.
    pub overridden: Vec<String>,
}

/// The link to the record before.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Previous {
    /// File name inside `benches/results`.
    pub file: String,
    /// SHA-256 of that file, lower-case hexadecimal.
    pub sha256: String,
}

/// A file and its SHA-256.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileDigest {
    /// Path as it was given.
    pub path: String,
    /// Lower-case hexadecimal.
    pub sha256: String,
}

/// The source tree the subject was built from, as far as git knows.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Commit hash.
    pub commit: Option<String>,
    /// Whether tracked files differ from the commit.
    pub dirty: Option<bool>,
    /// Why something is missing.
    pub reason: Option<String>,
}

/// A measured program.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Path of the binary.
    pub path: String,
    /// SHA-256 of the binary.
    pub sha256: Option<String>,
    /// What its version command printed.
    pub version: Option<String>,
    /// Build profile it reports.
    pub profile: Option<String>,
    /// Locked versions of the packages it is made of.
    pub packages: BTreeMap<String, String>,
    /// Why something is missing.
    pub reason: Option<String>,
    /// Template of the configuration file that it is started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<FileDigest>,
}

/// How a cell measures.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CellKind {
    /// Closed-loop load on running servers.
    Load,
    /// Time to the first answer, and memory at rest.
    Start,
    /// A function inside the bench process.
    Micro,
    /// Requests to a model server; a round is a request.
    Serving,
    /// Saves of an application under a development server.
    Reload,
}

/// One cell: declaration, every round, and the conclusions.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CellRecord {
    /// Cell id in the matrix.
    pub id: String,
    /// How it measures.
    pub kind: CellKind,
    /// The exchange that every arm must perform the same way.
    pub workload: Option<Workload>,
    /// Connections held by the load engine.
    pub connections: u32,
    /// Requests per second that are sent whatever is answered; without it the loop is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_rate: Option<Decimal>,
    /// What else the server does from the warm-up to the end of the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
    /// What is saved while one connection after the other is probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reload: Option<Saves>,
    /// Rounds asked for.
    pub num_rounds: u32,
    /// Warm-up of each round.
    pub warm_up_ms: u64,
    /// Measured time of each round.
    pub measure_ms: u64,
    /// The arms, in matrix order.
    pub arms: Vec<ArmRecord>,
    /// The rules.
    pub targets: Vec<Target>,
    /// Edition of what judges by them, [`RULES`] in what is written today.
    #[serde(default = "first_edition", skip_serializing_if = "is_first_edition")]
    pub rules_edition: u32,
    /// Rules that failed in an earlier run, each with the file of its record: a FAIL needs two. Set
    /// by [`append`](super::append).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_before: BTreeMap<String, String>,
    /// Every round of every arm, in the order they ran.
    pub rounds: Vec<RoundRecord>,
    /// The model and every request, in place of rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serving: Option<ServingCell>,
    /// One row per arm.
    pub rows: Vec<Row>,
    /// One verdict per rule.
    pub verdicts: Vec<VerdictRow>,
}

/// A closed loop beside the measured one, on the same server.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Its exchange.
    pub workload: Workload,
    /// Its connections.
    pub connections: u32,
}

/// The exchange of a cell.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Request method.
    pub method: String,
    /// Request target.
    pub path: String,
    /// Request header fields besides `Host` and `Content-Length`.
    pub headers: BTreeMap<String, String>,
    /// Request body.
    pub body: Option<String>,
    /// Status every response must have.
    pub expect_status: u16,
    /// SHA-256 every response body must have.
    pub expect_body_sha256: Option<String>,
    /// The file that every response must hold; `expect_body_sha256` is its digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<ServedFile>,
    /// Content coding that every response must have; `expect_body_sha256` is then the digest of
    /// what it decodes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coding: Option<Coding>,
    /// Messages on the WebSocket that the request opens; each is an answer when it is back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo: Option<EchoedMessages>,
    /// Events on the streams that the request opens; each is an answer on each stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed: Option<PostedEvents>,
}

/// A content coding of RFC 9110 §8.4.1, RFC 7932 or RFC 8878.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Coding {
    /// `gzip`.
    Gzip,
    /// `br`.
    Br,
    /// `zstd`.
    Zstd,
}

impl Coding {
    /// Returns the name in `Accept-Encoding` and `Content-Encoding`.
    pub fn token(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Br => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// Messages of a WebSocket, one at a time on each connection, each with a number of its own.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EchoedMessages {
    /// Whether they are text; else they are binary.
    pub text: bool,
    /// Payload of each.
    pub bytes: u64,
}

/// Events that are posted one after the other and come on every stream.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PostedEvents {
    /// Where they are posted.
    pub path: String,
    /// Data of each.
    pub bytes: u64,
}

/// A file that the bench makes, in `{dir}/files`; its content is a function of its length, and of
/// whether its name ends in `.json`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServedFile {
    /// File name.
    pub name: String,
    /// Length.
    pub bytes: u64,
}

/// One arm of a cell.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ArmRecord {
    /// Name inside the cell.
    pub label: String,
    /// Name in `programs`.
    pub program: String,
    /// Command line, with `{port}` and `{dir}` left as they are.
    pub command: Vec<String>,
    /// Whether the client speaks TLS to it.
    pub tls: bool,
    /// The label this arm repeats, to measure the noise.
    pub same_as: Option<String>,
    /// The exchange of this arm where it is not that of the cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// The server's counter that must grow by one with each answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engagement: Option<String>,
    /// Counters of the server that each round reads at its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<String>,
    /// The client that is measured against the server, in place of the bench's own engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientRecord>,
}

/// A load client in a process of its own.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClientRecord {
    /// Name in `programs`.
    pub program: String,
    /// Command line, with `{url}`, `{connections}` and `{seconds}` left as they are.
    pub command: Vec<String>,
    /// What it prints.
    pub report: ReportForm,
}

/// What a load client prints when it ends.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportForm {
    /// The JSON of `justapi bench URL -o json`.
    Justapi,
    /// The text of `wrk --latency`.
    Wrk,
    /// The JSON of `oha --output-format json`.
    Oha,
}

impl ArmRecord {
    /// Returns the exchange of this arm: its own, or that of its cell.
    pub fn workload<'a>(&'a self, cell: &'a CellRecord) -> Option<&'a Workload> {
        self.workload.as_ref().or(cell.workload.as_ref())
    }
}

/// One round of one arm. Missing is `null`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RoundRecord {
    /// Round, from 0.
    pub round: u32,
    /// Place in the order of this round, from 0.
    pub position: u32,
    /// The arm.
    pub label: String,
    /// Why this round cannot be used.
    pub invalid: Option<String>,
    /// SHA-256 of the body seen by the probe before the load.
    pub probe_body_sha256: Option<String>,
    /// What the load engine saw.
    pub load: Option<LoadRecord>,
    /// CPU time of the server's process tree while measuring.
    pub server_cpu_ns: Option<u64>,
    /// CPU time of the load engine while measuring.
    pub client_cpu_ns: Option<u64>,
    /// Resident memory at the end of the round, still under its connections.
    pub rss_bytes: Option<u64>,
    /// Highest resident memory of the round.
    pub peak_rss_bytes: Option<u64>,
    /// From spawn to the first good answer.
    pub start_ns: Option<u64>,
    /// Resident memory after the first answer, no connection open.
    pub idle_rss_bytes: Option<u64>,
    /// Resident memory with the cell's connections open and each answered once.
    pub held_rss_bytes: Option<u64>,
    /// Mean time of one call in one batch of a micro cell.
    pub ns_per_op: Option<Decimal>,
    /// Resident memory right before the measured interval, after the warm-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_before_bytes: Option<u64>,
    /// Proof that the path that is claimed was the path taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engagement: Option<EngagementRecord>,
    /// What the load engine saw of the background, warm-up included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<LoadRecord>,
    /// Counters of the server at the end, by name; it started with the round.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    /// What was seen of the saves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reload: Option<ReloadRecord>,
    /// What else the machine did while it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixture: Option<RoundFixture>,
}

/// What else the machine did during a measured interval, in CPU time of all its CPUs.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RoundFixture {
    /// Length of the interval times the number of CPUs.
    pub capacity_ns: u64,
    /// Time that the hypervisor gave to others.
    pub steal_ns: u64,
    /// Time of processes that are neither the bench nor one of its servers; `null` when the time
    /// of those is unknown.
    pub foreign_ns: Option<u64>,
}

/// A counter of the server around the measured interval.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EngagementRecord {
    /// Name on the server's `/metrics`.
    pub counter: String,
    /// By how much it grew.
    pub counted: u64,
    /// Whole answers that the load engine received meanwhile.
    pub answers: u64,
}

/// What the load engine saw in one round.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LoadRecord {
    /// Real length of the window.
    pub window_ns: Option<u64>,
    /// Requests begun.
    pub attempts: u64,
    /// Requests answered as expected inside the window.
    pub ok: u64,
    /// Every attempt, by outcome class.
    pub outcomes: BTreeMap<String, u64>,
    /// Nearest-rank latency percentiles of good answers; of an open loop from the instant at which
    /// a request was due.
    pub latency_ns: BTreeMap<String, Option<u64>>,
    /// Length of the body of each good answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u64>,
    /// Good answers whose body was compared to its last byte, where that is a sample: of the others
    /// the length was. The answers to the probes before and after are hashed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bodies_compared: Option<u64>,
    /// What an open loop offered, and how far it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenRecord>,
    /// The client that says so, where it is not the bench itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// What an open loop offered in one round, and how far the load engine kept it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OpenRecord {
    /// Requests that were due.
    pub due: u64,
    /// Whole answers, good or not.
    pub answered: u64,
    /// Nearest-rank percentiles of the time from the instant at which a request was due to its send.
    pub lateness_ns: BTreeMap<String, Option<u64>>,
}

/// The summary of one arm of one cell.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// `cell/label`, the name claims use.
    pub id: String,
    /// Rounds that count.
    pub num_rounds: u32,
    /// Why the row is invalid; `null` when it is good.
    pub invalid: Option<String>,
    /// Summaries over the rounds; an absent metric was not measured.
    pub metrics: BTreeMap<Metric, Summary>,
    /// The engagement counter, summed over the rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engagement: Option<EngagementRecord>,
    /// The model that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ServedModel>,
}

/// One metric over the rounds of one arm.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Median over rounds; of a percentile of saves, that of all rounds together.
    pub median: Decimal,
    /// Median absolute deviation, unscaled.
    pub mad: Decimal,
    /// Lowest round.
    pub min: Decimal,
    /// Highest round.
    pub max: Decimal,
}

/// A rule about one metric of one arm.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Name of the rule inside its cell.
    pub id: String,
    /// The judged metric.
    pub metric: Metric,
    /// The judged arm.
    pub label: String,
    /// The arm it is compared with; `null` for a rule on the value itself.
    pub versus: Option<String>,
    /// The arm whose value is taken from both before they are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub less: Option<String>,
    /// Which side of the limit is good.
    pub bound: Bound,
    /// The limit, a ratio or a value in the metric's unit.
    pub limit: Decimal,
    /// How far beyond the limit the interval (not the estimate) may reach and still pass.
    pub margin: Decimal,
}

/// Which side of a limit is good.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Small is good.
    AtMost,
    /// Large is good.
    AtLeast,
}

/// An estimate with its 95 % interval.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// Median.
    pub value: Decimal,
    /// Lower end.
    pub low: Decimal,
    /// Upper end.
    pub high: Decimal,
    /// How the interval was computed.
    pub method: IntervalMethod,
}

/// The verdict of one rule, with all its inputs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct VerdictRow {
    /// `cell/target`, the name claims use.
    pub id: String,
    /// The rule in words.
    pub rule: String,
    /// Rounds (or pairs of rounds) behind the estimate.
    pub num_rounds: u32,
    /// Ratio to `versus`, or the value itself.
    pub estimate: Option<Estimate>,
    /// Exact two-sided p of the sign test against equality; `null` for a rule on a value.
    pub p_sign: Option<Decimal>,
    /// Exact two-sided p of the signed-rank test against equality.
    pub p_wilcoxon: Option<Decimal>,
    /// Exact two-sided p of the signed-rank test against the limit that decides, margin included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_limit: Option<Decimal>,
    /// That p after Holm's correction for all rules of the cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_holm: Option<Decimal>,
    /// The same comparison between an arm and its repetition.
    pub noise: Option<Estimate>,
    /// What follows.
    pub verdict: Verdict,
    /// Why it is not PASS or FAIL.
    pub reason: Option<String>,
}

/// What follows from the data.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// The estimate meets the limit and the interval stays inside the margin.
    Pass,
    /// The whole interval is beyond the limit.
    Fail,
    /// The data do not decide.
    Inconclusive,
    /// The measurement itself is wrong.
    Invalid,
}

impl Verdict {
    /// Returns the word that tables show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Inconclusive => "INCONCLUSIVE",
            Self::Invalid => "INVALID",
        }
    }
}

impl Record {
    /// Returns all verdicts, in cell order.
    pub fn verdicts(&self) -> impl Iterator<Item = &VerdictRow> {
        self.cells.iter().flat_map(|cell| &cell.verdicts)
    }

    /// Returns the file name the record gets in `benches/results`.
    pub fn file_name(&self) -> String {
        super::entry::file_name(&self.recorded_utc, &self.id)
    }
}
