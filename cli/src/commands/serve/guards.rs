//! What stands between clients and routes: proxies, hosts, HTTPS, rates,
//! sessions, traces.
//!
//! Guarantee: on loopback a server answers for this machine's own names only,
//! unless it is told otherwise, so that no page in a browser can reach it
//! under a name of its own (DNS rebinding).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use justapi_core::{
    Error, Forwarded, ForwardedHeader, HostPattern, HttpsRedirect, Listen, OtlpEndpoint, Rate,
    RateLimit, RateLimitConfig, SecurityHeaders, Server, Sessions, Trace, TrustedHosts,
    TrustedPeer,
};

use super::plan::conflict;
use crate::config::Config;
use crate::error::CliError;

const SECRET_FILE: &str = "server.session.secret_file";
/// Permission bits of everybody but owner and group.
const OTHERS: u32 = 0o007;
/// Most bytes of a secret file: eight secrets with comments.
const MAX_SECRET_FILE_BYTES: u64 = 64 * 1024;

/// The settings of this module, read and checked.
#[derive(Debug)]
pub(super) struct Guards {
    /// Entries of `server.trusted_hosts` as they were given.
    hosts: Vec<String>,
    /// The configured host, which is trusted beside the loopback names.
    own_host: Option<HostPattern>,
    proxies: Vec<TrustedPeer>,
    forwarded_header: ForwardedHeader,
    https_redirect: Option<HttpsRedirect>,
    rate_limit: Option<RateLimitConfig>,
    has_security_headers: bool,
    hsts: Option<Duration>,
    sessions: Option<SessionPlan>,
    trace: Option<TracePlan>,
}

#[derive(Debug)]
struct SessionPlan {
    secret_file: PathBuf,
    cookie: String,
    max_age: Duration,
}

#[derive(Debug)]
struct TracePlan {
    endpoint: Option<OtlpEndpoint>,
    service_name: String,
    sample_percent: u8,
}

impl Guards {
    /// # Errors
    /// A setting that does not work with another one.
    pub(super) fn new(config: &Config) -> Result<Self, CliError> {
        let text = |key| config.value(key).text().unwrap_or_default().to_owned();
        let number = |key| config.value(key).number();
        let proxies = config.value("server.trusted_proxies").list().iter();
        let redirect_port = number("server.https_redirect_port")
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or(443);
        Ok(Self {
            hosts: config.value("server.trusted_hosts").list().to_vec(),
            own_host: text("server.host").parse().ok(),
            proxies: proxies.filter_map(|proxy| proxy.parse().ok()).collect(),
            forwarded_header: match config.value("server.forwarded_header").text() {
                Some("forwarded") => ForwardedHeader::Forwarded,
                _ => ForwardedHeader::XForwarded,
            },
            https_redirect: config
                .value("server.https_redirect")
                .is_on()
                .then(|| HttpsRedirect::new().port(redirect_port)),
            rate_limit: rate_limit(config)?,
            has_security_headers: config.value("server.security_headers").is_on(),
            hsts: config.value("server.hsts").time(),
            sessions: config.value(SECRET_FILE).text().map(|path| SessionPlan {
                secret_file: PathBuf::from(path),
                cookie: text("server.session.cookie"),
                max_age: config
                    .value("server.session.max_age")
                    .time()
                    .unwrap_or_default(),
            }),
            trace: trace(config)?,
        })
    }

    /// Reads the files that the server would read.
    pub(super) fn check_files(&self) -> Result<(), Error> {
        self.sessions().map(drop)
    }

