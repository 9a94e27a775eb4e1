//! Times and outcomes of requests, and everything the engine counts, as text
//! for Prometheus under the names that vLLM gave them, so that dashboards and
//! the routers of Kubernetes (Gateway API Inference Extension, llm-d) read us.
//!
//! Guarantee: the number of series is fixed, whatever clients send. Sources:
//! vLLM documentation, "Production Metrics"; Prometheus text format 0.0.4.

use std::fmt::{Display, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{EngineStats, FinishReason};

/// vLLM's, and what is shorter than them: a small model takes milliseconds.
const TTFT_BOUNDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0, 160.0, 640.0,
];
const ITL_BOUNDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const E2E_BOUNDS: &[f64] = &[
    0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0,
    60.0, 120.0, 240.0, 480.0, 960.0,
];

/// Labels of `request_success_total`: vLLM's four, and the time limit.
const REASONS: [&str; 5] = ["stop", "length", "abort", "error", "deadline"];

/// What the API counts, shared by all of its requests.
#[derive(Debug)]
pub(super) struct ApiMetrics {
    time_to_first_token: Histogram,
    inter_token_latency: Histogram,
    request_latency: Histogram,
    /// In the order of [`REASONS`].
    finished: [AtomicU64; REASONS.len()],
    unauthorized: AtomicU64,
}

impl ApiMetrics {
    pub(super) fn new() -> Self {
        Self {
            time_to_first_token: Histogram::new(TTFT_BOUNDS),
            inter_token_latency: Histogram::new(ITL_BOUNDS),
            request_latency: Histogram::new(E2E_BOUNDS),
            finished: Default::default(),
            unauthorized: AtomicU64::new(0),
        }
    }

    /// Counts a request without a key that is known.
    pub(super) fn count_unauthorized(&self) {
        self.unauthorized.fetch_add(1, Ordering::Relaxed);
    }

    fn count_finished(&self, reason: FinishReason) {
        let index = match reason {
            FinishReason::Stop => 0,
            FinishReason::Length => 1,
            FinishReason::Aborted => 2,
            FinishReason::Failed => 3,
            FinishReason::Deadline => 4,
        };
        self.finished[index].fetch_add(1, Ordering::Relaxed);
    }

    /// Everything, as families in the text format.
    pub(super) fn render(&self, model: &str, stats: &EngineStats) -> String {
        let mut text = Text::of(model);
        self.render_engine(&mut text, stats);
        self.render_prefix_cache(&mut text, stats);
        for (name, help, histogram) in [
            (
                "vllm:time_to_first_token_seconds",
                "Time from a request to its first token.",
                &self.time_to_first_token,
            ),
            (
                "vllm:inter_token_latency_seconds",
                "Time between two tokens of an answer.",
                &self.inter_token_latency,
            ),
            (
                "vllm:time_per_output_token_seconds",
                "The same, under its older name.",
                &self.inter_token_latency,
            ),
            (
                "vllm:e2e_request_latency_seconds",
                "Time from a request to the end of its answer.",
                &self.request_latency,
            ),
        ] {
            text.histogram(name, help, histogram);
        }
        let name = "vllm:request_success_total";
        text.family(name, "Answers by what ended them.", "counter");
        for (reason, count) in REASONS.iter().zip(&self.finished) {
            let count = count.load(Ordering::Relaxed);
            text.sample(name, &[("finished_reason", reason)], count);
        }
        text.counter(
            "justapi_unauthorized_total",
            "Requests without a key that is known.",
            self.unauthorized.load(Ordering::Relaxed),
        );
        text.text
    }

