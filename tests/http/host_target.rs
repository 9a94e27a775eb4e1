//! Which resource is meant: request target and Host, RFC 9112 §3, RFC 3986.
//!
//! Nothing downstream has to distrust a target or Host that was let through.

use crate::support::Failures;
use crate::support::exchange::{answered, refused};
use crate::support::server::Server;

const OK: u16 = 200;

fn with_host_lines(lines: &str) -> String {
    format!("GET /anything HTTP/1.1\r\n{lines}\r\n")
}

fn with_target(method: &str, target: &[u8]) -> Vec<u8> {
    let line = [method.as_bytes(), b" ", target, b" HTTP/1.1\r\n"].concat();
    [&line[..], b"Host: localhost\r\n\r\n"].concat()
}

#[test]
fn a_wrong_host_is_refused() {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    for lines in [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nX: y\r\nhost: b\r\n",
        "Host: user@a\r\n",
        "Host: user:pass@a\r\n",
        "Host: a/b\r\n",
        "Host: a/b?x\r\n",
        "Host: a?x\r\n",
        "Host: a#x\r\n",
        "Host: a\\b\r\n",
        "Host: a b\r\n",
        "Host: a\tb\r\n",
        "Host: a, b\r\n",
        "Host: http://a\r\n",
        "Host: [::1\r\n",
        "Host: ::1]\r\n",
        "Host: ::1\r\n",
        "Host: []\r\n",
        "Host: [::1]x\r\n",
        "Host: [::g]\r\n",
        "Host: [1:2:3]\r\n",
        "Host: [::1]:80:80\r\n",
        "Host: a:0x50\r\n",
        "Host: a:+80\r\n",
        "Host: a:80a\r\n",
        "Host: a:65536\r\n",
        "Host: a:99999999999999999999\r\n",
        "Host: a:80:80\r\n",
        "Host: a%zz\r\n",
        "Host: a<b>\r\n",
        "Host: a\"b\r\n",
        "Host: a^b\r\n",
        "Host: caf\u{e9}\r\n",
        "Host : a\r\n",
    ] {
        let bytes = with_host_lines(lines);
        failures.case(
            lines.trim_end(),
            refused(server.address(), bytes.as_bytes(), &[400]),
        );
    }
    let old = b"GET /anything HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n";
    failures.case("two in HTTP/1.0", refused(server.address(), old, &[400]));
    let old = b"GET /anything HTTP/1.0\r\nHost: a@b\r\n\r\n";
    failures.case(
        "userinfo in HTTP/1.0",
        refused(server.address(), old, &[400]),
    );
    failures.finish();
}

#[test]
fn every_valid_host_is_served() {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    for host in [
        "localhost",
        "localhost:8000",
        "LOCALHOST",
        "example.com",
        "example.com.",
        "a_b.example",
        "xn--caf-dma.example",
        "127.0.0.1",
        "127.0.0.1:65535",
        "[::1]",
        "[::1]:80",
        "[2001:db8::1]",
        "[::ffff:127.0.0.1]",
        "a:0",
        "a:",
        "a%20b",
        "a!$&'()*+,;=~-.b",
    ] {
        let bytes = with_host_lines(&format!("Host: {host}\r\n"));
        // RFC 9110 allows list commas and an empty port in the grammar.
        failures.case(
            host,
            answered(server.address(), bytes.as_bytes(), &[(OK, "")]),
        );
    }
    failures.finish();
}

#[test]
fn a_wrong_target_is_refused() {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    for (method, target) in [
        ("GET", &b"hello"[..]),
        ("GET", b"hello/"),
        ("GET", b"?a"),
        ("GET", b"*"),
        ("POST", b"*"),
        ("GET", b"localhost:80"),
        ("OPTIONS", b"*a"),
        ("OPTIONS", b"*/"),
        ("GET", b"/hello#a"),
        ("GET", b"/hello?a#b"),
        ("GET", b"#"),
        ("GET", b"/caf\xc3\xa9"),
        ("GET", b"/hello?a=\xc3\xa9"),
        ("GET", b"/\x80"),
        ("GET", b"/hello\x01"),
        ("GET", b"/hello\0"),
        ("GET", b"/hello\x7f"),
        ("GET", b"/hel\tlo"),
        ("GET", b"ftp://localhost/hello"),
        ("GET", b"file:///hello"),
        ("GET", b"javascript:alert(1)"),
        ("GET", b"http:"),
        ("GET", b"http:/hello"),
        ("GET", b"http://"),
        ("GET", b"http:///hello"),
        ("GET", b"http://user@localhost/hello"),
        ("GET", b"http://localhost:0x50/hello"),
        ("GET", b"http://localhost:65536/hello"),
        ("GET", b"http://[::1/hello"),
        ("GET", b"http://localhost/hello#a"),
        ("GET", b"/anything/%FF"),
        ("GET", b"/anything/%zz"),
        ("GET", b"/anything/%"),
        ("GET", b"/anything/%2"),
        ("GET", b"/anything/%00"),
    ] {
        let name = format!("{method} {}", target.escape_ascii());
        let bytes = with_target(method, target);
        failures.case(&name, percent_or_framing(&server, target, &bytes));
    }
    failures.finish();
}

