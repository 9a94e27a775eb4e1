//! A soak: every kind of client at once for a while, and what the server holds
//! fitted over time.
//!
//! In the gate it lasts seconds and finds what leaks fast. For longer, in
//! seconds, and with what was measured on standard output:
//! `JUSTAPI_SOAK_SECONDS=300 cargo nextest run -p justapi-cli --test http --no-capture soak`

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::client::{get, post};
use crate::support::http2::{Http2, frame as h2_frame, get as h2_get, kind, method};
use crate::support::server::Server;
use crate::support::websocket::{close_code, frame as ws_frame, read_frame, upgrade};
use crate::support::{PATIENCE, eventually, process};

const KIB: f64 = 1024.0;
const MIB_AN_HOUR: f64 = KIB * KIB / 3600.0;
/// How often the server is looked at.
const NUM_LOOKS: u32 = 60;
/// Looks that come before the allocator and the caches are warm.
const NUM_WARM: usize = 20;

/// What one kind of client does again and again.
type Work = fn(&Server, usize);

/// JSON and errors on a kept connection, most of the load.
fn requests(server: &Server, _: usize) {
    let mut client = server.connect();
    let large = format!("[\"{}\"]", "j".repeat(3000));
    for _ in 0..20 {
        assert_eq!(client.get("/hello").status, 200);
        assert_eq!(client.ask(post("/echo", &large)).status, 200);
        assert_eq!(client.get("/nowhere").status, 404);
        assert_eq!(client.ask(post("/echo", "{")).status, 400);
        assert_eq!(client.get("/anything?a=b").status, 200);
    }
}

/// Uploads of several reads.
fn uploads(server: &Server, _: usize) {
    let json = format!("\"{}\"", "u".repeat(300_000));
    assert_eq!(server.connect().ask(post("/echo", &json)).status, 200);
}

/// Clients that leave in the middle of everything.
fn departures(server: &Server, index: usize) {
    let mut client = server.connect();
    match index % 4 {
        0 => client.send("GET /hello HT"),
        1 => client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n[1"),
        2 => client.send(get("/events?interval_ms=1")),
        _ => client.send(get("/hello").repeat(50)),
    }
    if index.is_multiple_of(2) {
        client.reset();
    }
}

fn events(server: &Server, _: usize) {
    let text = server.get("/events?count=5&interval_ms=2").text();
    assert_eq!(text.matches("data:").count(), 5);
}

fn sockets(server: &Server, index: usize) {
    let mut socket = server.connect();
    upgrade(&mut socket, "/ws");
    let message = vec![b'm'; 1 + index % 30 * 1000];
    for _ in 0..10 {
        socket.send(ws_frame(0x82, &message));
        assert_eq!(read_frame(&mut socket).1, message);
    }
    if index.is_multiple_of(3) {
        return;
    }
    socket.send(ws_frame(0x88, b"\x03\xe8"));
    assert_eq!(close_code(&mut socket), 1000);
}

fn streams(server: &Server, index: usize) {
    let mut connection = Http2::connect(server.address());
    for number in 0..10 {
        let stream = 4 * number + 1;
        assert_eq!(connection.get(stream, "/hello").status(), Some(200));
        let echo = connection.ask(stream + 2, &method("POST", "/echo"), b"[1]");
        assert_eq!(echo.status(), Some(200));
    }
    if index.is_multiple_of(2) {
        let open = crate::support::http2::request(41, &h2_get("/events?interval_ms=1"), b"");
        let cancel = h2_frame(kind::RST_STREAM, 0, 41, &8_u32.to_be_bytes());
        connection
            .send(&[open, cancel].concat())
            .expect("it is open");
        assert_eq!(connection.get(43, "/hello").status(), Some(200));
    }
}

const WORK: [(&str, Work); 8] = [
    ("requests", requests),
    ("requests", requests),
    ("requests", requests),
    ("uploads", uploads),
    ("departures", departures),
    ("events", events),
    ("sockets", sockets),
    ("streams", streams),
];

/// What the server holds at a time.
struct Look {
    seconds: f64,
    rss_bytes: f64,
    num_fds: f64,
    num_threads: f64,
}

fn look(server: &Server, start: Instant) -> Look {
    let pid = server.pid();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    Look {
        rss_bytes: process::rss_bytes(pid) as f64,
        num_fds: process::num_fds(pid) as f64,
        num_threads: threads.expect("it runs").count() as f64,
        seconds: start.elapsed().as_secs_f64(),
    }
}

/// A line through points by least squares: its slope, and half the width of
/// the interval that has it with 95 %.
fn slope(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(&|point| point.0), mean(&|point| point.1));
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let common: f64 = points
        .iter()
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    let slope = common / spread;
    let rest = |(x, y): &(f64, f64)| (y - mean_y - slope * (x - mean_x)).powi(2);
    let rest: f64 = points.iter().map(rest).sum();
    // Student's factor is 2.02 for the forty points of a run.
    (slope, 2.02 * (rest / (count - 2.0) / spread).sqrt())
}

