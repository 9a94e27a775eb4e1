//! Every limit by one table: its key in `config show`, its flag in the help,
//! its name in the answer, its reason on the page of metrics.
//!
//! Each row sets its limit to another value than the default and breaks it, so
//! that a setting without effect, or one that counts as something else, fails.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::client::{Response, get, post};
use crate::support::http2::{Http2, Outcome, flag, frame, kind, method};
use crate::support::server::Server;
use crate::support::websocket::{frame as ws_frame, read_frame, upgrade};
use crate::support::{Failures, PATIENCE, hpack};

/// Long enough for a busy machine to connect, short enough to wait for.
const SHORT: &str = "300ms";

/// One limit and how it is broken.
struct Row {
    /// Key of the setting; `None` where the limit is a constant.
    key: Option<&'static str>,
    flags: &'static [&'static str],
    reason: &'static str,
    /// Breaks it; the answer, where there is one.
    break_it: fn(&Server) -> Option<Response>,
}

const fn row(
    key: &'static str,
    flags: &'static [&'static str],
    reason: &'static str,
    break_it: fn(&Server) -> Option<Response>,
) -> Row {
    Row {
        key: Some(key),
        flags,
        reason,
        break_it,
    }
}

static ROWS: &[Row] = &[
    row(
        "max_connections",
        &["--max-connections", "2"],
        "max_connections",
        |server| {
            let held = [server.connect(), server.connect()];
            let refused = server.connect().read().ok();
            drop(held);
            refused
        },
    ),
    row(
        "timeout_request",
        &["--timeout-request", SHORT],
        "request_timeout",
        |server| {
            ask(
                server,
                "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n[",
            )
        },
    ),
    row(
        "timeout_header",
        &["--timeout-header", SHORT],
        "header_timeout",
        |server| ask(server, "GET /hello HTTP/1.1\r\n"),
    ),
    row(
        "timeout_idle",
        &["--timeout-idle", SHORT],
        "idle_timeout",
        |server| {
            let mut client = server.connect();
            client.get("/hello");
            client.read_to_end();
            None
        },
    ),
    row(
        "timeout_body",
        &["--timeout-body", SHORT],
        "body_stall",
        |server| {
            ask(
                server,
                "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n[",
            )
        },
    ),
    row(
        "timeout_write",
        &["--timeout-write", SHORT],
        "write_stall",
        |server| {
            let mut connection = without_window(server);
            connection.get(1, "/hello");
            None
        },
    ),
    row(
        "write_rate",
        &[
            "--limit-write-rate",
            "1000000",
            "--timeout-write",
            "1s",
            "--limit-body",
            "16MiB",
        ],
        "write_rate",
        |server| {
            let mut client = server.connect();
            let socket = client.stream();
            rustix::net::sockopt::set_socket_recv_buffer_size(&*socket, 4096).expect("a socket");
            let mut socket = socket.try_clone().expect("a socket can be duplicated");
            client.send(post("/echo", &format!("\"{}\"", "a".repeat(8_000_000))));
            // It reads on, at less than half of the rate, until it is reset.
            while let Ok(1..) = socket.read(&mut [0; 4096]) {
                std::thread::sleep(Duration::from_millis(10));
            }
            None
        },
    ),
    row("body", &["--limit-body", "10"], "body", |server| {
        ask(server, &post("/echo", "[1, 2, 3, 4, 5]"))
    }),
    row(
        "request_line",
        &["--limit-request-line", "100"],
        "request_line",
        |server| ask(server, &get(&format!("/{}", "a".repeat(100)))),
    ),
    row(
        "header",
        &["--limit-header", "1KiB"],
        "header_bytes",
        |server| {
            let value = "y".repeat(1024);
            ask(
                server,
                &format!("GET /hello HTTP/1.1\r\nHost: a\r\nX: {value}\r\n\r\n"),
            )
        },
    ),
    row(
        "headers",
        &["--limit-headers", "5"],
        "header_count",
        |server| {
            let lines = "X: y\r\n".repeat(5);
            ask(
                server,
                &format!("GET /hello HTTP/1.1\r\nHost: a\r\n{lines}\r\n"),
            )
        },
    ),
    row(
        "decompression_ratio",
        &["--decompression", "--limit-decompression-ratio", "5"],
        "decompression_ratio",
        |server| {
            let spaces = gzip(&b" ".repeat(100_000));
            Some(server.connect().ask(coded("gzip", &spaces)))
        },
    ),
    row(
        "form_fields",
        &["--limit-form-fields", "3"],
        "form_fields",
        |server| form(server, "a=1&b=2&c=3&d=4"),
    ),
    row(
        "form_field",
        &["--limit-form-field", "10"],
        "form_field",
        |server| form(server, "a=12345678901"),
    ),
    row(
        "form_file",
        &["--limit-form-file", "10"],
        "form_file",
        |server| multipart(server, "name=f; filename=x", "12345678901"),
    ),
    row(
        "form_header",
        &["--limit-form-header", "100"],
        "form_header",
        |server| multipart(server, &format!("name={}", "n".repeat(100)), ""),
    ),
    row(
        "ranges",
        &["--static", "/own=/proc/self", "--limit-ranges", "2"],
        "ranges",
        |server| {
            let ask = |ranges: &str| {
                let head =
                    format!("GET /own/stat HTTP/1.1\r\nHost: a\r\nRange: bytes={ranges}\r\n\r\n");
                server.connect().ask(head).status
            };
            // What is too much is not refused: the file is sent whole.
            let _statuses = (ask("0-0,2-2"), ask("0-0,2-2,4-4"));
            None
        },
    ),
    row(
        "static_path",
        &["--static", "/own=/proc/self", "--limit-static-path", "8"],
        "static_path",
        |server| ask(server, &get("/own/123456789")),
    ),
    row(
        "h2_max_streams",
        &["--h2-max-streams", "2"],
        "h2_max_streams",
        |server| {
            let mut connection = Http2::connect(server.address());
            let uploads = [1, 3, 5].map(upload);
            connection
                .send(&uploads.concat())
                .expect("a fresh connection");
            assert_eq!(connection.outcome(5), Outcome::Reset(REFUSED_STREAM));
            None
        },
    ),
    row(
        "h2_header_list",
        &["--h2-header-list", "1KiB"],
        "h2_header_list",
        |server| {
            let mut connection = Http2::connect(server.address());
            let value = "y".repeat(2000);
            let headers = [&method("GET", "/hello")[..], &[("x", &value)]].concat();
            for stream in [1, 3] {
                assert_eq!(connection.ask(stream, &headers, b"").status(), Some(431));
            }
            None
        },
    ),
    row(
        "h2_stream_window",
        &["--h2-stream-window", "20000"],
        "h2_window",
        |server| {
            let mut connection = Http2::connect(server.address());
            // Both sides have seen the other's SETTINGS after an answer.
            assert_eq!(connection.get(1, "/hello").status(), Some(200));
            let data = frame(kind::DATA, 0, 3, &[b' '; 15_000]);
            let _hung_up = connection.send(&[unread(3), data.repeat(2)].concat());
            assert_eq!(connection.outcome(3), Outcome::Reset(FLOW_CONTROL_ERROR));
            None
        },
    ),
    row(
        "h2_connection_window",
        &["--h2-connection-window", "65535"],
        "h2_window",
        |server| {
            let mut connection = Http2::connect(server.address());
            assert_eq!(connection.get(1, "/hello").status(), Some(200));
            for stream in [3, 5] {
                let data = frame(kind::DATA, 0, stream, &[b' '; 15_000]);
                let _hung_up = connection.send(&[unread(stream), data.repeat(4)].concat());
            }
            assert_eq!(connection.wait_for_go_away(), Ok(FLOW_CONTROL_ERROR));
            None
        },
    ),
    row(
        "h2_max_pending_resets",
        &["--h2-max-pending-resets", "5"],
        "h2_max_pending_resets",
        |server| {
            let reset = |stream| frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
            flood(server, |stream| [upload(stream), reset(stream)].concat())
        },
    ),
    row(
        "h2_max_local_resets",
        &["--h2-max-local-resets", "5"],
        "h2_max_local_resets",
        |server| {
            let most = 0x7fff_ffff_u32.to_be_bytes();
            let update = |stream| frame(kind::WINDOW_UPDATE, 0, stream, &most);
            flood(server, |stream| [upload(stream), update(stream)].concat())
        },
    ),
    row(
        "ws_message",
        &["--ws-message", "20"],
        "ws_message",
        |server| socket(server, &ws_frame(0x82, &[0; 21])),
    ),
    row("ws_frame", &["--ws-frame", "10"], "ws_frame", |server| {
        socket(server, &ws_frame(0x82, &[0; 11]))
    }),
    row("ws_buffer", &["--ws-buffer", "10"], "ws_buffer", |server| {
        socket(server, &ws_frame(0x82, &[0; 11]))
    }),
    row(
        "ws_pong",
        &["--ws-ping", SHORT, "--ws-pong", SHORT],
        "ws_pong",
        |server| socket(server, b""),
    ),
    row("ws_idle", &["--ws-idle", SHORT], "ws_idle", |server| {
        socket(server, b"")
    }),
    Row {
        key: None,
        flags: &["--decompression"],
        reason: "content_codings",
        break_it: |server| {
            let twice = gzip(&gzip(b"[1]"));
            let answer = server.connect().ask(coded("gzip, gzip", &twice));
            assert!(answer.text().contains("max_content_codings"), "{answer:?}");
            Some(answer)
        },
    },
    Row {
        key: None,
        flags: &[],
        reason: "json_depth",
        break_it: |server| {
            // A handler that parses, and one behind a schema.
            for path in ["/echo", "/validate"] {
                let answer = server.connect().ask(post(path, &"[".repeat(1000)));
                assert_eq!(answer.json()["limit"], "json_depth", "{path}: {answer:?}");
            }
            None
        },
    },
];

