//! `/metrics`: the Prometheus text format, with a fixed set of series.
//!
//! No client can make a new series: paths, methods and hosts that nobody
//! registered share one label value.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::certificates::{Authority, handshake};
use crate::support::client::{Client, Response, get, post};
use crate::support::eventually;
use crate::support::http2::{Http2, frame, kind};
use crate::support::server::Server;

type Series = BTreeMap<String, f64>;

/// Series with their values; panics where the text format is broken.
fn scrape(server: &Server) -> Series {
    parse(&server.get("/metrics"))
}

fn parse(response: &Response) -> Series {
    assert_eq!(response.status, 200);
    let content_type = response
        .header("content-type")
        .expect("Content-Type is there");
    let is_known = content_type.starts_with("text/plain")
        || content_type.starts_with("application/openmetrics-text");
    assert!(is_known, "{content_type}");
    let text = response.text();
    assert!(text.ends_with('\n'));
    let mut series = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(comment) = line.strip_prefix("# ") {
            let word = comment.split(' ').next();
            assert!(
                matches!(word, Some("HELP" | "TYPE" | "UNIT" | "EOF")),
                "{line}"
            );
            continue;
        }
        let (name, value) = line.rsplit_once(' ').expect(line);
        let value = value
            .parse()
            .unwrap_or_else(|_| panic!("no number in {line}"));
        assert!(
            series.insert(name.to_owned(), value).is_none(),
            "twice: {line}"
        );
        let bare = name.split('{').next().unwrap_or_default();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        assert!(!bare.is_empty() && bare.chars().all(is_name), "{line}");
        assert!(bare.len() == name.len() || name.ends_with('}'), "{line}");
    }
    series
}

fn rejected(series: &Series, reason: &str) -> f64 {
    let name = format!("justapi_rejected_total{{reason=\"{reason}\"}}");
    *series
        .get(&name)
        .unwrap_or_else(|| panic!("no {name} in {series:#?}"))
}

#[test]
fn every_metric_has_a_type_and_a_help() {
    let server = Server::start(&[]);
    let text = server.get("/metrics").text();
    let described = |word: &str| -> Vec<String> {
        let prefix = format!("# {word} ");
        let names = text.lines().filter_map(|line| line.strip_prefix(&prefix));
        names
            .filter_map(|rest| rest.split(' ').next())
            .map(str::to_owned)
            .collect()
    };
    let (types, helps) = (described("TYPE"), described("HELP"));
    assert!(!types.is_empty());
    assert_eq!(types, helps);
    for name in scrape(&server).keys() {
        assert!(
            types.iter().any(|base| name.starts_with(base.as_str())),
            "{name} has no type"
        );
    }
}

#[test]
fn requests_are_counted_by_route() {
    let server = Server::start(&[]);
    let total = |series: &Series| -> f64 {
        let is_hello =
            |name: &str| name.starts_with("justapi_requests_total{") && name.contains("\"/hello\"");
        series
            .iter()
            .filter(|(name, _)| is_hello(name))
            .map(|(_, value)| value)
            .sum()
    };
    let before = total(&scrape(&server));
    for _ in 0..5 {
        assert_eq!(server.get("/hello").status, 200);
    }
    let after = total(&scrape(&server));
    assert!(
        (after - before - 5.0).abs() < 0.5,
        "{before} to {after}: {:#?}",
        scrape(&server)
    );
}

#[test]
fn bytes_are_counted_as_they_pass() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("large"), vec![b'x'; 300_000]).expect("own folder");
    let route = format!("/files={}", folder.path().display());
    // One lane, so that what it has written is counted before it reads the next request.
    let server = Server::start(&["--lanes", "1", "--static", &route]);
    let (mut received, mut sent) = (0, 0);
    let mut exchange = |request: &str| {
        let mut client = server.connect();
        client.send(request);
        client.finish_writing();
        let (bytes, _) = client.read_to_end();
        received += request.len();
        let before = sent;
        sent += bytes.len();
        (
            String::from_utf8_lossy(&bytes).into_owned(),
            received,
            before,
        )
    };
    for request in [
        get("/hello"),
        post("/echo", "{\"a\": [1, 2]}"),
        get("/files/large"),
        get("/nothing/here"),
    ] {
        exchange(&request);
        // The request for the page has come, and its answer has not left.
        let (page, received, sent) = exchange(&get("/metrics"));
        for (name, expected) in [("received", received), ("sent", sent)] {
            let line = format!("\njustapi_{name}_bytes_total {expected}\n");
            assert!(page.contains(&line), "{request}: no {line} in {page}");
        }
    }
    // Frames of HTTP/2, their heads included.
    let before = scrape(&server);
    let mut client = Http2::connect(server.address());
    client.get(1, "/hello");
    let after = scrape(&server);
    let grew = |name: &str| after[name] - before[name];
    let looks = get("/metrics").len() as f64;
    let received = grew("justapi_received_bytes_total") - looks;
    assert!((40.0..400.0).contains(&received), "{received}");
}

