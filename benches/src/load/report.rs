//! The result of a run.
//!
//! A number that was not measured is `None`, `null` in JSON and `n/a` in text;
//! never 0, NaN or a sentinel. All forms show the same numbers.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::arrivals::ArrivalProcess;
use super::outcome::{Outcome, OutcomeCounts};
use super::plan::{Client, Exchange, ExpectedBody, LoadPlan, Pace, Stop};
use super::raw::RawReport;
use super::summary::LatencySummary;
use super::tally::{Tally, nanoseconds};
use crate::Error;

/// Busy share of a thread above which the client may be what limits the run.
const BUSY_LIMIT: f64 = 0.9;

/// Share of the client's ceiling above which the client may be what limits the run.
const CEILING_LIMIT: f64 = 0.8;

/// Answers over offered requests below which a rate was not reached.
const REACHED: f64 = 0.99;

/// How far the time of the connections may be from the window times their number.
const LITTLES_LAW_TOLERANCE: f64 = 0.02;

/// Attempts from which a shortfall is more than what is in flight at the stop.
const MIN_OFFERED: u64 = 100;

/// Result of one run; the warm-up is in no number unless its field says so.
#[derive(Debug, Clone, Serialize)]
pub struct LoadReport {
    /// What sent the requests.
    pub client: String,
    /// Where they went.
    pub address: String,
    /// Whether the caller stopped the run before its end.
    pub interrupted: bool,
    /// From where the latency is that text and thresholds name: `sent` or `intended`.
    pub latency_origin: &'static str,
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
    /// Bytes of responses, after decryption, whole or not; only of bodies with other clients
    /// than the raw one.
    pub bytes_read: u64,
    /// Outcomes `ok` per second of the window.
    pub rate: Option<f64>,
    /// Send to end of response, of outcomes `ok`.
    pub latency: LatencySummary,
    /// Send to end of response, of the other whole responses.
    pub latency_error: LatencySummary,
    /// Send to first byte of the response, of outcomes `ok`; to its whole head with other clients
    /// than the raw one. Events of a stream have none.
    pub first_byte: LatencySummary,
    /// Intended instant to end of response, of outcomes `ok`; open loop only.
    ///
    /// Its difference to `latency` is what a client that waits for answers does not see.
    pub latency_intended: Option<LatencySummary>,
    /// `latency` with values made up for the requests that a closed loop did not send while it
    /// waited; only where the plan says how often they would have come.
    ///
    /// As HdrHistogram's correction: synthetic, but for the values that are in `latency`.
    pub latency_corrected: Option<LatencySummary>,
    /// Distance of those requests on each connection, in nanoseconds.
    pub expected_interval_ns: Option<u64>,
    /// What an open loop offered and how far it was kept.
    pub open_loop: Option<OpenLoopReport>,
    /// What became of the lines of each attempt.
    pub raw: Option<RawReport>,
    /// Time to connect, with the TLS handshake; includes the warm-up.
    pub connect: LatencySummary,
    /// Connections opened; includes the warm-up. reqwest does not tell.
    pub connections_opened: Option<u64>,
    /// Attempts sent again because the server had closed a kept connection.
    pub resent: u64,
    /// Whole responses whose body was compared to its last byte, where that is a sample and of the
    /// others only the length is looked at.
    pub bodies_compared: Option<u64>,
    /// Age of the oldest request in flight at the stop, in nanoseconds.
    ///
    /// Where it is above the maximum latency, the true maximum is unknown.
    pub oldest_aborted_ns: Option<u64>,
    /// Little's law: response rate × mean latency over connections, minus one; closed loop only.
    ///
    /// Far below zero, connections were idle: connecting, backing off, or waiting
    /// for a busy client.
    pub littles_law_deviation: Option<f64>,
    /// Share of the connections' time in the window that went neither into a request, whatever
    /// became of it, nor into what lies between two: connecting, backing off.
    ///
    /// In a closed loop for a time there is none: more than 2 % means that this client lost
    /// requests or clocks, and the report may not be used. Of the raw client only, and not where
    /// all connections listen to one.
    pub unaccounted_ratio: Option<f64>,
    /// CPU time of all threads in the measured part, in nanoseconds.
    pub client_cpu_ns: u64,
    /// Each thread's use of its time.
    pub per_thread: Vec<ThreadReport>,
    /// Largest resident memory of the client's process, in bytes.
    pub client_peak_rss_bytes: Option<u64>,
    /// Outcomes `ok` per second of the same load on a server that does nothing.
    pub client_ceiling_rate: Option<f64>,
    /// Whether a thread was busy, or the rate close to the ceiling: the client may be the limit.
    pub client_bound: bool,
    /// The first whole measured response of the first thread that had one.
    pub first_response: Option<ResponseDigest>,
    /// Limit that the latencies have to keep.
    #[serde(skip)]
    request_timeout_ns: u64,
}

