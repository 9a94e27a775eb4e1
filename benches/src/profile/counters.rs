//! What a justapi server counted between two pages of its metrics.
//!
//! Guarantee: the pages are of one process, and no counter fell between them; otherwise there are
//! no counters, but the reason. Our own looks at the page are taken out. Names and meanings are
//! those of `core/src/metrics/mod.rs`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::exposition::{Exposition, Sample};

const REQUESTS: &str = "justapi_requests_total";
const DURATION_BUCKET: &str = "justapi_request_duration_seconds_bucket";
const DURATION_SUM: &str = "justapi_request_duration_seconds_sum";
pub(super) const IN_FLIGHT: &str = "justapi_requests_in_flight";
const RECEIVED: &str = "justapi_received_bytes_total";
const SENT: &str = "justapi_sent_bytes_total";
const BUILD: &str = "justapi_build_info";
/// Differs between the workers of a server, and after a restart.
const START: &str = "process_start_time_seconds";

/// What the counters of a server say of a time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerSide {
    /// Version of justapi that serves.
    pub version: Option<String>,
    /// Routes that were asked, the most requests first.
    pub routes: Vec<RouteCounters>,
    /// Requests inside the server at some instants, our looks left out.
    pub in_flight: Option<InFlight>,
    /// Bytes that came, of requests; `null` for a server that does not count them.
    pub received_bytes: Option<u64>,
    /// Bytes that left, of answers; our looks at the page are in both, where it counts those.
    pub sent_bytes: Option<u64>,
    /// Other counters of justapi that grew, by series.
    pub counters: BTreeMap<String, u64>,
}

/// What was counted of one route, named as the server has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RouteCounters {
    /// Method that the route was registered for.
    pub method: String,
    /// Its pattern.
    pub route: String,
    /// Answers.
    pub requests: u64,
    /// Answers by status; `other` is one without a name.
    pub statuses: BTreeMap<String, u64>,
    /// Time in the server.
    pub time: Option<HandlerTime>,
}

/// From the end of a request's head to the head of its answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HandlerTime {
    /// Answers that were timed.
    pub count: u64,
    /// All of them together, in nanoseconds.
    pub sum_ns: u64,
    /// Their mean, in nanoseconds.
    pub mean_ns: Option<f64>,
    /// Upper bound of the median: that of its bucket; `null` above the last bound.
    pub p50_at_most_ns: Option<u64>,
    /// The same of the 90th percentile.
    pub p90_at_most_ns: Option<u64>,
    /// The same of the 99th percentile.
    pub p99_at_most_ns: Option<u64>,
    /// Answers between two bounds, the fastest first.
    pub buckets: Vec<TimeBucket>,
}

/// Answers of about one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TimeBucket {
    /// Upper bound; `null` for what is above the last.
    pub at_most_ns: Option<u64>,
    /// Answers above the bound before and up to this one.
    pub count: u64,
}

/// Requests inside the server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct InFlight {
    /// How often was looked.
    pub looks: u64,
    /// Mean over the looks.
    pub mean: f64,
    /// Most at one look.
    pub max: u64,
}

/// Pages of one server in their order.
#[derive(Debug)]
pub(super) struct Pages<'a> {
    pub(super) before: &'a Exposition,
    pub(super) between: &'a [Exposition],
    pub(super) after: &'a Exposition,
    /// Path of the pages, under which the server counts our looks.
    pub(super) path: &'a str,
}

impl ServerSide {
    /// Whether a page is one of a justapi server.
    pub(super) fn is_known(page: &Exposition) -> bool {
        page.value(IN_FLIGHT).is_some()
    }

    /// The difference between the first and the last page.
    ///
    /// # Errors
    ///
    /// Why there is none, in words.
    pub(super) fn of(pages: &Pages<'_>) -> Result<Self, String> {
        let all = || [pages.before, pages.after].into_iter().chain(pages.between);
        if !all().all(Self::is_known) {
            return Err("the page has no metrics of justapi".to_owned());
        }
        let start = pages.before.value(START).map(f64::to_bits);
        if all().any(|page| page.value(START).map(f64::to_bits) != start) {
            return Err(
                "more than one process answered, and each counts for itself: serve with one worker"
                    .to_owned(),
            );
        }
        let before = Before::of(pages.before);
        let mut routes = routes(&before, pages.after)?;
        // A page does not count the look that it answers, so the last one is not in it.
        let own_looks = 1 + pages.between.len() as u64;
        let counts_looks = take_own_looks(&mut routes, pages.path, own_looks);
        routes.sort_by_key(|route| Reverse(route.requests));
        let mut counters = counters(&before, pages.after)?;
        let mut bytes = |name: &str| {
            let grew = counters.remove(name);
            pages.after.value(name).map(|_| grew.unwrap_or(0))
        };
        let (received_bytes, sent_bytes) = (bytes(RECEIVED), bytes(SENT));
        let version = (pages.after.samples(BUILD).next())
            .map(|sample| sample.label("version").to_owned())
            .filter(|version| !version.is_empty());
        Ok(Self {
            version,
            routes,
            in_flight: in_flight(pages.between, counts_looks),
            received_bytes,
            sent_bytes,
            counters,
        })
    }

