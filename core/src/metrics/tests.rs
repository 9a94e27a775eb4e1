//! Sums over lanes, bounded series, and a strict reader of the text format.

#![expect(clippy::float_cmp, reason = "counts are small whole numbers")]

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use http::{Method, StatusCode};

use super::*;
use crate::router::RouteId;

fn two_lanes() -> Metrics {
    let label = |method, pattern: &str| RouteLabel {
        method,
        pattern: pattern.to_owned(),
    };
    Metrics::new(
        vec![
            label(Some(Method::GET), "/items/{id}"),
            label(Some(Method::POST), "/a\"b\\c\nd"),
            label(None, "/mounted/{*rest}"),
        ],
        2,
    )
}

fn serve(lane: &LaneMetrics, route: RouteId, method: &Method, status: u16, micros: u64) {
    lane.request_started();
    lane.request_finished(
        route,
        method,
        StatusCode::from_u16(status).unwrap(),
        Duration::from_micros(micros),
    );
}

type Labels = BTreeMap<String, String>;

/// Samples by name and labels.
struct Parsed(BTreeMap<(String, Labels), f64>);

impl Parsed {
    #[track_caller]
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels
            .iter()
            .map(|&(label, value)| (label.to_owned(), value.to_owned()))
            .collect();
        self.0[&(name.to_owned(), labels)]
    }
}

/// Reads the text format and checks every rule that it has.
fn parse(text: &str) -> Parsed {
    let mut families = HashSet::new();
    let mut samples = BTreeMap::new();
    let mut family: Option<(&str, &str)> = None;
    let mut help = None;
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, words) = rest.split_once(' ').unwrap();
            assert!(!words.is_empty() && !words.contains('\\'));
            help = Some(name);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(help, Some(name));
            assert!(is_name(name), "{name}");
            assert!(families.insert(name), "family {name} appears twice");
            assert!(["counter", "gauge", "histogram"].contains(&kind));
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
            family = Some((name, kind));
        } else {
            let (name, labels, value) = parse_sample(line);
            let (family, kind) = family.unwrap();
            let suffix = name.strip_prefix(family).unwrap();
            match kind {
                "histogram" => {
                    assert!(["_bucket", "_sum", "_count"].contains(&suffix));
                    assert_eq!(labels.contains_key("le"), suffix == "_bucket");
                }
                _ => assert_eq!(suffix, ""),
            }
            let old = samples.insert((name.to_owned(), labels), value);
            assert_eq!(old, None, "series appears twice: {line}");
        }
    }
    check_histograms(&samples);
    Parsed(samples)
}

fn check_histograms(samples: &BTreeMap<(String, Labels), f64>) {
    let mut buckets: BTreeMap<(String, Labels), Vec<(f64, f64)>> = BTreeMap::new();
    for ((name, labels), &count) in samples {
        if let Some(family) = name.strip_suffix("_bucket") {
            let mut labels = labels.clone();
            let bound = labels.remove("le").unwrap().parse().unwrap();
            let key = (family.to_owned(), labels);
            buckets.entry(key).or_default().push((bound, count));
        }
    }
    for ((family, labels), mut buckets) in buckets {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{buckets:?}");
        let (last_bound, last_count) = buckets.pop().unwrap();
        assert_eq!(last_bound, f64::INFINITY);
        let count = samples[&(format!("{family}_count"), labels.clone())];
        assert_eq!(count, last_count);
        assert!(samples.contains_key(&(format!("{family}_sum"), labels)));
    }
}