/// What an open loop offered and how far it was kept.
#[derive(Debug, Clone, Serialize)]
pub struct OpenLoopReport {
    /// How arrivals lay around the rate.
    pub process: ArrivalProcess,
    /// Seed of what was random.
    pub seed: u64,
    /// Requests that were due per second of the window.
    pub offered_rate: Option<f64>,
    /// Whole responses per second of the window.
    pub achieved_rate: Option<f64>,
    /// Whole responses over requests that were due.
    pub achieved_ratio: Option<f64>,
    /// Whether less than 99 % of what was due was answered: latencies describe an overload.
    pub saturated: bool,
    /// Intended instant to send.
    pub lateness: LatencySummary,
    /// Requests sent more than 1 ms later than intended.
    pub late_sends: u64,
    /// Most requests that were due and not sent at one time.
    pub max_waiting: u64,
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
        let is_closed = !plan.is_open_loop();
        let littles_law_deviation =
            window
                .filter(|_| is_closed && time_in_flight > 0)
                .map(|window| {
                    let concurrency = time_in_flight as f64 / window.as_nanos() as f64;
                    let slots = plan.connections * plan.client.streams();
                    concurrency / slots as f64 - 1.0
                });
        let has_account = is_closed
            && plan.client == Client::Raw
            && matches!(plan.stop, Stop::Duration(_))
            && !matches!(plan.exchange, Exchange::Feed(_));
        let unaccounted_ratio = window.filter(|_| has_account).map(|window| {
            let whole = window.as_secs_f64() * plan.connections as f64;
            1.0 - tally.connection_time.as_secs_f64() / whole
        });
        let status_counts = (0_u16..)
            .zip(&tally.status_counts)
            .filter(|(_, count)| **count > 0)
            .map(|(status, count)| (status, *count))
            .collect();
        let summary = |times| LatencySummary::new(times, plan.all_percentiles);
        let busiest = (per_thread.iter())
            .filter_map(|thread| thread.busy_ratio)
            .reduce(f64::max);
        Self {
            client: plan.client.to_string(),
            address: plan.target.address.to_string(),
            interrupted: tally.interrupted,
            latency_origin: if is_closed { "sent" } else { "intended" },
            connections: plan.connections,
            threads: per_thread.len(),
            window_ns: window.map(nanoseconds),
            attempts: tally.attempts,
            outcomes: tally.outcomes,
            status_counts,
            bytes_read: tally.bytes_read,
            rate: seconds.map(|seconds| tally.outcomes.get(Outcome::Ok) as f64 / seconds),
            latency: summary(&tally.latency_ok),
            latency_error: summary(&tally.latency_error),
            first_byte: summary(&tally.first_byte),
            latency_intended: tally.open.as_ref().map(|open| summary(&open.latency_ok)),
            latency_corrected: (tally.corrected.as_ref()).map(|(times, _)| summary(times)),
            expected_interval_ns: plan.expected_interval.map(nanoseconds),
            open_loop: OpenLoopReport::new(plan, tally, seconds),
            raw: None,
            connect: summary(&tally.connect),
            connections_opened: (plan.client != Client::Reqwest)
                .then_some(tally.connections_opened),
            resent: tally.resent,
            bodies_compared: matches!(plan.expect.body, Some(ExpectedBody::Sampled { .. }))
                .then_some(tally.bodies_compared),
            oldest_aborted_ns: tally.oldest_aborted.map(nanoseconds),
            littles_law_deviation,
            unaccounted_ratio,
            client_cpu_ns: per_thread.iter().map(|thread| thread.cpu_ns).sum(),
            per_thread,
            client_peak_rss_bytes: peak_rss_bytes(),
            client_ceiling_rate: None,
            client_bound: busiest.is_some_and(|busy| busy > BUSY_LIMIT),
            first_response: tally.first_response,
            request_timeout_ns: nanoseconds(plan.request_timeout),
        }
    }

    /// The latency of outcomes `ok` as its user sees it.
    pub const fn shown_latency(&self) -> &LatencySummary {
        match &self.latency_intended {
            Some(intended) => intended,
            None => &self.latency,
        }
    }

    /// Attempts that failed: neither `ok` nor cut off by the stop.
    ///
    /// In a closed loop a connection that was just being made at the stop is cut off, too; in an
    /// open loop the request was due, and the server did not take it.
    pub fn errors(&self) -> u64 {
        let cut_off = |outcome| match outcome {
            Outcome::AbortedAtDeadline => true,
            Outcome::NotSent => self.open_loop.is_none(),
            _ => false,
        };
        (self.outcomes.iter())
            .filter(|(outcome, _)| *outcome != Outcome::Ok && !cut_off(*outcome))
            .map(|(_, count)| count)
            .sum()
    }

    /// Takes the ceiling of the client from a run against a server that does nothing.
    pub fn set_ceiling(&mut self, ceiling: &Self) {
        self.client_ceiling_rate = ceiling.rate;
        if let (Some(rate), Some(ceiling)) = (self.rate, ceiling.rate) {
            self.client_bound |= rate > CEILING_LIMIT * ceiling;
        }
    }

    /// Checks that the numbers agree with one another.
    ///
    /// # Errors
    ///
    /// [`Error::LoadInvariant`]: a bug in this client, so nothing in the report may
    /// be used.
    pub fn check_invariants(&self) -> Result<(), Error> {
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
        at_most(
            "first bytes ≤ samples of ok",
            self.first_byte.count,
            self.latency.count,
        )?;
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
        if self.first_byte.count == self.latency.count {
            let pairs = (self.first_byte.ordered().into_iter()).zip(self.latency.ordered());
            for (first, last) in pairs.filter_map(|(one, two)| Some((one?, two?))) {
                at_most("first byte ≤ latency", first, last)?;
            }
        }
        self.check_littles_law()?;
        self.check_open_loop()?;
        if let Some(corrected) = &self.latency_corrected {
            at_most(
                "ok ≤ corrected samples",
                self.latency.count,
                corrected.count,
            )?;
        }
        if let Some(raw) = &self.raw {
            let lines = raw.written + raw.dropped;
            equal("attempts = lines and drops", self.attempts, lines)?;
        }
        let summaries = [&self.latency, &self.latency_error, &self.connect];
        for summary in (summaries.into_iter())
            .chain(&self.latency_intended)
            .chain(&self.latency_corrected)
        {
            let ascending: Vec<u64> = summary.ordered().into_iter().flatten().collect();
            for pair in ascending.windows(2) {
                at_most("percentiles ascend", pair[0], pair[1])?;
            }
        }
        Ok(())
    }

    /// Requests under way at a time = rate × mean latency, which is the number of connections less
    /// those that had nothing to do.
    fn check_littles_law(&self) -> Result<(), Error> {
        let in_millionths = |share: f64| (share * 1e6).round().max(0.0) as u64;
        let limit = in_millionths(1.0 + LITTLES_LAW_TOLERANCE);
        if let Some(deviation) = self.littles_law_deviation {
            at_most(
                "Little's law: requests under way ≤ 1.02 × connections, in millionths of them",
                in_millionths(1.0 + deviation),
                limit,
            )?;
        }
        if let Some(unaccounted) = self.unaccounted_ratio {
            at_most(
                "Little's law: time of connections ≤ 1.02 × what is known of it, in millionths",
                in_millionths(1.0 + unaccounted),
                limit,
            )?;
        }
        Ok(())
    }

    fn check_open_loop(&self) -> Result<(), Error> {
        let (Some(intended), Some(open)) = (&self.latency_intended, &self.open_loop) else {
            return Ok(());
        };
        let outcomes = &self.outcomes;
        equal(
            "intended samples = ok",
            intended.count,
            outcomes.get(Outcome::Ok),
        )?;
        at_most(
            "sent ≤ attempts that were not left",
            open.lateness.count,
            self.attempts - outcomes.get(Outcome::NotSent),
        )?;
        at_most(
            "responses ≤ sent",
            outcomes.responses(),
            open.lateness.count,
        )?;
        let pairs = (self.latency.ordered().into_iter()).zip(intended.ordered());
        for (sent, intended) in pairs.filter_map(|(one, two)| Some((one?, two?))) {
            // No request is sent before it is due; percentiles are rounded up to 0.1 %.
            at_most(
                "latency ≤ latency from intended",
                sent,
                intended + intended / 500,
            )?;
        }
        Ok(())
    }
}

