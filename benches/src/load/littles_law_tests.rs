//! Little's law as a check of this client: the time of its connections is all accounted for, and a
//! report in which some is missing, or there twice, is refused.

use std::thread::sleep;
use std::time::Instant;

use super::tests::{Server, check_any, read_request};
use super::*;

const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A server that answers each request of a connection after so long, so many of them.
fn server(delay: Duration, responses: usize) -> Server {
    Server::new(move |stream| {
        let mut reader = std::io::BufReader::new(&stream);
        for _ in 0..responses {
            if !read_request(&mut reader) {
                return;
            }
            sleep(delay);
            if std::io::Write::write_all(&mut &stream, HELLO).is_err() {
                return;
            }
        }
    })
}

fn for_a_time(server: &Server, warm_up_ms: u64) -> LoadPlan {
    LoadPlan {
        connections: 4,
        stop: Stop::Duration(Duration::from_millis(400)),
        warm_up: Duration::from_millis(warm_up_ms),
        ..server.plan()
    }
}

/// Whatever the server does, and however long a request of the warm-up lasts into the rest.
#[test]
fn the_time_of_every_connection_is_accounted_for() {
    let ms = Duration::from_millis;
    let quick = server(Duration::ZERO, usize::MAX);
    let slow = server(ms(150), usize::MAX);
    let closing = server(ms(1), 3);
    let silent = server(Duration::from_mins(1), 1);
    let gone = server(Duration::ZERO, 0);
    for (name, plan) in [
        ("quick", for_a_time(&quick, 0)),
        ("slow after a warm-up", for_a_time(&slow, 100)),
        ("closing", for_a_time(&closing, 50)),
        (
            "without keep-alive",
            LoadPlan {
                keep_alive: false,
                ..for_a_time(&quick, 0)
            },
        ),
        ("cut off", for_a_time(&silent, 0)),
        (
            "timed out",
            LoadPlan {
                request_timeout: ms(70),
                ..for_a_time(&silent, 0)
            },
        ),
        ("closed without an answer", for_a_time(&gone, 0)),
    ] {
        let report = check_any(&plan);
        let unaccounted = report.unaccounted_ratio.unwrap();
        assert!(unaccounted < 0.02, "{name}: {unaccounted}");
    }
}

/// Where it is not known what a connection should have done, nothing is claimed.
#[test]
fn without_a_duration_or_in_an_open_loop_there_is_no_account() {
    let quick = server(Duration::ZERO, usize::MAX);
    let counted = check_any(&quick.plan());
    assert_eq!(counted.unaccounted_ratio, None);
    let open = LoadPlan {
        pace: Pace::Open(OpenLoop::constant(100.0)),
        stop: Stop::Duration(Duration::from_millis(100)),
        ..quick.plan()
    };
    assert_eq!(check_any(&open).unaccounted_ratio, None);
}

/// Half of the connections are not there: the client has lost them.
#[test]
fn a_lost_connection_makes_a_report_contradict_itself() {
    let quick = server(Duration::from_millis(1), usize::MAX);
    let plan = LoadPlan {
        stop: Stop::Duration(Duration::from_secs(1)),
        ..for_a_time(&quick, 0)
    };
    let mut share = shares(&plan).remove(0);
    share.connections /= 2;
    let load = Load::new(&plan, share, None).unwrap();
    let (tally, thread) = load
        .run(Instant::now(), &AtomicBool::new(false), None)
        .unwrap();
    let report = LoadReport::new(&plan, &tally, vec![thread]);
    let unaccounted = report.unaccounted_ratio.unwrap();
    assert!(unaccounted > 0.02, "{unaccounted}");
    let error = report.check_invariants().unwrap_err().to_string();
    assert!(
        error.contains("Little's law: time of connections"),
        "{error}"
    );
}

/// More requests under way than there are connections.
#[test]
fn a_response_that_counts_twice_makes_a_report_contradict_itself() {
    let slow = server(Duration::from_millis(20), usize::MAX);
    let mut report = check_any(&for_a_time(&slow, 0));
    let deviation = report.littles_law_deviation.unwrap();
    assert!(deviation <= 0.02, "{deviation}");
    report.littles_law_deviation = Some(2.0 * (1.0 + deviation) - 1.0);
    let error = report.check_invariants().unwrap_err().to_string();
    assert!(
        error.contains("Little's law: requests under way"),
        "{error}"
    );
}
