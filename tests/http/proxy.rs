//! `serve --proxy` in front of upstreams that are raw sockets: each test says
//! which bytes the upstream sends, and when it stops.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::support::PATIENCE;
use crate::support::client::{End, ReadError, Response, get};
use crate::support::server::Server;

/// A connection as an upstream has it.
struct Accepted {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Accepted {
    /// Reads a head and as much of a body as its length says.
    fn request(&mut self) -> Option<String> {
        let head = self.read_until(|bytes| find(bytes, b"\r\n\r\n").map(|at| at + 4))?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |text| text.parse().expect("a length"));
        let body = self.read_until(|bytes| (bytes.len() >= length).then_some(length))?;
        Some(head + &body)
    }

    fn read_until(&mut self, end: impl Fn(&[u8]) -> Option<usize>) -> Option<String> {
        loop {
            if let Some(at) = end(&self.buffer) {
                let rest = self.buffer.split_off(at);
                let bytes = std::mem::replace(&mut self.buffer, rest);
                return Some(String::from_utf8(bytes).expect("ASCII"));
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(length) => self.buffer.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the upstream waits in vain: {error}"),
            }
        }
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The proxy may be gone: what it did shows elsewhere.
        let _gone = self.stream.write_all(bytes.as_ref());
    }

    /// Waits until the proxy closes.
    fn wait_for_close(&mut self) {
        assert_eq!(self.read_until(|_| None), None);
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// Accepts connections, and runs `script` on each in a thread of its own.
fn upstream(script: impl Fn(Accepted, usize) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let script = Arc::new(script);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            stream
                .set_read_timeout(Some(PATIENCE))
                .expect("a non-zero timeout is accepted");
            let script = Arc::clone(&script);
            let accepted = Accepted {
                stream,
                buffer: Vec::new(),
            };
            std::thread::spawn(move || script(accepted, number));
        }
    });
    address
}

/// An upstream that answers every request alike, and what it received.
fn answering(answer: &'static str) -> (SocketAddr, Receiver<String>) {
    let (sender, receiver) = channel();
    let address = upstream(move |mut accepted, _| {
        while let Some(request) = accepted.request() {
            let _unread = sender.send(request);
            accepted.send(answer);
        }
    });
    (address, receiver)
}

/// A proxy of `/api`, and more flags.
fn proxy(upstream: SocketAddr, flags: &[&str]) -> Server {
    let route = format!("--proxy=/api=http://{upstream}");
    let mut all = vec![route.as_str(), "--lanes=1"];
    all.extend(flags);
    Server::start(&all)
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Type: text/plain\r\n\r\nfine";

#[test]
fn head_and_body_arrive_without_what_belongs_to_one_hop() {
    let (address, received) = answering(
        "HTTP/1.1 201 Created\r\nContent-Length: 4\r\nConnection: keep-alive, X-Hop\r\nX-Hop: a\r\n\
         Keep-Alive: timeout=5\r\nX-End: b\r\nVia: 1.1 behind\r\n\r\nmade",
    );
    let server = proxy(address, &[]);
    let answer = server.connect().ask(
        "POST /api/items/a%2Fb?x=1&y HTTP/1.1\r\nHost: front.example\r\nContent-Length: 5\r\n\
         Connection: X-Mine\r\nX-Mine: a\r\nTE: trailers\r\nX-Forwarded-For: 6.6.6.6\r\n\
         Forwarded: for=6.6.6.6\r\nExpect: 100-continue\r\nAccept: */*\r\n\r\nhello",
    );
    assert_eq!((answer.status, answer.text().as_str()), (201, "made"));
    assert_eq!(answer.header("x-end"), Some("b"));
    assert_eq!(answer.header("via"), Some("1.1 behind, 1.1 justapi"));
    for name in ["x-hop", "keep-alive", "connection"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    let request = received.recv_timeout(PATIENCE).expect("a request");
    let (head, body) = request.split_once("\r\n\r\n").expect("a head");
    let mut lines: Vec<_> = head.lines().collect();
    assert_eq!(lines.remove(0), "POST /items/a%2Fb?x=1&y HTTP/1.1");
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "accept: */*",
            "content-length: 5",
            "forwarded: for=127.0.0.1;host=\"front.example\";proto=http",
            &format!("host: {address}"),
            "via: 1.1 justapi",
            "x-forwarded-for: 127.0.0.1",
            "x-forwarded-host: front.example",
            "x-forwarded-proto: http",
        ]
    );
    assert_eq!(body, "hello");
}

