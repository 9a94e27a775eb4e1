//! The numbers of one request, and summaries over many.
//!
//! Guarantee: a number that is not defined is `None`, never 0; only complete answers enter a
//! summary; a percentile that its sample cannot support is `None` and says how many it needs.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::client::Attempt;
use super::outcome::ServingOutcome;
use crate::stats;

/// Samples from which the highest bounds a percentile with 99 % confidence: ⌈ln 0.01 / ln p⌉.
pub(super) const FLOOR_P90: usize = 44;
pub(super) const FLOOR_P95: usize = 90;
pub(super) const FLOOR_P99: usize = 459;

/// One request as the client saw it; times by the client's clock alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sample {
    /// Repetition, or number in the level, from 0.
    pub repetition: u32,
    /// How it ended.
    pub outcome: ServingOutcome,
    /// Status of the response.
    pub status: Option<u16>,
    /// What was said about a failure.
    pub detail: Option<String>,
    /// Why the server stopped to generate.
    pub finish_reason: Option<String>,
    /// Whether the connection had carried a request before.
    pub connection_reused: bool,
    /// Whether `[DONE]` came.
    pub done_seen: bool,
    /// Tokens that the prompt was made to have.
    pub target_prompt_tokens: Option<u64>,
    /// Tokens of the prompt, as the server counted.
    pub prompt_tokens: Option<u64>,
    /// Generated tokens, as the server counted.
    pub completion_tokens: Option<u64>,
    /// Prompt tokens from a cache; `None` when the server does not say.
    pub cached_tokens: Option<u64>,
    /// Cached over all prompt tokens.
    pub cache_hit_ratio: Option<f64>,
    /// Events that bore tokens.
    pub sse_token_events: u64,
    /// Generated tokens for each such event.
    pub tokens_per_chunk: Option<f64>,
    /// Generated tokens after the first.
    pub decode_steps: Option<u64>,
    /// Intended instant to first byte written, in an open loop.
    pub client_wall_sched_delay_ms: Option<f64>,
    /// Time to connect, when this request had to; in no other number but those from the
    /// intended instant.
    pub client_wall_connect_ms: Option<f64>,
    /// First byte written to the head of the response.
    pub client_wall_ttfb_ms: Option<f64>,
    /// First byte written to the first event that bore a token.
    pub client_wall_ttft_ms: Option<f64>,
    /// Intended instant to the first event that bore a token.
    pub client_wall_ttft_sched_ms: Option<f64>,
    /// First byte written to the first visible content.
    pub client_wall_ttfo_ms: Option<f64>,
    /// First event that bore a token to the second.
    pub client_wall_ttst_ms: Option<f64>,
    /// First to last event over the generated tokens after the first.
    pub client_wall_tpot_ms: Option<f64>,
    /// Its reciprocal, per second.
    pub client_wall_decode_tps: Option<f64>,
    /// The same without the tokens of the first event, of a server that counts in each event.
    pub client_wall_decode_tps_steady: Option<f64>,
    /// Prompt tokens that were not cached over the time to the first token.
    pub client_wall_effective_prefill_tps: Option<f64>,
    /// Prompt tokens, cached or not, over the time to the first token.
    pub client_wall_nominal_prefill_tps: Option<f64>,
    /// First byte written to the last event that bore a token.
    pub client_wall_e2e_last_token_ms: Option<f64>,
    /// That time for each generated token.
    pub client_wall_e2e_per_token_ms: Option<f64>,
    /// First byte written to `[DONE]`, or to the end of the message without it.
    pub client_wall_total_ms: Option<f64>,
    /// Last event that bore a token to `[DONE]`.
    pub client_wall_done_after_last_ms: Option<f64>,
    /// Gaps between the events that bore tokens.
    #[serde(skip)]
    pub(super) gaps_ms: Vec<f64>,
    #[serde(skip)]
    pub(super) marks: Marks,
}

/// Instants of a sample that comparisons between samples need.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Marks {
    pub(super) scheduled: Option<Instant>,
    pub(super) sent: Option<Instant>,
    pub(super) first: Option<Instant>,
    pub(super) last: Option<Instant>,
    pub(super) ended: Option<Instant>,
}

impl Marks {
    fn of(attempt: &Attempt, ended: Instant) -> Self {
        let tokens = &attempt.completion.tokens;
        Self {
            scheduled: attempt.scheduled,
            sent: attempt.sent,
            first: tokens.first().copied(),
            last: tokens.last().copied(),
            ended: attempt.sent.map(|_| ended),
        }
    }
}

