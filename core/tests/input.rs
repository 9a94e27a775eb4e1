//! What routes of our own refuse, over real sockets: wrong queries and bodies,
//! forms and schemas that cost much, clients that ask too often.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use justapi_core::{
    Accepted, BoundAddress, FormError, Json, Limits, Listen, Method, Rate, RateLimit,
    RateLimitConfig, Request, RouteOptions, Router, Running, Schema, Server, inline, validated,
};
use serde_json::{Value, json};

const MIB: usize = 1024 * 1024;
/// For a debug build on a busy machine; what has no bound takes minutes.
const BOUND: Duration = Duration::from_secs(10);

fn serve(router: Router, limits: Limits) -> (Running, SocketAddr) {
    let server = Server::new(router)
        .limits(limits)
        .lanes(1)
        .listen(Listen::Tcp(([127, 0, 0, 1], 0).into()));
    let running = server.start().expect("a free port");
    let BoundAddress::Tcp { address, .. } = running.addresses()[0] else {
        unreachable!("a TCP address was asked for");
    };
    (running, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a listener");
    let patience = Some(Duration::from_mins(1));
    stream.set_read_timeout(patience).expect("a valid time");
    stream
}

/// Status and body of the answer, which ends with the connection.
fn read(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let status = text.get(9..12).and_then(|status| status.parse().ok());
    let (_, body) = text.split_once("\r\n\r\n").expect("a head");
    (status.expect("a status"), body.to_owned())
}

fn ask(address: SocketAddr, target: &str, content_type: &str, body: &str) -> (u16, String) {
    let mut stream = connect(address);
    let length = body.len();
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Content-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("a peer");
    stream.write_all(body.as_bytes()).expect("a peer");
    read(stream)
}

fn ask_json(address: SocketAddr, target: &str, body: &str) -> (u16, Value) {
    let (status, body) = ask(address, target, "application/json", body);
    (status, serde_json::from_str(&body).expect("JSON"))
}

fn get(address: SocketAddr, path: &str, line: &str) -> (u16, String) {
    let mut stream = connect(address);
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{line}\r\n");
    stream.write_all(head.as_bytes()).expect("a peer");
    read(stream)
}

#[test]
fn a_wrong_query_and_a_wrong_body_come_in_one_answer() {
    let query =
        json!({"properties": {"page": {"type": "integer", "minimum": 1}}, "required": ["q"]});
    let body = json!({"type": "object", "properties": {"age": {"type": "integer"}}});
    let handler = validated()
        .query(Schema::new(query))
        .body(Schema::new(body))
        .inline(|accepted: Accepted<Value, Value>| Json(json!([accepted.query, accepted.body])));
    let router = Router::new().post("/users", handler).expect("one route");
    let (running, address) = serve(router, Limits::DEFAULT);
    let places = |answer: &Value| -> Vec<String> {
        let errors = answer["errors"].as_array().expect("a list");
        let place = |error: &Value| format!("{} {}", error["in"], error["instance_path"]);
        let mut places: Vec<_> = errors.iter().map(place).collect();
        places.sort();
        places
    };
    let (status, answer) = ask_json(address, "/users?page=0", r#"{"age": "x"}"#);
    assert_eq!(status, 422, "{answer}");
    let due = [r#""body" "/age""#, r#""query" """#, r#""query" "/page""#];
    assert_eq!(places(&answer), due);
    // One that comes after its head.
    let mut stream = connect(address);
    let head = "POST /users?page=0 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
                Content-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"age\"";
    stream.write_all(head.as_bytes()).expect("a peer");
    stream.write_all(b": \"x\"}").expect("a peer");
    let (late, body) = read(stream);
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((late, body), (422, answer));
    let (status, answer) = ask_json(address, "/users?q=a&page=0", r#"{"age": 1}"#);
    assert_eq!(
        (status, places(&answer)),
        (422, vec![r#""query" "/page""#.to_owned()])
    );
    let (status, answer) = ask_json(address, "/users?q=a", r#"{"age": "x"}"#);
    assert_eq!(
        (status, places(&answer)),
        (422, vec![r#""body" "/age""#.to_owned()])
    );
    let (status, answer) = ask_json(address, "/users?q=a", r#"{"age": 1}"#);
    assert_eq!((status, answer), (200, json!([{"q": "a"}, {"age": 1}])));
    assert!(running.drain().finished);
}

/// A million fields on a route that takes a gigabyte: refused at the first that
/// is too many, while the rest has not been sent.
#[test]
fn a_form_is_refused_before_its_rest_is_sent() {
    let form = async |request: Request| -> Result<String, FormError> {
        let form = request.form_fields().await?;
        Ok(form.len().to_string())
    };
    let options = RouteOptions::new().max_body_bytes(1 << 30);
    let router = Router::new()
        .route_with(Method::POST, "/form", options, form)
        .expect("one route");
    let (running, address) = serve(router, Limits::DEFAULT);
    let kind = "application/x-www-form-urlencoded";
    let head = |length: usize| {
        format!(
            "POST /form HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: {kind}\r\n\
             Content-Length: {length}\r\n\r\n"
        )
    };
    let limits = Limits::DEFAULT;
    for (piece, times, limit) in [
        (
            "a=1&",
            limits.max_form_fields + 1,
            "server.limits.form_fields",
        ),
        (
            "aaaaaaaa",
            limits.max_form_field_bytes / 8 + 1,
            "server.limits.form_field",
        ),
    ] {
        let mut stream = connect(address);
        let start = piece.repeat(times);
        stream
            .write_all(head(1_000_000 * piece.len()).as_bytes())
            .expect("a peer");
        stream.write_all(start.as_bytes()).expect("a peer");
        // Nothing more is sent: an answer can only be to what has come.
        let (status, body) = read(stream);
        assert_eq!(status, 413, "{body}");
        assert!(body.contains(limit), "{body}");
    }
    // Separators alone are no fields, and take no memory.
    let mut stream = connect(address);
    let before = resident_bytes();
    stream.write_all(head(16 * MIB).as_bytes()).expect("a peer");
    let separators = vec![b'&'; MIB];
    for _ in 0..15 {
        stream.write_all(&separators).expect("a peer");
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 8 * MIB, "{grown} bytes more");
    let mut rest = separators;
    rest.truncate(MIB - 7);
    rest.extend_from_slice(b"a=1&b=2");
    stream.write_all(&rest).expect("a peer");
    assert_eq!(read(stream), (200, "2".to_owned()));
    assert!(running.drain().finished);
}

/// Of this process, in which the server is threads.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number of pages") * 4096
}

/// Schemas whose cost could grow faster than the document.
#[test]
fn costly_schemas_are_answered_within_a_bound() {
    let objects = |count: usize, last: &str| {
        let objects =
            (0..count).map(|index| format!(r#"{{"id":{index},"t":[{index},{{"x":1}}]}}"#));
        let objects: Vec<_> = objects.chain([last.to_owned()]).collect();
        format!("[{}]", objects.join(","))
    };
    // Each level asks the one below twice, and none of both accepts.
    let nested = (0..24).fold(json!({"type": "string"}), |inner, level| {
        let name = format!("l{level}");
        json!({"anyOf": [
            {"properties": {"a": inner}, "required": ["a"]},
            {"properties": {(name.clone()): true}, "required": [name]},
        ]})
    });
    let deep = r#"{"a":"#.repeat(24) + "1" + &"}".repeat(24);
    let patterns: serde_json::Map<String, Value> = (0..1000)
        .map(|index| (format!("^x{index}(a+)+$"), json!({"type": "integer"})))
        .collect();
    let members = |value: &str| {
        let members = (0..1000).map(|index| format!(r#""x{index}aaaaaaaaaaaa":{value}"#));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    };
    let route = |schema: Value| {
        validated()
            .body(Schema::new(schema))
            .inline(|_: Accepted<Value, ()>| "valid")
    };
    let router = Router::new()
        .post("/unique", route(json!({"uniqueItems": true})))
        .and_then(|router| router.post("/nested", route(nested)))
        .and_then(|router| router.post("/patterns", route(json!({"patternProperties": patterns}))))
        .and_then(|router| router.get("/hello", inline(|_: Request| "hello")))
        .expect("four routes");
    let (running, address) = serve(router, Limits::DEFAULT);
    for (path, body, due, rule) in [
        ("/unique", objects(5_000, "{}"), 200, ""),
        (
            "/unique",
            objects(5_000, r#"{"t":[4999,{"x":1}],"id":4999}"#),
            422,
            "uniqueItems",
        ),
        ("/nested", deep, 422, "anyOf"),
        ("/patterns", members("1"), 200, ""),
        ("/patterns", members("true"), 422, "patternProperties"),
    ] {
        let start = Instant::now();
        let (status, answer) = ask(address, path, "application/json", &body);
        assert_eq!(status, due, "{path}: {answer}");
        assert!(
            answer.contains(rule) && answer.len() < 256 * 1024,
            "{path}: {answer}"
        );
        // The one lane is free again for everybody else.
        assert_eq!(get(address, "/hello", ""), (200, "hello".to_owned()));
        let elapsed = start.elapsed();
        assert!(elapsed < BOUND, "{path} {due}: {elapsed:?}");
    }
    assert!(running.drain().finished);
}

#[test]
fn a_route_has_a_rate_of_its_own() {
    let rate: Rate = "2/h".parse().expect("a rate");
    let limit = || RateLimit::new(RateLimitConfig::new(rate, 2)).expect("a limit");
    let by_address = Arc::new(limit());
    let by_key = Arc::new(limit().by(|request, key| {
        if let Some(token) = request.headers().get("x-api-key") {
            key.add(token.as_bytes());
        }
    }));
    let evicted = Arc::clone(by_key.num_evicted());
    let hello = || inline(|_: Request| "hello");
    let schema = Schema::new(json!({"type": "object"}));
    let checked = validated()
        .body(schema)
        .inline(|_: Accepted<Value, ()>| "checked");
    let router = Router::new()
        .get("/free", hello())
        .and_then(|router| router.get("/one", Arc::clone(&by_address).before(hello())))
        .and_then(|router| {
            router.get(
                "/two",
                Arc::clone(&by_address).before(async |_: Request| "two"),
            )
        })
        .and_then(|router| router.get("/keyed", Arc::clone(&by_key).before(hello())))
        .and_then(|router| router.post("/checked", Arc::new(limit()).before(checked)))
        .expect("five routes");
    let (running, address) = serve(router, Limits::DEFAULT);
    let status = |path: &str, line: &str| get(address, path, line).0;
    // Both routes share one limit.
    assert_eq!([status("/one", ""), status("/two", "")], [200, 200]);
    let (refused, body) = get(address, "/one", "");
    assert_eq!(refused, 429);
    assert!(
        body.contains("\"limit\":\"rate_limit\",\"limit_value\":2"),
        "{body}"
    );
    assert_eq!([status("/two", ""), status("/free", "")], [429, 200]);
    let keyed = |key: &str| status("/keyed", &format!("X-API-Key: {key}\r\n"));
    assert_eq!(
        [keyed("a"), keyed("a"), keyed("a"), keyed("b")],
        [200, 200, 429, 200]
    );
    // The schema of the handler behind a limit is still checked, once let in.
    let checked = |body: &str| ask(address, "/checked", "application/json", body).0;
    assert_eq!(
        [checked("[]"), checked("{}"), checked("{}")],
        [422, 200, 429]
    );
    let (_, page) = get(address, "/metrics", "");
    assert!(
        page.contains("justapi_rejected_total{reason=\"rate_limit\"} 4\n"),
        "{page}"
    );
    assert_eq!(evicted.load(Ordering::Relaxed), 0);
    assert!(running.drain().finished);
}
