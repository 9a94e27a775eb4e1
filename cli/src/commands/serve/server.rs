//! From settings to the server that they describe, for the demo and for the
//! workers of a Python application alike.
//!
//! Guarantee: on loopback a server answers for this machine's own names only,
//! unless it is told otherwise, so that no page in a browser can reach it
//! under a name of its own (DNS rebinding).

use std::path::PathBuf;

use justapi_core::{
    AccessLogFormat, CompressionLevels, FileCache, FilesConfig, ForwardedHeader, HostPattern,
    Listen, MetricsMount, OtlpEndpoint, ProxyConfig, Rate, RateLimitConfig, ServerConfig,
    SessionConfig, Symlinks, TlsFiles, TraceConfig,
};

use super::plan::conflict;
use crate::config::Config;
use crate::error::CliError;

/// What the settings say of the server; the hosts wait for [`trust`].
///
/// # Errors
/// A setting that does not work with another one.
pub(super) fn server_config(config: &Config) -> Result<ServerConfig, CliError> {
    let is_on = |key| config.value(key).is_on();
    Ok(ServerConfig {
        limits: config.limits(),
        tls: tls(config)?,
        cors: cors(config)?,
        request_id: is_on("server.request_id"),
        health: is_on("server.health"),
        metrics: metrics(config),
        compression: is_on("server.compression").then(|| compression(config)),
        decompression: is_on("server.decompression"),
        access_log: match config.value("log.access").text() {
            Some("text") => Some(AccessLogFormat::Text),
            Some("json") => Some(AccessLogFormat::Json),
            _ => None,
        },
        trusted_hosts: None,
        trusts_loopback: false,
        trusted_proxies: config.value("server.trusted_proxies").list().to_vec(),
        forwarded_header: match config.value("server.forwarded_header").text() {
            Some("forwarded") => ForwardedHeader::Forwarded,
            _ => ForwardedHeader::XForwarded,
        },
        https_redirect: is_on("server.https_redirect").then(|| {
            let port = config.value("server.https_redirect_port").number();
            port.and_then(|port| u16::try_from(port).ok())
                .unwrap_or(443)
        }),
        rate_limit: rate_limit(config)?,
        rate_limit_header: rate_limit_header(config)?,
        security_headers: is_on("server.security_headers"),
        hsts: config.value("server.hsts").time(),
        sessions: sessions(config),
        trace: trace(config)?,
        files: files(config),
        proxy: proxy(config),
    })
}

/// Fills in the hosts to answer for, of a server on `listens`.
///
/// `auto` is nothing unless every address is a loopback one: behind a Unix or
/// an inherited socket there is a proxy with names of its own.
pub(super) fn trust(server: &mut ServerConfig, config: &Trusted, listens: &[Listen]) {
    let given = &config.hosts;
    if given.iter().any(|host| host == "*") {
        return;
    }
    let is_loopback = |listen: &Listen| match listen {
        Listen::Tcp(address) => address.ip().to_canonical().is_loopback(),
        _ => false,
    };
    let listed = given.iter().filter(|host| *host != "auto").cloned();
    let mut hosts: Vec<String> = listed.collect();
    if given.iter().any(|host| host == "auto") {
        if listens.iter().all(is_loopback) {
            hosts.extend(config.own_host.clone());
            server.trusts_loopback = true;
        } else if hosts.is_empty() {
            return;
        }
    }
    server.trusted_hosts = Some(hosts);
}

/// The settings of trusted hosts, which mean something once it is known what
/// is listened on.
#[derive(Debug)]
pub(super) struct Trusted {
    /// Entries of `server.trusted_hosts` as they were given.
    hosts: Vec<String>,
    /// The configured host, which is trusted beside the loopback names.
    own_host: Option<String>,
}

impl Trusted {
    pub(super) fn new(config: &Config) -> Self {
        let own_host = config.value("server.host").text();
        // A bare IPv6 address is no `Host`, and among the loopback names.
        let own_host = own_host.filter(|host| host.parse::<HostPattern>().is_ok());
        Self {
            hosts: config.value("server.trusted_hosts").list().to_vec(),
            own_host: own_host.map(str::to_owned),
        }
    }
}

fn path(config: &Config, key: &str) -> Option<PathBuf> {
    config.value(key).text().map(PathBuf::from)
}

fn text(config: &Config, key: &str) -> String {
    config.value(key).text().unwrap_or_default().to_owned()
}

