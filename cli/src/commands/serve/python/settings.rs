//! What the workers of a Python application are told.

use std::thread;

use justapi_core::{
    AccessLogFormat, CompressionLevels, ForwardedHeader, Listen, MetricsMount, RateLimitConfig,
    ServerConfig, TlsFiles,
};
use serde_json::{Value, json};

use super::super::plan::{Plan, conflict};
use crate::config::Config;
use crate::error::CliError;

/// Settings that mean nothing to a Python application, or not yet.
const UNAVAILABLE: [&str; 4] = [
    "server.static",
    "server.proxy",
    "server.session.secret_file",
    "trace.enabled",
];

/// Number of worker processes.
pub(super) fn num_workers(config: &Config) -> usize {
    match config.value("python.workers").number() {
        Some(workers) => workers as usize,
        None => thread::available_parallelism().map_or(1, std::num::NonZero::get),
    }
}

/// The settings of one worker, without its descriptors.
///
/// # Errors
/// A setting that a Python application cannot have.
pub(super) fn of_worker(
    config: &Config,
    plan: &Plan,
    app: &str,
    listens: &[Listen],
) -> Result<Value, CliError> {
    for key in UNAVAILABLE {
        let value = config.value(key);
        if value.is_on() || value.text().is_some() || !value.list().is_empty() {
            return Err(conflict(
                config,
                key,
                format!("`{key}` cannot be used with a Python application"),
            )
            .with_hint("leave it out, or serve the application without it"));
        }
    }
    Ok(json!({
        "app": app,
        "app_dir": config.value("python.app_dir").text(),
        "interface": config.value("python.interface").text().unwrap_or("auto"),
        "root_path": config.value("python.root_path").text().unwrap_or_default(),
        "grace": plan.limits.grace.as_secs_f64(),
        "max_requests": config.value("python.max_requests").number(),
        "server": server(config, plan, listens)?,
    }))
}

fn server(config: &Config, plan: &Plan, listens: &[Listen]) -> Result<ServerConfig, CliError> {
    let number = |key| config.value(key).number();
    let is_on = |key| config.value(key).is_on();
    let path = |key| config.value(key).text().map(Into::into);
    let level = |key| u8::try_from(number(key).unwrap_or_default()).unwrap_or(u8::MAX);
    let tls = match (path("server.tls.cert"), path("server.tls.key")) {
        (Some(cert), Some(key)) => Some(TlsFiles {
            cert,
            key,
            client_ca: path("server.tls.client_ca"),
        }),
        _ => None,
    };
    let (trusted_hosts, trusts_loopback) = trusted_hosts(config, listens);
    Ok(ServerConfig {
        limits: plan.limits.clone(),
        tls,
        cors: config.value("server.cors").list().to_vec(),
        request_id: is_on("server.request_id"),
        health: is_on("server.health"),
        metrics: match config.value("metrics.path").text() {
            Some(path) => MetricsMount::Path(path.to_owned()),
            None => MetricsMount::Off,
        },
        compression: is_on("server.compression").then(|| CompressionLevels {
            min_bytes: number("server.compression_min_size").unwrap_or_default(),
            gzip: level("server.compression_gzip_level"),
            br: level("server.compression_br_level"),
            zstd: level("server.compression_zstd_level"),
        }),
        decompression: is_on("server.decompression"),
        access_log: match config.value("log.access").text() {
            Some("text") => Some(AccessLogFormat::Text),
            Some("json") => Some(AccessLogFormat::Json),
            _ => None,
        },
        trusted_hosts,
        trusts_loopback,
        trusted_proxies: config.value("server.trusted_proxies").list().to_vec(),
        forwarded_header: match config.value("server.forwarded_header").text() {
            Some("forwarded") => ForwardedHeader::Forwarded,
            _ => ForwardedHeader::XForwarded,
        },
        https_redirect: is_on("server.https_redirect").then(|| {
            number("server.https_redirect_port")
                .and_then(|port| u16::try_from(port).ok())
                .unwrap_or(443)
        }),
        rate_limit: rate_limit(config)?,
        security_headers: is_on("server.security_headers"),
        hsts: config.value("server.hsts").time(),
    })
}

/// Hosts to answer for: this machine's own names on loopback, unless told
/// otherwise.
fn trusted_hosts(config: &Config, listens: &[Listen]) -> (Option<Vec<String>>, bool) {
    let given = config.value("server.trusted_hosts").list();
    if given.iter().any(|host| host == "*") {
        return (None, false);
    }
    let is_loopback = |listen: &Listen| matches!(listen, Listen::Tcp(address) if address.ip().to_canonical().is_loopback());
    let mut listed: Vec<String> = given
        .iter()
        .filter(|host| *host != "auto")
        .cloned()
        .collect();
    let is_auto = given.iter().any(|host| host == "auto");
    if is_auto && listens.iter().all(is_loopback) {
        listed.extend(config.value("server.host").text().map(str::to_owned));
        return (Some(listed), true);
    }
    if is_auto && listed.is_empty() {
        return (None, false);
    }
    (Some(listed), false)
}

fn rate_limit(config: &Config) -> Result<Option<RateLimitConfig>, CliError> {
    super::super::guards::rate_limit(config)
}
