//! The result of a run: numbers for machines, text for people.
//!
//! A number that was not measured is `None`, `null` in JSON and `n/a` in text;
//! never 0, NaN or a sentinel. Both forms show the same numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::outcome::{Outcome, OutcomeCounts};
use super::plan::LoadPlan;
use super::tally::{Tally, Times, nanoseconds};
use crate::Error;

/// Fewest samples for each percentile.
///
/// So many that the interval around the percentile is bounded on both sides; with
/// fewer, the number would be close to the maximum by construction.
const MIN_SAMPLES_P50: u64 = 1;
const MIN_SAMPLES_P90: u64 = 64;
const MIN_SAMPLES_P95: u64 = 90;
const MIN_SAMPLES_P99: u64 = 662;
const MIN_SAMPLES_P99_9: u64 = 4603;

/// Result of one run; the warm-up is in no number unless its field says so.
#[derive(Debug, Clone, Serialize)]
pub struct LoadReport {
    /// Whether the caller stopped the run before its end.
    pub interrupted: bool,
    /// Connections asked for.
    pub connections: usize,
    /// Threads used.
    pub threads: usize,
    /// First measured send to last completion or stop, in nanoseconds.
    pub window_ns: Option<u64>,
    /// Attempts begun.
    pub attempts: u64,
    /// How the attempts ended.
    pub outcomes: OutcomeCounts,
    /// Whole responses by status.
    pub status_counts: BTreeMap<u16, u64>,
    /// Bytes of responses, after decryption, whole or not.
    pub bytes_read: u64,
    /// Outcomes `ok` per second of the window.
    pub rate: Option<f64>,
    /// Send to end of response, of outcomes `ok`.
    pub latency: LatencySummary,
    /// Send to end of response, of the other whole responses.
    pub latency_error: LatencySummary,
    /// Time to connect, with the TLS handshake; includes the warm-up.
    pub connect: LatencySummary,
    /// Connections opened; includes the warm-up.
    pub connections_opened: u64,
    /// Attempts sent again because the server had closed a kept connection.
    pub resent: u64,
    /// Age of the oldest request in flight at the stop, in nanoseconds.
    ///
    /// Where it is above the maximum latency, the true maximum is unknown.
    pub oldest_aborted_ns: Option<u64>,
    /// Little's law: response rate × mean latency over connections, minus one.
    ///
    /// Far below zero, connections were idle: connecting, backing off, or waiting
    /// for a busy client.
    pub littles_law_deviation: Option<f64>,
    /// CPU time of all threads in the measured part, in nanoseconds.
    pub client_cpu_ns: u64,
    /// Each thread's use of its time.
    pub per_thread: Vec<ThreadReport>,
    /// The first whole measured response of the first thread that had one.
    pub first_response: Option<ResponseDigest>,
    /// Limit that the latencies have to keep.
    #[serde(skip)]
    request_timeout_ns: u64,
}

/// A distribution of times, in nanoseconds.
///
/// Percentiles have a resolution of 0.1 %; the other numbers are exact. A
/// percentile with too few samples is `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Number of samples.
    pub count: u64,
    /// Smallest.
    pub min_ns: Option<u64>,
    /// Arithmetic mean.
    pub mean_ns: Option<f64>,
    /// Median.
    pub p50_ns: Option<u64>,
    /// From 64 samples.
    pub p90_ns: Option<u64>,
    /// From 90 samples.
    pub p95_ns: Option<u64>,
    /// From 662 samples.
    pub p99_ns: Option<u64>,
    /// From 4603 samples.
    pub p99_9_ns: Option<u64>,
    /// Largest.
    pub max_ns: Option<u64>,
}

/// How one thread of the client used its time in the measured part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ThreadReport {
    /// Share of the time that was not spent waiting for events.
    pub busy_ratio: Option<f64>,
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
}

/// What a response was, without its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ResponseDigest {
    /// Status code.
    pub status: u16,
    /// Length of the body in bytes, without chunk framing.
    pub body_len: u64,
    /// SHA-256 of the body, in hexadecimal when serialised.
    #[serde(serialize_with = "hexadecimal")]
    pub body_sha256: [u8; 32],
}