    /// Requests that were answered, whatever the route.
    pub fn requests(&self) -> u64 {
        self.routes.iter().map(|route| route.requests).sum()
    }
}

/// What names a route.
type RouteKey = (String, String);

fn key(sample: &Sample) -> RouteKey {
    let label = |name| sample.label(name).to_owned();
    (label("method"), label("route"))
}

fn routes(before: &Before<'_>, after: &Exposition) -> Result<Vec<RouteCounters>, String> {
    let mut routes: BTreeMap<RouteKey, RouteCounters> = BTreeMap::new();
    for sample in after.samples(REQUESTS) {
        let count = before.growth(sample)?;
        if count == 0 {
            continue;
        }
        let (method, route) = key(sample);
        let entry = routes
            .entry((method.clone(), route.clone()))
            .or_insert_with(|| RouteCounters {
                method,
                route,
                requests: 0,
                statuses: BTreeMap::new(),
                time: None,
            });
        entry.requests += count;
        let status = sample.label("status").to_owned();
        *entry.statuses.entry(status).or_default() += count;
    }
    let mut times = times(before, after)?;
    for (key, route) in &mut routes {
        route.time = times.remove(key);
    }
    Ok(routes.into_values().collect())
}

fn times(
    before: &Before<'_>,
    after: &Exposition,
) -> Result<BTreeMap<RouteKey, HandlerTime>, String> {
    let mut cumulative: BTreeMap<RouteKey, Vec<(f64, u64)>> = BTreeMap::new();
    for sample in after.samples(DURATION_BUCKET) {
        let bound = match sample.label("le") {
            "+Inf" => f64::INFINITY,
            text => text
                .parse()
                .map_err(|_| format!("a bucket has the bound {text:?}"))?,
        };
        let count = before.growth(sample)?;
        let buckets = cumulative.entry(key(sample)).or_default();
        buckets.push((bound, count));
    }
    let mut times = BTreeMap::new();
    for sample in after.samples(DURATION_SUM) {
        let Some(mut buckets) = cumulative.remove(&key(sample)) else {
            continue;
        };
        buckets.sort_by(|one, two| one.0.total_cmp(&two.0));
        let seconds = before.change(sample);
        if seconds.is_nan() || seconds < -1e-9 {
            return Err(fell(sample));
        }
        let sum_ns = (seconds.max(0.0) * 1e9).round() as u64;
        if let Some(time) = HandlerTime::of(&buckets, sum_ns) {
            times.insert(key(sample), time);
        }
    }
    Ok(times)
}

impl HandlerTime {
    /// `cumulative` ascends by its bounds in seconds; `None` when nothing was timed.
    fn of(cumulative: &[(f64, u64)], sum_ns: u64) -> Option<Self> {
        let count = cumulative.last().map(|(_, count)| *count)?;
        if count == 0 {
            return None;
        }
        let mut below = 0;
        let buckets: Vec<_> = cumulative
            .iter()
            .map(|(bound, cumulative)| {
                let count = cumulative.saturating_sub(below);
                below = *cumulative;
                TimeBucket {
                    at_most_ns: bound.is_finite().then(|| (bound * 1e9).round() as u64),
                    count,
                }
            })
            .collect();
        let at_most = |share: f64| {
            let rank = ((share * count as f64).ceil() as u64).max(1);
            let mut sum = 0;
            let bucket = buckets.iter().find(|bucket| {
                sum += bucket.count;
                sum >= rank
            });
            bucket.and_then(|bucket| bucket.at_most_ns)
        };
        Some(Self {
            count,
            sum_ns,
            mean_ns: Some(sum_ns as f64 / count as f64),
            p50_at_most_ns: at_most(0.5),
            p90_at_most_ns: at_most(0.9),
            p99_at_most_ns: at_most(0.99),
            buckets,
        })
    }
}

