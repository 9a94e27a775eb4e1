//! HTTP/2 in cleartext with prior knowledge (RFC 9113), by hand-made frames.
//!
//! Valid clients are served; a request that HTTP/1 would refuse, or a frame
//! against the protocol, never reaches a handler.

use std::time::{Duration, Instant};

use crate::support::Failures;
use crate::support::client::{Client, End};
use crate::support::hpack;
use crate::support::http2::{Http2, Outcome, PREFACE, flag, frame, get, kind, method, request};
use crate::support::server::Server;

const END: u8 = flag::END_STREAM | flag::END_HEADERS;

#[test]
fn get_post_and_head_are_answered() {
    let server = Server::start(&[]);
    let mut connection = Http2::connect(server.address());
    let hello = connection.get(1, "/hello");
    assert_eq!(hello.status(), Some(200), "{hello:?}");
    assert_eq!(hello.text(), server.get("/hello").text());
    let echo = connection.ask(3, &method("POST", "/echo"), b"{\"a\":1}");
    assert_eq!(
        (echo.status(), echo.text().replace(' ', "")),
        (Some(200), "{\"a\":1}".to_owned())
    );
    let head = connection.ask(5, &method("HEAD", "/hello"), b"");
    assert_eq!((head.status(), head.text()), (Some(200), String::new()));
    assert_eq!(
        head.header("content-length"),
        hello.header("content-length")
    );
    let missing = connection.get(7, "/nowhere");
    assert_eq!(missing.status(), Some(404));
    assert_eq!(
        missing.header("content-type"),
        Some("application/problem+json")
    );
    let wrong = connection.ask(9, &method("DELETE", "/hello"), b"");
    assert_eq!(wrong.status(), Some(405));
    assert!(wrong.header("allow").is_some());
    let large = connection.ask(11, &method("POST", "/anything"), &vec![b'x'; 60_000]);
    assert!(
        large
            .text()
            .replace(' ', "")
            .contains("\"body_length\":60000"),
        "{large:?}"
    );
}

#[test]
fn connection_headers_are_not_sent() {
    let server = Server::start(&[]);
    let mut connection = Http2::connect(server.address());
    for (stream, path) in [(1, "/hello"), (3, "/nowhere"), (5, "/metrics")] {
        let outcome = connection.get(stream, path);
        for name in ["connection", "keep-alive", "transfer-encoding", "upgrade"] {
            assert_eq!(outcome.header(name), None, "{path}");
        }
    }
}

#[test]
fn streams_are_answered_concurrently() {
    let server = Server::start(&[]);
    let mut connection = Http2::connect(server.address());
    // Stream 1 stays open: its body is not there yet.
    let head = hpack::encode(&method("POST", "/anything/1"));
    connection
        .send(&frame(kind::HEADERS, flag::END_HEADERS, 1, &head))
        .unwrap();
    connection
        .send(&request(3, &get("/anything/3"), b""))
        .unwrap();
    connection
        .send(&request(5, &get("/anything/5"), b""))
        .unwrap();
    assert!(connection.outcome(3).text().contains("/anything/3"));
    assert!(connection.outcome(5).text().contains("/anything/5"));
    connection
        .send(&frame(kind::DATA, flag::END_STREAM, 1, b"abc"))
        .unwrap();
    assert!(connection.outcome(1).text().contains("/anything/1"));
}

#[test]
fn a_preface_in_single_bytes_is_read() {
    let server = Server::start(&[]);
    let mut client = Client::connect(server.address());
    for byte in PREFACE {
        client.send([*byte]);
    }
    let mut connection = Http2::after_preface(client.stream().try_clone().unwrap());
    connection.send(&frame(kind::SETTINGS, 0, 0, &[])).unwrap();
    assert_eq!(connection.get(1, "/hello").status(), Some(200));
}

/// The first bytes of the preface are those of an HTTP/1 method.
#[test]
fn methods_that_begin_like_the_preface_are_http_1() {
    let server = Server::start(&[]);
    for name in ["P", "PR", "PRI", "PRIX", "PATCH", "PUT", "PROPFIND"] {
        let mut client = server.connect();
        for byte in format!("{name} /anything HTTP/1.1\r\nHost: a\r\n\r\n").bytes() {
            client.send([byte]);
        }
        let response = client
            .read()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(response.status, 200, "{name}");
    }
}

