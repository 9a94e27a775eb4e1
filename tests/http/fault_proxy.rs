//! Every protocol through a network that cuts, delays, stalls and resets.
//!
//! What arrives is what would have arrived without; what cannot arrive costs
//! its own connection only, and leaves nothing behind.

use std::net::SocketAddr;
use std::time::Duration;

use crate::files::Site;
use crate::support::client::{Client, End, ReadError, get, post, show};
use crate::support::fault_proxy::{Cut, FaultProxy, Faults};
use crate::support::http2::{
    Http2, PREFACE, frame as h2_frame, get as h2_get, kind, method, request as h2_request,
};
use crate::support::process;
use crate::support::server::Server;
use crate::support::websocket::{close_code, frame as ws_frame, handshake, read_frame, upgrade};
use crate::support::{Failures, eventually};

/// Requests of every kind, the last of which closes.
fn conversation() -> String {
    let json = format!("[\"{}\"]", "x".repeat(9000));
    [
        get("/hello"),
        post("/echo", "{\"a\":1}"),
        post("/echo", &json),
        "POST /anything HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
            .to_owned(),
        "HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        get("/files/large"),
        get("/none"),
        get("/files/empty"),
        get("/events?count=3&interval_ms=1"),
        "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(),
        "GET /anything HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned(),
    ]
    .concat()
}

fn site(flags: &[&str]) -> Site {
    let site = Site::new(flags);
    site.write("large", "0123456789".repeat(20_000));
    site.write("empty", "");
    site
}

/// All answers to `conversation`, without their dates and request ids.
fn answers(mut client: Client) -> Result<String, String> {
    client.send(conversation());
    match client.read_to_end() {
        (bytes, End::Closed) => {
            let text = String::from_utf8_lossy(&bytes);
            let is_changing =
                |line: &&str| line.starts_with("date: ") || line.starts_with("x-request-id: ");
            Ok(text
                .split_inclusive('\n')
                .filter(|line| !is_changing(line))
                .collect())
        }
        (bytes, end) => Err(format!("{end:?} after {} bytes", bytes.len())),
    }
}

/// Waits until the connection that asks is the only one.
fn is_alone(server: &Server) {
    eventually(Duration::from_secs(5), "no connection is left", || {
        let metrics = server.get("/metrics").text();
        metrics.contains("\njustapi_connections 1\n").then_some(())
    });
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("\njustapi_panics_total 0\n"), "{metrics}");
}

#[test]
fn a_network_that_cuts_small_changes_no_answer() {
    let site = site(&[]);
    let expected = answers(site.server.connect()).expect("a clean end");
    assert_eq!(expected.matches("HTTP/1.").count(), 11, "{expected}");
    let mut failures = Failures::default();
    for (to_server, to_client) in [
        (Faults::pieces(1), Faults::NONE),
        (Faults::pieces(7), Faults::pieces(1000)),
        (Faults::NONE, Faults::pieces(13)),
        (
            Faults {
                delay: Duration::from_micros(200),
                ..Faults::pieces(31)
            },
            Faults::NONE,
        ),
    ] {
        let proxy = FaultProxy::start(site.server.address(), to_server, to_client);
        let result = match answers(Client::connect(proxy.address())) {
            Ok(received) if received == expected => Ok(()),
            Ok(received) => Err(format!(
                "{} bytes: {}",
                received.len(),
                show(received.as_bytes())
            )),
            Err(error) => Err(error),
        };
        failures.case(&format!("{to_server:?} {to_client:?}"), result);
    }
    failures.finish();
    is_alone(&site.server);
}

/// Faults in either direction that lose nothing.
fn lossless() -> [(Faults, Faults); 4] {
    let slow = |piece_bytes| Faults {
        delay: Duration::from_micros(200),
        ..Faults::pieces(piece_bytes)
    };
    [
        (Faults::pieces(1), Faults::pieces(1)),
        (Faults::pieces(7), Faults::pieces(1000)),
        (slow(31), Faults::NONE),
        (Faults::NONE, slow(13)),
    ]
}

/// Requests with and without bodies over one connection of HTTP/2.
fn check_http_2(address: SocketAddr) -> Result<(), String> {
    let mut connection = Http2::connect(address);
    let hello = connection.get(1, "/hello");
    let json = format!("[\"{}\"]", "x".repeat(9000));
    let echo = connection.ask(3, &method("POST", "/echo"), json.as_bytes());
    let events = connection.get(5, "/events?count=3&interval_ms=1");
    let is_fine = hello.status() == Some(200)
        && echo.text() == json
        && events.text().matches("data:").count() == 3;
    is_fine
        .then_some(())
        .ok_or_else(|| format!("{hello:?} {echo:?} {events:?}"))
}

