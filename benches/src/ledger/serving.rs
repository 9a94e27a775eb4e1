//! The cells of a model server: which model it was, and every request with its times.
//!
//! Guarantee: rows are a function of the requests, so the verifier computes them again. Times are
//! whole nanoseconds by the client's clock; what is not known is `null`, and a cell with a request
//! that failed, or whose prompt had another length than it was counted with, has no numbers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::record::{ArmRecord, CellRecord, Row, Summary};
use super::render::cell_text;
use super::{Decimal, Metric};
use crate::llm::misses_its_length;
use crate::stats::{median_absolute_deviation, percentile};

/// Hexadecimal digits of a digest that a row shows; the whole stands above the table.
const SHOWN_DIGITS: usize = 12;

/// The outcome of a complete answer.
const OK: &str = "ok";

/// What a model server had loaded, as its user says.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServedModel {
    /// Id that the server has it under.
    pub id: String,
    /// SHA-256 of the file of weights, lower-case hexadecimal.
    pub weights_sha256: String,
    /// Type of the weights, such as `Q4_1`.
    pub dtype: String,
    /// Whether weights or answers are made up.
    pub synthetic: bool,
}

/// What a cell of a model server has beside what all cells have.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServingCell {
    /// Kind of load.
    pub scenario: ServingScenario,
    /// The model.
    pub model: ServedModel,
    /// Source of the prompts.
    pub dataset: String,
    /// Tokens of each prompt, where they are all alike.
    pub prompt_tokens: Option<u64>,
    /// Tokens asked for of each answer, where they are all alike.
    pub max_tokens: Option<u64>,
    /// Who counted the tokens of prompts.
    pub token_counter: String,
    /// Fields sent with each request beside model, messages and length, as JSON.
    pub request_fields: String,
    /// Every request, in the order of its level.
    pub requests: Vec<ServedRequest>,
}

/// A kind of load on a model server.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServingScenario {
    /// Fresh prompts, one at a time.
    Prefill,
    /// Long answers, one at a time.
    Decode,
    /// Prompts that the server may have in its cache, one at a time.
    Prefix,
    /// Clients that each ask again when they are answered.
    Concurrency,
    /// Requests at a rate, however the server fares.
    Rate,
}

impl ServingScenario {
    /// Returns whether requests overlap, so that they have a rate in common.
    fn is_many_at_once(self) -> bool {
        matches!(self, Self::Concurrency | Self::Rate)
    }
}

/// One request; instants in nanoseconds since the first of the cell.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServedRequest {
    /// How it ended.
    pub outcome: String,
    /// Tokens that the prompt was made to have.
    pub target_prompt_tokens: Option<u64>,
    /// Tokens of the prompt, as the server counted.
    pub prompt_tokens: Option<u64>,
    /// Generated tokens, as the server counted.
    pub completion_tokens: Option<u64>,
    /// Prompt tokens from a cache; `null` when the server does not say.
    pub cached_tokens: Option<u64>,
    /// Events that bore tokens.
    pub token_events: u64,
    /// When it was due, at a rate.
    pub due_ns: Option<u64>,
    /// First byte written.
    pub sent_ns: Option<u64>,
    /// First event that bore a token.
    pub first_token_ns: Option<u64>,
    /// Last event that bore a token.
    pub last_token_ns: Option<u64>,
    /// End of the answer.
    pub ended_ns: Option<u64>,
}

/// The row of an arm of such a cell.
pub(crate) fn row(cell: &CellRecord, arm: &ArmRecord, serving: &ServingCell) -> Row {
    let requests = &serving.requests;
    let invalid = fault(cell, requests);
    let metrics = match invalid {
        Some(_) => BTreeMap::new(),
        None => (Metric::ALL.into_iter())
            .filter_map(|metric| Some((metric, summary(&values(serving, metric)?)?)))
            .collect(),
    };
    Row {
        id: format!("{}/{}", cell.id, arm.label),
        num_rounds: requests.iter().filter(|r| r.outcome == OK).count() as u32,
        invalid,
        metrics,
        engagement: None,
        model: Some(serving.model.clone()),
    }
}

/// Why the requests of a cell say nothing.
fn fault(cell: &CellRecord, requests: &[ServedRequest]) -> Option<String> {
    if requests.is_empty() {
        return Some(String::from("nothing was measured"));
    }
    let mut failed = requests.iter().filter(|request| request.outcome != OK);
    if let Some(first) = failed.next() {
        let count = failed.count() + 1;
        let all = requests.len();
        let outcome = &first.outcome;
        return Some(format!(
            "{count} of {all} requests failed; the first is {outcome}"
        ));
    }
    if requests.len() != cell.num_rounds as usize {
        let (found, wanted) = (requests.len(), cell.num_rounds);
        return Some(format!("{found} of {wanted} requests"));
    }
    let lengths = |request: &ServedRequest| {
        let (target, found) = request.target_prompt_tokens.zip(request.prompt_tokens)?;
        misses_its_length(target, found).then_some((target, found))
    };
    let (target, found) = requests.iter().find_map(lengths)?;
    Some(format!(
        "a prompt was counted as {target} tokens and used as {found}"
    ))
}

