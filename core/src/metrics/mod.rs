//! Counters of all lanes and their text for Prometheus.
//!
//! Guarantees: counting takes no lock and no atomic read-modify-write (each
//! lane is the only writer of its counters), and the number of series depends
//! on the routes alone, never on what clients send. Written by hand because
//! `prometheus-client` counts with locked instructions behind a lock per
//! family, and its text is `OpenMetrics`, not the text format 0.0.4.

mod cache;
mod exposition;
mod lane;
mod process;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use http::Method;

use self::exposition::{Exposition, Kind};
use self::lane::{METHODS, RouteCounts, RouteSlot, STATUS_CODES};
use self::process::Process;
use crate::cache::ResponseCache;
use crate::compression::Coding;
use crate::limits::Reject;

pub(crate) use self::lane::{LaneMetrics, Protocol};

/// Route label of requests that matched none.
const UNMATCHED: &str = "unmatched";

/// Labels of one route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteLabel {
    /// Method that it was registered for; `None` for every method.
    pub method: Option<Method>,
    /// Pattern as it was registered.
    pub pattern: String,
}

/// Counters of one server, shared by its lanes.
#[derive(Debug)]
pub struct Metrics {
    series: Vec<SeriesLabel>,
    lanes: Vec<Arc<LaneMetrics>>,
    process: Process,
    /// Name, help and values of counters that others keep.
    extra: Vec<(&'static str, &'static str, Vec<Arc<AtomicU64>>)>,
    cache: OnceLock<ResponseCache>,
    sources: Vec<MetricsSource>,
}

/// Families that the application renders itself, whenever somebody asks.
pub(crate) struct MetricsSource(Box<dyn Fn() -> String + Send + Sync>);

impl MetricsSource {
    pub(crate) fn new(render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Box::new(render))
    }
}

impl fmt::Debug for MetricsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsSource").finish_non_exhaustive()
    }
}

impl Metrics {
    /// `Content-Type` of what [`Self::render`] returns.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Counters at zero; `routes` in the order of their ids, without repeats.
    pub fn new(routes: Vec<RouteLabel>, lanes: usize) -> Self {
        let unmatched = RouteLabel {
            method: None,
            pattern: UNMATCHED.to_owned(),
        };
        let mut series = Vec::with_capacity(routes.len() + METHODS.len());
        let mut slots = Vec::with_capacity(routes.len() + 1);
        for route in routes.into_iter().chain([unmatched]) {
            slots.push(RouteSlot {
                first_series: series.len(),
                by_method: route.method.is_none(),
            });
            let own = route.method.as_ref().map(|method| [method.as_str()]);
            for &method in own.as_ref().map_or(&METHODS[..], |method| method) {
                series.push(SeriesLabel {
                    method: method.to_owned(),
                    pattern: route.pattern.clone(),
                });
            }
        }
        let lanes = (0..lanes)
            .map(|_| Arc::new(LaneMetrics::new(&slots, series.len())))
            .collect();
        Self {
            series,
            lanes,
            process: Process::new(),
            extra: Vec::new(),
            cache: OnceLock::new(),
            sources: Vec::new(),
        }
    }

    /// Renders what `sources` say too, behind everything else.
    pub(crate) fn add_sources(&mut self, sources: Vec<MetricsSource>) {
        self.sources.extend(sources);
    }

    /// Renders `counters` too, which others keep; those of one name as a sum.
    pub(crate) fn add_counters(
        &mut self,
        counters: Vec<(&'static str, &'static str, Arc<AtomicU64>)>,
    ) {
        for (name, help, value) in counters {
            match self.extra.iter_mut().find(|(known, ..)| *known == name) {
                Some((_, _, values)) => values.push(value),
                None => self.extra.push((name, help, vec![value])),
            }
        }
    }

    /// Adds what `cache` counts to the text; the first one that is given.
    pub(crate) fn watch_cache(&self, cache: ResponseCache) {
        self.cache.get_or_init(|| cache);
    }

    /// The counters that lane `index` alone may change.
    ///
    /// # Panics
    /// When there is no such lane.
    pub(crate) fn lane(&self, index: usize) -> Arc<LaneMetrics> {
        Arc::clone(&self.lanes[index])
    }

    /// The sums over all lanes, in the Prometheus text format 0.0.4.
    ///
    /// A route without requests has no series yet, so that the text grows
    /// with the routes in use and not with those that exist.
    pub fn render(&self) -> String {
        let mut text = Exposition::new();
        self.render_requests(&mut text);
        self.render_connections(&mut text);
        self.render_failures(&mut text);
        self.render_files(&mut text);
        self.render_contents(&mut text);
        if let Some(cache) = self.cache.get() {
            cache::render(&mut text, &cache.counts());
        }
        text.gauge("justapi_lanes", "Serving threads.", self.lanes.len());
        text.family(
            "justapi_build_info",
            "Always 1; the label says what runs.",
            Kind::Gauge,
        );
        text.sample(
            "justapi_build_info",
            &[("version", env!("CARGO_PKG_VERSION"))],
            1,
        );
        for (name, help, values) in &self.extra {
            let sum: u64 = values
                .iter()
                .map(|value| value.load(Ordering::Relaxed))
                .sum();
            text.counter(name, help, sum);
        }
        self.process.render(&mut text);
        let mut text = text.into_string();
        for MetricsSource(render) in &self.sources {
            text += &render();
        }
        text
    }

