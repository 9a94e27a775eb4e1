//! From flags to what is sent, and where metrics are looked for.

use std::time::Duration;

use justapi_bench::profile::RequestSummary;
use justapi_bench::{
    Error, Expectation, LoadPlan, OpenLoop, Pace, RequestTemplate, Stop, Target, Trust,
    parse_target,
};

use crate::commands::application::Started;
use crate::commands::bench::{failure, load_plan};
use crate::error::{CliError, Code};
use crate::profile_args::Profile;

/// Path of metrics unless told otherwise.
const METRICS_PATH: &str = "/metrics";

/// What is to be measured.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) target: Target,
    pub(super) routes: Vec<Route>,
    pub(super) metrics: Metrics,
    pub(super) duration: Duration,
    pub(super) warm_up: Duration,
    pub(super) request: RequestSummary,
}

/// One path under load.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) path: String,
    pub(super) load: LoadPlan,
}

/// Where a server has its metrics.
#[derive(Debug)]
pub(super) enum Metrics {
    Off,
    At(Target, String),
}

impl Plan {
    /// The plan of a profile of `url`.
    ///
    /// # Errors
    /// [`Code::BenchInput`], or [`Code::BenchUnreachable`] for a name without an address.
    pub(super) fn new(
        url: &str,
        arguments: &Profile,
        started: Option<&Started>,
    ) -> Result<Self, CliError> {
        let trust = match &arguments.cacert {
            Some(path) => Some(Trust::CaFile(path.clone())),
            // What we have started ourselves needs no proof of who it is.
            None if arguments.insecure || started.is_some() => Some(Trust::Insecure),
            None => None,
        };
        let (target, own_path) = resolve(url, trust.as_ref())?;
        if arguments.duration.is_zero() {
            return Err(input("`--duration` is zero", "such as `--duration 5`"));
        }
        let paths = paths(&own_path, arguments)?;
        let has_body = arguments.body.is_some();
        let default_method = if has_body { "POST" } else { "GET" };
        let method = arguments.method.as_deref().unwrap_or(default_method);
        let headers = load_plan::headers(&arguments.header)?;
        let body = load_plan::body(arguments.body.as_deref())?;
        let routes = paths
            .into_iter()
            .map(|path| {
                let keep_alive = !arguments.no_keepalive;
                let request =
                    RequestTemplate::serialise(&target, method, &path, &headers, &body, keep_alive)
                        .map_err(|error| load_plan::input(&error))?;
                let load = load(target.clone(), request, arguments);
                load.validate().map_err(|error| load_plan::input(&error))?;
                Ok(Route { path, load })
            })
            .collect::<Result<Vec<_>, CliError>>()?;
        let metrics = metrics(arguments, started, &target, trust.as_ref())?;
        let request = RequestSummary {
            method: method.to_owned(),
            headers: headers.into_iter().map(|(name, _)| name).collect(),
            body_bytes: body.len() as u64,
            duration_ns: nanoseconds(arguments.duration),
            warm_up_ns: nanoseconds(arguments.warmup),
            connections: arguments.connections as usize,
            keep_alive: !arguments.no_keepalive,
            rate: arguments.rate,
        };
        Ok(Self {
            target,
            routes,
            metrics,
            duration: arguments.duration,
            warm_up: arguments.warmup,
            request,
        })
    }
}

fn resolve(url: &str, trust: Option<&Trust>) -> Result<(Target, String), CliError> {
    parse_target(url, trust).map_err(|error| match error {
        Error::Resolve { .. } => failure(Code::BenchUnreachable, &error)
            .with_hint("check the host name, or use an IP address"),
        Error::Url { problem, .. } if problem.starts_with("https needs") => {
            failure(Code::BenchInput, &error)
                .with_hint("`--cacert FILE` trusts an authority, `-k` any certificate")
        }
        error => load_plan::input(&error),
    })
}

/// What to ask for: `--path`, or the path of the URL, but not both.
fn paths(own: &str, arguments: &Profile) -> Result<Vec<String>, CliError> {
    if arguments.path.is_empty() {
        return Ok(vec![own.to_owned()]);
    }
    if own != "/" {
        return Err(input(
            &format!("the URL has the path {own}, and `--path` names another"),
            "give the URL without a path, or leave `--path` away",
        ));
    }
    let mut paths: Vec<String> = Vec::new();
    for path in &arguments.path {
        if paths.contains(path) {
            return Err(input(
                &format!("`--path {path}` is given twice"),
                "each path is profiled once; leave one away",
            ));
        }
        paths.push(path.clone());
    }
    Ok(paths)
}

fn load(target: Target, request: RequestTemplate, arguments: &Profile) -> LoadPlan {
    let connections = arguments.connections as usize;
    let pace = arguments.rate.map_or(Pace::Closed, |rate| {
        Pace::Open(OpenLoop {
            seed: load_plan::seed(),
            ..OpenLoop::constant(rate)
        })
    });
    LoadPlan {
        connections,
        threads: load_plan::threads(arguments.threads).min(connections),
        stop: Stop::Duration(arguments.duration),
        request_timeout: arguments.timeout,
        keep_alive: !arguments.no_keepalive,
        expect: Expectation {
            status: arguments.expect_status,
            body: None,
        },
        pace,
        ..LoadPlan::new(target, vec![request])
    }
}

fn metrics(
    arguments: &Profile,
    started: Option<&Started>,
    target: &Target,
    trust: Option<&Trust>,
) -> Result<Metrics, CliError> {
    let told = arguments.metrics.as_deref();
    let said = started.and_then(|started| started.metrics.as_deref());
    let place = told.or(said).unwrap_or(METRICS_PATH);
    if place == "off" {
        return Ok(Metrics::Off);
    }
    if place.starts_with('/') {
        return Ok(Metrics::At(target.clone(), place.to_owned()));
    }
    if place.contains("://") {
        let (target, path) = resolve(place, trust)?;
        let path = if path == "/" {
            METRICS_PATH.to_owned()
        } else {
            path
        };
        return Ok(Metrics::At(target, path));
    }
    Err(input(
        &format!("`--metrics {place}` is no place of metrics"),
        "a path such as /metrics, a URL such as http://127.0.0.1:9090/metrics, or off",
    ))
}

fn input(message: &str, hint: &str) -> CliError {
    CliError::new(Code::BenchInput, message).with_hint(hint)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
