//! Crowds: clients that leave in masses, that invent names, that come ten
//! times as many as there is room for.
//!
//! In each of them nothing stays behind, and those who behave are served.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::client::{Client, get};
use crate::support::http2::{Http2, frame, get as h2_get, kind, request as h2_request};
use crate::support::server::{Server, serve_after};
use crate::support::{PATIENCE, eventually, process};

/// Value of a series without labels.
fn gauge(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics").text();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("no {name} in {text}"));
    value.parse().expect("a whole number")
}

/// Waits until only the request that asks is served, on its connection alone.
fn wait_until_idle(server: &Server) {
    eventually(PATIENCE, "nothing is in flight", || {
        let is_idle = gauge(server, "justapi_requests_in_flight") <= 1
            && gauge(server, "justapi_connections") <= 2;
        is_idle.then_some(())
    });
}

/// CPU time of one second in which nothing is asked.
fn idle_cost(server: &Server) -> Duration {
    let before = process::cpu(server.pid());
    // A window of measurement, not a wait for the server.
    std::thread::sleep(Duration::from_secs(1));
    process::cpu(server.pid()).saturating_sub(before)
}

/// A client inside of an endless answer.
fn streaming(server: &Server) -> Client {
    let mut client = server.connect();
    client.send(get("/events?interval_ms=5"));
    assert_eq!(client.read_head().map(|head| head.status), Ok(200));
    client
}