/// The parser behind the gate must find no fault of its own: its refusal would
/// be empty and uncounted.
#[test]
fn a_target_that_the_parser_refuses_is_refused_before() {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    let num_before = num_bad_requests(&server);
    let targets = ["/a<b", "/a>b", "/a`b", "/?<", "/?\"", "http://%41/x"];
    for target in targets {
        let bytes = with_target("GET", target.as_bytes());
        failures.case(target, refused(server.address(), &bytes, &[400]));
    }
    failures.finish();
    assert_eq!(num_bad_requests(&server) - num_before, targets.len());
}

fn num_bad_requests(server: &Server) -> usize {
    let metrics = server.get("/metrics").text();
    let name = "justapi_rejected_total{reason=\"bad_request\"} ";
    let value = metrics.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.parse().ok()).expect(name)
}

#[test]
fn every_byte_in_a_target_is_served_or_refused_by_a_problem() {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    for byte in b'!'..=b'~' {
        for prefix in [
            &b"/anything/a"[..],
            b"/anything?a",
            b"http://localhost/anything/a",
        ] {
            let target = [prefix, &[byte], b"b"].concat();
            let name = target.escape_ascii().to_string();
            failures.case(&name, served_or_problem(&server, &target));
        }
    }
    failures.finish();
}

fn served_or_problem(server: &Server, target: &[u8]) -> Result<(), String> {
    let mut client = server.connect();
    client.send(with_target("GET", target));
    let response = client.read().map_err(|error| error.to_string())?;
    let is_problem = response.header("content-type") == Some("application/problem+json");
    match response.status {
        OK => Ok(()),
        400 if is_problem => Ok(()),
        _ => Err(format!("{response:?}")),
    }
}

/// A bad escape is one request's fault: 400, and the connection may go on.
fn percent_or_framing(server: &Server, target: &[u8], bytes: &[u8]) -> Result<(), String> {
    let closed = refused(server.address(), bytes, &[400]);
    if closed.is_ok() || !target.contains(&b'%') {
        return closed;
    }
    answered(server.address(), bytes, &[(400, "")])
}

#[test]
fn every_valid_target_is_served() {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    for (method, target, status, needle) in [
        ("GET", "/hello", OK, ""),
        ("GET", "/hello?", OK, ""),
        ("GET", "/anything?a=b&c=d?e/f:@", OK, "a=b&c=d?e/f:@"),
        ("GET", "/anything/a//b", OK, "/anything/a//b"),
        ("GET", "/anything/a%2Fb", OK, "/anything/a%2Fb"),
        ("GET", "/anything/a;b=1,2~!$&'()*+", OK, "a;b=1,2"),
        ("GET", "/anything/caf%C3%A9", OK, "/anything/caf"),
        ("GET", "/anything/..%2F..", OK, ""),
        ("GET", "http://localhost/anything/x?y", OK, "/anything/x"),
        ("GET", "HTTP://localhost/anything/x", OK, "/anything/x"),
        ("GET", "http://localhost:80/anything/x", OK, "/anything/x"),
        ("GET", "https://localhost/anything/x", OK, "/anything/x"),
        ("GET", "http://other.example/anything/x", OK, "/anything/x"),
        ("OPTIONS", "*", 204, ""),
        ("GET", "/", OK, ""),
        ("GET", "//", 404, ""),
        ("GET", "//hello", 404, ""),
        ("GET", "/hello/", 404, ""),
        ("GET", "/Hello", 404, ""),
    ] {
        let name = format!("{method} {target}");
        let bytes = with_target(method, target.as_bytes());
        failures.case(
            &name,
            answered(server.address(), &bytes, &[(status, needle)]),
        );
    }
    failures.finish();
}

/// RFC 9112 §3.2.2: an absolute target's authority replaces Host.
#[test]
fn the_authority_of_an_absolute_target_wins() {
    let server = Server::start(&[]);
    let bytes = "GET http://right.example:81/anything HTTP/1.1\r\nHost: wrong.example\r\n\r\n";
    let response = server.connect().ask(bytes);
    assert_eq!(response.status, OK);
    assert!(
        !response.text().contains("wrong.example"),
        "{}",
        response.text()
    );
    assert!(
        response.text().contains("right.example:81"),
        "{}",
        response.text()
    );
    let bytes = "GET http://right.example/anything HTTP/1.1\r\nHost: a@b\r\n\r\n";
    refused(server.address(), bytes.as_bytes(), &[400]).unwrap();
    let bytes = "GET http://right.example/anything HTTP/1.1\r\n\r\n";
    refused(server.address(), bytes.as_bytes(), &[400]).unwrap();
}

#[test]
fn dot_segments_do_not_reach_another_route() {
    let server = Server::start(&[]);
    for path in [
        "/nowhere/../hello",
        "/nowhere/%2e%2e/hello",
        "/./hello",
        "/anything/../hello",
    ] {
        let response = server.get(path);
        assert!(
            !response.text().contains("hello") || response.text().contains("anything"),
            "{path} became another route: {response:?}"
        );
    }
}
