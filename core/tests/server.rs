//! A server in this process, driven over real sockets: what only a handler of
//! our own can provoke.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::IntoRawFd as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use justapi_core::{
    Accepted, Body, BoundAddress, HeaderValue, Limits, Listen, Next, ParkHooks, Request, Response,
    Router, Running, Schema, Server, StatusCode, Trace, header, inline, validated,
};

/// Starts a server of `router` on a free port.
fn serve(router: Router, set_up: impl FnOnce(Server) -> Server) -> (Running, SocketAddr) {
    let server = Server::new(router).listen(Listen::Tcp(([127, 0, 0, 1], 0).into()));
    let running = set_up(server).start().expect("a free port");
    let BoundAddress::Tcp { address, .. } = running.addresses()[0] else {
        unreachable!("a TCP address was asked for");
    };
    (running, address)
}

/// Sends `request` and reads to the end of the connection.
fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream.write_all(request.as_bytes()).expect("a peer");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("no reset");
    String::from_utf8_lossy(&answer).into_owned()
}

/// `GET path` with `Connection: close`.
fn get(address: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    exchange(address, &request)
}

#[track_caller]
fn check(answer: &str, status: u16, contains: &[&str], lacks: &[&str]) {
    let start = format!("HTTP/1.1 {status} ");
    assert!(answer.starts_with(&start), "{status} expected: {answer}");
    for text in contains {
        assert!(answer.contains(text), "{text:?} expected: {answer}");
    }
    for text in lacks {
        assert!(!answer.contains(text), "{text:?} not expected: {answer}");
    }
}

/// Waits until `done` holds.
#[track_caller]
fn eventually(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

fn routes() -> Result<Router, justapi_core::Error> {
    Router::new()
        .get("/ok", inline(|_: Request| "ok"))?
        .get(
            "/panic-inline",
            inline(|_: Request| -> &str { panic!("inline") }),
        )?
        .get("/panic-first", async |_: Request| -> &str {
            panic!("first poll")
        })?
        .get("/panic-later", async |_: Request| -> &str {
            tokio::time::sleep(Duration::from_millis(1)).await;
            panic!("later poll")
        })?
        .get("/slow", async |_: Request| {
            tokio::time::sleep(Duration::from_mins(1)).await;
            "late"
        })
}

#[test]
fn a_panic_costs_its_own_request_only() {
    let (running, address) = serve(routes().expect("routes"), |server| server);
    for path in ["/panic-inline", "/panic-first", "/panic-later"] {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\n\r\nGET /ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        );
        let answer = exchange(address, &request);
        check(
            &answer,
            500,
            &["application/problem+json", "HTTP/1.1 200 OK", "ok"],
            &["poll"],
        );
    }
    check(
        &get(address, "/metrics"),
        200,
        &["justapi_panics_total 3"],
        &[],
    );
    assert!(running.drain().finished);
}

#[test]
fn a_counter_of_the_application_is_among_the_metrics() {
    let value = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(41));
    let shared = std::sync::Arc::clone(&value);
    let (running, address) = serve(routes().expect("routes"), |server| {
        server.counter("orders_total", "Orders taken.", shared)
    });
    value.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let text = "# HELP orders_total Orders taken.\n# TYPE orders_total counter\norders_total 42\n";
    check(&get(address, "/metrics"), 200, &[text], &[]);
    assert!(running.drain().finished);
}

#[test]
fn counters_of_one_name_are_shown_as_their_sum() {
    let parts = [40, 2].map(|value| Arc::new(AtomicU64::new(value)));
    let (running, address) = serve(routes().expect("routes"), |server| {
        parts.into_iter().fold(server, |server, part| {
            server.counter("orders_total", "Orders taken.", part)
        })
    });
    let text = "# HELP orders_total Orders taken.\n# TYPE orders_total counter\norders_total 42\n";
    check(&get(address, "/metrics"), 200, &[text], &[]);
    assert!(running.drain().finished);
}

