//! A stop signal meets connections in every state they can be in at once: each
//! gets what it is owed, and none holds the server.

use std::io::Read as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::drain::{start_upload, wait_for_drain};
use crate::files::Site;
use crate::support::certificates::{Authority, handshake};
use crate::support::client::{Client, End, ReadError, get};
use crate::support::hpack;
use crate::support::http2::{Http2, flag, frame, kind, method};
use crate::support::server::Server;
use crate::support::websocket::upgrade;

/// Far below the grace time, and above the deadline of a head.
const SOON: Duration = Duration::from_secs(10);
const FILE_BYTES: usize = 8 * 1024 * 1024;

/// A client that has read the head of an answer whose body goes on.
fn start_answer(server: &Server, path: &str) -> Client {
    let mut client = server.connect();
    client.send(get(path));
    assert_eq!(client.read_head().map(|head| head.status), Ok(200));
    client
}

/// A client whose answer overtook its body, most of which never comes.
fn start_unread_body(server: &Server) -> Client {
    let mut client = server.connect();
    client.send("POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nfirst");
    assert_eq!(client.read().map(|answer| answer.status), Ok(405));
    client
}

#[test]
fn every_state_of_a_connection_ends_as_it_should() {
    let site = Site::new(&["--graceful", "20s", "--timeout-header", "2s"]);
    site.write("large", vec![b'x'; FILE_BYTES]);
    let server = &site.server;

    let mut silent = server.connect();
    let mut idle = server.connect();
    assert_eq!(idle.get("/hello").status, 200);
    let mut in_handler = start_upload(server);
    let mut pipelined = start_upload(server);
    let mut download = start_answer(server, "/files/large");
    let mut events = start_answer(server, "/events?interval_ms=1");
    let mut unread_body = start_unread_body(server);
    let mut socket = server.connect();
    upgrade(&mut socket, "/ws");
    let mut stream = Http2::connect(server.address());
    let block = hpack::encode(&method("POST", "/echo"));
    let half = [
        frame(kind::HEADERS, flag::END_HEADERS, 1, &block),
        frame(kind::DATA, 0, 1, b"[1"),
    ];
    stream.send(&half.concat()).expect("the server reads");
    // Streams begin in order: this answer proves that the first was seen.
    assert_eq!(stream.get(3, "/hello").status(), Some(200));
    let mut half_head = server.connect();
    half_head.send("GET /hello HTTP/1.1\r\nHo");
    let mut stuck_head = server.connect();
    stuck_head.send("GET /hello HTTP/1.1\r\nHo");

    let start = Instant::now();
    server.signal(Signal::TERM);
    wait_for_drain(server);

    for client in [&mut silent, &mut idle] {
        assert_eq!(client.read(), Err(ReadError::Nothing(End::Closed)));
    }
    half_head.send("st: a\r\n\r\n");
    let answer = half_head.read().expect("it was on its way");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("connection"), Some("close"));
    let answer = stuck_head.read().expect("its deadline has an answer");
    assert_eq!(answer.status, 408);
    in_handler.send("]");
    let answer = in_handler.read().expect("it was being served");
    assert_eq!((answer.status, answer.text().as_str()), (200, "[1]"));
    // What was asked behind a last answer is not begun.
    pipelined.send("]GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = pipelined.read().expect("it was being served");
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(pipelined.read(), Err(ReadError::Nothing(End::Closed)));
    let (body, end) = download.read_to_end();
    assert_eq!((body.len(), end), (FILE_BYTES, End::Closed));
    while events.read_chunk().expect("a clean end").is_some() {}
    assert_eq!(unread_body.read_to_end(), (Vec::new(), End::Closed));
    let mut head = [0; 4];
    socket
        .stream()
        .read_exact(&mut head)
        .expect("a Close frame");
    assert_eq!(head[0], 0x88);
    assert_eq!(u16::from_be_bytes([head[2], head[3]]), 1001);
    socket.send(b"\x88\x82\0\0\0\0\x03\xe9");
    assert_eq!(stream.wait_for_go_away(), Ok(0));
    let rest = frame(kind::DATA, flag::END_STREAM, 1, b"]");
    stream.send(&rest).expect("the stream is open");
    assert_eq!(stream.outcome(1).text(), "[1]");
    assert_ne!(stream.read_to_end().1, End::StillOpen);
    drop(socket);

    let mut site = site;
    assert_eq!(site.server.exit(SOON).code(), Some(0));
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[test]
fn tls_connections_in_every_state_end_too() {
    let authority = Authority::new();
    let (certificate, key) = authority.server_files();
    let mut server = Server::start(&[
        "--tls-cert",
        &certificate,
        "--tls-key",
        &key,
        "--timeout-tls",
        "2s",
        "--graceful",
        "20s",
    ]);
    let connect = |alpn: &[&str]| {
        handshake(server.address(), &authority.client(alpn, None)).expect("a handshake")
    };
    // Nothing of a handshake, and the first bytes of one.
    let mut untouched = server.connect();
    let mut begun = server.connect();
    begun.send(b"\x16\x03\x01");
    let mut silent = Client::over(connect(&["http/1.1"]));
    let mut idle = Client::over(connect(&["http/1.1"]));
    assert_eq!(idle.get("/hello").status, 200);
    let mut events = Client::over(connect(&["http/1.1"]));
    events.send(get("/events?interval_ms=1"));
    assert_eq!(events.read_head().map(|head| head.status), Ok(200));
    let mut half_head = Client::over(connect(&["http/1.1"]));
    half_head.send("GET /hello HTTP/1.1\r\nHo");
    let mut stream = Http2::over(connect(&["h2"]));
    assert_eq!(stream.get(1, "/hello").status(), Some(200));

    let start = Instant::now();
    server.signal(Signal::TERM);
    while events.read_chunk().expect("a clean end").is_some() {}
    half_head.send("st: a\r\n\r\n");
    assert_eq!(half_head.read().map(|answer| answer.status), Ok(200));
    // A close without a notice would be an error of the TLS client.
    for client in [&mut silent, &mut idle] {
        assert_eq!(client.read(), Err(ReadError::Nothing(End::Closed)));
    }
    assert_eq!(stream.wait_for_go_away(), Ok(0));
    assert_ne!(stream.read_to_end().1, End::StillOpen);
    for client in [&mut untouched, &mut begun] {
        assert_ne!(client.read_to_end().1, End::StillOpen);
    }
    drop((silent, idle, events, half_head, stream));
    assert_eq!(server.exit(SOON).code(), Some(0));
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}
