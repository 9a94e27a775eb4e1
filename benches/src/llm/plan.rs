//! What is to be measured of a model server, checked before anything is asked of it.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::dataset::Dataset;
use super::totals::Slo;
use crate::Error;
use crate::load::Target;

/// Tokens that a shared prefix leaves at least for what is a prompt's own.
const MIN_OWN_TOKENS: u64 = 32;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scenario {
    /// Fresh prompts of several lengths.
    Prefill,
    /// A long answer.
    Decode,
    /// Prompts that the server may have in its cache.
    Prefix,
    /// Levels of concurrency.
    Concurrency,
    /// Arrivals at an offered rate.
    Rate,
}

impl Scenario {
    /// Every scenario, in the order in which they run.
    pub const ALL: [Self; 5] = [
        Self::Prefill,
        Self::Decode,
        Self::Prefix,
        Self::Concurrency,
        Self::Rate,
    ];

    /// The name, as flags and reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Prefix => "prefix",
            Self::Concurrency => "concurrency",
            Self::Rate => "rate",
        }
    }
}

/// When requests of an open loop are due.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Arrivals {
    /// Independent of one another, this many each second.
    Poisson(f64),
    /// Evenly, this many each second.
    Constant(f64),
    /// As the trace has them, this many times as fast.
    Trace(f64),
}

/// What is to be measured.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of the command line"
)]
#[derive(Debug, Clone)]
pub struct ServingPlan {
    /// Where the server is.
    pub target: Target,
    /// URL for the report.
    pub url: String,
    /// Path ahead of `/v1/chat/completions` and `/health`; empty for none.
    pub base_path: String,
    /// Sent as `Authorization: Bearer`; never in a report.
    pub api_key: Option<String>,
    /// Model to ask; without one, the first that the server lists.
    pub model: Option<String>,
    /// The user's name for the run.
    pub label: Option<String>,
    /// SHA-256 of the weights.
    pub weights_sha256: Option<String>,
    /// Type of the weights.
    pub dtype: Option<String>,
    /// Whether the model is made up.
    pub synthetic: Option<bool>,
    /// Scenarios; run in the order of [`Scenario::ALL`].
    pub scenarios: Vec<Scenario>,
    /// Repetitions of what is asked one at a time.
    pub repetitions: u32,
    /// Requests before the first scenario.
    pub warm_up_runs: u32,
    /// Limit for one request.
    pub timeout: Duration,
    /// Whether connections carry more than one request.
    pub keep_alive: bool,
    /// Whether answers without token counts are refused.
    pub usage_is_needed: bool,
    /// Whether counts are asked for in every event.
    pub continuous_usage: bool,
    /// Whether fields beyond OpenAI's own are left out.
    pub plain: bool,
    /// Fields that replace or, where `null`, remove those that are sent.
    pub extra_fields: Map<String, Value>,
    /// Prompt lengths of the scenario `prefill`.
    pub prefill_tokens: Vec<u64>,
    /// Answer length of the scenario `decode`.
    pub decode_tokens: u64,
    /// Length of the prefix of the scenario `prefix`.
    pub prefix_tokens: u64,
    /// Length of its suffix.
    pub suffix_tokens: u64,
    /// Levels of the scenario `concurrency`.
    pub levels: Vec<u32>,
    /// Requests of each client of a level.
    pub requests_per_client: u32,
    /// Arrivals of the scenario `rate`.
    pub arrivals: Option<Arrivals>,
    /// Requests of the scenario `rate`.
    pub num_arrivals: u32,
    /// Most requests under way in the scenario `rate`.
    pub max_in_flight: Option<u32>,
    /// Limits for goodput.
    pub slo: Slo,
    /// Prompts of the scenarios `concurrency` and `rate`.
    pub dataset: Dataset,
    /// Tokens of those prompts.
    pub input_tokens: u64,
    /// Tokens of their answers; without it, 128 or as the dataset says.
    pub output_tokens: Option<u64>,
    /// Seed of the arrivals.
    pub seed: u64,
}

