//! TLS: ALPN binds the protocol, client certificates bind the client.
//!
//! A peer that does not finish its handshake costs a socket for the handshake
//! deadline, and nothing after it.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};
use socket2::{Domain, Socket, Type};

use crate::support::certificates::{Authority, TlsStream, handshake, handshake_over};
use crate::support::client::{Client, End, get, post};
use crate::support::eventually;
use crate::support::http2::{Http2, PREFACE};
use crate::support::server::Server;

/// A TLS server with extra flags, and the authority of its certificate.
fn start(flags: &[&str]) -> (Server, Authority) {
    let authority = Authority::new();
    (start_under(&authority, flags), authority)
}

fn start_under(authority: &Authority, flags: &[&str]) -> Server {
    let (certificate, key) = authority.server_files();
    Server::start(&[&["--tls-cert", &certificate, "--tls-key", &key], flags].concat())
}

fn connect(server: &Server, config: &Arc<ClientConfig>) -> TlsStream {
    handshake(server.address(), config).expect("the handshake succeeds")
}

#[test]
fn http_1_is_served_with_and_without_alpn() {
    let (server, authority) = start(&[]);
    for alpn in [&[][..], &["http/1.1"], &["http/1.1", "unknown"]] {
        let mut client = Client::over(connect(&server, &authority.client(alpn, None)));
        for _ in 0..3 {
            assert_eq!(client.get("/hello").status, 200, "{alpn:?}");
        }
    }
}

#[test]
fn http_2_is_preferred_and_served() {
    let (server, authority) = start(&[]);
    for alpn in [&["h2"][..], &["h2", "http/1.1"], &["http/1.1", "h2"]] {
        let stream = connect(&server, &authority.client(alpn, None));
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]), "{alpn:?}");
        assert_eq!(
            Http2::over(stream).get(1, "/hello").status(),
            Some(200),
            "{alpn:?}"
        );
    }
}

#[test]
fn after_alpn_h2_an_http_1_request_is_not_served() {
    let (server, authority) = start(&[]);
    let mut client = Client::over(connect(&server, &authority.client(&["h2"], None)));
    client.send(get("/hello"));
    let (bytes, end) = client.read_to_end();
    assert!(!bytes.starts_with(b"HTTP/1"), "{}", bytes.escape_ascii());
    assert_ne!(end, End::StillOpen);
}

#[test]
fn after_alpn_http_1_the_http_2_preface_is_not_served() {
    let (server, authority) = start(&[]);
    for alpn in [&["http/1.1"][..], &[]] {
        let mut client = Client::over(connect(&server, &authority.client(alpn, None)));
        client.send(PREFACE);
        client.send(crate::support::http2::frame(4, 0, 0, &[]));
        let (bytes, end) = client.read_to_end();
        let is_http_2 = bytes.get(3) == Some(&4) && !bytes.starts_with(b"HTTP");
        assert!(!is_http_2, "{alpn:?}: {}", bytes.escape_ascii());
        assert_ne!(end, End::StillOpen, "{alpn:?}");
    }
}

#[test]
fn an_unknown_protocol_is_an_alert() {
    let (server, authority) = start(&[]);
    let error = handshake(server.address(), &authority.client(&["spdy/3"], None))
        .expect_err("no common protocol");
    assert!(
        error.to_string().contains("NoApplicationProtocol"),
        "{error}"
    );
    server_still_answers(&server, &authority);
}

fn server_still_answers(server: &Server, authority: &Authority) {
    let mut client = Client::over(connect(server, &authority.client(&[], None)));
    assert_eq!(client.get("/hello").status, 200);
}

#[test]
fn a_half_handshake_is_closed_at_its_deadline() {
    let (server, authority) = start(&["--timeout-tls", "300ms"]);
    let hello = client_hello(&authority);
    for length in [0, 1, 5, hello.len() - 1, hello.len()] {
        let start = Instant::now();
        let mut client = server.connect();
        client.send(&hello[..length]);
        let (_, end) = client.read_to_end();
        let elapsed = start.elapsed();
        assert_ne!(end, End::StillOpen, "{length} bytes");
        let is_due = Duration::from_millis(250)..Duration::from_millis(1500);
        assert!(is_due.contains(&elapsed), "{length} bytes: {elapsed:?}");
    }
    server_still_answers(&server, &authority);
}

/// Its client was let in before the drain, and has had no time to ask.
#[test]
fn a_handshake_that_ends_while_the_server_drains_is_served() {
    let (mut server, authority) = start(&[]);
    let name = "localhost".try_into().expect("a valid name");
    let mut connection =
        ClientConnection::new(authority.client(&[], None), name).expect("a valid configuration");
    let mut socket = server.connect().stream().try_clone().unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    socket.write_all(&hello[..5]).unwrap();
    server.signal(Signal::TERM);
    // The pace of the client here and below, not a wait for the server.
    std::thread::sleep(Duration::from_millis(500));
    socket.write_all(&hello[5..]).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(&mut socket).unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    let mut client = Client::over(TlsStream::new(connection, socket));
    let response = client.get("/hello");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(server.exit(Duration::from_secs(2)).code(), Some(0));
}