fn parse_sample(line: &str) -> (&str, Labels, f64) {
    let name_end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(name_end);
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    if let Some(mut inner) = rest.strip_prefix('{') {
        loop {
            let (label, after) = inner.split_once("=\"").unwrap();
            assert!(is_name(label) && !label.contains(':'), "{line}");
            let (value, after) = parse_label_value(after);
            assert_eq!(labels.insert(label.to_owned(), value), None);
            if let Some(next) = after.strip_prefix(',') {
                inner = next;
            } else {
                rest = after.strip_prefix('}').unwrap();
                break;
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap();
    assert!(!value.contains(' '), "{line}");
    (name, labels, value.parse().unwrap())
}

/// Splits a label value, unescaped, from what follows its closing quote.
fn parse_label_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next().unwrap() {
            (at, '"') => return (value, &text[at + 1..]),
            (_, '\\') => value.push(match characters.next().unwrap().1 {
                'n' => '\n',
                escaped @ ('"' | '\\') => escaped,
                other => panic!("unknown escape {other:?}"),
            }),
            (_, plain) => value.push(plain),
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
    name.bytes().all(is_word) && !name.starts_with(|first: char| first.is_ascii_digit())
}

#[test]
fn two_lanes_sum() {
    let metrics = two_lanes();
    let lanes = [metrics.lane(0), metrics.lane(1)];
    for (lane, micros) in lanes.iter().zip([40, 3_000_000]) {
        serve(lane, RouteId(0), &Method::GET, 200, micros);
        serve(lane, RouteId(0), &Method::HEAD, 404, 200);
        lane.connection_opened();
        lane.connection_opened();
        lane.connection_identified(Protocol::TlsHttp2);
        lane.connection_closed();
        lane.rejected(Reject::Expectation);
        lane.panicked();
        lane.accept_error();
        lane.access_log_dropped(5);
        lane.request_started();
        lane.request_started();
        lane.request_abandoned();
    }
    let parsed = parse(&metrics.render());
    let item = [("method", "GET"), ("route", "/items/{id}")];
    let requests = |status| [item[0], item[1], ("status", status)];
    let bucket = |le| [item[0], item[1], ("le", le)];
    for (name, labels, expected) in [
        ("justapi_requests_total", &requests("200")[..], 2.0),
        ("justapi_requests_total", &requests("404"), 2.0),
        (
            "justapi_request_duration_seconds_bucket",
            &bucket("0.00005"),
            1.0,
        ),
        (
            "justapi_request_duration_seconds_bucket",
            &bucket("0.0001"),
            1.0,
        ),
        (
            "justapi_request_duration_seconds_bucket",
            &bucket("0.00025"),
            3.0,
        ),
        (
            "justapi_request_duration_seconds_bucket",
            &bucket("2.5"),
            3.0,
        ),
        (
            "justapi_request_duration_seconds_bucket",
            &bucket("10"),
            4.0,
        ),
        (
            "justapi_request_duration_seconds_bucket",
            &bucket("+Inf"),
            4.0,
        ),
        ("justapi_request_duration_seconds_sum", &item, 3.00044),
        ("justapi_requests_in_flight", &[], 2.0),
        ("justapi_requests_abandoned_total", &[], 2.0),
        ("justapi_connections", &[], 2.0),
        ("justapi_connections_total", &[("protocol", "tls_h2")], 2.0),
        ("justapi_connections_total", &[("protocol", "h1")], 0.0),
        ("justapi_rejected_total", &[("reason", "expectation")], 2.0),
        ("justapi_panics_total", &[], 2.0),
        ("justapi_accept_errors_total", &[], 2.0),
        ("justapi_access_log_dropped_total", &[], 10.0),
        ("justapi_lanes", &[], 2.0),
    ] {
        assert_eq!(parsed.value(name, labels), expected, "{name} {labels:?}");
    }
}

#[test]
fn bytes_of_all_lanes_add_up() {
    let metrics = two_lanes();
    for index in 0..2 {
        let lane = metrics.lane(index);
        lane.received(70);
        lane.sent(300);
        lane.sent(5);
    }
    let parsed = parse(&metrics.render());
    assert_eq!(parsed.value("justapi_received_bytes_total", &[]), 140.0);
    assert_eq!(parsed.value("justapi_sent_bytes_total", &[]), 610.0);
}

#[test]
fn files_are_counted_by_the_way_they_take() {
    let metrics = two_lanes();
    for index in 0..2 {
        let lane = metrics.lane(index);
        lane.file_response();
        lane.sendfile_completed();
        for is_hit in [true, true, false] {
            lane.file_looked_up(is_hit);
        }
    }
    let parsed = parse(&metrics.render());
    for (name, expected) in [
        ("justapi_file_responses_total", 2.0),
        ("justapi_sendfile_total", 2.0),
        ("justapi_file_cache_hits_total", 4.0),
        ("justapi_file_cache_misses_total", 2.0),
    ] {
        assert_eq!(parsed.value(name, &[]), expected, "{name}");
    }
}

#[test]
fn contents_are_counted_by_their_kind() {
    let metrics = two_lanes();
    for index in 0..2 {
        let lane = metrics.lane(index);
        lane.response_compressed(Coding::Brotli);
        lane.response_compressed(Coding::Gzip);
        lane.response_compressed(Coding::Gzip);
        lane.sse_event();
        for is_sent in [true, true, true, false] {
            lane.websocket_message(is_sent);
        }
    }
    let parsed = parse(&metrics.render());
    for (name, labels, expected) in [
        (
            "justapi_compressed_responses_total",
            &[("coding", "gzip")][..],
            4.0,
        ),
        (
            "justapi_compressed_responses_total",
            &[("coding", "br")],
            2.0,
        ),
        (
            "justapi_compressed_responses_total",
            &[("coding", "zstd")],
            0.0,
        ),
        ("justapi_sse_events_total", &[], 2.0),
        (
            "justapi_websocket_messages_total",
            &[("direction", "sent")],
            6.0,
        ),
        (
            "justapi_websocket_messages_total",
            &[("direction", "received")],
            2.0,
        ),
    ] {
        assert_eq!(parsed.value(name, labels), expected, "{name} {labels:?}");
    }
}

#[test]
fn a_fresh_server_shows_every_reason_at_zero() {
    let parsed = parse(&two_lanes().render());
    for reason in Reject::ALL {
        let labels = [("reason", reason.label())];
        assert_eq!(parsed.value("justapi_rejected_total", &labels), 0.0);
    }
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(parsed.value("justapi_build_info", &version), 1.0);
    assert!(parsed.value("process_resident_memory_bytes", &[]) > 0.0);
}

#[test]
fn clients_cannot_add_series() {
    let metrics = two_lanes();
    let lane = metrics.lane(0);
    let unmatched = |method: &Method, status| {
        serve(&lane, RouteId::UNMATCHED, method, status, 1);
    };
    for method in METHODS {
        unmatched(&method.parse().unwrap(), 404);
    }
    unmatched(&"other".parse().unwrap(), 599);
    let before = parse(&metrics.render()).0.len();
    for number in 0..10_000_u32 {
        let method = format!("FOO{number}").parse().unwrap();
        unmatched(
            &method,
            if number % 2 == 0 {
                404
            } else {
                512 + number as u16 % 400
            },
        );
        serve(&lane, RouteId(3 + number), &Method::GET, 404, 1);
    }
    let parsed = parse(&metrics.render());
    assert_eq!(parsed.0.len(), before);
    let labels = |status| {
        [
            ("method", "other"),
            ("route", UNMATCHED),
            ("status", status),
        ]
    };
    assert_eq!(
        parsed.value("justapi_requests_total", &labels("404")),
        5_001.0
    );
    assert_eq!(
        parsed.value("justapi_requests_total", &labels("other")),
        5_001.0
    );
}

#[test]
fn a_route_for_every_method_counts_each() {
    let metrics = two_lanes();
    let lane = metrics.lane(0);
    for method in ["PUT", "PUT", "FOO", "BAR"] {
        serve(&lane, RouteId(2), &method.parse().unwrap(), 200, 1);
    }
    let parsed = parse(&metrics.render());
    for method in ["PUT", "other"] {
        let labels = [
            ("method", method),
            ("route", "/mounted/{*rest}"),
            ("status", "200"),
        ];
        assert_eq!(parsed.value("justapi_requests_total", &labels), 2.0);
    }
}

#[test]
fn labels_are_escaped() {
    let metrics = two_lanes();
    serve(&metrics.lane(1), RouteId(1), &Method::POST, 201, 7);
    let text = metrics.render();
    assert!(text.contains(r#"route="/a\"b\\c\nd""#), "{text}");
    let labels = [
        ("method", "POST"),
        ("route", "/a\"b\\c\nd"),
        ("status", "201"),
    ];
    assert_eq!(parse(&text).value("justapi_requests_total", &labels), 1.0);
}

#[test]
fn status_codes_are_the_registered_ones() {
    let metrics = two_lanes();
    let lane = metrics.lane(0);
    for code in 100..1000 {
        serve(&lane, RouteId(0), &Method::GET, code, 1);
    }
    let parsed = parse(&metrics.render());
    let mut num_registered = 0;
    for code in 100..1000_u16 {
        // The http crate's own list of reason phrases is the reference.
        if StatusCode::from_u16(code)
            .unwrap()
            .canonical_reason()
            .is_some()
        {
            num_registered += 1;
            let status = code.to_string();
            let labels = [
                ("method", "GET"),
                ("route", "/items/{id}"),
                ("status", status.as_str()),
            ];
            assert_eq!(parsed.value("justapi_requests_total", &labels), 1.0);
        }
    }
    assert_eq!(num_registered, STATUS_CODES.len());
}

#[test]
fn a_duration_on_a_bound_belongs_below_it() {
    let metrics = two_lanes();
    serve(&metrics.lane(0), RouteId(0), &Method::GET, 200, 50);
    let labels = [
        ("method", "GET"),
        ("route", "/items/{id}"),
        ("le", "0.00005"),
    ];
    let parsed = parse(&metrics.render());
    assert_eq!(
        parsed.value("justapi_request_duration_seconds_bucket", &labels),
        1.0
    );
}

#[test]
fn reject_reasons_are_in_declaration_order() {
    for (index, reason) in Reject::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, index);
    }
}

#[test]
fn lanes_share_no_cache_line() {
    assert_eq!(align_of::<LaneMetrics>(), 128);
    assert_eq!(size_of::<LaneMetrics>() % 128, 0);
}
