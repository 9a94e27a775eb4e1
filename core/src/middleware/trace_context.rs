//! Traces across services: W3C Trace Context, level 1 with level 2's flags.
//!
//! Guarantee: a request is part of exactly one trace. A valid `traceparent` is
//! continued under a span id of our own; anything else starts a new trace, as
//! the recommendation's §3.2 and §4.3 say. A broken `tracestate` is dropped
//! alone.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, StatusCode, Version};

use super::arrival::Arrival;
use super::request_id::{hex, random_bits};
use super::span_export::{OtlpEndpoint, Span, SpanExporter};
use crate::error::Error;
use crate::head::Head;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// `00-` + 32 digits + `-` + 16 digits + `-` + 2 digits.
const TRACEPARENT_BYTES: usize = 55;
const SAMPLED: u8 = 1;
const RANDOM: u8 = 2;
/// Members of a `tracestate` (§3.3.1.1).
const MAX_STATE_MEMBERS: usize = 32;
/// All of a `tracestate`; §3.3.1.5 asks for at least 512.
const MAX_STATE_BYTES: usize = 1024;
/// A text of a span: a path, a host.
const MAX_ATTRIBUTE_BYTES: usize = 1024;

/// The span of one request, and the trace that it is part of.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: [u8; 32],
    span_id: [u8; 16],
    parent_id: Option<[u8; 16]>,
    flags: u8,
    state: Option<Box<str>>,
}

impl TraceContext {
    /// Id of the trace: 32 hex digits.
    pub fn trace_id(&self) -> &str {
        text(&self.trace_id)
    }

    /// Id of this request's span: 16 hex digits.
    pub fn span_id(&self) -> &str {
        text(&self.span_id)
    }

    /// Id of the caller's span; `None` where the trace began here.
    pub fn parent_id(&self) -> Option<&str> {
        self.parent_id.as_ref().map(|id| text(id))
    }

    /// Whether the trace is recorded.
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Trace flags, as in `traceparent`.
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// `traceparent` for a request that the handler makes in turn.
    pub fn traceparent(&self) -> String {
        format!(
            "00-{}-{}-{:02x}",
            self.trace_id(),
            self.span_id(),
            self.flags
        )
    }

    /// `tracestate` to pass on with [`Self::traceparent`].
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// The span of a request with these headers.
    pub(super) fn of(headers: &HeaderMap, sample: impl FnOnce(u64) -> bool) -> Self {
        let bits = random_bits();
        let span_id = non_zero(random_bits() as u64);
        let span_id = text_of(span_id.into(), 16);
        if let Some(parent) = parse_traceparent(headers) {
            return Self {
                trace_id: parent.trace_id,
                span_id,
                parent_id: Some(parent.span_id),
                // Flags that we do not know are not passed on (§3.2.2.5).
                flags: parent.flags & (SAMPLED | RANDOM),
                state: parse_tracestate(headers),
            };
        }
        let low = non_zero(bits as u64);
        let sampled = if sample(low) { SAMPLED } else { 0 };
        Self {
            trace_id: hex(bits >> 64 << 64 | u128::from(low)),
            span_id,
            parent_id: None,
            flags: RANDOM | sampled,
            state: None,
        }
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceContext")
            .field("traceparent", &self.traceparent())
            .field("parent_id", &self.parent_id())
            .field("tracestate", &self.state)
            .finish_non_exhaustive()
    }
}

/// Ids of zeros are invalid.
const fn non_zero(bits: u64) -> u64 {
    if bits == 0 { 1 } else { bits }
}

/// The last `N` digits of a number in hex.
fn text_of<const N: usize>(bits: u128, digits: usize) -> [u8; N] {
    let all = hex(bits);
    all[all.len() - digits..]
        .try_into()
        .expect("as many digits as were asked for")
}

fn text(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).expect("hex digits are ASCII")
}

/// What a caller's `traceparent` says.
#[derive(Debug, PartialEq, Eq)]
struct Parent {
    trace_id: [u8; 32],
    span_id: [u8; 16],
    flags: u8,
}

/// The caller's context; `None` when there is none or not exactly one.
fn parse_traceparent(headers: &HeaderMap) -> Option<Parent> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let bytes = value.as_bytes().trim_ascii();
    if bytes.len() < TRACEPARENT_BYTES {
        return None;
    }
    let (known, rest) = bytes.split_at(TRACEPARENT_BYTES);
    let &[high, low, b'-', ref fields @ ..] = known else {
        return None;
    };
    let version = hex_byte(high, low)?;
    // Later versions may only append, behind a dash.
    let is_whole = rest.is_empty() || version > 0 && rest[0] == b'-';
    if version == 0xff || !is_whole || fields[32] != b'-' || fields[49] != b'-' {
        return None;
    }
    let trace_id: [u8; 32] = fields[..32].try_into().ok()?;
    let span_id: [u8; 16] = fields[33..49].try_into().ok()?;
    let is_id = |digits: &[u8]| {
        digits.iter().all(|digit| is_hex(*digit)) && digits.iter().any(|digit| *digit != b'0')
    };
    if !is_id(&trace_id) || !is_id(&span_id) {
        return None;
    }
    Some(Parent {
        trace_id,
        span_id,
        flags: hex_byte(fields[50], fields[51])?,
    })
}

