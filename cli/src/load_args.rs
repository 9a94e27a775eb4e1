//! Flags of `justapi bench URL` beyond the common ones: pace, checks, thresholds, output.
//!
//! Guarantee: a flag that would do nothing beside the others is refused.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use justapi_bench::{ArrivalProcess, JsonRule, Stage, Threshold};

use crate::args::read_time;

/// Largest rate that can be asked for: one request per nanosecond is past any machine.
const MAX_RATE: f64 = 1e9;

/// How a URL is loaded and judged.
#[derive(Debug, Args)]
#[group(skip)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct LoadFlags {
    /// Open loop: requests per second, sent whether or not answers come.
    #[arg(long, value_name = "N", value_parser = read_rate, group = "open",
        conflicts_with = "matrix")]
    pub(crate) rate: Option<f64>,
    /// Open loop in stages, as `TIME:RATE` or `TIME:FROM..TO`; repeatable.
    #[arg(hide_short_help = true, long, value_name = "STAGE", value_parser = read_stage, group = "open",
        conflicts_with_all = ["rate", "duration", "requests", "matrix"],
        help_heading = "Open loop")]
    pub(crate) stage: Vec<Stage>,
    /// How requests lie around the rate [default: constant].
    #[arg(
        hide_short_help = true,
        long,
        value_enum,
        value_name = "PROCESS",
        requires = "open",
        help_heading = "Open loop"
    )]
    pub(crate) arrivals: Option<Arrivals>,
    /// Seed of what is random [default: drawn, and reported].
    #[arg(
        hide_short_help = true,
        long,
        value_name = "N",
        requires = "open",
        help_heading = "Open loop"
    )]
    pub(crate) seed: Option<u64>,
    /// Accept that less than 99 % of the rate was answered.
    #[arg(
        hide_short_help = true,
        long,
        requires = "open",
        help_heading = "Open loop"
    )]
    pub(crate) allow_underrun: bool,
    /// What sends the requests [default: raw].
    #[arg(
        hide_short_help = true,
        long,
        value_enum,
        value_name = "CLIENT",
        conflicts_with = "matrix"
    )]
    pub(crate) client: Option<ClientKind>,
    /// Speak HTTP/2, which over plain TCP the server must expect.
    #[arg(hide_short_help = true, long, conflicts_with_all = ["client", "no_keepalive", "matrix"])]
    pub(crate) http2: bool,
    /// Requests at once on each HTTP/2 connection [default: 1].
    #[arg(hide_short_help = true, long, value_name = "N", requires = "http2",
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) streams: Option<u32>,
    /// Open a connection for each request.
    #[arg(hide_short_help = true, long, conflicts_with = "matrix")]
    pub(crate) no_keepalive: bool,
    /// Processors for the client's threads, such as `1` or `2,3`.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "matrix"
    )]
    pub(crate) cpus: Vec<usize>,
    /// Fill `{{seq}}`, `{{hex}}` and `{{line}}` in path, headers and body.
    #[arg(hide_short_help = true, long, conflicts_with = "matrix")]
    pub(crate) template: bool,
    /// File of which each line is the body of a request, or its `{{line}}`.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "FILE",
        conflicts_with = "matrix"
    )]
    pub(crate) lines: Option<PathBuf>,
    /// SHA-256 that every body must have, in hexadecimal.
    #[arg(hide_short_help = true, long, value_name = "HEX", value_parser = read_digest, conflicts_with = "matrix",
        help_heading = "Checks")]
    pub(crate) expect_sha256: Option<[u8; 32]>,
    /// Value in every JSON body, as `/pointer=value`; repeatable.
    #[arg(hide_short_help = true, long, value_name = "RULE", value_parser = read_json_rule,
        conflicts_with_all = ["expect_sha256", "matrix"], help_heading = "Checks")]
    pub(crate) expect_json: Vec<JsonRule>,
    /// Rule by which the run fails, such as `p99>20ms`; repeatable.
    #[arg(long, value_name = "RULE", conflicts_with = "matrix")]
    pub(crate) fail_if: Vec<Threshold>,
    /// Measure the client alone, too, and say whether it was the limit.
    #[arg(
        hide_short_help = true,
        long,
        conflicts_with = "matrix",
        help_heading = "Checks"
    )]
    pub(crate) calibrate: bool,
    /// Closed loop: how often a request would come on each connection that did not wait for the
    /// one before; latencies with those that it left out are reported, too.
    #[arg(hide_short_help = true, long, value_name = "TIME", value_parser = read_time,
        conflicts_with_all = ["open", "matrix"], help_heading = "Output")]
    pub(crate) expected_interval: Option<Duration>,
    /// Write a line of JSON for each attempt to this file.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "FILE",
        conflicts_with = "matrix",
        help_heading = "Output"
    )]
    pub(crate) raw: Option<PathBuf>,
    /// Show percentiles of too few samples as well.
    #[arg(
        hide_short_help = true,
        long,
        conflicts_with = "matrix",
        help_heading = "Output"
    )]
    pub(crate) all_percentiles: bool,
    /// Form of the report [default: text].
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORM",
        conflicts_with = "matrix"
    )]
    pub(crate) output: Option<Output>,
}