#[test]
fn part_of_a_preface_is_closed_at_the_header_deadline() {
    let server = Server::start(&["--timeout-header", "300ms"]);
    let settings = frame(kind::SETTINGS, 0, 0, &[]);
    for length in [1, 3, 14, 18, 23, 24, 24 + settings.len()] {
        let start = Instant::now();
        let mut client = server.connect();
        client.send(&[PREFACE, &settings].concat()[..length]);
        if length <= 24 {
            let (_, end) = client.read_to_end();
            assert_eq!(end, End::Closed, "{length} bytes");
            let elapsed = start.elapsed();
            assert!(
                elapsed < Duration::from_millis(1500),
                "{length} bytes: {elapsed:?}"
            );
        } else {
            let stream = client.stream().try_clone().unwrap();
            assert_eq!(
                Http2::after_preface(stream).get(1, "/hello").status(),
                Some(200)
            );
        }
    }
}

#[test]
fn an_idle_connection_is_closed_at_the_idle_deadline() {
    let server = Server::start(&["--timeout-idle", "300ms", "--timeout-header", "300ms"]);
    for num_requests in [0, 1] {
        let start = Instant::now();
        let mut connection = Http2::connect(server.address());
        if num_requests == 1 {
            assert_eq!(connection.get(1, "/hello").status(), Some(200));
        }
        let (_, end) = connection.read_to_end();
        let elapsed = start.elapsed();
        assert_ne!(end, End::StillOpen, "{num_requests} requests, {elapsed:?}");
        assert!(
            elapsed < Duration::from_secs(2),
            "{num_requests} requests, {elapsed:?}"
        );
    }
}

#[test]
fn a_broken_preface_ends_the_connection() {
    let server = Server::start(&[]);
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX",
        b"PRI * HTTP/2.0\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = server.connect();
        client.send(bytes);
        client.send(frame(kind::SETTINGS, 0, 0, &[]));
        let (_, end) = client.read_to_end();
        assert_ne!(end, End::StillOpen, "{}", bytes.escape_ascii());
    }
}

