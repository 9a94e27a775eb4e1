//! HTTP/1.1 connections whose handlers, clients or files misbehave, over real
//! sockets.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use justapi_core::{
    Body, BoundAddress, HeaderValue, Limits, Listen, Request, Response, Router, Running, Server,
    inline,
};

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain");

/// Starts a server of `router` on a free port.
fn serve(router: Router, limits: Limits) -> (Running, SocketAddr) {
    let server = Server::new(router)
        .listen(Listen::Tcp(([127, 0, 0, 1], 0).into()))
        .limits(limits);
    let running = server.start().expect("a free port");
    let BoundAddress::Tcp { address, .. } = running.addresses()[0] else {
        unreachable!("a TCP address was asked for");
    };
    (running, address)
}

fn ask(address: SocketAddr, pieces: &[&str]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream.set_nodelay(true).expect("a socket");
    for piece in pieces {
        stream.write_all(piece.as_bytes()).expect("a peer");
    }
    stream
}

fn read_to_end(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("no reset");
    String::from_utf8_lossy(&answer).into_owned()
}

/// A stream of `count` pieces, one after each `pause`.
fn ticking(count: usize, pause: Duration) -> Response {
    let (sender, body) = Body::channel(1);
    tokio::task::spawn_local(async move {
        for _ in 0..count {
            tokio::time::sleep(pause).await;
            if sender.send("tick").await.is_err() {
                break;
            }
        }
    });
    Response::with_content(PLAIN, body)
}

/// The deadline of a head ends with the head.
#[test]
fn an_answer_may_take_longer_than_a_head() {
    let router = Router::new()
        .get("/slow", async |_: Request| {
            tokio::time::sleep(Duration::from_millis(500)).await;
            "slow"
        })
        .and_then(|router| {
            router.get(
                "/stream",
                inline(|_: Request| ticking(5, Duration::from_millis(100))),
            )
        })
        .expect("routes");
    let limits = Limits {
        header_timeout: Duration::from_millis(200),
        ..Limits::DEFAULT
    };
    let (running, address) = serve(router, limits);
    for (path, end) in [("/slow", "slow"), ("/stream", "4\r\ntick\r\n0\r\n\r\n")] {
        let line = format!("GET {path} HTTP/1.1\r\n");
        let rest = "Host: a\r\nConnection: close\r\n\r\n";
        let first = "GET /none HTTP/1.1\r\nHost: a\r\n\r\n";
        for pieces in [
            vec![format!("{line}{rest}")],
            vec![line.clone(), rest.to_owned()],
            vec![format!("{first}{line}"), rest.to_owned()],
        ] {
            let mut stream = ask(address, &[&pieces[0]]);
            if pieces[0].starts_with(first) {
                // Until its answer is there, the next head is in the server.
                assert_ne!(stream.peek(&mut [0]).expect("an answer"), 0);
            }
            for piece in &pieces[1..] {
                stream.write_all(piece.as_bytes()).expect("a peer");
            }
            let answer = read_to_end(stream);
            assert!(answer.ends_with(end), "{pieces:?}: {answer}");
            assert!(!answer.contains("HTTP/1.1 408"), "{pieces:?}: {answer}");
        }
    }
    assert!(running.drain().finished);
}

/// Nothing of a file follows a head that announces nothing.
#[test]
fn an_empty_file_is_answered_at_once() {
    let path = tempfile::NamedTempFile::new().expect("a file");
    let file = Arc::new(File::open(path.path()).expect("a file"));
    let router = Router::new()
        .get(
            "/empty",
            inline(move |_: Request| {
                Response::with_content(PLAIN, Body::file(Arc::clone(&file), 0..0))
            }),
        )
        .expect("one route");
    let (running, address) = serve(router, Limits::DEFAULT);
    let mut stream = ask(address, &[]);
    let start = Instant::now();
    for _ in 0..10 {
        stream
            .write_all(b"GET /empty HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("a peer");
        let mut buffer = [0; 1024];
        assert!(stream.read(&mut buffer).expect("an answer") > 0);
    }
    // A head that waits for company waits for 200 ms.
    assert!(
        start.elapsed() < Duration::from_millis(500),
        "{:?}",
        start.elapsed()
    );
    drop(stream);
    assert!(running.drain().finished);
}

/// As `nc -N` does: all is asked, and then read for as long as it takes.
#[test]
fn a_half_closed_client_gets_an_answer_for_as_long_as_it_goes_on() {
    let router = Router::new()
        .get(
            "/stream",
            inline(|_: Request| ticking(7, Duration::from_secs(1))),
        )
        .expect("one route");
    let (running, address) = serve(router, Limits::DEFAULT);
    let stream = ask(address, &["GET /stream HTTP/1.1\r\nHost: a\r\n\r\n"]);
    stream.shutdown(Shutdown::Write).expect("a socket");
    let answer = read_to_end(stream);
    assert!(answer.ends_with("4\r\ntick\r\n0\r\n\r\n"), "{answer}");
    assert_eq!(answer.matches("tick").count(), 7, "{answer}");
    assert!(running.drain().finished);
}

/// Only a reset tells an HTTP/1.0 client that more was to come.
#[test]
fn an_answer_that_is_given_up_never_looks_complete() {
    let router = Router::new()
        .get(
            "/stream",
            inline(|_: Request| ticking(2, Duration::from_secs(20))),
        )
        .expect("one route");
    let limits = Limits {
        grace: Duration::from_millis(200),
        ..Limits::DEFAULT
    };
    let (running, address) = serve(router, limits);
    let mut half_closed = ask(address, &["GET /stream HTTP/1.0\r\n\r\n"]);
    let mut buffer = [0; 1024];
    assert!(half_closed.read(&mut buffer).expect("a head") > 0);
    half_closed.shutdown(Shutdown::Write).expect("a socket");
    let error = half_closed
        .read_to_end(&mut Vec::new())
        .expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);

    let mut killed = ask(address, &["GET /stream HTTP/1.0\r\n\r\n"]);
    assert!(killed.read(&mut buffer).expect("a head") > 0);
    assert!(!running.drain().finished);
    let error = killed.read_to_end(&mut Vec::new()).expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// Tells when a handler's future is dropped.
struct OnDrop(std::sync::mpsc::Sender<&'static str>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        // The test is over when nobody listens.
        let _unheard = self.0.send("dropped");
    }
}

/// Its bytes lie in the socket, where a read would meet them before the reset.
#[test]
fn a_client_that_resets_behind_a_body_that_nobody_reads_is_noticed() {
    let (sender, events) = std::sync::mpsc::channel();
    let router = Router::new()
        .post("/unread", move |_request: Request| {
            let sender = sender.clone();
            async move {
                let _guard = OnDrop(sender.clone());
                sender.send("begun").expect("the test listens");
                std::future::pending::<()>().await;
                "never"
            }
        })
        .expect("a route");
    let (running, address) = serve(router, Limits::DEFAULT);
    let head = "POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
    let patience = Duration::from_secs(10);
    for length in [0, 5, 100_000, 400_000] {
        let stream = ask(address, &[head, &"x".repeat(length)]);
        assert_eq!(events.recv_timeout(patience), Ok("begun"), "{length}");
        socket2::SockRef::from(&stream)
            .set_linger(Some(Duration::ZERO))
            .expect("linger can be set on a socket");
        drop(stream);
        assert_eq!(events.recv_timeout(patience), Ok("dropped"), "{length}");
    }
    assert!(running.drain().finished);
}
