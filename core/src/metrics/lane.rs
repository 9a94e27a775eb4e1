//! The counters of one lane.
//!
//! Guarantee: each is written by one thread only, so a plain load and store
//! count exactly; another thread reads a value that was true a moment ago.
//! Lanes share no cache line.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};

use crate::compression::Coding;
use crate::limits::Reject;
use crate::router::RouteId;

/// Status codes with a label of their own: the IANA registry, and 418.
pub(super) const STATUS_CODES: [u16; 62] = [
    100, 101, 102, 103, 200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304,
    305, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415,
    416, 417, 418, 421, 422, 423, 424, 425, 426, 428, 429, 431, 451, 500, 501, 502, 503, 504, 505,
    506, 507, 508, 510, 511,
];

/// Values of the `method` label where no route says it; the last is for the rest.
pub(super) const METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "other",
];

/// Upper bounds of the duration buckets; beyond the last is `+Inf`.
///
/// From a native route on loopback to a slow generation, three a decade.
pub(super) const BUCKETS: [Bucket; 16] = [
    Bucket::new(50_000, "0.00005"),
    Bucket::new(100_000, "0.0001"),
    Bucket::new(250_000, "0.00025"),
    Bucket::new(500_000, "0.0005"),
    Bucket::new(1_000_000, "0.001"),
    Bucket::new(2_500_000, "0.0025"),
    Bucket::new(5_000_000, "0.005"),
    Bucket::new(10_000_000, "0.01"),
    Bucket::new(25_000_000, "0.025"),
    Bucket::new(50_000_000, "0.05"),
    Bucket::new(100_000_000, "0.1"),
    Bucket::new(250_000_000, "0.25"),
    Bucket::new(500_000_000, "0.5"),
    Bucket::new(1_000_000_000, "1"),
    Bucket::new(2_500_000_000, "2.5"),
    Bucket::new(10_000_000_000, "10"),
];

/// One bucket of the duration histogram.
pub(super) struct Bucket {
    bound_ns: u64,
    /// Value of the `le` label.
    pub(super) label: &'static str,
}

impl Bucket {
    const fn new(bound_ns: u64, label: &'static str) -> Self {
        Self { bound_ns, label }
    }
}

/// What a connection turned out to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1 in clear.
    Http1,
    /// HTTP/2 in clear, with prior knowledge.
    Http2,
    /// HTTP/1 over TLS.
    TlsHttp1,
    /// HTTP/2 over TLS.
    TlsHttp2,
}

impl Protocol {
    pub(super) const ALL: [Self; 4] = [Self::Http1, Self::Http2, Self::TlsHttp1, Self::TlsHttp2];

    /// Value of the `protocol` label.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Http1 => "h1",
            Self::Http2 => "h2",
            Self::TlsHttp1 => "tls_h1",
            Self::TlsHttp2 => "tls_h2",
        }
    }
}

/// Counters that only one lane's thread may change.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct LaneMetrics {
    /// By [`RouteId`], then the one of unmatched requests.
    routes: Box<[RouteSlot]>,
    series: Box<[RouteCounters]>,
    in_flight: Counter,
    abandoned: Counter,
    received_bytes: Counter,
    sent_bytes: Counter,
    open_connections: Counter,
    connections: [Counter; Protocol::ALL.len()],
    rejected: [Counter; Reject::ALL.len()],
    panics: Counter,
    accept_errors: Counter,
    access_log_dropped: Counter,
    file_responses: Counter,
    sendfiles: Counter,
    file_cache_hits: Counter,
    file_cache_misses: Counter,
    open_websockets: Counter,
    compressed: [Counter; Coding::ALL.len()],
    sse_events: Counter,
    websocket_received: Counter,
    websocket_sent: Counter,
}

impl LaneMetrics {
    /// `routes` ends with the slot of unmatched requests.
    pub(super) fn new(routes: &[RouteSlot], num_series: usize) -> Self {
        Self {
            routes: routes.into(),
            series: (0..num_series).map(|_| RouteCounters::default()).collect(),
            in_flight: Counter::default(),
            abandoned: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            open_connections: Counter::default(),
            connections: Default::default(),
            rejected: std::array::from_fn(|_| Counter::default()),
            panics: Counter::default(),
            accept_errors: Counter::default(),
            access_log_dropped: Counter::default(),
            file_responses: Counter::default(),
            sendfiles: Counter::default(),
            file_cache_hits: Counter::default(),
            file_cache_misses: Counter::default(),
            open_websockets: Counter::default(),
            compressed: Default::default(),
            sse_events: Counter::default(),
            websocket_received: Counter::default(),
            websocket_sent: Counter::default(),
        }
    }

