//! A server's settings as data, for a server that another process configures.
//!
//! Guarantee: what can be said here can be sent as JSON and means the same
//! there; nothing is read but the TLS files that it names.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::compression::Compression;
use crate::error::Error;
use crate::limits::Limits;
use crate::middleware::{
    AccessLog, AccessLogFormat, Cors, CorsConfig, Forwarded, ForwardedHeader, HostPattern,
    HttpsRedirect, RateLimit, RateLimitConfig, RequestId, SecurityHeaders, TrustedHosts,
    TrustedPeer,
};
use crate::server::{MetricsMount, Server, TlsFiles};

/// What a [`Server`] is to be, without its routes and addresses.
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
    /// See [`Server::security_headers`].
    pub security_headers: bool,
    /// Age of `Strict-Transport-Security`.
    pub hsts: Option<Duration>,
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
            security_headers: false,
            hsts: None,
        }
    }
}

impl ServerConfig {
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
            server = server.rate_limit(RateLimit::new(config)?);
        }
        if self.security_headers || self.hsts.is_some() {
            let mut headers = SecurityHeaders::default();
            if let Some(max_age) = self.hsts {
                headers = headers.with_strict_transport_security(max_age, false);
            }
            server = server.security_headers(headers);
        }
        Ok(server)
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
            ..ServerConfig::default()
        };
        let text = serde_json::to_string(&config).expect("it serialises");
        let read: ServerConfig = serde_json::from_str(&text).expect("it parses");
        assert_eq!(read, config);
        assert!(read.apply(Server::new(Router::new())).is_ok());
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
        assert!(serde_json::from_str::<ServerConfig>("{\"unknown\": 1}").is_err());
    }
}