/// Lower case only: upper case is invalid (§3.2.2).
const fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn hex_byte(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| {
        is_hex(byte).then(|| {
            if byte <= b'9' {
                byte - b'0'
            } else {
                byte - b'a' + 10
            }
        })
    };
    Some(digit(high)? << 4 | digit(low)?)
}

/// All `tracestate` lines as one list, or `None` when a member is invalid.
fn parse_tracestate(headers: &HeaderMap) -> Option<Box<str>> {
    let mut members = Vec::new();
    let mut keys = HashSet::new();
    for line in headers.get_all(TRACESTATE) {
        for member in line.to_str().ok()?.split(',') {
            let member = member.trim_matches([' ', '\t']);
            if member.is_empty() {
                continue;
            }
            let (key, value) = member.split_once('=')?;
            let is_new = keys.insert(key);
            if !is_new || !is_state_key(key) || !is_state_value(value) {
                return None;
            }
            members.push(member);
            if members.len() > MAX_STATE_MEMBERS {
                return None;
            }
        }
    }
    let list = members.join(",");
    (!list.is_empty() && list.len() <= MAX_STATE_BYTES).then(|| list.into())
}

/// `key` or `tenant@system` (§3.3.1.3.1).
fn is_state_key(key: &str) -> bool {
    let is_part = |part: &str, max_bytes: usize, may_begin_with_digit: bool| {
        let first = part.bytes().next();
        let begins = first.is_some_and(|byte| {
            byte.is_ascii_lowercase() || may_begin_with_digit && byte.is_ascii_digit()
        });
        let is_inside = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(&byte)
        };
        begins && part.len() <= max_bytes && part.bytes().all(is_inside)
    };
    match key.split_once('@') {
        None => is_part(key, 256, true),
        Some((tenant, system)) => is_part(tenant, 241, true) && is_part(system, 14, false),
    }
}

/// Up to 256 printable characters without `,` and `=` (§3.3.1.3.2).
fn is_state_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && value
            .bytes()
            .all(|byte| matches!(byte, b' '..=b'~') && byte != b',' && byte != b'=')
}

/// Takes part in traces, and exports spans where it is told to.
#[derive(Debug)]
pub struct Trace {
    /// A new trace is sampled when 56 of its random bits are below.
    sample_below: u64,
    exporter: Option<SpanExporter>,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            sample_below: SAMPLE_RANGE,
            exporter: None,
        }
    }
}

/// Level 2's 56 random bits.
const SAMPLE_RANGE: u64 = 1 << 56;

impl Trace {
    /// Continues traces and begins sampled ones; exports nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many of 100 traces that begin here are sampled.
    ///
    /// A trace that came with the request keeps its caller's decision.
    #[must_use]
    pub fn sample_percent(mut self, percent: u8) -> Self {
        self.sample_below = SAMPLE_RANGE / 100 * u64::from(percent.min(100));
        if percent >= 100 {
            self.sample_below = SAMPLE_RANGE;
        }
        self
    }

    /// Sends the spans of sampled requests to an OpenTelemetry collector.
    ///
    /// # Errors
    /// [`Error::Config`] when the exporter's thread cannot be started.
    pub fn export(mut self, endpoint: OtlpEndpoint, service_name: &str) -> Result<Self, Error> {
        self.exporter = Some(SpanExporter::start(endpoint, service_name)?);
        Ok(self)
    }

    /// Begins the span of a request.
    pub(super) fn begin(&self, head: &Head, client: Option<IpAddr>, is_secure: bool) -> SpanStart {
        let sample = |low: u64| low % SAMPLE_RANGE < self.sample_below;
        let context = TraceContext::of(head.headers(), sample);
        let is_exported = context.is_sampled() && self.exporter.is_some();
        let details = is_exported.then(|| {
            let host = head.headers().get(HOST).and_then(|host| host.to_str().ok());
            let authority = head.uri().authority().map(http::uri::Authority::as_str);
            SpanDetails {
                time: SystemTime::now(),
                path: cut(head.path()).into(),
                host: host.or(authority).map(|host| cut(host).into()),
                is_secure,
                client,
                version: head.version(),
                user_agent: head.headers().get(USER_AGENT).cloned(),
            }
        });
        SpanStart { context, details }
    }

