//! More than the server has room for: bodies of a hundred clients at once, and
//! ten times the requests that it can serve.
//!
//! What there is room for is served as if nobody else was there; the rest is
//! told at once to come back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::client::{Client, End, ReadError, get, post};
use crate::support::server::Server;
use crate::support::{PATIENCE, eventually, process};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

fn num_refused(server: &Server) -> usize {
    metric(server, "justapi_rejected_total{reason=\"body_memory\"} ")
}

fn metric(server: &Server, series: &str) -> usize {
    let text = server.get("/metrics").text();
    let value = text.lines().find_map(|line| line.strip_prefix(series));
    value.expect("the series").parse().expect("a whole number")
}

/// A JSON text of so many bytes, and a POST of it.
fn upload(num_bytes: usize) -> String {
    post("/echo", &format!("\"{}\"", "a".repeat(num_bytes - 2)))
}

/// A hundred times the largest body, all but its last byte, at once.
#[test]
fn bodies_that_come_at_once_share_their_memory() {
    const CLIENTS: usize = 100;
    let server = Server::start(&["--limit-body-memory", "16MiB"]);
    let request = upload(2 * MIB);
    let (most, last) = request.as_bytes().split_at(request.len() - 1);
    assert_eq!(server.connect().ask(upload(KIB)).status, 200);
    let before = process::rss_bytes(server.pid());
    let (num_settled, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let statuses = Mutex::new(Vec::new());
    let wait = |mut client: Client| {
        // Whoever is refused may find its connection gone.
        let mut is_open = client.try_send(most).is_ok();
        num_settled.fetch_add(1, Ordering::SeqCst);
        client.set_patience(Duration::from_millis(20));
        let mut answer = None;
        while is_open && answer.is_none() && !is_over.load(Ordering::SeqCst) {
            match client.read() {
                Err(ReadError::Nothing(End::StillOpen)) => {}
                Ok(response) => answer = Some(response.status),
                Err(_) => is_open = false,
            }
        }
        if answer.is_none() && is_open {
            client.set_patience(PATIENCE);
            client.send(last);
            answer = client.read().ok().map(|response| response.status);
        }
        statuses.lock().expect("nobody panics").push(answer);
    };
    let mut most_grown = 0;
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let client = server.connect();
            scope.spawn(|| wait(client));
        }
        eventually(PATIENCE, "all have sent or are refused", || {
            let grown = process::rss_bytes(server.pid()).saturating_sub(before);
            most_grown = most_grown.max(grown);
            (num_settled.load(Ordering::SeqCst) == CLIENTS).then_some(())
        });
        is_over.store(true, Ordering::SeqCst);
    });
    // Buffers grow by doubling; each connection has its read besides.
    let limit = 64 * MIB as u64;
    assert!(most_grown < limit, "{most_grown} bytes for 200 MiB");
    let statuses = statuses.into_inner().expect("nobody panics");
    let num_served = statuses
        .iter()
        .filter(|status| **status == Some(200))
        .count();
    assert!(num_served > 0, "{statuses:?}");
    assert!(num_refused(&server) > CLIENTS / 2, "{statuses:?}");
    let is_due = |status: &Option<u16>| matches!(status, Some(200 | 503) | None);
    assert!(statuses.iter().all(is_due), "{statuses:?}");
    // All of it is given back.
    for _ in 0..20 {
        assert_eq!(server.connect().ask(upload(2 * MIB)).status, 200);
    }
}

/// The refusal says what it is, and when to come back.
#[test]
fn a_body_without_room_is_503_until_there_is_some() {
    let server = Server::start(&["--limit-body-memory", "1MiB"]);
    let held = upload(MIB);
    let mut holder = server.connect();
    let most = &held[..held.len() - 64 * KIB];
    holder.send(most);
    // Before that an upload could take the room that the holder needs.
    eventually(PATIENCE, "the holder has come", || {
        (metric(&server, "justapi_received_bytes_total ") >= most.len()).then_some(())
    });
    let refusal = eventually(PATIENCE, "the memory is taken", || {
        let response = server.connect().ask(upload(200 * KIB));
        (response.status != 200).then_some(response)
    });
    assert_eq!(refusal.status, 503);
    assert_eq!(refusal.header("retry-after"), Some("1"));
    let problem = refusal.json();
    assert_eq!(problem["limit"], "server.limits.body_memory");
    assert_eq!(problem["limit_value"], MIB);
    // What comes in one read needs no room.
    assert_eq!(server.connect().ask(upload(KIB)).status, 200);
    assert_eq!(num_refused(&server), 1);
    holder.send(&held[held.len() - 64 * KIB..]);
    assert_eq!(holder.read().map(|response| response.status), Ok(200));
    assert_eq!(server.connect().ask(upload(200 * KIB)).status, 200);
}