#[test]
fn each_seat_is_a_lane_on_the_thread_that_embeds_it() {
    const NUM_LANES: usize = 3;
    let hooks = || ParkHooks {
        before: Box::new(|| ()),
        after: Box::new(|| ()),
    };
    let served: Arc<Mutex<HashSet<ThreadId>>> = Arc::default();
    let seen = Arc::clone(&served);
    let note = inline(move |_: Request| {
        seen.lock()
            .expect("no panic")
            .insert(thread::current().id());
        // Long enough for the other lanes to take the other connections.
        thread::sleep(Duration::from_millis(2));
        "ok"
    });
    let router = Router::new().get("/", note).expect("a route");
    // A socket that the lanes share, as workers have it.
    let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = socket.local_addr().expect("an address");
    let mut seats = Server::new(router)
        .listen(Listen::Fd(socket.into_raw_fd()))
        .lanes(NUM_LANES)
        .bind()
        .and_then(justapi_core::Bound::seats)
        .expect("a server");
    let first = seats.remove(0);
    assert_eq!(first.index(), 0);
    let others: Vec<_> = seats
        .into_iter()
        .map(|seat| {
            thread::spawn(move || {
                let lane = seat.embed(hooks()).expect("a lane");
                lane.run_until(lane.ended());
                lane.report().expect("it has ended").finished
            })
        })
        .collect();
    let asking = thread::spawn(move || {
        eventually("each lane answers", || {
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| check(&get(address, "/"), 200, &["ok"], &[]));
                }
            });
            served.lock().expect("no panic").len() == NUM_LANES
        });
    });
    let lane = first.embed(hooks()).expect("a lane");
    lane.run_until(async {
        while !asking.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // One lane's word is everybody's.
        lane.drain();
        lane.ended().await;
    });
    asking.join().expect("each lane has answered");
    assert!(lane.report().expect("it has ended").finished);
    for other in others {
        assert!(other.join().expect("no panic"));
    }
}

#[test]
fn a_panic_in_middleware_is_a_500() {
    let (running, address) = serve(routes().expect("routes"), |server| {
        server.middleware(async |request: Request, next: Next<'_>| {
            assert!(request.path() != "/ok", "refused by the middleware");
            next.run(request).await
        })
    });
    check(&get(address, "/ok"), 500, &[], &["refused"]);
    check(
        &get(address, "/metrics"),
        200,
        &["justapi_panics_total 1"],
        &[],
    );
    assert!(running.drain().finished);
}

#[test]
fn a_panic_behind_middleware_is_counted_under_its_route() {
    let (running, address) = serve(routes().expect("routes"), |server| {
        server.middleware(async |request: Request, next: Next<'_>| next.run(request).await)
    });
    let paths = ["/panic-inline", "/panic-first", "/panic-later"];
    for path in paths {
        check(&get(address, path), 500, &[], &[]);
    }
    let metrics = get(address, "/metrics");
    let series = paths.map(|path| {
        format!("justapi_requests_total{{method=\"GET\",route=\"{path}\",status=\"500\"}} 1\n")
    });
    check(&metrics, 200, &series.each_ref().map(String::as_str), &[]);
    assert!(running.drain().finished);
}

#[test]
fn middleware_wraps_in_order_and_may_answer_itself() {
    let (running, address) = serve(routes().expect("routes"), |server| {
        server
            .middleware(async |request: Request, next: Next<'_>| {
                let is_private = request.path().starts_with("/private");
                let response = if is_private {
                    Response::new(StatusCode::FORBIDDEN)
                } else {
                    next.run(request).await
                };
                response.with_header(header::SERVER, HeaderValue::from_static("outer"))
            })
            .middleware(async |request: Request, next: Next<'_>| {
                let response = next.run(request).await;
                response.with_header(header::VIA, HeaderValue::from_static("inner"))
            })
    });
    check(
        &get(address, "/ok"),
        200,
        &["server: outer", "via: inner"],
        &[],
    );
    check(&get(address, "/private"), 403, &["server: outer"], &["via"]);
    check(
        &get(address, "/nowhere"),
        404,
        &["server: outer", "via: inner"],
        &[],
    );
    assert!(running.drain().finished);
}