/// A request that no HTTP/1 request could be: 400, or the stream is reset.
fn check_refused(server: &Server, headers: &[(&str, &str)]) -> Result<(), String> {
    let mut connection = Http2::connect(server.address());
    match connection.ask(1, headers, b"") {
        Outcome::Response {
            status: 400,
            headers,
            ..
        } => {
            let is_problem = headers
                .iter()
                .any(|(_, value)| value == "application/problem+json");
            if is_problem {
                Ok(())
            } else {
                Err(format!("400 without a problem: {headers:?}"))
            }
        }
        Outcome::Reset(1) | Outcome::GoAway(1) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

const METHOD: (&str, &str) = (":method", "GET");
const SCHEME: (&str, &str) = (":scheme", "http");
const AUTHORITY: (&str, &str) = (":authority", "localhost");
const PATH: (&str, &str) = (":path", "/anything");

#[test]
fn malformed_requests_are_refused() {
    let server = Server::start(&[]);
    let base = [METHOD, SCHEME, AUTHORITY, PATH];
    let with = |extra: (&'static str, &'static str)| [&base[..], &[extra]].concat();
    let target = |path: &'static str| vec![METHOD, SCHEME, AUTHORITY, (":path", path)];
    let authority = |name: &'static str| vec![METHOD, SCHEME, (":authority", name), PATH];
    let mut failures = Failures::default();
    for (name, headers) in [
        ("no authority, no host", vec![METHOD, SCHEME, PATH]),
        ("empty authority", authority("")),
        ("userinfo", authority("user@localhost")),
        ("path in authority", authority("localhost/x")),
        ("space in authority", authority("local host")),
        ("port of letters", authority("localhost:http")),
        ("port over 65535", authority("localhost:65536")),
        ("open bracket", authority("[::1")),
        ("another host", with(("host", "other.example"))),
        (
            "two hosts",
            [&base[..], &[("host", "localhost"), ("host", "localhost")]].concat(),
        ),
        (
            "host with userinfo only",
            vec![METHOD, SCHEME, PATH, ("host", "a@b")],
        ),
        ("no method", vec![SCHEME, AUTHORITY, PATH]),
        ("no scheme", vec![METHOD, AUTHORITY, PATH]),
        ("no path", vec![METHOD, SCHEME, AUTHORITY]),
        ("empty path", target("")),
        ("path without slash", target("anything")),
        ("asterisk for GET", target("*")),
        ("non-ASCII path", target("/anything/\u{e9}")),
        ("space in path", target("/any thing")),
        ("control in path", target("/anything\u{1}")),
        ("absolute path", target("http://localhost/anything")),
        ("two paths", with((":path", "/hello"))),
        ("two methods", with((":method", "POST"))),
        ("unknown pseudo header", with((":status", "200"))),
        (
            "pseudo header last",
            vec![METHOD, SCHEME, AUTHORITY, ("x", "y"), PATH],
        ),
        ("upper-case name", with(("X-Upper", "y"))),
        ("empty name", with(("", "y"))),
        ("space in name", with(("x y", "z"))),
        ("colon in name", with(("x:y", "z"))),
        ("CR LF in value", with(("x", "a\r\nb: c"))),
        ("NUL in value", with(("x", "a\0b"))),
        ("connection", with(("connection", "close"))),
        ("keep-alive", with(("keep-alive", "timeout=5"))),
        ("proxy-connection", with(("proxy-connection", "close"))),
        ("upgrade", with(("upgrade", "h2c"))),
        ("transfer-encoding", with(("transfer-encoding", "chunked"))),
        ("te other than trailers", with(("te", "gzip"))),
        ("length without body", with(("content-length", "5"))),
        (
            "two lengths",
            [
                &base[..],
                &[("content-length", "0"), ("content-length", "0")],
            ]
            .concat(),
        ),
        ("length with a sign", with(("content-length", "+0"))),
    ] {
        failures.case(name, check_refused(&server, &headers));
    }
    failures.finish();
}

#[test]
fn connect_is_refused() {
    let server = Server::start(&[]);
    let headers = [(":method", "CONNECT"), AUTHORITY];
    let outcome = Http2::connect(server.address()).ask(1, &headers, b"");
    let is_refused = matches!(outcome.status(), Some(400 | 405));
    assert!(
        is_refused || matches!(outcome, Outcome::Reset(_)),
        "{outcome:?}"
    );
}

#[test]
fn odd_but_valid_requests_are_answered() {
    let server = Server::start(&[]);
    let base = [METHOD, SCHEME, AUTHORITY, PATH];
    let with = |extra: (&'static str, &'static str)| [&base[..], &[extra]].concat();
    let mut failures = Failures::default();
    for (name, headers) in [
        ("host equal to authority", with(("host", "localhost"))),
        (
            "host instead of authority",
            vec![METHOD, SCHEME, PATH, ("host", "localhost")],
        ),
        ("te trailers", with(("te", "trailers"))),
        ("latin-1 value", with(("x", "caf\u{e9}"))),
        ("empty value", with(("x", ""))),
        (
            "cookie crumbs",
            [&base[..], &[("cookie", "a=1"), ("cookie", "b=2")]].concat(),
        ),
        (
            "https scheme",
            vec![METHOD, (":scheme", "https"), AUTHORITY, PATH],
        ),
        (
            "order of pseudo headers",
            vec![PATH, AUTHORITY, SCHEME, METHOD],
        ),
        ("length 0", with(("content-length", "0"))),
    ] {
        let outcome = Http2::connect(server.address()).ask(1, &headers, b"");
        let is_ok = outcome.status() == Some(200);
        failures.case(
            name,
            if is_ok {
                Ok(())
            } else {
                Err(format!("{outcome:?}"))
            },
        );
    }
    let star = [(":method", "OPTIONS"), SCHEME, AUTHORITY, (":path", "*")];
    let outcome = Http2::connect(server.address()).ask(1, &star, b"");
    assert_eq!(outcome.status(), Some(204), "{outcome:?}");
    failures.finish();
}

#[test]
fn a_body_that_differs_from_its_length_is_refused() {
    let server = Server::start(&[]);
    let headers = [
        (":method", "POST"),
        SCHEME,
        AUTHORITY,
        PATH,
        ("content-length", "5"),
    ];
    for body in [&b"abc"[..], b"abcdefg"] {
        let outcome = Http2::connect(server.address()).ask(1, &headers, body);
        let is_refused = matches!(outcome.status(), None | Some(400));
        assert!(is_refused, "{} bytes: {outcome:?}", body.len());
    }
}

#[test]
fn limits_hold_over_http_2() {
    let server = Server::start(&[]);
    let headers = [
        (":method", "POST"),
        SCHEME,
        AUTHORITY,
        (":path", "/echo"),
        ("content-length", "3000000"),
    ];
    let mut connection = Http2::connect(server.address());
    let block = hpack::encode(&headers);
    connection
        .send(&frame(kind::HEADERS, flag::END_HEADERS, 1, &block))
        .unwrap();
    assert_eq!(connection.outcome(1).status(), Some(413));
    assert_eq!(connection.get(3, "/hello").status(), Some(200));
    // h2 ends a stream whose list is over its limit, with or without 431.
    let long = "y".repeat(17 * 1024);
    let headers = [METHOD, SCHEME, AUTHORITY, PATH, ("x", &long)];
    let block = hpack::encode(&headers);
    let (start, rest) = block.split_at(16 * 1024);
    let first = frame(kind::HEADERS, flag::END_STREAM, 5, start);
    connection.send(&first).unwrap();
    connection
        .send(&frame(kind::CONTINUATION, flag::END_HEADERS, 5, rest))
        .unwrap();
    let outcome = connection.outcome(5);
    assert!(matches!(outcome.status(), None | Some(431)), "{outcome:?}");
    assert_ne!(outcome, Outcome::Ended(End::StillOpen));
}

#[test]
fn a_stalled_body_is_408_over_http_2() {
    let server = Server::start(&["--timeout-body", "300ms"]);
    let mut connection = Http2::connect(server.address());
    let start = Instant::now();
    let block = hpack::encode(&method("POST", "/echo"));
    connection
        .send(&frame(kind::HEADERS, flag::END_HEADERS, 1, &block))
        .unwrap();
    connection.send(&frame(kind::DATA, 0, 1, b"[1")).unwrap();
    let outcome = connection.outcome(1);
    assert!(matches!(outcome.status(), Some(408)), "{outcome:?}");
    assert!(start.elapsed() < Duration::from_millis(1500));
    assert_eq!(connection.get(3, "/hello").status(), Some(200));
}

#[test]
fn priorities_and_padding_on_headers_are_accepted() {
    let server = Server::start(&[]);
    let mut connection = Http2::connect(server.address());
    let block = hpack::encode(&get("/hello"));
    let priority = [&[0, 0, 0, 0, 15][..], &block].concat();
    connection
        .send(&frame(kind::HEADERS, END | flag::PRIORITY, 1, &priority))
        .unwrap();
    assert_eq!(connection.outcome(1).status(), Some(200));
    let padded = [&[4][..], &block, &[0; 4]].concat();
    connection
        .send(&frame(kind::HEADERS, END | flag::PADDED, 3, &padded))
        .unwrap();
    assert_eq!(connection.outcome(3).status(), Some(200));
    let (start, rest) = block.split_at(10);
    connection
        .send(&frame(kind::HEADERS, flag::END_STREAM, 5, start))
        .unwrap();
    connection
        .send(&frame(kind::CONTINUATION, flag::END_HEADERS, 5, rest))
        .unwrap();
    assert_eq!(connection.outcome(5).status(), Some(200));
}

#[test]
fn frames_against_the_protocol_end_the_connection() {
    let block = hpack::encode(&get("/hello"));
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    for (name, bytes) in [
        ("DATA on stream 0", frame(kind::DATA, 0, 0, b"x")),
        ("HEADERS on stream 0", frame(kind::HEADERS, END, 0, &block)),
        (
            "HEADERS on an even stream",
            frame(kind::HEADERS, END, 2, &block),
        ),
        ("DATA on an idle stream", frame(kind::DATA, 0, 9, b"x")),
        ("SETTINGS on a stream", frame(kind::SETTINGS, 0, 1, &[])),
        ("SETTINGS of 5 bytes", frame(kind::SETTINGS, 0, 0, &[0; 5])),
        ("PING of 7 bytes", frame(kind::PING, 0, 0, &[0; 7])),
        ("PING on a stream", frame(kind::PING, 0, 1, &[0; 8])),
        (
            "zero WINDOW_UPDATE of the connection",
            frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]),
        ),
        (
            "lone CONTINUATION",
            frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block),
        ),
        (
            "frame of 17 KiB",
            frame(kind::DATA, 0, 1, &vec![0; 17 * 1024]),
        ),
        (
            "broken header block",
            frame(kind::HEADERS, END, 1, &[0xff; 8]),
        ),
        (
            "RST_STREAM of an idle stream",
            frame(kind::RST_STREAM, 0, 9, &[0; 4]),
        ),
    ] {
        let mut connection = Http2::connect(server.address());
        let _hung_up = connection.send(&bytes);
        let (go_away, end) = connection.read_to_end();
        let is_ended = end != End::StillOpen && go_away != Some(0);
        let result = format!("GOAWAY {go_away:?}, {end:?}");
        failures.case(name, if is_ended { Ok(()) } else { Err(result) });
    }
    failures.finish();
}