/// Settings of limits that refuse nothing: what they bound waits or is sent.
const WITHOUT_REFUSAL: [&str; 3] = ["sse_queue", "sse_keep_alive", "ws_ping"];
/// Broken by `failed_handshakes_are_counted`, over TLS; in `core/tests/sse.rs`:
/// the demo's events wait with their client; by the bodies of many at once in
/// `overload.rs`, and by those in drops in `slow_clients.rs`.
const ELSEWHERE: [(&str, &str); 4] = [
    ("body_memory", "body_memory"),
    ("body_rate", "body_rate"),
    ("timeout_tls", "tls_handshake_timeout"),
    ("sse_lag", "sse_lag"),
];
/// Reasons of limits that only Python applications have: the tests of Python
/// break them.
const OF_PYTHON: [&str; 1] = ["thread_queue"];
/// Reasons that are rules or policies and no limits.
const RULES: [&str; 7] = [
    "bad_request",
    "tls_handshake",
    "h2_protocol",
    "expectation",
    "host",
    "rate_limit",
    "ws_protocol",
];

/// A setting (RFC 9113 §6.5.2) and codes of errors (§7).
const INITIAL_WINDOW_SIZE: u8 = 4;
const FLOW_CONTROL_ERROR: u32 = 3;
/// First byte of a Close frame.
const CLOSE: u8 = 0x88;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Sends a request that may be unfinished; the answer, if one comes.
fn ask(server: &Server, request: &str) -> Option<Response> {
    let mut client = server.connect();
    client.send(request);
    client.read().ok()
}