    fn render_requests(&self, text: &mut Exposition) {
        let all: Vec<_> = self
            .series
            .iter()
            .enumerate()
            .map(|(index, label)| (label, self.series_counts(index)))
            .collect();
        let used = || all.iter().filter(|(_, counts)| counts.num_requests() > 0);

        let name = "justapi_requests_total";
        text.family(name, "Requests answered.", Kind::Counter);
        for (label, counts) in used() {
            for (index, &count) in counts.statuses.iter().enumerate() {
                if count > 0 {
                    let code = STATUS_CODES.get(index).map(u16::to_string);
                    let labels = [
                        ("method", label.method.as_str()),
                        ("route", label.pattern.as_str()),
                        ("status", code.as_deref().unwrap_or("other")),
                    ];
                    text.sample(name, &labels, count);
                }
            }
        }

        let name = "justapi_request_duration_seconds";
        text.family(
            name,
            "Time from the end of a request's head to the head of its answer.",
            Kind::Histogram,
        );
        for (label, counts) in used() {
            let labels = [
                ("method", label.method.as_str()),
                ("route", label.pattern.as_str()),
            ];
            text.histogram(name, labels, counts);
        }
        text.gauge(
            "justapi_requests_in_flight",
            "Requests being served.",
            self.sum(LaneMetrics::num_in_flight),
        );
        text.counter(
            "justapi_requests_abandoned_total",
            "Requests whose client left before the answer.",
            self.sum(LaneMetrics::num_abandoned),
        );
        text.counter(
            "justapi_received_bytes_total",
            "Bytes of requests, after decryption; not of WebSockets.",
            self.sum(LaneMetrics::num_received_bytes),
        );
        text.counter(
            "justapi_sent_bytes_total",
            "Bytes of answers, before encryption; not of WebSockets.",
            self.sum(LaneMetrics::num_sent_bytes),
        );
    }

    fn render_connections(&self, text: &mut Exposition) {
        text.gauge(
            "justapi_connections",
            "Open connections.",
            self.sum(LaneMetrics::num_open_connections),
        );
        text.gauge(
            "justapi_websockets",
            "Open WebSockets, those through a proxy included.",
            self.sum(LaneMetrics::num_open_websockets),
        );
        let name = "justapi_connections_total";
        text.family(
            name,
            "Connections whose protocol became known.",
            Kind::Counter,
        );
        for protocol in Protocol::ALL {
            let count = self.sum(|lane| lane.num_connections(protocol));
            text.sample(name, &[("protocol", protocol.label())], count);
        }
    }

    fn render_failures(&self, text: &mut Exposition) {
        let name = "justapi_rejected_total";
        text.family(
            name,
            "Requests and connections refused by a limit.",
            Kind::Counter,
        );
        for reason in Reject::ALL {
            let count = self.sum(|lane| lane.num_rejected(reason));
            text.sample(name, &[("reason", reason.label())], count);
        }
        text.counter(
            "justapi_panics_total",
            "Requests whose handler panicked.",
            self.sum(LaneMetrics::num_panics),
        );
        text.counter(
            "justapi_accept_errors_total",
            "Failed attempts to accept a connection.",
            self.sum(LaneMetrics::num_accept_errors),
        );
        text.counter(
            "justapi_access_log_dropped_total",
            "Access log lines that were lost.",
            self.sum(LaneMetrics::num_access_log_dropped),
        );
    }

    fn render_files(&self, text: &mut Exposition) {
        text.counter(
            "justapi_file_responses_total",
            "Answers whose body is an open file.",
            self.sum(LaneMetrics::num_file_responses),
        );
        text.counter(
            "justapi_sendfile_total",
            "File bodies that were sent without a copy.",
            self.sum(LaneMetrics::num_sendfiles),
        );
        text.counter(
            "justapi_file_cache_hits_total",
            "Static files found in a lane's cache and still current.",
            self.sum(LaneMetrics::num_file_cache_hits),
        );
        text.counter(
            "justapi_file_cache_misses_total",
            "Static files looked for on disk.",
            self.sum(LaneMetrics::num_file_cache_misses),
        );
    }

    fn render_contents(&self, text: &mut Exposition) {
        let name = "justapi_compressed_responses_total";
        text.family(name, "Answers that got a content coding.", Kind::Counter);
        for coding in Coding::ALL {
            let count = self.sum(|lane| lane.num_compressed(coding));
            text.sample(name, &[("coding", coding.token())], count);
        }
        text.counter(
            "justapi_sse_events_total",
            "Events given to the connections of their clients.",
            self.sum(LaneMetrics::num_sse_events),
        );
        let name = "justapi_websocket_messages_total";
        text.family(name, "Whole messages on WebSockets.", Kind::Counter);
        for (direction, is_sent) in [("received", false), ("sent", true)] {
            let count = self.sum(|lane| lane.num_websocket_messages(is_sent));
            text.sample(name, &[("direction", direction)], count);
        }
    }

    fn series_counts(&self, index: usize) -> RouteCounts {
        let mut counts = RouteCounts::default();
        for lane in &self.lanes {
            lane.add_series_to(index, &mut counts);
        }
        counts
    }

    fn sum(&self, count: impl Fn(&LaneMetrics) -> u64) -> u64 {
        self.lanes.iter().map(|lane| count(lane)).sum()
    }
}

/// Labels of one series of requests.
#[derive(Debug)]
struct SeriesLabel {
    method: String,
    pattern: String,
}

#[cfg(test)]
mod tests;