    /// A request's head is complete.
    pub(crate) fn request_started(&self) {
        self.in_flight.add(1);
    }

    /// A started request has its answer.
    ///
    /// `method` counts only where the route does not say it.
    pub(crate) fn request_finished(
        &self,
        route: RouteId,
        method: &Method,
        status: StatusCode,
        duration: Duration,
    ) {
        self.in_flight.subtract(1);
        let unmatched = self.routes.len() - 1;
        let slot = self.routes[unmatched.min(route.0 as usize)];
        let offset = if slot.by_method {
            method_index(method)
        } else {
            0
        };
        self.series[slot.first_series + offset].count(status, duration);
    }

    /// A started request will have no answer, because its client has left.
    pub(crate) fn request_abandoned(&self) {
        self.in_flight.subtract(1);
        self.abandoned.add(1);
    }

    /// Bytes of requests have come.
    pub(crate) fn received(&self, num_bytes: usize) {
        self.received_bytes.add(num_bytes as u64);
    }

    /// Bytes of answers have left.
    pub(crate) fn sent(&self, num_bytes: usize) {
        self.sent_bytes.add(num_bytes as u64);
    }

    /// A connection was accepted.
    pub(crate) fn connection_opened(&self) {
        self.open_connections.add(1);
    }

    /// An open connection's protocol became known; once each.
    pub(crate) fn connection_identified(&self, protocol: Protocol) {
        self.connections[protocol as usize].add(1);
    }

    /// An open connection has ended.
    pub(crate) fn connection_closed(&self) {
        self.open_connections.subtract(1);
    }

    /// A limit refused a request or connection.
    pub(crate) fn rejected(&self, reason: Reject) {
        self.rejected[reason as usize].add(1);
    }

    /// A handler panicked.
    pub(crate) fn panicked(&self) {
        self.panics.add(1);
    }

    /// Accepting a connection failed.
    pub(crate) fn accept_error(&self) {
        self.accept_errors.add(1);
    }

    /// The access log lost `num_lines` lines.
    pub(crate) fn access_log_dropped(&self, num_lines: u64) {
        self.access_log_dropped.add(num_lines);
    }

    /// An answer has a file as its body, and will send it.
    pub(crate) fn file_response(&self) {
        self.file_responses.add(1);
    }

    /// A file body has left without a copy.
    pub(crate) fn sendfile_completed(&self) {
        self.sendfiles.add(1);
    }

    /// A static file was answered out of the lane's cache, or was not.
    pub(crate) fn file_looked_up(&self, is_hit: bool) {
        let counter = if is_hit {
            &self.file_cache_hits
        } else {
            &self.file_cache_misses
        };
        counter.add(1);
    }

    /// A WebSocket was opened.
    pub(crate) fn websocket_opened(&self) {
        self.open_websockets.add(1);
    }

    /// An open WebSocket has ended.
    pub(crate) fn websocket_closed(&self) {
        self.open_websockets.subtract(1);
    }

    /// An answer got a content coding.
    pub(crate) fn response_compressed(&self, coding: Coding) {
        self.compressed[coding as usize].add(1);
    }

    /// An event was given to the connection of its client.
    pub(crate) fn sse_event(&self) {
        self.sse_events.add(1);
    }

    /// A message of a WebSocket is whole, or was given to its connection.
    pub(crate) fn websocket_message(&self, is_sent: bool) {
        let counter = if is_sent {
            &self.websocket_sent
        } else {
            &self.websocket_received
        };
        counter.add(1);
    }

    pub(super) fn add_series_to(&self, index: usize, counts: &mut RouteCounts) {
        let route = &self.series[index];
        for (sum, counter) in counts.statuses.iter_mut().zip(&route.statuses) {
            *sum += counter.get();
        }
        for (sum, counter) in counts.buckets.iter_mut().zip(&route.buckets) {
            *sum += counter.get();
        }
        counts.duration_ns += route.duration_ns.get();
    }

    pub(super) fn num_in_flight(&self) -> u64 {
        self.in_flight.get()
    }

    pub(super) fn num_abandoned(&self) -> u64 {
        self.abandoned.get()
    }

    pub(super) fn num_received_bytes(&self) -> u64 {
        self.received_bytes.get()
    }

