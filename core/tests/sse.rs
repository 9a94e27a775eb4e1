//! Event streams of handlers of our own over real sockets: slow clients, a
//! broadcast to many, the end of the server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use justapi_core::{
    BoundAddress, Event, EventBroadcast, EventSender, Limits, Listen, Request, Router, Running,
    SendEventError, Server, Sse, inline,
};

const EVENT_BYTES: usize = 60_000;

fn serve(router: Router, limits: Limits) -> (Running, SocketAddr) {
    let server = Server::new(router)
        .limits(limits)
        .lanes(2)
        .listen(Listen::Tcp(([127, 0, 0, 1], 0).into()));
    let running = server.start().expect("a free port");
    let BoundAddress::Tcp { address, .. } = running.addresses()[0] else {
        unreachable!("a TCP address was asked for");
    };
    (running, address)
}

/// Asks for `path` and reads the response head.
fn open(address: SocketAddr, path: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a valid time");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: a\r\n\r\n").expect("a peer");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        let length = reader.read_line(&mut line).expect("a response head");
        assert!(length > 0, "no response head");
    }
    reader
}

/// Waits until `done` holds.
#[track_caller]
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn large(number: usize) -> Event {
    Event::new().with_data(format!("{number:0EVENT_BYTES$}"))
}

/// Numbers of the events up to the end of the stream.
fn numbers(reader: &mut BufReader<TcpStream>) -> Vec<usize> {
    let mut numbers = Vec::new();
    let mut line = String::new();
    while reader.read_line(&mut line).expect("no reset") > 0 {
        if let Some(data) = line.strip_prefix("data: ") {
            numbers.push(data.trim_end().parse().expect("a number"));
        }
        line.clear();
    }
    numbers
}

/// Reads a stream that is cut off: of HTTP/1.0, so that only a reset says it.
fn cut_off(reader: &mut BufReader<TcpStream>) -> Vec<u8> {
    let mut seen = Vec::new();
    let error = reader.read_to_end(&mut seen).expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    seen
}

/// How many events a producer got rid of, and why it stopped.
#[derive(Default)]
struct Produced {
    num_sent: AtomicUsize,
    was_lagging: AtomicUsize,
}

impl Produced {
    async fn run(&self, events: EventSender, num_events: usize) {
        for number in 0..num_events {
            match events.send(large(number)).await {
                Ok(()) => self.num_sent.fetch_add(1, Ordering::Relaxed),
                Err(SendEventError::Lagging) => {
                    self.was_lagging.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(_) => return,
            };
        }
    }

    /// Waits until no event has been sent for a while; how many were.
    fn settled(&self) -> usize {
        let mut last = (self.num_sent.load(Ordering::Relaxed), Instant::now());
        eventually("the producer waits", || {
            let now = self.num_sent.load(Ordering::Relaxed);
            if now != last.0 {
                last = (now, Instant::now());
            }
            now > 0 && last.1.elapsed() > Duration::from_millis(200)
        });
        last.0
    }
}

fn producing(produced: &Arc<Produced>, num_events: usize) -> Router {
    let (inside, beside) = (Arc::clone(produced), Arc::clone(produced));
    Router::new()
        .get(
            "/inside",
            inline(move |_: Request| {
                let produced = Arc::clone(&inside);
                Sse::produce(async move |events| produced.run(events, num_events).await)
            }),
        )
        .and_then(|router| {
            router.get(
                "/beside",
                inline(move |_: Request| {
                    let (events, sse) = Sse::channel();
                    let produced = Arc::clone(&beside);
                    tokio::task::spawn_local(async move {
                        produced.run(events, num_events).await;
                    });
                    sse
                }),
            )
        })
        .expect("two routes")
}

#[test]
fn a_producer_waits_for_a_client_that_reads_late() {
    const MAX_AHEAD: usize = 300;
    for path in ["/inside", "/beside"] {
        let produced = Arc::new(Produced::default());
        let num_events = 600;
        let (running, address) = serve(producing(&produced, num_events), Limits::DEFAULT);
        let mut reader = open(address, path);
        let num_sent = produced.settled();
        // The queue's 64 events, hyper's buffer and the kernel's two.
        assert!(num_sent < MAX_AHEAD, "{path}: {num_sent} events ahead");
        let expected: Vec<_> = (0..num_events).collect();
        assert_eq!(numbers(&mut reader), expected, "{path}");
        drop(reader);
        assert!(running.drain().finished);
    }
}

#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let limits = Limits {
        sse_lag_timeout: Duration::from_millis(100),
        ..Limits::DEFAULT
    };
    let produced = Arc::new(Produced::default());
    let (running, address) = serve(producing(&produced, 10_000), limits);
    let mut reader = open(address, "/beside");
    eventually("the client is cut off", || {
        produced.was_lagging.load(Ordering::Relaxed) == 1
    });
    // Of what was on its way some arrives; the queue does not.
    let rest = cut_off(&mut reader);
    assert!(rest.len() < produced.num_sent.load(Ordering::Relaxed) * EVENT_BYTES);
    let mut metrics = String::new();
    eventually("it is counted", || {
        metrics.clear();
        open(address, "/metrics")
            .read_to_string(&mut metrics)
            .expect("metrics");
        metrics.contains("justapi_rejected_total{reason=\"sse_lag\"} 1\n")
    });
    assert!(running.drain().finished);
}

