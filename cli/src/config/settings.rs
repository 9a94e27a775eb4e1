//! The one table of settings: key, flag, variables, kind, default and help.
//!
//! Guarantee: flags, `JUSTAPI_*` variables, `justapi.toml` keys, help texts
//! and `config show` all come from these rows, so they cannot disagree. A
//! test checks that each field of [`Limits`] is in it. Long because it is data.

use std::time::Duration;

use justapi_core::{
    BROTLI_LEVEL, FileCache, Files, GZIP_LEVEL, Limits, MAX_PROXY_CONNECTIONS,
    MIN_COMPRESSED_BYTES, PROXY_BODY_TIMEOUT, PROXY_CONNECT_TIMEOUT, PROXY_HEAD_TIMEOUT,
    PROXY_TUNNEL_TIMEOUT, ZSTD_LEVEL,
};

use super::value::{Kind, Value};
use crate::descriptors;

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Dotted key in `justapi.toml`.
    pub(crate) key: &'static str,
    /// Long flag without dashes; `None` where an argument or a combined flag sets it.
    pub(crate) flag: Option<&'static str>,
    /// Variables besides the one that is derived from the key.
    pub(crate) aliases: &'static [Alias],
    /// What it accepts.
    pub(crate) kind: Kind,
    /// Name of the value in help.
    pub(crate) value_name: &'static str,
    /// Value when no layer sets it.
    pub(crate) default: fn() -> Value,
    /// Where it stands in help.
    pub(crate) group: Group,
    /// Whether the short help leaves it out.
    pub(crate) is_rare: bool,
    /// One sentence.
    pub(crate) help: &'static str,
    /// The field of [`Limits`] that it sets.
    pub(crate) limit: Option<LimitField>,
}

/// A further environment variable.
#[derive(Debug)]
pub(crate) enum Alias {
    /// Same text as the key's own variable.
    Same(&'static str),
    /// Whole seconds without a unit.
    Seconds(&'static str),
}

impl Alias {
    /// Name of the variable.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Same(name) | Self::Seconds(name) => name,
        }
    }
}

/// A heading of the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Network,
    Python,
    Model,
    Tls,
    Clients,
    Responses,
    Log,
    Limits,
}

impl Group {
    /// Heading in help.
    pub(crate) const fn heading(self) -> &'static str {
        match self {
            Self::Network => "Network",
            Self::Python => "Python applications",
            Self::Model => "Language models",
            Self::Tls => "TLS",
            Self::Clients => "Clients and proxies",
            Self::Responses => "Responses",
            Self::Log => "Logs and metrics",
            Self::Limits => "Limits",
        }
    }
}

/// Ties a setting to a field of [`Limits`].
#[derive(Debug)]
pub(crate) struct LimitField {
    /// Name of the field, for the completeness test.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the completeness test"))]
    pub(crate) name: &'static str,
    /// Stores a value that the setting's kind has accepted.
    pub(crate) set: fn(&mut Limits, &Value),
}

impl Setting {
    /// Variable that is derived from the key.
    pub(crate) fn variable(&self) -> String {
        format!("JUSTAPI_{}", self.key.replace('.', "__").to_uppercase())
    }

    /// The default, written as on the command line; empty when unset.
    pub(crate) fn shown_default(&self) -> String {
        self.kind.show(&(self.default)())
    }
}

/// The setting of this key.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

const BASE: Setting = Setting {
    key: "",
    flag: None,
    aliases: &[],
    kind: Kind::Switch,
    value_name: "VALUE",
    default: || Value::Unset,
    group: Group::Network,
    is_rare: false,
    help: "",
    limit: None,
};

/// A limit of core: its default, its type and its field from one name.
macro_rules! limit {
    (@kind count) => { Kind::Number { min: 1, max: u32::MAX as u64 } };
    (@kind number) => { Kind::Number { min: 0, max: u32::MAX as u64 } };
    (@kind bytes) => { Kind::Bytes { max: u32::MAX as u64 } };
    (@kind long_bytes) => { Kind::Bytes { max: i64::MAX as u64 } };
    (@kind time) => { Kind::Time };
    (@kind time_or_off) => { Kind::TimeOrOff };
    (@unit count) => { "N" };
    (@unit number) => { "N" };
    (@unit bytes) => { "SIZE" };
    (@unit long_bytes) => { "SIZE" };
    (@unit time) => { "TIME" };
    (@unit time_or_off) => { "TIME" };
    ($field:ident, $kind:ident, $key:literal, $flag:literal, $help:literal) => {
        Setting {
            key: $key,
            flag: Some($flag),
            kind: limit!(@kind $kind),
            value_name: limit!(@unit $kind),
            default: || LimitValue::to_value(Limits::DEFAULT.$field),
            group: Group::Limits,
            is_rare: true,
            help: $help,
            limit: Some(LimitField {
                name: stringify!($field),
                set: |limits, value| limits.$field = LimitValue::from_value(value),
            }),
            ..BASE
        }
    };
}

/// Types of the fields of [`Limits`].
trait LimitValue {
    fn to_value(self) -> Value;
    fn from_value(value: &Value) -> Self;
}

