//! The WebSocket protocol at the built binary: handshakes byte by byte, a client with a
//! codec of its own, HTTP/2, and the end of the server.

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::client::{Client, End, show};
use crate::support::http2::{Http2, Outcome, flag, frame as h2_frame, kind};
use crate::support::server::Server;
use crate::support::websocket::{
    ACCEPT, KEY, close_code, connect, exchange_over_h2, frame, handshake, read_frame, upgrade,
};
use crate::support::{Failures, hpack};

const SOON: Duration = Duration::from_secs(2);

/// An open socket of the demo.
fn open(server: &Server) -> Client {
    let mut client = server.connect();
    upgrade(&mut client, "/ws");
    client
}

#[test]
fn a_handshake_is_answered_and_messages_are_echoed() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let response = client.ask(handshake("/ws", "Sec-WebSocket-Protocol: soap, echo\r\n"));
    assert_eq!(response.status, 101);
    assert_eq!(response.header("upgrade"), Some("websocket"));
    assert_eq!(response.header("connection"), Some("upgrade"));
    let accept = response.header("sec-websocket-accept");
    assert_eq!(accept, Some(ACCEPT));
    assert_eq!(response.header("sec-websocket-protocol"), Some("echo"));
    assert_eq!(response.header("content-length"), None);
    for (first, payload) in [(0x81, &b"Hello"[..]), (0x82, b"\0\xff"), (0x81, b"")] {
        client.send(frame(first, payload));
        assert_eq!(read_frame(&mut client), (first, payload.to_vec()));
    }
    client.send(frame(0x89, b"ping"));
    assert_eq!(read_frame(&mut client), (0x8a, b"ping".to_vec()));
    client.send(frame(0x88, b"\x03\xe8bye"));
    assert_eq!(read_frame(&mut client), (0x88, b"\x03\xe8".to_vec()));
    assert_eq!(client.read_to_end(), (Vec::new(), End::Closed));
}

#[test]
fn a_handshake_that_is_none_is_refused_and_the_connection_goes_on() {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    let cases: &[(&str, String, u16)] = &[
        (
            "no upgrade",
            "GET /ws HTTP/1.1\r\nHost: a\r\n\r\n".into(),
            426,
        ),
        (
            "old version",
            handshake("/ws", "").replace("Version: 13", "Version: 8"),
            426,
        ),
        (
            "two versions",
            handshake("/ws", "Sec-WebSocket-Version: 13\r\n"),
            426,
        ),
        ("short key", handshake("/ws", "").replace(KEY, "dGhl"), 400),
        (
            "another origin",
            handshake("/ws", "Origin: https://evil.example\r\n"),
            403,
        ),
        (
            "odd extension",
            handshake("/ws", "Sec-WebSocket-Extensions: a b\r\n"),
            400,
        ),
        (
            "a body",
            handshake("/ws", "Content-Length: 2\r\n") + "ab",
            400,
        ),
        ("POST", handshake("/ws", "").replace("GET", "POST"), 405),
    ];
    for (name, request, expected) in cases {
        let mut client = server.connect();
        let response = client.ask(request);
        let next = client.get("/hello").status;
        let result = match (response.status, next) {
            (status, 200) if status == *expected => Ok(()),
            seen => Err(format!("{seen:?}")),
        };
        failures.case(name, result);
        if *expected == 426 {
            assert_eq!(response.header("sec-websocket-version"), Some("13"));
        }
    }
    failures.finish();
}

/// A byte that is no text in a header once ended a worker of another server
/// (CVE-2026-42544).
#[test]
fn no_header_value_can_hurt() {
    let mut server = Server::start(&[]);
    for name in ["Protocol", "Extensions", "Key", "Version"] {
        for byte in 0x80..=0xff_u8 {
            let mut request = handshake("/ws", "").into_bytes();
            request.truncate(request.len() - 2);
            request.extend_from_slice(format!("Sec-WebSocket-{name}: ").as_bytes());
            request.extend_from_slice(&[byte, b'\r', b'\n', b'\r', b'\n']);
            let status = server.connect().ask(&request).status;
            assert!(
                matches!(status, 400 | 426),
                "{status} to {}",
                show(&request)
            );
        }
    }
    assert!(server.is_running());
}

