//! What a client may take: sizes and deadlines of `core/src/limits.rs`.
//!
//! Over a size is a named refusal; at a deadline the connection is gone.

use std::io::{ErrorKind, Write as _};
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::support::client::{Client, End, ReadError, get, post};
use crate::support::exchange::{closed_silently, refused};
use crate::support::process;
use crate::support::server::{Server, serve};
use crate::support::{Failures, PATIENCE, eventually};

const MIB: u64 = 1024 * 1024;
const SHORT: &str = "300ms";
/// When something bounded by [`SHORT`] may end; the top is for a busy machine.
const AT_SHORT: Range<Duration> = Duration::from_millis(250)..Duration::from_millis(1500);

fn ended_in_time(start: Instant) -> Result<(), String> {
    let elapsed = start.elapsed();
    if AT_SHORT.contains(&elapsed) {
        Ok(())
    } else {
        Err(format!("ended after {elapsed:?}"))
    }
}

/// 408 as a problem document, then a close, at the deadline.
fn timed_out(client: &mut Client, start: Instant) -> Result<(), String> {
    let response = client.read().map_err(|error| error.to_string())?;
    if response.status != 408 {
        return Err(format!("answered {response:?}"));
    }
    match client.read_to_end() {
        (rest, End::Closed) if rest.is_empty() => ended_in_time(start),
        (rest, end) => Err(format!(
            "then {:?}, {end:?}",
            rest.escape_ascii().to_string()
        )),
    }
}

#[test]
fn sizes_of_the_head_are_bounded() {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    let line = |bytes: usize| {
        let path = "a".repeat(bytes - "GET /anything/ HTTP/1.1".len());
        get(&format!("/anything/{path}"))
    };
    let headers = |count: usize| {
        let lines = "X: y\r\n".repeat(count - 1);
        format!("GET /hello HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")
    };
    let bytes = |bytes: usize| {
        let start = "GET /hello HTTP/1.1\r\nHost: localhost\r\nX: ";
        format!("{start}{}\r\n\r\n", "y".repeat(bytes - start.len() - 4))
    };
    for (name, request, status) in [
        ("request line of 8 KiB", line(8192), 200),
        ("request line of 8 KiB + 1", line(8193), 414),
        ("request line of 9 KiB", line(9 * 1024), 414),
        ("request line of 256 KiB", line(256 * 1024), 414),
        ("100 headers", headers(100), 200),
        ("101 headers", headers(101), 431),
        ("2,000 headers", headers(2000), 431),
        ("head of 32,000 bytes", bytes(32_000), 200),
        ("head of 32 KiB + 4", bytes(32 * 1024 + 4), 431),
        ("one header of 1 MiB", bytes(1024 * 1024), 431),
    ] {
        let result = if status == 200 {
            let got = server.connect().ask(request).status;
            if got == 200 {
                Ok(())
            } else {
                Err(format!("expected 200, got {got}"))
            }
        } else {
            refused(server.address(), request.as_bytes(), &[status])
        };
        failures.case(name, result);
    }
    let method = format!("{} /hello HTTP/1.1\r\nHost: a\r\n\r\n", "A".repeat(10_000));
    failures.case(
        "method of 10,000",
        refused(server.address(), method.as_bytes(), &[400, 414]),
    );
    failures.finish();
}

#[test]
fn a_refusal_names_its_limit() {
    let server = Server::start(&[]);
    let target = get(&format!("/{}", "a".repeat(9000)));
    let headers = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "X: y\r\n".repeat(200)
    );
    let header = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "y".repeat(40_000)
    );
    let body = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n".to_owned();
    for (request, status, limit, value) in [
        (target, 414, "server.limits.request_line", 8192),
        (headers, 431, "server.limits.headers", 100),
        (header, 431, "server.limits.header", 32 * 1024),
        (body, 413, "server.limits.body", 2 * MIB),
    ] {
        let response = server.connect().ask(request);
        let problem = response.json();
        assert_eq!(response.status, status, "{limit}: {problem}");
        assert_eq!(problem["limit"], limit, "{problem}");
        assert_eq!(problem["limit_value"], value, "{problem}");
    }
}

