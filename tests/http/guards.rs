//! What stands before the routes: proxies, hosts, HTTPS, rates.
//!
//! A guard that refuses says so in a problem document and keeps the
//! connection; one that is off changes nothing.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::certificates::{Authority, handshake};
use crate::support::client::{Client, Response, get};
use crate::support::eventually;
use crate::support::http2::Http2;
use crate::support::server::{Server, serve};

const SOON: Duration = Duration::from_secs(5);

/// A GET with further header lines.
fn ask(server: &Server, path: &str, host: &str, lines: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n");
    server.connect().ask(request)
}

/// Client, scheme and host as a handler sees them.
fn seen(server: &Server, lines: &str) -> [Value; 3] {
    let response = ask(server, "/client", "inner.example", lines);
    assert_eq!(response.status, 200, "{response:?}");
    let json = response.json();
    ["client", "scheme", "host"].map(|name| json[name].clone())
}

fn is_problem(response: &Response, status: u16) -> bool {
    response.status == status
        && response.header("content-type") == Some("application/problem+json")
        && response.json()["status"] == status
}

fn rejected(server: &Server, reason: &str) -> String {
    let prefix = format!("justapi_rejected_total{{reason=\"{reason}\"}} ");
    let text = server.get("/metrics").text();
    let found = text.lines().find_map(|line| line.strip_prefix(&prefix));
    found.expect("every reason is a series").to_owned()
}

#[test]
fn a_listed_proxy_says_who_the_client_is() {
    let server = Server::start(&[
        "--trusted-proxy",
        "127.0.0.1",
        "--trusted-proxy",
        "10.0.0.0/8",
    ]);
    for (lines, expected) in [
        ("", ["127.0.0.1", "http", "inner.example"]),
        (
            "X-Forwarded-For: 203.0.113.7\r\n",
            ["203.0.113.7", "http", "inner.example"],
        ),
        (
            "X-Forwarded-For: 1.1.1.1, [2001:db8::7]:443, 10.0.0.9\r\nX-Forwarded-Proto: https\r\n\
             X-Forwarded-Host: a.example:8443\r\n",
            ["2001:db8::7", "https", "a.example:8443"],
        ),
        (
            "X-Forwarded-For: 203.0.113.7, nonsense\r\n",
            ["127.0.0.1", "http", "inner.example"],
        ),
        (
            "X-Forwarded-Host: a@b\r\n",
            ["127.0.0.1", "http", "inner.example"],
        ),
        (
            "Forwarded: for=203.0.113.7;proto=https\r\n",
            ["127.0.0.1", "http", "inner.example"],
        ),
    ] {
        assert_eq!(
            seen(&server, lines),
            expected.map(|text| json!(text)),
            "{lines}"
        );
    }
}

#[test]
fn rfc_7239_is_read_where_the_proxies_write_it() {
    let flags = [
        "--trusted-proxy",
        "127.0.0.0/8",
        "--forwarded-header",
        "forwarded",
    ];
    let server = Server::start(&flags);
    let lines = "Forwarded: for=\"[2001:db8::7]\";proto=https;host=a.example\r\n\
                 X-Forwarded-For: 203.0.113.7\r\n";
    assert_eq!(
        seen(&server, lines),
        ["2001:db8::7", "https", "a.example"].map(|t| json!(t))
    );
}

#[test]
fn nobody_else_is_believed() {
    for flags in [&[][..], &["--trusted-proxy", "10.0.0.0/8"]] {
        let server = Server::start(flags);
        let lines = "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\n\
                     X-Forwarded-Host: evil.example\r\nForwarded: for=203.0.113.7\r\n";
        let expected = ["127.0.0.1", "http", "inner.example"].map(|text| json!(text));
        assert_eq!(seen(&server, lines), expected);
    }
}

#[test]
fn the_access_log_names_the_client_and_not_the_proxy() {
    let server = Server::start(&["--trusted-proxy", "127.0.0.1", "--access-log", "json"]);
    ask(&server, "/hello", "a", "X-Forwarded-For: 203.0.113.7\r\n");
    let line = server.wait_for_line("\"path\":\"/hello\"");
    let entry: Value = serde_json::from_str(&line).expect("the line is JSON");
    assert_eq!(entry["peer"], "203.0.113.7");
}

/// A page on `evil.example`, rebound to 127.0.0.1, sends its own name.
#[test]
fn a_loopback_server_answers_for_this_machine_only() {
    let server = Server::start(&["--trusted-host", "auto"]);
    let port = server.address().port();
    for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""] {
        for path in ["/hello", "/", "/metrics", "/nowhere"] {
            let response = ask(&server, path, host, "");
            assert!(is_problem(&response, 421), "{host} {path}: {response:?}");
        }
    }
    for host in [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1",
        "[::1]:80",
        "app.localhost",
    ] {
        assert_eq!(ask(&server, "/hello", host, "").status, 200, "{host}");
    }
    assert_eq!(
        ask(&server, "/hello", &format!("127.0.0.1:{port}"), "").status,
        200
    );
    assert_eq!(
        server.connect().ask("GET /hello HTTP/1.0\r\n\r\n").status,
        421
    );
    assert_eq!(rejected(&server, "host"), "17");
    // What orchestrators ask for is answered under any host.
    for path in ["/health", "/live", "/ready"] {
        assert_eq!(ask(&server, path, "10.0.0.1:8000", "").status, 200);
    }
}