/// Takes our own looks out of the route of the metrics; whether the server counts them at all.
fn take_own_looks(routes: &mut Vec<RouteCounters>, path: &str, looks: u64) -> bool {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let own = |route: &RouteCounters| route.route == path && route.method == "GET";
    let Some(index) = routes.iter().position(own) else {
        return false;
    };
    let route = &mut routes[index];
    if route.requests < looks {
        return false;
    }
    route.requests -= looks;
    if route.requests == 0 {
        routes.remove(index);
    } else if let Some(count) = route.statuses.get_mut("200") {
        *count = count.saturating_sub(looks);
        // The times of our looks cannot be told from those of others.
    }
    true
}

fn in_flight(looks: &[Exposition], counts_looks: bool) -> Option<InFlight> {
    // A look is a request inside the server, too.
    let own = u64::from(counts_looks);
    let values: Vec<u64> = (looks.iter())
        .filter_map(|page| page.value(IN_FLIGHT))
        .map(|value| (value as u64).saturating_sub(own))
        .collect();
    let max = *values.iter().max()?;
    Some(InFlight {
        looks: values.len() as u64,
        mean: values.iter().sum::<u64>() as f64 / values.len() as f64,
        max,
    })
}

fn counters(before: &Before<'_>, after: &Exposition) -> Result<BTreeMap<String, u64>, String> {
    let mut grew = BTreeMap::new();
    for sample in after.iter() {
        let is_other = sample.name.starts_with("justapi_")
            && sample.name.ends_with("_total")
            && sample.name != REQUESTS;
        if !is_other {
            continue;
        }
        let count = before.growth(sample)?;
        if count > 0 {
            grew.insert(series(sample), count);
        }
    }
    Ok(grew)
}

/// The values of a page by series, as a page may have thousands.
struct Before<'a>(HashMap<(&'a str, &'a BTreeMap<String, String>), f64>);

impl<'a> Before<'a> {
    fn of(page: &'a Exposition) -> Self {
        let series = |sample: &'a Sample| ((sample.name.as_str(), &sample.labels), sample.value);
        Self(page.iter().map(series).collect())
    }

    /// By how much a value changed; a series that was not there began at zero.
    fn change(&self, sample: &Sample) -> f64 {
        let earlier = self.0.get(&(sample.name.as_str(), &sample.labels));
        sample.value - earlier.copied().unwrap_or(0.0)
    }

    /// By how much a counter grew.
    fn growth(&self, sample: &Sample) -> Result<u64, String> {
        let change = self.change(sample);
        if change.is_finite() && change >= 0.0 {
            Ok(change as u64)
        } else {
            Err(fell(sample))
        }
    }
}

fn fell(sample: &Sample) -> String {
    format!(
        "{} fell, so the pages are of different processes",
        series(sample)
    )
}

