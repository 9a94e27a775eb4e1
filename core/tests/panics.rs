//! Panics where no answer is made: in what a handler drops, in a task that it
//! has spawned, on a stream of HTTP/2.
//!
//! Each costs its request or its connection, and every place is given back.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use justapi_core::{
    BoundAddress, Limits, Listen, Request, Response, Router, Running, Server, inline,
};

/// So many connections at once: one that is not given back shows soon.
const PLACES: usize = 4;

/// Panics when it is dropped, unless something panics already.
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        assert!(std::thread::panicking(), "a bug in a drop");
    }
}

fn serve() -> (Running, SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (begun, dropped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let bomb = {
        let dropped = Arc::clone(&dropped);
        move || Bomb(Arc::clone(&dropped))
    };
    let (at_end, when_left, first) = (bomb.clone(), bomb, Arc::clone(&begun));
    let router = Router::new()
        .get("/ok", inline(|_: Request| "ok"))
        .and_then(|router| {
            router.get("/at-end", move |_: Request| {
                let bomb = at_end();
                async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    drop(bomb);
                    "never"
                }
            })
        })
        .and_then(|router| {
            router.get("/when-left", move |_: Request| {
                let bomb = when_left();
                first.fetch_add(1, Ordering::SeqCst);
                async move {
                    std::future::pending::<()>().await;
                    drop(bomb);
                    "never"
                }
            })
        })
        .and_then(|router| {
            router.get("/task", async |_: Request| {
                let task = tokio::task::spawn(async { panic!("a bug in a task") });
                let has_failed = task.await.is_err_and(|error| error.is_panic());
                Response::text(if has_failed {
                    "it panicked"
                } else {
                    "it ended"
                })
            })
        })
        .and_then(|router| {
            router.get("/forgotten-task", async |_: Request| {
                drop(tokio::task::spawn(async { panic!("a bug in a task") }));
                Response::text("begun")
            })
        });
    let limits = Limits {
        max_connections: PLACES,
        ..Limits::DEFAULT
    };
    let server = Server::new(router.expect("routes"))
        .limits(limits)
        .lanes(1)
        .listen(Listen::Tcp(([127, 0, 0, 1], 0).into()));
    let running = server.start().expect("a free port");
    let BoundAddress::Tcp { address, .. } = running.addresses()[0] else {
        unreachable!("a TCP address was asked for");
    };
    (running, address, begun, dropped)
}

#[track_caller]
fn eventually(what: &str, is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_done() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a listener");
    let patience = Some(Duration::from_secs(10));
    stream.set_read_timeout(patience).expect("a valid timeout");
    stream
}

/// `GET path` with `Connection: close`, its answer.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a peer");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("no reset");
    answer
}

/// All places are free: as many connections at once are served.
#[track_caller]
fn check_places(address: SocketAddr) {
    eventually("every place is free", || {
        let mut held: Vec<_> = (0..PLACES).map(|_| connect(address)).collect();
        held.iter_mut().all(|stream| {
            let request = b"GET /ok HTTP/1.1\r\nHost: a\r\n\r\n";
            let mut first = [0; 12];
            stream.write_all(request).is_ok()
                && stream.read_exact(&mut first).is_ok()
                && &first == b"HTTP/1.1 200"
        })
    });
}

#[test]
fn a_panic_in_a_drop_is_a_500() {
    let (running, address, _, dropped) = serve();
    for round in 1..=3 * PLACES {
        let answer = get(address, "/at-end");
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        assert_eq!(dropped.load(Ordering::SeqCst), round);
    }
    check_places(address);
    assert!(running.drain().finished);
}

/// The client is gone: only the connection is left to be lost.
#[test]
fn a_panic_in_what_a_departure_drops_gives_its_place_back() {
    let (running, address, begun, dropped) = serve();
    for round in 1..=3 * PLACES {
        let mut stream = connect(address);
        let request = b"GET /when-left HTTP/1.1\r\nHost: a\r\n\r\n";
        stream.write_all(request).expect("a peer");
        eventually("the handler begins", || {
            begun.load(Ordering::SeqCst) == round
        });
        socket2::SockRef::from(&stream)
            .set_linger(Some(Duration::ZERO))
            .expect("an open socket");
        drop(stream);
        eventually("the handler is dropped", || {
            dropped.load(Ordering::SeqCst) == round
        });
    }
    check_places(address);
    let answer = get(address, "/metrics");
    assert!(
        answer.contains("\njustapi_requests_in_flight 1\n"),
        "{answer}"
    );
    assert!(running.drain().finished);
}

#[test]
fn a_panic_in_a_task_is_the_tasks() {
    let (running, address, ..) = serve();
    for _ in 0..3 * PLACES {
        assert!(get(address, "/task").ends_with("it panicked"));
        assert!(get(address, "/forgotten-task").ends_with("begun"));
    }
    check_places(address);
    assert!(running.drain().finished);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short frame");
    let head = [0, 0, length, kind, flags, 0, 0, 0, stream];
    [&head[..], payload].concat()
}

/// Reads frames until one on `stream` is of a kind; its payload.
fn read_frame(connection: &mut TcpStream, kind: u8, stream: u8) -> Vec<u8> {
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head).expect("a frame");
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        connection.read_exact(&mut payload).expect("a whole frame");
        assert_ne!(head[3], 7, "GOAWAY {payload:?}");
        if (head[3], head[8]) == (kind, stream) {
            return payload;
        }
    }
}

#[test]
fn panics_on_streams_of_http_2_leave_their_connection() {
    let (running, address, begun, dropped) = serve();
    let mut connection = connect(address);
    connection
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .expect("a peer");
    let ask = |path: &str| {
        let length = u8::try_from(path.len()).expect("a short path");
        [&b"\x82\x86\x41\x01a\x44"[..], &[length], path.as_bytes()].concat()
    };
    let mut next = 1;
    for round in 1..=5 {
        let block = ask("/at-end");
        connection
            .write_all(&frame(1, 5, next, &block))
            .expect("a peer");
        // `:status: 500` of the static table.
        assert_eq!(read_frame(&mut connection, 1, next)[0], 0x8e);
        let block = ask("/when-left");
        connection
            .write_all(&frame(1, 5, next + 2, &block))
            .expect("a peer");
        eventually("the handler begins", || {
            begun.load(Ordering::SeqCst) == round
        });
        let cancel = frame(3, 0, next + 2, &[0, 0, 0, 8]);
        connection.write_all(&cancel).expect("a peer");
        eventually("the handler is dropped", || {
            dropped.load(Ordering::SeqCst) == 2 * round
        });
        let block = ask("/ok");
        connection
            .write_all(&frame(1, 5, next + 4, &block))
            .expect("a peer");
        assert_eq!(read_frame(&mut connection, 1, next + 4)[0], 0x88);
        next += 6;
    }
    drop(connection);
    check_places(address);
    assert!(running.drain().finished);
}
