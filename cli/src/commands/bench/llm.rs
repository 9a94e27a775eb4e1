//! `justapi bench llm`: what a client of a model server sees.

use std::env;
use std::fs;
use std::path::Path;
use std::time::Duration;

use justapi_bench::ledger::{self, Appended};
use justapi_bench::llm::{
    Arrivals, Dataset, Scenario, ServingLedger, ServingPlan, ServingReport, Slo, run as measure,
    weights_digest,
};
use justapi_bench::{Address, Error, Trust, parse_target};
use serde_json::{Map, Value, json};

use super::{INTERRUPTED, INVALID, failure, stop_flag};
use crate::config::shown_path;
use crate::error::{CliError, Code};
use crate::llm_args::{ArrivalsName, BenchLlm, DatasetName, Load, ScenarioName};
use crate::ui::{Ui, document, faint};

pub(super) fn llm(ui: &Ui, arguments: &BenchLlm) -> Result<u8, CliError> {
    let plan = plan(arguments)?;
    let mut lost = None;
    let mut observe = |what: &str| {
        // With --json standard output holds the report alone.
        if !ui.is_json() {
            // A reader that has left does not end the measurement.
            let human = format!("{}\n", faint(what));
            if let Err(error) = ui.event("scenario", json!({"scenario": what}), &human) {
                lost = Some(error);
            }
        }
    };
    let recorder = arguments
        .record
        .then(|| prepare(&plan, root(arguments)))
        .transpose()?
        .map(|ledger| ledger.with_server_version(arguments.server_version.clone()));
    let report = measure(&plan, &mut observe, &stop_flag()?).map_err(measuring)?;
    let mut value = serde_json::to_value(&report).map_err(|error| {
        CliError::new(Code::BenchFailed, "cannot write the report as JSON")
            .with_detail("cause", error.to_string())
    })?;
    let recorded = recorder.map(|recorder| append(&recorder, &report, root(arguments)));
    if let Some(Ok(appended)) = &recorded {
        value["recorded"] = json!({
            "record": shown_path(&appended.path).display().to_string(),
            "sha256": appended.sha256,
        });
    }
    if let Some(path) = &arguments.out {
        write(path, &value)?;
    }
    if ui.is_json() {
        document(&value)?;
    } else {
        ui.data(&report.render_text())?;
        match &recorded {
            Some(Ok(appended)) => {
                let path = shown_path(&appended.path).display().to_string();
                let section = appended.section.trim();
                ui.data(&format!("\n{section}\n{}\n", faint(&path)))?;
            }
            Some(Err(_)) => ui.data("nothing was added to the ledger\n")?,
            None => {}
        }
    }
    if let Some(error) = lost {
        return Err(error);
    }
    // What the run was worth comes before what became of its record.
    match (status(&plan, &report)?, recorded) {
        (0, Some(Err(error))) => Err(error),
        (status, _) => Ok(status),
    }
}

fn root(arguments: &BenchLlm) -> &Path {
    arguments.root.as_deref().unwrap_or_else(|| Path::new("."))
}

/// Makes sure, before a long run, that the ledger could take it.
fn prepare(plan: &ServingPlan, root: &Path) -> Result<ServingLedger, CliError> {
    let client = env::current_exe().map_err(|error| {
        CliError::new(Code::BenchFailed, "cannot find the path of this binary").with_cause(&error)
    })?;
    let is_local = match &plan.target.address {
        Address::Tcp(address) => address.ip().is_loopback(),
        Address::Unix(_) => true,
    };
    let name = plan.label.as_deref().unwrap_or_default();
    ServingLedger::prepare(root, name, is_local, &client).map_err(recording)
}

fn append(
    recorder: &ServingLedger,
    report: &ServingReport,
    root: &Path,
) -> Result<Appended, CliError> {
    let record = recorder.record(report).map_err(recording)?;
    ledger::append(root, record).map_err(recording)
}

