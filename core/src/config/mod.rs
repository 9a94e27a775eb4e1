//! A server's settings as data, for a server that another process configures.
//!
//! Guarantee: what can be said here can be sent as JSON and means the same
//! there; nothing is read but the files and folders that it names.

mod routes;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::routes::{FilesConfig, ProxyConfig};
use crate::compression::Compression;
use crate::error::Error;
use crate::limits::Limits;
use crate::middleware::{
    AccessLog, AccessLogFormat, Cors, CorsConfig, Forwarded, ForwardedHeader, HostPattern,
    HttpsRedirect, OtlpEndpoint, RateLimit, RateLimitConfig, RequestId, SecurityHeaders, Trace,
    TrustedHosts, TrustedPeer,
};
use crate::router::Router;
use crate::server::{MetricsMount, Server, TlsFiles};
use crate::session::Sessions;

/// What a [`Server`] is to be, without its addresses and its own routes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the configuration"
)]
pub struct ServerConfig {
    /// See [`Server::limits`].
    pub limits: Limits,
    /// See [`Server::tls`].
    pub tls: Option<TlsFiles>,
    /// Origins of other sites' pages that may call; `*` alone for all.
    pub cors: Vec<String>,
    /// See [`Server::request_id`].
    pub request_id: bool,
    /// See [`Server::health`].
    pub health: bool,
    /// See [`Server::metrics`].
    pub metrics: MetricsMount,
    /// See [`Server::compression`].
    pub compression: Option<CompressionLevels>,
    /// See [`Server::decompression`].
    pub decompression: bool,
    /// See [`Server::access_log`]; the lines go to standard error.
    pub access_log: Option<AccessLogFormat>,
    /// Hosts to answer for, as [`HostPattern`]s; `None` for all.
    pub trusted_hosts: Option<Vec<String>>,
    /// Whether this machine's own names are trusted beside them.
    pub trusts_loopback: bool,
    /// Networks of proxies whose word counts, as [`TrustedPeer`]s.
    pub trusted_proxies: Vec<String>,
    /// Header that these proxies write.
    pub forwarded_header: ForwardedHeader,
    /// Port that plain requests are redirected to.
    pub https_redirect: Option<u16>,
    /// See [`Server::rate_limit`].
    pub rate_limit: Option<RateLimitConfig>,
    /// Header that says whose request it is, for [`RateLimit::by_header`].
    pub rate_limit_header: Option<String>,
    /// See [`Server::security_headers`].
    pub security_headers: bool,
    /// Age of `Strict-Transport-Security`.
    pub hsts: Option<Duration>,
    /// See [`Server::sessions`].
    pub sessions: Option<SessionConfig>,
    /// See [`Server::trace`].
    pub trace: Option<TraceConfig>,
    /// Folders that are served.
    pub files: FilesConfig,
    /// Servers that routes are given to.
    pub proxy: ProxyConfig,
}

/// What visitors' sessions are sealed with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionConfig {
    /// See [`Sessions::from_file`].
    pub secret_file: PathBuf,
    /// See [`Sessions::cookie_name`].
    pub cookie: String,
    /// See [`Sessions::max_age`].
    pub max_age: Duration,
}

/// How the server takes part in traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceConfig {
    /// Collector of spans, as an [`OtlpEndpoint`]; `None` to keep them here.
    pub endpoint: Option<String>,
    /// Name of this service in spans.
    pub service_name: String,
    /// See [`Trace::sample_percent`].
    pub sample_percent: u8,
}

/// How responses are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompressionLevels {
    /// Shortest body that is worth it.
    pub min_bytes: u64,
    /// Level of gzip.
    pub gzip: u8,
    /// Level of brotli.
    pub br: u8,
    /// Level of zstd.
    pub zstd: u8,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            limits: Limits::DEFAULT,
            tls: None,
            cors: Vec::new(),
            request_id: false,
            health: true,
            metrics: MetricsMount::Path("/metrics".to_owned()),
            compression: None,
            decompression: false,
            access_log: None,
            trusted_hosts: None,
            trusts_loopback: false,
            trusted_proxies: Vec::new(),
            forwarded_header: ForwardedHeader::default(),
            https_redirect: None,
            rate_limit: None,
            rate_limit_header: None,
            security_headers: false,
            hsts: None,
            sessions: None,
            trace: None,
            files: FilesConfig::default(),
            proxy: ProxyConfig::default(),
        }
    }
}