/// A client inside of an upload that its handler reads.
fn uploading(server: &Server) -> Client {
    let mut client = server.connect();
    client.send(
        "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    );
    let mut interim = [0; 25];
    let read = client.stream().read_exact(&mut interim);
    read.expect("100 Continue");
    client.send("[1");
    client
}

#[test]
fn a_thousand_streams_that_are_cut_leave_nothing_behind() {
    const ROUNDS: usize = 10;
    const EACH: usize = 100;
    let server = Server::start(&[]);
    let warm: Vec<_> = (0..EACH).map(|_| streaming(&server)).collect();
    drop(warm);
    wait_until_idle(&server);
    let (fds, rss) = (
        process::num_fds(server.pid()),
        process::rss_bytes(server.pid()),
    );
    for _ in 0..ROUNDS {
        let clients: Vec<_> = (0..EACH).map(|_| streaming(&server)).collect();
        for (index, client) in clients.into_iter().enumerate() {
            match index % 3 {
                0 => client.reset(),
                1 => client.finish_writing(),
                _ => drop(client),
            }
        }
    }
    wait_until_idle(&server);
    process::wait_until_closed(server.pid(), fds, ROUNDS * EACH);
    let grown = process::rss_bytes(server.pid()).saturating_sub(rss);
    assert!(grown < 2 * 1024 * 1024, "{grown} bytes after the storm");
}

/// Streams of HTTP/2 are cut by frames, while their connection goes on.
#[test]
fn streams_of_http_2_that_are_cut_leave_nothing_behind() {
    let server = Server::start(&[]);
    let mut connection = Http2::connect(server.address());
    for round in 0..20 {
        let first = 1 + round * 40;
        let streams = || (0..10).map(|index| first + 2 * index);
        for stream in streams() {
            let open = h2_request(stream, &h2_get("/events?interval_ms=5"), b"");
            connection.send(&open).expect("the server reads");
        }
        // In order: this answer proves that all of them were begun.
        let last = first + 20;
        assert_eq!(connection.get(last, "/hello").status(), Some(200));
        for stream in streams() {
            let cancel = frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
            connection.send(&cancel).expect("the server reads");
        }
    }
    let ping = frame(kind::PING, 0, 0, &[0; 8]);
    connection.send(&ping).expect("the connection is open");
    wait_until_idle(&server);
    assert_eq!(connection.get(2001, "/hello").status(), Some(200));
}

/// R7: peers that half-close, reset, or stop reading and leave, in answers and
/// in uploads.
#[test]
fn after_each_way_to_leave_the_server_is_idle_again() {
    let server = Server::start(&[]);
    let mut clients = Vec::new();
    for index in 0..60 {
        let mut client = if index % 2 == 0 {
            streaming(&server)
        } else {
            uploading(&server)
        };
        match index % 3 {
            0 => client.finish_writing(),
            1 => {
                client.reset();
                continue;
            }
            _ => {
                let stream = client.stream();
                stream.shutdown(Shutdown::Both).expect("an open socket");
            }
        }
        clients.push(client);
    }
    drop(clients);
    wait_until_idle(&server);
    let cost = idle_cost(&server);
    assert!(cost < Duration::from_millis(30), "{cost:?} in 1 s");
    server.answers_within(PATIENCE).expect("others are served");
}

/// R11: no name that a client invents becomes a series.
#[test]
fn random_paths_methods_and_hosts_leave_the_metrics_as_they_were() {
    const PATHS: usize = 50_000;
    const BATCH: usize = 500;
    let server = Server::start(&[]);
    let mut client = server.connect();
    let mut ask = |requests: &[String]| {
        client.send(requests.concat());
        for _ in requests {
            client.read().expect("an answer");
        }
    };
    let path = |index: usize| get(&format!("/{index:x}/{}", index.wrapping_mul(2_654_435_761)));
    let method = |index: usize| format!("FOO{index} /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let host = |index: usize| format!("GET /hello HTTP/1.1\r\nHost: h{index}.example\r\n\r\n");
    let invented = |range: std::ops::Range<usize>| -> Vec<String> {
        range.flat_map(|i| [method(i), host(i)]).collect()
    };
    let series = || -> BTreeSet<String> {
        let text = server.get("/metrics").text();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let names = lines.filter_map(|line| line.rsplit_once(' '));
        names.map(|(name, _)| name.to_owned()).collect()
    };
    ask(&[path(0), method(0), host(0)]);
    // The first scrape makes the series of the scrape itself.
    series();
    let before = series();
    let rss = process::rss_bytes(server.pid());
    for first in (1..=PATHS).step_by(BATCH) {
        let paths: Vec<_> = (first..first + BATCH).map(path).collect();
        ask(&paths);
    }
    ask(&invented(1..501));
    assert_eq!(series(), before);
    let grown = process::rss_bytes(server.pid()).saturating_sub(rss);
    assert!(grown < 2 * 1024 * 1024, "{grown} bytes for invented names");
}

/// Ten times as many clients as there is room for: those inside lose nothing,
/// the others are told at once, and afterwards there is room again.
#[test]
fn a_crowd_ten_times_too_large_costs_those_inside_nothing() {
    const ROOM: usize = 20;
    let flags = ["--lanes", "1", "--max-connections", "20"];
    let server = Server::start(&flags);
    let mut inside: Vec<_> = (0..ROOM).map(|_| server.connect()).collect();
    let mut ask_inside = || {
        for client in &mut inside {
            assert_eq!(client.get("/hello").status, 200);
        }
    };
    let cost_of = |work: &mut dyn FnMut()| {
        let before = process::cpu(server.pid());
        work();
        process::cpu(server.pid()).saturating_sub(before)
    };
    ask_inside();
    let alone = cost_of(&mut || (0..50).for_each(|_| ask_inside()));
    let mut slowest = Duration::ZERO;
    let crowded = cost_of(&mut || {
        for _ in 0..50 {
            let start = Instant::now();
            let mut outside: Vec<_> = (0..10).map(|_| server.connect()).collect();
            ask_inside();
            for client in &mut outside {
                let answer = client.read().expect("a refusal");
                assert_eq!(answer.status, 503);
                assert_eq!(answer.header("retry-after"), Some("1"));
            }
            slowest = slowest.max(start.elapsed());
        }
    });
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    // A refusal may cost as much as a few answers, not as much as hundreds.
    let limit = alone * 20 + Duration::from_millis(100);
    assert!(crowded < limit, "{crowded:?} against {alone:?} alone");
    drop(inside);
    eventually(PATIENCE, "room for new clients", || {
        server.answers_within(PATIENCE).ok()
    });
}

/// R5: out of descriptors, what is kept in memory is served, the rest is told
/// to come back, and all is well once there are some again.
#[test]
fn files_without_descriptors_are_503_until_there_are_some() {
    let folder = TempDir::new().expect("a writable temporary folder");
    for index in 0..20 {
        let path = folder.path().join(format!("{index}"));
        std::fs::write(path, "content").expect("a writable folder");
    }
    let mount = format!("/files={}", folder.path().display());
    let flags = [
        "--port=0",
        "--lanes=1",
        "--static",
        &mount,
        "--max-connections=1000",
    ];
    let server = Server::announced(serve_after("ulimit -n 40;", &flags));
    let mut client = server.connect();
    assert_eq!(client.get("/files/0").status, 200);
    let idle: Vec<_> = (0..60)
        .map(|_| TcpStream::connect(server.address()))
        .collect();
    eventually(PATIENCE, "descriptors run out", || {
        (process::num_fds(server.pid()) >= 38).then_some(())
    });
    eventually(PATIENCE, "a file has none", || {
        let statuses = (1..20).map(|index| client.get(&format!("/files/{index}")));
        let refused = statuses.filter(|answer| answer.status != 200);
        let refused: Vec<_> = refused.collect();
        for answer in &refused {
            assert_eq!(answer.status, 503);
            let path = folder.path().to_string_lossy();
            assert!(!answer.text().contains(&*path), "{}", answer.text());
        }
        (!refused.is_empty()).then_some(())
    });
    assert_eq!(client.get("/hello").status, 200);
    drop(idle);
    eventually(PATIENCE, "descriptors are back", || {
        let mut statuses = (0..20).map(|index| client.get(&format!("/files/{index}")).status);
        statuses.all(|status| status == 200).then_some(())
    });
}