#[test]
fn routes_and_refused_paths() {
    let (address, received) = answering(OK);
    let server = proxy(address, &[]);
    let mut client = server.connect();
    for (path, expected) in [("/api", "/"), ("/api/", "/"), ("/api/x/y?q", "/x/y?q")] {
        assert_eq!(client.get(path).text(), "fine", "{path}");
        let request = received.recv_timeout(PATIENCE).expect("a request");
        let line = format!("GET {expected} HTTP/1.1\r\n");
        assert!(request.starts_with(&line), "{path}: {request}");
    }
    assert_eq!(client.get("/apix").status, 404);
    assert_eq!(client.get("/hello").status, 404, "no demo beside a proxy");
    assert_eq!(client.get("/health").status, 200);
    for path in ["/api/%2e%2e/x", "/api/x%2f..%2f..%2fy"] {
        assert_eq!(client.get(path).status, 400, "{path}");
    }
    assert!(received.try_recv().is_err(), "nothing was passed on");
}

#[test]
fn a_connection_is_used_again_and_head_keeps_its_length() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let address = upstream(move |mut accepted, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        while let Some(request) = accepted.request() {
            accepted.send(match request.split(' ').next() {
                Some("HEAD") => "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
                Some("DELETE") => "HTTP/1.1 204 No Content\r\n\r\n",
                Some("OPTIONS") => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n",
            });
        }
    });
    let server = proxy(address, &[]);
    let mut client = server.connect();
    for _ in 0..5 {
        assert_eq!(client.get("/api/x").text(), "fine");
        let head = client.ask("HEAD /api/x HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(head.header("content-length"), Some("1234"));
        let gone = client.ask("DELETE /api/x HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(gone.status, 204);
        let options = client.ask("OPTIONS /api/x HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!((options.status, options.body.len()), (200, 0));
    }
    assert_eq!(count.load(Ordering::Relaxed), 1, "one connection for all");
}

#[test]
fn answers_split_at_every_byte_arrive_whole() {
    let address = upstream(|mut accepted, _| {
        accepted.stream.set_nodelay(true).expect("a socket option");
        while accepted.request().is_some() {
            let answer = "HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n\
                          3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n";
            for byte in answer.as_bytes() {
                accepted.send([*byte]);
            }
        }
    });
    let server = proxy(address, &[]);
    let answer = server.get("/api/x");
    assert_eq!((answer.status, answer.text().as_str()), (200, "abcdefg"));
    assert_eq!(answer.header("x-a"), Some("b"));
}

#[test]
fn bodies_are_streams_both_ways() {
    // Neither side sends its second half before it has seen the other's first.
    let address = upstream(|mut accepted, _| {
        let seen = |accepted: &mut Accepted, text: &[u8]| {
            let found = accepted.read_until(|bytes| find(bytes, text).map(|at| at + text.len()));
            assert!(found.is_some(), "{text:?}");
        };
        seen(&mut accepted, b"ping\r\n");
        accepted.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npong\r\n");
        seen(&mut accepted, b"ping2\r\n0\r\n\r\n");
        accepted.send("5\r\npong2\r\n0\r\n\r\n");
        accepted.wait_for_close();
    });
    let server = proxy(address, &[]);
    let mut client = server.connect();
    client
        .send("POST /api/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nping\r\n");
    let mut seen = Vec::new();
    while find(&seen, b"pong\r\n").is_none() {
        let mut chunk = [0; 1024];
        let length = client.stream().read(&mut chunk).expect("bytes in time");
        assert!(length > 0, "{}", seen.escape_ascii());
        seen.extend_from_slice(&chunk[..length]);
    }
    client.send("5\r\nping2\r\n0\r\n\r\n");
    while find(&seen, b"pong2\r\n0\r\n\r\n").is_none() {
        let mut chunk = [0; 1024];
        let length = client.stream().read(&mut chunk).expect("bytes in time");
        assert!(length > 0, "{}", seen.escape_ascii());
        seen.extend_from_slice(&chunk[..length]);
    }
}

#[track_caller]
fn check_problem(answer: &Response, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.json()["status"], status);
    assert!(!answer.text().contains("127.0.0.1"), "no internals");
}

#[test]
fn an_upstream_that_is_not_there_is_a_502() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    drop(listener);
    let server = proxy(address, &[]);
    check_problem(&server.get("/api/x"), 502);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn answers_that_are_no_http_are_a_502() {
    for bytes in [
        "",
        "garbage\r\n\r\n",
        "HTTP/1.1 200",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    ] {
        let address = upstream(move |mut accepted, _| {
            accepted.request();
            accepted.send(bytes);
        });
        let server = proxy(address, &[]);
        check_problem(&server.get("/api/x"), 502);
    }
}

#[test]
fn an_answer_whose_head_is_too_large_is_a_502() {
    for (num_lines, length) in [(101, 10), (1, 300_000), (50, 10_000)] {
        let address = upstream(move |mut accepted, _| {
            accepted.request();
            let line = format!("X-Long: {}\r\n", "a".repeat(length));
            let lines = line.repeat(num_lines);
            accepted.send(format!(
                "HTTP/1.1 200 OK\r\n{lines}Content-Length: 0\r\n\r\n"
            ));
            accepted.wait_for_close();
        });
        check_problem(&proxy(address, &[]).get("/api/x"), 502);
    }
}

#[test]
fn an_upstream_that_is_silent_is_a_504() {
    let address = upstream(|mut accepted, number| {
        accepted.request();
        if number > 0 {
            accepted.send("HTTP/1.1 200 OK\r\nContent-Len");
        }
        accepted.wait_for_close();
    });
    let server = proxy(address, &["--proxy-timeout-head=200ms"]);
    for _ in 0..2 {
        let start = Instant::now();
        check_problem(&server.get("/api/x"), 504);
        assert!(start.elapsed() >= Duration::from_millis(190));
    }
}

#[test]
fn a_slow_client_is_not_the_upstreams_fault() {
    let (address, _received) = answering(OK);
    let server = proxy(address, &["--proxy-timeout-head=200ms"]);
    let mut client = server.connect();
    client.send("POST /api/x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    // Longer than the upstream would have; the client has 30 s.
    client.set_patience(Duration::from_millis(500));
    let waited = client.read().expect_err("no answer yet");
    assert_eq!(waited, ReadError::Nothing(End::StillOpen));
    client.set_patience(PATIENCE);
    client.send("cd");
    assert_eq!(client.read().expect("an answer").text(), "fine");
}

#[test]
fn an_answer_that_breaks_off_is_broken_off() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    ] {
        let address = upstream(move |mut accepted, _| {
            accepted.request();
            accepted.send(answer);
        });
        let server = proxy(address, &[]);
        let mut client = server.connect();
        client.send(get("/api/x"));
        let ended = client.read();
        assert!(ended.is_err(), "a part looks whole: {ended:?}");
        assert_eq!(server.get("/health").status, 200);
    }
}

