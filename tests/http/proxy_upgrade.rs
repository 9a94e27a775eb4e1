//! `serve --proxy` in front of WebSocket and TLS upstreams: another server of
//! ours, and raw sockets that say what a bad one says.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::certificates::Authority;
use crate::support::client::{Client, End, get};
use crate::support::http2::{Http2, Outcome};
use crate::support::server::Server;
use crate::support::websocket::{
    ACCEPT, KEY, close_code, connect, exchange_over_h2, frame, handshake, read_frame, upgrade,
};
use crate::support::{PATIENCE, eventually, process};

/// A proxy of `/api` to `url`, and more flags.
fn proxy(url: &str, flags: &[&str]) -> Server {
    let route = format!("--proxy=/api={url}");
    let mut all = vec![route.as_str(), "--lanes=1"];
    all.extend(flags);
    Server::start(&all)
}

fn in_front_of(upstream: &Server, flags: &[&str]) -> Server {
    proxy(&format!("http://{}", upstream.address()), flags)
}

fn open(server: &Server) -> Client {
    let mut client = server.connect();
    upgrade(&mut client, "/api/ws");
    client
}

#[test]
fn messages_pass_and_the_close_goes_both_ways() {
    let upstream = Server::start(&[]);
    let server = in_front_of(&upstream, &[]);
    let mut client = server.connect();
    let more =
        "Sec-WebSocket-Protocol: soap, echo\r\nSec-WebSocket-Extensions: permessage-deflate\r\n";
    let answer = client.ask(handshake("/api/ws", more));
    assert_eq!(answer.status, 101);
    for (name, value) in [
        ("upgrade", "websocket"),
        ("connection", "upgrade"),
        ("sec-websocket-accept", ACCEPT),
        ("sec-websocket-protocol", "echo"),
        ("via", "1.1 justapi"),
    ] {
        assert_eq!(answer.header(name), Some(value));
    }
    assert!(answer.header("sec-websocket-extensions").is_some());
    assert_eq!(answer.header("content-length"), None);
    for size in [0, 5, 125, 126, 65_535, 65_536, 1_000_000] {
        // Not compressible, so that it comes back as it went.
        let payload: Vec<u8> = (0..size)
            .map(|index: u32| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let mut client = open(&server);
        client.send(frame(0x82, &payload));
        assert!(read_frame(&mut client) == (0x82, payload), "{size}");
        client.send(frame(0x88, b"\x03\xe8"));
        assert_eq!(close_code(&mut client), 1000);
        assert_eq!(client.read_to_end(), (Vec::new(), End::Closed), "{size}");
    }
}

#[test]
fn what_is_sent_right_behind_the_handshake_is_not_lost() {
    let upstream = Server::start(&[]);
    let server = in_front_of(&upstream, &[]);
    let mut client = server.connect();
    let early = [handshake("/api/ws", "").into_bytes(), frame(0x81, b"early")];
    client.send(early.concat());
    assert_eq!(client.read_head().map(|head| head.status), Ok(101));
    client.send(frame(0x88, b"\x03\xe8"));
    let (bytes, end) = client.read_to_end();
    assert_eq!(bytes, b"\x81\x05early\x88\x02\x03\xe8");
    assert_eq!(end, End::Closed);
}

#[test]
fn a_stream_of_http_2_reaches_a_socket_of_http_1() {
    let upstream = Server::start(&[]);
    let server = in_front_of(&upstream, &[]);
    let mut connection = Http2::connect(server.address());
    let mut headers = connect("/api/ws", "websocket").to_vec();
    headers.push(("sec-websocket-protocol", "echo"));
    let outcome = exchange_over_h2(&mut connection, &headers, b"over h2");
    let Outcome::Response { status, body, .. } = &outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(*status, 200);
    assert_eq!(outcome.header("sec-websocket-protocol"), Some("echo"));
    for name in ["sec-websocket-accept", "upgrade", "connection"] {
        assert_eq!(outcome.header(name), None, "{name}");
    }
    assert_eq!(body.as_slice(), b"\x81\x07over h2\x88\x02\x03\xe8");
}

/// A refusal is an answer like any other, on a connection that goes on.
#[test]
fn a_refused_handshake_is_passed_on() {
    let upstream = Server::start(&[]);
    let server = in_front_of(&upstream, &[]);
    let mut client = server.connect();
    let answer = client.ask(handshake("/api/nowhere", ""));
    assert_eq!(answer.status, 404);
    let answer = client.ask(handshake("/api/ws", "Origin: https://evil.example\r\n"));
    assert_eq!(answer.status, 403);
    let answer = client.ask(handshake("/api/ws", "").replace(": 13", ": 8"));
    assert_eq!(answer.status, 426);
    let answer = client.ask(handshake("/api/ws", "").replace(KEY, "short"));
    assert_eq!(answer.status, 426, "no key, no upgrade");
    assert_eq!(client.get("/api/hello").status, 200);
}

/// An upstream whose answer is `answer`, to each connection once.
fn raw_upstream(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                if read_head(&mut stream).is_some() {
                    // The proxy may have hung up: what it did shows elsewhere.
                    drop(stream.write_all(answer.as_bytes()));
                    drop(stream.read(&mut [0; 1]));
                }
            });
        }
    });
    address
}

fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// A 101 that proves nothing must not open a way past the gate.
#[test]
fn a_switch_that_is_not_to_this_websocket_is_a_502() {
    for answer in [
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
         Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
    ] {
        let server = proxy(&format!("http://{}", raw_upstream(answer)), &[]);
        let mut client = server.connect();
        assert_eq!(client.ask(handshake("/api/x", "")).status, 502, "{answer}");
        assert_eq!(client.get("/health").status, 200);
    }
}

/// What an upstream is asked: no upgrade but a WebSocket's ever reaches it.
#[test]
fn other_upgrades_stay_behind() {
    let upstream = Server::start(&[]);
    let server = in_front_of(&upstream, &[]);
    for lines in [
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAAA\r\n",
        "Upgrade: TLS/1.0\r\nConnection: Upgrade\r\n",
        "Upgrade: websocket\r\n",
        "Upgrade: websocket\r\nConnection: close-not\r\n",
    ] {
        let request = format!("GET /api/anything HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let answer = server.connect().ask(request);
        assert_eq!(answer.status, 200, "{lines}");
        let seen = &answer.json()["headers"];
        for name in ["upgrade", "http2-settings", "connection"] {
            assert!(seen.get(name).is_none(), "{lines} gave {seen}");
        }
    }
}

#[test]
fn a_drain_closes_both_sides_between_two_frames() {
    let upstream = Server::start(&[]);
    let mut server = in_front_of(&upstream, &["--graceful", "20s"]);
    let mut idle = open(&server);
    let mut amid = open(&server);
    let message = frame(0x81, b"0123456789");
    amid.send(&message[..8]);
    let start = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(close_code(&mut idle), 1001);
    idle.send(frame(0x88, b"\x03\xe9"));
    assert_eq!(idle.read_to_end(), (Vec::new(), End::Closed));
    // The rest of a frame still passes; what the upstream makes of it does not.
    assert_eq!(close_code(&mut amid), 1001);
    amid.send(&message[8..]);
    amid.send(frame(0x88, b"\x03\xe9"));
    drop((idle, amid));
    assert_eq!(server.exit(PATIENCE).code(), Some(0));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_side_that_vanishes_takes_the_other_with_it() {
    let upstream = Server::start(&[]);
    let server = in_front_of(&upstream, &[]);
    let open_pair = || {
        let mut client = open(&server);
        client.send(frame(0x81, b"hi"));
        assert_eq!(read_frame(&mut client), (0x81, b"hi".to_vec()));
        client
    };
    drop(open_pair());
    let (front, back) = (server.pid(), upstream.pid());
    eventually(PATIENCE, "the first is gone", || {
        (metric(&upstream, "justapi_websockets") == 0).then_some(())
    });
    let (num_front, num_back) = (process::num_fds(front), process::num_fds(back));
    for index in 0..100 {
        let client = open_pair();
        if index % 2 == 0 {
            client.reset();
        }
    }
    eventually(PATIENCE, "all are gone", || {
        let is_over = metric(&upstream, "justapi_websockets") == 0
            && metric(&server, "justapi_websockets") == 0;
        is_over.then_some(())
    });
    process::wait_until_closed(front, num_front, 100);
    process::wait_until_closed(back, num_back, 100);
    let mut left = open_pair();
    drop(upstream);
    assert_ne!(left.read_to_end().1, End::StillOpen);
}

#[test]
fn a_tunnel_without_use_is_closed_and_its_place_given_back() {
    let upstream = Server::start(&["--ws-ping", "off"]);
    let flags = [
        "--proxy-timeout-tunnel",
        "400ms",
        "--proxy-connections",
        "1",
    ];
    let server = in_front_of(&upstream, &flags);
    let mut client = open(&server);
    let start = Instant::now();
    assert_eq!(server.connect().ask(handshake("/api/ws", "")).status, 503);
    assert_eq!(close_code(&mut client), 1001);
    assert!(start.elapsed() >= Duration::from_millis(350));
    client.send(frame(0x88, b"\x03\xe9"));
    assert_eq!(client.read_to_end(), (Vec::new(), End::Closed));
    drop(client);
    eventually(PATIENCE, "its place is free", || {
        let status = server.get("/api/hello").status;
        (status == 200).then_some(())
    });
}

fn metric(server: &Server, series: &str) -> u64 {
    let text = server.get("/metrics").text();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("no {series} in {text}"));
    value.parse().expect("a whole number")
}

/// A reader that stops holds the sender back, and costs little.
#[test]
fn a_slow_reader_of_a_tunnel_costs_little() {
    let upstream = Server::start(&[]);
    let server = in_front_of(&upstream, &[]);
    let mut client = open(&server);
    client.send(frame(0x81, b"first"));
    assert_eq!(read_frame(&mut client), (0x81, b"first".to_vec()));
    let before = process::rss_bytes(server.pid());
    let stream = client.stream();
    stream
        .set_write_timeout(Some(Duration::from_millis(300)))
        .expect("a timeout can be set");
    let messages = frame(0x82, &vec![b'x'; 60_000]).repeat(16);
    for _ in 0..64 {
        if stream.write_all(&messages).is_err() {
            break;
        }
    }
    let grown = process::rss_bytes(server.pid()).saturating_sub(before);
    assert!(grown < 2 * 1024 * 1024, "{grown} bytes");
}

/// A TLS server of the demo under `authority`.
fn secure(authority: &Authority) -> Server {
    let (certificate, key) = authority.server_files();
    Server::start(&["--tls-cert", &certificate, "--tls-key", &key])
}

#[test]
fn an_upstream_is_reached_by_tls_and_so_are_its_sockets() {
    let authority = Authority::new();
    let upstream = secure(&authority);
    let url = format!("https://localhost:{}", upstream.address().port());
    let server = proxy(&url, &["--proxy-ca", &authority.file()]);
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/api/hello").status, 200);
    }
    let large = "x".repeat(300_000);
    let request = format!(
        "POST /api/echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n\"{large}\"",
        large.len() + 2
    );
    assert_eq!(client.ask(request).body.len(), large.len() + 2);
    let mut socket = open(&server);
    socket.send(frame(0x81, b"inside of TLS"));
    let echo = read_frame(&mut socket);
    assert_eq!(echo, (0x81, b"inside of TLS".to_vec()));
    let seen = server.get("/api/client").json();
    assert_eq!(seen["scheme"], "https");
}

/// Wrong name, wrong authority, no TLS at all: nothing is sent there.
#[test]
fn an_upstream_that_is_not_who_it_should_be_is_a_502() {
    let (authority, other) = (Authority::new(), Authority::new());
    let upstream = secure(&authority);
    let plain = Server::start(&[]);
    let port = upstream.address().port();
    for (url, trusted) in [
        (format!("https://localhost:{port}"), &other),
        // The certificate is for localhost alone.
        (format!("https://127.0.0.1:{port}"), &authority),
        (
            format!("https://localhost:{}", plain.address().port()),
            &authority,
        ),
    ] {
        let server = proxy(&url, &["--proxy-ca", &trusted.file()]);
        let answer = server.get("/api/hello");
        assert_eq!(answer.status, 502, "{url}");
        assert!(answer.text().contains("securely"), "{}", answer.text());
        assert_eq!(server.connect().ask(get("/health")).status, 200);
    }
}
