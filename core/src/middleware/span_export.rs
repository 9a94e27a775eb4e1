//! Spans to an OpenTelemetry collector: OTLP over HTTP with JSON (OTLP 1.x,
//! "OTLP/HTTP"; OpenTelemetry semantic conventions for HTTP servers).
//!
//! Guarantee: requests never wait for it. A span that finds the queue full, or
//! whose collector does not take it after three attempts, is dropped and
//! counted. Dropping the exporter sends what is queued, for at most
//! [`MAX_FLUSH_WAIT`].

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::{Method, StatusCode, Uri, Version};
use serde_json::{Map, Value, json};

use super::arrival::Facts;
use super::trace_context::SpanDetails;
use crate::error::Error;

/// Spans that wait for the exporter's thread; about 4 MiB.
const MAX_QUEUED: usize = 8192;
/// Spans of one export: the OpenTelemetry SDKs' default.
const MAX_BATCH: usize = 512;
/// How long spans are collected before an export.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);
/// One connection to the collector, from its start to the answer.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts to export a batch.
const MAX_ATTEMPTS: u32 = 3;
/// Pause after the first failed attempt; each further one is twice as long.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// How long dropping the exporter may take.
const MAX_FLUSH_WAIT: Duration = Duration::from_secs(3);
/// Bytes of an answer that are read; only its status matters.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
const DEFAULT_PORT: u16 = 4318;
const TRACES_PATH: &str = "/v1/traces";

/// Where a collector takes spans, such as `http://127.0.0.1:4318`.
///
/// `/v1/traces` is appended unless the path ends in it, as
/// `OTEL_EXPORTER_OTLP_ENDPOINT` asks for. Only `http`: a collector beside the
/// server speaks TLS to the rest of the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpEndpoint {
    /// Host as in a URL, with brackets around IPv6.
    host: String,
    port: u16,
    path: String,
}

impl FromStr for OtlpEndpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri: Uri = text.parse().map_err(|_| "not a URL")?;
        if uri.scheme_str() != Some("http") {
            return Err("expected an http:// URL");
        }
        let authority = uri.authority().ok_or("the URL has no host")?;
        if authority.as_str().contains('@') || authority.host().is_empty() || uri.query().is_some()
        {
            return Err("expected only a host, a port and a path");
        }
        let path = uri.path().trim_end_matches('/');
        let suffix = if path.ends_with(TRACES_PATH) {
            ""
        } else {
            TRACES_PATH
        };
        Ok(Self {
            host: authority.host().to_owned(),
            port: authority.port_u16().unwrap_or(DEFAULT_PORT),
            path: format!("{path}{suffix}"),
        })
    }
}

/// The finished span of one request.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) facts: Arc<Facts>,
    pub(super) method: Method,
    pub(super) route: Option<Box<str>>,
    /// `None` when there was no answer: the client left, or the server ended.
    pub(super) status: Option<StatusCode>,
    pub(super) duration: Duration,
}

/// Hands spans to the thread that exports them.
pub(super) struct SpanExporter {
    /// `None` once it is being dropped.
    queue: Option<SyncSender<Box<Span>>>,
    shared: Arc<Shared>,
    thread: Thread,
    /// Disconnects when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

#[derive(Default)]
struct Shared {
    exported: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    /// When the exporter must have stopped.
    deadline: OnceLock<Instant>,
}

impl fmt::Debug for SpanExporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanExporter").finish_non_exhaustive()
    }
}

impl SpanExporter {
    pub(super) fn start(endpoint: OtlpEndpoint, service_name: &str) -> Result<Self, Error> {
        let (queue, spans) = mpsc::sync_channel(MAX_QUEUED);
        let (alive, ended) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let worker = Worker {
            endpoint,
            service_name: service_name.to_owned(),
            shared: Arc::clone(&shared),
        };
        let handle = thread::Builder::new()
            .name("span-export".to_owned())
            .spawn(move || {
                worker.run(&spans);
                drop(alive);
            })
            .map_err(|source| Error::Config {
                key: "trace.endpoint",
                reason: format!("cannot start its thread: {source}"),
            })?;
        Ok(Self {
            queue: Some(queue),
            shared,
            thread: handle.thread().clone(),
            ended: Mutex::new(ended),
        })
    }

