//! Faults from outside: no descriptors, silence by the thousand, resets, and
//! hostile text on its way to the log.
//!
//! In every one of them others are served and an idle CPU stays idle.

use std::io::Read as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::client::{Client, End, get, post};
use crate::support::process;
use crate::support::server::{Server, raise_nofile, serve_after};
use crate::support::{Failures, eventually};

const KIB: u64 = 1024;

/// CPU time that the server spends in a while, with nothing to do.
fn cpu_in(server: &Server, window: Duration) -> Duration {
    let before = process::cpu(server.pid());
    // A window of measurement, not a wait for the server.
    std::thread::sleep(window);
    process::cpu(server.pid()).saturating_sub(before)
}

fn silent_connections(server: &Server, count: usize) -> Vec<TcpStream> {
    let open = |_| TcpStream::connect(server.address()).expect("the backlog takes it");
    (0..count).map(open).collect()
}

#[test]
fn an_idle_server_uses_no_cpu() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    assert_eq!(client.get("/hello").status, 200);
    let cost = cpu_in(&server, Duration::from_secs(1));
    assert!(cost < Duration::from_millis(10), "{cost:?}");
}

#[test]
fn no_free_descriptors_neither_burn_cpu_nor_stop_the_others() {
    let flags = ["--port", "0", "--max-connections", "1000"];
    let server = Server::announced(serve_after("ulimit -n 64;", &flags));
    let mut served = server.connect();
    assert_eq!(served.get("/hello").status, 200);
    let num_lines = server.lines().len();
    let idle = silent_connections(&server, 200);
    eventually(Duration::from_secs(3), "descriptors run out", || {
        (process::num_fds(server.pid()) >= 60).then_some(())
    });
    assert_eq!(served.get("/hello").status, 200);
    let cost = cpu_in(&server, Duration::from_secs(4));
    // Each lane tries ten times a second; one that spins takes all of a core.
    assert!(cost <= Duration::from_millis(50), "{cost:?} in 4 s");
    assert_eq!(served.get("/hello").status, 200);
    let lines = server.lines().split_off(num_lines);
    assert!(lines.len() <= 3, "{lines:#?}");
    drop(idle);
    eventually(
        Duration::from_secs(1),
        "service for new connections",
        || server.answers_within(Duration::from_millis(500)).ok(),
    );
}

#[test]
fn ten_thousand_idle_connections_are_held_cheaply() {
    let held_limit = raise_nofile().saturating_sub(500) as usize;
    let count = held_limit.min(10_000);
    assert!(
        count >= 5_000,
        "the descriptor limit allows only {count} connections"
    );
    let flags = ["--timeout-header", "60s", "--max-connections", "12000"];
    let server = Server::start(&flags);
    server.answers_within(Duration::from_secs(2)).unwrap();
    let rss = process::rss_bytes(server.pid());
    // The connection of that answer may still be counted.
    let fds = process::num_fds(server.pid()) - 1;
    let mut held = Vec::new();
    while held.len() < count {
        // Batches that a backlog holds: beyond it the kernel drops and retries.
        held.extend(silent_connections(&server, 250));
        eventually(Duration::from_secs(5), "all are accepted", || {
            (process::num_fds(server.pid()) >= fds + held.len()).then_some(())
        });
    }
    let grown = process::rss_bytes(server.pid()).saturating_sub(rss);
    let each = grown / held.len() as u64;
    assert!(each <= 10 * KIB, "{each} bytes a silent connection");
    server.answers_within(Duration::from_secs(1)).unwrap();
    let cost = cpu_in(&server, Duration::from_secs(1));
    assert!(
        cost < Duration::from_millis(50),
        "{cost:?} in 1 s for {count} idle connections"
    );
    // By now every lane runs and all are accepted: the rest is the server's own,
    // of which some came after the first answer.
    let own = process::num_fds(server.pid()).saturating_sub(held.len());
    assert!(own < fds + 50, "{own} of its own, {fds} at first");
    drop(held);
    process::wait_until_closed(server.pid(), own, count);
}

#[test]
fn kept_alive_connections_are_held_cheaply() {
    const COUNT: usize = 1000;
    let server = Server::start(&[]);
    server.answers_within(Duration::from_secs(2)).unwrap();
    let before = process::rss_bytes(server.pid());
    let held: Vec<_> = (0..COUNT)
        .map(|_| {
            let mut client = server.connect();
            assert_eq!(client.get("/hello").status, 200);
            client
        })
        .collect();
    let each = process::rss_bytes(server.pid()).saturating_sub(before) / held.len() as u64;
    assert!(each <= 24 * KIB, "{each} bytes a kept-alive connection");
}

