//! W3C trace context in, spans out to a collector that this suite plays.
//!
//! A collector that is gone, slow or broken never shows in an answer, nor in
//! the time that the server takes to end beyond its named wait.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::server::Server;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const SOON: Duration = Duration::from_secs(10);

/// A collector that gives these statuses in turn, the last one for ever.
struct Collector {
    address: SocketAddr,
    posts: Receiver<(String, Value)>,
}

impl Collector {
    fn start(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let (sender, posts) = mpsc::channel();
        std::thread::spawn(move || {
            for (index, stream) in listener.incoming().flatten().enumerate() {
                let status = statuses[index.min(statuses.len() - 1)];
                if sender.send(take_post(stream, status)).is_err() {
                    return;
                }
            }
        });
        Self { address, posts }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn serve(&self, flags: &[&str]) -> Server {
        let url = self.url();
        Server::start(&[&["--trace", "--trace-endpoint", &url], flags].concat())
    }

    /// The next export: its head and its spans.
    fn next(&self) -> (String, Vec<Value>) {
        let (head, body) = self.posts.recv_timeout(SOON).expect("an export comes");
        let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
        (head, spans.as_array().expect("a list of spans").clone())
    }
}

/// Reads one request with its body and answers it.
fn take_post(mut stream: TcpStream, status: u16) -> (String, Value) {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let length = stream.read(&mut chunk).expect("the server sends");
        assert!(length > 0, "ended inside a request");
        bytes.extend_from_slice(&chunk[..length]);
        let text = String::from_utf8(bytes.clone()).expect("the export is UTF-8");
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let field = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        let due: usize = field.expect("a length").parse().expect("a number");
        if body.len() < due {
            continue;
        }
        let answer =
            format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
        stream
            .write_all(answer.as_bytes())
            .expect("the server reads");
        let json = serde_json::from_str(body).expect("the export is JSON");
        return (head.to_owned(), json);
    }
}

fn ask(server: &Server, path: &str, flags: &str) -> Value {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: a.example:8000\r\nUser-Agent: suite\r\n\
         traceparent: 00-{TRACE}-{PARENT}-{flags}\r\ntracestate: vendor=x\r\n\r\n"
    );
    server.connect().ask(request).json()
}

fn attribute(span: &Value, key: &str) -> Value {
    let all = span["attributes"].as_array().expect("a list of attributes");
    let found = all.iter().find(|attribute| attribute["key"] == key);
    let value = found.map_or(Value::Null, |attribute| attribute["value"].clone());
    let mut kinds = value
        .as_object()
        .into_iter()
        .flat_map(|value| value.values().cloned());
    kinds.next().unwrap_or(Value::Null)
}

#[test]
fn a_trace_is_continued_exported_and_logged() {
    let collector = Collector::start(&[200]);
    let flags = ["--trace-service-name", "shop", "--access-log", "json"];
    let server = collector.serve(&flags);
    let seen = ask(&server, "/client?secret=1", "01");
    assert_eq!(seen["trace_id"], TRACE);
    assert_eq!(seen["parent_id"], PARENT);
    let (head, body) = collector.posts.recv_timeout(SOON).expect("an export comes");
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains("\r\nContent-Type: application/json\r\n"),
        "{head}"
    );
    let service = &body["resourceSpans"][0]["resource"]["attributes"][0];
    assert_eq!(
        *service,
        json!({"key": "service.name", "value": {"stringValue": "shop"}})
    );
    let span = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    for (key, expected) in [
        ("traceId", json!(TRACE)),
        ("spanId", seen["span_id"].clone()),
        ("parentSpanId", json!(PARENT)),
        ("traceState", json!("vendor=x")),
        ("name", json!("GET /client")),
        ("kind", json!(2)),
    ] {
        assert_eq!(span[key], expected, "{key}");
    }
    for (key, expected) in [
        ("http.request.method", json!("GET")),
        ("http.route", json!("/client")),
        ("http.response.status_code", json!("200")),
        ("url.path", json!("/client")),
        ("url.scheme", json!("http")),
        ("server.address", json!("a.example:8000")),
        ("client.address", json!("127.0.0.1")),
        ("user_agent.original", json!("suite")),
        ("url.query", Value::Null),
    ] {
        assert_eq!(attribute(span, key), expected, "{key}");
    }
    let nanos = |key: &str| -> u128 { span[key].as_str().unwrap().parse().unwrap() };
    assert!(nanos("startTimeUnixNano") < nanos("endTimeUnixNano"));
    assert!(nanos("startTimeUnixNano") > 1_700_000_000_000_000_000);
    let line = server.wait_for_line("\"path\":\"/client\"");
    let entry: Value = serde_json::from_str(&line).expect("the line is JSON");
    assert_eq!(entry["trace_id"], TRACE);
    eventually(SOON, "the span is counted", || {
        let metrics = server.get("/metrics").text();
        metrics
            .contains("\njustapi_spans_exported_total ")
            .then_some(())
    });
}