    /// Queues a span, or drops it when the queue is full.
    pub(super) fn push(&self, span: Box<Span>) {
        let queued = self.queue.as_ref().map(|queue| queue.try_send(span));
        if !matches!(queued, Some(Ok(()))) {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Spans exported, dropped at the queue, and not taken by the collector.
    pub(super) fn counters(&self) -> [&Arc<AtomicU64>; 3] {
        [
            &self.shared.exported,
            &self.shared.dropped,
            &self.shared.failed,
        ]
    }
}

impl Drop for SpanExporter {
    fn drop(&mut self) {
        self.shared
            .deadline
            .get_or_init(|| Instant::now() + MAX_FLUSH_WAIT);
        // Without a sender the thread takes what is left and ends.
        self.queue = None;
        self.thread.unpark();
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        match ended.recv_timeout(MAX_FLUSH_WAIT) {
            Ok(()) | Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {}
        }
    }
}

/// The exporter's thread.
struct Worker {
    endpoint: OtlpEndpoint,
    service_name: String,
    shared: Arc<Shared>,
}

/// What became of one attempt.
enum Attempt {
    Taken,
    /// The collector is away or busy.
    Later,
    /// The collector will never take this batch.
    Never,
}

impl Worker {
    fn run(&self, spans: &Receiver<Box<Span>>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        while let Ok(span) = spans.recv() {
            batch.push(span);
            let end = Instant::now() + BATCH_INTERVAL;
            while batch.len() < MAX_BATCH
                && let left = end.saturating_duration_since(Instant::now())
                && let Ok(span) = spans.recv_timeout(left)
            {
                batch.push(span);
            }
            let is_taken = self.export(&self.render(&batch));
            let counter = if is_taken {
                &self.shared.exported
            } else {
                &self.shared.failed
            };
            counter.fetch_add(batch.len() as u64, Ordering::Relaxed);
            batch.clear();
        }
    }

    /// Sends a batch, with pauses between attempts; whether it was taken.
    fn export(&self, body: &[u8]) -> bool {
        let mut backoff = FIRST_BACKOFF;
        for attempt in 1..=MAX_ATTEMPTS {
            let Some(limit) = self.time_left(EXPORT_TIMEOUT) else {
                return false;
            };
            match self.attempt(body, limit) {
                Attempt::Taken => return true,
                Attempt::Never => return false,
                Attempt::Later if attempt < MAX_ATTEMPTS => self.pause(backoff),
                Attempt::Later => {}
            }
            backoff *= 2;
        }
        false
    }

    /// At most `wanted`, less before the deadline, `None` after it.
    fn time_left(&self, wanted: Duration) -> Option<Duration> {
        let left = match self.shared.deadline.get() {
            Some(deadline) => deadline
                .saturating_duration_since(Instant::now())
                .min(wanted),
            None => wanted,
        };
        (!left.is_zero()).then_some(left)
    }

    /// Waits, unless the exporter is being dropped.
    fn pause(&self, time: Duration) {
        let end = Instant::now() + time;
        while self.shared.deadline.get().is_none()
            && let left = end.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            thread::park_timeout(left);
        }
    }

    fn attempt(&self, body: &[u8], limit: Duration) -> Attempt {
        match post(&self.endpoint, body, limit) {
            Ok(200..=299) => Attempt::Taken,
            Ok(429 | 502..=504) | Err(_) => Attempt::Later,
            Ok(_) => Attempt::Never,
        }
    }

    fn render(&self, batch: &[Box<Span>]) -> Vec<u8> {
        let spans: Vec<_> = batch.iter().filter_map(|span| span.render()).collect();
        let version = env!("CARGO_PKG_VERSION");
        let request = json!({"resourceSpans": [{
            "resource": {"attributes": [
                attribute("service.name", self.service_name.as_str()),
                attribute("telemetry.sdk.language", "rust"),
                attribute("telemetry.sdk.name", "justapi"),
                attribute("telemetry.sdk.version", version),
            ]},
            "scopeSpans": [{
                "scope": {"name": "justapi", "version": version},
                "spans": spans,
            }],
        }]});
        serde_json::to_vec(&request).expect("JSON values always serialise")
    }
}

impl Span {
    fn render(&self) -> Option<Value> {
        let start = self.facts.span.as_ref()?;
        let details = start.details.as_ref()?;
        let context = &start.context;
        let method = match self.method.as_str() {
            known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" | "TRACE"
            | "CONNECT") => known,
            _ => "_OTHER",
        };
        let name = match &self.route {
            Some(route) => format!("{method} {route}"),
            None => method.to_owned(),
        };
        let mut span = Map::new();
        let mut set = |key: &str, value: Value| span.insert(key.to_owned(), value);
        set("traceId", context.trace_id().into());
        set("spanId", context.span_id().into());
        if let Some(parent) = context.parent_id() {
            set("parentSpanId", parent.into());
        }
        if let Some(state) = context.tracestate() {
            set("traceState", state.into());
        }
        set("flags", context.flags().into());
        set("name", name.into());
        // SPAN_KIND_SERVER
        set("kind", 2.into());
        set("startTimeUnixNano", nanos(details.time).into());
        set(
            "endTimeUnixNano",
            nanos(details.time + self.duration).into(),
        );
        set("attributes", self.attributes(details, method).into());
        if self.status.is_some_and(|status| status.is_server_error()) {
            // STATUS_CODE_ERROR
            set("status", json!({"code": 2}));
        }
        Some(span.into())
    }