impl Sample {
    /// `unsaid` is what a server means by leaving the cached tokens out of its usage.
    pub(super) fn new(
        repetition: u32,
        target: Option<u64>,
        attempt: &Attempt,
        unsaid: Option<u64>,
    ) -> Self {
        let stream = &attempt.completion;
        let usage = stream.usage.unwrap_or_default();
        let (first, last) = (
            stream.tokens.first().copied(),
            stream.tokens.last().copied(),
        );
        let second = stream.tokens.get(1).copied();
        let num_events = stream.tokens.len() as u64;
        let num_tokens = usage.completion_tokens;
        let is_complete = matches!(
            attempt.outcome,
            ServingOutcome::Ok | ServingOutcome::UsageMissing
        );
        let ended = is_complete.then(|| stream.done.unwrap_or(attempt.ended));
        let unsaid = unsaid.filter(|_| stream.usage.is_some());
        let cached = usage.cached_tokens().or(unsaid);
        let since_sent = |at: Option<Instant>| span(attempt.sent, at);
        let ttft = since_sent(first);
        let decode = span(first, last).filter(|span| !span.is_zero());
        let steps = num_tokens.and_then(|tokens| tokens.checked_sub(1));
        let steady = difference(num_tokens, stream.tokens_at_first);
        let decode_tps = rate(steps.filter(|steps| *steps > 0), decode);
        let fresh = difference(usage.prompt_tokens, cached).filter(|fresh| *fresh > 0);
        let gaps = stream.tokens.windows(2);
        Self {
            repetition,
            outcome: attempt.outcome,
            status: attempt.status,
            detail: attempt.detail.clone(),
            finish_reason: stream.finish_reason.clone(),
            connection_reused: attempt.reused,
            done_seen: stream.done.is_some(),
            target_prompt_tokens: target,
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: num_tokens,
            cached_tokens: cached,
            cache_hit_ratio: ratio(cached, usage.prompt_tokens),
            sse_token_events: num_events,
            tokens_per_chunk: ratio(num_tokens, Some(num_events)),
            decode_steps: steps,
            client_wall_sched_delay_ms: span(attempt.scheduled, attempt.sent).map(ms),
            client_wall_connect_ms: attempt.connect.map(ms),
            client_wall_ttfb_ms: since_sent(attempt.head).map(ms),
            client_wall_ttft_ms: ttft.map(ms),
            client_wall_ttft_sched_ms: span(attempt.scheduled, first).map(ms),
            client_wall_ttfo_ms: since_sent(stream.first_content).map(ms),
            client_wall_ttst_ms: span(first, second).map(ms),
            client_wall_tpot_ms: decode_tps.map(|tps| 1000.0 / tps),
            client_wall_decode_tps: decode_tps,
            client_wall_decode_tps_steady: rate(steady.filter(|steps| *steps > 0), decode),
            client_wall_effective_prefill_tps: rate(fresh, ttft),
            client_wall_nominal_prefill_tps: rate(usage.prompt_tokens, ttft),
            client_wall_e2e_last_token_ms: since_sent(last).map(ms),
            client_wall_e2e_per_token_ms: since_sent(last)
                .zip(num_tokens.filter(|tokens| *tokens > 0))
                .map(|(span, tokens)| ms(span) / tokens as f64),
            client_wall_total_ms: since_sent(ended).map(ms),
            client_wall_done_after_last_ms: span(last, ended).map(ms),
            gaps_ms: gaps.map(|pair| ms(pair[1] - pair[0])).collect(),
            marks: Marks::of(attempt, ended.unwrap_or(attempt.ended)),
        }
    }

    pub(super) const fn is_ok(&self) -> bool {
        matches!(self.outcome, ServingOutcome::Ok)
    }
}

/// A metric over the complete answers of a group; nearest-rank percentiles.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MetricSummary {
    /// Answers in which the metric is defined.
    pub sample_count: usize,
    /// Nearest-rank median.
    pub median: Option<f64>,
    /// Mean over the answers.
    pub mean: Option<f64>,
    /// Least.
    pub min: Option<f64>,
    /// Greatest.
    pub max: Option<f64>,
    /// 5th percentile; needs as many samples as the 95th.
    pub p5: Option<f64>,
    /// 90th percentile; needs 44 samples.
    pub p90: Option<f64>,
    /// 95th percentile; needs 90 samples.
    pub p95: Option<f64>,
    /// 99th percentile; needs 459 samples.
    pub p99: Option<f64>,
}

