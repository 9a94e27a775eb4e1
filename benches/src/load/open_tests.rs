//! Open loops against real servers: what is offered, what is kept, what a stall does.

use std::io::{BufReader, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::tests::{Server, check, read_request};
use super::*;

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn open(server: &Server, rate: f64) -> LoadPlan {
    LoadPlan {
        pace: Pace::Open(OpenLoop::constant(rate)),
        connections: 8,
        ..server.plan()
    }
}

fn run_checked(plan: &LoadPlan) -> LoadReport {
    let report = run(plan, &AtomicBool::new(false)).unwrap();
    report.check_invariants().unwrap();
    report
}

#[test]
fn every_arrival_is_one_attempt() {
    let server = Server::answering(HELLO);
    for threads in [1, 3] {
        let plan = LoadPlan {
            threads,
            stop: Stop::Duration(Duration::from_millis(500)),
            warm_up: Duration::from_millis(100),
            ..open(&server, 1000.0)
        };
        let report = run_checked(&plan);
        let text = report.render_text();
        assert_eq!(report.attempts, 500, "{text}");
        assert_eq!(report.connections_opened, Some(8), "{text}");
        assert_eq!(report.latency_origin, "intended");
        assert_eq!(report.littles_law_deviation, None);
        let pace = report.open_loop.as_ref().unwrap();
        assert!((pace.offered_rate.unwrap() - 1000.0).abs() < 1e-6, "{text}");
        assert!(report.outcomes.get(Outcome::Ok) >= 450, "{text}");
        assert!(text.contains("requests/s offered"), "{text}");
    }
}

#[test]
fn a_number_of_requests_takes_the_time_of_its_rate() {
    let server = Server::answering(HELLO);
    for (threads, process) in [(1, ArrivalProcess::Constant), (2, ArrivalProcess::Poisson)] {
        let mut schedule = OpenLoop::constant(200.0);
        schedule.process = process;
        schedule.seed = 3;
        let plan = LoadPlan {
            threads,
            stop: Stop::Requests(61),
            pace: Pace::Open(schedule),
            ..open(&server, 1.0)
        };
        let begin = Instant::now();
        let report = check(&plan, &[(Outcome::Ok, 61)]);
        // The last of an even schedule is due after 60 distances.
        let least = if process == ArrivalProcess::Constant {
            300
        } else {
            150
        };
        assert!(begin.elapsed() >= Duration::from_millis(least));
        assert_eq!(report.open_loop.unwrap().lateness.count, 61);
    }
}

#[test]
fn without_keep_alive_each_request_has_a_connection() {
    let server = Server::answering(HELLO);
    let plan = LoadPlan {
        keep_alive: false,
        stop: Stop::Requests(20),
        ..open(&server, 200.0)
    };
    let report = check(&plan, &[(Outcome::Ok, 20)]);
    assert_eq!(report.connections_opened, Some(20));
    assert_eq!(server.connections.load(Ordering::SeqCst), 20);
}

#[test]
fn a_server_that_ends_idle_connections_loses_nothing() {
    let server = Server::new(|stream| {
        stream
            .set_read_timeout(Some(Duration::from_millis(10)))
            .unwrap();
        let mut reader = BufReader::new(&stream);
        while read_request(&mut reader) {
            (&stream).write_all(HELLO.as_bytes()).unwrap();
        }
    });
    let plan = LoadPlan {
        stop: Stop::Requests(12),
        ..open(&server, 40.0)
    };
    let report = check(&plan, &[(Outcome::Ok, 12)]);
    assert!(
        report.connections_opened.unwrap() > 8,
        "{}",
        report.render_text()
    );
}

/// The tickets that follow a handshake are no reason to leave a connection that waits.
#[test]
fn connections_over_tls_wait_for_what_is_due() {
    let (server, _) = super::tests::tls_server(HELLO.as_bytes());
    let url = format!("https://{}/", server.address);
    let plan = LoadPlan {
        stop: Stop::Requests(12),
        connections: 6,
        pace: Pace::Open(OpenLoop::constant(40.0)),
        ..super::tests::plan(&url, Some(&Trust::Insecure))
    };
    let report = check(&plan, &[(Outcome::Ok, 12)]);
    assert_eq!(report.connections_opened, Some(6));
}

/// Answers at once, but for one pause in which it reads nothing.
fn stalling(after: Duration, pause: Duration) -> Server {
    let begin = Arc::new(std::sync::OnceLock::new());
    Server::new(move |stream| {
        let begin = *begin.get_or_init(Instant::now);
        let mut reader = BufReader::new(&stream);
        while read_request(&mut reader) {
            let now = begin.elapsed();
            if (after..after + pause).contains(&now) {
                thread::sleep((after + pause).saturating_sub(now));
            }
            if (&stream).write_all(HELLO.as_bytes()).is_err() {
                return;
            }
        }
    })
}

/// A second in which 1000 requests were due: nearly all of them waited, and only those that
/// were on the way show it to a client that begins to count when it sends.
#[test]
fn a_stall_is_in_the_latency_from_the_intended_instant_only() {
    let server = stalling(Duration::from_secs(1), Duration::from_secs(1));
    let plan = LoadPlan {
        stop: Stop::Duration(Duration::from_secs(4)),
        ..open(&server, 1000.0)
    };
    let report = run_checked(&plan);
    let text = report.render_text();
    let (sent, intended) = (&report.latency, report.latency_intended.as_ref().unwrap());
    assert_eq!(report.attempts, 4000, "{text}");
    assert!(sent.count > 3900, "{text}");
    // 8 of 4000 were on the way: p99 does not see them, the maximum does.
    assert!(sent.p99_ns.unwrap() < 200_000_000, "{text}");
    assert!(sent.max_ns.unwrap() > 900_000_000, "{text}");
    // Waiting times are even between 0 and 1 s for a quarter of the requests (and as long as
    // the backlog takes to drain), so p90 is at least 1 s · (1 - 0.1/0.25), and p99 0.96 s.
    let p90 = intended.p90_ns.unwrap();
    assert!((500_000_000..1_100_000_000).contains(&p90), "{text}");
    assert!(intended.p99_ns.unwrap() > 850_000_000, "{text}");
    let pace = report.open_loop.as_ref().unwrap();
    assert!((900..1100).contains(&pace.max_waiting), "{text}");
    assert!(pace.late_sends > 800 && !pace.saturated, "{text}");
}

#[test]
fn a_rate_that_is_not_reached_is_said() {
    let server = Server::new(|stream| {
        let mut reader = BufReader::new(&stream);
        while read_request(&mut reader) {
            thread::sleep(Duration::from_millis(1));
            if (&stream).write_all(HELLO.as_bytes()).is_err() {
                return;
            }
        }
    });
    let plan = LoadPlan {
        connections: 1,
        stop: Stop::Duration(Duration::from_millis(500)),
        ..open(&server, 50_000.0)
    };
    let report = run_checked(&plan);
    let text = report.render_text();
    let pace = report.open_loop.as_ref().unwrap();
    assert_eq!(report.attempts, 25_000, "{text}");
    assert!(pace.saturated && text.contains("saturated"), "{text}");
    assert!(pace.achieved_ratio.unwrap() < 0.05, "{text}");
    assert!(pace.max_waiting > 20_000, "{text}");
    assert!(report.outcomes.get(Outcome::NotSent) > 20_000, "{text}");
    assert_eq!(report.errors(), report.outcomes.get(Outcome::NotSent));
}

#[test]
fn a_dead_server_is_offered_everything_and_achieves_nothing() {
    let server = Server::answering("");
    let plan = LoadPlan {
        stop: Stop::Duration(Duration::from_millis(300)),
        ..open(&server, 1000.0)
    };
    let report = run_checked(&plan);
    let text = report.render_text();
    assert_eq!(report.attempts, 300, "{text}");
    assert_eq!(report.outcomes.get(Outcome::AbortedAtDeadline), 8, "{text}");
    assert_eq!(report.outcomes.get(Outcome::NotSent), 292, "{text}");
    assert_eq!((report.rate, report.latency.count), (Some(0.0), 0));
    assert!(report.open_loop.unwrap().saturated);
}

/// The time limit of a request begins with its first byte, not when it was due.
#[test]
fn timeouts_count_from_the_send() {
    let served = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&served);
    let server = Server::new(move |stream| {
        let mut reader = BufReader::new(&stream);
        while read_request(&mut reader) {
            counter.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(20));
            drop((&stream).write_all(HELLO.as_bytes()));
        }
    });
    let plan = LoadPlan {
        connections: 1,
        stop: Stop::Requests(20),
        request_timeout: Duration::from_millis(300),
        ..open(&server, 1000.0)
    };
    // The last waits for 19 · 20 ms in line, which is longer than the limit.
    let report = check(&plan, &[(Outcome::Ok, 20)]);
    assert!(report.latency_intended.unwrap().max_ns.unwrap() > 300_000_000);
    assert_eq!(served.load(Ordering::SeqCst), 20);
}