    /// Switches on what the settings ask for.
    pub(super) fn apply(&self, mut server: Server, listens: &[Listen]) -> Result<Server, Error> {
        if let Some(hosts) = self.trusted_hosts(listens)? {
            server = server.trusted_hosts(hosts);
        }
        if !self.proxies.is_empty() {
            server = server.forwarded(Forwarded::new(&self.proxies, self.forwarded_header)?);
        }
        if let Some(redirect) = self.https_redirect {
            server = server.https_redirect(redirect);
        }
        if let Some(config) = self.rate_limit {
            server = server.rate_limit(RateLimit::new(config)?);
        }
        if self.has_security_headers || self.hsts.is_some() {
            let mut headers = SecurityHeaders::default();
            if let Some(max_age) = self.hsts {
                headers = headers.with_strict_transport_security(max_age, false);
            }
            server = server.security_headers(headers);
        }
        if let Some(sessions) = self.sessions()? {
            server = server.sessions(sessions);
        }
        if let Some(plan) = &self.trace {
            let mut trace = Trace::new().sample_percent(plan.sample_percent);
            if let Some(endpoint) = &plan.endpoint {
                trace = trace.export(endpoint.clone(), &plan.service_name)?;
            }
            server = server.trace(trace);
        }
        Ok(server)
    }

    /// The hosts to answer for; `None` for any.
    ///
    /// `auto` is nothing unless every address is a loopback one: behind a
    /// Unix or an inherited socket there is a proxy with names of its own.
    fn trusted_hosts(&self, listens: &[Listen]) -> Result<Option<TrustedHosts>, Error> {
        if self.hosts.iter().any(|host| host == "*") {
            return Ok(None);
        }
        let is_loopback = |listen: &Listen| match listen {
            Listen::Tcp(address) => address.ip().to_canonical().is_loopback(),
            _ => false,
        };
        let is_auto = self.hosts.iter().any(|host| host == "auto");
        let listed = self
            .hosts
            .iter()
            .filter(|host| *host != "auto")
            .filter_map(|host| host.parse::<HostPattern>().ok());
        if is_auto && listens.iter().all(is_loopback) {
            let own = self.own_host.iter().cloned();
            let hosts = own
                .chain(listed)
                .fold(TrustedHosts::loopback(), TrustedHosts::and);
            return Ok(Some(hosts));
        }
        let listed: Vec<_> = listed.collect();
        if is_auto && listed.is_empty() {
            return Ok(None);
        }
        TrustedHosts::new(listed).map(Some)
    }

    fn sessions(&self) -> Result<Option<Sessions>, Error> {
        let Some(plan) = &self.sessions else {
            return Ok(None);
        };
        let text = read_secrets(&plan.secret_file).map_err(|reason| Error::Config {
            key: SECRET_FILE,
            reason,
        })?;
        let secrets: Vec<_> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        Sessions::new(&secrets)?
            .cookie_name(&plan.cookie)?
            .max_age(plan.max_age)
            .map(Some)
    }
}

pub(super) fn rate_limit(config: &Config) -> Result<Option<RateLimitConfig>, CliError> {
    const BURST: &str = "server.rate_limit_burst";
    let rate = config.value("server.rate_limit").text();
    let burst = config
        .value(BURST)
        .number()
        .and_then(|burst| u32::try_from(burst).ok());
    let Some(rate) = rate.and_then(|rate| rate.parse::<Rate>().ok()) else {
        return match burst {
            None => Ok(None),
            Some(_) => Err(conflict(
                config,
                BURST,
                format!("`{BURST}` is set without `server.rate_limit`"),
            )
            .with_hint("add `--rate-limit RATE`, such as 100/s")),
        };
    };
    let prefix = config.value("server.rate_limit_ipv6_prefix").number();
    let mut limit = RateLimitConfig::new(rate, burst.unwrap_or(rate.requests));
    if let Some(prefix) = prefix.and_then(|prefix| u8::try_from(prefix).ok()) {
        limit.ipv6_prefix = prefix;
    }
    Ok(Some(limit))
}