#[test]
fn an_answer_that_stalls_is_broken_off() {
    let address = upstream(|mut accepted, _| {
        accepted.request();
        accepted.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        accepted.wait_for_close();
    });
    let server = proxy(address, &["--proxy-timeout-body=200ms"]);
    let mut client = server.connect();
    client.send(get("/api/x"));
    let start = Instant::now();
    let ended = client.read().expect_err("a part only");
    assert!(
        !matches!(ended, ReadError::Partial(End::StillOpen, _)),
        "{ended}"
    );
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn a_client_that_leaves_ends_the_request_behind() {
    let (sender, closed) = channel();
    let address = upstream(move |mut accepted, _| {
        accepted.request();
        accepted.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = format!("4000\r\n{}\r\n", "a".repeat(0x4000));
        let start = Instant::now();
        while accepted.stream.write_all(chunk.as_bytes()).is_ok() {
            assert!(start.elapsed() < PATIENCE, "nobody stops the upstream");
        }
        let _unread = sender.send(());
    });
    let server = proxy(address, &[]);
    let mut client = server.connect();
    client.send(get("/api/x"));
    let mut some = [0; 1024];
    assert!(client.stream().read(&mut some).expect("a beginning") > 0);
    client.reset();
    closed
        .recv_timeout(PATIENCE)
        .expect("the upstream is let go");
}

/// An upstream that closes its first connection when the second request is on
/// it, without a byte of an answer; and how many requests it got.
fn dying(counted: &Arc<AtomicUsize>) -> SocketAddr {
    let counted = Arc::clone(counted);
    upstream(move |mut accepted, number| {
        while accepted.request().is_some() {
            let count = counted.fetch_add(1, Ordering::Relaxed);
            if number == 0 && count > 0 {
                return;
            }
            accepted.send(OK);
        }
    })
}

#[test]
fn only_idempotent_requests_are_repeated_and_only_once() {
    for (method, status, requests) in [("GET", 200, 3), ("DELETE", 200, 3), ("POST", 502, 2)] {
        let counted = Arc::new(AtomicUsize::new(0));
        let server = proxy(dying(&counted), &[]);
        let mut client = server.connect();
        assert_eq!(client.get("/api/x").text(), "fine");
        let answer = client.ask(format!("{method} /api/x HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(answer.status, status, "{method}");
        assert_eq!(counted.load(Ordering::Relaxed), requests, "{method}");
    }
}

#[test]
fn an_answer_that_had_begun_is_not_asked_for_again() {
    let counted = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&counted);
    let address = upstream(move |mut accepted, _| {
        while accepted.request().is_some() {
            if seen.fetch_add(1, Ordering::Relaxed) == 1 {
                accepted.send("HTTP/1.1 200");
                return;
            }
            accepted.send(OK);
        }
    });
    let server = proxy(address, &[]);
    let mut client = server.connect();
    assert_eq!(client.get("/api/x").text(), "fine");
    assert_eq!(client.get("/api/x").status, 502);
    assert_eq!(counted.load(Ordering::Relaxed), 2);
}

#[test]
fn connections_to_an_upstream_are_bounded() {
    let (release, held) = channel::<()>();
    let held = std::sync::Mutex::new(held);
    let (arrive, arrived) = channel();
    let address = upstream(move |mut accepted, _| {
        accepted.request();
        arrive.send(()).expect("the test waits");
        let _released = held.lock().expect("no panic").recv_timeout(PATIENCE);
        accepted.send(OK);
    });
    let server = proxy(address, &["--proxy-connections=1"]);
    let mut first = server.connect();
    first.send(get("/api/x"));
    arrived.recv_timeout(PATIENCE).expect("the first is there");
    let second = server.get("/api/x");
    check_problem(&second, 503);
    assert_eq!(second.json()["limit"], "server.proxy_connections");
    assert_eq!(second.header("retry-after"), Some("1"));
    release.send(()).expect("the upstream waits");
    assert_eq!(first.read().expect("an answer").text(), "fine");
}

#[test]
fn a_body_above_the_limit_is_413() {
    let (address, _received) = answering(OK);
    let server = proxy(address, &["--limit-body=10"]);
    let answer = server.connect().ask(
        "POST /api/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         b\r\nhello world\r\n0\r\n\r\n",
    );
    assert_eq!(answer.status, 413, "{answer:?}");
}

#[test]
fn proxied_answers_are_compressed_once() {
    let (address, received) = answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Encoding: br\r\n\
         Content-Type: text/plain\r\n\r\n\x0b\x00",
    );
    let server = proxy(address, &["--compression", "--compression-min-size=1"]);
    let request = "GET /api/x HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip, br\r\n\r\n";
    let answer = server.connect().ask(request);
    assert_eq!(answer.header("content-encoding"), Some("br"));
    assert_eq!(answer.body, b"\x0b\x00");
    let passed = received.recv_timeout(PATIENCE).expect("a request");
    assert!(passed.contains("accept-encoding: gzip, br\r\n"), "{passed}");
}
