//! One URL under load, described by flags.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use justapi_bench::{
    Error, Exchange, Expectation, LoadPlan, LoadReport, Outcome, RequestTemplate, Stop, Trust,
    parse_target, run_load,
};
use serde_json::{Value, json};

use super::{INTERRUPTED, failure, stop_flag};
use crate::args::Bench;
use crate::error::{CliError, Code};
use crate::ui::{Ui, document};

/// Connections unless told otherwise: enough to keep one core of a server busy.
const CONNECTIONS: u32 = 16;
/// Measured time unless told otherwise.
const DURATION: Duration = Duration::from_secs(10);
/// Time before the measured part, for caches, connections and clocks.
const WARM_UP: Duration = Duration::from_secs(1);
/// Limit for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit for a connection with its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn run(ui: &Ui, url: &str, arguments: &Bench) -> Result<u8, CliError> {
    let plan = plan(url, arguments)?;
    let stop: &AtomicBool = &*stop_flag()?;
    let report = run_load(&plan, stop)
        .and_then(|report| report.check_invariants().map(|()| report))
        .map_err(|error| failure(Code::BenchFailed, &error))?;
    if ui.is_json() {
        document(&as_document(&report)?)?;
    } else {
        ui.data(&report.render_text())?;
    }
    if report.interrupted {
        return Ok(INTERRUPTED);
    }
    if report.outcomes.get(Outcome::Ok) == 0 {
        return Err(nothing_succeeded(url, &report));
    }
    Ok(0)
}

fn plan(url: &str, arguments: &Bench) -> Result<LoadPlan, CliError> {
    let input = |error: Error| {
        failure(Code::BenchInput, &error)
            .with_hint("`justapi bench --help` shows examples of what works")
    };
    let trust = match &arguments.cacert {
        Some(path) => Some(Trust::CaFile(path.clone())),
        None if arguments.insecure => Some(Trust::Insecure),
        None => None,
    };
    let (target, path) = parse_target(url, trust.as_ref()).map_err(|error| match error {
        Error::Resolve { .. } => failure(Code::BenchUnreachable, &error)
            .with_hint("check the host name, or use an IP address"),
        error => input(error),
    })?;
    let body = body(arguments.body.as_deref())?;
    let default_method = if arguments.body.is_some() {
        "POST"
    } else {
        "GET"
    };
    let method = arguments.method.as_deref().unwrap_or(default_method);
    let headers = headers(&arguments.header)?;
    let request =
        RequestTemplate::serialise(&target, method, &path, &headers, &body, true).map_err(input)?;
    let stop = arguments.requests.map_or_else(
        || Stop::Duration(arguments.duration.unwrap_or(DURATION)),
        Stop::Requests,
    );
    let default_warm_up = match stop {
        Stop::Duration(_) => WARM_UP,
        Stop::Requests(_) => Duration::ZERO,
    };
    let plan = LoadPlan {
        target,
        requests: vec![request],
        connections: arguments.connections.unwrap_or(CONNECTIONS) as usize,
        threads: arguments.threads.unwrap_or(1) as usize,
        stop,
        warm_up: arguments.warmup.unwrap_or(default_warm_up),
        request_timeout: arguments.timeout.unwrap_or(REQUEST_TIMEOUT),
        connect_timeout: CONNECT_TIMEOUT,
        keep_alive: true,
        expect: Expectation {
            status: arguments.expect_status,
            body: None,
        },
        exchange: Exchange::Requests,
        cpus: None,
    };
    plan.validate().map_err(input)?;
    Ok(plan)
}

fn headers(lines: &[String]) -> Result<Vec<(String, String)>, CliError> {
    lines
        .iter()
        .map(|line| {
            let (name, value) = line.split_once(':').ok_or_else(|| {
                CliError::new(Code::BenchInput, format!("header \"{line}\" has no colon"))
                    .with_hint("write it as `--header 'Name: value'`")
            })?;
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        })
        .collect()
}

/// The body as given, or the content of `@FILE`.
fn body(body: Option<&str>) -> Result<Vec<u8>, CliError> {
    let Some(text) = body else {
        return Ok(Vec::new());
    };
    let Some(path) = text.strip_prefix('@').map(PathBuf::from) else {
        return Ok(text.as_bytes().to_owned());
    };
    fs::read(&path).map_err(|error| {
        CliError::new(
            Code::BenchInput,
            format!("cannot read the body {}", path.display()),
        )
        .with_cause(&error)
        .with_hint("`--body @FILE` reads a file, `--body TEXT` sends the text")
    })
}

/// The report with the version of its form.
fn as_document(report: &LoadReport) -> Result<Value, CliError> {
    let mut value = serde_json::to_value(report).map_err(|error| {
        CliError::new(Code::BenchFailed, "cannot write the report as JSON")
            .with_detail("cause", error.to_string())
    })?;
    if let Value::Object(fields) = &mut value {
        fields.insert("v".to_owned(), json!(1));
    }
    Ok(value)
}

fn nothing_succeeded(url: &str, report: &LoadReport) -> CliError {
    let outcomes: Vec<_> = report
        .outcomes
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(outcome, count)| format!("{count} {outcome}"))
        .collect();
    let what = if outcomes.is_empty() {
        "nothing was attempted".to_owned()
    } else {
        outcomes.join(", ")
    };
    CliError::new(
        Code::BenchUnreachable,
        format!("no request to {url} succeeded"),
    )
    .with_detail("outcomes", what)
    .with_hint("try `curl -i` on the URL; `--expect-status` accepts another status on purpose")
}