impl MetricSummary {
    pub(super) fn of(values: &[f64]) -> Self {
        let count = values.len();
        let above = |floor: usize, p: f64| {
            (count >= floor)
                .then(|| stats::percentile(values, p))
                .flatten()
        };
        Self {
            sample_count: count,
            median: stats::percentile(values, 0.5),
            mean: (count > 0).then(|| values.iter().sum::<f64>() / count as f64),
            min: values.iter().copied().reduce(f64::min),
            max: values.iter().copied().reduce(f64::max),
            p5: above(FLOOR_P95, 0.05),
            p90: above(FLOOR_P90, 0.90),
            p95: above(FLOOR_P95, 0.95),
            p99: above(FLOOR_P99, 0.99),
        }
    }
}

/// The metrics of a group of requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// First byte written to first token.
    pub client_wall_ttft_ms: MetricSummary,
    /// Intended instant to first token; `None` in a closed loop.
    pub client_wall_ttft_sched_ms: Option<MetricSummary>,
    /// First token to second event.
    pub client_wall_ttst_ms: MetricSummary,
    /// Time for each token after the first, per request.
    pub client_wall_tpot_ms: MetricSummary,
    /// Tokens per second after the first, per request.
    pub client_wall_decode_tps: MetricSummary,
    /// The same without the tokens of the first event.
    pub client_wall_decode_tps_steady: MetricSummary,
    /// Prompt tokens that were not cached per second until the first token.
    pub client_wall_effective_prefill_tps: MetricSummary,
    /// First byte written to last token.
    pub client_wall_e2e_last_token_ms: MetricSummary,
    /// First byte written to the end.
    pub client_wall_total_ms: MetricSummary,
    /// Last token to the end.
    pub client_wall_done_after_last_ms: MetricSummary,
    /// Gaps between events, pooled over requests.
    pub client_wall_icl_ms: MetricSummary,
    /// The same where events bear one token each; `None` elsewhere.
    pub client_wall_itl_ms: Option<MetricSummary>,
    /// Tokens of each event.
    pub tokens_per_chunk: MetricSummary,
}

impl Summary {
    pub(super) fn of<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Self {
        let ok: Vec<_> = samples
            .into_iter()
            .filter(|sample| sample.is_ok())
            .collect();
        let over = |metric: fn(&Sample) -> Option<f64>| {
            let values: Vec<_> = ok.iter().filter_map(|sample| metric(sample)).collect();
            MetricSummary::of(&values)
        };
        let gaps: Vec<_> = ok.iter().flat_map(|s| s.gaps_ms.iter().copied()).collect();
        let icl = MetricSummary::of(&gaps);
        let is_single = |sample: &&Sample| {
            sample
                .tokens_per_chunk
                .is_some_and(|tokens| (0.95..=1.05).contains(&tokens))
        };
        let has_single_tokens = !ok.is_empty() && ok.iter().all(is_single);
        let is_open = ok.iter().any(|sample| sample.marks.scheduled.is_some());
        Self {
            client_wall_ttft_ms: over(|s| s.client_wall_ttft_ms),
            client_wall_ttft_sched_ms: is_open.then(|| over(|s| s.client_wall_ttft_sched_ms)),
            client_wall_ttst_ms: over(|s| s.client_wall_ttst_ms),
            client_wall_tpot_ms: over(|s| s.client_wall_tpot_ms),
            client_wall_decode_tps: over(|s| s.client_wall_decode_tps),
            client_wall_decode_tps_steady: over(|s| s.client_wall_decode_tps_steady),
            client_wall_effective_prefill_tps: over(|s| s.client_wall_effective_prefill_tps),
            client_wall_e2e_last_token_ms: over(|s| s.client_wall_e2e_last_token_ms),
            client_wall_total_ms: over(|s| s.client_wall_total_ms),
            client_wall_done_after_last_ms: over(|s| s.client_wall_done_after_last_ms),
            client_wall_itl_ms: has_single_tokens.then(|| icl.clone()),
            client_wall_icl_ms: icl,
            tokens_per_chunk: over(|s| s.tokens_per_chunk),
        }
    }
}

/// From one instant to another; `None` when either is missing.
fn span(from: Option<Instant>, to: Option<Instant>) -> Option<Duration> {
    Some(to?.saturating_duration_since(from?))
}

/// Milliseconds, to the nanosecond.
pub(super) fn ms(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e6
}

/// `None` when either is unknown, or they contradict each other.
fn difference(all: Option<u64>, part: Option<u64>) -> Option<u64> {
    all?.checked_sub(part?)
}

fn ratio(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    let whole = whole.filter(|whole| *whole > 0)?;
    Some(part? as f64 / whole as f64)
}

fn rate(tokens: Option<u64>, span: Option<Duration>) -> Option<f64> {
    let seconds = span?.as_secs_f64();
    (seconds > 0.0).then_some(tokens? as f64 / seconds)
}
