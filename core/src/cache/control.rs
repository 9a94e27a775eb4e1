//! What requests and responses say about caching (RFC 9111 §5.2).
//!
//! Guarantee: whatever is not plainly allowed to be shared is not stored.

use std::time::Duration;

use http::header::{
    AGE, AUTHORIZATION, CACHE_CONTROL, HeaderMap, HeaderName, PRAGMA, RANGE, SET_COOKIE, VARY,
};
use http::{Method, StatusCode};
use http_body::Body as _;

use super::CachePolicy;
use crate::request::Request;
use crate::vary;

/// Directives of a request that we follow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RequestControl {
    pub(super) no_cache: bool,
    pub(super) only_if_cached: bool,
    /// Oldest answer that it takes.
    pub(super) max_age: Option<Duration>,
}

impl RequestControl {
    /// `None` when the cache must not be used for this request at all.
    pub(super) fn of(request: &mut Request, policy: &CachePolicy) -> Option<Self> {
        if !matches!(*request.method(), Method::GET | Method::HEAD)
            || !request.body_mut().is_end_stream()
        {
            return None;
        }
        let headers = request.headers();
        // RFC 9111 §3.5: an answer to a credential is for its bearer, unless
        // the key tells the bearers apart.
        if headers.contains_key(RANGE)
            || headers.contains_key(AUTHORIZATION) && !policy.vary.contains(&AUTHORIZATION)
        {
            return None;
        }
        let mut control = Self::default();
        if !headers.contains_key(CACHE_CONTROL) {
            let is_no_cache = |name: &[u8]| name.eq_ignore_ascii_case(b"no-cache");
            let mut pragma = headers.get_all(PRAGMA).iter().flat_map(vary::names);
            control.no_cache = pragma.any(is_no_cache);
            return Some(control);
        }
        for (name, value) in directives(headers) {
            match name.to_ascii_lowercase().as_slice() {
                b"no-store" => return None,
                b"no-cache" => control.no_cache = true,
                b"only-if-cached" => control.only_if_cached = true,
                b"max-age" => control.max_age = seconds(value),
                _ => {}
            }
        }
        Some(control)
    }
}

/// How long a response may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub(super) age: Duration,
    pub(super) fresh_for: Duration,
    pub(super) stale_for: Duration,
}

/// Lifetime of a response; `None` when it must not be stored.
pub(super) fn lifetime(
    status: StatusCode,
    headers: &HeaderMap,
    policy: &CachePolicy,
) -> Option<Lifetime> {
    const CACHEABLE: [u16; 6] = [200, 203, 301, 308, 404, 410];
    if !CACHEABLE.contains(&status.as_u16()) || !is_shareable(headers, policy) {
        return None;
    }
    let mut max_age = None;
    let mut shared_max_age = None;
    let mut stale_for = policy.stale_while_revalidate;
    for (name, value) in directives(headers) {
        match name.to_ascii_lowercase().as_slice() {
            b"max-age" => max_age = Some(seconds(value)?),
            b"s-maxage" => shared_max_age = Some(seconds(value)?),
            b"must-revalidate" | b"proxy-revalidate" => stale_for = Duration::ZERO,
            _ => {}
        }
    }
    let age = headers
        .get(AGE)
        .and_then(|value| seconds(value.as_bytes()))
        .unwrap_or_default();
    let fresh_for = shared_max_age.or(max_age).unwrap_or(policy.ttl);
    (fresh_for > age).then_some(Lifetime {
        age,
        fresh_for,
        stale_for,
    })
}

/// Whether a response may be given to another client than its own.
pub(super) fn is_shareable(headers: &HeaderMap, policy: &CachePolicy) -> bool {
    let is_private = |name: &[u8]| {
        [&b"private"[..], b"no-store", b"no-cache"]
            .iter()
            .any(|private| name.eq_ignore_ascii_case(private))
    };
    let is_in_key =
        |name: &[u8]| HeaderName::from_bytes(name).is_ok_and(|name| policy.vary.contains(&name));
    !headers.contains_key(SET_COOKIE)
        && !directives(headers).any(|(name, _)| is_private(name))
        && headers
            .get_all(VARY)
            .iter()
            .flat_map(vary::names)
            .all(is_in_key)
}

/// Names and values of all `Cache-Control` lines.
///
/// A comma inside of a quoted value splits it; the rest is an unknown name or,
/// of `private="a, no-store"`, a stricter one: never a laxer reading.
fn directives(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers
        .get_all(CACHE_CONTROL)
        .iter()
        .flat_map(vary::names)
        .map(|member| match memchr::memchr(b'=', member) {
            Some(at) => (member[..at].trim_ascii(), member[at + 1..].trim_ascii()),
            None => (member, &[][..]),
        })
}

