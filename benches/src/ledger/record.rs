//! The record of one run: everything measured, and everything concluded from it.
//!
//! Schema version 1. Numbers are integers in base units or [`Decimal`]; what was not measured is
//! `null`. A field that came later is left out where it has no value, so that records written
//! before it keep their bytes. `rows` and `verdicts` are functions of the rest of their cell
//! ([`crate::matrix::judge`]), which is what the verifier recomputes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Decimal;
use crate::machine::Machine;
use crate::stats::IntervalMethod;

/// The schema version this code writes and reads.
pub const SCHEMA_VERSION: u32 = 1;

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
    /// The matrix file.
    pub matrix: FileDigest,
    /// Seed of the arm order and of the bootstrap.
    pub seed: u64,
    /// CPU the servers were pinned to.
    pub server_cpu: Option<usize>,
    /// CPU the load engine was pinned to.
    pub client_cpu: Option<usize>,
    /// What this run does not show.
    pub caveats: Vec<String>,
    /// The cells, in matrix order.
    pub cells: Vec<CellRecord>,
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
    /// Every round of every arm, in the order they ran.
    pub rounds: Vec<RoundRecord>,
    /// One row per arm.
    pub rows: Vec<Row>,
    /// One verdict per rule.
    pub verdicts: Vec<VerdictRow>,
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
    /// Nearest-rank latency percentiles of good answers.
    pub latency_ns: BTreeMap<String, Option<u64>>,
    /// Length of the body of each good answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u64>,
}

/// A quantity that rows show and rules judge.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Good answers per second.
    Rate,
    /// Server CPU time per good answer.
    CpuUsPerRequest,
    /// Median latency.
    P50Us,
    /// 99th percentile latency.
    P99Us,
    /// Resident memory at the end of a round.
    RssBytes,
    /// From spawn to the first good answer.
    StartMs,
    /// Resident memory at rest.
    IdleRssBytes,
    /// Resident memory with connections held open.
    HeldRssBytes,
    /// Mean time of one call.
    NsPerOp,
    /// Body bytes of good answers per second.
    BytesPerSecond,
    /// Growth of resident memory over the measured interval.
    RssGrowthBytes,
}

impl Metric {
    /// Every metric, in the order rows show them.
    pub const ALL: [Self; 11] = [
        Self::Rate,
        Self::CpuUsPerRequest,
        Self::P50Us,
        Self::P99Us,
        Self::RssBytes,
        Self::StartMs,
        Self::IdleRssBytes,
        Self::HeldRssBytes,
        Self::NsPerOp,
        Self::BytesPerSecond,
        Self::RssGrowthBytes,
    ];

    /// Returns the name used in matrix files, records and claims.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::CpuUsPerRequest => "cpu_us_per_request",
            Self::P50Us => "p50_us",
            Self::P99Us => "p99_us",
            Self::RssBytes => "rss_bytes",
            Self::StartMs => "start_ms",
            Self::IdleRssBytes => "idle_rss_bytes",
            Self::HeldRssBytes => "held_rss_bytes",
            Self::NsPerOp => "ns_per_op",
            Self::BytesPerSecond => "bytes_per_second",
            Self::RssGrowthBytes => "rss_growth_bytes",
        }
    }

    /// Returns the unit people read; bytes are shown in decimal megabytes.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Rate => "requests/s",
            Self::CpuUsPerRequest | Self::P50Us | Self::P99Us => "µs",
            Self::RssBytes | Self::IdleRssBytes | Self::HeldRssBytes | Self::RssGrowthBytes => "MB",
            Self::BytesPerSecond => "MB/s",
            Self::StartMs => "ms",
            Self::NsPerOp => "ns",
        }
    }

    /// Renders a value of this metric without its unit.
    pub fn number(self, value: Decimal) -> String {
        match self {
            Self::Rate => value.text(0),
            Self::CpuUsPerRequest | Self::StartMs => value.text(2),
            Self::P50Us | Self::P99Us | Self::NsPerOp => value.text(1),
            Self::RssBytes
            | Self::IdleRssBytes
            | Self::HeldRssBytes
            | Self::BytesPerSecond
            | Self::RssGrowthBytes => {
                Decimal::new(value.value() / 1e6).map_or_else(String::new, |mb| mb.text(2))
            }
        }
    }
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
}

/// One metric over the rounds of one arm.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Median over rounds.
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
        let stamp: String = (self.recorded_utc.chars())
            .filter(char::is_ascii_alphanumeric)
            .collect();
        format!("{stamp}-{}.json", self.id)
    }
}