/// The values of a metric, one for each request or one for all; `None` where one is not known.
fn values(serving: &ServingCell, metric: Metric) -> Option<Vec<f64>> {
    let requests = &serving.requests;
    let of_each = |value: fn(&ServedRequest) -> Option<f64>| requests.iter().map(value).collect();
    match metric {
        Metric::OutputTps if serving.scenario.is_many_at_once() => {
            Some(vec![output_tps(requests)?])
        }
        Metric::AdmittedRequests if serving.scenario.is_many_at_once() => {
            Some(vec![most_at_once(requests)?])
        }
        Metric::TtftMs => of_each(|r| milliseconds(r.due_ns.or(r.sent_ns), r.first_token_ns)),
        Metric::DecodeTps => of_each(|r| {
            let steps = r.completion_tokens?.checked_sub(1)?;
            per_second(steps, r.first_token_ns, r.last_token_ns)
        }),
        Metric::PrefillTps => of_each(|r| {
            let fresh = r.prompt_tokens?.checked_sub(r.cached_tokens?)?;
            per_second(fresh, r.sent_ns, r.first_token_ns)
        }),
        _ => None,
    }
}

/// Tokens of all answers over the first byte sent to the last token.
fn output_tps(requests: &[ServedRequest]) -> Option<f64> {
    let tokens: Option<u64> = requests.iter().map(|r| r.completion_tokens).sum();
    let first = requests.iter().filter_map(|r| r.sent_ns).min();
    let last = requests.iter().filter_map(|r| r.last_token_ns).max();
    per_second(tokens?, first, last)
}

/// Most requests that had a first token and no end; what ends at an instant is not there any more.
fn most_at_once(requests: &[ServedRequest]) -> Option<f64> {
    let mut changes = Vec::with_capacity(2 * requests.len());
    for request in requests {
        changes.push((request.first_token_ns?, 1));
        changes.push((request.ended_ns?, -1));
    }
    changes.sort_unstable();
    let mut now = 0;
    let counts = changes.into_iter().map(|(_, change)| {
        now += change;
        now
    });
    counts.max().map(f64::from)
}

fn milliseconds(from: Option<u64>, to: Option<u64>) -> Option<f64> {
    Some(to?.checked_sub(from?)? as f64 / 1e6)
}

/// `None` where there is no time or nothing in it.
fn per_second(tokens: u64, from: Option<u64>, to: Option<u64>) -> Option<f64> {
    let nanoseconds = to?.checked_sub(from?)?;
    (tokens > 0 && nanoseconds > 0).then(|| tokens as f64 * 1e9 / nanoseconds as f64)
}

/// Nearest rank, as in the report of the run.
fn summary(values: &[f64]) -> Option<Summary> {
    Some(Summary {
        median: Decimal::new(percentile(values, 0.5)?)?,
        mad: Decimal::new(median_absolute_deviation(values)?)?,
        min: Decimal::new(values.iter().copied().fold(f64::INFINITY, f64::min))?,
        max: Decimal::new(values.iter().copied().fold(f64::NEG_INFINITY, f64::max))?,
    })
}

/// What stands behind the id of such a cell in its heading.
pub(super) fn exchange_text(cell: &CellRecord, serving: &ServingCell) -> String {
    let mut text = format!(": {} requests", cell.num_rounds);
    match serving.scenario {
        ServingScenario::Rate => text.push_str(" when they are due"),
        _ => {
            let _ = write!(text, ", {} at a time", cell.connections);
        }
    }
    if let Some(tokens) = serving.prompt_tokens {
        let _ = write!(text, ", {tokens} tokens in");
    }
    if let Some(tokens) = serving.max_tokens {
        let _ = write!(text, ", {tokens} out");
    }
    let _ = write!(text, ", {}", cell_text(&serving.dataset));
    text
}

/// The model of a cell with the whole digest of its weights.
pub(super) fn model_text(model: &ServedModel) -> String {
    format!(
        "Model {}, weights sha256:{}, {}{}.",
        cell_text(&model.id),
        cell_text(&model.weights_sha256),
        cell_text(&model.dtype),
        if model.synthetic { ", synthetic" } else { "" }
    )
}

/// The columns of the model in a row.
pub(super) fn model_columns(model: &ServedModel) -> [String; 4] {
    let digest: String = (model.weights_sha256.chars()).take(SHOWN_DIGITS).collect();
    let synthetic = if model.synthetic { "yes" } else { "no" };
    [
        cell_text(&model.id),
        cell_text(&digest),
        cell_text(&model.dtype),
        synthetic.to_owned(),
    ]
}

/// The names of those columns.
pub(super) const MODEL_COLUMNS: [&str; 4] = ["model", "weights", "dtype", "synthetic"];
