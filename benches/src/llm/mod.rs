//! The serving harness: what a client of an OpenAI-compatible model server sees, by its own
//! clock.
//!
//! ```text
//! plan ─► harness ─► one_by_one (prefill, decode, prefix)  ─► sample ─► report ─► render
//!            │        at_once    (concurrency, rate) ─ totals ┘  └ judge ─► ledger
//!            ├ prompt (exact lengths, counted by the server), dataset, schedule
//!            └ client ─ transport (stamps at the socket) ─ completion (event stream)
//! ```
//!
//! Guarantees: each attempt has exactly one outcome, and only complete answers enter a summary;
//! no prompt is used twice unless that is what is measured; what is not known is `None`.

mod at_once;
mod client;
mod completion;
mod dataset;
mod harness;
mod judge;
mod ledger;
mod one_by_one;
mod outcome;
mod plan;
mod prompt;
mod render;
mod report;
mod sample;
mod schedule;
mod server;
#[cfg(test)]
mod tests;
mod totals;
mod transport;

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use serde_json::Value;

pub use self::dataset::{Dataset, TraceEntry};
pub(crate) use self::judge::misses_its_length;
pub use self::ledger::ServingLedger;
pub use self::outcome::{ServingOutcome, ServingOutcomes};
pub use self::plan::{Arrivals, Scenario, ServingPlan};
pub use self::report::{
    Configuration, Goodput, Group, Level, ModelInfo, OpenLoop, Prefill, PrefixCache, PrefixSample,
    PrefixSummary, RunInfo, SERVING_SCHEMA_VERSION, ServerInfo, ServingReport, Totals,
};
pub use self::sample::{MetricSummary, Sample, Summary};
pub use self::server::{Gauges, ServerSnapshot};
pub use self::totals::Slo;

use self::client::{Client, ClientSettings};
use self::harness::{Harness, RequestShape};
use self::prompt::{Nonces, PromptWriter, TokenCounter};
use crate::Error;
use crate::ledger::utc_timestamp;

/// Measures a model server.
///
/// `observe` is told in a line what is done next. Once `stop` is true the run ends within
/// moments, and the report has what was measured until then.
///
/// # Errors
///
/// [`Error::LoadPlan`] for a plan that cannot run, [`Error::ModelServer`] for a server that cannot
/// be reached or has no model, [`Error::Calibration`] for prompts that cannot be made. What the
/// server does to a request is an outcome, never an error here.
pub fn run(
    plan: &ServingPlan,
    observe: &mut dyn FnMut(&str),
    stop: &Arc<AtomicBool>,
) -> Result<ServingReport, Error> {
    plan.validate()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|source| Error::LoadThread {
            operation: "start",
            source,
        })?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, measure(plan, observe, stop))
}

/// Returns the SHA-256 of a file of weights in lower-case hexadecimal.
///
/// # Errors
///
/// [`Error::File`].
pub fn weights_digest(path: &Path) -> Result<String, Error> {
    use sha2::{Digest as _, Sha256};
    use std::io::Read as _;

    let mut file = std::fs::File::open(path).map_err(Error::file("open", path))?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let length = file.read(&mut buffer).map_err(Error::file("read", path))?;
        if length == 0 {
            return Ok(crate::ledger::hexadecimal(&digest.finalize()));
        }
        digest.update(&buffer[..length]);
    }
}

async fn measure(
    plan: &ServingPlan,
    observe: &mut dyn FnMut(&str),
    stop: &Arc<AtomicBool>,
) -> Result<ServingReport, Error> {
    let timestamp_utc = utc_timestamp(SystemTime::now());
    let client = |keep_alive| {
        Client::new(ClientSettings {
            target: plan.target.clone(),
            base_path: plan.base_path.clone(),
            api_key: plan.api_key.clone(),
            timeout: plan.timeout,
            usage_is_needed: plan.usage_is_needed,
            keep_alive,
            stop: Arc::clone(stop),
        })
        .map(Rc::new)
    };
    let control = client(true)?;
    control.reach().await?;
    let before = ServerSnapshot::take(&control).await;
    let model = match &plan.model {
        Some(model) => model.clone(),
        None => before.first_model()?,
    };
    let counter = TokenCounter::find(&control, &model).await?;
    // From the system's entropy whatever the seed: no run may find another's prompts in a cache.
    let run_id = fastrand::Rng::new().u64(..);
    let mut harness = Harness {
        plan,
        client: client(plan.keep_alive)?,
        control: Rc::clone(&control),
        shape: Rc::new(RequestShape {
            model: model.clone(),
            fields: plan.request_fields(),
        }),
        before,
        unsaid_cached: None,
    };
    let mut writer = PromptWriter::new(&control, &model, counter, Nonces::new(run_id));
    let mut report = empty_report(&harness, timestamp_utc, run_id);
    counter.name().clone_into(&mut report.server.token_counter);

    observe("warm-up");
    report.warm_up = one_by_one::warm_up(&harness, &mut writer).await?;
    if report.warm_up.is_empty() || report.warm_up.iter().all(Sample::is_ok) {
        let (reporting, unsaid) = one_by_one::cache_reporting(&harness, &mut writer).await?;
        reporting.clone_into(&mut report.server.cached_tokens_reporting);
        harness.unsaid_cached = unsaid;
        match run_scenarios(&harness, &mut writer, &mut report, observe).await {
            Ok(()) | Err(Error::Interrupted) => {}
            // What was measured until then is still worth reading.
            Err(error @ (Error::ModelServer { .. } | Error::Calibration { .. })) => {
                report.invalid.push(format!("ended early: {error}"));
            }
            Err(error) => return Err(error),
        }
    }
    report.run.interrupted = control.is_stopped();
    if !report.run.interrupted {
        report.server.after = ServerSnapshot::take(&control).await;
    }
    let (before, after) = (&harness.before.metrics, &report.server.after.metrics);
    report.server.metrics_delta = before
        .as_ref()
        .zip(after.as_ref())
        .map(|(b, a)| delta(b, a));
    report.server.before = harness.before;
    judge::judge(&mut report);
    Ok(report)
}

