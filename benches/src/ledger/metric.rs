//! The quantities that rows show and rules judge: their names, units, and how many digits people see.
//!
//! A name, unit or number of digits is part of every section that was rendered with it, so none of
//! them may change; a new quantity goes to the end of [`Metric::ALL`].

use serde::{Deserialize, Serialize};

use super::Decimal;

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
    /// CPU time of a client in a process of its own, per good answer.
    ClientCpuUsPerRequest,
    /// Tokens of all answers over first byte sent to last token.
    OutputTps,
    /// First byte sent, or the instant at which it was due, to the first token.
    TtftMs,
    /// Tokens of one answer after its first, per second.
    DecodeTps,
    /// Prompt tokens that were not cached, per second until the first token.
    PrefillTps,
    /// Most requests that had a first token and no end.
    AdmittedRequests,
    /// Whole answers over requests that were due, in an open loop.
    AchievedRatio,
    /// Median time from the instant at which a request was due to its send.
    LatenessP50Us,
    /// 99th percentile of that time.
    LatenessP99Us,
    /// Longest such time.
    LatenessMaxUs,
    /// Median time from the end of a save to the answer of the saved code.
    ReloadP50Ms,
    /// 95th percentile of that time, over the saves of all rounds.
    ReloadP95Ms,
    /// Longest wait of a probe around saves.
    ReloadWaitMaxMs,
    /// Probes around saves that the newest code did not answer.
    ReloadLost,
    /// Median time from the end of a save of broken code to the answer that says so.
    ReloadErrorP50Ms,
}

/// What a rule on a value, not on a ratio, holds against its limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Judged {
    /// The median of the rounds, with its interval.
    Median,
    /// The worst round: what was seen, of which nothing is inferred.
    Worst,
    /// The 95th percentile of the saves of all rounds together, with its interval.
    Pooled95,
}

impl Metric {
    /// Every metric, in the order rows show them.
    pub const ALL: [Self; 26] = [
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
        Self::ClientCpuUsPerRequest,
        Self::OutputTps,
        Self::TtftMs,
        Self::DecodeTps,
        Self::PrefillTps,
        Self::AdmittedRequests,
        Self::AchievedRatio,
        Self::LatenessP50Us,
        Self::LatenessP99Us,
        Self::LatenessMaxUs,
        Self::ReloadP50Ms,
        Self::ReloadP95Ms,
        Self::ReloadWaitMaxMs,
        Self::ReloadLost,
        Self::ReloadErrorP50Ms,
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
            Self::ClientCpuUsPerRequest => "client_cpu_us_per_request",
            Self::OutputTps => "output_tps",
            Self::TtftMs => "ttft_ms",
            Self::DecodeTps => "decode_tps",
            Self::PrefillTps => "prefill_tps",
            Self::AdmittedRequests => "admitted_requests",
            Self::AchievedRatio => "achieved_ratio",
            Self::LatenessP50Us => "lateness_p50_us",
            Self::LatenessP99Us => "lateness_p99_us",
            Self::LatenessMaxUs => "lateness_max_us",
            Self::ReloadP50Ms => "reload_p50_ms",
            Self::ReloadP95Ms => "reload_p95_ms",
            Self::ReloadWaitMaxMs => "reload_wait_max_ms",
            Self::ReloadLost => "reload_lost",
            Self::ReloadErrorP50Ms => "reload_error_p50_ms",
        }
    }

    /// Returns the unit people read; bytes are shown in decimal megabytes.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Rate => "requests/s",
            Self::CpuUsPerRequest
            | Self::ClientCpuUsPerRequest
            | Self::P50Us
            | Self::P99Us
            | Self::LatenessP50Us
            | Self::LatenessP99Us
            | Self::LatenessMaxUs => "µs",
            Self::RssBytes | Self::IdleRssBytes | Self::HeldRssBytes | Self::RssGrowthBytes => "MB",
            Self::BytesPerSecond => "MB/s",
            Self::StartMs
            | Self::TtftMs
            | Self::ReloadP50Ms
            | Self::ReloadP95Ms
            | Self::ReloadWaitMaxMs
            | Self::ReloadErrorP50Ms => "ms",
            Self::OutputTps | Self::DecodeTps | Self::PrefillTps => "tok/s",
            Self::AdmittedRequests | Self::ReloadLost => "requests",
            Self::NsPerOp => "ns",
            Self::AchievedRatio => "of offered",
        }
    }

    /// Returns what a rule on a value of this metric is about.
    pub(crate) fn judged(self) -> Judged {
        match self {
            Self::ReloadWaitMaxMs | Self::ReloadLost => Judged::Worst,
            Self::ReloadP95Ms => Judged::Pooled95,
            _ => Judged::Median,
        }
    }

    /// Renders a value of this metric without its unit.
    pub fn number(self, value: Decimal) -> String {
        match self {
            Self::Rate | Self::AdmittedRequests | Self::ReloadLost => value.text(0),
            Self::CpuUsPerRequest | Self::ClientCpuUsPerRequest | Self::StartMs => value.text(2),
            Self::P50Us
            | Self::P99Us
            | Self::NsPerOp
            | Self::OutputTps
            | Self::TtftMs
            | Self::DecodeTps
            | Self::PrefillTps
            | Self::LatenessP50Us
            | Self::LatenessP99Us
            | Self::LatenessMaxUs
            | Self::ReloadP50Ms
            | Self::ReloadP95Ms
            | Self::ReloadWaitMaxMs
            | Self::ReloadErrorP50Ms => value.text(1),
            Self::AchievedRatio => value.text(5),
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