#[test]
fn a_line_is_fitted() {
    let points: Vec<_> = (0..40)
        .map(|x| (f64::from(x), 3.0 + 2.0 * f64::from(x)))
        .collect();
    let (found, width) = slope(&points);
    assert!(
        (found - 2.0).abs() < 1e-9 && width < 1e-9,
        "{found} {width}"
    );
    let noisy: Vec<_> = points
        .iter()
        .enumerate()
        .map(|(index, (x, y))| (*x, y + if index % 2 == 0 { 5.0 } else { -5.0 }))
        .collect();
    let (found, width) = slope(&noisy);
    assert!(
        (found - 2.0).abs() < width && width > 0.1,
        "{found} {width}"
    );
}

/// All kinds of clients for so long; what the server held at each look, and
/// how often one of them was through.
fn run(server: &Server, length: Duration) -> (Vec<Look>, usize) {
    let (is_over, num_rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let start = Instant::now();
    let looks = std::thread::scope(|scope| {
        for (_, work) in WORK {
            let (is_over, num_rounds) = (&is_over, &num_rounds);
            scope.spawn(move || {
                for index in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    work(server, index);
                    num_rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let looks = (1..=NUM_LOOKS).map(|number| {
            // The times of the looks, not a wait for the server.
            std::thread::sleep((length * number / NUM_LOOKS).saturating_sub(start.elapsed()));
            look(server, start)
        });
        let looks = looks.collect();
        is_over.store(true, Ordering::Relaxed);
        looks
    });
    (looks, num_rounds.into_inner())
}

#[test]
fn a_mixed_load_leaves_nothing_behind() {
    let seconds = std::env::var("JUSTAPI_SOAK_SECONDS").ok();
    let seconds = seconds.map(|text| text.parse::<u32>().expect("whole seconds"));
    let length = Duration::from_secs(u64::from(seconds.unwrap_or(3)));
    let server = Server::start(&[]);
    for (_, work) in WORK {
        (0..4).for_each(|index| work(&server, index));
    }
    let idle = || {
        eventually(PATIENCE * 2, "nothing is in flight", || {
            let text = server.get("/metrics").text();
            text.contains("\njustapi_connections 1\n").then_some(())
        });
        look(&server, Instant::now())
    };
    let before = idle();
    let (looks, num_rounds) = run(&server, length);
    let after = idle();
    let fit = |of: fn(&Look) -> f64| {
        let points: Vec<_> = looks[NUM_WARM..]
            .iter()
            .map(|look| (look.seconds, of(look)))
            .collect();
        slope(&points)
    };
    let (rss, rss_width) = fit(|look| look.rss_bytes);
    let (fds, fds_width) = fit(|look| look.num_fds);
    let (threads, _) = fit(|look| look.num_threads);
    let text = server.get("/metrics").text();
    let requests: f64 = text
        .lines()
        .filter(|line| line.starts_with("justapi_requests_total{"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum();
    println!(
        "soak of {length:?}: {requests:.0} requests in {} rounds; resident {:.1} MiB, then {:.1} MiB \
         when idle again; slopes an hour: {:.2} +- {:.2} MiB, {:.2} +- {:.2} descriptors, {:.2} threads",
        num_rounds,
        before.rss_bytes / KIB / KIB,
        after.rss_bytes / KIB / KIB,
        rss / MIB_AN_HOUR,
        rss_width / MIB_AN_HOUR,
        fds * 3600.0,
        fds_width * 3600.0,
        threads * 3600.0,
    );
    std::io::stdout().flush().expect("an open standard output");
    assert!(
        after.num_fds <= before.num_fds + 2.0,
        "{} descriptors",
        after.num_fds
    );
    assert!(threads.abs() < f64::EPSILON, "{threads} threads a second");
    assert!(text.contains("\njustapi_panics_total 0\n"), "{text}");
    if seconds.is_none() {
        // Too short for a slope: what many rounds leave is to be small.
        let grown = after.rss_bytes - before.rss_bytes;
        assert!(grown < 4.0 * KIB * KIB, "{grown} bytes more");
    } else {
        // A leak is what the fit is sure of.
        assert!(rss - rss_width < MIB_AN_HOUR, "{rss} bytes a second");
        assert!(fds - fds_width <= 0.01, "{fds} descriptors a second");
    }
}
