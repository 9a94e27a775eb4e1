//! Cached routes of a server in this process, over real sockets and lanes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use justapi_core::{
    BoundAddress, CacheLimits, CachePolicy, Compression, Listen, Request, ResponseCache, Router,
    Running, Server,
};
use tokio::sync::Semaphore;

const LONG: Duration = Duration::from_hours(1);

/// Starts a server of `router` on a free port.
fn serve(router: Router, set_up: impl FnOnce(Server) -> Server) -> (Running, SocketAddr) {
    let server = Server::new(router).listen(Listen::Tcp(([127, 0, 0, 1], 0).into()));
    let running = set_up(server).start().expect("a free port");
    let BoundAddress::Tcp { address, .. } = running.addresses()[0] else {
        unreachable!("a TCP address was asked for");
    };
    (running, address)
}

fn send(address: SocketAddr, method: &str, path: &str, more: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a listener");
    let timeout = Some(Duration::from_secs(10));
    stream.set_read_timeout(timeout).expect("a timeout");
    let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{more}\r\n");
    stream.write_all(request.as_bytes()).expect("a peer");
    stream
}

fn read(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

fn exchange(address: SocketAddr, method: &str, path: &str, more: &str) -> String {
    read(send(address, method, path, more))
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

/// A route that waits for a permit before it answers, and how often it ran.
fn slow(cache: &ResponseCache) -> (Router, Arc<Semaphore>, Arc<AtomicUsize>) {
    let gate = Arc::new(Semaphore::new(0));
    let counter = Arc::new(AtomicUsize::new(0));
    let (opened, counted) = (Arc::clone(&gate), Arc::clone(&counter));
    let handler = move |_: Request| {
        let gate = Arc::clone(&opened);
        let number = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            gate.acquire().await.expect("an open semaphore").forget();
            format!("answer {number} {}", "and more of it, ".repeat(100))
        }
    };
    let route = cache.route(CachePolicy::new(LONG), handler);
    let router = Router::new().get("/slow", route).expect("one route");
    (router, gate, counter)
}

#[test]
fn a_stampede_over_all_lanes_computes_once() {
    let cache = ResponseCache::new(CacheLimits::default());
    let (router, gate, counter) = slow(&cache);
    let (running, address) = serve(router, |server| server.lanes(2).response_cache(&cache));
    let clients: Vec<_> = (0..30).map(|_| send(address, "GET", "/slow", "")).collect();
    eventually("all wait", || {
        let counts = cache.counts();
        counts.misses + counts.collapsed == 30
    });
    gate.add_permits(1);
    for client in clients {
        let answer = read(client);
        assert!(answer.contains("answer 0 "), "{answer}");
    }
    assert_eq!(counter.load(Ordering::Relaxed), 1);
    let metrics = exchange(address, "GET", "/metrics", "");
    for line in [
        "justapi_cache_requests_total{result=\"miss\"} 1\n",
        "justapi_cache_requests_total{result=\"collapsed\"} 29\n",
        "justapi_cache_entries 1\n",
    ] {
        assert!(metrics.contains(line), "{line:?} in {metrics}");
    }
    assert!(running.drain().finished);
}

#[test]
fn head_conditions_and_compression_work_on_a_stored_answer() {
    let cache = ResponseCache::new(CacheLimits::default());
    let (router, gate, counter) = slow(&cache);
    let (running, address) = serve(router, |server| server.compression(Compression::new()));
    gate.add_permits(1);
    let get = exchange(address, "GET", "/slow", "");
    let tag = get
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .expect("a tag")
        .to_owned();
    assert!(tag.starts_with('"'), "{tag}");
    let head = exchange(address, "HEAD", "/slow", "");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("content-length: 1609\r\n"), "{head}");
    assert!(
        head.contains("age: 0\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let coded = exchange(address, "GET", "/slow", "Accept-Encoding: gzip\r\n");
    assert!(coded.contains("content-encoding: gzip\r\n"), "{coded}");
    assert!(coded.contains(&format!("etag: W/{tag}\r\n")), "{coded}");
    for sent in [tag.clone(), format!("W/{tag}")] {
        let line = format!("If-None-Match: {sent}\r\n");
        let answer = exchange(address, "GET", "/slow", &line);
        assert!(answer.starts_with("HTTP/1.1 304 "), "{answer}");
        assert!(answer.contains(&format!("etag: {tag}\r\n")), "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    }
    assert_eq!(counter.load(Ordering::Relaxed), 1);
    assert!(running.drain().finished);
}

/// The body of an answer whose message is whole.
fn body_of(address: SocketAddr, path: &str, coding: &str) -> Vec<u8> {
    let line = format!("Accept-Encoding: {coding}\r\n");
    let mut answer = Vec::new();
    let mut stream = send(address, "GET", path, &line);
    stream.read_to_end(&mut answer).expect("an answer");
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let body = answer.split_off(head.expect("a head") + 4);
    let head = String::from_utf8_lossy(&answer);
    let coded = format!("content-encoding: {coding}\r\n");
    assert!(head.contains(&coded), "{head}");
    assert!(head.contains("vary: Accept-Encoding\r\n"), "{head}");
    if head.contains("transfer-encoding: chunked") {
        return unchunked(&body);
    }
    assert!(
        head.contains(&format!("content-length: {}\r\n", body.len())),
        "{head}"
    );
    body
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = bytes
            .windows(2)
            .position(|two| two == b"\r\n")
            .expect("a size");
        let digits = std::str::from_utf8(&bytes[..end]).expect("a size");
        let size = usize::from_str_radix(digits, 16).expect("a size");
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&bytes[end + 2..][..size]);
        bytes = &bytes[end + 2 + size + 2..];
    }
}

/// Answers of `bytes` text bytes that compress, below `/`.
fn texts(cache: &ResponseCache, bytes: usize) -> Router {
    let text = |number: usize| format!("{number:>7},");
    let answer = move |_: Request| (0..bytes / 8).map(text).collect::<String>();
    let route = cache.route(CachePolicy::new(LONG), justapi_core::inline(answer));
    Router::new().get("/text/{name}", route).expect("a route")
}

/// One in one go, and one in pieces.
#[test]
fn a_stored_body_is_compressed_once_for_each_coding() {
    for bytes in [10_000, 200_000] {
        let cache = ResponseCache::new(CacheLimits::default());
        let router = texts(&cache, bytes);
        let (running, address) = serve(router, |server| {
            server
                .compression(Compression::new())
                .response_cache(&cache)
        });
        for coding in ["gzip", "br", "zstd"] {
            let first = body_of(address, "/text/a", coding);
            // A large one is kept when its last byte has left.
            for _ in 0..5 {
                assert!(body_of(address, "/text/a", coding) == first, "{coding}");
            }
        }
        assert_eq!(cache.counts().compressed, 3);
        assert_eq!(cache.counts().hits, 17);
        let metrics = exchange(address, "GET", "/metrics", "");
        assert!(
            metrics.contains("justapi_cache_compressed_total 3\n"),
            "{metrics}"
        );
        // A form has its length known, whatever the first one's way was.
        let head = exchange(address, "HEAD", "/text/a", "Accept-Encoding: br\r\n");
        assert!(head.contains("content-encoding: br\r\n"), "{head}");
        assert!(head.contains("content-length: "), "{head}");
        assert!(
            head.contains("age: ") && head.contains("etag: W/"),
            "{head}"
        );
        let plain = exchange(address, "GET", "/text/a", "");
        assert!(
            plain.contains(&format!("content-length: {bytes}\r\n")),
            "{plain}"
        );
        assert!(running.drain().finished);
    }
}

#[test]
fn compressed_forms_count_against_the_memory_of_the_cache() {
    const MAX_BYTES: usize = 100_000;
    let limits = CacheLimits {
        max_bytes: MAX_BYTES,
        ..CacheLimits::default()
    };
    let cache = ResponseCache::new(limits);
    let router = texts(&cache, 10_000);
    let (running, address) = serve(router, |server| server.compression(Compression::new()));
    body_of(address, "/text/0", "gzip");
    let one_form = cache.counts().bytes;
    body_of(address, "/text/0", "br");
    assert!(cache.counts().bytes > one_form);
    for number in 0..40 {
        for coding in ["gzip", "br", "zstd"] {
            body_of(address, &format!("/text/{number}"), coding);
            assert!(cache.counts().bytes <= MAX_BYTES as u64);
        }
    }
    assert!(cache.counts().evictions > 0);
    cache.clear();
    assert_eq!(cache.counts().bytes, 0);
    assert!(running.drain().finished);
}