fn recording(error: Error) -> CliError {
    match error {
        Error::Ledger(_) => failure(Code::LedgerBroken, &error)
            .with_hint("`justapi bench verify` says what is wrong with the ledger"),
        Error::NotReleaseBuild { .. } => failure(Code::BenchInput, &error)
            .with_hint("build with `cargo build --release`, and run that binary"),
        Error::NotUsable { .. } => {
            failure(Code::BenchInput, &error).with_hint("nothing was added to the ledger")
        }
        error => failure(Code::BenchFailed, &error),
    }
}

fn status(plan: &ServingPlan, report: &ServingReport) -> Result<u8, CliError> {
    if report.run.interrupted {
        return Ok(INTERRUPTED);
    }
    if report.all_failed() {
        let reason = report.invalid.first().cloned().unwrap_or_default();
        return Err(CliError::new(
            Code::BenchUnreachable,
            format!("no request to {} succeeded", plan.url),
        )
        .with_detail("cause", reason)
        .with_hint("`--plain` leaves out what only some servers know; `--model` names the model"));
    }
    Ok(if report.invalid.is_empty() {
        0
    } else {
        INVALID
    })
}

fn measuring(error: Error) -> CliError {
    match error {
        Error::ModelServer { .. } => failure(Code::BenchUnreachable, &error)
            .with_hint("the URL must be that of an OpenAI-compatible server that is up"),
        Error::LoadPlan { .. } => input(&error),
        Error::Calibration { .. } => failure(Code::BenchInput, &error)
            .with_hint("the chat template alone may have more tokens: ask for longer prompts"),
        error => failure(Code::BenchFailed, &error),
    }
}

fn input(error: &Error) -> CliError {
    failure(Code::BenchInput, error)
        .with_hint("`justapi bench llm --help` shows examples of what works")
}

fn plan(arguments: &BenchLlm) -> Result<ServingPlan, CliError> {
    let (load, request) = (&arguments.load, &arguments.request);
    let trust = match &request.cacert {
        Some(path) => Some(Trust::CaFile(path.clone())),
        None if request.insecure => Some(Trust::Insecure),
        None => None,
    };
    let (target, path) =
        parse_target(&arguments.url, trust.as_ref()).map_err(|error| match error {
            Error::Resolve { .. } => failure(Code::BenchUnreachable, &error)
                .with_hint("check the host name, or use an IP address"),
            error => input(&error),
        })?;
    let mut plan = ServingPlan::new(target, arguments.url.clone(), base_path(&path));
    plan.api_key.clone_from(&arguments.api_key);
    plan.model.clone_from(&arguments.model);
    plan.label.clone_from(&arguments.identity.label);
    plan.dtype.clone_from(&arguments.identity.dtype);
    plan.synthetic = arguments.identity.synthetic;
    if let Some(path) = &arguments.identity.weights {
        plan.weights_sha256 = Some(weights_digest(path).map_err(|error| input(&error))?);
    }
    if !arguments.scenario.is_empty() {
        plan.scenarios = arguments
            .scenario
            .iter()
            .map(|name| scenario(*name))
            .collect();
    } else if load.rate.is_some() {
        plan.scenarios = vec![Scenario::Rate];
    }
    plan.repetitions = arguments.repetitions;
    plan.warm_up_runs = arguments.warmup;
    plan.timeout = arguments.timeout.unwrap_or(plan.timeout);
    plan.keep_alive = !request.no_keep_alive;
    plan.usage_is_needed = !request.without_usage;
    plan.continuous_usage = request.continuous_usage;
    plan.plain = request.plain;
    plan.extra_fields = fields(&request.field)?;
    plan.prefill_tokens
        .clone_from(&arguments.lengths.prefill_tokens);
    plan.decode_tokens = arguments.lengths.decode_tokens;
    plan.prefix_tokens = arguments.lengths.prefix_tokens;
    plan.suffix_tokens = arguments.lengths.suffix_tokens;
    set_load(&mut plan, load)?;
    plan.validate().map_err(|error| input(&error))?;
    Ok(plan)
}