macro_rules! number_limit {
    ($($type:ty)*) => { $(
        impl LimitValue for $type {
            fn to_value(self) -> Value {
                // Lossless: no target of ours has pointers wider than 64 bits.
                Value::Number(u64::try_from(self).expect("limits fit 64 bits"))
            }
            fn from_value(value: &Value) -> Self {
                value
                    .number()
                    .and_then(|number| Self::try_from(number).ok())
                    .expect("the kind accepts only numbers of this type")
            }
        }
    )* };
}

number_limit!(usize u32 u64);

impl LimitValue for Duration {
    fn to_value(self) -> Value {
        Value::Time(self)
    }

    fn from_value(value: &Value) -> Self {
        value.time().expect("the kind accepts only times")
    }
}

impl LimitValue for Option<Duration> {
    fn to_value(self) -> Value {
        self.map_or(Value::Unset, Value::Time)
    }

    fn from_value(value: &Value) -> Self {
        value.time()
    }
}

/// Every setting, in the order of help and `config show`.
pub(crate) static SETTINGS: &[Setting] = &[
    Setting {
        key: "server.host",
        flag: Some("host"),
        kind: Kind::Host,
        value_name: "HOST",
        default: || Value::Text("127.0.0.1".to_owned()),
        help: "Address or host name to listen on; 0.0.0.0 or :: for every interface",
        ..BASE
    },
    Setting {
        key: "server.port",
        flag: Some("port"),
        aliases: &[Alias::Same("PORT")],
        kind: Kind::Number {
            min: 0,
            max: 65_535,
        },
        value_name: "PORT",
        default: || Value::Number(8000),
        help: "TCP port; 0 picks a free one and prints it",
        ..BASE
    },
    Setting {
        key: "server.uds",
        flag: Some("uds"),
        kind: Kind::Path,
        value_name: "PATH",
        help: "Unix socket to listen on instead of a TCP port",
        ..BASE
    },
    Setting {
        key: "server.uds_mode",
        flag: Some("uds-mode"),
        kind: Kind::Mode,
        value_name: "MODE",
        default: || Value::Number(0o660),
        is_rare: true,
        help: "Permissions of the Unix socket, in octal",
        ..BASE
    },
    Setting {
        key: "server.fd",
        flag: Some("fd"),
        kind: Kind::Number {
            min: 3,
            max: 1_048_576,
        },
        value_name: "N",
        is_rare: true,
        help: "Inherited descriptor of a listening socket; LISTEN_FDS needs no flag",
        ..BASE
    },
    Setting {
        key: "app",
        kind: Kind::Application,
        value_name: "APP",
        group: Group::Python,
        is_rare: true,
        help: "Application of commands that name none; unset, the one that the folder has",
        ..BASE
    },
    Setting {
        key: "python.workers",
        flag: Some("workers"),
        kind: Kind::Lanes,
        value_name: "N",
        default: || Value::Number(1),
        group: Group::Python,
        is_rare: true,
        help: "Worker processes of a Python application; auto is a lane per available CPU",
        ..BASE
    },
    Setting {
        key: "python.interpreter",
        flag: Some("python"),
        kind: Kind::Interpreter,
        value_name: "PATH|X.Y",
        group: Group::Python,
        is_rare: true,
        help: "Python interpreter of the workers; by default that of the environment",
        ..BASE
    },
    Setting {
        key: "python.interface",
        flag: Some("interface"),
        kind: Kind::Choice(&["auto", "justapi", "asgi"]),
        value_name: "KIND",
        default: || Value::Text("auto".to_owned()),
        group: Group::Python,
        is_rare: true,
        help: "What the application is: justapi for ours alone, asgi for any; auto looks",
        ..BASE
    },
    Setting {
        key: "python.app_dir",
        flag: Some("app-dir"),
        kind: Kind::Path,
        value_name: "DIR",
        group: Group::Python,
        is_rare: true,
        help: "Folder that the application is imported from",
        ..BASE
    },
    Setting {
        key: "python.root_path",
        flag: Some("root-path"),
        kind: Kind::UrlPath,
        value_name: "PATH",
        group: Group::Python,
        is_rare: true,
        help: "Path that a proxy puts the application under",
        ..BASE
    },
    Setting {
        key: "python.max_requests",
        flag: Some("max-requests"),
        kind: Kind::Number {
            min: 1,
            max: u64::MAX,
        },
        value_name: "N",
        group: Group::Python,
        is_rare: true,
        help: "Requests after which a worker is replaced",
        ..BASE
    },
    Setting {
        key: "python.worker_max_rss",
        flag: Some("worker-max-rss"),
        kind: Kind::Bytes { max: u64::MAX },
        value_name: "SIZE",
        group: Group::Python,
        is_rare: true,
        help: "Memory above which a worker is replaced",
        ..BASE
    },
    Setting {
        key: "python.start_timeout",
        flag: Some("start-timeout"),
        kind: Kind::Time,
        value_name: "TIME",
        default: || Value::Time(Duration::from_mins(1)),
        group: Group::Python,
        is_rare: true,
        help: "Time for the application to import and start",
        ..BASE
    },
    Setting {
        key: "python.stuck_timeout",
        flag: Some("stuck-timeout"),
        kind: Kind::TimeOrOff,
        value_name: "TIME",
        // Longer than anybody waits for an answer: whoever still computes by
        // then computes for nobody.
        default: || Value::Time(Duration::from_mins(5)),
        group: Group::Python,
        is_rare: true,
        help: "Time after which a worker that a handler keeps busy is replaced",
        ..BASE
    },
    Setting {
        key: "python.thread_queue",
        flag: Some("thread-queue"),
        kind: Kind::Number {
            min: 1,
            max: 1_000_000,
        },
        value_name: "N",
        // Of calls of 50 ms the last waits a second for one of the 40 threads.
        default: || Value::Number(1000),
        group: Group::Python,
        is_rare: true,
        help: "Blocking `def` handlers, nothing async before them, that may wait for a thread; more are 503",
        ..BASE
    },
    Setting {
        key: "model.id",
        flag: Some("model"),
        kind: Kind::Model,
        value_name: "MODEL",
        group: Group::Network,
        help: "Model to serve with OpenAI's API, in place of an application",
        ..BASE
    },
    Setting {
        key: "model.served_name",
        flag: Some("served-model-name"),
        kind: Kind::Word,
        value_name: "NAME",
        group: Group::Model,
        is_rare: true,
        help: "Name that clients ask for; by default that of the model",
        ..BASE
    },
    Setting {
        key: "model.chat_template",
        flag: Some("chat-template"),
        kind: Kind::Path,
        value_name: "FILE",
        group: Group::Model,
        is_rare: true,
        help: "Template (Jinja) of chats, in place of the model's own",
        ..BASE
    },
    Setting {
        key: "model.api_key_file",
        flag: Some("api-key-file"),
        kind: Kind::Path,
        value_name: "FILE",
        group: Group::Model,
        is_rare: true,
        help: "Keys of which a request has to show one, one a line as KEY or NAME:KEY",
        ..BASE
    },
    Setting {
        key: "model.offline",
        flag: Some("offline"),
        kind: Kind::Switch,
        value_name: "BOOL",
        default: || Value::Switch(false),
        group: Group::Model,
        is_rare: true,
        help: "Fetch nothing: use a model that is on this machine",
        ..BASE
    },
    Setting {
        key: "model.threads",
        flag: Some("model-threads"),
        kind: Kind::Number { min: 1, max: 1024 },
        value_name: "N",
        group: Group::Model,
        is_rare: true,
        help: "Threads that compute; by default one per processor",
        ..BASE
    },
    Setting {
        key: "model.context",
        flag: Some("ctx"),
        kind: Kind::Number {
            min: 1,
            max: 16_777_216,
        },
        value_name: "N",
        group: Group::Model,
        is_rare: true,
        help: "Longest context in tokens; by default the model's, at most 8192",
        ..BASE
    },
    Setting {
        key: "model.kv_type",
        flag: Some("kv-type"),
        kind: Kind::Choice(&["f16", "f32"]),
        value_name: "TYPE",
        default: || Value::Text("f16".to_owned()),
        group: Group::Model,
        is_rare: true,
        help: "Type that keys and values are kept in",
        ..BASE
    },
    Setting {
        key: "model.max_seqs",
        flag: Some("max-seqs"),
        kind: Kind::Number { min: 1, max: 4096 },
        value_name: "N",
        default: || Value::Number(32),
        group: Group::Model,
        is_rare: true,
        help: "Requests that are answered at once",
        ..BASE
    },
    Setting {
        key: "model.max_waiting",
        flag: Some("max-waiting"),
        kind: Kind::Number {
            min: 1,
            max: 1_000_000,
        },
        value_name: "N",
        default: || Value::Number(256),
        group: Group::Model,
        is_rare: true,
        help: "Requests that may wait; more are answered 429",
        ..BASE
    },
    Setting {
        key: "model.pool_blocks",
        flag: Some("pool-blocks"),
        kind: Kind::Number {
            min: 1,
            max: 100_000_000,
        },
        value_name: "N",
        group: Group::Model,
        is_rare: true,
        help: "Blocks of keys and values; by default what 1 GiB holds",
        ..BASE
    },
    Setting {
        key: "model.block_size",
        flag: Some("block-size"),
        kind: Kind::Number { min: 1, max: 1024 },
        value_name: "N",
        default: || Value::Number(16),
        group: Group::Model,
        is_rare: true,
        help: "Tokens in a block",
        ..BASE
    },
    Setting {
        key: "model.chunk_size",
        flag: Some("chunk-size"),
        kind: Kind::Number {
            min: 1,
            max: 1_000_000,
        },
        value_name: "N",
        default: || Value::Number(512),
        group: Group::Model,
        is_rare: true,
        help: "Prompt tokens that are computed in one step",
        ..BASE
    },
    Setting {
        key: "model.max_prefill",
        flag: Some("max-prefill"),
        kind: Kind::Number { min: 1, max: 4096 },
        value_name: "N",
        default: || Value::Number(4),
        group: Group::Model,
        is_rare: true,
        help: "Requests whose prompts are computed in one step",
        ..BASE
    },
    Setting {
        key: "model.max_decode",
        flag: Some("max-decode"),
        kind: Kind::Number { min: 1, max: 4096 },
        value_name: "N",
        default: || Value::Number(32),
        group: Group::Model,
        is_rare: true,
        help: "Requests that get a token in one step",
        ..BASE
    },
    Setting {
        key: "model.scheduled",
        flag: Some("scheduled"),
        kind: Kind::Switch,
        value_name: "BOOL",
        default: || Value::Switch(true),
        group: Group::Model,
        is_rare: true,
        help: "Answer requests together, in batches; always so, and kept for older command lines",
        ..BASE
    },
    Setting {
        key: "model.gpu",
        flag: Some("gpu"),
        kind: Kind::Switch,
        value_name: "BOOL",
        default: || Value::Switch(false),
        group: Group::Model,
        is_rare: true,
        help: "Run on an NVIDIA GPU, if this program was built for one",
        ..BASE
    },
    Setting {
        key: "server.lanes",
        flag: Some("lanes"),
        kind: Kind::Lanes,
        value_name: "N",
        is_rare: true,
        help: "Threads that serve; auto is one per CPU, or per Python worker",
        ..BASE
    },
    Setting {
        key: "server.backlog",
        flag: Some("backlog"),
        kind: Kind::Number {
            min: 1,
            max: 65_535,
        },
        value_name: "N",
        default: || Value::Number(1024),
        is_rare: true,
        help: "Connections that may wait in the kernel to be accepted",
        ..BASE
    },
    limit!(
        grace,
        time,
        "server.graceful",
        "graceful",
        "Time for requests in flight after SIGTERM or Ctrl-C"
    )
    .in_group(Group::Network),
    Setting {
        key: "server.pid_file",
        flag: Some("pid-file"),
        kind: Kind::Path,
        value_name: "FILE",
        is_rare: true,
        help: "File that holds the process id while the server runs",
        ..BASE
    },
    Setting {
        key: "server.trusted_hosts",
        flag: Some("trusted-host"),
        kind: Kind::Hosts,
        value_name: "HOST",
        default: || Value::List(vec!["auto".to_owned()]),
        is_rare: true,
        help: "Host to answer for; auto is this machine's on loopback, * any",
        ..BASE
    },
    Setting {
        key: "server.proxy",
        flag: Some("proxy"),
        kind: Kind::ProxyRoutes,
        value_name: "ROUTE=URL",
        default: || Value::List(Vec::new()),
        is_rare: true,
        help: "Give a route and all below it to an http(s):// server; repeatable",
        ..BASE
    },
    Setting {
        key: "server.proxy_timeout_connect",
        flag: Some("proxy-timeout-connect"),
        kind: Kind::Time,
        value_name: "TIME",
        default: || Value::Time(PROXY_CONNECT_TIMEOUT),
        is_rare: true,
        help: "Time to connect to the server behind --proxy",
        ..BASE
    },
    Setting {
        key: "server.proxy_timeout_head",
        flag: Some("proxy-timeout-head"),
        kind: Kind::Time,
        value_name: "TIME",
        default: || Value::Time(PROXY_HEAD_TIMEOUT),
        is_rare: true,
        help: "Wait for the server behind --proxy to read on or to answer",
        ..BASE
    },
    Setting {
        key: "server.proxy_timeout_body",
        flag: Some("proxy-timeout-body"),
        kind: Kind::Time,
        value_name: "TIME",
        default: || Value::Time(PROXY_BODY_TIMEOUT),
        is_rare: true,
        help: "Wait for the next byte of an answer from behind --proxy",
        ..BASE
    },
    Setting {
        key: "server.proxy_timeout_tunnel",
        flag: Some("proxy-timeout-tunnel"),
        kind: Kind::Time,
        value_name: "TIME",
        default: || Value::Time(PROXY_TUNNEL_TIMEOUT),
        is_rare: true,
        help: "Time a WebSocket through --proxy may stay without a byte",
        ..BASE
    },
    Setting {
        key: "server.proxy_ca",
        flag: Some("proxy-ca"),
        kind: Kind::Path,
        value_name: "FILE",
        is_rare: true,
        help: "Authorities (PEM) of https:// servers behind --proxy; unset, the system's",
        ..BASE
    },
    Setting {
        key: "server.proxy_connections",
        flag: Some("proxy-connections"),
        kind: Kind::Number {
            min: 1,
            max: 65_535,
        },
        value_name: "N",
        default: || Value::Number(MAX_PROXY_CONNECTIONS as u64),
        is_rare: true,
        help: "Connections of a lane to one server behind --proxy",
        ..BASE
    },
    Setting {
        key: "server.tls.cert",
        flag: Some("tls-cert"),
        kind: Kind::Path,
        value_name: "FILE",
        group: Group::Tls,
        help: "Certificate chain (PEM); switches TLS and HTTP/2 on",
        ..BASE
    },
    Setting {
        key: "server.tls.key",
        flag: Some("tls-key"),
        kind: Kind::Path,
        value_name: "FILE",
        group: Group::Tls,
        help: "Private key of the certificate (PEM)",
        ..BASE
    },
    Setting {
        key: "server.tls.client_ca",
        flag: Some("tls-client-ca"),
        kind: Kind::Path,
        value_name: "FILE",
        group: Group::Tls,
        is_rare: true,
        help: "Authorities (PEM) that must have signed the client's certificate",
        ..BASE
    },
    Setting {
        key: "server.trusted_proxies",
        flag: Some("trusted-proxy"),
        kind: Kind::Proxies,
        value_name: "NETWORK",
        default: || Value::List(Vec::new()),
        group: Group::Clients,
        is_rare: true,
        help: "Proxy whose word about the client counts: an address, a network or unix; repeatable",
        ..BASE
    },
    Setting {
        key: "server.forwarded_header",
        flag: Some("forwarded-header"),
        kind: Kind::Choice(&["x-forwarded", "forwarded"]),
        value_name: "HEADER",
        default: || Value::Text("x-forwarded".to_owned()),
        group: Group::Clients,
        is_rare: true,
        help: "Header that the proxies write: x-forwarded (-For, -Proto, -Host) or forwarded",
        ..BASE
    },
    Setting {
        key: "server.https_redirect",
        flag: Some("https-redirect"),
        kind: Kind::Switch,
        default: || Value::Switch(false),
        group: Group::Clients,
        is_rare: true,
        help: "Send clients that come by plain HTTP to HTTPS",
        ..BASE
    },
    Setting {
        key: "server.https_redirect_port",
        flag: Some("https-redirect-port"),
        kind: Kind::Number {
            min: 1,
            max: 65_535,
        },
        value_name: "PORT",
        default: || Value::Number(443),
        group: Group::Clients,
        is_rare: true,
        help: "Port of HTTPS in those redirects",
        ..BASE
    },
    Setting {
        key: "server.rate_limit",
        flag: Some("rate-limit"),
        kind: Kind::Rate,
        value_name: "RATE",
        group: Group::Clients,
        is_rare: true,
        help: "Requests of one client over time; more are answered 429",
        ..BASE
    },
    Setting {
        key: "server.rate_limit_burst",
        flag: Some("rate-limit-burst"),
        kind: Kind::Number {
            min: 1,
            max: u32::MAX as u64,
        },
        value_name: "N",
        group: Group::Clients,
        is_rare: true,
        help: "Requests of one client at once; unset, as many as the rate has",
        ..BASE
    },
    Setting {
        key: "server.rate_limit_ipv6_prefix",
        flag: Some("rate-limit-ipv6-prefix"),
        kind: Kind::Number { min: 1, max: 128 },
        value_name: "BITS",
        default: || Value::Number(64),
        group: Group::Clients,
        is_rare: true,
        help: "Bits of an IPv6 address that make one client",
        ..BASE
    },
    Setting {
        key: "server.rate_limit_header",
        flag: Some("rate-limit-header"),
        kind: Kind::Word,
        value_name: "NAME",
        group: Group::Clients,
        is_rare: true,
        help: "Header that says whose request it is, such as X-API-Key; without it the address",
        ..BASE
    },
    Setting {
        key: "server.session.secret_file",
        flag: Some("session-secret-file"),
        kind: Kind::Path,
        value_name: "FILE",
        group: Group::Clients,
        is_rare: true,
        help: "Secrets of session cookies, one a line, the newest first; switches sessions on",
        ..BASE
    },
    Setting {
        key: "server.session.cookie",
        flag: Some("session-cookie"),
        kind: Kind::Word,
        value_name: "NAME",
        default: || Value::Text("session".to_owned()),
        group: Group::Clients,
        is_rare: true,
        help: "Name of the session cookie",
        ..BASE
    },
    Setting {
        key: "server.session.max_age",
        flag: Some("session-max-age"),
        kind: Kind::Time,
        value_name: "TIME",
        default: || Value::Time(Duration::from_hours(14 * 24)),
        group: Group::Clients,
        is_rare: true,
        help: "How long a session lives after it was last set",
        ..BASE
    },
    Setting {
        key: "server.cors",
        flag: Some("cors"),
        kind: Kind::Origins,
        value_name: "ORIGIN",
        default: || Value::List(Vec::new()),
        group: Group::Responses,
        help: "Origin whose pages may call this server; repeatable, * for all",
        ..BASE
    },
    Setting {
        key: "server.security_headers",
        flag: Some("security-headers"),
        kind: Kind::Switch,
        default: || Value::Switch(false),
        group: Group::Responses,
        help: "Send headers that harden browsers",
        ..BASE
    },
    Setting {
        key: "server.hsts",
        flag: Some("hsts"),
        kind: Kind::TimeOrOff,
        value_name: "TIME",
        group: Group::Responses,
        is_rare: true,
        help: "How long browsers insist on HTTPS, with the other security headers",
        ..BASE
    },
    Setting {
        key: "server.request_id",
        flag: Some("request-id"),
        kind: Kind::Switch,
        default: || Value::Switch(false),
        group: Group::Responses,
        help: "Give each request an id, in X-Request-Id and in the access log",
        ..BASE
    },
    Setting {
        key: "server.compression",
        flag: Some("compression"),
        kind: Kind::Switch,
        default: || Value::Switch(false),
        group: Group::Responses,
        help: "Compress text answers with gzip, br or zstd",
        ..BASE
    },
    Setting {
        key: "server.compression_min_size",
        flag: Some("compression-min-size"),
        kind: Kind::Bytes {
            max: u32::MAX as u64,
        },
        value_name: "SIZE",
        default: || Value::Number(MIN_COMPRESSED_BYTES),
        group: Group::Responses,
        is_rare: true,
        help: "Smallest answer that is compressed; a stream always is",
        ..BASE
    },
    Setting {
        key: "server.compression_gzip_level",
        flag: Some("compression-gzip-level"),
        kind: Kind::Number { min: 1, max: 9 },
        value_name: "N",
        default: || Value::Number(GZIP_LEVEL.into()),
        group: Group::Responses,
        is_rare: true,
        help: "Effort of gzip, from fast to small",
        ..BASE
    },
    Setting {
        key: "server.compression_br_level",
        flag: Some("compression-br-level"),
        kind: Kind::Number { min: 0, max: 11 },
        value_name: "N",
        default: || Value::Number(BROTLI_LEVEL.into()),
        group: Group::Responses,
        is_rare: true,
        help: "Effort of br, from fast to small; above 6 it is slow",
        ..BASE
    },
    Setting {
        key: "server.compression_zstd_level",
        flag: Some("compression-zstd-level"),
        kind: Kind::Number { min: 1, max: 19 },
        value_name: "N",
        default: || Value::Number(ZSTD_LEVEL.into()),
        group: Group::Responses,
        is_rare: true,
        help: "Effort of zstd, from fast to small; above 9 it is slow",
        ..BASE
    },
    Setting {
        key: "server.decompression",
        flag: Some("decompression"),
        kind: Kind::Switch,
        default: || Value::Switch(false),
        group: Group::Responses,
        is_rare: true,
        help: "Decode request bodies that come as gzip, br or zstd",
        ..BASE
    },
    Setting {
        key: "server.health",
        flag: Some("health"),
        kind: Kind::Switch,
        default: || Value::Switch(true),
        group: Group::Responses,
        is_rare: true,
        help: "Answer /health, /live and /ready; other ASGI applications only where this is set",
        ..BASE
    },
    Setting {
        key: "server.static",
        flag: Some("static"),
        kind: Kind::Mounts,
        value_name: "ROUTE=DIR",
        default: || Value::List(Vec::new()),
        group: Group::Responses,
        help: "Serve the files of a folder below a route; repeatable, / for all",
        ..BASE
    },
    Setting {
        key: "server.static_index",
        flag: Some("static-index"),
        kind: Kind::FileNameOrOff,
        value_name: "NAME",
        default: || Value::Text("index.html".to_owned()),
        group: Group::Responses,
        is_rare: true,
        help: "File that answers for its folder, or off",
        ..BASE
    },
    Setting {
        key: "server.static_hidden",
        flag: Some("static-hidden"),
        kind: Kind::Switch,
        default: || Value::Switch(false),
        group: Group::Responses,
        is_rare: true,
        help: "Serve names that begin with a dot",
        ..BASE
    },
    Setting {
        key: "server.static_symlinks",
        flag: Some("static-symlinks"),
        kind: Kind::Choice(&["refuse", "within", "anywhere"]),
        value_name: "POLICY",
        default: || Value::Text("within".to_owned()),
        group: Group::Responses,
        is_rare: true,
        help: "Links to follow: none (refuse), below the folder (within), or anywhere",
        ..BASE
    },
    Setting {
        key: "server.static_revalidate",
        flag: Some("static-revalidate"),
        kind: Kind::Time,
        value_name: "TIME",
        default: || Value::Time(Files::REVALIDATE),
        group: Group::Responses,
        is_rare: true,
        help: "How long an answer may be older than the file; 0s looks at each request",
        ..BASE
    },
    Setting {
        key: "server.static_cache",
        flag: Some("static-cache"),
        kind: Kind::Bytes {
            max: u32::MAX as u64,
        },
        value_name: "SIZE",
        default: || Value::Number(FileCache::DEFAULT.max_bytes as u64),
        group: Group::Responses,
        is_rare: true,
        help: "Memory for small files, for each lane and folder; 0 for none",
        ..BASE
    },
    Setting {
        key: "server.docs",
        flag: Some("docs"),
        kind: Kind::Switch,
        default: || Value::Switch(true),
        group: Group::Responses,
        is_rare: true,
        help: "Answer /openapi.json and /docs of the demo",
        ..BASE
    },
    Setting {
        key: "log.access",
        flag: Some("access-log"),
        kind: Kind::Choice(&["off", "text", "json"]),
        value_name: "FORMAT",
        default: || Value::Text("off".to_owned()),
        group: Group::Log,
        help: "One line per request on standard error: off, text or json",
        ..BASE
    },
    Setting {
        key: "log.format",
        flag: Some("log-format"),
        kind: Kind::Choice(&["text", "json"]),
        value_name: "FORMAT",
        default: || Value::Text("text".to_owned()),
        group: Group::Log,
        is_rare: true,
        help: "Form of the server's own messages: text or json",
        ..BASE
    },
    Setting {
        key: "trace.enabled",
        flag: Some("trace"),
        aliases: &[Alias::Same("JUSTAPI_ENABLE_TRACE")],
        kind: Kind::Switch,
        default: || Value::Switch(false),
        group: Group::Log,
        is_rare: true,
        help: "Take part in W3C traces and export their spans",
        ..BASE
    },
    Setting {
        key: "trace.endpoint",
        flag: Some("trace-endpoint"),
        aliases: &[Alias::Same("OTEL_EXPORTER_OTLP_ENDPOINT")],
        kind: Kind::Endpoint,
        value_name: "URL",
        default: || Value::Text("http://127.0.0.1:4318".to_owned()),
        group: Group::Log,
        is_rare: true,
        help: "OpenTelemetry collector (OTLP over HTTP) for spans, or off",
        ..BASE
    },
    Setting {
        key: "trace.service_name",
        flag: Some("trace-service-name"),
        aliases: &[Alias::Same("OTEL_SERVICE_NAME")],
        kind: Kind::Word,
        value_name: "NAME",
        default: || Value::Text("justapi".to_owned()),
        group: Group::Log,
        is_rare: true,
        help: "Name of this service in exported spans",
        ..BASE
    },
    Setting {
        key: "trace.sample_percent",
        flag: Some("trace-sample-percent"),
        kind: Kind::Number { min: 0, max: 100 },
        value_name: "N",
        default: || Value::Number(100),
        group: Group::Log,
        is_rare: true,
        help: "How many of 100 traces that begin here are recorded",
        ..BASE
    },
    Setting {
        key: "metrics.path",
        kind: Kind::UrlPath,
        default: || Value::Text("/metrics".to_owned()),
        group: Group::Log,
        help: "Path of the Prometheus metrics on the main address, or off",
        ..BASE
    },
    Setting {
        key: "metrics.addr",
        kind: Kind::Address,
        group: Group::Log,
        help: "Own address for the Prometheus metrics",
        ..BASE
    },
    Setting {
        aliases: &[Alias::Same("JUSTAPI_MAX_CONNECTIONS")],
        default: || Value::Number(descriptors::default_max_connections()),
        ..limit!(
            max_connections,
            count,
            "server.limits.max_connections",
            "max-connections",
            "Open connections; the default also keeps below the descriptor limit"
        )
    },
    Setting {
        aliases: &[Alias::Seconds("JUSTAPI_REQUEST_TIMEOUT_SECS")],
        ..limit!(
            request_timeout,
            time_or_off,
            "server.limits.timeout_request",
            "timeout-request",
            "From the end of the request head to the response head"
        )
    },
    limit!(
        header_timeout,
        time,
        "server.limits.timeout_header",
        "timeout-header",
        "Time to receive a whole request head"
    ),
    limit!(
        idle_timeout,
        time,
        "server.limits.timeout_idle",
        "timeout-idle",
        "Time a kept-alive connection may stay without a request"
    ),
    limit!(
        body_stall_timeout,
        time,
        "server.limits.timeout_body",
        "timeout-body",
        "Wait for the next byte of a request body"
    ),
    limit!(
        write_stall_timeout,
        time,
        "server.limits.timeout_write",
        "timeout-write",
        "Wait for the client to take the next byte of a response"
    ),
    limit!(
        tls_handshake_timeout,
        time,
        "server.limits.timeout_tls",
        "timeout-tls",
        "Time for the TLS handshake"
    ),
    limit!(
        max_body_bytes,
        long_bytes,
        "server.limits.body",
        "limit-body",
        "Size of a request body"
    ),
    limit!(
        max_body_memory_bytes,
        long_bytes,
        "server.limits.body_memory",
        "limit-body-memory",
        "Size of all request bodies that are read as a whole, in each process"
    ),
    limit!(
        min_body_rate,
        number,
        "server.limits.body_rate",
        "limit-body-rate",
        "Least bytes a second of a request body, 0 for any"
    ),
    limit!(
        min_write_rate,
        number,
        "server.limits.write_rate",
        "limit-write-rate",
        "Least bytes a second that a client takes of a response, 0 for any"
    ),
    limit!(
        max_request_line_bytes,
        bytes,
        "server.limits.request_line",
        "limit-request-line",
        "Size of method, target and version together"
    ),
    limit!(
        max_header_bytes,
        bytes,
        "server.limits.header",
        "limit-header",
        "Size of the request line and all header lines together"
    ),
    limit!(
        max_headers,
        count,
        "server.limits.headers",
        "limit-headers",
        "Header lines of a request"
    ),
    limit!(
        max_decompression_ratio,
        count,
        "server.limits.decompression_ratio",
        "limit-decompression-ratio",
        "Decoded bytes for each byte of a compressed request body"
    ),
    limit!(
        max_ranges,
        count,
        "server.limits.ranges",
        "limit-ranges",
        "Ranges of a static file in one request, 16 of a FileResponse; with more it is sent whole"
    ),
    limit!(
        max_static_path_bytes,
        bytes,
        "server.limits.static_path",
        "limit-static-path",
        "Size of the path of a static file below its route, decoded"
    ),
    limit!(
        h2_max_streams,
        count,
        "server.limits.h2_max_streams",
        "h2-max-streams",
        "HTTP/2 streams open at once on a connection"
    ),
    limit!(
        h2_max_header_list_bytes,
        bytes,
        "server.limits.h2_header_list",
        "h2-header-list",
        "HTTP/2 header list after decompression"
    ),
    limit!(
        h2_stream_window_bytes,
        bytes,
        "server.limits.h2_stream_window",
        "h2-stream-window",
        "HTTP/2 flow-control window of a stream"
    ),
    limit!(
        h2_connection_window_bytes,
        bytes,
        "server.limits.h2_connection_window",
        "h2-connection-window",
        "HTTP/2 flow-control window of a connection"
    ),
    limit!(
        h2_max_pending_resets,
        count,
        "server.limits.h2_max_pending_resets",
        "h2-max-pending-resets",
        "HTTP/2 streams reset by the client before they are accepted"
    ),
    limit!(
        h2_max_local_resets,
        count,
        "server.limits.h2_max_local_resets",
        "h2-max-local-resets",
        "HTTP/2 streams that the server resets for the client's errors"
    ),
    limit!(
        sse_queue_events,
        count,
        "server.limits.sse_queue",
        "sse-queue",
        "Events that may wait for one client of an event stream"
    ),
    limit!(
        sse_keep_alive,
        time_or_off,
        "server.limits.sse_keep_alive",
        "sse-keep-alive",
        "Silence of an event stream before a comment is sent"
    ),
    limit!(
        sse_lag_timeout,
        time,
        "server.limits.sse_lag",
        "sse-lag",
        "Wait of an event for a slow client before that is cut off"
    ),
    limit!(
        max_form_fields,
        count,
        "server.limits.form_fields",
        "limit-form-fields",
        "Fields or parts of a form"
    ),
    limit!(
        max_form_field_bytes,
        bytes,
        "server.limits.form_field",
        "limit-form-field",
        "Size of the name or the value of a form field"
    ),
    limit!(
        max_form_file_bytes,
        long_bytes,
        "server.limits.form_file",
        "limit-form-file",
        "Size of a file in a form, within that of the body"
    ),
    limit!(
        max_form_header_bytes,
        bytes,
        "server.limits.form_header",
        "limit-form-header",
        "Size of the header lines of a part of a form"
    ),
    limit!(
        ws_max_message_bytes,
        bytes,
        "server.limits.ws_message",
        "ws-message",
        "Size of a message from a WebSocket client, decompressed"
    ),
    limit!(
        ws_max_frame_bytes,
        bytes,
        "server.limits.ws_frame",
        "ws-frame",
        "Size of a frame from a WebSocket client"
    ),
    limit!(
        ws_buffer_bytes,
        bytes,
        "server.limits.ws_buffer",
        "ws-buffer",
        "Size of a message to a WebSocket client, all that is buffered for it"
    ),
    limit!(
        ws_ping_interval,
        time_or_off,
        "server.limits.ws_ping",
        "ws-ping",
        "Silence of a WebSocket client before it is pinged"
    ),
    limit!(
        ws_pong_timeout,
        time,
        "server.limits.ws_pong",
        "ws-pong",
        "Wait for a pinged WebSocket client to send anything"
    ),
    limit!(
        ws_idle_timeout,
        time_or_off,
        "server.limits.ws_idle",
        "ws-idle",
        "Time a WebSocket may stay without a message in either direction"
    ),
];

