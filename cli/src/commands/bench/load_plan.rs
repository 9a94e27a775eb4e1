//! From flags to what the load engine runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use justapi_bench::{
    Client, Error, Expectation, ExpectedBody, LoadPlan, OpenLoop, Pace, RequestTemplate, Stage,
    Stop, Target, Trust, parse_target,
};

use super::failure;
use crate::args::Bench;
use crate::error::{CliError, Code};
use crate::load_args::{ClientKind, LoadFlags};

/// Connections unless told otherwise: enough to keep one core of a server busy.
const CONNECTIONS: u32 = 16;
/// Measured time unless told otherwise.
const DURATION: Duration = Duration::from_secs(10);
/// Time before the measured part, for caches, connections and clocks.
const WARM_UP: Duration = Duration::from_secs(1);
/// Most lines of `--lines`: each is a request in memory.
const MAX_LINES: usize = 1_000_000;
/// Most bytes of `--lines`.
const MAX_LINES_BYTES: usize = 256 * 1024 * 1024;
/// Mark that a line of `--lines` replaces.
const LINE_MARK: &str = "{{line}}";

/// The plan of a load of `url`. A path besides is that of an application that we have started: it
/// needs no proof of who it is, and may be on a Unix socket, whose URL has no path.
pub(super) fn plan(
    url: &str,
    own_path: Option<&str>,
    arguments: &Bench,
) -> Result<LoadPlan, CliError> {
    let flags = &arguments.load;
    let trust = match &arguments.cacert {
        Some(path) => Some(Trust::CaFile(path.clone())),
        None if arguments.insecure || own_path.is_some() => Some(Trust::Insecure),
        None => None,
    };
    let (target, url_path) = parse_target(url, trust.as_ref()).map_err(|error| match error {
        Error::Resolve { .. } => failure(Code::BenchUnreachable, &error)
            .with_hint("check the host name, or use an IP address"),
        error => input(&error),
    })?;
    let path = own_path.unwrap_or(&url_path);
    let requests = requests(&target, path, arguments)?;
    let pace = if flags.stage.is_empty() {
        flags.rate.map(|rate| vec![endless(rate)])
    } else {
        Some(flags.stage.clone())
    };
    let pace = pace.map_or(Pace::Closed, |stages| {
        Pace::Open(OpenLoop {
            stages,
            process: flags
                .arrivals
                .map_or(OpenLoop::constant(1.0).process, Into::into),
            seed: flags.seed.unwrap_or_else(seed),
        })
    });
    let stages: Option<Duration> = flags.stage.iter().map(|stage| stage.duration).sum();
    let stop = match (arguments.requests, arguments.duration, stages) {
        (Some(requests), ..) => Stop::Requests(requests),
        (None, Some(duration), _) => Stop::Duration(duration),
        (None, None, Some(stages)) if !stages.is_zero() => Stop::Duration(stages),
        (None, None, _) => Stop::Duration(DURATION),
    };
    let default_warm_up = match stop {
        Stop::Duration(_) => WARM_UP,
        Stop::Requests(_) => Duration::ZERO,
    };
    let connections = arguments.connections.unwrap_or(CONNECTIONS) as usize;
    let body = match flags.expect_sha256 {
        Some(digest) => Some(ExpectedBody::Sha256(digest)),
        None if flags.expect_json.is_empty() => None,
        None => Some(ExpectedBody::Json(flags.expect_json.clone())),
    };
    let mut plan = LoadPlan {
        connections,
        threads: threads(arguments.threads).min(connections),
        stop,
        warm_up: arguments.warmup.unwrap_or(default_warm_up),
        keep_alive: !flags.no_keepalive,
        expect: Expectation {
            status: arguments.expect_status,
            body,
        },
        pace,
        client: client(flags),
        expected_interval: flags.expected_interval,
        raw: flags.raw.clone(),
        all_percentiles: flags.all_percentiles,
        cpus: Some(flags.cpus.clone()).filter(|cpus| !cpus.is_empty()),
        ..LoadPlan::new(target, requests)
    };
    if let Some(timeout) = arguments.timeout {
        plan.request_timeout = timeout;
    }
    plan.validate().map_err(|error| input(&error))?;
    Ok(plan)
}