    pub(super) fn num_sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }

    pub(super) fn num_open_connections(&self) -> u64 {
        self.open_connections.get()
    }

    pub(super) fn num_open_websockets(&self) -> u64 {
        self.open_websockets.get()
    }

    pub(super) fn num_connections(&self, protocol: Protocol) -> u64 {
        self.connections[protocol as usize].get()
    }

    pub(super) fn num_rejected(&self, reason: Reject) -> u64 {
        self.rejected[reason as usize].get()
    }

    pub(super) fn num_panics(&self) -> u64 {
        self.panics.get()
    }

    pub(super) fn num_accept_errors(&self) -> u64 {
        self.accept_errors.get()
    }

    pub(super) fn num_access_log_dropped(&self) -> u64 {
        self.access_log_dropped.get()
    }

    pub(super) fn num_file_responses(&self) -> u64 {
        self.file_responses.get()
    }

    pub(super) fn num_sendfiles(&self) -> u64 {
        self.sendfiles.get()
    }

    pub(super) fn num_file_cache_hits(&self) -> u64 {
        self.file_cache_hits.get()
    }

    pub(super) fn num_file_cache_misses(&self) -> u64 {
        self.file_cache_misses.get()
    }

    pub(super) fn num_compressed(&self, coding: Coding) -> u64 {
        self.compressed[coding as usize].get()
    }

    pub(super) fn num_sse_events(&self) -> u64 {
        self.sse_events.get()
    }

    pub(super) fn num_websocket_messages(&self, is_sent: bool) -> u64 {
        if is_sent {
            self.websocket_sent.get()
        } else {
            self.websocket_received.get()
        }
    }
}

/// Where the counters of one route are.
#[derive(Debug, Clone, Copy)]
pub(super) struct RouteSlot {
    pub(super) first_series: usize,
    /// One for each of [`METHODS`], because the route takes any.
    pub(super) by_method: bool,
}

/// Sums of one route's counters.
#[derive(Debug, Clone, Copy)]
pub(super) struct RouteCounts {
    /// By [`STATUS_CODES`], then one for the rest.
    pub(super) statuses: [u64; STATUS_CODES.len() + 1],
    /// By [`BUCKETS`], then one for what is slower; not cumulative.
    pub(super) buckets: [u64; BUCKETS.len() + 1],
    pub(super) duration_ns: u64,
}

impl Default for RouteCounts {
    fn default() -> Self {
        Self {
            statuses: [0; STATUS_CODES.len() + 1],
            buckets: [0; BUCKETS.len() + 1],
            duration_ns: 0,
        }
    }
}

impl RouteCounts {
    pub(super) fn num_requests(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Counters of one route and method; at the start of a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct RouteCounters {
    duration_ns: Counter,
    buckets: [Counter; BUCKETS.len() + 1],
    statuses: [Counter; STATUS_CODES.len() + 1],
}

impl Default for RouteCounters {
    fn default() -> Self {
        Self {
            duration_ns: Counter::default(),
            buckets: std::array::from_fn(|_| Counter::default()),
            statuses: std::array::from_fn(|_| Counter::default()),
        }
    }
}

impl RouteCounters {
    fn count(&self, status: StatusCode, duration: Duration) {
        let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.duration_ns.add(duration_ns);
        let bucket = BUCKETS.partition_point(|bucket| bucket.bound_ns < duration_ns);
        self.buckets[bucket].add(1);
        self.statuses[status_index(status)].add(1);
    }
}

/// A number with one writer.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self, amount: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(amount);
        self.0.store(sum, Ordering::Relaxed);
    }

    fn subtract(&self, amount: u64) {
        let rest = self.0.load(Ordering::Relaxed).saturating_sub(amount);
        self.0.store(rest, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Index into [`STATUS_CODES`], or its length.
fn status_index(status: StatusCode) -> usize {
    STATUS_INDEXES
        .get(usize::from(status.as_u16()))
        .map_or(STATUS_CODES.len(), |&index| usize::from(index))
}

/// Index by status code, up to the last registered one.
static STATUS_INDEXES: [u8; 512] = {
    let mut indexes = [STATUS_CODES.len() as u8; 512];
    let mut index = 0;
    while index < STATUS_CODES.len() {
        indexes[STATUS_CODES[index] as usize] = index as u8;
        index += 1;
    }
    indexes
};

/// Index into [`METHODS`].
fn method_index(method: &Method) -> usize {
    METHODS
        .iter()
        .position(|known| *known == method.as_str())
        .unwrap_or(METHODS.len() - 1)
}
