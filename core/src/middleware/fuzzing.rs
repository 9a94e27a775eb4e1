//! Who the client is, and whose trace it is part of: nothing that a stranger
//! wrote changes the one, and the other is what was sent.

use std::net::IpAddr;

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};

use super::forwarded::{Forwarded, ForwardedHeader, Source};
use super::trace_context::TraceContext;
use crate::fuzzing::Input;
use crate::gate::is_valid_host;
use crate::request::Peer;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const TRUSTED: [&str; 3] = ["10.0.0.0/8", "2001:db8::/32", "unix"];
/// What a proxy that is trusted appends: itself, then those behind it.
const CHAINS: [(&str, &str, &str); 4] = [
    ("192.0.2.7", "for=192.0.2.7", "192.0.2.7"),
    (
        "192.0.2.7, 10.1.2.3",
        "for=192.0.2.7, for=10.1.2.3",
        "192.0.2.7",
    ),
    (
        "[2001:db9::1]:80, 10.0.0.1",
        "for=\"[2001:db9::1]:80\";proto=https, for=10.0.0.1",
        "2001:db9::1",
    ),
    (
        "::ffff:192.0.2.9,2001:db8::5",
        "for=\"[::ffff:192.0.2.9]\",for=\"[2001:db8::5]\"",
        "192.0.2.9",
    ),
];

pub(crate) fn check_forwarded(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let chain = CHAINS[usize::from(input.byte()) % CHAINS.len()];
    let is_one_line = input.byte().is_multiple_of(2);
    let text = input.rest();
    for header in [ForwardedHeader::XForwarded, ForwardedHeader::Forwarded] {
        let Some(headers) = lines(header, text) else {
            return;
        };
        check_any(header, &headers);
        check_stranger(header, headers, chain, is_one_line);
    }
}

/// Lines of input are lines of the header.
fn lines(header: ForwardedHeader, text: &[u8]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for line in text.split(|byte| *byte == b'\n').take(20) {
        headers.append(name(header), HeaderValue::from_bytes(line).ok()?);
    }
    Some(headers)
}

const fn name(header: ForwardedHeader) -> HeaderName {
    match header {
        ForwardedHeader::XForwarded => X_FORWARDED_FOR,
        ForwardedHeader::Forwarded => FORWARDED,
    }
}

fn resolve(header: ForwardedHeader, headers: &HeaderMap, peer: &str) -> Option<Source> {
    let trusted: Vec<_> = TRUSTED
        .iter()
        .map(|text| text.parse().expect("valid"))
        .collect();
    let forwarded = Forwarded::new(&trusted, header).expect("there are proxies");
    let address: IpAddr = peer.parse().expect("an address");
    forwarded.resolve(headers, Peer::Tcp((address, 80).into()))
}

/// What is believed is an address that stands there, and a host.
fn check_any(header: ForwardedHeader, headers: &HeaderMap) {
    assert_eq!(resolve(header, headers, "192.0.2.1"), None, "no proxy");
    let Some(source) = resolve(header, headers, "10.9.9.9") else {
        return;
    };
    let client = source.client.expect("the peer has an address");
    assert_eq!(client, client.to_canonical());
    if let Some(host) = source.host {
        assert!(!host.is_empty() && is_valid_host(host.as_bytes()));
    }
}

/// What stands left of a proxy's own words is not believed.
fn check_stranger(
    header: ForwardedHeader,
    mut headers: HeaderMap,
    (x_forwarded, forwarded, client): (&'static str, &'static str, &str),
    is_one_line: bool,
) {
    let appended = match header {
        ForwardedHeader::XForwarded => x_forwarded,
        ForwardedHeader::Forwarded => forwarded,
    };
    if is_one_line {
        let mut line: Vec<u8> = Vec::new();
        for value in headers.get_all(name(header)) {
            line.extend_from_slice(value.as_bytes());
            line.extend_from_slice(b", ");
        }
        line.extend_from_slice(appended.as_bytes());
        let value = HeaderValue::from_bytes(&line).expect("the pieces were values");
        headers.insert(name(header), value);
    } else {
        headers.append(name(header), HeaderValue::from_static(appended));
    }
    let expected: IpAddr = client.parse().expect("an address");
    match resolve(header, &headers, "10.0.0.2") {
        Some(source) => assert_eq!(source.client, Some(expected)),
        // A line that a stranger made malformed is ignored as a whole.
        None => assert!(
            header == ForwardedHeader::Forwarded || headers_are_not_text(&headers),
            "the proxy's words count"
        ),
    }
}

fn headers_are_not_text(headers: &HeaderMap) -> bool {
    headers.values().any(|value| value.to_str().is_err())
}

/// The first line is `traceparent`, the others are `tracestate`.
pub(crate) fn check_trace_context(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n').take(40);
    let parent = lines.next().unwrap_or_default();
    let mut headers = HeaderMap::new();
    let Ok(value) = HeaderValue::from_bytes(parent) else {
        return;
    };
    headers.append("traceparent", value);
    for line in lines {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append("tracestate", value);
        }
    }
    let ours = TraceContext::of(&headers, |_| true);
    let sent = parent.trim_ascii().to_vec();
    let expected = read_parent(&sent);
    assert_eq!(ours.parent_id(), expected.map(|(_, span, _)| span));
    if let Some((trace, span, flags)) = expected {
        assert_eq!(ours.trace_id(), trace);
        assert_ne!(ours.span_id(), span);
        assert_eq!(ours.flags(), flags & 3);
    } else {
        assert_eq!(ours.tracestate(), None, "no state without a trace");
    }
    // What is passed on is read as the same trace, with us as the parent.
    let mut onward = HeaderMap::new();
    let onward_parent = ours.traceparent();
    assert_eq!(onward_parent.len(), 55);
    onward.append(
        "traceparent",
        HeaderValue::from_str(&onward_parent).expect("ASCII"),
    );
    if let Some(state) = ours.tracestate() {
        assert!(state.len() <= 1024 && state.split(',').count() <= 32);
        onward.append("tracestate", HeaderValue::from_str(state).expect("ASCII"));
    }
    let theirs = TraceContext::of(&onward, |_| true);
    assert_eq!(theirs.trace_id(), ours.trace_id());
    assert_eq!(theirs.parent_id(), Some(ours.span_id()));
    assert_eq!(theirs.flags(), ours.flags());
    assert_eq!(theirs.tracestate(), ours.tracestate());
}

/// Trace, span and flags of a `traceparent` (W3C Trace Context §3.2.2).
fn read_parent(text: &[u8]) -> Option<(&str, &str, u8)> {
    // What a later version appends may be anything.
    let (text, further) = text.split_at_checked(55)?;
    let text = std::str::from_utf8(text).ok()?;
    let [version, trace, span, flags] = text.split('-').collect::<Vec<_>>()[..] else {
        return None;
    };
    let is_hex = |field: &str, length: usize| {
        field.len() == length
            && field
                .chars()
                .all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
    };
    let is_id = |field: &str, length| is_hex(field, length) && field.chars().any(|c| c != '0');
    let is_known = is_hex(version, 2) && version != "ff";
    let may_go_on = further.is_empty() || version != "00" && further[0] == b'-';
    let is_valid = is_known && may_go_on && is_id(trace, 32) && is_id(span, 16) && is_hex(flags, 2);
    is_valid.then(|| {
        (
            trace,
            span,
            u8::from_str_radix(flags, 16).expect("two digits"),
        )
    })
}