#[test]
fn an_interrupted_open_loop_reports_what_was_due() {
    let server = Server::answering(HELLO);
    let plan = LoadPlan {
        stop: Stop::Duration(Duration::from_mins(10)),
        ..open(&server, 500.0)
    };
    let stop = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        let run = scope.spawn(|| run(&plan, &stop).unwrap());
        thread::sleep(Duration::from_millis(400));
        stop.store(true, Ordering::SeqCst);
        run.join().unwrap()
    });
    report.check_invariants().unwrap();
    assert!(report.interrupted);
    assert!(
        (150..400).contains(&report.attempts),
        "{}",
        report.render_text()
    );
}

#[test]
fn whoever_watches_sees_the_counts_grow() {
    let server = Server::answering(HELLO);
    let plan = LoadPlan {
        stop: Stop::Duration(Duration::from_millis(900)),
        ..open(&server, 1000.0)
    };
    let seen = std::cell::RefCell::new(Vec::new());
    let watch = |progress: &Progress| seen.borrow_mut().push(progress.clone());
    let report = run_watched(&plan, &AtomicBool::new(false), Some(&watch)).unwrap();
    let seen = seen.into_inner();
    assert!(seen.len() >= 2, "{}", seen.len());
    assert!(seen.is_sorted_by_key(|progress| progress.attempts));
    let last = seen.last().unwrap();
    assert!((1..=report.attempts).contains(&last.attempts));
    assert!(last.is_measuring && last.rate.unwrap() > 100.0 && last.p50.is_some());
}