/// What the scenarios under load do.
fn set_load(plan: &mut ServingPlan, load: &Load) -> Result<(), CliError> {
    plan.arrivals = load.rate.map(|rate| match load.arrivals {
        ArrivalsName::Poisson => Arrivals::Poisson(rate),
        ArrivalsName::Constant => Arrivals::Constant(rate),
        ArrivalsName::Trace => Arrivals::Trace(rate),
    });
    plan.levels.clone_from(&load.concurrency);
    plan.requests_per_client = load.requests_per_client;
    plan.num_arrivals = load.num_requests;
    plan.max_in_flight = load.max_in_flight;
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    plan.slo = Slo::new(
        load.slo_ttft.map(ms),
        load.slo_tpot.map(ms),
        load.slo_e2e.map(ms),
    );
    plan.dataset = dataset(load).map_err(|error| input(&error))?;
    plan.input_tokens = load.input_tokens;
    plan.output_tokens = load.output_tokens;
    plan.seed = load.seed;
    Ok(())
}

const fn scenario(name: ScenarioName) -> Scenario {
    match name {
        ScenarioName::Prefill => Scenario::Prefill,
        ScenarioName::Decode => Scenario::Decode,
        ScenarioName::Prefix => Scenario::Prefix,
        ScenarioName::Concurrency => Scenario::Concurrency,
        ScenarioName::Rate => Scenario::Rate,
    }
}

fn dataset(load: &Load) -> Result<Dataset, Error> {
    let file = load
        .dataset_file
        .as_deref()
        .unwrap_or_else(|| Path::new(""));
    match load.dataset {
        DatasetName::Synthetic => Ok(Dataset::Synthetic),
        DatasetName::SharedPrefix => Ok(Dataset::SharedPrefix {
            prefix_tokens: load.shared_tokens,
        }),
        DatasetName::MultiTurn => Ok(Dataset::MultiTurn { turns: load.turns }),
        DatasetName::Trace => Dataset::trace(file),
        DatasetName::Sharegpt => Dataset::share_gpt(file),
    }
}

/// What stands ahead of `/v1`: the URL may end in it, as clients of OpenAI write it.
fn base_path(path: &str) -> String {
    let path = path.trim_end_matches('/');
    path.strip_suffix("/v1").unwrap_or(path).to_owned()
}

fn fields(given: &[String]) -> Result<Map<String, Value>, CliError> {
    given
        .iter()
        .map(|field| {
            let unusable = |problem: String| {
                CliError::new(Code::BenchInput, format!("field \"{field}\" {problem}"))
                    .with_hint("write it as `--field 'NAME=JSON'`, such as `--field seed=7`")
            };
            let (name, value) = field
                .split_once('=')
                .ok_or_else(|| unusable("has no equals sign".to_owned()))?;
            let value = serde_json::from_str(value)
                .map_err(|error| unusable(format!("is not JSON: {error}")))?;
            Ok((name.to_owned(), value))
        })
        .collect()
}

fn write(path: &Path, report: &Value) -> Result<(), CliError> {
    fs::write(path, format!("{report:#}\n")).map_err(|error| {
        CliError::new(
            Code::BenchFailed,
            format!("cannot write the report to {}", path.display()),
        )
        .with_cause(&error)
        .with_hint("its folder must exist and be writable; `--json` prints the report instead")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_may_end_in_v1() {
        for (path, expected) in [
            ("/", ""),
            ("/v1", ""),
            ("/v1/", ""),
            ("/api/v1", "/api"),
            ("/api/", "/api"),
        ] {
            assert_eq!(base_path(path), expected, "{path}");
        }
    }

    #[test]
    fn fields_are_json() {
        let given = ["seed=7", "stop=[\"=\"]", "top_k=null"].map(ToOwned::to_owned);
        let fields = fields(&given).unwrap();
        assert_eq!(
            Value::Object(fields),
            json!({"seed": 7, "stop": ["="], "top_k": null})
        );
        assert!(super::fields(&["seed".to_owned()]).is_err());
        assert!(super::fields(&["seed=x".to_owned()]).is_err());
    }
}
