//! What a run says: the document that is written as JSON, version 1.
//!
//! Guarantee: names that begin with `client_wall_` are by the client's clock alone, and what is
//! not known is `null`, never 0.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::outcome::{ServingOutcome, ServingOutcomes};
use super::sample::{MetricSummary, Sample, Summary};
use super::server::{Gauges, ServerSnapshot};

/// Version of the document.
pub const SERVING_SCHEMA_VERSION: u32 = 1;

/// Everything about one run against a model server.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ServingReport {
    /// Version of this document.
    pub schema_version: u32,
    /// The run.
    pub run: RunInfo,
    /// The model.
    pub model: ModelInfo,
    /// What the server said about itself.
    pub server: ServerInfo,
    /// What was asked for.
    pub configuration: Configuration,
    /// Requests that are in no summary.
    pub warm_up: Vec<Sample>,
    /// Fresh prompts of several lengths, one at a time.
    pub prefill: Option<Prefill>,
    /// One long answer at a time.
    pub decode: Option<Group>,
    /// Prompts that the server may have in its cache.
    pub prefix_cache: Option<PrefixCache>,
    /// Levels of concurrency.
    pub concurrency: Option<Vec<Level>>,
    /// Arrivals at an offered rate.
    pub open_loop: Option<OpenLoop>,
    /// All attempts of all scenarios by class.
    pub outcomes: ServingOutcomes,
    /// Why the numbers are not to be used; empty when they are.
    pub invalid: Vec<String>,
    /// What a reader of the numbers must know.
    pub notes: Vec<String>,
}

/// The run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunInfo {
    /// The user's name for it.
    pub label: Option<String>,
    /// Begin, UTC.
    pub timestamp_utc: String,
    /// Drawn for each run; prompts are made from it.
    pub run_id: String,
    /// Seed of the arrivals.
    pub seed: u64,
    /// Version of justapi.
    pub client_version: String,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

/// The model.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ModelInfo {
    /// Id as the server has it.
    pub id: String,
    /// Tokens of prompt and answer together.
    pub context_capacity_tokens: Option<u64>,
    /// SHA-256 of the file of weights, where the user named it.
    pub weights_sha256: Option<String>,
    /// Type of the weights, where the user named it.
    pub dtype: Option<String>,
    /// Whether weights or answers are made up; `None` when nobody said.
    pub synthetic: Option<bool>,
}

/// The server.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ServerInfo {
    /// URL as given, without a key.
    pub url: String,
    /// Before the first request.
    pub before: ServerSnapshot,
    /// After the last one.
    pub after: ServerSnapshot,
    /// Differences of the series of `/metrics` that changed.
    pub metrics_delta: Option<BTreeMap<String, f64>>,
    /// Who counted the tokens of prompts.
    pub token_counter: String,
    /// `always`, `omits_zero` or `never`: what a missing count of cached tokens means.
    pub cached_tokens_reporting: String,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Configuration {
    /// Scenarios in their order.
    pub scenarios: Vec<&'static str>,
    /// Repetitions of the scenarios that ask one at a time.
    pub repetitions: u32,
    /// Requests before the first scenario.
    pub warm_up_runs: u32,
    /// Limit for one request.
    pub request_timeout_ms: f64,
    /// Whether connections carried more than one request.
    pub keep_alive: bool,
    /// Source of the prompts under load.
    pub dataset: &'static str,
    /// Its file.
    pub dataset_file: Option<String>,
    /// Whether prompts of the dataset begin alike on purpose.
    pub dataset_shares_prefixes: bool,
    /// Tokens of prompts under load.
    pub input_tokens: u64,
    /// Tokens of answers under load; `None` when the dataset says.
    pub output_tokens: Option<u64>,
    /// Requests of each client of a level.
    pub requests_per_client: u32,
    /// `usage`, or `none` when answers without counts were accepted.
    pub token_source: &'static str,
    /// Fields sent with each request beside model and messages.
    pub request_fields: Value,
}

/// Requests of one kind, one at a time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// Tokens of the prompt.
    pub target_prompt_tokens: u64,
    /// Tokens of the answer.
    pub max_tokens: u64,
    /// Why it was not measured.
    pub skipped: Option<String>,
    /// Every request.
    pub samples: Vec<Sample>,
    /// The complete answers.
    pub summary: Summary,
}

/// Fresh prompts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Prefill {
    /// One group for each length.
    pub targets: Vec<Group>,
}