/// A form is held as a whole like any other body, without its empty fields.
#[test]
fn a_form_takes_its_share_of_the_memory() {
    let server = Server::start(&["--limit-body-memory", "64KiB"]);
    let ask = |body: &str| {
        let head = "POST /form HTTP/1.1\r\nHost: a\r\nContent-Length";
        let content_type = "Content-Type: application/x-www-form-urlencoded";
        let length = body.len();
        let request = format!("{head}: {length}\r\n{content_type}\r\n\r\n{body}");
        server.connect().ask(request)
    };
    let refusal = ask(&format!("a={}", "a".repeat(200 * KIB)));
    assert_eq!(refusal.status, 503);
    assert_eq!(refusal.json()["limit"], "server.limits.body_memory");
    assert_eq!(num_refused(&server), 1);
    let sparse = ask(&format!("a=1{}b=2", "&".repeat(200 * KIB)));
    let fields = serde_json::json!([
        {"name": "a", "value": "1"},
        {"name": "b", "value": "2"},
    ]);
    assert_eq!(sparse.json()["fields"], fields);
    // All of it is given back.
    for _ in 0..20 {
        assert_eq!(ask(&format!("a={}", "a".repeat(50 * KIB))).status, 200);
    }
}

/// What a crowd has got, and how long each of it took.
#[derive(Default)]
struct Goodput {
    answers: Mutex<Vec<Duration>>,
    refusals: Mutex<Vec<Duration>>,
    others: Mutex<Vec<String>>,
}

/// An answer that holds its place for a tenth of a second.
const SLOW: &str =
    "GET /events?count=2&interval_ms=100 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

impl Goodput {
    /// `num_clients` ask again and again for a while, and after a refusal when
    /// `retry` is over; answers a second.
    fn measure(
        &self,
        server: &Server,
        num_clients: usize,
        window: Duration,
        retry: Duration,
    ) -> f64 {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..num_clients {
                scope.spawn(|| {
                    while start.elapsed() < window {
                        self.ask(server, retry);
                    }
                });
            }
        });
        let num_served = self.answers.lock().expect("nobody panics").len();
        num_served as f64 / start.elapsed().as_secs_f64()
    }

    fn ask(&self, server: &Server, retry: Duration) {
        let start = Instant::now();
        let mut client = server.connect();
        client.send(SLOW);
        match client.read() {
            Ok(response) if response.status == 200 => {
                let mut answers = self.answers.lock().expect("nobody panics");
                answers.push(start.elapsed());
            }
            Ok(response) if response.status == 503 => self.be_refused(start, retry),
            // A lane says no to 64 at a time, to others by a reset.
            Err(ReadError::Nothing(End::Closed | End::Reset)) => self.be_refused(start, retry),
            other => {
                let mut others = self.others.lock().expect("nobody panics");
                others.push(format!("{other:?}"));
            }
        }
    }
}

impl Goodput {
    fn be_refused(&self, start: Instant, retry: Duration) {
        let elapsed = start.elapsed();
        let mut refusals = self.refusals.lock().expect("nobody panics");
        refusals.push(elapsed);
        drop(refusals);
        // The rate of what is offered, not a wait for the server.
        std::thread::sleep(retry.saturating_sub(elapsed));
    }
}

fn median(durations: Mutex<Vec<Duration>>) -> (usize, Duration) {
    let mut durations = durations.into_inner().expect("nobody panics");
    durations.sort_unstable();
    let middle = durations.get(durations.len() / 2).copied();
    (durations.len(), middle.expect("there are some"))
}

/// Ten times the clients that there are places for: answers go on, and to say
/// no takes less than to answer.
#[test]
fn a_crowd_does_not_lower_what_is_served() {
    const PLACES: usize = 10;
    let server = Server::start(&["--max-connections", "10"]);
    let (second, answer) = (Duration::from_secs(1), Duration::from_millis(100));
    // Who comes back at once may find the place of his last answer taken by it.
    let calm = Goodput::default();
    let capacity = calm.measure(&server, PLACES, second, Duration::from_millis(1));
    let crowd = Goodput::default();
    let crowded = crowd.measure(&server, 10 * PLACES, second * 3 / 2, answer);
    let others = crowd.others.into_inner().expect("nobody panics");
    assert!(others.is_empty(), "{others:#?}");
    // Half of it is no noise of the machine, which has both in the same run.
    assert!(
        crowded >= 0.5 * capacity,
        "{crowded:.0} answers a second of {capacity:.0}"
    );
    let (num_answers, answered) = median(crowd.answers);
    let (num_refusals, refused) = median(crowd.refusals);
    assert!(
        num_refusals > num_answers,
        "{num_refusals} refusals beside {num_answers} answers"
    );
    assert!(
        refused < answered,
        "{refused:?} to refuse and {answered:?} to answer"
    );
    server
        .answers_within(PATIENCE)
        .expect("there is room again");
    let mut client = server.connect();
    assert_eq!(client.ask(get("/hello")).status, 200);
}