fn series(sample: &Sample) -> String {
    if sample.labels.is_empty() {
        return sample.name.clone();
    }
    let labels: Vec<_> = (sample.labels.iter())
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    format!("{}{{{}}}", sample.name, labels.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of a server that was asked for `/items/{id}` so often, in so many seconds.
    fn page(ok: u64, failed: u64, looks: u64, in_flight: u64, start: &str) -> Exposition {
        let timed = ok + failed;
        let slow = failed;
        let text = format!(
            "# TYPE justapi_requests_total counter\n\
             justapi_requests_total{{method=\"GET\",route=\"/items/{{id}}\",status=\"200\"}} {ok}\n\
             justapi_requests_total{{method=\"GET\",route=\"/items/{{id}}\",status=\"500\"}} {failed}\n\
             justapi_requests_total{{method=\"GET\",route=\"/metrics\",status=\"200\"}} {looks}\n\
             justapi_request_duration_seconds_bucket{{method=\"GET\",route=\"/items/{{id}}\",le=\"0.00005\"}} {}\n\
             justapi_request_duration_seconds_bucket{{method=\"GET\",route=\"/items/{{id}}\",le=\"0.0001\"}} {ok}\n\
             justapi_request_duration_seconds_bucket{{method=\"GET\",route=\"/items/{{id}}\",le=\"+Inf\"}} {timed}\n\
             justapi_request_duration_seconds_sum{{method=\"GET\",route=\"/items/{{id}}\"}} {}\n\
             justapi_request_duration_seconds_count{{method=\"GET\",route=\"/items/{{id}}\"}} {timed}\n\
             justapi_requests_in_flight {in_flight}\n\
             justapi_python_inline_total {timed}\n\
             justapi_sent_bytes_total {}\n\
             justapi_build_info{{version=\"0.1.0\"}} 1\n\
             process_start_time_seconds {start}\n",
            ok / 2,
            ok as f64 * 60e-6 + slow as f64 * 20.0,
            timed * 150,
        );
        Exposition::parse(&text).unwrap()
    }

    fn of(
        before: &Exposition,
        between: &[Exposition],
        after: &Exposition,
    ) -> Result<ServerSide, String> {
        ServerSide::of(&Pages {
            before,
            between,
            after,
            path: "/metrics",
        })
    }

    #[test]
    fn counts_and_times_are_differences() {
        let before = page(1000, 10, 7, 1, "5.5");
        let looks = [page(1500, 10, 8, 11, "5.5"), page(1900, 10, 9, 4, "5.5")];
        let after = page(2000, 11, 10, 1, "5.5");
        let side = of(&before, &looks, &after).unwrap();
        assert_eq!(side.version.as_deref(), Some("0.1.0"));
        assert_eq!(side.routes.len(), 1, "our looks are no traffic: {side:?}");
        let route = &side.routes[0];
        assert_eq!(
            (route.method.as_str(), route.route.as_str()),
            ("GET", "/items/{id}")
        );
        assert_eq!(route.requests, 1001);
        assert_eq!(side.requests(), 1001);
        let statuses: Vec<_> = (route.statuses.iter())
            .map(|(status, count)| (status.as_str(), *count))
            .collect();
        assert_eq!(statuses, [("200", 1000), ("500", 1)]);
        let time = route.time.as_ref().unwrap();
        assert_eq!(time.count, 1001);
        assert_eq!(time.sum_ns, 20_060_000_000);
        let counts: Vec<_> = time
            .buckets
            .iter()
            .map(|bucket| (bucket.at_most_ns, bucket.count))
            .collect();
        assert_eq!(
            counts,
            [(Some(50_000), 500), (Some(100_000), 500), (None, 1)]
        );
        // 501 of 1001 is the median, and 500 are in the first bucket.
        assert_eq!(time.p50_at_most_ns, Some(100_000));
        assert_eq!(time.p99_at_most_ns, Some(100_000));
        let in_flight = side.in_flight.unwrap();
        assert_eq!((in_flight.looks, in_flight.max), (2, 10));
        assert!((in_flight.mean - 6.5).abs() < 1e-9, "{in_flight:?}");
        assert_eq!(side.counters["justapi_python_inline_total"], 1001);
        assert_eq!(side.counters.len(), 1, "bytes have a place of their own");
        assert_eq!(side.sent_bytes, Some(150_150));
        assert_eq!(side.received_bytes, None, "what is not counted is not zero");
    }

    #[test]
    fn what_is_above_the_last_bound_has_none() {
        let side = of(&page(0, 0, 0, 0, "1"), &[], &page(0, 3, 1, 0, "1")).unwrap();
        let time = side.routes[0].time.as_ref().unwrap();
        assert_eq!(time.p50_at_most_ns, None);
        assert_eq!(time.mean_ns, Some(20e9));
    }

    #[test]
    fn looks_of_others_stay() {
        let side = of(&page(5, 0, 10, 1, "1"), &[], &page(5, 0, 13, 1, "1")).unwrap();
        let route = &side.routes[0];
        assert_eq!((route.route.as_str(), route.requests), ("/metrics", 2));
        assert_eq!(route.statuses["200"], 2);
        // Metrics with an address of their own are counted nowhere.
        let side = of(
            &page(5, 0, 10, 3, "1"),
            &[page(6, 0, 10, 3, "1")],
            &page(9, 0, 10, 3, "1"),
        )
        .unwrap();
        assert_eq!(side.routes.len(), 1);
        assert_eq!(side.in_flight.unwrap().max, 3);
    }

    #[test]
    fn pages_of_two_processes_are_refused() {
        let before = page(1000, 0, 1, 0, "5.5");
        let error = of(&before, &[], &page(3000, 0, 2, 0, "5.51")).unwrap_err();
        assert!(error.contains("more than one process"), "{error}");
        let error = of(
            &before,
            &[page(1, 0, 1, 0, "7")],
            &page(3000, 0, 2, 0, "5.5"),
        );
        assert!(error.unwrap_err().contains("more than one process"));
        // Two that began in the same instant.
        let error = of(&before, &[], &page(900, 0, 2, 0, "5.5")).unwrap_err();
        assert!(error.contains("fell"), "{error}");
    }

    #[test]
    fn the_metrics_of_others_are_not_guessed_at() {
        let other = Exposition::parse("http_requests_total 5\n").unwrap();
        assert!(!ServerSide::is_known(&other));
        let error = of(&other, &[], &other).unwrap_err();
        assert!(error.contains("no metrics of justapi"), "{error}");
    }
}