impl ServingPlan {
    /// The plan of an uncustomised run against `target`.
    pub fn new(target: Target, url: String, base_path: String) -> Self {
        Self {
            target,
            url,
            base_path,
            api_key: None,
            model: None,
            label: None,
            weights_sha256: None,
            dtype: None,
            synthetic: None,
            scenarios: vec![
                Scenario::Prefill,
                Scenario::Decode,
                Scenario::Prefix,
                Scenario::Concurrency,
            ],
            repetitions: 3,
            warm_up_runs: 1,
            timeout: Duration::from_mins(10),
            keep_alive: true,
            usage_is_needed: true,
            continuous_usage: false,
            plain: false,
            extra_fields: Map::new(),
            prefill_tokens: vec![512, 1024, 2048, 4096],
            decode_tokens: 256,
            prefix_tokens: 4096,
            suffix_tokens: 32,
            levels: vec![1, 2, 4, 8, 16],
            requests_per_client: 2,
            arrivals: None,
            num_arrivals: 32,
            max_in_flight: None,
            slo: Slo::default(),
            dataset: Dataset::Synthetic,
            input_tokens: 512,
            output_tokens: None,
            seed: 0,
        }
    }

    /// Whether the plan can be run.
    ///
    /// # Errors
    ///
    /// [`Error::LoadPlan`].
    pub fn validate(&self) -> Result<(), Error> {
        let check = |is_met: bool, field: &'static str, problem: &'static str| {
            if is_met {
                Ok(())
            } else {
                Err(Error::LoadPlan { field, problem })
            }
        };
        let runs = |scenario| self.scenarios.contains(&scenario);
        let rate = match self.arrivals {
            Some(Arrivals::Poisson(rate) | Arrivals::Constant(rate) | Arrivals::Trace(rate)) => {
                Some(rate)
            }
            None => None,
        };
        check(!self.scenarios.is_empty(), "scenario", "none is chosen")?;
        check(!self.timeout.is_zero(), "timeout", "must be above 0")?;
        check(
            self.levels.iter().all(|level| *level > 0),
            "concurrency",
            "a level must be above 0",
        )?;
        check(
            runs(Scenario::Rate) == rate.is_some(),
            "rate",
            "the scenario and the rate need each other",
        )?;
        check(
            rate.is_none_or(|rate| rate > 0.0 && rate.is_finite()),
            "rate",
            "must be a number above 0",
        )?;
        check(
            !(runs(Scenario::Rate) && matches!(self.dataset, Dataset::MultiTurn { .. })),
            "dataset",
            "a turn is due when the answer before it has come, so multi-turn has no rate",
        )?;
        check(
            !self.slo.is_set() || runs(Scenario::Rate),
            "slo",
            "limits count for arrivals at a rate only",
        )?;
        check(
            self.slo.tpot_ms.is_none() || self.output_tokens != Some(1),
            "slo",
            "a limit for each further token needs more than one output token",
        )?;
        let num_arrivals = self.num_arrivals as usize;
        check(
            !matches!(self.arrivals, Some(Arrivals::Trace(_)))
                || self.dataset.times_ms(num_arrivals).is_some(),
            "arrivals",
            "need a trace whose lines have timestamps in rising order",
        )?;
        if let Dataset::SharedPrefix { prefix_tokens } = self.dataset {
            check(
                prefix_tokens + MIN_OWN_TOKENS <= self.input_tokens,
                "dataset",
                "the shared prefix leaves less than 32 input tokens",
            )?;
        }
        Ok(())
    }

    /// Fields of every request beside the model, the messages and the number of tokens.
    pub(super) fn request_fields(&self) -> Map<String, Value> {
        let mut options = json!({"include_usage": true});
        if self.continuous_usage {
            options["continuous_usage_stats"] = json!(true);
        }
        let mut fields = json!({
            "stream": true,
            "stream_options": options,
            "temperature": 0,
            "top_p": 1,
        });
        if !self.plain {
            // Answers of equal length whatever the model would rather say, and no hidden thinking.
            fields["ignore_eos"] = json!(true);
            fields["top_k"] = json!(-1);
            fields["chat_template_kwargs"] = json!({"enable_thinking": false});
        }
        let Value::Object(mut fields) = fields else {
            unreachable!("the literal is an object");
        };
        for (name, value) in &self.extra_fields {
            if value.is_null() {
                fields.remove(name);
            } else {
                fields.insert(name.clone(), value.clone());
            }
        }
        fields
    }
}