/// A text in two fragments, and one of 9,000 bytes, come back.
fn check_websocket(address: SocketAddr) -> Result<(), String> {
    let mut socket = Client::connect(address);
    upgrade(&mut socket, "/ws");
    let long = [b'y'; 9000];
    socket.send([ws_frame(0x01, b"he"), ws_frame(0x80, b"llo")].concat());
    socket.send(ws_frame(0x82, &long));
    for echo in [(0x81, &b"hello"[..]), (0x82, &long)] {
        let (first, payload) = read_frame(&mut socket);
        if (first, &payload[..]) != echo {
            return Err(format!("{first:#x} {}", show(&payload)));
        }
    }
    socket.send(ws_frame(0x88, b"\x03\xe8"));
    match close_code(&mut socket) {
        1000 => Ok(()),
        other => Err(format!("closed with {other}")),
    }
}

#[test]
fn http_2_and_websockets_pass_a_network_that_cuts_and_delays() {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    for (to_server, to_client) in lossless() {
        let proxy = FaultProxy::start(server.address(), to_server, to_client);
        let name = format!("{to_server:?} {to_client:?}");
        failures.case(&format!("HTTP/2 {name}"), check_http_2(proxy.address()));
        failures.case(&format!("socket {name}"), check_websocket(proxy.address()));
    }
    failures.finish();
    is_alone(&server);
}

/// What a client of HTTP/2 sends for one request with a body.
fn http_2_upload() -> Vec<u8> {
    let settings = h2_frame(kind::SETTINGS, 0, 0, &[]);
    let upload = h2_request(1, &method("POST", "/anything"), b"hello");
    [PREFACE, &settings, &upload].concat()
}

/// What a client of a WebSocket sends for one message of two fragments.
fn socket_message() -> Vec<u8> {
    let handshake = handshake("/ws", "").into_bytes();
    [handshake, ws_frame(0x01, b"he"), ws_frame(0x80, b"llo")].concat()
}

const CUTS: [Cut; 4] = [Cut::HalfClose, Cut::Close, Cut::Reset, Cut::Stall];

/// At every byte, in every way: no answer looks complete, the connection is
/// ended, others are served, and nothing stays.
fn check_cuts_of(sent: &[u8], never: &[u8]) {
    let flags = [
        "--timeout-header=1s",
        "--timeout-idle=1s",
        "--timeout-body=1s",
        "--timeout-write=1s",
        "--ws-ping=500ms",
        "--ws-pong=500ms",
    ];
    let server = Server::start(&flags);
    let mut failures = Failures::default();
    for cut in CUTS {
        let start =
            |after| FaultProxy::start(server.address(), Faults::cut(after, cut), Faults::NONE);
        let proxies: Vec<_> = (0..sent.len()).map(start).collect();
        let open = |proxy: &FaultProxy| {
            let mut client = Client::connect(proxy.address());
            client.send(sent);
            client
        };
        let clients: Vec<_> = proxies.iter().map(open).collect();
        for (after, mut client) in clients.into_iter().enumerate() {
            let (bytes, end) = client.read_to_end();
            let is_answered = bytes.windows(never.len()).any(|part| part == never);
            let result = match (end, is_answered) {
                (End::StillOpen, _) => Err("no end".to_owned()),
                (_, true) => Err(format!("an answer: {}", show(&bytes))),
                _ => Ok(()),
            };
            failures.case(&format!("{cut:?} after {after}"), result);
        }
        server
            .answers_within(Duration::from_secs(1))
            .unwrap_or_else(|error| panic!("{error}"));
    }
    failures.finish();
    is_alone(&server);
}

#[test]
fn a_request_of_http_2_that_breaks_off_costs_only_itself() {
    // What the demo says of a body that was complete.
    check_cuts_of(&http_2_upload(), b"\"body_length\":5");
}

#[test]
fn a_message_that_breaks_off_costs_only_its_socket() {
    check_cuts_of(&socket_message(), b"\x81\x05hello");
}

/// Wherever what the server sends breaks off, it finds out and keeps nothing.
#[test]
fn answers_of_http_2_and_sockets_that_break_off_leave_nothing_behind() {
    let flags = [
        "--timeout-idle=1s",
        "--timeout-write=1s",
        "--sse-keep-alive=100ms",
        "--ws-ping=500ms",
        "--ws-pong=500ms",
    ];
    let server = Server::start(&flags);
    let settings = h2_frame(kind::SETTINGS, 0, 0, &[]);
    let events = h2_request(1, &h2_get("/events?interval_ms=10"), b"");
    let stream = [PREFACE, &settings, &events].concat();
    let echo = [
        handshake("/ws", "").into_bytes(),
        ws_frame(0x81, &[b'e'; 500]),
    ]
    .concat();
    for (name, sent) in [("stream", stream), ("socket", echo)] {
        for cut in CUTS {
            let start =
                |after| FaultProxy::start(server.address(), Faults::NONE, Faults::cut(after, cut));
            let proxies: Vec<_> = (0..300).step_by(3).map(start).collect();
            let clients: Vec<_> = proxies
                .iter()
                .map(|proxy| {
                    let mut client = Client::connect(proxy.address());
                    client.send(&sent);
                    client
                })
                .collect();
            server
                .answers_within(Duration::from_secs(1))
                .unwrap_or_else(|error| panic!("{name} {cut:?}: {error}"));
            drop((clients, proxies));
            is_alone(&server);
        }
    }
}

