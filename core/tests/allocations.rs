//! Heap allocations of a kept-alive request, counted over a real socket.
//!
//! The client below allocates nothing while it counts, so every allocation
//! of the process in that time is the lane's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use justapi_core::{
    Accepted, BodyError, BoundAddress, Cors, CorsConfig, Files, Json, Listen, Request, RequestId,
    Response, Router, Running, Schema, SecurityHeaders, Server, inline, validated,
};
use serde::Serialize;
use serde_json::json;

struct Counting;

static NUM_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[expect(unsafe_code, reason = "a global allocator is an unsafe trait")]
// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        NUM_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` or `realloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        NUM_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NUM_REQUESTS: u64 = 1_000;

#[derive(Serialize)]
struct Hello {
    message: &'static str,
}

fn hello() -> Response {
    Response::json(&Hello { message: "hello" })
}

async fn echo(request: Request) -> Result<Json<serde_json::Value>, BodyError> {
    request.json().await.map(Json)
}

/// What is posted below.
fn product() -> Schema {
    Schema::new(json!({
        "type": "object",
        "required": ["name", "price"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "pattern": "^[a-z]+$"},
            "price": {"type": "number", "minimum": 0},
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
        },
        "additionalProperties": false,
    }))
}

fn server() -> Server {
    let router = Router::new()
        .get("/inline", inline(|_: Request| hello()))
        .and_then(|router| router.get("/async", async |_: Request| hello()))
        .and_then(|router| router.post("/echo", echo))
        .and_then(|router| {
            let checked = validated().body(product());
            router.post("/checked", checked.inline(|_: Accepted<(), ()>| hello()))
        })
        .expect("four different routes");
    Server::new(router).listen(Listen::Tcp(([127, 0, 0, 1], 0).into()))
}

/// Mean allocations of one of [`NUM_REQUESTS`] like `request`.
fn count(server: Server, request: &[u8]) -> f64 {
    let running: Running = server.start().expect("a free port");
    let BoundAddress::Tcp { address, .. } = running.addresses()[0] else {
        unreachable!("a TCP address was asked for");
    };
    let mut stream = TcpStream::connect(address).expect("a listener");
    let mut buffer = [0; 4096];
    let mut exchange = || {
        stream.write_all(request).expect("an open connection");
        let length = stream.read(&mut buffer).expect("an answer");
        assert!(buffer[..length].starts_with(b"HTTP/1.1 200 OK\r\n"));
    };
    for _ in 0..100 {
        exchange();
    }
    let before = NUM_ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..NUM_REQUESTS {
        exchange();
    }
    let counted = NUM_ALLOCATIONS.load(Ordering::Relaxed) - before;
    drop(stream);
    assert!(running.drain().finished);
    counted as f64 / NUM_REQUESTS as f64
}

#[track_caller]
fn check(what: &str, found: f64, ceiling: f64) {
    assert!(
        found <= ceiling,
        "{what}: {found} allocations per request, at most {ceiling} expected"
    );
}

/// One test, because the counter is the process's.
#[test]
fn requests_stay_below_their_ceilings() {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
    let inline = count(server(), &get("/inline"));
    let future = count(server(), &get("/async"));
    let body = r#"{"name":"tea","price":4.5,"tags":["a","b"]}"#;
    let post = |path: &str| {
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
    };
    let echo = count(server(), post("/echo").as_bytes());
    let checked = count(server(), post("/checked").as_bytes());
    let any = CorsConfig {
        origins: vec!["*".into()],
        ..CorsConfig::default()
    };
    let cors = Cors::new(any).expect("a valid configuration");
    let decorated = server()
        .cors(cors)
        .security_headers(SecurityHeaders::new())
        .request_id(RequestId::new(false));
    let decorated = count(decorated, &get("/inline"));

    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("small.txt"), "hello").expect("a new file");
    let files = Files::new(folder.path()).expect("a folder");
    let router = Router::new().files("/files", files).expect("a free route");
    let file = Server::new(router).listen(Listen::Tcp(([127, 0, 0, 1], 0).into()));
    let file = count(file, &get("/files/small.txt"));

    // The response's body; rarely something of the runtime's timers.
    check("inline handler", inline, 1.01);
    check("async handler", future, 1.01);
    check("three middleware", decorated, 1.01);
    // Both bodies, and the parsed document with its strings.
    check("JSON echo", echo, 10.01);
    // Both bodies: a document that nobody asks for is not made.
    check("checked JSON", checked, 2.01);
    // The body is the cache's, the header map the lane's.
    check("cached file", file, 0.01);
}
