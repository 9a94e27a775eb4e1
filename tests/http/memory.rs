//! What memory a client can make the server keep: bursts that are over, and a
//! thousand readers who hardly read.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::files::Site;
use crate::support::client::{Client, get, post};
use crate::support::server::Server;
use crate::support::websocket::{frame as ws_frame, upgrade};
use crate::support::{PATIENCE, eventually, process};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

fn grown_since(server: &Server, before: u64) -> u64 {
    process::rss_bytes(server.pid()).saturating_sub(before)
}

/// Answers of a burst are made as fast as they are read, not as they are asked
/// for; and afterwards the connections are as small as before.
#[test]
fn a_pipelined_burst_is_bounded_and_leaves_nothing_behind() {
    const CLIENTS: u64 = 8;
    /// More answers than all the sockets on the way hold.
    const REQUESTS: usize = 1500;
    let server = Server::start(&[]);
    let padding = "p".repeat(7000);
    let request =
        format!("GET /anything/of-a-burst HTTP/1.1\r\nHost: a\r\nX-Padding: {padding}\r\n\r\n");
    let burst = Arc::new(request.repeat(REQUESTS) + &get("/hello"));
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&request).status, 200);
    }
    let before = process::rss_bytes(server.pid());
    for client in &mut clients {
        let stream = client.stream();
        stream.set_write_timeout(None).expect("an open socket");
        let mut writer = stream.try_clone().expect("a socket can be duplicated");
        let burst = Arc::clone(&burst);
        // Fails when the test is over before the server has read it all.
        std::thread::spawn(move || drop(writer.write_all(burst.as_bytes())));
    }
    // Nobody reads: the server answers until the sockets are full, then stops.
    let mut answered = 0;
    eventually(PATIENCE, "it stops to answer", || {
        let seen = std::mem::replace(&mut answered, num_answers(&server));
        std::thread::sleep(Duration::from_millis(50));
        (answered > CLIENTS && answered == seen).then_some(())
    });
    assert!(
        answered < CLIENTS * REQUESTS as u64,
        "{answered} unread answers"
    );
    let during = grown_since(&server, before) / CLIENTS;
    assert!(
        during <= 256 * KIB,
        "{during} bytes each while nobody reads"
    );
    for client in &mut clients {
        for _ in 0..REQUESTS {
            assert_eq!(client.read().map(|answer| answer.status), Ok(200));
        }
        let last = client.read().expect("the answer behind the burst");
        assert!(last.text().contains("hello"), "{}", last.text());
    }
    let after = grown_since(&server, before);
    assert!(after <= 2 * MIB, "{after} bytes when it is over");
    assert_eq!(server.get("/hello").status, 200);
}

/// Answers of the route that the bursts ask for.
fn num_answers(server: &Server) -> u64 {
    let text = server.get("/metrics").text();
    let series =
        "justapi_requests_total{method=\"GET\",route=\"/anything/{*rest}\",status=\"200\"} ";
    let value = text.lines().find_map(|line| line.strip_prefix(series));
    value.map_or(0, |value| value.parse().expect("a whole number"))
}

/// A thousand connections that take one byte of an answer of `path`.
fn slow_readers(server: &Server, path: &str, headers: &str) -> Vec<TcpStream> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    (0..1000)
        .map(|_| {
            let mut client = server.connect();
            client.send(&request);
            let mut first = [0];
            let stream = client.stream();
            stream.read_exact(&mut first).expect("an answer begins");
            stream.try_clone().expect("a socket can be duplicated")
        })
        .collect()
}

#[test]
fn a_thousand_slow_readers_of_a_file_keep_the_memory_flat() {
    let site = Site::new(&["--max-connections", "2000"]);
    crate::support::server::raise_nofile();
    site.write("large", vec![b'x'; 16 << 20]);
    let server = &site.server;
    server.answers_within(PATIENCE).expect("it serves");
    let before = process::rss_bytes(server.pid());
    let readers = slow_readers(server, "/files/large", "");
    let each = grown_since(server, before) / readers.len() as u64;
    assert!(each <= 16 * KIB, "{each} bytes a reader");
    // More of it, byte by byte, changes nothing.
    for mut reader in &readers {
        reader.read_exact(&mut [0; 16]).expect("the answer goes on");
    }
    let each = grown_since(server, before) / readers.len() as u64;
    assert!(each <= 16 * KIB, "{each} bytes a reader, later");
    server.answers_within(PATIENCE).expect("others are served");
}