/// The slowloris crowd: every one is gone at the deadline.
#[test]
fn silent_connections_are_all_closed_at_the_deadline() {
    let server = Server::start(&["--timeout-header", "500ms"]);
    let start = Instant::now();
    let mut held: Vec<_> = (0..500).map(|_| server.connect()).collect();
    for (index, client) in held.iter_mut().enumerate() {
        if index % 2 == 0 {
            client.send("GET /hello HTTP/1.1\r\nHo");
        }
    }
    for (index, client) in held.iter_mut().enumerate() {
        let (bytes, end) = client.read_to_end();
        assert_eq!(end, End::Closed, "{index}");
        assert_eq!(
            bytes.starts_with(b"HTTP/1.1 408"),
            index % 2 == 0,
            "{index}"
        );
    }
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn resets_leave_nothing_behind() {
    let server = Server::start(&[]);
    server.answers_within(Duration::from_secs(1)).unwrap();
    let fds = process::num_fds(server.pid());
    for index in 0..300 {
        let mut client = server.connect();
        match index % 3 {
            0 => client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf"),
            1 => client.send("GET /hello HT"),
            _ => client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"),
        }
        client.reset();
    }
    process::wait_until_closed(server.pid(), fds, 300);
    let cost = cpu_in(&server, Duration::from_secs(1));
    assert!(
        cost < Duration::from_millis(30),
        "{cost:?} after the resets"
    );
    server.answers_within(Duration::from_secs(1)).unwrap();
}

/// One lane, one greedy client: the others get their turn.
#[test]
fn a_greedy_client_does_not_starve_the_others() {
    let server = Server::start(&["--lanes", "1"]);
    let upload = [
        &b"POST /anything HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n"[..],
        &vec![b'x'; 256 * 1024],
    ];
    let pipeline = get("/hello").repeat(4000);
    let mut failures = Failures::default();
    for (name, first, again) in [
        ("upload", upload.concat(), vec![b'x'; 256 * 1024]),
        (
            "pipeline",
            pipeline.clone().into_bytes(),
            pipeline.into_bytes(),
        ),
    ] {
        failures.case(name, others_are_served_beside(&server, &first, &again));
    }
    failures.finish();
}

fn others_are_served_beside(server: &Server, first: &[u8], again: &[u8]) -> Result<(), String> {
    let mut greedy = server.connect();
    let mut reader = greedy
        .stream()
        .try_clone()
        .expect("a socket can be duplicated");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut is_taken = greedy.try_send(first).is_ok();
            while is_taken && !is_over.load(Ordering::Relaxed) {
                is_taken = greedy.try_send(again).is_ok();
            }
            greedy.reset();
        });
        scope.spawn(move || {
            let mut chunk = vec![0; 64 * 1024];
            while reader.read(&mut chunk).is_ok_and(|length| length > 0) {}
        });
        let answers = (0..50).map(|_| server.answers_within(Duration::from_millis(500)));
        let served = answers.collect::<Result<Vec<()>, _>>().map(drop);
        is_over.store(true, Ordering::Relaxed);
        served
    })
}

#[test]
fn requests_leave_no_memory_behind() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let requests = [
        get("/hello"),
        get("/nowhere"),
        post("/echo", &format!("\"{}\"", "a".repeat(10_000))),
        post("/echo", "{"),
        post("/hello", "x"),
    ];
    let mut ask_all = |num_rounds: usize| {
        for request in requests.iter().cycle().take(num_rounds * requests.len()) {
            client.ask(request);
        }
    };
    ask_all(500);
    let before = process::rss_bytes(server.pid());
    ask_all(2000);
    let grown = process::rss_bytes(server.pid()).saturating_sub(before);
    assert!(
        grown < 1024 * KIB,
        "{grown} bytes more after 10,000 requests"
    );
}

/// A peer that half-closes and stays must not wake the server again and again.
#[test]
fn half_closed_connections_cost_nothing() {
    let server = Server::start(&[]);
    let held: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = server.connect();
            client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n[1");
            client.finish_writing();
            client
        })
        .collect();
    let cost = cpu_in(&server, Duration::from_secs(1));
    assert!(
        cost < Duration::from_millis(20),
        "{cost:?} for {} connections",
        held.len()
    );
}

/// F20: one request is one line, and no byte of it moves a terminal.
#[test]
fn hostile_text_stays_inside_its_line_of_the_access_log() {
    let mut failures = Failures::default();
    for format in ["text", "json"] {
        failures.case(format, hostile_text_is_contained(format));
    }
    failures.finish();
}

fn hostile_text_is_contained(format: &str) -> Result<(), String> {
    let server = Server::start(&["--access-log", format]);
    let num_before = server.lines().len();
    let requests = [
        &b"GET /anything/%0a%1b[2J%0d%0aGET%20/forged HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"GET /anything/\"a\\b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /anything?q=\"}%0a{\" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /anything HTTP/1.1\r\nHost: a\r\nUser-Agent: a\xc2\x9b2J\x80\xff\" \\\r\n\r\n",
        b"GET /anything HTTP/1.1\r\nHost: a\r\nX-Request-Id: a\" forged=\"1\r\n\r\n",
        b"GET /anything HTTP/1.1\r\nHost: a\r\nReferer: a\tb\r\n\r\n",
        b"B\"REW /anything HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /anything HTTP/1.1\r\nHost: a\r\nUser-Agent: \x1b[2J\r\n\r\n",
    ];
    for request in requests {
        let mut client = server.connect();
        client.send(request);
        client.read().map_err(|error| error.to_string())?;
    }
    assert_eq!(server.get("/anything/the-last").status, 200);
    let _last = server.wait_for_line("/anything/the-last");
    let lines = server.lines().split_off(num_before);
    if lines.len() > requests.len() + 1 {
        return Err(format!("{} lines: {lines:#?}", lines.len()));
    }
    for line in &lines {
        if line.chars().any(|c| c.is_control() && c != '\t') {
            return Err(format!("control characters in {line:?}"));
        }
        if format == "json" {
            let parsed = serde_json::from_str::<serde_json::Value>(line);
            parsed.map_err(|error| format!("{error} in {line}"))?;
        }
    }
    Ok(())
}