    fn attributes(&self, details: &SpanDetails, method: &str) -> Vec<Value> {
        let mut all = vec![
            attribute("http.request.method", method),
            attribute("url.path", &details.path),
            attribute(
                "url.scheme",
                if details.is_secure { "https" } else { "http" },
            ),
            attribute("network.protocol.version", version_text(details.version)),
        ];
        all.extend(self.status.map(|status| {
            let value = json!({"intValue": status.as_str()});
            json!({"key": "http.response.status_code", "value": value})
        }));
        let mut add = |key, value: Option<&str>| {
            all.extend(value.map(|value| attribute(key, value)));
        };
        add("http.route", self.route.as_deref());
        add("server.address", details.host.as_deref());
        add(
            "client.address",
            details.client.map(|client| client.to_string()).as_deref(),
        );
        let agent = details.user_agent.as_ref();
        add(
            "user_agent.original",
            agent.and_then(|agent| agent.to_str().ok()),
        );
        add(
            "error.type",
            match &self.status {
                None => Some("abandoned"),
                Some(status) if status.is_server_error() => Some(status.as_str()),
                Some(_) => None,
            },
        );
        all
    }
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// 64-bit numbers are strings in OTLP's JSON.
fn nanos(time: SystemTime) -> String {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_nanos().to_string()
}

const fn version_text(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}

/// Posts `body` on a connection of its own; the status of the answer.
fn post(endpoint: &OtlpEndpoint, body: &[u8], limit: Duration) -> io::Result<u16> {
    let end = Instant::now() + limit;
    let left = || {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::Error::from(io::ErrorKind::TimedOut))
        } else {
            Ok(left)
        }
    };
    let OtlpEndpoint { host, port, path } = endpoint;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let mut stream = Err(io::ErrorKind::NotFound.into());
    for address in (bare, *port).to_socket_addrs()? {
        stream = TcpStream::connect_timeout(&address, left()?);
        if stream.is_ok() {
            break;
        }
    }
    let mut stream = stream?;
    let version = env!("CARGO_PKG_VERSION");
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: justapi/{version}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let mut request = head.into_bytes();
    request.extend_from_slice(body);
    let mut rest = &request[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left()?))?;
        let written = stream.write(rest)?;
        rest = &rest[written..];
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    // To the end where it comes in time: closing on unread bytes is a reset.
    while answer.len() < MAX_ANSWER_BYTES {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&chunk[..length]),
            Err(_) if status_of(&answer).is_some() => break,
            Err(error) => return Err(error),
        }
    }
    status_of(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The status of an HTTP/1 answer that has begun.
fn status_of(answer: &[u8]) -> Option<u16> {
    let rest = answer.strip_prefix(b"HTTP/1.")?;
    let digits = rest.get(2..5).filter(|_| rest.get(1) == Some(&b' '))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_base_urls() {
        for (text, expected) in [
            (
                "http://127.0.0.1:4318",
                Some(("127.0.0.1", 4318, "/v1/traces")),
            ),
            ("http://collector/", Some(("collector", 4318, "/v1/traces"))),
            (
                "http://[::1]:1/otlp/",
                Some(("[::1]", 1, "/otlp/v1/traces")),
            ),
            ("http://a/v1/traces", Some(("a", 4318, "/v1/traces"))),
            ("https://a", None),
            ("a:4318", None),
            ("http://user@a", None),
            ("http://a?b", None),
            ("", None),
        ] {
            let endpoint = text.parse::<OtlpEndpoint>().ok();
            let found = endpoint
                .as_ref()
                .map(|e| (e.host.as_str(), e.port, e.path.as_str()));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn the_status_of_an_answer_is_read() {
        for (answer, expected) in [
            (&b"HTTP/1.1 200 OK\r\n"[..], Some(200)),
            (b"HTTP/1.0 503", Some(503)),
            (b"HTTP/1.1 2", None),
            (b"HTTP/2 200", None),
            (b"SSH-2.0-x", None),
            (b"", None),
        ] {
            assert_eq!(status_of(answer), expected);
        }
    }
}