/// Half of the processors that this process may use: the server needs the others.
pub(in crate::commands) fn threads(asked: Option<u32>) -> usize {
    let default = || std::thread::available_parallelism().map_or(1, |number| number.get() / 2);
    asked
        .map_or_else(default, |threads| threads as usize)
        .max(1)
}

fn client(flags: &LoadFlags) -> Client {
    if flags.http2 {
        let streams = flags.streams.unwrap_or(1) as usize;
        return Client::Http2 { streams };
    }
    match flags.client {
        Some(ClientKind::Reqwest) => Client::Reqwest,
        Some(ClientKind::Raw) | None => Client::Raw,
    }
}

const fn endless(rate: f64) -> Stage {
    Stage {
        duration: None,
        from: rate,
        to: rate,
    }
}

/// A seed that can be typed again.
pub(in crate::commands) fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::from(now.subsec_nanos()) ^ now.as_secs()) & 0xffff_ffff
}

pub(in crate::commands) fn input(error: &Error) -> CliError {
    failure(Code::BenchInput, error)
        .with_hint("`justapi bench --help` shows examples of what works")
}

fn requests(
    target: &Target,
    path: &str,
    arguments: &Bench,
) -> Result<Vec<RequestTemplate>, CliError> {
    let flags = &arguments.load;
    let body = body(arguments.body.as_deref())?;
    let has_body = arguments.body.is_some() || flags.lines.is_some() && !flags.template;
    let default_method = if has_body { "POST" } else { "GET" };
    let method = arguments.method.as_deref().unwrap_or(default_method);
    let headers = headers(&arguments.header)?;
    let serialise = |path: &str, headers: &[(String, String)], body: &[u8]| {
        let serialise = if flags.template {
            RequestTemplate::serialise_with_slots
        } else {
            RequestTemplate::serialise
        };
        serialise(target, method, path, headers, body, !flags.no_keepalive)
            .map_err(|error| input(&error))
    };
    let Some(file) = &flags.lines else {
        return Ok(vec![serialise(path, &headers, &body)?]);
    };
    let lines = lines(file)?;
    if !flags.template {
        return lines
            .iter()
            .map(|line| serialise(path, &headers, line.as_bytes()))
            .collect();
    }
    let text = String::from_utf8(body)
        .map_err(|_| CliError::new(Code::BenchInput, "the body of a template is not UTF-8 text"))?;
    lines
        .iter()
        .map(|line| {
            let fill = |text: &str| text.replace(LINE_MARK, line);
            let headers: Vec<_> = (headers.iter())
                .map(|(name, value)| (name.clone(), fill(value)))
                .collect();
            serialise(&fill(path), &headers, fill(&text).as_bytes())
        })
        .collect()
}

/// The lines of a file that are not empty.
fn lines(file: &Path) -> Result<Vec<String>, CliError> {
    let refused = |problem: String| {
        CliError::new(
            Code::BenchInput,
            format!("cannot use the lines of {}: {problem}", file.display()),
        )
    };
    let text = fs::read_to_string(file).map_err(|error| {
        refused("cannot read it".to_owned())
            .with_cause(&error)
            .with_hint("`--lines FILE` takes a text file with a body on each line")
    })?;
    let lines: Vec<_> = (text.lines())
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    if lines.is_empty() {
        return Err(refused("it has none".to_owned()));
    }
    if lines.len() > MAX_LINES || text.len() > MAX_LINES_BYTES {
        return Err(refused(format!(
            "more than {MAX_LINES} lines or {MAX_LINES_BYTES} bytes"
        ))
        .with_hint("each line is kept as a request in memory: take a sample of them"));
    }
    Ok(lines)
}

pub(in crate::commands) fn headers(lines: &[String]) -> Result<Vec<(String, String)>, CliError> {
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
pub(in crate::commands) fn body(body: Option<&str>) -> Result<Vec<u8>, CliError> {
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