    #[expect(clippy::unused_self, reason = "a part of `render`")]
    fn render_engine(&self, text: &mut Text, stats: &EngineStats) {
        text.gauge(
            "vllm:num_requests_waiting",
            "Requests that wait for their first step.",
            stats.num_waiting,
        );
        text.gauge(
            "vllm:num_requests_running",
            "Requests that are worked on.",
            stats.num_running,
        );
        text.gauge(
            "vllm:kv_cache_usage_perc",
            "Blocks in use, 1 is all of them.",
            usage(stats),
        );
        text.counter(
            "vllm:prompt_tokens_total",
            "Tokens of prompts.",
            stats.prompt_tokens,
        );
        text.counter(
            "vllm:generation_tokens_total",
            "Tokens of answers.",
            stats.generation_tokens,
        );
        text.counter(
            "vllm:num_preemptions_total",
            "Requests that lost their blocks and began again.",
            stats.num_preemptions,
        );
        text.counter("justapi_engine_steps_total", "Steps.", stats.num_steps);
        let name = "vllm:cache_config_info";
        text.family(name, "Always 1; the labels say what the cache is.", "gauge");
        let block_size = stats.block_size.to_string();
        let num_blocks = stats.num_blocks.to_string();
        let labels = [
            ("block_size", block_size.as_str()),
            ("num_gpu_blocks", num_blocks.as_str()),
        ];
        text.sample(name, &labels, 1);
    }

    #[expect(clippy::unused_self, reason = "a part of `render`")]
    fn render_prefix_cache(&self, text: &mut Text, stats: &EngineStats) {
        let (queries, hits) = (stats.prefix_queries, stats.prefix_hits);
        text.counter(
            "vllm:prefix_cache_queries_total",
            "Prompt tokens looked up in the prefix cache.",
            queries,
        );
        text.counter(
            "vllm:prefix_cache_hits_total",
            "Prompt tokens found there.",
            hits,
        );
        text.counter("prefix_cache_hits", "Prompt tokens found there.", hits);
        text.counter(
            "prefix_cache_misses",
            "Prompt tokens not found there.",
            queries.saturating_sub(hits),
        );
        text.gauge(
            "prefix_cache_hit_ratio",
            "Share of those looked up that were found.",
            hit_ratio(stats),
        );
        text.gauge(
            "prefix_cache_blocks",
            "Blocks that only the prefix cache holds.",
            stats.num_cached_blocks,
        );
    }
}

/// Share of the blocks that requests hold.
pub(super) fn usage(stats: &EngineStats) -> f64 {
    let idle = stats.num_free_blocks + stats.num_cached_blocks;
    ratio(
        stats.num_blocks.saturating_sub(idle) as u64,
        stats.num_blocks as u64,
    )
}

/// Share of the prompt tokens looked up that were found.
pub(super) fn hit_ratio(stats: &EngineStats) -> f64 {
    ratio(stats.prefix_hits, stats.prefix_queries)
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

/// The clock of one answer; dropped before the end, it counts an abort.
#[derive(Debug)]
pub(super) struct Stopwatch {
    metrics: Arc<ApiMetrics>,
    started: Instant,
    last_token: Option<Instant>,
    is_finished: bool,
}

impl Stopwatch {
    /// That of a request that came at `started`.
    pub(super) fn new(metrics: &Arc<ApiMetrics>, started: Instant) -> Self {
        Self {
            metrics: Arc::clone(metrics),
            started,
            last_token: None,
            is_finished: false,
        }
    }

    /// Notes that a token has come.
    pub(super) fn token(&mut self) {
        let now = Instant::now();
        match self.last_token.replace(now) {
            None => self.metrics.time_to_first_token.observe(now - self.started),
            Some(last) => self.metrics.inter_token_latency.observe(now - last),
        }
    }

    /// Notes that the answer is at its end.
    pub(super) fn finished(&mut self, reason: FinishReason) {
        self.is_finished = true;
        self.metrics.request_latency.observe(self.started.elapsed());
        self.metrics.count_finished(reason);
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        if !self.is_finished {
            self.metrics.count_finished(FinishReason::Aborted);
        }
    }
}

/// Counts of durations up to each of some bounds, in seconds.
#[derive(Debug)]
struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: the last has no bound.
    counts: Box<[AtomicU64]>,
    sum_ns: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum_ns: AtomicU64::new(0),
        }
    }

    fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let index = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[index].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// Families of one model, being written.
struct Text {
    model: String,
    text: String,
}

impl Text {
    fn of(model: &str) -> Self {
        let escaped = model
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        Self {
            model: escaped,
            text: String::with_capacity(8 * 1024),
        }
    }

