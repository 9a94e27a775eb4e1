//! What travels inside TLS: records cut anywhere, slow readers, new keys, the
//! last word of either side, WebSocket, and the end of the server.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use rustls::ClientConfig;
use socket2::{Domain, Socket, Type};

use crate::support::certificates::{Authority, TlsStream, handshake, handshake_over};
use crate::support::client::{Client, End, get, post};
use crate::support::server::Server;
use crate::support::websocket::upgrade;

const SOON: Duration = Duration::from_secs(2);

fn start(flags: &[&str]) -> (Server, Arc<ClientConfig>) {
    let authority = Authority::new();
    let (certificate, key) = authority.server_files();
    let flags = [&["--tls-cert", &certificate, "--tls-key", &key], flags].concat();
    (Server::start(&flags), authority.client(&[], None))
}

fn connect(server: &Server, config: &Arc<ClientConfig>) -> Client<TlsStream> {
    Client::over(handshake(server.address(), config).expect("the handshake succeeds"))
}

/// The records of the client for `plain`, not sent yet.
fn sealed(stream: &mut TlsStream, plain: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    stream
        .conn
        .writer()
        .write_all(plain)
        .expect("memory takes it");
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut wire).expect("memory takes it");
    }
    wire
}

#[test]
fn a_record_that_comes_in_single_bytes_is_one_request() {
    let (server, config) = start(&[]);
    let mut client = connect(&server, &config);
    let stream = client.stream();
    stream.sock.set_nodelay(true).unwrap();
    for _ in 0..3 {
        let stream = client.stream();
        for byte in sealed(stream, get("/hello").as_bytes()) {
            stream.sock.write_all(&[byte]).unwrap();
        }
        assert_eq!(client.read().expect("an answer").status, 200);
    }
}

#[test]
fn a_request_of_single_byte_records_is_one_request() {
    let (server, config) = start(&[]);
    let mut client = connect(&server, &config);
    let request = post("/echo", &format!("\"{}\"", "a".repeat(3_000)));
    let stream = client.stream();
    let mut wire = Vec::new();
    for byte in request.as_bytes().chunks(1) {
        wire.extend(sealed(stream, byte));
    }
    stream.sock.write_all(&wire).unwrap();
    let response = client.read().expect("an answer");
    assert_eq!((response.status, response.body.len()), (200, 3_002));
}

#[test]
fn requests_that_share_a_record_are_answered_in_order() {
    let (server, config) = start(&[]);
    let mut client = connect(&server, &config);
    let requests: String = (0..50)
        .map(|index| get(&format!("/anything/{index}")))
        .collect();
    client.send(requests);
    for index in 0..50 {
        let text = client.read().expect("an answer").text();
        assert!(text.contains(&format!("/anything/{index}\"")), "{text}");
    }
}

/// The socket takes part of a write; the rest follows when the reader goes on.
#[test]
fn a_slow_reader_gets_everything() {
    let (server, config) = start(&[]);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&server.address().into()).unwrap();
    let mut stream = handshake_over(socket.into(), &config).unwrap();
    let numbers = (0..100_000).map(|index| format!("{index:06},"));
    let body = numbers.collect::<Vec<_>>().concat();
    // The answer is made while nothing of it is read.
    let json = format!("\"{body}\"");
    stream.write_all(post("/echo", &json).as_bytes()).unwrap();
    stream.flush().unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 700];
    while !answer.ends_with(&json.as_bytes()[json.len() - 8..]) {
        let length = stream.read(&mut piece).unwrap();
        assert_ne!(length, 0, "cut off after {}", answer.len());
        answer.extend_from_slice(&piece[..length]);
    }
    assert!(answer.ends_with(json.as_bytes()));
    let mut client = Client::over(stream);
    assert_eq!(client.get("/hello").status, 200);
}

#[test]
fn new_keys_of_the_client_are_answered_with_new_keys() {
    let (server, config) = start(&[]);
    let mut client = connect(&server, &config);
    for _ in 0..10 {
        client.stream().conn.refresh_traffic_keys().unwrap();
        assert_eq!(client.get("/hello").status, 200);
    }
}

#[test]
fn a_client_that_says_its_last_word_gets_its_answer() {
    let (server, config) = start(&[]);
    let mut client = connect(&server, &config);
    client.send(get("/hello"));
    client.stream().conn.send_close_notify();
    client.stream().flush().unwrap();
    assert_eq!(client.read().expect("an answer").status, 200);
    assert_eq!(client.read_to_end(), (Vec::new(), End::Closed));
}

/// Who cuts a connection must not decide what a body is.
#[test]
fn an_end_without_a_last_word_is_no_end_of_a_request() {
    let (server, config) = start(&[]);
    let mut client = connect(&server, &config);
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\ntru");
    let socket = &client.stream().sock;
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let (bytes, _) = client.read_to_end();
    assert_eq!(bytes, b"");
    assert_eq!(connect(&server, &config).get("/hello").status, 200);
}

#[test]
fn a_record_that_was_changed_ends_the_connection() {
    let (server, config) = start(&[]);
    let mut client = connect(&server, &config);
    assert_eq!(client.get("/hello").status, 200);
    let stream = client.stream();
    let mut wire = sealed(stream, get("/hello").as_bytes());
    *wire.last_mut().unwrap() ^= 1;
    stream.sock.write_all(&wire).unwrap();
    let error = stream.read(&mut [0; 100]).expect_err("an alert");
    assert!(error.to_string().contains("BadRecordMac"), "{error}");
    assert_eq!(connect(&server, &config).get("/hello").status, 200);
}

#[test]
fn websocket_messages_are_echoed() {
    let (server, config) = start(&[]);
    let mut client = connect(&server, &config);
    upgrade(&mut client, "/ws");
    for length in [0, 1, 125] {
        let payload = b"w".repeat(length);
        // The mask is zero, so that the bytes stay as they are.
        let head = [0x81, 0x80 | u8::try_from(length).unwrap(), 0, 0, 0, 0];
        client.send([&head[..], &payload].concat());
        let mut echo = vec![0; 2 + length];
        client.stream().read_exact(&mut echo).expect("an echo");
        assert_eq!(echo[2..], payload);
    }
    client.send([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]);
    let (bytes, end) = client.read_to_end();
    assert_eq!((bytes, end), (vec![0x88, 2, 0x03, 0xe8], End::Closed));
}

#[test]
fn what_is_in_flight_is_finished_when_the_server_stops() {
    let (mut server, config) = start(&[]);
    let mut busy = connect(&server, &config);
    let mut idle = connect(&server, &config);
    assert_eq!(idle.get("/hello").status, 200);
    busy.send(
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nExpect: 100-continue\r\n\r\n",
    );
    // The handler waits for the body once the interim answer is here.
    let mut interim = [0; 25];
    busy.stream().read_exact(&mut interim).expect("100");
    assert!(interim.starts_with(b"HTTP/1.1 100"));
    server.signal(Signal::TERM);
    assert_eq!(idle.read_to_end(), (Vec::new(), End::Closed));
    busy.send("\"late\"");
    let response = busy.read().expect("an answer");
    assert_eq!((response.status, &*response.body), (200, &b"\"late\""[..]));
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(busy.read_to_end(), (Vec::new(), End::Closed));
    assert_eq!(server.exit(SOON).code(), Some(0));
}