#[test]
fn a_refused_host_does_not_end_the_connection() {
    let server = Server::start(&["--trusted-host", "auto"]);
    let mut client = server.connect();
    let refused = client.ask("GET /hello HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(refused.status, 421);
    assert_eq!(client.get("/hello").status, 200);
    let absolute = "GET http://evil.example/hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(client.ask(absolute).status, 421);
}

#[test]
fn http_2_is_held_to_the_same_hosts() {
    let server = Server::start(&["--trusted-host", "auto"]);
    let mut connection = Http2::connect(server.address());
    assert_eq!(connection.get(1, "/hello").status(), Some(200));
    let headers = |authority| {
        [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/hello"),
            (":authority", authority),
        ]
    };
    let refused = connection.ask(3, &headers("evil.example"), b"");
    assert_eq!(refused.status(), Some(421));
    let answered = connection.ask(5, &headers("localhost:1"), b"");
    assert_eq!(answered.status(), Some(200));
}

#[test]
fn listed_hosts_are_answered_for() {
    let flags = [
        "--trusted-host",
        "a.example",
        "--trusted-host",
        "*.b.example:8000",
    ];
    let server = Server::start(&flags);
    for (host, status) in [
        ("A.example", 200),
        ("a.example:9", 200),
        ("x.y.b.example:8000", 200),
        ("x.b.example:8001", 421),
        ("b.example:8000", 421),
        ("localhost", 421),
    ] {
        assert_eq!(ask(&server, "/hello", host, "").status, status, "{host}");
    }
}

#[test]
fn plain_http_is_sent_to_https() {
    let server = Server::start(&["--https-redirect", "--trusted-proxy", "127.0.0.1"]);
    for (path, host, location) in [
        ("/hello?a=%2F", "a.example", "https://a.example/hello?a=%2F"),
        (
            "//evil.example/x",
            "a.example:80",
            "https://a.example//evil.example/x",
        ),
        ("/nowhere", "[::1]:8000", "https://[::1]/nowhere"),
    ] {
        let response = ask(&server, path, host, "");
        let found = (response.status, response.header("location"));
        assert_eq!(found, (308, Some(location)));
    }
    assert!(is_problem(
        &server.connect().ask("GET / HTTP/1.0\r\n\r\n"),
        400
    ));
    assert_eq!(server.get("/health").status, 200);
    let secure = ask(&server, "/hello", "a", "X-Forwarded-Proto: https\r\n");
    assert_eq!(secure.status, 200);
    let plain = ask(&server, "/hello", "a", "X-Forwarded-Proto: http\r\n");
    assert_eq!(plain.status, 308);
}

#[test]
fn a_redirect_leads_to_trusted_hosts_only() {
    let flags = [
        "--https-redirect",
        "--https-redirect-port",
        "8443",
        "--trusted-host",
        "a.example",
    ];
    let server = Server::start(&flags);
    assert!(is_problem(&ask(&server, "/", "evil.example", ""), 421));
    let response = ask(&server, "/", "a.example", "");
    assert_eq!(response.header("location"), Some("https://a.example:8443/"));
}

#[test]
fn tls_is_never_redirected_and_alone_has_hsts() {
    let authority = Authority::new();
    let (certificate, key) = authority.server_files();
    let guards = ["--https-redirect", "--hsts", "1h"];
    let server = Server::start(
        &[
            &["--tls-cert", &certificate, "--tls-key", &key],
            &guards[..],
        ]
        .concat(),
    );
    let stream = handshake(server.address(), &authority.client(&[], None)).expect("a handshake");
    let response = Client::over(stream).get("/client");
    assert_eq!(response.json()["scheme"], "https");
    assert_eq!(
        response.header("strict-transport-security"),
        Some("max-age=3600")
    );

    let server = Server::start(&["--hsts", "1h"]);
    let response = server.get("/client");
    assert_eq!(response.json()["scheme"], "http");
    assert_eq!(response.header("strict-transport-security"), None);
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn a_client_that_sends_too_much_is_told_when_to_come_back() {
    let server = Server::start(&["--rate-limit", "3/h", "--lanes", "2"]);
    let statuses: Vec<_> = (0..5).map(|_| server.get("/hello").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    let refused = server.get("/hello");
    assert!(is_problem(&refused, 429));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1190..=1200).contains(&wait), "{wait}");
    assert_eq!(
        refused.header("ratelimit-policy"),
        Some("\"client\";q=3;w=3600")
    );
    let state = format!("\"client\";r=0;t={wait}");
    assert_eq!(refused.header("ratelimit"), Some(state.as_str()));
    for _ in 0..10 {
        assert_eq!(server.get("/ready").status, 200, "probes are free");
    }
}

/// Lanes share the count: connections spread over them, and the sum holds.
#[test]
fn no_lane_gives_a_client_more() {
    let server = Server::start(&["--rate-limit", "40/h", "--lanes", "4"]);
    let passed: usize = std::thread::scope(|scope| {
        let ask = || {
            let statuses = (0..30).map(|_| server.get("/hello").status);
            statuses.filter(|status| *status == 200).count()
        };
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum()
    });
    assert_eq!(passed, 40);
}

#[test]
fn each_client_has_a_rate_of_its_own() {
    let server = Server::start(&["--rate-limit", "1/h", "--trusted-proxy", "127.0.0.1"]);
    let status = |client: &str| {
        let line = format!("X-Forwarded-For: {client}\r\n");
        ask(&server, "/hello", "a", &line).status
    };
    assert_eq!([status("203.0.113.7"), status("203.0.113.7")], [200, 429]);
    assert_eq!([status("203.0.113.8"), status("203.0.113.8")], [200, 429]);
    assert_eq!(status("2001:db8::1"), 200);
    assert_eq!(status("2001:db8::2"), 429, "one network");
    assert_eq!(status("2001:db8:0:1::1"), 200);
    // A client cannot make itself new addresses in front of its own.
    assert_eq!(status("9.9.9.9, 203.0.113.7"), 429);
    let metrics = ask(&server, "/metrics", "a", "X-Forwarded-For: 9.9.9.1\r\n").text();
    assert!(metrics.contains("justapi_rejected_total{reason=\"rate_limit\"} 4\n"));
    assert!(metrics.contains("\njustapi_rate_limit_evicted_total 0\n"));
}

/// A browser asks before it calls: whatever serves the path, we answer, and the
/// upstream is not asked.
#[test]
fn a_preflight_is_answered_for_files_and_proxied_routes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("a.txt"), "file").expect("own folder");
    let files = format!("/files={}", folder.path().display());
    // Nobody listens on the discard port of the machine.
    let nobody = "/api=http://127.0.0.1:9";
    let origin = "https://app.example";
    let server = Server::start(&["--cors", origin, "--static", &files, "--proxy", nobody]);
    let preflight = |path: &str, origin: &str, method: &str| {
        server.connect().ask(format!(
            "OPTIONS {path} HTTP/1.1\r\nHost: a\r\nOrigin: {origin}\r\n\
             Access-Control-Request-Method: {method}\r\n\
             Access-Control-Request-Headers: x-token\r\n\r\n"
        ))
    };
    let allows = |response: &Response, method: &str| {
        let methods = response.header("access-control-allow-methods");
        methods.is_some_and(|methods| methods.split(", ").any(|known| known == method))
    };
    for (path, method) in [
        ("/files/a.txt", "GET"),
        ("/files/missing.txt", "GET"),
        ("/api/users", "DELETE"),
        ("/api/users/7?a=b", "PUT"),
    ] {
        let response = preflight(path, origin, method);
        assert_eq!(response.status, 204, "{path}: {response:?}");
        let allowed = response.header("access-control-allow-origin");
        assert_eq!(allowed, Some(origin), "{path}");
        assert!(allows(&response, method), "{path}: {response:?}");
        assert!(
            response.header("access-control-max-age").is_some(),
            "{path}"
        );
        let stranger = preflight(path, "https://evil.example", method);
        assert_eq!(stranger.status, 204, "{path}");
        assert_eq!(
            stranger.header("access-control-allow-origin"),
            None,
            "{path}"
        );
    }
    assert!(!allows(
        &preflight("/files/a.txt", origin, "DELETE"),
        "DELETE"
    ));
    // The call itself, and an error of ours on the way, are for the page too.
    for (path, status) in [("/files/a.txt", 200), ("/api/users", 502)] {
        let response = ask(&server, path, "a", &format!("Origin: {origin}\r\n"));
        let allowed = response.header("access-control-allow-origin");
        assert_eq!((response.status, allowed), (status, Some(origin)), "{path}");
    }
}

