//! The limits of a WebSocket as settings: each ends the socket with its close
//! code, and is counted under its own name.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::support::client::{Client, End};
use crate::support::server::Server;
use crate::support::websocket::{close_code, frame, read_frame, upgrade};
use crate::support::{PATIENCE, eventually, process};

fn open(server: &Server) -> Client {
    let mut client = server.connect();
    upgrade(&mut client, "/ws");
    client
}

fn metric(server: &Server, series: &str) -> u64 {
    let text = server.get("/metrics").text();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("no {series} in {text}"));
    value.parse().expect("a whole number")
}

fn rejected(server: &Server, reason: &str) -> u64 {
    metric(
        server,
        &format!("justapi_rejected_total{{reason=\"{reason}\"}}"),
    )
}

#[test]
fn a_message_and_a_frame_over_their_limits_are_1009_each_under_its_name() {
    let server = Server::start(&["--ws-message", "20", "--ws-frame", "10"]);
    let mut client = open(&server);
    client.send(frame(0x82, &[0; 11]));
    assert_eq!(close_code(&mut client), 1009);
    assert_eq!(rejected(&server, "ws_frame"), 1);
    let mut client = open(&server);
    client.send(frame(0x02, &[0; 10]));
    client.send(frame(0x00, &[0; 10]));
    client.send(frame(0x80, &[0; 1]));
    assert_eq!(close_code(&mut client), 1009);
    assert_eq!(rejected(&server, "ws_message"), 1);
    let mut client = open(&server);
    let parts = [frame(0x02, b"0123456789"), frame(0x80, b"0123456789")];
    client.send(parts.concat());
    let echo = read_frame(&mut client);
    assert_eq!(echo, (0x82, b"01234567890123456789".to_vec()));
}

/// F17: a message of very many frames costs no more than its bytes.
#[test]
fn a_message_of_very_many_empty_frames_is_one_message() {
    const FRAMES: usize = 200_000;
    let server = Server::start(&[]);
    let mut client = open(&server);
    let before = process::rss_bytes(server.pid());
    client.send(frame(0x01, b"o"));
    client.send(frame(0x00, b"").repeat(FRAMES));
    client.send(frame(0x80, b"k"));
    assert_eq!(read_frame(&mut client), (0x81, b"ok".to_vec()));
    let grown = process::rss_bytes(server.pid()).saturating_sub(before);
    assert!(grown < 1024 * 1024, "{grown} bytes for {FRAMES} frames");
}

/// The demo sends what it received: a message that it may receive and not send
/// ends its socket, with the counter that says why.
#[test]
fn a_message_over_the_buffer_is_not_sent() {
    let server = Server::start(&["--ws-buffer", "10"]);
    let mut client = open(&server);
    client.send(frame(0x81, b"0123456789"));
    assert_eq!(read_frame(&mut client), (0x81, b"0123456789".to_vec()));
    client.send(frame(0x81, b"01234567890"));
    assert_eq!(close_code(&mut client), 1000);
    assert_eq!(rejected(&server, "ws_buffer"), 1);
}

#[test]
fn a_silent_client_is_pinged_and_then_left() {
    let server = Server::start(&["--ws-ping", "200ms", "--ws-pong", "300ms"]);
    let mut silent = open(&server);
    let mut alive = open(&server);
    let start = Instant::now();
    assert_eq!(read_frame(&mut silent), (0x89, Vec::new()));
    for _ in 0..2 {
        assert_eq!(read_frame(&mut alive), (0x89, Vec::new()));
        alive.send(frame(0x8a, b""));
    }
    assert_eq!(close_code(&mut silent), 1011);
    assert!(start.elapsed() >= Duration::from_millis(450));
    assert_eq!(rejected(&server, "ws_pong"), 1);
    alive.send(frame(0x88, b"\x03\xe8"));
}

/// What is on its way to a slow reader lies before the ping: it cannot answer sooner, and is alive.
#[test]
fn a_reader_that_has_not_come_to_the_ping_is_waited_for() {
    /// Most of it waits in the server's socket: the client's is small, and slow to be read.
    const LENGTH: usize = 256 * 1024;
    const PARTS: usize = 12;
    const LIMIT: Duration = Duration::from_secs(3);
    let server = Server::start(&["--ws-ping", "500ms", "--ws-pong", "3s"]);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a smaller buffer");
    socket
        .connect(&server.address().into())
        .expect("it listens");
    let stream = TcpStream::from(socket);
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .expect("an open socket");
    let mut client = Client::over(stream);
    upgrade(&mut client, "/ws");
    client.send(frame(0x82, &vec![b'm'; LENGTH]));
    let start = Instant::now();
    let mut answer = vec![0; 10 + LENGTH];
    for part in answer.chunks_mut(LENGTH / PARTS + 1) {
        client.stream().read_exact(part).expect("the echo goes on");
        // The pace of this reader, three times the limit in all.
        std::thread::sleep(LIMIT / 4);
    }
    assert!(start.elapsed() > 2 * LIMIT);
    assert_eq!(answer[..2], [0x82, 127]);
    assert!(answer[10..].iter().all(|byte| *byte == b'm'));
    // Then the ping comes, has its answer, and the socket goes on.
    assert_eq!(read_frame(&mut client), (0x89, Vec::new()));
    client.send(frame(0x8a, b""));
    client.send(frame(0x81, b"still here"));
    let echo = std::iter::repeat_with(|| read_frame(&mut client)).find(|found| found.0 != 0x89);
    assert_eq!(echo, Some((0x81, b"still here".to_vec())));
    assert_eq!(rejected(&server, "ws_pong"), 0);
}

#[test]
fn a_socket_that_nobody_uses_is_closed_whatever_its_pings_say() {
    let server = Server::start(&["--ws-idle", "600ms", "--ws-ping", "100ms"]);
    let mut client = open(&server);
    let start = Instant::now();
    let mut num_pings = 0;
    let code = loop {
        match read_frame(&mut client) {
            (0x89, _) => {
                num_pings += 1;
                client.send(frame(0x8a, b""));
            }
            (0x88, payload) => break u16::from_be_bytes([payload[0], payload[1]]),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(code, 1001);
    assert!(num_pings > 0);
    assert!(start.elapsed() >= Duration::from_millis(550));
    client.send(frame(0x88, b"\x03\xe9"));
    assert_eq!(client.read_to_end(), (Vec::new(), End::Closed));
    assert_eq!(rejected(&server, "ws_idle"), 1);
}

#[test]
fn a_broken_rule_is_counted_and_open_sockets_are_a_gauge() {
    let server = Server::start(&[]);
    let mut clients: Vec<_> = (0..5).map(|_| open(&server)).collect();
    for client in &mut clients {
        client.send(frame(0x81, b"here"));
        assert_eq!(read_frame(client), (0x81, b"here".to_vec()));
    }
    assert_eq!(metric(&server, "justapi_websockets"), 5);
    clients[0].send(b"\x83\x80\0\0\0\0");
    assert_eq!(close_code(&mut clients[0]), 1002);
    assert_eq!(rejected(&server, "ws_protocol"), 1);
    drop(clients);
    eventually(PATIENCE, "no socket is open", || {
        (metric(&server, "justapi_websockets") == 0).then_some(())
    });
}