/// Prompts that the server may have in its cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PrefixCache {
    /// Tokens of the prefix.
    pub prefix_tokens: u64,
    /// Tokens of the new suffix.
    pub suffix_tokens: u64,
    /// Why it was not measured.
    pub skipped: Option<String>,
    /// The requests of each repetition.
    pub samples: Vec<PrefixSample>,
    /// The complete answers by kind.
    pub summary: PrefixSummary,
}

/// Three requests, in this order.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PrefixSample {
    /// Repetition from 0.
    pub repetition: u32,
    /// A prefix that is new.
    pub fresh: Option<Sample>,
    /// Exactly the same prompt.
    pub identical: Option<Sample>,
    /// The same with a short suffix that is new.
    pub small_suffix: Option<Sample>,
}

/// Summaries of [`PrefixSample`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PrefixSummary {
    /// Of the first requests.
    pub fresh: Summary,
    /// Of the second.
    pub identical: Summary,
    /// Of the third.
    pub small_suffix: Summary,
}

/// One level of concurrency.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Level {
    /// Clients that each had one request under way.
    pub concurrency_offered: u32,
    /// Why it was not measured.
    pub skipped: Option<String>,
    /// What all of its requests came to.
    pub totals: Totals,
    /// First byte of the first of the requests released together to that of the last.
    pub start_spread_ms: Option<f64>,
    /// Requests that the server says it works on at once.
    pub server_max_running: Option<u64>,
    /// The server's gauges.
    pub server_gauges: Gauges,
    /// Every request.
    pub samples: Vec<Sample>,
    /// The complete answers.
    pub summary: Summary,
}

/// What the requests of a level came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// All attempts.
    pub requests: u64,
    /// By class.
    pub outcomes: ServingOutcomes,
    /// First byte of the first request to the end of the last.
    pub client_wall_ms: Option<f64>,
    /// Of complete answers.
    pub prompt_tokens: Option<u64>,
    /// Of complete answers.
    pub completion_tokens: Option<u64>,
    /// Of complete answers; `None` when the server does not say.
    pub cached_tokens: Option<u64>,
    /// Tokens of complete answers over first byte sent to last token.
    pub client_wall_output_tps: Option<f64>,
    /// Complete answers over the same window.
    pub client_wall_request_rate: Option<f64>,
    /// Mean number of requests under way (Little: summed times over the window).
    pub concurrency_inflight: Option<f64>,
    /// Mean number of requests that had a first token and no end.
    pub concurrency_admitted_mean: Option<f64>,
    /// Most of them at once.
    pub concurrency_admitted_max: Option<u64>,
}

/// Arrivals at an offered rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OpenLoop {
    /// `poisson`, `constant` or `trace`.
    pub arrivals: &'static str,
    /// Requests per second that were due.
    pub rate_offered: Option<f64>,
    /// Requests per second between the first and the last due time.
    pub rate_scheduled: Option<f64>,
    /// Requests per second between the first and the last that were sent.
    pub rate_achieved: Option<f64>,
    /// Most requests under way at once.
    pub max_in_flight: Option<u32>,
    /// Why it was not measured.
    pub skipped: Option<String>,
    /// SHA-256 of the due times in nanoseconds, eight bytes each, little-endian.
    pub schedule_sha256: String,
    /// Due times in milliseconds.
    pub schedule_ms: Vec<f64>,
    /// Due instant to first byte written.
    pub client_wall_sched_delay_ms: MetricSummary,
    /// The limits and what kept them.
    pub goodput: Option<Goodput>,
    /// What all of its requests came to.
    pub totals: Totals,
    /// The server's gauges.
    pub server_gauges: Gauges,
    /// Every request.
    pub samples: Vec<Sample>,
    /// The complete answers.
    pub summary: Summary,
}

/// Requests that kept every limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Goodput {
    /// Limit from the due instant to the first token.
    pub slo_ttft_ms: Option<f64>,
    /// Limit for each token after the first.
    pub slo_tpot_ms: Option<f64>,
    /// Limit from the due instant to the last token.
    pub slo_e2e_ms: Option<f64>,
    /// Requests that kept them all.
    pub good: u64,
    /// Over all attempts, the failed ones included.
    pub fraction: Option<f64>,
    /// Per second.
    pub client_wall_goodput: Option<f64>,
}

impl ServingReport {
    /// Whether any request succeeded.
    pub fn any_succeeded(&self) -> bool {
        self.outcomes.contains_key(&ServingOutcome::Ok)
    }

    /// Whether every attempt, the warm-up included, failed.
    pub fn all_failed(&self) -> bool {
        !self.any_succeeded()
            && (!self.outcomes.is_empty() || self.warm_up.iter().any(|sample| !sample.is_ok()))
    }
}