#[test]
fn a_handler_that_is_too_slow_is_a_504() {
    let (running, address) = serve(routes().expect("routes"), |server| {
        server.limits(Limits {
            request_timeout: Some(Duration::from_millis(50)),
            ..Limits::DEFAULT
        })
    });
    check(&get(address, "/slow"), 504, &["timeout_request"], &[]);
    check(
        &get(address, "/metrics"),
        200,
        &["justapi_rejected_total{reason=\"request_timeout\"} 1"],
        &[],
    );
    assert!(running.drain().finished);
}

#[test]
fn framing_that_a_handler_sets_is_made_right() {
    let lying = |_: Request| {
        Response::text("four")
            .with_header(header::CONTENT_LENGTH, HeaderValue::from_static("40"))
            .with_header(
                header::TRANSFER_ENCODING,
                HeaderValue::from_static("chunked"),
            )
    };
    let empty = |status| move |_: Request| Response::text("body").with_status(status);
    let router = Router::new()
        .get("/lying", inline(lying))
        .and_then(|router| router.get("/204", inline(empty(StatusCode::NO_CONTENT))))
        .and_then(|router| router.get("/304", inline(empty(StatusCode::NOT_MODIFIED))))
        .and_then(|router| router.get("/101", inline(empty(StatusCode::SWITCHING_PROTOCOLS))))
        .and_then(|router| router.get("/404", inline(|_: Request| StatusCode::NOT_FOUND)))
        .expect("routes");
    let (running, address) = serve(router, |server| server);
    check(
        &get(address, "/lying"),
        200,
        &["content-length: 4\r\n", "\r\n\r\nfour"],
        &["content-length: 40", "transfer-encoding"],
    );
    check(
        &get(address, "/204"),
        204,
        &[],
        &["body", "content-length", "transfer-encoding"],
    );
    check(
        &get(address, "/304"),
        304,
        &[],
        &["body", "transfer-encoding"],
    );
    check(&get(address, "/101"), 500, &[], &["body"]);
    check(
        &get(address, "/404"),
        404,
        &["content-length: 0\r\n"],
        &["transfer-encoding"],
    );
    assert!(running.drain().finished);
}

/// What has no body has none, or the next answer would begin with it.
#[test]
fn answers_without_a_body_keep_a_connection_in_step() {
    let with_body = |status| {
        move |_: Request| {
            Response::text("HTTP/1.1 200 OK\r\n\r\n")
                .with_status(status)
                .with_header(header::CONTENT_LENGTH, HeaderValue::from_static("19"))
        }
    };
    let streamed = |status| {
        move |_: Request| {
            let (sender, body) = Body::channel(1);
            tokio::task::spawn_local(async move { sender.send("streamed").await });
            Response::new(status).with_body(body)
        }
    };
    let router = Router::new()
        .get("/204", inline(with_body(StatusCode::NO_CONTENT)))
        .and_then(|router| router.get("/304", inline(with_body(StatusCode::NOT_MODIFIED))))
        .and_then(|router| router.get("/204-stream", inline(streamed(StatusCode::NO_CONTENT))))
        .and_then(|router| router.get("/304-stream", inline(streamed(StatusCode::NOT_MODIFIED))))
        .and_then(|router| router.get("/ok", inline(|_: Request| "ok")))
        .expect("routes");
    let (running, address) = serve(router, |server| server);
    let ask = |method: &str, path: &str| format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut requests = String::new();
    let mut due = Vec::new();
    for (path, status) in [
        ("/204", 204),
        ("/304", 304),
        ("/204-stream", 204),
        ("/304-stream", 304),
    ] {
        for method in ["GET", "HEAD"] {
            requests += &ask(method, path);
            requests += &ask("GET", "/ok");
            due.extend([(status, ""), (200, "ok")]);
        }
    }
    requests += "GET /ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    due.push((200, "ok"));
    let answers = exchange(address, &requests);
    let mut rest = answers.as_str();
    for (status, body) in due {
        let (head, after) = rest.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert_eq!(head.contains("content-length: 2"), status == 200, "{head}");
        rest = after.strip_prefix(body).expect("its body");
    }
    assert_eq!(rest, "");
    assert!(running.drain().finished);
}

