//! A WebSocket inside of TLS, as browsers open it: over HTTP/1.1 and as
//! streams of HTTP/2, with messages larger than a record, up to the end of both.

use std::io::Read as _;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::certificates::{Authority, TlsStream, handshake};
use crate::support::client::{Client, End};
use crate::support::hpack;
use crate::support::http2::{Http2, Outcome, flag, frame as h2_frame, kind};
use crate::support::server::Server;

const HANDSHAKE: &str = "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";

fn start() -> (Server, Authority) {
    let authority = Authority::new();
    let (certificate, key) = authority.server_files();
    let server = Server::start(&["--tls-cert", &certificate, "--tls-key", &key]);
    (server, authority)
}

/// A masked frame of any length; the mask is zero.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ ..=125), _) => frame.push(0x80 | length),
        (_, Ok(length)) => {
            frame.push(0xfe);
            frame.extend(length.to_be_bytes());
        }
        _ => {
            frame.push(0xff);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

fn open(server: &Server, authority: &Authority) -> Client<TlsStream> {
    let config = authority.client(&["http/1.1"], None);
    let stream = handshake(server.address(), &config).expect("a handshake");
    let mut client = Client::over(stream);
    assert_eq!(client.ask(HANDSHAKE).status, 101);
    client
}

/// Reads one frame of the server: first byte and payload.
fn read_frame(stream: &mut TlsStream) -> (u8, Vec<u8>) {
    let mut head = [0; 2];
    stream.read_exact(&mut head).expect("a frame");
    let length = match head[1] {
        126 => {
            let mut bytes = [0; 2];
            stream.read_exact(&mut bytes).expect("a length");
            usize::from(u16::from_be_bytes(bytes))
        }
        127 => {
            let mut bytes = [0; 8];
            stream.read_exact(&mut bytes).expect("a length");
            usize::try_from(u64::from_be_bytes(bytes)).expect("a length of ours")
        }
        length => usize::from(length),
    };
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).expect("a payload");
    (head[0], payload)
}

#[test]
fn messages_of_every_size_are_echoed() {
    let (server, authority) = start();
    let mut client = open(&server, &authority);
    let sizes = [
        0, 1, 125, 126, 16_383, 16_384, 16_385, 65_535, 65_536, 300_000,
    ];
    for size in sizes {
        let payload: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
        client.send(frame(0x82, &payload));
        assert!(read_frame(client.stream()) == (0x82, payload), "{size}");
    }
    client.send(frame(0x88, b"\x03\xe8"));
    assert_eq!(read_frame(client.stream()), (0x88, b"\x03\xe8".to_vec()));
    // With a close notice of TLS: without one the client would see an error.
    assert_eq!(client.read_to_end(), (Vec::new(), End::Closed));
}

#[test]
fn frames_in_single_bytes_and_records_are_read() {
    let (server, authority) = start();
    let mut client = open(&server, &authority);
    for byte in frame(0x81, b"one byte a record") {
        client.send([byte]);
    }
    let echo = read_frame(client.stream());
    assert_eq!(echo, (0x81, b"one byte a record".to_vec()));
    // Many frames in one record.
    client.send(frame(0x81, b"many").repeat(1000));
    for _ in 0..1000 {
        assert_eq!(read_frame(client.stream()), (0x81, b"many".to_vec()));
    }
}

#[test]
fn a_stream_of_http_2_inside_of_tls_is_a_socket_too() {
    let (server, authority) = start();
    let config = authority.client(&["h2"], None);
    let stream = handshake(server.address(), &config).expect("a handshake");
    let mut connection = Http2::over(stream);
    let headers = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/ws"),
        ("sec-websocket-version", "13"),
        ("origin", "https://localhost"),
    ];
    let data = [frame(0x81, b"over both"), frame(0x88, b"\x03\xe8")].concat();
    let bytes = [
        h2_frame(
            kind::HEADERS,
            flag::END_HEADERS,
            1,
            &hpack::encode(&headers),
        ),
        h2_frame(kind::DATA, 0, 1, &data),
    ];
    connection.send(&bytes.concat()).expect("the server reads");
    let outcome = connection.outcome(1);
    let Outcome::Response { status, body, .. } = &outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(*status, 200);
    assert_eq!(body.as_slice(), b"\x81\x09over both\x88\x02\x03\xe8");
    assert_eq!(connection.get(3, "/hello").status(), Some(200));
}

#[test]
fn a_drain_says_goodbye_inside_of_tls() {
    let (mut server, authority) = start();
    let mut client = open(&server, &authority);
    server.signal(Signal::TERM);
    let (first, payload) = read_frame(client.stream());
    assert_eq!((first, &payload[..2]), (0x88, &b"\x03\xe9"[..]));
    client.send(frame(0x88, b"\x03\xe9"));
    assert_eq!(client.read_to_end(), (Vec::new(), End::Closed));
    drop(client);
    assert_eq!(server.exit(Duration::from_secs(3)).code(), Some(0));
}

/// TLS that ends without its notice is a peer that vanished.
#[test]
fn a_client_that_vanishes_inside_of_a_message_harms_nobody() {
    let (server, authority) = start();
    for _ in 0..20 {
        let mut client = open(&server, &authority);
        client.send(&frame(0x82, &[0; 1000])[..500]);
        let socket = client.stream().sock.try_clone().expect("a socket");
        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))
            .expect("linger can be set on a socket");
    }
    let mut client = open(&server, &authority);
    client.send(frame(0x81, b"alive"));
    assert_eq!(read_frame(client.stream()), (0x81, b"alive".to_vec()));
}
