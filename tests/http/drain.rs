//! Stopping: whatever was fully asked is answered, and the exit code is 0.
//!
//! *Lost* is a request that was fully sent and got no complete answer, and a
//! connection that was refused before the stop was asked for: afterwards its
//! client can go elsewhere.

use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::http2_flow::{HTTP_2_UPLOADS, check_download, finish_download, start_download};
use crate::support::client::{Client, End, ReadError, get, show};
use crate::support::hpack;
use crate::support::http2::{Http2, PREFACE, flag, frame, kind, method, request};
use crate::support::server::{Server, serve};
use crate::support::{PATIENCE, eventually};

const SOON: Duration = Duration::from_secs(2);

/// Answers got, and what became of each lost request, by all clients of a load.
#[derive(Default)]
struct Load {
    num_answered: AtomicUsize,
    is_stopping: AtomicBool,
    lost: Mutex<Vec<String>>,
}

impl Load {
    /// Asks until nobody accepts any more.
    fn run(&self, address: SocketAddr, is_kept_alive: bool) {
        loop {
            match Client::try_connect(address) {
                Ok(mut client) => while self.ask(&mut client, is_kept_alive) && is_kept_alive {},
                Err(_) if self.is_stopping.load(Ordering::SeqCst) => return,
                Err(error) => {
                    return self.lose(format!("refused before the stop: {error}"));
                }
            }
        }
    }

    /// One request; whether the connection may be used again.
    fn ask(&self, client: &mut Client, is_kept_alive: bool) -> bool {
        if let Err(error) = client.try_send(get("/hello")) {
            self.lose(format!("not sent: {error}"));
            return false;
        }
        match client.read() {
            Ok(response) => {
                self.num_answered.fetch_add(1, Ordering::Relaxed);
                response.header("connection") != Some("close")
            }
            Err(error) => {
                let kind = if is_kept_alive { "kept alive" } else { "new" };
                self.lose(format!("{kind}: {error}"));
                false
            }
        }
    }

    fn lose(&self, what: String) {
        self.lost.lock().expect("no client panics").push(what);
    }
}

/// An upload that the handler waits for: half of its body is missing.
pub(crate) fn start_upload(server: &Server) -> Client {
    let mut client = server.connect();
    client.send(
        "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
    );
    let mut interim = [0; 25];
    client
        .stream()
        .read_exact(&mut interim)
        .expect("100 Continue");
    client.send("[1");
    client
}

/// Waits until new connections are refused or told that we are going.
pub(crate) fn wait_for_drain(server: &Server) {
    eventually(SOON, "drain begins", || {
        let Ok(mut client) = Client::try_connect(server.address()) else {
            return Some(());
        };
        client.send(get("/ready"));
        let status = client.read().map(|response| response.status);
        (status != Ok(200)).then_some(())
    });
}

#[test]
fn no_request_is_lost_under_load() {
    for signal in [Signal::TERM, Signal::INT].into_iter().cycle().take(5) {
        let mut server = Server::start(&[]);
        let address = server.address();
        let load = Load::default();
        std::thread::scope(|scope| {
            let load = &load;
            for index in 0..20 {
                scope.spawn(move || load.run(address, index % 2 == 0));
            }
            eventually(Duration::from_secs(10), "load is on", || {
                (load.num_answered.load(Ordering::Relaxed) > 100).then_some(())
            });
            load.is_stopping.store(true, Ordering::SeqCst);
            server.signal(signal);
        });
        let lost = load.lost.into_inner().expect("no client panics");
        assert!(lost.is_empty(), "{signal:?} lost {}: {lost:#?}", lost.len());
        assert_eq!(server.exit(SOON).code(), Some(0), "{signal:?}");
    }
}

/// Whoever is told that we listen may ask, and a signal may come at once.
#[test]
fn a_signal_while_the_lanes_start_loses_no_request() {
    for round in 0..10 {
        let mut server = Server::start(&["--lanes", "16"]);
        let mut clients: Vec<_> = (0..16).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send(get("/hello"));
        }
        server.signal(Signal::TERM);
        for client in &mut clients {
            let status = client.read().map(|response| response.status);
            assert_eq!(status, Ok(200), "round {round}");
        }
        drop(clients);
        assert_eq!(server.exit(SOON).code(), Some(0), "round {round}");
    }
}