impl Setting {
    const fn in_group(mut self, group: Group) -> Self {
        self.group = group;
        self.is_rare = false;
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Field names out of the derived `Debug`, which cannot forget one.
    fn limit_fields() -> BTreeSet<String> {
        format!("{:#?}", Limits::DEFAULT)
            .lines()
            .filter(|line| line.starts_with("    ") && !line.starts_with("     "))
            .filter_map(|line| line.trim().split_once(": "))
            .map(|(name, _)| name.to_owned())
            .collect()
    }

    #[test]
    fn each_limit_of_core_is_one_setting() {
        let rows: Vec<_> = SETTINGS
            .iter()
            .filter_map(|setting| setting.limit.as_ref())
            .map(|limit| limit.name.to_owned())
            .collect();
        assert_eq!(rows.len(), limit_fields().len());
        assert_eq!(rows.into_iter().collect::<BTreeSet<_>>(), limit_fields());
    }

    #[test]
    fn defaults_are_those_of_core() {
        let mut limits = Limits::DEFAULT;
        for setting in SETTINGS {
            if let Some(limit) = &setting.limit {
                (limit.set)(&mut limits, &(setting.default)());
            }
        }
        assert!(limits.max_connections <= Limits::DEFAULT.max_connections);
        limits.max_connections = Limits::DEFAULT.max_connections;
        assert_eq!(limits, Limits::DEFAULT);
    }

    #[test]
    fn names_are_unique_and_defaults_are_accepted() {
        let mut names = BTreeSet::new();
        for setting in SETTINGS {
            assert!(names.insert(setting.key.to_owned()), "{}", setting.key);
            assert!(names.insert(setting.variable()), "{}", setting.variable());
            if let Some(flag) = setting.flag {
                assert!(names.insert(flag.to_owned()), "{flag}");
            }
            for alias in setting.aliases {
                assert!(names.insert(alias.name().to_owned()), "{}", alias.name());
            }
            assert!(!setting.help.is_empty() && !setting.help.ends_with('.'));
            let default = (setting.default)();
            if default != Value::Unset && default != Value::List(Vec::new()) {
                assert_eq!(setting.kind.parse(&setting.shown_default()), Ok(default));
            }
        }
    }
}