impl ServerConfig {
    /// Adds the routes of proxies and folders to those of an application.
    ///
    /// # Errors
    /// A folder or an upstream that cannot be served, or a route that another
    /// one has.
    pub fn mount(&self, router: Router) -> Result<Router, Error> {
        let router = self.proxy.mount(router, self.tls.is_some())?;
        self.files.mount(router)
    }

    /// Reads each file that the server will read when it starts; folders and
    /// upstreams are looked at by [`Self::mount`].
    ///
    /// # Errors
    /// As [`Self::apply`] and [`Server::bind`].
    pub fn check_files(&self) -> Result<(), Error> {
        if let Some(tls) = &self.tls {
            tls.check()?;
        }
        self.open_sessions().map(drop)
    }

    /// Switches on in `server` what is asked for.
    ///
    /// # Errors
    /// [`Error::Config`] for a value that cannot be used.
    pub fn apply(&self, server: Server) -> Result<Server, Error> {
        let mut server = server
            .limits(self.limits.clone())
            .health(self.health)
            .metrics(self.metrics.clone())
            .decompression(self.decompression);
        if let Some(tls) = &self.tls {
            server = server.tls(tls.clone());
        }
        if !self.cors.is_empty() {
            let config = CorsConfig {
                origins: self.cors.clone(),
                ..CorsConfig::default()
            };
            server = server.cors(Cors::new(config)?);
        }
        if self.request_id {
            server = server.request_id(RequestId::default());
        }
        if let Some(levels) = self.compression {
            let compression = Compression::new().min_bytes(levels.min_bytes).levels(
                levels.gzip,
                levels.br,
                levels.zstd,
            )?;
            server = server.compression(compression);
        }
        if let Some(format) = self.access_log {
            server = server.access_log(AccessLog::new(format, Box::new(io::stderr()))?);
        }
        self.apply_guards(server)
    }

    fn apply_guards(&self, mut server: Server) -> Result<Server, Error> {
        if let Some(hosts) = &self.trusted_hosts {
            let patterns = parse::<HostPattern>("server.trusted_hosts", hosts)?;
            server = server.trusted_hosts(if self.trusts_loopback {
                patterns
                    .into_iter()
                    .fold(TrustedHosts::loopback(), TrustedHosts::and)
            } else {
                TrustedHosts::new(patterns)?
            });
        }
        if !self.trusted_proxies.is_empty() {
            let peers = parse::<TrustedPeer>("server.trusted_proxies", &self.trusted_proxies)?;
            server = server.forwarded(Forwarded::new(&peers, self.forwarded_header)?);
        }
        if let Some(port) = self.https_redirect {
            server = server.https_redirect(HttpsRedirect::new().port(port));
        }
        if let Some(config) = self.rate_limit {
            let mut limit = RateLimit::new(config)?;
            if let Some(name) = &self.rate_limit_header {
                let name = name.parse().map_err(|_| Error::Config {
                    key: "server.rate_limit_header",
                    reason: format!("{name:?} is no name of a header"),
                })?;
                limit = limit.by_header(name);
            }
            server = server.rate_limit(limit);
        } else if self.rate_limit_header.is_some() {
            return Err(Error::Config {
                key: "server.rate_limit_header",
                reason: "it says who a client is for `server.rate_limit`, which is not set"
                    .to_owned(),
            });
        }
        if self.security_headers || self.hsts.is_some() {
            let mut headers = SecurityHeaders::default();
            if let Some(max_age) = self.hsts {
                headers = headers.with_strict_transport_security(max_age, false);
            }
            server = server.security_headers(headers);
        }
        if let Some(sessions) = self.open_sessions()? {
            server = server.sessions(sessions);
        }
        if let Some(config) = &self.trace {
            let mut trace = Trace::new().sample_percent(config.sample_percent);
            if let Some(endpoint) = &config.endpoint {
                let endpoint: OtlpEndpoint =
                    endpoint
                        .parse()
                        .map_err(|reason: &'static str| Error::Config {
                            key: "trace.endpoint",
                            reason: format!("{reason}, found {endpoint:?}"),
                        })?;
                trace = trace.export(endpoint, &config.service_name)?;
            }
            server = server.trace(trace);
        }
        Ok(server)
    }

    fn open_sessions(&self) -> Result<Option<Sessions>, Error> {
        let Some(config) = &self.sessions else {
            return Ok(None);
        };
        Sessions::from_file(&config.secret_file)?
            .cookie_name(&config.cookie)?
            .max_age(config.max_age)
            .map(Some)
    }
}