#[test]
fn an_idle_server_stops_at_once() {
    let mut server = Server::start(&[]);
    let mut idle = server.connect();
    assert_eq!(idle.get("/hello").status, 200);
    let mut silent = server.connect();
    let start = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.exit(SOON).code(), Some(0));
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    for client in [&mut idle, &mut silent] {
        assert_eq!(client.read(), Err(ReadError::Nothing(End::Closed)));
    }
}

#[test]
fn a_request_in_flight_is_finished() {
    let mut server = Server::start(&[]);
    let mut upload = start_upload(&server);
    server.signal(Signal::TERM);
    wait_for_drain(&server);
    upload.send("]");
    let response = upload.read().unwrap();
    assert_eq!((response.status, response.text().as_str()), (200, "[1]"));
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(upload.read(), Err(ReadError::Nothing(End::Closed)));
    assert_eq!(server.exit(SOON).code(), Some(0));
}

#[test]
fn readiness_turns_503_while_the_server_drains() {
    let server = Server::start(&[]);
    let mut probe = server.connect();
    assert_eq!(probe.get("/ready").status, 200);
    let mut upload = start_upload(&server);
    server.signal(Signal::TERM);
    wait_for_drain(&server);
    probe.send(get("/ready"));
    let response = probe
        .read()
        .expect("a connection from before the drain is answered");
    assert_eq!(response.status, 503);
    assert_eq!(response.header("connection"), Some("close"));
    upload.send("]");
    assert_eq!(upload.read().map(|response| response.status), Ok(200));
}

#[test]
fn the_access_log_is_complete_at_the_end() {
    const COUNT: usize = 200;
    let mut server = Server::start(&["--access-log", "json"]);
    let mut client = server.connect();
    for index in 0..COUNT {
        client.get(&format!("/anything/logged-{index}"));
    }
    server.signal(Signal::TERM);
    assert_eq!(server.exit(SOON).code(), Some(0));
    server.wait_for_line(&format!("logged-{}\"", COUNT - 1));
    let lines = server.lines();
    let num_logged = lines
        .iter()
        .filter(|line| line.contains("/logged-"))
        .count();
    assert_eq!(num_logged, COUNT);
}

/// The bad request came before the server could close, but after its last word.
#[test]
fn nothing_is_answered_behind_a_last_answer() {
    let mut server = Server::start(&[]);
    let mut upload = start_upload(&server);
    server.signal(Signal::TERM);
    wait_for_drain(&server);
    upload.send("]GET / HTTP/1.1\r\n\r\n");
    let response = upload.read().unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(response.header("connection"), Some("close"));
    let (rest, end) = upload.read_to_end();
    assert_eq!((show(&rest).as_str(), end), ("", End::Closed));
    drop(upload);
    assert_eq!(server.exit(SOON).code(), Some(0));
}

/// On a Unix socket, where connecting waits for room in the backlog: it is
/// never found empty.
#[test]
fn a_flood_of_new_connections_does_not_hold_the_drain() {
    let folder = TempDir::new().expect("a writable temporary folder");
    let path = folder.path().join("justapi.sock");
    let mut command = serve();
    command.arg("--uds").arg(&path).args(["--graceful", "10s"]);
    let mut server = Server::spawn(command);
    let _listening = server.wait_for_line("unix:");
    let num_connects = AtomicUsize::new(0);
    let end = Instant::now() + 3 * PATIENCE;
    let elapsed = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while Instant::now() < end && UnixStream::connect(&path).is_ok() {
                    num_connects.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        eventually(SOON, "the flood is on", || {
            (num_connects.load(Ordering::Relaxed) > 1000).then_some(())
        });
        let start = Instant::now();
        server.signal(Signal::TERM);
        assert_eq!(server.exit(2 * PATIENCE).code(), Some(0));
        start.elapsed()
    });
    // Half of the grace time, and the flood goes on.
    assert!(elapsed < PATIENCE, "{elapsed:?}");
}