/// Whole seconds; a number too large to count is as good as for ever.
fn seconds(value: &[u8]) -> Option<Duration> {
    let digits = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""))
        .unwrap_or(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let text = std::str::from_utf8(digits).ok()?;
    Some(Duration::from_secs(text.parse().unwrap_or(u32::MAX).into()))
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use http::header::{COOKIE, HeaderValue};

    use super::*;

    fn policy() -> CachePolicy {
        CachePolicy::new(Duration::from_secs(10))
            .stale_while_revalidate(Duration::from_secs(5))
            .vary([COOKIE])
    }

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[track_caller]
    fn check(status: u16, lines: &[(&'static str, &'static str)], expected: Option<(u64, u64)>) {
        let status = StatusCode::from_u16(status).expect("a status");
        let found = lifetime(status, &map(lines), &policy());
        let found = found.map(|life| (life.fresh_for.as_secs(), life.stale_for.as_secs()));
        assert_eq!(found, expected, "{status} {lines:?}");
    }

    #[test]
    fn a_response_says_whether_and_how_long() {
        check(200, &[], Some((10, 5)));
        check(404, &[], Some((10, 5)));
        for status in [201, 204, 206, 302, 304, 403, 500, 503] {
            check(status, &[], None);
        }
        for control in [
            "private",
            "no-store",
            "no-cache",
            "public, Private",
            "private=\"a\"",
            "no-cache=\"set-cookie\"",
            "max-age=x",
            "max-age=-1",
            "max-age=",
            "max-age=0",
        ] {
            check(200, &[("cache-control", control)], None);
        }
        check(
            200,
            &[("cache-control", "public, max-age=60")],
            Some((60, 5)),
        );
        check(200, &[("cache-control", "max-age=\"60\"")], Some((60, 5)));
        check(
            200,
            &[("cache-control", "max-age=60, s-maxage=7")],
            Some((7, 5)),
        );
        check(200, &[("cache-control", "s-maxage=0, max-age=60")], None);
        check(200, &[("cache-control", "must-revalidate")], Some((10, 0)));
        check(200, &[("age", "4")], Some((10, 5)));
        check(200, &[("age", "10")], None);
        check(200, &[("set-cookie", "a=b")], None);
        check(200, &[("vary", "Cookie")], Some((10, 5)));
        check(200, &[("vary", "Cookie, Accept")], None);
        check(200, &[("vary", "*")], None);
    }

    #[track_caller]
    fn check_request(
        method: Method,
        lines: &[(&'static str, &'static str)],
        expected: Option<RequestControl>,
    ) {
        let mut request = Request::new(method, Uri::from_static("/"), crate::Body::empty());
        *request.headers_mut() = map(lines);
        let found = RequestControl::of(&mut request, &policy());
        assert_eq!(found, expected, "{lines:?}");
    }

    #[test]
    fn a_request_says_whether_it_wants_the_cache() {
        let plain = RequestControl::default();
        let no_cache = RequestControl {
            no_cache: true,
            ..plain
        };
        let aged = |seconds| RequestControl {
            max_age: Some(Duration::from_secs(seconds)),
            ..plain
        };
        let get = Method::GET;
        check_request(get.clone(), &[], Some(plain));
        check_request(Method::HEAD, &[], Some(plain));
        check_request(Method::POST, &[], None);
        check_request(get.clone(), &[("cache-control", "no-store")], None);
        check_request(
            get.clone(),
            &[("cache-control", "a, NO-CACHE")],
            Some(no_cache),
        );
        check_request(get.clone(), &[("pragma", "no-cache")], Some(no_cache));
        check_request(
            get.clone(),
            &[("pragma", "no-cache"), ("cache-control", "max-age=3")],
            Some(aged(3)),
        );
        check_request(
            get.clone(),
            &[("cache-control", "max-age=0")],
            Some(aged(0)),
        );
        check_request(get.clone(), &[("cache-control", "max-age=x")], Some(plain));
        check_request(
            get.clone(),
            &[("cache-control", "only-if-cached")],
            Some(RequestControl {
                only_if_cached: true,
                ..plain
            }),
        );
        check_request(get.clone(), &[("range", "bytes=0-1")], None);
        check_request(get.clone(), &[("authorization", "Bearer a")], None);
        check_request(get, &[("cookie", "a=b")], Some(plain));
    }
}
