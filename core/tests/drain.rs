//! A drain that finds handlers at work, and connections that nobody has
//! accepted yet.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use justapi_core::{BoundAddress, Listen, Request, Router, Running, Server, inline};

fn serve(router: Router, lanes: usize) -> (Running, SocketAddr) {
    let server = Server::new(router)
        .lanes(lanes)
        .listen(Listen::Tcp(([127, 0, 0, 1], 0).into()));
    let running = server.start().expect("a free port");
    let BoundAddress::Tcp { address, .. } = running.addresses()[0] else {
        unreachable!("a TCP address was asked for");
    };
    (running, address)
}

#[track_caller]
fn eventually(what: &str, is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_done() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

/// A client that has sent its request.
fn ask(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the backlog has room");
    let patience = Some(Duration::from_secs(10));
    stream.set_read_timeout(patience).expect("a valid timeout");
    let request = b"GET /work HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request).expect("a peer");
    stream
}

/// The whole answer of a connection that ends with it.
fn answer(mut stream: TcpStream) -> Result<String, String> {
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        Ok(_) if answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("done") => Ok(answer),
        other => Err(format!("{other:?} after {answer:?}")),
    }
}

/// R4 of gunicorn#2529: lanes are busy, so that what has connected since waits
/// in their backlogs when the stop comes.
#[test]
fn what_waits_to_be_accepted_is_answered() {
    for lanes in [1, 2] {
        let begun = Arc::new(AtomicUsize::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let (first, over) = (Arc::clone(&begun), Arc::clone(&is_over));
        // It holds its lane until the test lets go.
        let work = inline(move |_: Request| {
            first.fetch_add(1, Ordering::SeqCst);
            while !over.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            "done"
        });
        let router = Router::new().get("/work", work).expect("one route");
        let (running, address) = serve(router, lanes);
        let mut clients = Vec::new();
        // A lane of its own takes each connection that is not its backlog's.
        eventually_busy(lanes, &begun, &mut || clients.push(ask(address)));
        clients.extend((0..5).map(|_| ask(address)));
        let drain = std::thread::spawn(move || running.drain());
        // The stop is on its way: lanes see it once they are let go.
        std::thread::sleep(Duration::from_millis(100));
        is_over.store(true, Ordering::SeqCst);
        for (index, client) in clients.into_iter().enumerate() {
            let answer = answer(client);
            assert!(answer.is_ok(), "{index} of {lanes} lanes: {answer:?}");
        }
        assert!(drain.join().expect("no panic").finished);
    }
}

/// Asks until every lane is held.
fn eventually_busy(lanes: usize, begun: &AtomicUsize, ask: &mut dyn FnMut()) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut asked = Instant::now();
    ask();
    while begun.load(Ordering::SeqCst) < lanes {
        assert!(Instant::now() < deadline, "a lane stays idle");
        if asked.elapsed() > Duration::from_millis(50) {
            asked = Instant::now();
            ask();
        }
        std::thread::yield_now();
    }
}

/// Clients without a pause, on handlers of 300 ms: whatever was asked before
/// the listener closed is answered.
#[test]
fn slow_handlers_lose_no_request() {
    let num_answered = AtomicUsize::new(0);
    let is_stopping = AtomicBool::new(false);
    let lost = Mutex::new(Vec::new());
    let router = Router::new()
        .get("/work", async |_: Request| {
            tokio::time::sleep(Duration::from_millis(300)).await;
            "done"
        })
        .expect("one route");
    let (running, address) = serve(router, 2);
    let load = |is_kept_alive: bool| {
        let close = if is_kept_alive {
            ""
        } else {
            "Connection: close\r\n"
        };
        let request = format!("GET /work HTTP/1.1\r\nHost: a\r\n{close}\r\n");
        loop {
            let mut stream = match TcpStream::connect(address) {
                Ok(stream) => stream,
                Err(_) if is_stopping.load(Ordering::SeqCst) => return,
                Err(error) => {
                    let error = format!("refused before the stop: {error}");
                    return lost.lock().expect("nobody panics").push(error);
                }
            };
            let patience = Some(Duration::from_secs(10));
            stream.set_read_timeout(patience).expect("a valid timeout");
            loop {
                if stream.write_all(request.as_bytes()).is_err() {
                    let error = "hung up before a request".to_owned();
                    lost.lock().expect("nobody panics").push(error);
                    break;
                }
                let mut answer = Vec::new();
                let mut chunk = [0; 1024];
                while !answer.ends_with(b"done") {
                    match stream.read(&mut chunk) {
                        Ok(length) if length > 0 => answer.extend_from_slice(&chunk[..length]),
                        other => {
                            let seen = String::from_utf8_lossy(&answer);
                            let error = format!("{other:?} after {seen:?}");
                            return lost.lock().expect("nobody panics").push(error);
                        }
                    }
                }
                num_answered.fetch_add(1, Ordering::SeqCst);
                let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
                if text.contains("connection: close") {
                    break;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for index in 0..16 {
            let load = &load;
            scope.spawn(move || load(index % 2 == 0));
        }
        eventually("load is on", || num_answered.load(Ordering::SeqCst) >= 24);
        is_stopping.store(true, Ordering::SeqCst);
        assert!(running.drain().finished);
    });
    let lost = lost.into_inner().expect("nobody panics");
    assert!(lost.is_empty(), "{lost:#?}");
    assert!(num_answered.load(Ordering::SeqCst) >= 40);
}