fn equal(invariant: &'static str, left: u64, right: u64) -> Result<(), Error> {
    if left == right {
        return Ok(());
    }
    Err(Error::LoadInvariant {
        invariant,
        left,
        right,
    })
}

fn at_most(invariant: &'static str, left: u64, right: u64) -> Result<(), Error> {
    if left <= right {
        return Ok(());
    }
    Err(Error::LoadInvariant {
        invariant,
        left,
        right,
    })
}

impl OpenLoopReport {
    fn new(plan: &LoadPlan, tally: &Tally, seconds: Option<f64>) -> Option<Self> {
        let (Pace::Open(schedule), Some(open)) = (&plan.pace, &tally.open) else {
            return None;
        };
        let answered = tally.outcomes.responses() as f64;
        let due = tally.attempts as f64;
        // Without requests there is no ratio, and with few the last in flight are many.
        let ratio = (tally.attempts > 0).then(|| answered / due);
        let in_flight = tally.outcomes.get(Outcome::AbortedAtDeadline) as f64;
        let reached = ratio.is_none_or(|ratio| ratio >= REACHED)
            || tally.attempts < MIN_OFFERED && answered + in_flight >= due;
        Some(Self {
            process: schedule.process,
            seed: schedule.seed,
            offered_rate: seconds.map(|seconds| due / seconds),
            achieved_rate: seconds.map(|seconds| answered / seconds),
            achieved_ratio: ratio,
            saturated: !reached,
            lateness: LatencySummary::new(&open.lateness, plan.all_percentiles),
            late_sends: open.late_sends,
            max_waiting: open.max_waiting,
        })
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

/// Largest resident memory of this process so far.
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}