fn parse<T: std::str::FromStr>(key: &'static str, texts: &[String]) -> Result<Vec<T>, Error> {
    texts
        .iter()
        .map(|text| {
            text.parse().map_err(|_| Error::Config {
                key,
                reason: format!("{text:?} cannot be understood"),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::Router;

    #[test]
    fn a_config_comes_back_from_json_as_it_was() {
        let config = ServerConfig {
            cors: vec!["https://a.example".to_owned()],
            trusted_hosts: Some(vec!["a.example".to_owned()]),
            compression: Some(CompressionLevels {
                min_bytes: 100,
                gzip: 6,
                br: 5,
                zstd: 3,
            }),
            hsts: Some(Duration::from_mins(1)),
            trace: Some(TraceConfig {
                endpoint: None,
                service_name: "a".to_owned(),
                sample_percent: 5,
            }),
            files: FilesConfig {
                folders: vec![("/f".to_owned(), PathBuf::from("/"))],
                index: None,
                ..FilesConfig::default()
            },
            proxy: ProxyConfig {
                upstreams: vec![("/p".to_owned(), "http://127.0.0.1:1/".to_owned())],
                ..ProxyConfig::default()
            },
            metrics: MetricsMount::Inherited(7),
            ..ServerConfig::default()
        };
        let text = serde_json::to_string(&config).expect("it serialises");
        let read: ServerConfig = serde_json::from_str(&text).expect("it parses");
        assert_eq!(read, config);
        let router = read.mount(Router::new()).expect("the routes are valid");
        let patterns: Vec<_> = router.routes().map(|route| route.pattern).collect();
        for prefix in ["/f", "/p"] {
            assert!(patterns.iter().any(|known| known.starts_with(prefix)));
        }
        assert!(read.apply(Server::new(router)).is_ok());
    }

    #[test]
    fn files_are_looked_at_before_they_are_needed() {
        let config = ServerConfig {
            sessions: Some(SessionConfig {
                secret_file: PathBuf::from("/nowhere/secrets"),
                cookie: "session".to_owned(),
                max_age: Duration::from_mins(1),
            }),
            ..ServerConfig::default()
        };
        let error = config.check_files().unwrap_err().to_string();
        assert!(error.contains("server.session.secret_file"), "{error}");
        assert!(config.apply(Server::new(Router::new())).is_err());
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let config = ServerConfig {
            trusted_proxies: vec!["no network".to_owned()],
            ..ServerConfig::default()
        };
        let error = config.apply(Server::new(Router::new())).unwrap_err();
        assert!(
            error.to_string().contains("server.trusted_proxies"),
            "{error}"
        );
        let config = ServerConfig {
            rate_limit: Some(RateLimitConfig::new("1/s".parse().unwrap(), 1)),
            rate_limit_header: Some("no header".to_owned()),
            ..ServerConfig::default()
        };
        let error = config.apply(Server::new(Router::new())).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("server.rate_limit_header"), "{error}");
        let config = ServerConfig {
            rate_limit_header: Some("x-api-key".to_owned()),
            ..ServerConfig::default()
        };
        let error = config.apply(Server::new(Router::new())).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("server.rate_limit_header"), "{error}");
        assert!(serde_json::from_str::<ServerConfig>("{\"unknown\": 1}").is_err());
    }
}
