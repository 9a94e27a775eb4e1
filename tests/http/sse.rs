//! Server-sent events of the demo's `/events`: framing, resuming, slow and
//! gone clients, the end of the server.

use std::io::Read as _;
use std::time::{Duration, Instant};

use justapi_core::{EventDecoder, ReceivedEvent};
use rustix::process::Signal;

use crate::support::client::{Client, End, ReadError};
use crate::support::http2::{Http2, get as h2_get, request};
use crate::support::server::Server;
use crate::support::{PATIENCE, eventually};

/// A client of one stream.
struct Events {
    client: Client,
    decoder: EventDecoder,
    /// Everything that came, to look at comments.
    text: String,
}

impl Events {
    /// Asks for `target`, after the event with this id.
    fn open(server: &Server, target: &str, last_event_id: Option<&str>) -> Self {
        let mut client = server.connect();
        let resume = last_event_id.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{resume}\r\n"));
        let head = client.read_head().expect("a response head");
        assert_eq!(head.status, 200, "{head:?}");
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache"),
            ("x-accel-buffering", "no"),
            ("transfer-encoding", "chunked"),
        ] {
            assert_eq!(head.header(name), Some(value), "{head:?}");
        }
        Self {
            client,
            decoder: EventDecoder::new(),
            text: String::new(),
        }
    }

    /// The next event; `None` at the clean end of the stream.
    fn next(&mut self) -> Result<Option<ReceivedEvent>, ReadError> {
        loop {
            if let Some(event) = self.decoder.next_event() {
                return Ok(Some(event));
            }
            let Some(chunk) = self.client.read_chunk()? else {
                return Ok(None);
            };
            self.text.push_str(&String::from_utf8_lossy(&chunk));
            self.decoder.feed(&chunk).expect("small events");
        }
    }

    /// Ids of all events up to the clean end of the stream.
    fn ids(mut self) -> Vec<String> {
        let mut ids = Vec::new();
        while let Some(event) = self.next().expect("a clean end") {
            assert_eq!(event.data, format!("{{\"tick\":{}}}", event.last_event_id));
            ids.push(event.last_event_id.to_string());
        }
        ids
    }
}

#[test]
fn ticks_come_one_by_one_and_end_cleanly() {
    let server = Server::start(&[]);
    let events = Events::open(&server, "/events?count=5&interval_ms=1", None);
    assert_eq!(events.ids(), ["1", "2", "3", "4", "5"]);
}

/// Each event is on its way before the next one is made.
#[test]
fn an_event_is_not_held_back() {
    let server = Server::start(&[]);
    let mut events = Events::open(&server, "/events?interval_ms=400", None);
    let start = Instant::now();
    events.next().unwrap().expect("a first event");
    let first = start.elapsed();
    assert!(first < Duration::from_millis(790), "{first:?}");
}

#[test]
fn a_client_resumes_behind_its_last_event() {
    let server = Server::start(&[]);
    let target = "/events?count=5&interval_ms=1";
    for (id, expected) in [
        ("3", &["4", "5"][..]),
        ("0", &["1", "2", "3", "4", "5"]),
        ("no number", &["1", "2", "3", "4", "5"]),
    ] {
        let events = Events::open(&server, target, Some(id));
        assert_eq!(events.ids(), expected, "{id}");
    }
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 5\r\n\r\n");
    assert_eq!(server.connect().ask(request).status, 204);
}

#[test]
fn parameters_out_of_bounds_are_400() {
    let server = Server::start(&[]);
    for query in [
        "count=0",
        "count=-1",
        "count=x",
        "count",
        "count=99999999999999999999999",
        "interval_ms=0",
        "interval_ms=60001",
    ] {
        let response = server.get(&format!("/events?{query}"));
        assert_eq!(response.status, 400, "{query}");
        assert_eq!(
            response.header("content-type"),
            Some("application/problem+json")
        );
    }
}

#[test]
fn a_head_request_gets_no_events() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let head = client.ask("HEAD /events HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!(client.get("/hello").status, 200);
}

#[test]
fn a_quiet_stream_is_kept_alive_by_comments() {
    let server = Server::start(&["--sse-keep-alive", "100ms"]);
    let mut events = Events::open(&server, "/events?count=1&interval_ms=1000", None);
    assert!(events.next().unwrap().is_some());
    let num_comments = events.text.matches(":\n\n").count();
    assert!((5..=20).contains(&num_comments), "{:?}", events.text);
}

#[test]
fn http_2_streams_events_too() {
    let server = Server::start(&[]);
    let mut connection = Http2::connect(server.address());
    let outcome = connection.get(1, "/events?count=3&interval_ms=1");
    assert_eq!(outcome.status(), Some(200));
    assert_eq!(outcome.header("content-type"), Some("text/event-stream"));
    let mut decoder = EventDecoder::new();
    decoder
        .feed(outcome.text().as_bytes())
        .expect("small events");
    let ids: Vec<_> = std::iter::from_fn(|| decoder.next_event())
        .map(|event| event.last_event_id.to_string())
        .collect();
    assert_eq!(ids, ["1", "2", "3"]);
}

/// The grace time is 30 s; nobody waits for it.
#[test]
fn streams_end_cleanly_when_the_server_stops() {
    let mut server = Server::start(&[]);
    let mut ticking = Events::open(&server, "/events?interval_ms=10", None);
    let mut silent = Events::open(&server, "/events?interval_ms=60000", None);
    let mut multiplexed = Http2::connect(server.address());
    let bytes = request(1, &h2_get("/events?interval_ms=60000"), b"");
    multiplexed.send(&bytes).expect("an open connection");
    ticking.next().unwrap().expect("a first event");
    // The stream on HTTP/2 has begun once a later request is answered.
    assert_eq!(multiplexed.get(3, "/hello").status(), Some(200));
    server.signal(Signal::TERM);
    while ticking.next().expect("a clean end").is_some() {}
    assert_eq!(silent.next(), Ok(None));
    for events in [&ticking, &silent] {
        assert!(
            events.text.ends_with(": the server is stopping\n\n"),
            "{}",
            events.text
        );
    }
    let outcome = multiplexed.outcome(1);
    assert_eq!(
        outcome.text(),
        ": the server is stopping\n\n",
        "{outcome:?}"
    );
    assert_eq!(server.exit(Duration::from_secs(2)).code(), Some(0));
}

#[test]
fn a_client_that_leaves_is_found_out() {
    let server = Server::start(&["--sse-keep-alive", "50ms"]);
    let events = Events::open(&server, "/events?interval_ms=60000", None);
    let has_open = |number: u32| {
        let metrics = server.get("/metrics").text();
        let line = format!("\njustapi_connections {number}\n");
        metrics.contains(&line).then_some(())
    };
    // The one that asks, and the stream's.
    eventually(PATIENCE, "the stream is counted", || has_open(2));
    drop(events);
    eventually(PATIENCE, "the stream's connection is closed", || {
        has_open(1)
    });
    let mut client = server.connect();
    client
        .send("GET /events?count=1&interval_ms=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    client
        .stream()
        .read_to_string(&mut answer)
        .expect("a close, no reset");
    assert!(answer.ends_with("0\r\n\r\n"), "{answer}");
    assert_eq!(client.read(), Err(ReadError::Nothing(End::Closed)));
}