#[test]
fn each_refusal_is_counted_under_its_reason() {
    let flags = [
        "--timeout-header",
        "200ms",
        "--timeout-idle",
        "250ms",
        "--timeout-body",
        "200ms",
    ];
    let server = Server::start(&flags);
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\n";
    for (reason, request) in [
        ("bad_request", "GET /hello HTTP/1.1\r\n\r\n".to_owned()),
        ("request_line", get(&format!("/{}", "a".repeat(9000)))),
        (
            "header_bytes",
            format!("{head}X: {}\r\n\r\n", "y".repeat(40_000)),
        ),
        (
            "header_count",
            format!("{head}{}\r\n", "X: y\r\n".repeat(200)),
        ),
        ("body", format!("{head}Content-Length: 3000000\r\n\r\n")),
        ("header_timeout", "GET /hello HTTP/1.1\r\n".to_owned()),
        ("idle_timeout", get("/hello")),
        ("body_stall", format!("{head}Content-Length: 10\r\n\r\n[")),
        (
            "expectation",
            format!("{head}Expect: x\r\nContent-Length: 1\r\n\r\n1"),
        ),
    ] {
        let before = scrape(&server);
        let mut client: Client = server.connect();
        client.send(request);
        client.read_to_end();
        one_more(&before, reason, || scrape(&server));
    }
}

/// Waits until `reason` counts one more than `before`, and never two.
///
/// A client may see its connection closed before the lane has counted.
fn one_more(before: &Series, reason: &str, mut scrape: impl FnMut() -> Series) -> Series {
    let due = rejected(before, reason) + 1.0;
    let what = format!("{reason} counts {due}");
    eventually(Duration::from_secs(2), &what, || {
        let after = scrape();
        let count = rejected(&after, reason);
        assert!(count < due + 0.5, "{reason} counts {count}, due {due}");
        (count > due - 0.5).then_some(after)
    })
}

#[test]
fn http_2_errors_are_counted() {
    let server = Server::start(&[]);
    let before = scrape(&server);
    let mut connection = Http2::connect(server.address());
    let zero_increment = frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]);
    connection.send(&zero_increment).unwrap();
    connection.read_to_end();
    one_more(&before, "h2_protocol", || scrape(&server));
}

#[test]
fn refused_connections_are_counted() {
    let server = Server::start(&["--max-connections", "1"]);
    let mut held = server.connect();
    let before = parse(&held.get("/metrics"));
    server.connect().read_to_end();
    one_more(&before, "max_connections", || parse(&held.get("/metrics")));
}

#[test]
fn failed_handshakes_are_counted() {
    let authority = Authority::new();
    let (certificate, key) = authority.server_files();
    let files = [
        "--tls-cert",
        &certificate,
        "--tls-key",
        &key,
        "--timeout-tls",
        "200ms",
    ];
    let server = Server::start(&files);
    let config = authority.client(&[], None);
    let stream = handshake(server.address(), &config).expect("the handshake succeeds");
    let mut client = Client::over(stream);
    let start = parse(&client.get("/metrics"));
    let mut plain = server.connect();
    plain.send(get("/hello"));
    plain.read_to_end();
    let failed = one_more(&start, "tls_handshake", || parse(&client.get("/metrics")));
    server.connect().read_to_end();
    one_more(&failed, "tls_handshake_timeout", || {
        parse(&client.get("/metrics"))
    });
}

/// Every reason is a series from the start, at 0.
#[test]
fn all_reasons_are_there_from_the_start() {
    let server = Server::start(&[]);
    let series = scrape(&server);
    for reason in [
        "bad_request",
        "request_line",
        "header_bytes",
        "header_count",
        "body",
        "header_timeout",
        "idle_timeout",
        "body_stall",
        "body_rate",
        "body_memory",
        "write_stall",
        "write_rate",
        "tls_handshake_timeout",
        "tls_handshake",
        "request_timeout",
        "max_connections",
        "h2_protocol",
        "expectation",
        "host",
        "rate_limit",
    ] {
        assert!(rejected(&series, reason).abs() < 0.5, "{reason}");
    }
}

#[test]
fn clients_cannot_make_series() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let mut ask_all = |round: usize| {
        for path in [
            format!("/{round}"),
            format!("/anything/{round}"),
            format!("/hello?{round}"),
        ] {
            client.get(&path);
            client.ask(post(&path, "1"));
            let method = format!("M{round}");
            client.ask(format!(
                "{method} {path} HTTP/1.1\r\nHost: h{round}.example\r\nX-{round}: y\r\n\r\n"
            ));
        }
    };
    let names = || scrape(&server).into_keys().collect::<BTreeSet<_>>();
    ask_all(0);
    // The first scrape makes the series of /metrics itself.
    names();
    let before = names();
    for round in 1..300 {
        ask_all(round);
    }
    let after = names();
    let new: Vec<_> = after.difference(&before).collect();
    assert!(new.is_empty() && after.len() == before.len(), "{new:#?}");
}