/// The two halves of each `ROUTE=TARGET` of a list.
fn pairs(config: &Config, key: &str) -> impl Iterator<Item = (String, String)> {
    let entries = config.value(key).list().iter();
    entries
        .filter_map(|entry| entry.split_once('='))
        .map(|(route, target)| (route.to_owned(), target.to_owned()))
}

fn tls(config: &Config) -> Result<Option<TlsFiles>, CliError> {
    let missing = |given: &str, missing: &str, flag: &str| {
        conflict(
            config,
            given,
            format!("`{given}` is set without `{missing}`"),
        )
        .with_hint(format!("add `--{flag} FILE`, or set `{missing}`"))
    };
    match (
        path(config, "server.tls.cert"),
        path(config, "server.tls.key"),
        path(config, "server.tls.client_ca"),
    ) {
        (Some(cert), Some(key), client_ca) => Ok(Some(TlsFiles {
            cert,
            key,
            client_ca,
        })),
        (Some(_), None, _) => Err(missing("server.tls.cert", "server.tls.key", "tls-key")),
        (None, Some(_), _) => Err(missing("server.tls.key", "server.tls.cert", "tls-cert")),
        (None, None, Some(_)) => Err(missing(
            "server.tls.client_ca",
            "server.tls.cert",
            "tls-cert",
        )),
        (None, None, None) => Ok(None),
    }
}

fn cors(config: &Config) -> Result<Vec<String>, CliError> {
    let origins = config.value("server.cors").list();
    if origins.len() > 1 && origins.iter().any(|origin| origin == "*") {
        return Err(conflict(
            config,
            "server.cors",
            "`server.cors` holds `*` and further origins".to_owned(),
        )
        .with_hint("give `*` alone for every origin, or only the origins that may call"));
    }
    Ok(origins.to_vec())
}

fn metrics(config: &Config) -> MetricsMount {
    let address = config.value("metrics.addr").text();
    if let Some(address) = address.and_then(|address| address.parse().ok()) {
        return MetricsMount::Address(address);
    }
    let path = config.value("metrics.path").text();
    path.map_or(MetricsMount::Off, |path| {
        MetricsMount::Path(path.to_owned())
    })
}

fn compression(config: &Config) -> CompressionLevels {
    let number = |key| config.value(key).number().unwrap_or_default();
    let level = |key| u8::try_from(number(key)).unwrap_or(u8::MAX);
    CompressionLevels {
        min_bytes: number("server.compression_min_size"),
        gzip: level("server.compression_gzip_level"),
        br: level("server.compression_br_level"),
        zstd: level("server.compression_zstd_level"),
    }
}