async fn run_scenarios(
    harness: &Harness<'_>,
    writer: &mut PromptWriter<'_>,
    report: &mut ServingReport,
    observe: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let plan = harness.plan;
    for scenario in Scenario::ALL {
        if !plan.scenarios.contains(&scenario) || harness.client.is_stopped() {
            continue;
        }
        match scenario {
            Scenario::Prefill => {
                for target in &plan.prefill_tokens {
                    observe(&format!("prefill of {target} tokens"));
                    let group = one_by_one::prefill(harness, writer, *target).await?;
                    report.prefill.get_or_insert_default().targets.push(group);
                }
            }
            Scenario::Decode => {
                observe(&format!("decode of {} tokens", plan.decode_tokens));
                report.decode = Some(one_by_one::decode(harness, writer).await?);
            }
            Scenario::Prefix => {
                observe(&format!("prefix of {} tokens", plan.prefix_tokens));
                report.prefix_cache = Some(one_by_one::prefix(harness, writer).await?);
            }
            Scenario::Concurrency => {
                for concurrency in &plan.levels {
                    observe(&format!("concurrency {concurrency}"));
                    let level = at_once::level(harness, writer, *concurrency).await?;
                    report.concurrency.get_or_insert_default().push(level);
                }
            }
            Scenario::Rate => {
                let Some(arrivals) = plan.arrivals else {
                    continue;
                };
                observe("arrivals at the offered rate");
                report.open_loop = Some(at_once::open_loop(harness, writer, arrivals).await?);
            }
        }
    }
    Ok(())
}

fn empty_report(harness: &Harness<'_>, timestamp_utc: String, run_id: u64) -> ServingReport {
    let plan = harness.plan;
    let model = &harness.shape.model;
    let scenarios = Scenario::ALL.into_iter();
    ServingReport {
        schema_version: SERVING_SCHEMA_VERSION,
        run: RunInfo {
            label: plan.label.clone(),
            timestamp_utc,
            run_id: format!("{run_id:016x}"),
            seed: plan.seed,
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            interrupted: false,
        },
        model: ModelInfo {
            id: model.clone(),
            context_capacity_tokens: harness.before.context_tokens(model),
            weights_sha256: plan.weights_sha256.clone(),
            dtype: plan.dtype.clone(),
            synthetic: plan.synthetic,
        },
        server: ServerInfo {
            url: plan.url.clone(),
            before: ServerSnapshot::default(),
            after: ServerSnapshot::default(),
            metrics_delta: None,
            token_counter: String::new(),
            cached_tokens_reporting: "never".to_owned(),
        },
        configuration: Configuration {
            scenarios: scenarios
                .filter(|scenario| plan.scenarios.contains(scenario))
                .map(Scenario::name)
                .collect(),
            repetitions: plan.repetitions,
            warm_up_runs: plan.warm_up_runs,
            request_timeout_ms: sample::ms(plan.timeout),
            keep_alive: plan.keep_alive,
            dataset: plan.dataset.name(),
            dataset_file: plan.dataset.path().map(|path| path.display().to_string()),
            dataset_shares_prefixes: plan.dataset.shares_prefixes(),
            input_tokens: plan.input_tokens,
            output_tokens: plan.output_tokens,
            requests_per_client: plan.requests_per_client,
            token_source: if plan.usage_is_needed {
                "usage"
            } else {
                "none"
            },
            request_fields: Value::Object(harness.shape.fields.clone()),
        },
        warm_up: Vec::new(),
        prefill: None,
        decode: None,
        prefix_cache: None,
        concurrency: None,
        open_loop: None,
        outcomes: ServingOutcomes::new(),
        invalid: Vec::new(),
        notes: Vec::new(),
    }
}

/// What each series that is in both grew by, where it changed.
fn delta(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    after
        .iter()
        .filter_map(|(name, now)| Some((name.clone(), now - before.get(name)?)))
        .filter(|(_, change)| *change != 0.0)
        .collect()
}