    fn write(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.text
            .write_fmt(arguments)
            .expect("writing to memory cannot fail");
    }

    fn family(&mut self, name: &str, help: &str, kind: &str) {
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// `labels` need no escapes.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let model = std::mem::take(&mut self.model);
        self.write(format_args!("{name}{{model_name=\"{model}\""));
        for (label, value) in labels {
            self.write(format_args!(",{label}=\"{value}\""));
        }
        self.write(format_args!("}} {value}\n"));
        self.model = model;
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help, "counter");
        self.sample(name, &[], value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help, "gauge");
        self.sample(name, &[], value);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        let mut num_seen = 0;
        for (index, count) in histogram.counts.iter().enumerate() {
            num_seen += count.load(Ordering::Relaxed);
            let bound = histogram.bounds.get(index);
            let bound = bound.map_or_else(|| "+Inf".to_owned(), f64::to_string);
            self.sample(&bucket, &[("le", &bound)], num_seen);
        }
        let seconds = histogram.sum_ns.load(Ordering::Relaxed) as f64 / 1e9;
        self.sample(&format!("{name}_sum"), &[], seconds);
        self.sample(&format!("{name}_count"), &[], num_seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_its_bucket_and_above() {
        let metrics = Arc::new(ApiMetrics::new());
        metrics.request_latency.observe(Duration::from_millis(100));
        metrics.request_latency.observe(Duration::from_secs(10_000));
        let text = metrics.render("m\"1", &EngineStats::default());
        for line in [
            r#"vllm:e2e_request_latency_seconds_bucket{model_name="m\"1",le="0.05"} 0"#,
            r#"vllm:e2e_request_latency_seconds_bucket{model_name="m\"1",le="0.1"} 1"#,
            r#"vllm:e2e_request_latency_seconds_bucket{model_name="m\"1",le="960"} 1"#,
            r#"vllm:e2e_request_latency_seconds_bucket{model_name="m\"1",le="+Inf"} 2"#,
            r#"vllm:e2e_request_latency_seconds_sum{model_name="m\"1"} 10000.1"#,
            r#"vllm:e2e_request_latency_seconds_count{model_name="m\"1"} 2"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    #[test]
    fn every_family_is_described_once_and_has_samples() {
        let text = ApiMetrics::new().render("m", &EngineStats::default());
        let mut described = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let name = rest.split(' ').next().expect("a name");
                assert!(!described.contains(&name), "{name}");
                described.push(name);
            } else if !line.starts_with('#') {
                let family = described.last().expect("a description first");
                assert!(line.starts_with(family), "{line} of {family}");
            }
        }
        assert_eq!(described.len(), 20);
    }

    #[test]
    fn shares_are_of_what_there_is() {
        let stats = EngineStats {
            num_blocks: 10,
            num_free_blocks: 3,
            num_cached_blocks: 2,
            prefix_queries: 4,
            prefix_hits: 1,
            ..EngineStats::default()
        };
        assert_eq!((usage(&stats), hit_ratio(&stats)), (0.5, 0.25));
        let none = EngineStats::default();
        assert_eq!((usage(&none), hit_ratio(&none)), (0.0, 0.0));
    }

    #[test]
    fn an_answer_that_is_given_up_counts_as_an_abort() {
        let metrics = Arc::new(ApiMetrics::new());
        let mut watch = Stopwatch::new(&metrics, Instant::now());
        watch.token();
        watch.token();
        drop(watch);
        let mut ended = Stopwatch::new(&metrics, Instant::now());
        ended.finished(FinishReason::Stop);
        drop(ended);
        let text = metrics.render("m", &EngineStats::default());
        for line in [
            r#"vllm:request_success_total{model_name="m",finished_reason="stop"} 1"#,
            r#"vllm:request_success_total{model_name="m",finished_reason="abort"} 1"#,
            r#"vllm:time_to_first_token_seconds_count{model_name="m"} 1"#,
            r#"vllm:inter_token_latency_seconds_count{model_name="m"} 1"#,
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