#[test]
fn a_header_may_say_whose_request_it_is() {
    let server = Server::start(&["--rate-limit", "1/h", "--rate-limit-header", "X-API-Key"]);
    let status = |line: &str| ask(&server, "/hello", "a", line).status;
    let one = "x-api-key: one\r\n";
    assert_eq!([status(one), status(one)], [200, 429]);
    assert_eq!(status("X-API-KEY: two\r\n"), 200);
    // Without a key it is the address that counts, once for all of them.
    assert_eq!(
        [status(""), status(""), status("X-API-Key:\r\n")],
        [200, 429, 429]
    );
    let mut command = serve();
    command.args(["--port", "0", "--rate-limit", "1/h"]);
    command.args(["--rate-limit-header", "no:header"]);
    let mut refused = Server::spawn(command);
    assert!(matches!(refused.exit(SOON).code(), Some(2 | 3)));
    let _complaint = refused.wait_for_line("server.rate_limit_header");
}

#[test]
fn a_client_that_waits_is_served_again() {
    let server = Server::start(&["--rate-limit", "4/s", "--rate-limit-burst", "1"]);
    let mut client = server.connect();
    for due in [429, 200, 429, 200] {
        eventually(SOON, "the bucket empties and fills", || {
            (client.ask(get("/hello")).status == due).then_some(())
        });
    }
}