/// How requests lie around a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Arrivals {
    /// At even distances.
    Constant,
    /// At random, as from many independent clients.
    Poisson,
}

impl From<Arrivals> for ArrivalProcess {
    fn from(arrivals: Arrivals) -> Self {
        match arrivals {
            Arrivals::Constant => Self::Constant,
            Arrivals::Poisson => Self::Poisson,
        }
    }
}

/// What sends the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientKind {
    /// The engine's own HTTP/1.1: as little as a client can do.
    Raw,
    /// A general library: cookies, redirects, decoding, proxies, HTTP/2 over TLS.
    Reqwest,
}

/// Form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// One JSON document.
    Json,
    /// Names of columns and one line of values.
    Csv,
}

pub(crate) fn read_rate(text: &str) -> Result<f64, String> {
    rate(text)
        .filter(|rate| *rate > 0.0)
        .ok_or_else(|| "expected requests per second, such as 500 or 0.5".to_owned())
}

fn rate(text: &str) -> Option<f64> {
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse()
        .ok()
        .filter(|rate| is_plain && *rate <= MAX_RATE)
}

fn read_stage(text: &str) -> Result<Stage, String> {
    let expected = || "expected TIME:RATE or TIME:FROM..TO, such as 10s:100..500".to_owned();
    let (time, rates) = text.split_once(':').ok_or_else(expected)?;
    let duration = read_time(time)?;
    let (from, to) = rates.split_once("..").unwrap_or((rates, rates));
    let (from, to) = rate(from).zip(rate(to)).ok_or_else(expected)?;
    if duration == Duration::ZERO {
        return Err(expected());
    }
    Ok(Stage {
        duration: Some(duration),
        from,
        to,
    })
}

fn read_digest(text: &str) -> Result<[u8; 32], String> {
    let mut digest = [0; 32];
    let is_digest = text.len() == 64
        && text.is_ascii()
        && (digest.iter_mut().enumerate()).all(|(index, byte)| {
            let pair = &text[2 * index..2 * index + 2];
            u8::from_str_radix(pair, 16).is_ok_and(|value| {
                *byte = value;
                !pair.contains('+')
            })
        });
    if is_digest {
        Ok(digest)
    } else {
        Err("expected 64 hexadecimal digits".to_owned())
    }
}

fn read_json_rule(text: &str) -> Result<JsonRule, String> {
    let (pointer, value) = text
        .split_once('=')
        .filter(|(pointer, _)| pointer.is_empty() || pointer.starts_with('/'))
        .ok_or_else(|| "expected /pointer=value, such as /user/id=7".to_owned())?;
    // What is not JSON is meant as a string.
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok(JsonRule {
        pointer: pointer.to_owned(),
        value,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stages_are_a_time_and_one_rate_or_two() {
        let stage = |text| read_stage(text).map(|stage| (stage.duration, stage.from, stage.to));
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(stage("10s:100"), Ok((seconds(10), 100.0, 100.0)));
        assert_eq!(stage("2m:0..0.5"), Ok((seconds(120), 0.0, 0.5)));
        for bad in [
            "", "10s", "10:5", "0s:5", "10s:", "10s:1..", "10s:-1", "10s:1e3",
        ] {
            assert!(stage(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rules_of_json_name_a_pointer_and_a_value() {
        let rule = |text| read_json_rule(text).map(|rule| (rule.pointer, rule.value));
        assert_eq!(rule("/a/0=7"), Ok(("/a/0".to_owned(), json!(7))));
        assert_eq!(rule("/a=\"7\""), Ok(("/a".to_owned(), json!("7"))));
        assert_eq!(rule("/a=up=down"), Ok(("/a".to_owned(), json!("up=down"))));
        assert_eq!(rule("=[1]"), Ok((String::new(), json!([1]))));
        assert!(rule("a=1").is_err());
        assert!(rule("/a").is_err());
    }

    #[test]
    fn digests_have_64_digits() {
        let text = "00ff".repeat(16);
        assert_eq!(read_digest(&text).unwrap()[..2], [0, 255]);
        for bad in [
            &text[1..],
            &text.replace("ff", "+f"),
            &text.replace("ff", "gg"),
        ] {
            assert!(read_digest(bad).is_err(), "{bad}");
        }
    }
}
