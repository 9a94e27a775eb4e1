//! A WebSocket inside of TLS, as browsers open it: over HTTP/1.1 and as
//! streams of HTTP/2, with messages larger than a record, up to the end of both.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::certificates::{Authority, TlsStream, handshake};
use crate::support::client::{Client, End};
use crate::support::http2::{Http2, Outcome};
use crate::support::server::Server;
use crate::support::websocket::{connect, exchange_over_h2, frame, read_frame, upgrade};

fn start() -> (Server, Authority) {
    let authority = Authority::new();
    let (certificate, key) = authority.server_files();
    let server = Server::start(&["--tls-cert", &certificate, "--tls-key", &key]);
    (server, authority)
}

fn open(server: &Server, authority: &Authority) -> Client<TlsStream> {
    let config = authority.client(&["http/1.1"], None);
    let stream = handshake(server.address(), &config).expect("a handshake");
    let mut client = Client::over(stream);
    upgrade(&mut client, "/ws");
    client
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
        assert!(read_frame(&mut client) == (0x82, payload), "{size}");
    }
    client.send(frame(0x88, b"\x03\xe8"));
    assert_eq!(read_frame(&mut client), (0x88, b"\x03\xe8".to_vec()));
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
    let echo = read_frame(&mut client);
    assert_eq!(echo, (0x81, b"one byte a record".to_vec()));
    // Many frames in one record.
    client.send(frame(0x81, b"many").repeat(1000));
    for _ in 0..1000 {
        assert_eq!(read_frame(&mut client), (0x81, b"many".to_vec()));
    }
}

#[test]
fn a_stream_of_http_2_inside_of_tls_is_a_socket_too() {
    let (server, authority) = start();
    let config = authority.client(&["h2"], None);
    let stream = handshake(server.address(), &config).expect("a handshake");
    let mut connection = Http2::over(stream);
    let mut headers = connect("/ws", "websocket").to_vec();
    headers[2] = (":scheme", "https");
    headers.push(("origin", "https://localhost"));
    let outcome = exchange_over_h2(&mut connection, &headers, b"over both");
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
    let (first, payload) = read_frame(&mut client);
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
    assert_eq!(read_frame(&mut client), (0x81, b"alive".to_vec()));
}