/// A route that streams `num_chunks` chunks of 64 KiB and counts what it sent.
fn streaming(num_chunks: usize) -> (Router, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let counters = (Arc::clone(&sent), Arc::clone(&ended));
    let router = Router::new()
        .get("/stream", move |_: Request| {
            let (sent, ended) = counters.clone();
            async move {
                let (sender, body) = Body::channel(2);
                tokio::task::spawn_local(async move {
                    for _ in 0..num_chunks {
                        if sender.send(vec![b'x'; 64 * 1024]).await.is_err() {
                            break;
                        }
                        sent.fetch_add(1, Ordering::SeqCst);
                    }
                    ended.fetch_add(1, Ordering::SeqCst);
                });
                Response::with_content(HeaderValue::from_static("text/plain"), body)
            }
        })
        .expect("one route");
    (router, sent, ended)
}

#[test]
fn a_stream_is_chunked_for_http_1_1_and_ended_by_close_for_1_0() {
    let (router, _, _) = streaming(2);
    let (running, address) = serve(router, |server| server);
    let answer = get(address, "/stream");
    check(
        &answer,
        200,
        &["transfer-encoding: chunked", "10000\r\nxxx"],
        &["content-length"],
    );
    assert!(answer.ends_with("\r\n0\r\n\r\n"));
    let answer = exchange(address, "GET /stream HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.0 200 OK"), "{}", &answer[..80]);
    assert!(!answer.contains("transfer-encoding"));
    assert!(answer.ends_with(&"x".repeat(128 * 1024)));
    assert!(running.drain().finished);
}

