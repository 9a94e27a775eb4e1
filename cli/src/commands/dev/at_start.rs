//! Settings that a change of `justapi.toml` does not reach while it runs.
//!
//! Guarantee: everything else holds for the next start of the code.

use crate::config::Config;

/// What the address, the connections and the program itself are made with.
const AT_START: [&str; 41] = [
    "app",
    "server.host",
    "server.port",
    "server.uds",
    "server.uds_mode",
    "server.fd",
    "server.backlog",
    "server.pid_file",
    "server.graceful",
    "server.tls.cert",
    "server.tls.key",
    "server.tls.client_ca",
    "server.trusted_hosts",
    "server.trusted_proxies",
    "server.forwarded_header",
    "server.compression",
    "server.compression_min_size",
    "server.compression_gzip_level",
    "server.compression_br_level",
    "server.compression_zstd_level",
    "server.limits.max_connections",
    "server.limits.timeout_header",
    "server.limits.timeout_idle",
    "server.limits.timeout_body",
    "server.limits.timeout_write",
    "server.limits.timeout_tls",
    "server.limits.body_rate",
    "server.limits.write_rate",
    "server.limits.request_line",
    "server.limits.header",
    "server.limits.headers",
    "server.limits.h2_max_streams",
    "server.limits.h2_header_list",
    "server.limits.h2_stream_window",
    "server.limits.h2_connection_window",
    "server.limits.h2_max_pending_resets",
    "server.limits.h2_max_local_resets",
    "metrics.addr",
    "python.interpreter",
    "python.start_timeout",
    "log.format",
];

/// The settings that have other values than at the start, and need another one.
pub(super) fn changed(first: &Config, now: &Config) -> Vec<&'static str> {
    let is_other = |key: &&str| first.value(key) != now.value(key);
    AT_START.into_iter().filter(is_other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Origin, Value, find};

    #[test]
    fn what_counts_at_a_start_alone_is_named() {
        let given = |key: &str, value| {
            let setting = find(key).expect("a key of the table");
            (setting, value, Origin::Default)
        };
        for key in AT_START {
            assert!(find(key).is_some(), "{key}");
        }
        let first = Config::of(&[]);
        assert!(changed(&first, &Config::of(&[])).is_empty());
        let now = Config::of(&[
            given("server.port", Value::Number(9)),
            given("server.limits.body", Value::Number(9)),
            given("log.format", Value::Text("json".to_owned())),
        ]);
        assert_eq!(changed(&first, &now), ["server.port", "log.format"]);
    }
}