impl LoadReport {
    pub(super) fn new(plan: &LoadPlan, tally: &Tally, per_thread: Vec<ThreadReport>) -> Self {
        let window = tally.window().filter(|window| !window.is_zero());
        let seconds = window.map(|window| window.as_secs_f64());
        let time_in_flight = tally.latency_ok.sum_ns() + tally.latency_error.sum_ns();
        // rate × mean = (count ÷ window) × (sum ÷ count): the count cancels out.
        let littles_law_deviation = window.filter(|_| time_in_flight > 0).map(|window| {
            let concurrency = time_in_flight as f64 / window.as_nanos() as f64;
            concurrency / plan.connections as f64 - 1.0
        });
        let status_counts = (0_u16..)
            .zip(&tally.status_counts)
            .filter(|(_, count)| **count > 0)
            .map(|(status, count)| (status, *count))
            .collect();
        Self {
            interrupted: tally.interrupted,
            connections: plan.connections,
            threads: per_thread.len(),
            window_ns: window.map(nanoseconds),
            attempts: tally.attempts,
            outcomes: tally.outcomes,
            status_counts,
            bytes_read: tally.bytes_read,
            rate: seconds.map(|seconds| tally.outcomes.get(Outcome::Ok) as f64 / seconds),
            latency: LatencySummary::new(&tally.latency_ok),
            latency_error: LatencySummary::new(&tally.latency_error),
            connect: LatencySummary::new(&tally.connect),
            connections_opened: tally.connections_opened,
            resent: tally.resent,
            oldest_aborted_ns: tally.oldest_aborted.map(nanoseconds),
            littles_law_deviation,
            client_cpu_ns: per_thread.iter().map(|thread| thread.cpu_ns).sum(),
            per_thread,
            first_response: tally.first_response,
            request_timeout_ns: nanoseconds(plan.request_timeout),
        }
    }

    /// Checks that the numbers agree with one another.
    ///
    /// # Errors
    ///
    /// [`Error::LoadInvariant`]: a bug in this client, so nothing in the report may
    /// be used.
    pub fn check_invariants(&self) -> Result<(), Error> {
        let equal = |invariant, left: u64, right: u64| {
            if left == right {
                Ok(())
            } else {
                Err(Error::LoadInvariant {
                    invariant,
                    left,
                    right,
                })
            }
        };
        let at_most = |invariant, left: u64, right: u64| {
            if left <= right {
                Ok(())
            } else {
                Err(Error::LoadInvariant {
                    invariant,
                    left,
                    right,
                })
            }
        };
        let outcomes = &self.outcomes;
        equal(
            "attempts = sum of outcomes",
            self.attempts,
            outcomes.total(),
        )?;
        equal(
            "samples of ok = ok",
            self.latency.count,
            outcomes.get(Outcome::Ok),
        )?;
        let responses = self.latency.count + self.latency_error.count;
        equal("samples = whole responses", responses, outcomes.responses())?;
        equal(
            "status counts = samples",
            self.status_counts.values().sum(),
            responses,
        )?;
        let longest = self.latency.max_ns.max(self.latency_error.max_ns);
        if let (Some(longest), Some(window)) = (longest, self.window_ns) {
            at_most(
                "maximum ≤ request timeout",
                longest,
                self.request_timeout_ns,
            )?;
            at_most("maximum ≤ window", longest, window)?;
        }
        for summary in [&self.latency, &self.latency_error, &self.connect] {
            let ascending: Vec<u64> = summary.ordered().into_iter().flatten().collect();
            for pair in ascending.windows(2) {
                at_most("percentiles ascend", pair[0], pair[1])?;
            }
        }
        Ok(())
    }

    /// Renders the report as text for people, without colours.
    pub fn render_text(&self) -> String {
        self.to_string()
    }

