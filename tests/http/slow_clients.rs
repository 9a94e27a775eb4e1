//! Clients that hold a connection without using it: bodies in drops, halves of
//! heads, prefaces and handshakes by the thousand.
//!
//! Each is gone at its deadline, and others do not notice.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::support::certificates::{Authority, handshake};
use crate::support::client::{Client, get};
use crate::support::hpack;
use crate::support::http2::{self, Http2, flag, frame, kind, method};
use crate::support::server::{Server, raise_nofile};
use crate::support::websocket::{frame as ws_frame, upgrade};
use crate::support::{Failures, PATIENCE, eventually, process};

const KIB: u64 = 1024;

fn rejected(server: &Server, reason: &str) -> u64 {
    let text = server.get("/metrics").text();
    let series = format!("justapi_rejected_total{{reason=\"{reason}\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&series));
    value.expect("the series").parse().expect("a whole number")
}

/// Writes parts at a pace until the peer hangs up, or all is sent.
fn drip(mut stream: TcpStream, part: &[u8], count: usize, pace: Duration) {
    for _ in 0..count {
        // The pace of the sender, not a wait for the server.
        std::thread::sleep(pace);
        if stream.write_all(part).is_err() {
            return;
        }
    }
}

const UPLOAD: &str = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";

/// Every byte comes in time, and all of them would take hours.
#[test]
fn a_body_in_drops_is_408() {
    let flags = ["--timeout-body", "1s", "--limit-body-rate", "1000"];
    let server = Server::start(&flags);
    let mut client = server.connect();
    client.send(format!("{UPLOAD}Content-Length: 1000000\r\n\r\n"));
    let writer = client
        .stream()
        .try_clone()
        .expect("a socket can be duplicated");
    let answer = std::thread::scope(|scope| {
        scope.spawn(|| drip(writer, b" ", 500, Duration::from_millis(100)));
        let answer = client.read();
        // Ends the sender, too.
        let over = client.stream().shutdown(Shutdown::Both);
        over.expect("an open socket");
        answer
    });
    assert_eq!(answer.map(|response| response.status), Ok(408));
    assert_eq!(rejected(&server, "body_rate"), 1);
    assert_eq!(rejected(&server, "body_stall"), 0);

    let mut connection = Http2::connect(server.address());
    let block = hpack::encode(&method("POST", "/echo"));
    let head = frame(kind::HEADERS, flag::END_HEADERS, 1, &block);
    connection.send(&head).expect("the server reads");
    let writer = connection
        .stream()
        .try_clone()
        .expect("a socket can be duplicated");
    let outcome = std::thread::scope(|scope| {
        let part = frame(kind::DATA, 0, 1, b" ");
        scope.spawn(move || drip(writer, &part, 20, Duration::from_millis(100)));
        connection.outcome(1)
    });
    assert_eq!(outcome.status(), Some(408));
    assert_eq!(rejected(&server, "body_rate"), 2);
}

/// Longer than the stall limit in all, with pauses, but not too slow.
#[test]
fn a_slow_body_that_flows_is_served() {
    let flags = ["--timeout-body", "2s", "--limit-body-rate", "240"];
    let server = Server::start(&flags);
    let mut client = server.connect();
    client.send(format!("{UPLOAD}Content-Length: 3002\r\n\r\n\""));
    let writer = client
        .stream()
        .try_clone()
        .expect("a socket can be duplicated");
    drip(writer, &[b'a'; 100], 30, Duration::from_millis(80));
    client.send("\"");
    assert_eq!(client.read().map(|response| response.status), Ok(200));
    assert_eq!(rejected(&server, "body_rate"), 0);
}

/// A limit of 0 leaves only that on each wait.
#[test]
fn a_body_in_drops_is_served_where_no_rate_is_asked_for() {
    let flags = ["--timeout-body", "1s", "--limit-body-rate", "0"];
    let server = Server::start(&flags);
    let mut client = server.connect();
    client.send(format!("{UPLOAD}Content-Length: 16\r\n\r\n1"));
    let writer = client
        .stream()
        .try_clone()
        .expect("a socket can be duplicated");
    drip(writer, b"1", 15, Duration::from_millis(100));
    assert_eq!(client.read().map(|response| response.status), Ok(200));
}

/// A connection to a server, on which the bytes of a large answer come.
type Open = fn(&Files) -> TcpStream;

/// Servers of a large file, one of them over TLS.
struct Files {
    plain: Server,
    secure: Server,
    authority: Authority,
}

/// Shrinks what the client's kernel takes for it, and gives the raw socket.
fn narrow(socket: &TcpStream) -> TcpStream {
    rustix::net::sockopt::set_socket_recv_buffer_size(socket, 4096).expect("a socket");
    socket.try_clone().expect("a socket can be duplicated")
}

fn http2_with_window(server: &Server, num_bytes: u32) -> TcpStream {
    let mut client = server.connect();
    let socket = narrow(client.stream());
    let [a, b, c, d] = num_bytes.to_be_bytes();
    let more = (num_bytes - 65_535).to_be_bytes();
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    client.send(frame(kind::SETTINGS, 0, 0, &[0, 4, a, b, c, d]));
    client.send(frame(kind::WINDOW_UPDATE, 0, 0, &more));
    client.send(http2::request(1, &method("GET", "/files/large"), &[]));
    socket
}

const SLOW_READERS: [(&str, Open); 5] = [
    ("a file on HTTP/1.1", |files| {
        let mut client = files.plain.connect();
        let socket = narrow(client.stream());
        client.send(get("/files/large"));
        socket
    }),
    ("TLS", |files| {
        let config = files.authority.client(&[], None);
        let mut stream = handshake(files.secure.address(), &config).expect("TLS");
        let socket = narrow(&stream.sock);
        let request = get("/files/large");
        stream.write_all(request.as_bytes()).expect("a peer");
        socket
    }),
    ("HTTP/2", |files| {
        http2_with_window(&files.plain, i32::MAX as u32)
    }),
    ("HTTP/2 with its window in the kernel", |files| {
        http2_with_window(&files.plain, 1_000_000)
    }),
    ("a WebSocket", |files| {
        let mut client = files.plain.connect();
        upgrade(&mut client, "/ws");
        let socket = narrow(client.stream());
        client.send(ws_frame(0x82, &vec![b'a'; 8 << 20]));
        socket
    }),
];

/// Reads a little at a time for a while; how many bytes came.
fn sip(mut socket: TcpStream, time: Duration) -> Result<usize, String> {
    let mut num_bytes = socket
        .read(&mut [0; 2048])
        .map_err(|error| error.to_string())?;
    let start = Instant::now();
    while start.elapsed() < time {
        match socket.read(&mut [0; 2048]) {
            Ok(0) => return Err(format!("closed after {num_bytes} bytes")),
            Ok(length) => num_bytes += length,
            Err(error) => return Err(format!("{error} after {num_bytes} bytes")),
        }
        // The pace of the client, not a wait for the server.
        std::thread::sleep(Duration::from_millis(15));
    }
    Ok(num_bytes)
}

/// The kernel tells of room in a send buffer when a good part of it is free,
/// which such a client needs many times the limit for.
#[test]
fn a_reader_that_is_slow_but_steady_is_waited_for() {
    let authority = Authority::new();
    let (certificate, key) = authority.server_files();
    let folder = tempfile::TempDir::new().expect("a writable temporary folder");
    std::fs::write(folder.path().join("large"), vec![b'x'; 16 << 20]).expect("a file");
    let mount = format!("/files={}", folder.path().display());
    let flags = ["--timeout-write", "1s", "--static", &mount];
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    let files = Files {
        plain: Server::start(&flags),
        secure: Server::start(&[&flags[..], &tls].concat()),
        authority,
    };
    let mut failures = Failures::default();
    let results = std::thread::scope(|scope| {
        let read = |open: Open| sip(open(&files), Duration::from_millis(2800));
        let readers = SLOW_READERS.map(|(name, open)| (name, scope.spawn(move || read(open))));
        readers.map(|(name, reader)| (name, reader.join().expect("no panic")))
    });
    for (name, result) in results {
        failures.case(name, result.map(drop));
    }
    // What the kernel holds of HTTP/2 and of a WebSocket still comes after the
    // end of its connection: there only the count tells.
    for reason in ["write_stall", "write_rate"] {
        let result = match rejected(&files.plain, reason) {
            0 => Ok(()),
            count => Err(format!("{count} connections")),
        };
        failures.case(reason, result);
    }
    failures.finish();
}

/// So many connections that each have sent `bytes`, once all are accepted.
fn crowd(server: &Server, count: usize, bytes: &[u8], held: &mut Vec<TcpStream>) {
    let fds = process::num_fds(server.pid());
    for opened in (250..=count).step_by(250) {
        // Batches that a backlog holds: beyond it the kernel drops and retries.
        for _ in 0..250 {
            let mut stream = TcpStream::connect(server.address()).expect("the backlog takes it");
            stream.write_all(bytes).expect("a peer");
            held.push(stream);
        }
        eventually(PATIENCE * 2, "all are accepted", || {
            // A few of those before may have been closing still.
            (process::num_fds(server.pid()) + process::LATE >= fds + opened).then_some(())
        });
    }
}

/// Reads every connection to its end.
fn all_end(held: Vec<TcpStream>) {
    for (index, mut stream) in held.into_iter().enumerate() {
        stream
            .set_read_timeout(Some(PATIENCE * 2))
            .expect("a valid timeout");
        let mut rest = Vec::new();
        let end = stream.read_to_end(&mut rest);
        let is_reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        let is_over = end.as_ref().map_or_else(is_reset, |_| true);
        assert!(is_over, "{index}: {end:?}");
    }
}

/// R1: two thousand of each kind, beside clients that are served.
fn check_crowd(server: &Server, served: &dyn Fn() -> Result<(), String>, beginnings: &[&[u8]]) {
    served().expect("it serves");
    let (fds, num_lines) = (process::num_fds(server.pid()), server.lines().len());
    let start = Instant::now();
    let mut held = Vec::new();
    for beginning in beginnings {
        crowd(server, 2000, beginning, &mut held);
        served().expect("others are served");
    }
    all_end(held);
    let elapsed = start.elapsed();
    // From its accept on each has the two seconds of the limit.
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    process::wait_until_closed(server.pid(), fds, 2000 * beginnings.len());
    let lines = server.lines().split_off(num_lines);
    assert!(lines.len() <= 3, "{lines:#?}");
    served().expect("others are served");
}

const DEADLINES: [&str; 6] = [
    "--timeout-header",
    "2s",
    "--timeout-tls",
    "2s",
    "--max-connections",
    "12000",
];

#[test]
fn thousands_that_begin_nothing_are_gone_at_the_deadline() {
    raise_nofile();
    let server = Server::start(&DEADLINES);
    let served = || server.answers_within(Duration::from_secs(2));
    check_crowd(&server, &served, &[b"", b"P", b"PRI * HT"]);
}

#[test]
fn thousands_of_half_handshakes_are_gone_at_the_deadline() {
    raise_nofile();
    let authority = Authority::new();
    let (certificate, key) = authority.server_files();
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    let server = Server::start(&[&tls[..], &DEADLINES].concat());
    let config = authority.client(&[], None);
    let served = || {
        let stream = handshake(server.address(), &config).map_err(|error| error.to_string())?;
        let mut client = Client::over(stream);
        client.send(get("/hello"));
        match client.read() {
            Ok(response) if response.status == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    // A record of 512 bytes with a ClientHello, of which the first have come.
    check_crowd(
        &server,
        &served,
        &[b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03half"],
    );
}

/// The cost of requests, and how long the slowest hundredth waits, at best.
struct Service {
    cpu: Duration,
    p99: Duration,
}

fn service(server: &Server) -> Service {
    let mut client = server.connect();
    let mut best = Service {
        cpu: Duration::MAX,
        p99: Duration::MAX,
    };
    for _ in 0..5 {
        let before = process::cpu(server.pid());
        let mut times: Vec<_> = (0..300)
            .map(|_| {
                let start = Instant::now();
                assert_eq!(client.get("/hello").status, 200);
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        best.cpu = best
            .cpu
            .min(process::cpu(server.pid()).saturating_sub(before));
        best.p99 = best.p99.min(times[times.len() * 99 / 100]);
    }
    best
}

/// Slowloris: ten thousand halves of heads are held cheaply, those who ask are
/// served as before, and afterwards the memory is back.
#[test]
fn ten_thousand_half_heads_do_not_slow_the_others() {
    const COUNT: usize = 10_000;
    let room = raise_nofile().saturating_sub(500) as usize;
    let count = room.min(COUNT) / 250 * 250;
    assert!(count >= 5000, "descriptors for {count} connections");
    let flags = ["--timeout-header", "60s", "--max-connections", "12000"];
    let server = Server::start(&flags);
    let alone = service(&server);
    // Once, so that what the allocator keeps is there before.
    let half = b"GET /hello HTTP/1.1\r\nHost: a\r\nX-Half: ";
    let release = |held: Vec<TcpStream>, fds: usize| {
        drop(held);
        process::wait_until_closed(server.pid(), fds, count);
    };
    let (fds, rss) = (
        process::num_fds(server.pid()),
        process::rss_bytes(server.pid()),
    );
    let mut held = Vec::new();
    crowd(&server, count, half, &mut held);
    let most = process::rss_bytes(server.pid());
    let each = most.saturating_sub(rss) / count as u64;
    assert!(each <= 10 * KIB, "{each} bytes for half a head");
    let crowded = service(&server);
    // Work that grows with those who wait would show many times over; a tenth is the machine's.
    assert!(
        crowded.cpu <= 2 * alone.cpu,
        "{:?} a batch, {:?} alone",
        crowded.cpu,
        alone.cpu
    );
    let limit = 3 * alone.p99 + Duration::from_millis(10);
    assert!(
        crowded.p99 <= limit,
        "{:?}, {:?} alone",
        crowded.p99,
        alone.p99
    );
    release(held, fds);
    let mut again = Vec::new();
    crowd(&server, count, half, &mut again);
    release(again, fds);
    let after = process::rss_bytes(server.pid());
    assert!(
        after as f64 <= most as f64 * 1.1,
        "{after} bytes after {most}"
    );
}