#[test]
fn what_follows_an_upgrade_request_is_never_answered_as_http() {
    let server = Server::start(&[]);
    let smuggled = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut client = server.connect();
    client.send(handshake("/ws", "") + smuggled);
    let (bytes, _) = client.read_to_end();
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains("HTTP/1.1 200"), "{text}");
    server.answers_within(SOON).expect("others are served");
}

#[test]
fn broken_frames_close_with_their_code() {
    let server = Server::start(&[]);
    let cases: &[(&str, &[u8], u16)] = &[
        ("no mask", b"\x81\x02hi", 1002),
        ("reserved bit", b"\xc1\x80\0\0\0\0", 1002),
        ("reserved opcode", b"\x83\x80\0\0\0\0", 1002),
        ("not UTF-8", b"\x81\x81\0\0\0\0\xff", 1007),
        (
            "2^63 - 1 bytes",
            b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",
            1009,
        ),
        (
            "16 MiB and 1 byte",
            b"\x82\xff\0\0\0\0\x01\0\0\x01\0\0\0\0",
            1009,
        ),
    ];
    for (name, bytes, expected) in cases {
        let mut client = open(&server);
        client.send(bytes);
        assert_eq!(close_code(&mut client), *expected, "{name}");
        // Ours has ended, so that a peer who never says Close is not kept.
        assert_eq!(client.read_to_end(), (Vec::new(), End::Closed), "{name}");
    }
    server.answers_within(SOON).expect("others are served");
}

#[test]
fn a_client_with_its_own_codec_agrees() {
    let server = Server::start(&[]);
    let python = std::env::var("JUSTAPI_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let output = Command::new(&python)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/http/websocket_client.py"
        ))
        .arg(server.address().port().to_string())
        .output()
        .expect("a Python interpreter");
    assert!(
        output.status.success(),
        "{python} needs tests/requirements.txt, as tests/run installs it; it said:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_socket_is_a_stream_of_http_2() {
    let server = Server::start(&[]);
    let mut connection = Http2::connect(server.address());
    let mut headers = connect("/ws", "websocket").to_vec();
    headers.push(("sec-websocket-protocol", "echo"));
    let outcome = exchange_over_h2(&mut connection, &headers, b"over h2");
    let Outcome::Response { status, body, .. } = &outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(*status, 200);
    assert_eq!(outcome.header("sec-websocket-protocol"), Some("echo"));
    assert_eq!(outcome.header("sec-websocket-accept"), None);
    assert_eq!(body.as_slice(), b"\x81\x07over h2\x88\x02\x03\xe8");
    assert_eq!(connection.get(3, "/hello").status(), Some(200));
}

/// An open socket of the demo on stream 1 of a connection, after one echo.
fn open_h2(connection: &mut Http2) {
    let block = hpack::encode(&connect("/ws", "websocket"));
    let bytes = h2_frame(kind::HEADERS, flag::END_HEADERS, 1, &block);
    connection.send(&bytes).expect("the server reads");
    // Streams are served in order: this answer comes after the other's.
    assert_eq!(connection.get(3, "/hello").status(), Some(200));
}

#[test]
fn a_stream_outlives_the_limits_of_http_and_is_drained() {
    let mut server = Server::start(&["--timeout-idle", "1s", "--timeout-header", "1s"]);
    let mut connections: Vec<Http2> = (0..3).map(|_| Http2::connect(server.address())).collect();
    for connection in &mut connections {
        open_h2(connection);
    }
    std::thread::sleep(Duration::from_millis(1500));
    let hello = h2_frame(kind::DATA, 0, 1, &frame(0x81, b"hi"));
    let close = h2_frame(kind::DATA, flag::END_STREAM, 1, &frame(0x88, b"\x03\xe9"));
    for connection in &mut connections {
        connection.send(&hello).expect("it is open");
        assert_eq!(connection.get(5, "/hello").status(), Some(200));
    }
    server.signal(Signal::TERM);
    for connection in &mut connections {
        assert_eq!(connection.wait_for_go_away(), Ok(0));
        connection.send(&close).expect("it is open");
        let outcome = connection.outcome(1);
        let Outcome::Response { body, .. } = &outcome else {
            panic!("{outcome:?}");
        };
        assert!(body.starts_with(b"\x81\x02hi\x88"), "{}", show(body));
        assert!(body.ends_with(b"the server goes down"), "{}", show(body));
    }
    assert_eq!(server.exit(SOON).code(), Some(0));
}