/// After the handshake the deadline of the first head holds.
#[test]
fn a_silent_client_is_closed_at_the_header_deadline() {
    let (server, authority) = start(&["--timeout-header", "300ms"]);
    let mut stream = connect(&server, &authority.client(&[], None));
    let start = Instant::now();
    let mut bytes = Vec::new();
    stream
        .read_to_end(&mut bytes)
        .expect("closed with close_notify");
    assert_eq!(bytes, b"");
    assert!(start.elapsed() < Duration::from_millis(1500));
}

#[test]
fn a_handshake_in_single_bytes_succeeds() {
    let (server, authority) = start(&[]);
    let mut client = server.connect();
    for byte in client_hello(&authority) {
        client.send([byte]);
    }
    let mut answer = [0; 6];
    client.stream().read_exact(&mut answer).unwrap();
    // A handshake record that holds a ServerHello.
    assert_eq!((answer[0], answer[5]), (22, 2));
}

#[test]
fn plain_http_is_not_served_on_a_tls_port() {
    let (server, authority) = start(&[]);
    let mut client = server.connect();
    client.send(get("/hello"));
    let (bytes, end) = client.read_to_end();
    assert!(
        !bytes.starts_with(b"HTTP/1.1 200"),
        "{}",
        bytes.escape_ascii()
    );
    assert_ne!(end, End::StillOpen);
    server_still_answers(&server, &authority);
}

/// Without `close_notify` a client cannot tell the end from an attack.
#[test]
fn a_close_is_announced() {
    let (server, authority) = start(&[]);
    let mut client = Client::over(connect(&server, &authority.client(&[], None)));
    let response = client.ask("GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(response.status, 200);
    assert_eq!(client.read_to_end(), (Vec::new(), End::Closed));
}

#[test]
fn a_client_certificate_is_required_when_an_authority_is_named() {
    let authority = Authority::new();
    let server = start_under(&authority, &["--tls-client-ca", &authority.file()]);
    let own = authority.issue("client");
    let mut client = Client::over(connect(&server, &authority.client(&[], Some(&own))));
    assert_eq!(client.get("/hello").status, 200);
    let foreign = Authority::new().issue("client");
    for identity in [None, Some(&foreign)] {
        // TLS 1.3 tells the client only after its own handshake is complete.
        let answer = handshake(server.address(), &authority.client(&[], identity));
        let Ok(stream) = answer else { continue };
        let mut client = Client::over(stream);
        client.send(get("/hello"));
        assert!(client.read().is_err(), "served without a valid certificate");
    }
    assert_eq!(client.get("/hello").status, 200);
}

#[test]
fn sessions_are_resumed_on_every_lane() {
    let (server, authority) = start(&["--lanes", "2"]);
    let config = authority.client(&[], None);
    let mut kinds = Vec::new();
    for _ in 0..8 {
        let mut client = Client::over(connect(&server, &config));
        assert_eq!(client.get("/hello").status, 200);
        kinds.push(client.stream().conn.handshake_kind());
    }
    assert_eq!(kinds[0], Some(HandshakeKind::Full));
    assert!(
        kinds[1..]
            .iter()
            .all(|kind| *kind == Some(HandshakeKind::Resumed)),
        "{kinds:?}"
    );
}

/// TLS takes the last bytes of an answer before the socket does: for some
/// sizes only a flush waits for the client.
#[test]
fn a_reader_that_stops_is_cut_off_whatever_the_size_of_its_answer() {
    let (server, authority) = start(&["--timeout-write", "300ms"]);
    let config = authority.client(&[], None);
    let sizes = (1..32).map(|index| index * 16 * 1024);
    let held: Vec<TlsStream> = sizes
        .map(|bytes| ask_and_stop(&server, &config, bytes))
        .collect();
    eventually(Duration::from_secs(4), "every connection is gone", || {
        let mut client = Client::over(connect(&server, &config));
        let metrics = client.get("/metrics").text();
        metrics.contains("\njustapi_connections 1\n").then_some(())
    });
    drop(held);
}

/// A last request for an answer of this size, of which nothing is read.
fn ask_and_stop(server: &Server, config: &Arc<ClientConfig>, num_bytes: usize) -> TlsStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    // Both keep the kernel from taking megabytes for the client.
    socket.set_tcp_mss(536).expect("a valid size");
    socket.set_recv_buffer_size(4096).expect("a valid size");
    socket
        .connect(&server.address().into())
        .expect("the server accepts connections");
    let mut stream = handshake_over(socket.into(), config).expect("the handshake succeeds");
    let json = format!("\"{}\"", "a".repeat(num_bytes - 2));
    let request = post("/echo", &json).replacen("Host:", "Connection: close\r\nHost:", 1);
    stream
        .write_all(request.as_bytes())
        .and_then(|()| stream.flush())
        .expect("the server reads");
    stream
}

#[test]
fn large_bodies_pass() {
    let (server, authority) = start(&[]);
    let mut client = Client::over(connect(&server, &authority.client(&[], None)));
    let json = format!("\"{}\"", "a".repeat(1_000_000));
    let response = client.ask(post("/echo", &json));
    assert_eq!((response.status, response.body.len()), (200, json.len()));
}

fn client_hello(authority: &Authority) -> Vec<u8> {
    let name = "localhost".try_into().expect("a valid name");
    let mut connection =
        ClientConnection::new(authority.client(&[], None), name).expect("a valid configuration");
    let mut bytes = Vec::new();
    connection
        .write_tls(&mut bytes)
        .expect("a vector takes all bytes");
    bytes
}