fn form(server: &Server, body: &str) -> Option<Response> {
    let kind = "application/x-www-form-urlencoded";
    ask(server, &with_type(kind, body))
}

fn multipart(server: &Server, disposition: &str, data: &str) -> Option<Response> {
    let body = format!(
        "--XX\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{data}\r\n--XX--\r\n"
    );
    ask(
        server,
        &with_type("multipart/form-data; boundary=XX", &body),
    )
}

fn with_type(content_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /form HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(plain).expect("memory");
    encoder.finish().expect("memory")
}

fn coded(coding: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST /anything HTTP/1.1\r\nHost: a\r\nContent-Encoding: {coding}\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// A request whose handler waits for the rest of its body.
fn upload(stream: u32) -> Vec<u8> {
    let block = hpack::encode(&method("POST", "/echo"));
    frame(kind::HEADERS, flag::END_HEADERS, stream, &block)
}

/// A request whose handler never reads the body, and does not end.
fn unread(stream: u32) -> Vec<u8> {
    let block = hpack::encode(&method("GET", "/events?interval_ms=60000"));
    frame(kind::HEADERS, flag::END_HEADERS, stream, &block)
}

/// A client that takes no byte of any answer.
fn without_window(server: &Server) -> Http2 {
    let mut connection = Http2::connect(server.address());
    let settings = frame(kind::SETTINGS, 0, 0, &[0, INITIAL_WINDOW_SIZE, 0, 0, 0, 0]);
    connection.send(&settings).expect("a fresh connection");
    connection
}

/// Two hundred streams of the same frames, which end the connection.
fn flood(server: &Server, frames: impl Fn(u32) -> Vec<u8>) -> Option<Response> {
    let mut connection = Http2::connect(server.address());
    let all: Vec<u8> = (0..200).flat_map(|index| frames(2 * index + 1)).collect();
    let _hung_up = connection.send(&all);
    let (go_away, _) = connection.read_to_end();
    assert!(
        matches!(go_away, None | Some(ENHANCE_YOUR_CALM)),
        "{go_away:?}"
    );
    None
}

/// Opens a WebSocket, sends, and waits until it is closed.
fn socket(server: &Server, bytes: &[u8]) -> Option<Response> {
    let mut client = server.connect();
    upgrade(&mut client, "/ws");
    client.send(bytes);
    // The server pings first where it waits for a pong.
    while read_frame(&mut client).0 != CLOSE {}
    None
}

fn count(page: &str, reason: &str) -> u64 {
    let series = format!("justapi_rejected_total{{reason=\"{reason}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&series));
    let line = line.unwrap_or_else(|| panic!("no {series} in {page}"));
    line.parse().expect("a whole number")
}

/// Breaks the limit of `row`, and waits until it is counted.
fn check(row: &Row) -> Result<(), String> {
    let server = Server::start(row.flags);
    let before = count(&server.get("/metrics").text(), row.reason);
    if before != 0 {
        return Err(format!("{before} at the start"));
    }
    let answer = (row.break_it)(&server);
    let start = Instant::now();
    loop {
        let page = server.get("/metrics");
        let text = page.text();
        // One that refuses connections may refuse this one too.
        if page.status == 200 && count(&text, row.reason) > 0 {
            break;
        }
        if start.elapsed() > PATIENCE {
            let counts = text.lines().filter(|line| line.contains("rejected_total{"));
            let counts: Vec<_> = counts.filter(|line| !line.ends_with(" 0")).collect();
            return Err(format!("not counted, only {counts:?}"));
        }
    }
    if let (Some(answer), Some(key)) = (answer, row.key) {
        let due = format!("server.limits.{key}");
        if !answer.text().contains(&due) {
            return Err(format!("the answer does not name {due}: {}", answer.text()));
        }
    }
    server.answers_within(PATIENCE)
}

#[test]
fn each_limit_is_broken_and_counted_under_its_own_reason() {
    let mut failures = Failures::default();
    for rows in ROWS.chunks(8) {
        let results: Vec<_> = std::thread::scope(|scope| {
            let checks: Vec<_> = rows.iter().map(|row| scope.spawn(|| check(row))).collect();
            let join = |check: std::thread::ScopedJoinHandle<'_, _>| match check.join() {
                Ok(result) => result,
                Err(_) => Err("it panicked".to_owned()),
            };
            checks.into_iter().map(join).collect()
        });
        for (row, result) in rows.iter().zip(results) {
            failures.case(row.reason, result);
        }
    }
    failures.finish();
}

/// The table is complete: no limit of the configuration and no reason of the
/// metrics is without its row.
#[test]
fn every_limit_has_its_key_its_flag_and_its_row() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_justapi"))
            .args(arguments)
            .output()
            .expect("the built binary starts");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let shown: serde_json::Value =
        serde_json::from_str(&run(&["config", "show", "--json"])).expect("JSON");
    let text = shown.to_string();
    let keys: BTreeSet<&str> = text
        .split("\"server.limits.")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let elsewhere = ELSEWHERE.iter().map(|(key, _)| *key);
    let known: BTreeSet<&str> = ROWS
        .iter()
        .filter_map(|row| row.key)
        .chain(WITHOUT_REFUSAL)
        .chain(elsewhere)
        .collect();
    assert_eq!(known, keys);
    let help = run(&["serve", "--help"]);
    let is_helped = |flag: &str| {
        let mut words = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
        assert!(words.any(|word| word == flag), "{flag} is not in the help");
    };
    for row in ROWS.iter().filter(|row| row.key.is_some()) {
        let flags = row.flags.iter().filter(|flag| flag.starts_with("--"));
        for flag in flags {
            is_helped(flag);
        }
    }
    for flag in [
        "--graceful",
        "--limit-body-memory",
        "--limit-body-rate",
        "--timeout-tls",
        "--sse-lag",
        "--sse-queue",
        "--ws-ping",
    ] {
        is_helped(flag);
    }

    let page = Server::start(&[]).get("/metrics").text();
    let reasons: BTreeSet<&str> = page
        .split("justapi_rejected_total{reason=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let elsewhere = ELSEWHERE.iter().map(|(_, reason)| *reason);
    let known: BTreeSet<&str> = ROWS
        .iter()
        .map(|row| row.reason)
        .chain(RULES)
        .chain(OF_PYTHON)
        .chain(elsewhere)
        .collect();
    assert_eq!(known, reasons);
}