/// Idle time counts from the end of an answer, not from its beginning.
#[test]
fn a_connection_is_not_idle_while_it_answers() {
    let router = Router::new()
        .get("/ok", inline(|_: Request| "ok"))
        .and_then(|router| {
            router.get("/stream", async |_: Request| {
                let (sender, body) = Body::channel(1);
                tokio::task::spawn_local(async move {
                    for _ in 0..10 {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        drop(sender.send("chunk").await);
                    }
                });
                Response::with_content(HeaderValue::from_static("text/plain"), body)
            })
        })
        .expect("routes");
    let (running, address) = serve(router, |server| {
        server.limits(Limits {
            idle_timeout: Duration::from_millis(500),
            ..Limits::DEFAULT
        })
    });
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream
        .write_all(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("a peer");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n0\r\n\r\n") {
        let mut chunk = [0; 1024];
        let length = stream.read(&mut chunk).expect("no reset");
        assert_ne!(length, 0, "{}", answer.escape_ascii());
        answer.extend(&chunk[..length]);
    }
    stream
        .write_all(b"GET /ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("a peer");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("no reset");
    check(&answer, 200, &["\r\n\r\nok"], &[]);
    assert!(running.drain().finished);
}

/// The stall is the client's, but the answer is the handler's.
#[test]
fn a_handler_that_leaves_its_body_keeps_its_answer() {
    let router = Router::new()
        .post("/picky", async |mut request: Request| {
            drop(request.body_mut().chunk().await);
            drop(request);
            tokio::time::sleep(Duration::from_millis(300)).await;
            Response::text("not to my taste").with_status(StatusCode::BAD_REQUEST)
        })
        .expect("one route");
    let (running, address) = serve(router, |server| {
        server.limits(Limits {
            body_stall_timeout: Duration::from_millis(100),
            ..Limits::DEFAULT
        })
    });
    let request = "POST /picky HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhello";
    let answer = exchange(address, request);
    check(
        &answer,
        400,
        &["\r\n\r\nnot to my taste"],
        &["HTTP/1.1 408"],
    );
    assert!(running.drain().finished);
}

#[test]
fn a_slow_reader_holds_the_producer_back_and_is_cut_off() {
    let (router, sent, ended) = streaming(100_000);
    let (running, address) = serve(router, |server| {
        server.limits(Limits {
            write_stall_timeout: Duration::from_millis(300),
            ..Limits::DEFAULT
        })
    });
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream
        .write_all(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("a peer");
    // Nothing is read: the socket buffers fill, then the producer stands still.
    eventually("the producer is told that nobody reads", || {
        ended.load(Ordering::SeqCst) == 1
    });
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent * 64 * 1024 < 32 << 20, "{sent} chunks went to nobody");
    check(
        &get(address, "/metrics"),
        200,
        &["justapi_rejected_total{reason=\"write_stall\"} 1"],
        &[],
    );
    drop(stream);
    assert!(running.drain().finished);
}

#[test]
fn a_client_that_leaves_ends_its_stream() {
    const NUM_CLIENTS: usize = 50;
    let (router, _, ended) = streaming(usize::MAX);
    let (running, address) = serve(router, |server| server);
    for _ in 0..NUM_CLIENTS {
        let mut stream = TcpStream::connect(address).expect("a listener");
        stream
            .write_all(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("a peer");
        stream.read_exact(&mut [0; 1024]).expect("a stream");
        stream.shutdown(Shutdown::Both).expect("an open socket");
    }
    eventually("every producer ends", || {
        ended.load(Ordering::SeqCst) == NUM_CLIENTS
    });
    assert!(running.drain().finished);
}

#[test]
fn a_client_that_half_closes_still_gets_its_answer() {
    let router = Router::new()
        .get("/later", async |_: Request| {
            tokio::time::sleep(Duration::from_millis(50)).await;
            "later"
        })
        .expect("one route");
    let (running, address) = serve(router, |server| server);
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream
        .write_all(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("a peer");
    stream.shutdown(Shutdown::Write).expect("an open socket");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("no reset");
    check(&answer, 200, &["later"], &[]);
    assert!(running.drain().finished);
}

#[test]
fn request_ids_are_the_same_for_handler_and_client() {
    let router = Router::new()
        .get(
            "/id",
            inline(|request: Request| request.id().unwrap_or("none").to_owned()),
        )
        .expect("one route");
    let (running, address) = serve(router, |server| {
        server.request_id(justapi_core::RequestId::new(true))
    });
    let answer = get(address, "/id");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains(&format!("x-request-id: {body}")), "{answer}");
    let request = "GET /id HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\nConnection: close\r\n\r\n";
    check(
        &exchange(address, request),
        200,
        &["x-request-id: mine", "\r\n\r\nmine"],
        &[],
    );
    assert!(running.drain().finished);
}

/// Counts how often a handler's future was dropped.
struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A route whose handler begins, and then waits for ever.
fn endless() -> (Router, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let begun = Arc::new(AtomicUsize::new(0));
    let dropped = Arc::new(AtomicUsize::new(0));
    let counters = (Arc::clone(&begun), Arc::clone(&dropped));
    let router = Router::new()
        .any("/endless", move |_: Request| {
            let (begun, dropped) = counters.clone();
            async move {
                let _guard = OnDrop(dropped);
                begun.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
                "never"
            }
        })
        .expect("one route");
    (router, begun, dropped)
}

#[test]
fn a_handler_is_dropped_when_its_client_resets() {
    let (router, begun, dropped) = endless();
    let (running, address) = serve(router, |server| server);
    for count in 1..=3 {
        let mut stream = TcpStream::connect(address).expect("a listener");
        stream
            .write_all(b"POST /endless HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
            .expect("a peer");
        eventually("begun", || begun.load(Ordering::SeqCst) == count);
        let socket = socket2::SockRef::from(&stream);
        socket.set_linger(Some(Duration::ZERO)).expect("a socket");
        drop(stream);
        eventually("dropped", || dropped.load(Ordering::SeqCst) == count);
    }
    assert!(running.drain().finished);
}

/// A client that closes its sending side may still read, or be gone.
#[test]
fn a_handler_outlives_a_half_closed_client_by_a_bounded_time() {
    let (router, begun, dropped) = endless();
    let (running, address) = serve(router, |server| server);
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream
        .write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("a peer");
    eventually("begun", || begun.load(Ordering::SeqCst) == 1);
    let start = Instant::now();
    stream.shutdown(Shutdown::Write).expect("a socket");
    eventually("dropped", || dropped.load(Ordering::SeqCst) == 1);
    let patience = start.elapsed();
    let is_due = Duration::from_secs(4)..Duration::from_secs(8);
    assert!(is_due.contains(&patience), "{patience:?}");
    assert_eq!(stream.read(&mut [0; 8]).expect("no reset"), 0);
    assert!(running.drain().finished);
}

#[test]
fn a_handler_is_dropped_when_its_half_closed_client_resets() {
    let (router, begun, dropped) = endless();
    let router = router
        .get("/ok", inline(|_: Request| "ok"))
        .expect("another route");
    let (running, address) = serve(router, |server| server.lanes(1));
    for (count, body) in ["", "x"].into_iter().enumerate() {
        let mut stream = TcpStream::connect(address).expect("a listener");
        // One with a body of which the rest never comes.
        let length = 2 * body.len();
        let head = format!("POST /endless HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("a peer");
        stream.write_all(body.as_bytes()).expect("a peer");
        eventually("begun", || begun.load(Ordering::SeqCst) == count + 1);
        let start = Instant::now();
        stream.shutdown(Shutdown::Write).expect("a socket");
        // The lane has seen the end of it when it has answered this.
        assert!(get(address, "/ok").ends_with("ok"));
        let socket = socket2::SockRef::from(&stream);
        socket.set_linger(Some(Duration::ZERO)).expect("a socket");
        drop(stream);
        eventually("dropped", || dropped.load(Ordering::SeqCst) == count + 1);
        // The patience with one that only half-closes is 5 s.
        let elapsed = start.elapsed();
        assert!(elapsed < Duration::from_secs(4), "{elapsed:?}");
    }
    assert!(running.drain().finished);
}

/// A streamed body whose handler announces `length` but sends 10 bytes.
fn announcing(length: &'static str) -> Response {
    let (sender, body) = Body::channel(4);
    tokio::task::spawn_local(async move {
        for _ in 0..2 {
            // The client may leave when it has what was announced.
            drop(sender.send("12345").await);
        }
    });
    Response::with_content(HeaderValue::from_static("text/plain"), body)
        .with_header(header::CONTENT_LENGTH, HeaderValue::from_static(length))
}

#[test]
fn a_stream_keeps_the_length_that_was_announced_or_breaks_off() {
    let route = |length| inline(move |_: Request| announcing(length));
    let router = Router::new()
        .get("/right", route("10"))
        .and_then(|router| router.get("/short", route("11")))
        .and_then(|router| router.get("/long", route("7")))
        .and_then(|router| router.get("/ok", inline(|_: Request| "ok")))
        .expect("four routes");
    let (running, address) = serve(router, |server| server);
    let next = "GET /ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let ask = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n{next}");
        exchange(address, &request)
    };
    let lacks = ["transfer-encoding"];
    check(
        &ask("/right"),
        200,
        &[
            "content-length: 10\r\n",
            "\r\n\r\n1234512345HTTP/1.1 200 OK",
        ],
        &lacks,
    );
    let short = ask("/short");
    check(&short, 200, &["content-length: 11\r\n"], &lacks);
    assert!(short.ends_with("\r\n\r\n1234512345"), "{short}");
    let long = ask("/long");
    check(&long, 200, &["content-length: 7\r\n"], &lacks);
    assert!(long.ends_with("\r\n\r\n1234512"), "{long}");
    assert!(running.drain().finished);
}

/// Only a reset tells an HTTP/1.0 client that a stream is not complete.
#[test]
fn a_broken_stream_never_looks_complete() {
    let broken = |_: Request| async {
        let (sender, body) = Body::channel(4);
        tokio::task::spawn_local(async move {
            sender.send("part").await.expect("a reader");
            sender.abort().await;
        });
        Response::with_content(HeaderValue::from_static("text/plain"), body)
    };
    let router = Router::new().get("/broken", broken).expect("one route");
    let (running, address) = serve(router, |server| server);
    let answer = get(address, "/broken");
    check(&answer, 200, &["4\r\npart\r\n"], &["\r\n0\r\n"]);
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream
        .write_all(b"GET /broken HTTP/1.0\r\n\r\n")
        .expect("a peer");
    let error = stream.read_to_end(&mut Vec::new()).expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(running.drain().finished);
}

/// The answer begins while the request is still on its way.
#[test]
fn a_body_is_echoed_while_it_comes() {
    let echo = |request: Request| async {
        let (sender, body) = Body::channel(1);
        let mut received = request.into_body();
        tokio::task::spawn_local(async move {
            while let Some(Ok(chunk)) = received.chunk().await {
                sender.send(chunk).await.expect("a reader");
            }
        });
        Response::with_content(HeaderValue::from_static("text/plain"), body)
    };
    let router = Router::new().post("/echo", echo).expect("one route");
    let (running, address) = serve(router, |server| server);
    let mut stream = TcpStream::connect(address).expect("a listener");
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("a peer");
    let mut answer = Vec::new();
    let mut buffer = [0; 1024];
    for index in 0..20 {
        let piece = format!("piece {index};");
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        stream.write_all(chunk.as_bytes()).expect("a peer");
        while !String::from_utf8_lossy(&answer).contains(&piece) {
            let length = stream.read(&mut buffer).expect("an answer");
            assert!(length > 0, "closed after {index} pieces");
            answer.extend_from_slice(&buffer[..length]);
        }
    }
    stream.write_all(b"0\r\n\r\n").expect("a peer");
    stream.read_to_end(&mut answer).expect("no reset");
    assert!(answer.ends_with(b"0\r\n\r\n"));
    assert!(running.drain().finished);
}

#[test]
fn a_request_that_is_given_up_ends_its_span_without_a_status() {
    let collector = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let endpoint = format!("http://{}", collector.local_addr().expect("bound"));
    let exported = std::thread::spawn(move || take_export(&collector));
    let trace = Trace::new()
        .export(endpoint.parse().expect("a URL"), "test")
        .expect("a thread");
    let started = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&started);
    let wait = move |_: Request| {
        calls.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Response>()
    };
    let router = Router::new().get("/wait", wait).expect("a valid pattern");
    let limits = Limits {
        grace: Duration::from_millis(50),
        ..Limits::DEFAULT
    };
    let (running, address) = serve(router, |server| server.trace(trace).limits(limits));
    let mut client = TcpStream::connect(address).expect("a listener");
    let request = b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n";
    client.write_all(request).expect("a peer");
    eventually("the handler waits", || started.load(Ordering::Relaxed) == 1);
    assert!(!running.drain().finished);
    eventually("the span is exported", || exported.is_finished());
    let text = exported.join().expect("an export");
    assert!(text.contains("\"name\":\"GET /wait\""), "{text}");
    assert!(text.contains("\"abandoned\""), "{text}");
    assert!(!text.contains("status_code"), "{text}");
}

/// Takes one export of spans and says that it was taken.
fn take_export(collector: &TcpListener) -> String {
    let (mut export, _) = collector.accept().expect("an export");
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"]}]}]}") {
        let mut chunk = [0; 4096];
        let length = export.read(&mut chunk).expect("a peer");
        assert!(length > 0, "{}", bytes.escape_ascii());
        bytes.extend_from_slice(&chunk[..length]);
    }
    export
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        .expect("a peer");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A schema that is compiled at the first request refuses and accepts like any.
#[test]
fn a_lazy_schema_is_a_schema() {
    let schema = |kind: &str| Schema::new(serde_json::json!({ "type": kind }));
    let route = |kind| {
        let handler = validated().lazily().body(schema(kind));
        handler.inline(|_: Accepted<serde_json::Value>| "fine")
    };
    let router = Router::new()
        .post("/text", route("string"))
        .and_then(|router| router.post("/bad", route("nonsense")))
        .expect("two routes");
    let (running, address) = serve(router, |server| server);
    let post = |path: &str, body: &str| {
        let head = "HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nConnection: close";
        let length = body.len();
        let request = format!("POST {path} {head}\r\nContent-Length: {length}\r\n\r\n{body}");
        exchange(address, &request)
    };
    check(&post("/text", "\"a\""), 200, &["fine"], &[]);
    check(&post("/text", "1"), 422, &["instance_path"], &[]);
    check(&post("/bad", "1"), 500, &[], &["nonsense"]);
    let eager = validated().body(schema("nonsense"));
    let eager = eager.inline(|_: Accepted<serde_json::Value>| "never");
    assert!(Router::new().post("/bad", eager).is_err());
    assert!(running.drain().finished);
}