    fn write_latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10}", "")?;
        for name in ["mean", "min", "p50", "p90", "p95", "p99", "p99.9", "max"] {
            write!(f, " {name:>9}")?;
        }
        writeln!(f)?;
        for (name, summary) in [
            ("latency", &self.latency),
            ("errors", &self.latency_error),
            ("connect", &self.connect),
        ] {
            if summary.count == 0 && name != "latency" {
                continue;
            }
            let mean = summary.mean_ns.map(|mean| mean as u64);
            write!(f, "{name:<10} {:>9}", time(mean))?;
            for value in summary.ordered() {
                write!(f, " {:>9}", time(value))?;
            }
            writeln!(f, "  n={}", summary.count)?;
        }
        Ok(())
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} attempts in {} on {} connections, {} threads{}",
            self.attempts,
            time(self.window_ns),
            self.connections,
            self.threads,
            if self.interrupted {
                ", interrupted"
            } else {
                ""
            },
        )?;
        let rate = optional(self.rate, |rate| format!("{rate:.1}"));
        writeln!(f, "rate       {rate} ok/s")?;
        self.write_latencies(f)?;
        write!(f, "outcomes  ")?;
        for (outcome, count) in self.outcomes.iter().filter(|(_, count)| *count > 0) {
            write!(f, " {outcome}={count}")?;
        }
        write!(f, "\nstatus    ")?;
        for (status, count) in &self.status_counts {
            write!(f, " {status}={count}")?;
        }
        writeln!(
            f,
            "\nread       {} bytes; {} connections opened, {} requests sent again",
            self.bytes_read, self.connections_opened, self.resent
        )?;
        let busy = self
            .per_thread
            .iter()
            .filter_map(|thread| thread.busy_ratio);
        writeln!(
            f,
            "client     busiest thread {}, CPU {}, Little's law {}",
            optional(busy.reduce(f64::max), |ratio| format!(
                "{:.0} %",
                ratio * 100.0
            )),
            time(Some(self.client_cpu_ns)),
            optional(self.littles_law_deviation, |share| format!(
                "{:+.1} %",
                share * 100.0
            )),
        )?;
        match self.oldest_aborted_ns {
            Some(age) if Some(age) > self.latency.max_ns => writeln!(
                f,
                "note       the oldest request in flight at the stop was {} old: \
                 the true maximum is unknown",
                time(Some(age))
            ),
            _ => Ok(()),
        }
    }
}

impl LatencySummary {
    fn new(times: &Times) -> Self {
        let count = times.count();
        let extremes = times.extremes();
        let quantile = |floor, quantile| {
            if count >= floor {
                times.quantile(quantile)
            } else {
                None
            }
        };
        Self {
            count,
            min_ns: extremes.map(|(min, _)| min),
            mean_ns: (count > 0).then(|| times.sum_ns() as f64 / count as f64),
            p50_ns: quantile(MIN_SAMPLES_P50, 0.5),
            p90_ns: quantile(MIN_SAMPLES_P90, 0.9),
            p95_ns: quantile(MIN_SAMPLES_P95, 0.95),
            p99_ns: quantile(MIN_SAMPLES_P99, 0.99),
            p99_9_ns: quantile(MIN_SAMPLES_P99_9, 0.999),
            max_ns: extremes.map(|(_, max)| max),
        }
    }

    /// Minimum, percentiles and maximum, which ascend.
    fn ordered(&self) -> [Option<u64>; 7] {
        [
            self.min_ns,
            self.p50_ns,
            self.p90_ns,
            self.p95_ns,
            self.p99_ns,
            self.p99_9_ns,
            self.max_ns,
        ]
    }
}

impl ResponseDigest {
    /// The digest in hexadecimal.
    pub fn sha256_hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(64);
        for byte in self.body_sha256 {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        text
    }
}

fn hexadecimal<S: Serializer>(digest: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
    let digest = ResponseDigest {
        status: 0,
        body_len: 0,
        body_sha256: *digest,
    };
    serializer.serialize_str(&digest.sha256_hex())
}

fn optional<T>(value: Option<T>, format: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "n/a".to_owned(), format)
}

/// A time with a unit that leaves one to three digits before the point.
fn time(nanoseconds: Option<u64>) -> String {
    optional(nanoseconds, |value| {
        let seconds = Duration::from_nanos(value).as_secs_f64();
        match value {
            0..1_000 => format!("{value} ns"),
            1_000..1_000_000 => format!("{:.1} µs", seconds * 1e6),
            1_000_000..1_000_000_000 => format!("{:.2} ms", seconds * 1e3),
            _ => format!("{seconds:.2} s"),
        }
    })
}