#[test]
fn a_broadcast_reaches_every_client_on_every_lane() {
    const CLIENTS: usize = 200;
    const EVENTS: usize = 100;
    let broadcast = EventBroadcast::new(EVENTS);
    let feed = broadcast.clone();
    let router = Router::new()
        .get(
            "/feed",
            inline(move |request: Request| feed.subscribe(request.last_event_id())),
        )
        .expect("one route");
    let (running, address) = serve(router, Limits::DEFAULT);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| open(address, "/feed")).collect();
    assert_eq!(broadcast.num_clients(), CLIENTS);
    for number in 0..EVENTS {
        broadcast.send(Event::new().with_data(number.to_string()));
    }
    broadcast.close();
    let expected: Vec<_> = (0..EVENTS).collect();
    for client in &mut clients {
        assert_eq!(numbers(client), expected);
    }
    drop(clients);
    assert!(running.drain().finished);
    assert_eq!(broadcast.num_clients(), 0);
}

/// One slow client of a broadcast is cut off, the others miss nothing.
#[test]
fn a_client_that_falls_out_of_a_broadcast_harms_nobody() {
    let broadcast = EventBroadcast::new(8);
    let feed = broadcast.clone();
    let router = Router::new()
        .get("/feed", inline(move |_: Request| feed.subscribe(None)))
        .expect("one route");
    let (running, address) = serve(router, Limits::DEFAULT);
    let slow = open(address, "/feed");
    let mut fast = open(address, "/feed");
    let mut line = String::new();
    let num_events = 400;
    for number in 0..num_events {
        broadcast.send(large(number));
        while !line.starts_with("data: ") {
            line.clear();
            fast.read_line(&mut line).expect("an event");
        }
        assert_eq!(line[6..].trim_end().parse(), Ok(number));
        line.clear();
    }
    let mut slow = slow;
    let seen = cut_off(&mut slow);
    assert!(seen.len() < num_events * EVENT_BYTES, "{}", seen.len());
    eventually("it is gone", || broadcast.num_clients() == 1);
    drop(fast);
    assert!(running.drain().finished);
}

#[test]
fn a_drain_ends_streams_after_what_was_sent() {
    let broadcast = EventBroadcast::new(8);
    let feed = broadcast.clone();
    let router = Router::new()
        .get("/feed", inline(move |_: Request| feed.subscribe(None)))
        .expect("one route");
    let (running, address) = serve(router, Limits::DEFAULT);
    let mut client = open(address, "/feed");
    broadcast.send(Event::new().with_data("1"));
    let start = Instant::now();
    let draining = std::thread::spawn(|| running.drain());
    let mut seen = String::new();
    client.read_to_string(&mut seen).expect("no reset");
    assert_eq!(seen, "data: 1\n\n: the server is stopping\n\n");
    drop(client);
    assert!(draining.join().expect("no panic").finished);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
}