/// A limit that the parser cannot keep is refused, not silently lower.
#[test]
fn limits_beyond_the_parser_are_refused_at_the_start() {
    for (flag, value, key) in [
        ("--limit-headers", "100000", "server.limits.headers"),
        ("--limit-header", "10MiB", "server.limits.header"),
        ("--limit-request-line", "1MiB", "server.limits.request_line"),
    ] {
        let mut command = serve();
        command.args(["--port", "0", flag, value]);
        let mut server = Server::spawn(command);
        let code = server.exit(PATIENCE).code();
        assert!(matches!(code, Some(2 | 3)), "{flag} {value}: {code:?}");
        let _complaint = server.wait_for_line(key);
    }
}

#[test]
fn a_body_over_the_limit_is_413() {
    let server = Server::start(&["--limit-body", "64KiB"]);
    let json = |bytes: usize| post("/echo", &format!("\"{}\"", "a".repeat(bytes - 2)));
    assert_eq!(server.connect().ask(json(64 * 1024)).status, 200);
    assert_eq!(server.connect().ask(json(64 * 1024 + 1)).status, 413);
    let chunks = "1000\r\n".to_owned() + &"a".repeat(4096) + "\r\n";
    let request = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()
        + &chunks.repeat(17)
        + "0\r\n\r\n";
    assert_eq!(server.connect().ask(request).status, 413);
}

#[test]
fn a_declared_body_over_the_limit_is_413_before_its_first_byte() {
    let server = Server::start(&[]);
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10737418240\r\n\r\n";
    let mut client = server.connect();
    let response = client.ask(head);
    assert_eq!(response.status, 413);
    assert_eq!(response.header("connection"), Some("close"));
}

/// F27: 10 GiB in chunks; what lies behind the limit is not buffered.
#[test]
fn an_endless_body_is_cut_off_without_buffering() {
    let server = Server::start(&[]);
    let before = process::rss_bytes(server.pid());
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = [&b"10000\r\n"[..], &vec![b'1'; 0x10000], b"\r\n"].concat();
    let mut num_taken = 0;
    while num_taken < 64 * MIB && client.try_send(&chunk).is_ok() {
        num_taken += chunk.len() as u64;
    }
    assert!(num_taken < 32 * MIB, "{num_taken} bytes were taken");
    assert_eq!(client.read().map(|response| response.status), Ok(413));
    let grown = process::rss_bytes(server.pid()).saturating_sub(before);
    assert!(grown < 12 * MIB, "{grown} bytes more");
}

#[test]
fn a_silent_connection_is_closed_at_the_header_deadline() {
    let server = Server::start(&["--timeout-header", SHORT]);
    let start = Instant::now();
    closed_silently(&mut server.connect())
        .and(ended_in_time(start))
        .unwrap();
}

#[test]
fn half_a_head_is_408_at_the_header_deadline() {
    let server = Server::start(&["--timeout-header", SHORT]);
    let mut failures = Failures::default();
    for half in [
        "G",
        "GET /hello HTTP/1.1",
        "GET /hello HTTP/1.1\r\nHost: a\r\n",
        "\r\nG",
    ] {
        let start = Instant::now();
        let mut client = server.connect();
        client.send(half);
        failures.case(half, timed_out(&mut client, start));
    }
    failures.finish();
}

/// Each byte must not buy more time: the deadline counts from accept.
#[test]
fn a_trickled_head_is_408_at_the_header_deadline() {
    let server = Server::start(&["--timeout-header", SHORT]);
    let start = Instant::now();
    let mut client = server.connect();
    client.send("GET /hello HTTP/1.1\r\nHost: a\r\nX: ");
    let mut writer = client.stream().try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The pace of the attack, not a wait for the server.
            while start.elapsed() < AT_SHORT.end && writer.write_all(b"y").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let answer = client.read();
        assert_eq!(answer.map(|response| response.status), Ok(408));
        ended_in_time(start).unwrap();
    });
}

#[test]
fn the_second_head_has_a_deadline_too() {
    let server = Server::start(&["--timeout-header", SHORT]);
    let mut client = server.connect();
    assert_eq!(client.get("/hello").status, 200);
    let start = Instant::now();
    client.send("GET /hello HTTP/1.1\r\nHost: ");
    timed_out(&mut client, start).unwrap();
}

