//! Flags of `justapi profile`, of which the doc comments are the help.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::args::read_time;
use crate::config::parse_seconds;
use crate::load_args::read_rate;

/// Arguments of `profile`.
#[derive(Debug, Args)]
pub(crate) struct Profile {
    /// URL of a running server, or an application to start as `justapi serve` would.
    ///
    /// `http://`, `https://` or `unix:/path` is a server that runs already. `module:attribute`, a
    /// file or a folder is a Python application; without a target it is what `justapi serve`
    /// serves without one. What is started listens on a free port and ends with this command.
    #[arg(value_name = "URL|APP")]
    pub(crate) target: Option<String>,
    /// Path to profile; repeatable, one after the other [default: that of the URL, or /].
    #[arg(long, value_name = "PATH", value_parser = read_path)]
    pub(crate) path: Vec<String>,
    /// How long to measure each path, after the warm-up; a bare number is seconds.
    #[arg(short = 'z', long, value_name = "TIME", default_value = "5s", value_parser = read_duration)]
    pub(crate) duration: Duration,
    /// Connections that are open at once.
    #[arg(short, long, value_name = "N", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) connections: u32,
    /// Open loop: requests per second, sent whether or not answers come.
    #[arg(long, value_name = "N", value_parser = read_rate)]
    pub(crate) rate: Option<f64>,
    /// Accept that less than 99 % of the rate was answered.
    #[arg(hide_short_help = true, long, requires = "rate")]
    pub(crate) allow_underrun: bool,
    /// Open a connection for each request.
    #[arg(long)]
    pub(crate) no_keepalive: bool,
    /// Load of each path ahead of the measured part.
    #[arg(hide_short_help = true, long, value_name = "TIME", default_value = "1s",
        value_parser = read_duration)]
    pub(crate) warmup: Duration,
    /// Threads of the client [default: half of the processors].
    #[arg(hide_short_help = true, long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// Limit for one request.
    #[arg(hide_short_help = true, long, value_name = "TIME", default_value = "10s",
        value_parser = read_duration)]
    pub(crate) timeout: Duration,
    /// Method [default: GET, or POST with --body].
    #[arg(short, long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// Header to send, as `Name: value`; repeatable.
    #[arg(short = 'H', long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// Body to send, or `@FILE` to read it from a file.
    #[arg(short, long, value_name = "BODY|@FILE")]
    pub(crate) body: Option<String>,
    /// Status that every answer must have; without it, the first must be 2xx.
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(100..=599))]
    pub(crate) expect_status: Option<u16>,
    /// Where the server has its metrics: a path, a URL, or `off` [default: /metrics].
    #[arg(long, value_name = "PATH|URL|off")]
    pub(crate) metrics: Option<String>,
    /// Write the report as one HTML page, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Authorities (PEM) that must have signed the server's certificate.
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// Accept any certificate of the server.
    #[arg(short = 'k', long, conflicts_with = "cacert")]
    pub(crate) insecure: bool,
    /// Further arguments for the `justapi serve` that is started, after `--`.
    #[arg(last = true, value_name = "SERVE ARGUMENTS")]
    pub(crate) serve: Vec<String>,
}

/// A time with its unit, or whole seconds.
fn read_duration(text: &str) -> Result<Duration, String> {
    parse_seconds(text).map_or_else(|| read_time(text), Ok)
}

pub(crate) fn read_path(text: &str) -> Result<String, String> {
    let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.starts_with('/') && is_printable && !text.contains('#') {
        Ok(text.to_owned())
    } else {
        Err(
            "expected a path that begins with / and is percent-encoded, such as /items/5"
                .to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_seconds() {
        assert_eq!(read_duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(read_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(read_duration("0"), Ok(Duration::ZERO));
        for bad in ["", "5.5", "-1", "s", "1e9"] {
            assert!(read_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_are_those_of_requests() {
        for good in ["/", "/a/b?c=d", "/caf%C3%A9"] {
            assert_eq!(read_path(good).as_deref(), Ok(good));
        }
        for bad in ["", "hello", "http://127.0.0.1/", "/a b", "/a#b", "/é"] {
            assert!(read_path(bad).is_err(), "{bad}");
        }
    }
}