#[test]
fn the_grace_time_bounds_the_drain() {
    let mut server = Server::start(&["--graceful", "500ms"]);
    let mut upload = start_upload(&server);
    let start = Instant::now();
    server.signal(Signal::TERM);
    let status = server.exit(Duration::from_secs(3));
    let elapsed = start.elapsed();
    let is_due = Duration::from_millis(450)..Duration::from_secs(2);
    assert!(is_due.contains(&elapsed), "{elapsed:?}");
    assert_eq!(status.code(), Some(143), "something was cut off");
    assert!(upload.read().is_err());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for second in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&[]);
        let _upload = start_upload(&server);
        server.signal(Signal::TERM);
        wait_for_drain(&server);
        assert!(server.is_running());
        let start = Instant::now();
        server.signal(second);
        let status = server.exit(SOON);
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
        assert!(matches!(status.code(), Some(130 | 143)), "{status}");
    }
}

#[test]
fn http_2_gets_a_goaway_and_its_last_answers() {
    let mut server = Server::start(&[]);
    let mut connection = Http2::connect(server.address());
    assert_eq!(connection.get(1, "/hello").status(), Some(200));
    let block = hpack::encode(&method("POST", "/echo"));
    connection
        .send(&frame(kind::HEADERS, flag::END_HEADERS, 3, &block))
        .unwrap();
    connection.send(&frame(kind::DATA, 0, 3, b"[1")).unwrap();
    // The answer on stream 5 proves that stream 3 was seen.
    assert_eq!(connection.get(5, "/hello").status(), Some(200));
    server.signal(Signal::TERM);
    assert_eq!(connection.wait_for_go_away(), Ok(0));
    connection
        .send(&frame(kind::DATA, flag::END_STREAM, 3, b"]"))
        .unwrap();
    assert_eq!(connection.outcome(3).text(), "[1]");
    assert_ne!(connection.read_to_end().1, End::StillOpen);
    assert_eq!(server.exit(SOON).code(), Some(0));
}

#[test]
fn an_http_2_download_is_finished() {
    let mut server = Server::start(&[HTTP_2_UPLOADS, &["--graceful", "20s"]].concat());
    let (mut connection, json) = start_download(&server, 3);
    assert_eq!(connection.read_window(3), None);
    server.signal(Signal::TERM);
    let outcome = finish_download(&mut connection, 3, Duration::from_millis(40));
    check_download(&outcome, &json);
    assert_eq!(server.exit(SOON).code(), Some(0));
}

/// Nothing is in flight there, and the client does not even answer a PING.
#[test]
fn a_silent_http_2_connection_does_not_hold_the_drain() {
    let settings = frame(kind::SETTINGS, 0, 0, &[]);
    let hello = request(1, &method("GET", "/hello"), b"");
    let cases = [
        ("preface", Vec::new(), SOON),
        ("SETTINGS", settings.clone(), SOON),
        // It may be reading its answer.
        ("a request", [settings, hello].concat(), SOON * 3 / 2),
    ];
    std::thread::scope(|scope| {
        for (name, rest, limit) in cases {
            scope.spawn(move || {
                let mut server = Server::start(&["--timeout-header", "5s"]);
                let mut client = server.connect();
                client.send([PREFACE, &rest].concat());
                // The head of the server's SETTINGS: it has seen the preface.
                client.stream().read_exact(&mut [0; 9]).expect(name);
                let start = Instant::now();
                server.signal(Signal::TERM);
                assert_eq!(server.exit(PATIENCE).code(), Some(0), "{name}");
                assert!(start.elapsed() < limit, "{name}: {:?}", start.elapsed());
            });
        }
    });
}

#[test]
fn an_idle_http_2_connection_gets_a_goaway() {
    let mut server = Server::start(&[]);
    let mut connection = Http2::connect(server.address());
    assert_eq!(connection.get(1, "/hello").status(), Some(200));
    server.signal(Signal::TERM);
    assert_eq!(connection.wait_for_go_away(), Ok(0));
    assert_ne!(connection.read_to_end().1, End::StillOpen);
    assert_eq!(server.exit(SOON).code(), Some(0));
}