#[test]
fn an_idle_connection_is_closed_at_the_idle_deadline() {
    let server = Server::start(&["--timeout-idle", SHORT]);
    let mut client = server.connect();
    assert_eq!(client.get("/hello").status, 200);
    let start = Instant::now();
    closed_silently(&mut client)
        .and_then(|()| ended_in_time(start))
        .unwrap();
}

/// One timer serves all deadlines: it has to go off again for a later one.
#[test]
fn a_deadline_behind_the_first_one_holds() {
    let mut failures = Failures::default();
    let body = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n[";
    for (flag, request, status) in [
        ("--timeout-idle", get("/hello"), Ok(200)),
        ("--timeout-body", body.to_owned(), Ok(408)),
    ] {
        let server = Server::start(&["--timeout-header", "100ms", flag, SHORT]);
        let start = Instant::now();
        let mut client = server.connect();
        client.send(request);
        let answer = client.read().map(|response| response.status);
        let result = if answer == status {
            closed_silently(&mut client).and_then(|()| ended_in_time(start))
        } else {
            Err(format!("answered {answer:?}"))
        };
        failures.case(flag, result);
    }
    failures.finish();
}

/// RFC 9112 §2.2: an empty line behind a body begins no request.
#[test]
fn an_empty_line_behind_a_body_is_idle_time() {
    let server = Server::start(&["--timeout-header", SHORT, "--timeout-idle", "5s"]);
    let mut client = server.connect();
    assert_eq!(client.ask(post("/echo", "[1]") + "\r\n").status, 200);
    client.set_patience(AT_SHORT.start * 3);
    let unasked = client.read();
    assert_eq!(unasked, Err(ReadError::Nothing(End::StillOpen)));
    client.set_patience(PATIENCE);
    assert_eq!(client.get("/hello").status, 200);
}

#[test]
fn a_stalled_body_is_408() {
    let server = Server::start(&["--timeout-body", SHORT]);
    let mut failures = Failures::default();
    for (name, framing) in [
        ("length", "Content-Length: 10\r\n\r\nhello"),
        ("chunked", "Transfer-Encoding: chunked\r\n\r\n5\r\nhel"),
    ] {
        for path in ["/echo", "/anything"] {
            let mut client = server.connect();
            let start = Instant::now();
            client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{framing}"));
            failures.case(&format!("{name} to {path}"), timed_out(&mut client, start));
        }
    }
    failures.finish();
}

/// The handler waits for a body that stalls; its own limit comes first.
#[test]
fn a_handler_over_its_time_limit_is_answered_for() {
    let server = Server::start(&["--timeout-request", SHORT]);
    let start = Instant::now();
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n[1");
    let response = client.read().unwrap();
    assert!(matches!(response.status, 503 | 504), "{response:?}");
    ended_in_time(start).unwrap();
    assert_eq!(client.read(), Err(ReadError::Nothing(End::Closed)));
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("{reason=\"request_timeout\"} 1\n"));
}

/// A body that keeps coming may take longer than the stall limit.
#[test]
fn a_slow_but_steady_body_is_read() {
    let server = Server::start(&["--timeout-body", SHORT]);
    let mut client = server.connect();
    client.send("POST /anything HTTP/1.1\r\nHost: a\r\nContent-Length: 300\r\n\r\n");
    for _ in 0..10 {
        client.send([b'x'; 30]);
        // The pace of the client, not a wait for the server.
        std::thread::sleep(Duration::from_millis(60));
    }
    assert_eq!(client.read().map(|response| response.status), Ok(200));
}

/// F10: answers pile up before a client who does not read.
#[test]
fn a_reader_that_stops_is_cut_off_and_costs_little_memory() {
    let server = Server::start(&["--timeout-write", SHORT]);
    let before = process::rss_bytes(server.pid());
    let mut client = server.connect();
    rustix::net::sockopt::set_socket_recv_buffer_size(client.stream(), 8192).unwrap();
    // The answer names the headers, so it is as large as the request.
    let value = "y".repeat(30_000);
    let request = format!("GET /anything HTTP/1.1\r\nHost: a\r\nX: {value}\r\n\r\n");
    let start = Instant::now();
    let mut most = 0;
    let error = loop {
        most = most.max(process::rss_bytes(server.pid()));
        match client.try_send(&request) {
            Ok(()) => assert!(start.elapsed() < PATIENCE, "still reading"),
            Err(error) => break error,
        }
    };
    let is_stall = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    assert!(!is_stall, "not cut off in {:?}: {error}", start.elapsed());
    let grown = most.saturating_sub(before);
    assert!(grown < 8 * MIB, "{grown} bytes more");
    server.answers_within(Duration::from_secs(2)).unwrap();
    let metrics = server.get("/metrics").text();
    let is_counted = metrics.contains("{reason=\"write_stall\"} 1\n");
    assert!(is_counted, "not by its write stall: {error}");
}

#[test]
fn a_reader_that_is_slow_gets_all() {
    let server = Server::start(&["--timeout-write", SHORT]);
    let mut client = server.connect();
    rustix::net::sockopt::set_socket_recv_buffer_size(client.stream(), 8192).unwrap();
    let json = format!("\"{}\"", "a".repeat(1_000_000));
    let response = client.ask(post("/echo", &json));
    assert_eq!((response.status, response.body.len()), (200, json.len()));
}

/// F11: a head in 1-byte writes costs CPU in proportion to its bytes.
#[test]
fn a_head_in_single_bytes_costs_linear_time() {
    let cost = |bytes: usize| {
        let server = Server::start(&[]);
        let before = process::cpu(server.pid());
        let mut client = server.connect();
        client.send("GET /hello HTTP/1.1\r\nHost: localhost\r\nX: ");
        for _ in 0..bytes {
            client.send("y");
        }
        client.send("\r\n\r\n");
        assert_eq!(client.read().unwrap().status, 200);
        process::cpu(server.pid()).saturating_sub(before)
    };
    let (small, large) = (cost(4_000), cost(32_000));
    let most = small * 16 + Duration::from_millis(100);
    assert!(
        large < most,
        "4,000 bytes cost {small:?}, 32,000 bytes {large:?}"
    );
}

/// F11: a header without an end, a byte at a time, is 431 where the limit is,
/// and what follows costs no more than reading it.
#[test]
fn an_endless_header_in_single_bytes_is_431() {
    const BYTES: usize = 1024 * 1024;
    let server = Server::start(&[]);
    let start = process::cpu(server.pid());
    let mut client = server.connect();
    client.send("GET /hello HTTP/1.1\r\nHost: localhost\r\nX: ");
    let mut num_sent = 0;
    while num_sent < BYTES && client.try_send("y").is_ok() {
        num_sent += 1;
    }
    let response = client.read().expect("the refusal outlives what follows it");
    assert_eq!(response.status, 431);
    assert_eq!(response.json()["limit"], "server.limits.header");
    assert!(num_sent >= 32_000, "refused after {num_sent} bytes");
    let cost = process::cpu(server.pid()).saturating_sub(start);
    // A debug build takes some microseconds for each byte that it reads alone.
    assert!(
        cost < Duration::from_secs(5),
        "{num_sent} bytes cost {cost:?}"
    );
    assert_eq!(server.answers_within(PATIENCE), Ok(()));
}

#[test]
fn connections_over_the_limit_are_refused_with_503() {
    let server = Server::start(&["--max-connections", "10"]);
    let held: Vec<_> = (0..10)
        .map(|_| {
            let mut client = server.connect();
            assert_eq!(client.get("/hello").status, 200);
            client
        })
        .collect();
    let mut over = server.connect();
    let response = over.read().or_else(|_| {
        let mut again = server.connect();
        again.send(get("/hello"));
        again.read()
    });
    let response = response.expect("503 to the eleventh connection");
    assert_eq!(response.status, 503, "{response:?}");
    assert!(response.header("retry-after").is_some(), "{response:?}");
    assert_eq!(response.header("connection"), Some("close"));
    drop(held);
    eventually(Duration::from_secs(2), "a free place", || {
        let mut client = Client::try_connect(server.address()).ok()?;
        client.send(get("/hello"));
        client.read().ok().filter(|response| response.status == 200)
    });
}

#[test]
fn a_refused_connection_ends_cleanly() {
    let server = Server::start(&["--max-connections", "1"]);
    let mut held = server.connect();
    assert_eq!(held.get("/hello").status, 200);
    let mut over = server.connect();
    over.send(get("/hello"));
    assert_eq!(over.read().map(|response| response.status), Ok(503));
    assert_eq!(over.read(), Err(ReadError::Nothing(End::Closed)));
    assert_eq!(held.get("/hello").status, 200);
}