    /// Ends the span of a request; never waits.
    ///
    /// Without a status there was no answer.
    pub(super) fn finish(
        &self,
        arrival: &Arrival,
        method: &Method,
        route: Option<&str>,
        status: Option<StatusCode>,
        duration: Duration,
    ) {
        let Some(exporter) = &self.exporter else {
            return;
        };
        let Some(facts) = arrival.facts() else {
            return;
        };
        let is_exported = facts
            .span
            .as_ref()
            .is_some_and(|span| span.details.is_some());
        if is_exported {
            exporter.push(Box::new(Span {
                facts: Arc::clone(facts),
                method: method.clone(),
                route: route.map(Into::into),
                status,
                duration,
            }));
        }
    }

    /// Counters for `/metrics`: exported, dropped, failed.
    pub(crate) fn counters(&self) -> Option<[&Arc<AtomicU64>; 3]> {
        self.exporter.as_ref().map(SpanExporter::counters)
    }
}

/// A request's span at its beginning.
#[derive(Debug)]
pub(super) struct SpanStart {
    pub(super) context: TraceContext,
    /// What an export says; `None` when the span is not exported.
    pub(super) details: Option<SpanDetails>,
}

/// What an exported span says of its request; no query and no other header,
/// because those hold secrets.
#[derive(Debug)]
pub(super) struct SpanDetails {
    pub(super) time: SystemTime,
    pub(super) path: Box<str>,
    pub(super) host: Option<Box<str>>,
    pub(super) is_secure: bool,
    pub(super) client: Option<IpAddr>,
    pub(super) version: Version,
    pub(super) user_agent: Option<HeaderValue>,
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_ATTRIBUTE_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7";

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn context(lines: &[(&'static str, &str)]) -> TraceContext {
        TraceContext::of(&headers(lines), |_| true)
    }

    #[track_caller]
    fn check(traceparent: &str, is_continued: bool) {
        let context = context(&[("traceparent", traceparent)]);
        let expected = is_continued.then_some(PARENT);
        assert_eq!(context.parent_id(), expected, "{traceparent:?}");
        assert_eq!(context.trace_id() == TRACE, is_continued, "{traceparent:?}");
        assert_ne!(context.span_id(), PARENT);
    }

    #[test]
    fn valid_parents_are_continued() {
        check(&format!("00-{TRACE}-{PARENT}-01"), true);
        check(&format!("00-{TRACE}-{PARENT}-00"), true);
        check(&format!("00-{TRACE}-{PARENT}-ff"), true);
        check(&format!(" 00-{TRACE}-{PARENT}-01\t"), true);
        check(&format!("cc-{TRACE}-{PARENT}-01"), true);
        check(
            &format!("cc-{TRACE}-{PARENT}-01-what-the-future-brings"),
            true,
        );
        check(&format!("01-{TRACE}-{PARENT}-01-"), true);
    }

    /// The cases of the W3C's own test suite for `traceparent`.
    #[test]
    fn invalid_parents_start_a_new_trace() {
        let zeros = |count| "0".repeat(count);
        for parent in [
            String::new(),
            format!("ff-{TRACE}-{PARENT}-01"),
            format!("00-{TRACE}-{PARENT}-01-"),
            format!("00-{TRACE}-{PARENT}-01-more"),
            format!("cc-{TRACE}-{PARENT}-01.what"),
            format!("cc-{TRACE}-{PARENT}-01x"),
            format!("00-{}-{PARENT}-01", zeros(32)),
            format!("00-{TRACE}-{}-01", zeros(16)),
            format!("00-{}-{PARENT}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{}-01", PARENT.to_uppercase()),
            format!("00-{TRACE}-{PARENT}-0F"),
            format!("0A-{TRACE}-{PARENT}-01"),
            format!(".0-{TRACE}-{PARENT}-01"),
            format!("0-{TRACE}-{PARENT}-01"),
            format!("000-{TRACE}-{PARENT}-01"),
            format!("00-{}-{PARENT}-01", &TRACE[1..]),
            format!("00-{TRACE}0-{PARENT}-01"),
            format!("00-{TRACE}-{}-01", &PARENT[1..]),
            format!("00-{TRACE}-{PARENT}0-01"),
            format!("00-{TRACE}-{PARENT}-1"),
            format!("00-{TRACE}-{PARENT}-001"),
            format!("00-{TRACE}-{PARENT}-.1"),
            format!("00-{TRACE}-{PARENT}-"),
            format!("00-{TRACE}-{PARENT}"),
            format!("00-{}.-{PARENT}-01", &TRACE[1..]),
            format!("00-{TRACE}-{}.-01", &PARENT[1..]),
            format!("00_{TRACE}-{PARENT}-01"),
            format!("00-{TRACE}_{PARENT}-01"),
            format!("00-{TRACE}-{PARENT}_01"),
            format!("00-{TRACE}-{PARENT}-01, 00-{TRACE}-{PARENT}-01"),
        ] {
            check(&parent, false);
        }
        let parent = format!("00-{TRACE}-{PARENT}-01");
        let twice = [("traceparent", parent.as_str()), ("traceparent", &parent)];
        assert_eq!(context(&twice).parent_id(), None);
    }

    #[test]
    fn only_known_flags_are_passed_on() {
        for (flags, expected) in [
            ("00", "00"),
            ("01", "01"),
            ("02", "02"),
            ("03", "03"),
            ("fd", "01"),
        ] {
            let parent = format!("00-{TRACE}-{PARENT}-{flags}");
            let context = context(&[("traceparent", &parent)]);
            let expected = format!("00-{TRACE}-{}-{expected}", context.span_id());
            assert_eq!(context.traceparent(), expected);
        }
    }

    #[test]
    fn new_traces_are_valid_random_and_sampled_as_told() {
        let mut seen = HashSet::new();
        for is_sampled in [true, false] {
            for _ in 0..1000 {
                let context = TraceContext::of(&HeaderMap::new(), |_| is_sampled);
                assert_eq!(context.is_sampled(), is_sampled);
                assert_eq!(context.flags() & RANDOM, RANDOM);
                assert!(
                    parse_traceparent(&headers(&[("traceparent", &context.traceparent())]))
                        .is_some()
                );
                assert!(seen.insert(context.trace_id().to_owned()));
                assert!(seen.insert(context.span_id().to_owned()));
            }
        }
    }

    #[test]
    fn the_share_of_sampled_traces_is_the_one_asked_for() {
        let head = Head::from(http::Request::new(()).into_parts().0);
        for percent in [0, 25, 100] {
            let trace = Trace::new().sample_percent(percent);
            let sampled = (0..4000)
                .filter(|_| trace.begin(&head, None, false).context.is_sampled())
                .count();
            let expected = 40 * usize::from(percent);
            // Six standard deviations: less than one run in 10^8 is off.
            assert!(
                sampled.abs_diff(expected) <= if percent == 25 { 165 } else { 0 },
                "{sampled}"
            );
        }
    }

    #[track_caller]
    fn check_state(lines: &[&str], expected: Option<&str>) {
        let parent = format!("00-{TRACE}-{PARENT}-01");
        let mut all = vec![("traceparent", parent.as_str())];
        all.extend(lines.iter().map(|line| ("tracestate", *line)));
        let context = context(&all);
        assert_eq!(
            context.trace_id(),
            TRACE,
            "a broken state leaves the trace alone"
        );
        assert_eq!(context.tracestate(), expected, "{lines:?}");
    }

    #[test]
    fn a_state_is_passed_on_or_dropped_as_a_whole() {
        check_state(&["foo=1,bar=2"], Some("foo=1,bar=2"));
        check_state(&["foo=1", "bar=2"], Some("foo=1,bar=2"));
        check_state(&["foo=1 , \t bar=2,"], Some("foo=1,bar=2"));
        check_state(
            &["fw529a3039@dt=FfFf, 0a/b*c_d-e=~ x!"],
            Some("fw529a3039@dt=FfFf,0a/b*c_d-e=~ x!"),
        );
        check_state(&["", "  "], None);
        let member = |index: usize| format!("k{index}=v");
        let members = |count| (0..count).map(member).collect::<Vec<_>>().join(",");
        check_state(&[&members(32)], Some(&members(32)));
        check_state(&[&members(33)], None);
        let long_key = "a".repeat(257);
        let long_value = "a".repeat(257);
        for bad in [
            "foo",
            "foo=",
            "=1",
            "foo=1=2",
            "FOO=1",
            "foo =1",
            "foo@=1",
            "@foo=1",
            "a@1b=1",
            "a@b@c=1",
            "foo=1,foo=2",
            "foo=1,bar",
            "foo=\u{e9}",
            "foo.bar=1",
            &format!("{long_key}=1"),
            &format!("foo={long_value}"),
            &format!("a@{}=1", "b".repeat(15)),
        ] {
            check_state(&[bad], None);
        }
    }

    #[test]
    fn a_state_without_a_parent_is_nobodys() {
        assert_eq!(context(&[("tracestate", "foo=1")]).tracestate(), None);
    }
}