/// Events come whether they are read or not: the queue of each is bounded.
#[test]
fn a_thousand_slow_readers_of_events_keep_the_memory_flat() {
    let server = Server::start(&["--max-connections", "2000", "--sse-queue", "16"]);
    crate::support::server::raise_nofile();
    server.answers_within(PATIENCE).expect("it serves");
    let before = process::rss_bytes(server.pid());
    let readers = slow_readers(&server, "/events?interval_ms=250", "");
    let grown = grown_since(&server, before);
    let each = grown / readers.len() as u64;
    assert!(each <= 24 * KIB, "{each} bytes a reader");
    // A window in which each gets some events more, not a wait.
    std::thread::sleep(Duration::from_millis(600));
    let later = grown_since(&server, before);
    assert!(later <= grown + 2 * MIB, "{grown} bytes, later {later}");
    drop(readers);
    eventually(PATIENCE, "sockets are closed", || {
        (process::num_fds(server.pid()) < 100).then_some(())
    });
    server.answers_within(PATIENCE).expect("others are served");
}

/// An echo that nobody reads stops the reading of what is to be echoed.
#[test]
fn a_thousand_sockets_that_read_nothing_keep_the_memory_flat() {
    const MESSAGE: usize = 16 * 1024;
    let server = Server::start(&["--max-connections", "2000"]);
    crate::support::server::raise_nofile();
    let message = ws_frame(0x82, &vec![b'm'; MESSAGE]);
    let mut sockets: Vec<_> = (0..1000)
        .map(|_| {
            let mut client = server.connect();
            upgrade(&mut client, "/ws");
            client
        })
        .collect();
    let before = grown_since(&server, 0);
    let mut num_taken = 0;
    for client in &mut sockets {
        client
            .stream()
            .set_nonblocking(true)
            .expect("an open socket");
    }
    // All that the sockets on the way take, and what the server takes of them.
    let mut is_taken = true;
    while is_taken && num_taken < 1000 * 512 * 1024 {
        is_taken = false;
        for client in &mut sockets {
            // A part of a message is the end of it for this test.
            if let Ok(length) = client.stream().write(&message) {
                num_taken += length;
                is_taken |= length == message.len();
            }
        }
    }
    let each = grown_since(&server, before) / 1000;
    assert!(
        each <= 96 * KIB,
        "{each} bytes a socket after {num_taken} sent"
    );
    server.answers_within(PATIENCE).expect("others are served");
    drop(sockets);
    eventually(PATIENCE * 2, "sockets are closed", || {
        (process::num_fds(server.pid()) < 100).then_some(())
    });
}

/// A large JSON answer waits for its reader in the sockets and as itself.
#[test]
fn slow_readers_of_large_json_cost_what_they_asked_for() {
    const LENGTH: usize = 8 << 20;
    const READERS: u64 = 8;
    let server = Server::start(&["--limit-body", "16MiB"]);
    let json = format!("\"{}\"", "j".repeat(LENGTH - 2));
    assert_eq!(server.connect().ask(post("/echo", &json)).status, 200);
    let before = process::rss_bytes(server.pid());
    let readers: Vec<Client> = (0..READERS)
        .map(|_| {
            let mut client = server.connect();
            client.send(post("/echo", &json));
            let mut first = [0];
            let stream = client.stream();
            stream.read_exact(&mut first).expect("an answer begins");
            client
        })
        .collect();
    let each = grown_since(&server, before) / READERS;
    // The body, the answer made of it, and buffers that grow by doubling.
    assert!(each <= 4 * LENGTH as u64, "{each} bytes a reader");
    server.answers_within(PATIENCE).expect("others are served");
    drop(readers);
    // The allocator may keep what lies between other memory: one copy of each at most.
    eventually(PATIENCE, "the memory is given back", || {
        (grown_since(&server, before) < READERS * LENGTH as u64).then_some(())
    });
}
