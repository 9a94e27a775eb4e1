//! What many requests at once came to: sums, rates and how many were under way.

use std::time::Instant;

use super::outcome::ServingOutcomes;
use super::report::{Goodput, Totals};
use super::sample::{Sample, ms};

/// Limits that a request must keep to be good.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Slo {
    /// From the due instant to the first token, in milliseconds.
    pub ttft_ms: Option<f64>,
    /// For each token after the first, in milliseconds.
    pub tpot_ms: Option<f64>,
    /// From the due instant to the last token, in milliseconds.
    pub e2e_ms: Option<f64>,
}

impl Slo {
    /// Limits for first token, each further token and the whole, in milliseconds.
    pub const fn new(ttft_ms: Option<f64>, tpot_ms: Option<f64>, e2e_ms: Option<f64>) -> Self {
        Self {
            ttft_ms,
            tpot_ms,
            e2e_ms,
        }
    }

    /// Whether there is any limit.
    pub const fn is_set(&self) -> bool {
        self.ttft_ms.is_some() || self.tpot_ms.is_some() || self.e2e_ms.is_some()
    }

    /// Whether a request kept every limit; one without a number does not.
    fn is_kept(&self, sample: &Sample) -> bool {
        let within = |limit: Option<f64>, found: Option<f64>| {
            limit.is_none_or(|limit| found.is_some_and(|found| found <= limit))
        };
        let delay = sample.client_wall_sched_delay_ms.unwrap_or(0.0);
        let e2e = sample.client_wall_e2e_last_token_ms.map(|e2e| e2e + delay);
        let ttft = sample
            .client_wall_ttft_sched_ms
            .or(sample.client_wall_ttft_ms);
        sample.is_ok()
            && within(self.ttft_ms, ttft)
            && within(self.tpot_ms, sample.client_wall_tpot_ms)
            && within(self.e2e_ms, e2e)
    }
}

pub(super) fn goodput(slo: &Slo, samples: &[Sample]) -> Option<Goodput> {
    if !slo.is_set() {
        return None;
    }
    let good = samples.iter().filter(|sample| slo.is_kept(sample)).count();
    // From the first due instant to the last end, failures included.
    let start = samples.iter().filter_map(|s| s.marks.scheduled).min();
    let end = samples.iter().filter_map(|s| s.marks.ended).max();
    let window = start.zip(end).map(|(start, end)| seconds(start, end));
    Some(Goodput {
        slo_ttft_ms: slo.ttft_ms,
        slo_tpot_ms: slo.tpot_ms,
        slo_e2e_ms: slo.e2e_ms,
        good: good as u64,
        fraction: (!samples.is_empty()).then(|| good as f64 / samples.len() as f64),
        client_wall_goodput: per_second(good as f64, window),
    })
}

pub(super) fn totals(samples: &[Sample]) -> Totals {
    let mut outcomes = ServingOutcomes::new();
    for sample in samples {
        *outcomes.entry(sample.outcome).or_default() += 1;
    }
    let ok: Vec<_> = samples.iter().filter(|sample| sample.is_ok()).collect();
    let start = samples.iter().filter_map(|s| s.marks.sent).min();
    let end = samples.iter().filter_map(|s| s.marks.ended).max();
    let last_token = ok.iter().filter_map(|s| s.marks.last).max();
    let wall = start.zip(end).map(|(start, end)| seconds(start, end));
    let window = start
        .zip(last_token)
        .map(|(start, end)| seconds(start, end));
    let completion_tokens = sum(&ok, |sample| sample.completion_tokens);
    let under_way = samples
        .iter()
        .filter_map(|s| s.marks.sent.zip(s.marks.ended));
    let admitted: Vec<_> = samples
        .iter()
        .filter_map(|s| s.marks.first.zip(s.marks.ended))
        .collect();
    Totals {
        requests: samples.len() as u64,
        outcomes,
        client_wall_ms: wall.map(|wall| wall * 1000.0),
        prompt_tokens: sum(&ok, |sample| sample.prompt_tokens),
        completion_tokens,
        cached_tokens: sum(&ok, |sample| sample.cached_tokens),
        client_wall_output_tps: completion_tokens
            .and_then(|tokens| per_second(tokens as f64, window)),
        client_wall_request_rate: per_second(ok.len() as f64, window),
        concurrency_inflight: mean_concurrency(under_way, wall),
        concurrency_admitted_mean: mean_concurrency(admitted.iter().copied(), wall),
        concurrency_admitted_max: most_at_once(&admitted),
    }
}

/// First to last of the first `count` requests that were sent, in milliseconds.
pub(super) fn start_spread_ms(samples: &[Sample], count: usize) -> Option<f64> {
    let mut sent: Vec<_> = samples.iter().filter_map(|s| s.marks.sent).collect();
    sent.sort_unstable();
    let released = sent.get(..count)?;
    Some(ms(released.last()?.duration_since(*released.first()?)))
}

/// The sum of what every request says; `None` when one does not.
fn sum(samples: &[&Sample], count: impl Fn(&Sample) -> Option<u64>) -> Option<u64> {
    if samples.is_empty() {
        return None;
    }
    samples.iter().map(|sample| count(sample)).sum()
}

fn mean_concurrency(
    spans: impl Iterator<Item = (Instant, Instant)>,
    window: Option<f64>,
) -> Option<f64> {
    per_second(spans.map(|(from, to)| seconds(from, to)).sum(), window)
}

/// Most spans that hold one instant.
fn most_at_once(spans: &[(Instant, Instant)]) -> Option<u64> {
    let mut changes: Vec<_> = spans
        .iter()
        .flat_map(|(from, to)| [(*from, 1_i64), (*to, -1)])
        .collect();
    if changes.is_empty() {
        return None;
    }
    // At one instant ends come first: what follows does not overlap.
    changes.sort_unstable();
    let mut now = 0;
    let counts = changes.into_iter().map(|(_, change)| {
        now += change;
        now
    });
    counts.max().and_then(|most| u64::try_from(most).ok())
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

fn per_second(amount: f64, window: Option<f64>) -> Option<f64> {
    let window = window.filter(|window| *window > 0.0)?;
    Some(amount / window)
}