#[test]
fn the_client_alone_is_its_ceiling() {
    let server = Server::answering(HELLO);
    let plan = LoadPlan {
        stop: Stop::Requests(50),
        ..open(&server, 500.0)
    };
    let mut report = run_checked(&plan);
    let like = report.first_response.unwrap();
    let ceiling = calibrate(&plan, &like, None, &AtomicBool::new(false)).unwrap();
    ceiling.check_invariants().unwrap();
    let text = ceiling.render_text();
    assert_eq!(
        ceiling.outcomes.get(Outcome::Ok),
        ceiling.outcomes.responses()
    );
    assert!(ceiling.rate.unwrap() > 5.0 * report.rate.unwrap(), "{text}");
    report.client_bound = false;
    report.set_ceiling(&ceiling);
    assert!(!report.client_bound, "{text}");
    assert_eq!(report.client_ceiling_rate, ceiling.rate);
    // A run that is as fast as the client alone was bound by it.
    let mut bound = ceiling.clone();
    bound.client_bound = false;
    bound.set_ceiling(&ceiling);
    assert!(bound.client_bound && bound.render_text().contains("may be the limit"));
}

/// Bodies of requests, answers without a body, and requests that come in pieces.
#[test]
fn the_null_server_answers_what_it_is_asked() {
    let body = vec![b'x'; 200_000];
    for (method, body, status, length) in [
        ("GET", &b""[..], 200, 3),
        ("HEAD", b"", 200, 3),
        ("POST", &body, 201, 100_000),
        ("PUT", b"x", 204, 0),
    ] {
        let server = NullServer::start(status, length, None).unwrap();
        let url = format!("http://{}/", server.address());
        let mut plan = super::tests::plan(&url, None);
        let target = &plan.target;
        plan.requests =
            vec![RequestTemplate::serialise(target, method, "/", &[], body, true).unwrap()];
        plan.connections = 3;
        plan.expect.status = Some(status);
        let report = check(&plan, &[(Outcome::Ok, 10)]);
        assert_eq!(report.connections_opened, Some(3), "{method}");
        let found = report.first_response.unwrap().body_len;
        assert_eq!(found, if method == "HEAD" { 0 } else { length }, "{method}");
    }
}