fn rate_limit(config: &Config) -> Result<Option<RateLimitConfig>, CliError> {
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

fn rate_limit_header(config: &Config) -> Result<Option<String>, CliError> {
    const HEADER: &str = "server.rate_limit_header";
    let name = config.value(HEADER).text().map(str::to_owned);
    if name.is_some() && config.value("server.rate_limit").text().is_none() {
        let problem = format!("`{HEADER}` is set without `server.rate_limit`");
        return Err(
            conflict(config, HEADER, problem).with_hint("add `--rate-limit RATE`, such as 100/s")
        );
    }
    Ok(name)
}

fn sessions(config: &Config) -> Option<SessionConfig> {
    Some(SessionConfig {
        secret_file: path(config, "server.session.secret_file")?,
        cookie: text(config, "server.session.cookie"),
        max_age: config
            .value("server.session.max_age")
            .time()
            .unwrap_or_default(),
    })
}

fn trace(config: &Config) -> Result<Option<TraceConfig>, CliError> {
    const ENDPOINT: &str = "trace.endpoint";
    if !config.value("trace.enabled").is_on() {
        return Ok(None);
    }
    // Checked here and not by its kind: a variable that is meant for other
    // programs must not keep a server without traces from starting.
    let endpoint = config.value(ENDPOINT).text();
    if let Some(url) = endpoint
        && let Err(reason) = url.parse::<OtlpEndpoint>()
    {
        return Err(conflict(
            config,
            ENDPOINT,
            format!("`{ENDPOINT}`: {reason}, found \"{url}\""),
        )
        .with_hint("use a collector on this machine, such as http://127.0.0.1:4318, or off"));
    }
    let percent = config.value("trace.sample_percent").number();
    Ok(Some(TraceConfig {
        endpoint: endpoint.map(str::to_owned),
        service_name: text(config, "trace.service_name"),
        sample_percent: percent
            .and_then(|percent| u8::try_from(percent).ok())
            .unwrap_or(100),
    }))
}

fn files(config: &Config) -> FilesConfig {
    FilesConfig {
        folders: pairs(config, "server.static")
            .map(|(route, folder)| (route, folder.into()))
            .collect(),
        index: config.value("server.static_index").text().map(Into::into),
        serves_hidden: config.value("server.static_hidden").is_on(),
        symlinks: match config.value("server.static_symlinks").text() {
            Some("refuse") => Symlinks::Refuse,
            Some("anywhere") => Symlinks::Anywhere,
            _ => Symlinks::Within,
        },
        revalidate: config
            .value("server.static_revalidate")
            .time()
            .unwrap_or_default(),
        cache: FileCache {
            max_bytes: config
                .value("server.static_cache")
                .number()
                .unwrap_or_default() as usize,
            ..FileCache::DEFAULT
        },
    }
}

fn proxy(config: &Config) -> ProxyConfig {
    let defaults = ProxyConfig::default();
    let time = |key| config.value(key).time().unwrap_or_default();
    let connections = config.value("server.proxy_connections").number();
    ProxyConfig {
        upstreams: pairs(config, "server.proxy").collect(),
        connect_timeout: time("server.proxy_timeout_connect"),
        head_timeout: time("server.proxy_timeout_head"),
        body_timeout: time("server.proxy_timeout_body"),
        tunnel_timeout: time("server.proxy_timeout_tunnel"),
        authorities: path(config, "server.proxy_ca"),
        max_connections: connections.map_or(defaults.max_connections, |number| number as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Given, Origin, SETTINGS, find};
    use crate::error::Code;

    fn flag(key: &str, text: &str) -> Given {
        let setting = find(key).unwrap();
        let value = setting.kind.parse(text).unwrap();
        (setting, value, Origin::Flag("--x".to_owned()))
    }

    fn server(given: &[Given]) -> Result<ServerConfig, CliError> {
        server_config(&Config::of(given))
    }

    /// Whether only some hosts are answered for.
    #[track_caller]
    fn check_hosts(given: &[Given], listen: Listen, expected: Option<&[&str]>) {
        let mut server = server(given).unwrap();
        let trusted = Trusted::new(&Config::of(given));
        trust(&mut server, &trusted, &[listen]);
        let found = server.trusted_hosts.as_deref();
        assert_eq!(found.is_some(), expected.is_some(), "{given:?}");
        assert_eq!(found.unwrap_or_default(), expected.unwrap_or_default());
        assert!(
            server
                .apply(justapi_core::Server::new(justapi_core::Router::new()))
                .is_ok()
        );
    }

    #[test]
    fn hosts_are_checked_on_loopback_or_when_listed() {
        let check = |hosts: &str, address: &str, expected| {
            let listen = Listen::Tcp(address.parse().unwrap());
            check_hosts(&[flag("server.trusted_hosts", hosts)], listen, expected);
        };
        let own = Some(&["127.0.0.1"][..]);
        check("auto", "127.0.0.1:80", own);
        check("auto", "[::1]:80", own);
        check("auto", "0.0.0.0:80", None);
        check("auto,a.example", "0.0.0.0:80", Some(&["a.example"]));
        check("a.example", "127.0.0.1:80", Some(&["a.example"]));
        check("*", "127.0.0.1:80", None);
        let unix = Listen::Unix {
            path: PathBuf::from("/s"),
            mode: 0o600,
        };
        check_hosts(&[], unix, None);
        let loopback = Listen::Tcp("[::1]:80".parse().unwrap());
        check_hosts(&[flag("server.host", "::1")], loopback, Some(&[]));
    }

    #[test]
    fn settings_that_do_not_work_together_are_refused() {
        for (key, text) in [
            ("server.rate_limit_burst", "5"),
            ("server.rate_limit_header", "x-key"),
        ] {
            let error = server(&[flag(key, text)]).unwrap_err();
            assert_eq!(error.code(), Code::FlagConflict, "{key}");
        }
        let endpoint = flag("trace.endpoint", "https://a");
        let found = server(std::slice::from_ref(&endpoint)).unwrap();
        assert!(found.trace.is_none());
        let error = server(&[flag("trace.enabled", "true"), endpoint]).unwrap_err();
        assert_eq!(error.code(), Code::FlagConflict);
    }

    #[test]
    fn the_burst_is_that_of_the_rate_unless_it_is_set() {
        let burst = |given: &[Given]| server(given).unwrap().rate_limit.unwrap().burst;
        assert_eq!(burst(&[flag("server.rate_limit", "7/s")]), 7);
        let both = [
            flag("server.rate_limit", "7/s"),
            flag("server.rate_limit_burst", "20"),
        ];
        assert_eq!(burst(&both), 20);
    }

    #[test]
    fn defaults_are_those_of_core() {
        let mut found = server(&[]).unwrap();
        found.limits.max_connections = ServerConfig::default().limits.max_connections;
        assert_eq!(found, ServerConfig::default());
    }

    /// Settings that say where and how processes run, not what a server is.
    const NOT_OF_THE_SERVER: [&str; 14] = [
        "app",
        "model.",
        "server.host",
        "server.port",
        "server.uds",
        "server.uds_mode",
        "server.fd",
        "server.lanes",
        "server.backlog",
        "server.pid_file",
        "server.docs",
        "server.trusted_hosts",
        "log.format",
        "python.",
    ];

    /// A value that is not the default, and what has to be set beside it.
    fn other_than_default(key: &str) -> Vec<Given> {
        let with = |more: &[(&str, &str)], text: &str| {
            let more = more.iter().map(|(key, text)| flag(key, text));
            more.chain([flag(key, text)]).collect()
        };
        let compressed = [("server.compression", "true")];
        let sessions = [("server.session.secret_file", "/secrets")];
        let traced = [("trace.enabled", "true")];
        match key {
            "server.cors" => with(&[], "https://a.example"),
            "server.proxy" => with(&[], "/a=http://127.0.0.1:1"),
            "server.static" => with(&[], "/a=/folder"),
            "server.static_index" => with(&[], "other.html"),
            "server.static_symlinks" => with(&[], "refuse"),
            "server.trusted_proxies" => with(&[], "10.0.0.0/8"),
            "server.forwarded_header" => with(&[], "forwarded"),
            "server.tls.cert" | "server.tls.key" | "server.tls.client_ca" => {
                let both = [("server.tls.cert", "/c"), ("server.tls.key", "/k")];
                with(&both, "/other")
            }
            "server.https_redirect_port" => with(&[("server.https_redirect", "true")], "444"),
            "server.rate_limit" => with(&[], "7/s"),
            "server.rate_limit_burst" => with(&[("server.rate_limit", "7/s")], "9"),
            "server.rate_limit_header" => with(&[("server.rate_limit", "7/s")], "x-key"),
            "server.rate_limit_ipv6_prefix" => with(&[("server.rate_limit", "7/s")], "48"),
            "server.compression_min_size" => with(&compressed, "7"),
            "server.compression_gzip_level"
            | "server.compression_br_level"
            | "server.compression_zstd_level" => with(&compressed, "2"),
            "server.session.cookie" => with(&sessions, "other"),
            "server.session.max_age" => with(&sessions, "5s"),
            "trace.endpoint" => with(&traced, "http://127.0.0.1:9"),
            "trace.service_name" => with(&traced, "other"),
            "trace.sample_percent" => with(&traced, "5"),
            "server.proxy_ca" | "server.session.secret_file" => with(&[], "/other"),
            "log.access" => with(&[], "json"),
            "metrics.path" => with(&[], "/other"),
            "metrics.addr" => with(&[], "127.0.0.1:9"),
            _ => {
                let default = find(key).unwrap().shown_default();
                let texts = ["true", "false", "7", "7s", "7MiB"];
                let kind = find(key).unwrap().kind;
                let fits = |text: &&&str| {
                    let parsed = kind.parse(text);
                    parsed.is_ok_and(|value| kind.show(&value) != default)
                };
                let text = texts.iter().find(fits).expect("one of them fits");
                with(&[], text)
            }
        }
    }

    #[test]
    fn no_setting_is_forgotten() {
        for setting in SETTINGS {
            let key = setting.key;
            if NOT_OF_THE_SERVER.iter().any(|other| key.starts_with(other)) {
                continue;
            }
            let given = other_than_default(key);
            let mut base = given.clone();
            base.pop();
            let changed = server(&given).unwrap();
            assert_ne!(changed, server(&base).unwrap(), "{key}");
        }
    }
}