#[test]
fn a_broken_parent_starts_a_new_trace() {
    let server = Server::start(&["--trace", "--trace-endpoint", "off"]);
    for flags in ["1", "0G", "01-"] {
        let seen = ask(&server, "/client", flags);
        assert_ne!(seen["trace_id"], TRACE, "{flags}");
        assert_eq!(seen["trace_id"].as_str().map(str::len), Some(32));
        assert_eq!(seen["parent_id"], Value::Null);
    }
    let off = Server::start(&[]);
    assert_eq!(ask(&off, "/client", "01")["trace_id"], Value::Null);
}

#[test]
fn a_server_error_is_an_error_of_its_span() {
    let collector = Collector::start(&[200]);
    let server = collector.serve(&["--timeout-request", "100ms"]);
    let mut client = server.connect();
    let request = "BREW /anything HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n[";
    assert_eq!(client.ask(request).status, 504);
    let (_, spans) = collector.next();
    assert_eq!(spans[0]["status"], json!({"code": 2}));
    assert_eq!(spans[0]["name"], "_OTHER /anything");
    assert_eq!(spans[0]["parentSpanId"], Value::Null);
    assert_eq!(attribute(&spans[0], "http.response.status_code"), "504");
    assert_eq!(attribute(&spans[0], "error.type"), "504");
}

#[test]
fn the_callers_decision_holds_and_new_traces_follow_the_share() {
    let collector = Collector::start(&[200]);
    let server = collector.serve(&["--trace-sample-percent", "0"]);
    ask(&server, "/hello", "00");
    server.get("/hello");
    let sampled = ask(&server, "/client", "01");
    let (_, spans) = collector.next();
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0]["spanId"], sampled["span_id"]);
}

#[test]
fn a_busy_collector_is_asked_again_with_the_same_spans() {
    let collector = Collector::start(&[503, 429, 200]);
    let server = collector.serve(&["--trace-sample-percent", "0"]);
    ask(&server, "/client", "01");
    let first = collector.next().1;
    assert_eq!(
        [collector.next().1, collector.next().1],
        [first.clone(), first]
    );
    counted(&server, "justapi_spans_exported_total", 1);
}

#[test]
fn spans_that_nobody_takes_are_counted() {
    let collector = Collector::start(&[400]);
    let server = collector.serve(&["--trace-sample-percent", "0"]);
    ask(&server, "/client", "01");
    assert_eq!(collector.next().1.len(), 1);
    counted(&server, "justapi_spans_failed_total", 1);
}

fn counted(server: &Server, name: &str, due: u64) {
    let line = format!("\n{name} {due}\n");
    eventually(SOON, &line, || {
        server.get("/metrics").text().contains(&line).then_some(())
    });
}

#[test]
fn a_collector_that_is_gone_changes_no_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("a bound address"));
    drop(listener);
    let flags = [
        "--trace",
        "--trace-endpoint",
        &url,
        "--trace-sample-percent",
        "0",
    ];
    let mut server = Server::start(&flags);
    for _ in 0..20 {
        assert_eq!(ask(&server, "/client", "01")["trace_id"], TRACE);
    }
    counted(&server, "justapi_spans_failed_total", 20);
    server.signal(Signal::TERM);
    assert_eq!(server.exit(SOON).code(), Some(0));
}

#[test]
fn what_is_queued_is_sent_before_the_end() {
    let collector = Collector::start(&[200]);
    let mut server = collector.serve(&[]);
    let seen = ask(&server, "/client", "01");
    server.signal(Signal::TERM);
    assert_eq!(server.exit(SOON).code(), Some(0));
    let (_, spans) = collector.next();
    assert_eq!(spans[0]["spanId"], seen["span_id"]);
}

/// It accepts and never answers: the server waits its 3 s and no longer.
#[test]
fn a_collector_that_hangs_delays_the_end_by_its_named_time() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("a bound address"));
    let mut server = Server::start(&["--trace", "--trace-endpoint", &url]);
    ask(&server, "/client", "01");
    let start = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.exit(SOON).code(), Some(0));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn an_endpoint_that_cannot_work_is_refused() {
    let mut command = crate::support::server::serve();
    command.args([
        "--port",
        "0",
        "--trace",
        "--trace-endpoint",
        "https://collector",
    ]);
    let mut server = Server::spawn(command);
    assert_eq!(server.exit(SOON).code(), Some(2));
    server.wait_for_line("expected an http:// URL");
}