fn trace(config: &Config) -> Result<Option<TracePlan>, CliError> {
    const ENDPOINT: &str = "trace.endpoint";
    if !config.value("trace.enabled").is_on() {
        return Ok(None);
    }
    // Checked here and not by its kind: a variable that is meant for other
    // programs must not keep a server without traces from starting.
    let endpoint = match config.value(ENDPOINT).text() {
        None => None,
        Some(url) => Some(url.parse().map_err(|reason| {
            conflict(
                config,
                ENDPOINT,
                format!("`{ENDPOINT}`: {reason}, found \"{url}\""),
            )
            .with_hint("use a collector on this machine, such as http://127.0.0.1:4318, or off")
        })?),
    };
    Ok(Some(TracePlan {
        endpoint,
        service_name: config
            .value("trace.service_name")
            .text()
            .unwrap_or_default()
            .to_owned(),
        sample_percent: config
            .value("trace.sample_percent")
            .number()
            .and_then(|percent| u8::try_from(percent).ok())
            .unwrap_or(100),
    }))
}

/// Reads a file that only its owner and group may read.
fn read_secrets(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("cannot read {shown}: {error}");
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.mode() & OTHERS != 0 {
        return Err(format!("everybody may read {shown}; use `chmod 600`"));
    }
    if metadata.len() > MAX_SECRET_FILE_BYTES {
        return Err(format!(
            "{shown} is larger than {MAX_SECRET_FILE_BYTES} bytes"
        ));
    }
    fs::read_to_string(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Given, Origin, find};
    use crate::error::Code;

    fn flag(key: &str, text: &str) -> Given {
        let setting = find(key).unwrap();
        let value = setting.kind.parse(text).unwrap();
        (setting, value, Origin::Flag("--x".to_owned()))
    }

    fn guards(given: &[Given]) -> Result<Guards, CliError> {
        Guards::new(&Config::of(given))
    }

    /// Whether only some hosts are answered for.
    #[track_caller]
    fn check_hosts(hosts: &str, address: &str, expected: bool) {
        let guards = guards(&[flag("server.trusted_hosts", hosts)]).unwrap();
        let listens = [Listen::Tcp(address.parse().unwrap())];
        let found = guards.trusted_hosts(&listens).unwrap();
        assert_eq!(found.is_some(), expected, "{hosts} {address}");
    }

    #[test]
    fn hosts_are_checked_on_loopback_or_when_listed() {
        check_hosts("auto", "127.0.0.1:80", true);
        check_hosts("auto", "[::1]:80", true);
        check_hosts("auto", "0.0.0.0:80", false);
        check_hosts("auto,a.example", "0.0.0.0:80", true);
        check_hosts("a.example", "127.0.0.1:80", true);
        check_hosts("*", "127.0.0.1:80", false);
        let unix = Listen::Unix {
            path: PathBuf::from("/s"),
            mode: 0o600,
        };
        let found = guards(&[]).unwrap().trusted_hosts(&[unix]).unwrap();
        assert!(found.is_none());
    }

    #[test]
    fn settings_that_do_not_work_together_are_refused() {
        let error = guards(&[flag("server.rate_limit_burst", "5")]).unwrap_err();
        assert_eq!(error.code(), Code::FlagConflict);
        let endpoint = flag("trace.endpoint", "https://a");
        assert!(
            guards(std::slice::from_ref(&endpoint))
                .unwrap()
                .trace
                .is_none()
        );
        let error = guards(&[flag("trace.enabled", "true"), endpoint]).unwrap_err();
        assert_eq!(error.code(), Code::FlagConflict);
    }

    #[test]
    fn the_burst_is_that_of_the_rate_unless_it_is_set() {
        let burst = |given: &[Given]| guards(given).unwrap().rate_limit.unwrap().burst;
        assert_eq!(burst(&[flag("server.rate_limit", "7/s")]), 7);
        let both = [
            flag("server.rate_limit", "7/s"),
            flag("server.rate_limit_burst", "20"),
        ];
        assert_eq!(burst(&both), 20);
    }
}