#[test]
fn an_extended_connect_that_nothing_takes_fails() {
    let server = Server::start(&[]);
    let cases = [
        ("/hello", "websocket", 501),
        ("/nowhere", "websocket", 404),
        ("/echo", "websocket", 405),
        ("/ws", "connect-udp", 400),
    ];
    for (path, protocol, expected) in cases {
        let mut connection = Http2::connect(server.address());
        let block = hpack::encode(&connect(path, protocol));
        let bytes = h2_frame(kind::HEADERS, flag::END_HEADERS, 1, &block);
        connection.send(&bytes).expect("the server reads");
        let status = connection.outcome(1).status();
        assert_eq!(status, Some(expected), "{protocol} {path}");
    }
    let mut connection = Http2::connect(server.address());
    let status = connection.get(1, "/ws").status();
    assert_eq!(status, Some(400), "a plain GET");
}

#[test]
fn a_drain_says_goodbye_to_every_socket() {
    let mut server = Server::start(&[]);
    let mut clients: Vec<Client> = (0..20).map(|_| open(&server)).collect();
    // One is in the middle of a message.
    clients[0].send(b"\x81\x85\0\0\0\0He");
    server.signal(Signal::TERM);
    for client in &mut clients {
        assert_eq!(close_code(client), 1001);
        client.send(frame(0x88, b"\x03\xe9"));
    }
    drop(clients);
    assert_eq!(server.exit(SOON).code(), Some(0));
}

#[test]
fn a_drain_does_not_wait_for_a_client_that_stays() {
    let mut server = Server::start(&[]);
    let mut client = open(&server);
    let start = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(close_code(&mut client), 1001);
    assert_eq!(server.exit(Duration::from_secs(8)).code(), Some(0));
    assert!(
        start.elapsed() >= SOON,
        "the client gets its time to answer"
    );
}

#[test]
fn a_socket_outlives_the_limits_of_http() {
    let server = Server::start(&["--timeout-idle", "1s", "--timeout-header", "1s"]);
    let mut client = open(&server);
    std::thread::sleep(Duration::from_millis(1500));
    client.send(frame(0x81, b"still here"));
    assert_eq!(read_frame(&mut client), (0x81, b"still here".to_vec()));
}

/// Many pings and no reading: the pongs are bounded, and others are served.
#[test]
fn a_flood_of_pings_costs_no_memory() {
    let server = Server::start(&[]);
    let mut client = open(&server);
    let before = crate::support::process::rss_bytes(server.pid());
    let pings = frame(0x89, &[b'p'; 125]).repeat(1000);
    client
        .stream()
        .set_write_timeout(Some(Duration::from_millis(300)))
        .expect("a timeout can be set");
    for _ in 0..400 {
        if client.stream().write_all(&pings).is_err() {
            break;
        }
    }
    let after = crate::support::process::rss_bytes(server.pid());
    let grown = after.saturating_sub(before);
    assert!(grown < 8 * 1024 * 1024, "{grown} bytes for 50 MB of pings");
    server.answers_within(SOON).expect("others are served");
}

/// Sockets that have compressed and decompressed, and now say nothing.
#[test]
fn idle_sockets_hold_no_compression_context() {
    const NUM_SOCKETS: u64 = 500;
    /// The connection's task with its handler; a context alone takes 300 KiB.
    const MAX_BYTES_EACH: u64 = 24 * 1024;
    let server = Server::start(&[]);
    let offer = handshake("/ws", "Sec-WebSocket-Extensions: permessage-deflate\r\n");
    let open_used = || {
        let mut client = server.connect();
        assert_eq!(client.ask(&offer).status, 101);
        client.send(frame(0xc1, &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]));
        assert_eq!(read_frame(&mut client), (0x81, b"Hello".to_vec()));
        client.send(frame(0x81, &[b'a'; 100]));
        assert_eq!(read_frame(&mut client).0, 0xc1, "it is worth compressing");
        client
    };
    // The first ones make what each lane keeps.
    let mut sockets: Vec<Client> = (0..20).map(|_| open_used()).collect();
    let before = crate::support::process::rss_bytes(server.pid());
    sockets.extend((0..NUM_SOCKETS).map(|_| open_used()));
    let after = crate::support::process::rss_bytes(server.pid());
    let each = after.saturating_sub(before) / NUM_SOCKETS;
    assert!(each <= MAX_BYTES_EACH, "{each} bytes each");
}