/// Wherever a request breaks off, and however, others are served, and nothing
/// of it stays.
#[test]
fn a_request_that_breaks_off_costs_only_itself() {
    let flags = ["--timeout-header", "1s", "--timeout-body", "1s"];
    let server = Server::start(&flags);
    let request = "POST /anything HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5\r\nhello\r\n0\r\n\r\n";
    let mut failures = Failures::default();
    for cut in CUTS {
        let proxies: Vec<_> = (0..request.len())
            .map(|after| FaultProxy::start(server.address(), Faults::cut(after, cut), Faults::NONE))
            .collect();
        let clients: Vec<_> = proxies
            .iter()
            .map(|proxy| {
                let mut client = Client::connect(proxy.address());
                client.send(request);
                client
            })
            .collect();
        for (after, mut client) in clients.into_iter().enumerate() {
            let is_fine = match client.read() {
                Err(ReadError::Nothing(End::StillOpen)) => false,
                Err(ReadError::Nothing(_)) => true,
                Err(_) => false,
                Ok(response) => matches!(response.status, 400 | 408),
            };
            let result = if is_fine {
                Ok(())
            } else {
                Err("no end".to_owned())
            };
            failures.case(&format!("{cut:?} after {after}"), result);
        }
        server
            .answers_within(Duration::from_secs(1))
            .unwrap_or_else(|error| panic!("{error}"));
    }
    failures.finish();
    is_alone(&server);
}

/// Wherever an answer breaks off: the server finds out, and keeps nothing.
#[test]
fn an_answer_that_breaks_off_leaves_nothing_behind() {
    let site = site(&["--timeout-write", "1s", "--sse-keep-alive", "100ms"]);
    site.write("huge", vec![b'x'; 16 * 1024 * 1024]);
    let mut failures = Failures::default();
    for path in ["/files/huge", "/events?interval_ms=10"] {
        for cut in [Cut::HalfClose, Cut::Close, Cut::Reset, Cut::Stall] {
            for after in [0, 1, 100, 150, 300] {
                let proxy =
                    FaultProxy::start(site.server.address(), Faults::NONE, Faults::cut(after, cut));
                let mut client = Client::connect(proxy.address());
                client.set_patience(Duration::from_millis(50));
                client.send(get(path));
                let complete = client.read().is_ok();
                let result = if complete {
                    Err("looked complete".to_owned())
                } else {
                    Ok(())
                };
                failures.case(&format!("{path} {cut:?} after {after}"), result);
            }
        }
    }
    failures.finish();
    is_alone(&site.server);
}

/// A stalled or half-closed peer is waited for without work.
#[test]
fn waiting_for_a_peer_costs_no_cpu() {
    let server = Server::start(&[]);
    let slow = get("/events?interval_ms=60000");
    let upload = "POST /anything HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf";
    let cases = [
        (slow.as_str(), Faults::cut(slow.len(), Cut::HalfClose)),
        (slow.as_str(), Faults::cut(slow.len(), Cut::Stall)),
        (upload, Faults::cut(upload.len(), Cut::Stall)),
        (upload, Faults::cut(upload.len() - 10, Cut::Stall)),
        ("GET /hello HTTP/1.1\r\nHo", Faults::NONE),
    ];
    let held: Vec<_> = cases
        .iter()
        .map(|(request, to_server)| {
            let proxy = FaultProxy::start(server.address(), *to_server, Faults::NONE);
            let mut client = Client::connect(proxy.address());
            client.send(request);
            (proxy, client)
        })
        .collect();
    eventually(Duration::from_secs(2), "all are connected", || {
        let metrics = server.get("/metrics").text();
        metrics.contains("\njustapi_connections 6\n").then_some(())
    });
    let before = process::cpu(server.pid());
    // A window of measurement, not a wait for the server.
    std::thread::sleep(Duration::from_secs(2));
    let cost = process::cpu(server.pid()).saturating_sub(before);
    assert!(cost < Duration::from_millis(20), "{cost:?} in 2 s");
    drop(held);
}
