//! One stored response, and the answers made of it.
//!
//! Conditions follow RFC 9110 §13: `If-None-Match` by weak comparison, and
//! without it `If-Modified-Since`, which has to equal the stored
//! `Last-Modified` byte for byte (a client sends back what it was given).

use std::hash::{DefaultHasher, Hasher as _};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use http::header::{
    AGE, CACHE_CONTROL, CONTENT_LOCATION, ETAG, EXPIRES, HeaderMap, HeaderName, HeaderValue,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, VARY,
};
use smallvec::SmallVec;

use super::coded::{Form, Forms};
use super::control::Lifetime;
use crate::response::Response;
use crate::vary;

/// What a 304 repeats of its 200 (RFC 9110 §15.4.5).
const OF_NOT_MODIFIED: [HeaderName; 6] = [
    CACHE_CONTROL,
    CONTENT_LOCATION,
    ETAG,
    EXPIRES,
    LAST_MODIFIED,
    VARY,
];

/// Bytes that a header and its place in the map take besides its text.
const HEADER_OVERHEAD_BYTES: usize = 64;

/// A stored response.
#[derive(Debug)]
pub(super) struct Entry {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// When it was as old as `lifetime.age`.
    stored_at: Instant,
    lifetime: Lifetime,
    forms: Forms,
}

impl Entry {
    pub(super) fn new(
        status: StatusCode,
        mut headers: HeaderMap,
        body: Bytes,
        lifetime: Lifetime,
        make_etag: bool,
        now: Instant,
    ) -> Self {
        headers.remove(AGE);
        if make_etag && status == StatusCode::OK && !headers.contains_key(ETAG) {
            headers.insert(ETAG, etag(&body));
        }
        Self {
            status,
            headers,
            body,
            stored_at: now,
            lifetime,
            forms: Forms::default(),
        }
    }

    /// Bytes that it holds, about.
    pub(super) fn num_bytes(&self) -> usize {
        let own = self.body.len() + num_header_bytes(&self.headers);
        size_of::<Self>() + own + self.forms.num_bytes()
    }

    /// Its compressed forms.
    pub(super) const fn forms(&self) -> &Forms {
        &self.forms
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        self.lifetime.age + now.saturating_duration_since(self.stored_at)
    }

    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.age(now) < self.lifetime.fresh_for
    }

    /// Whether it may be given out while a new one is made.
    pub(super) fn is_servable(&self, now: Instant) -> bool {
        let end = self
            .lifetime
            .fresh_for
            .saturating_add(self.lifetime.stale_for);
        self.age(now) < end
    }

    /// The answer for a client; `age` is `None` for the one whose request
    /// made the entry.
    pub(super) fn answer(&self, conditions: &Conditions, age: Option<Duration>) -> Response {
        self.answer_in(None, conditions, age)
    }

    /// As [`Self::answer`], in one of its compressed forms.
    pub(super) fn answer_in(
        &self,
        form: Option<&Form>,
        conditions: &Conditions,
        age: Option<Duration>,
    ) -> Response {
        let mut response = if conditions.hold(self) {
            let mut response = Response::new(StatusCode::NOT_MODIFIED);
            for name in OF_NOT_MODIFIED {
                for value in self.headers.get_all(&name) {
                    response.headers_mut().append(name.clone(), value.clone());
                }
            }
            response
        } else if let Some(form) = form {
            form.answer(self.status)
        } else {
            let mut response = Response::new(self.status).with_body(self.body.clone());
            *response.headers_mut() = self.headers.clone();
            response
        };
        if let Some(age) = age {
            response.headers_mut().insert(AGE, age.as_secs().into());
        }
        response
    }
}

/// Bytes that headers take, about.
pub(super) fn num_header_bytes(headers: &HeaderMap) -> usize {
    let of_header = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + HEADER_OVERHEAD_BYTES
    };
    headers.iter().map(of_header).sum()
}

/// A strong tag: equal bytes, equal tag.
fn etag(body: &[u8]) -> HeaderValue {
    let mut hasher = DefaultHasher::new();
    hasher.write(body);
    let tag = format!("\"{:x}-{:016x}\"", body.len(), hasher.finish());
    HeaderValue::try_from(tag).expect("hexadecimal digits in quotes")
}

/// The conditions of a request.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    if_none_match: SmallVec<[HeaderValue; 1]>,
    if_modified_since: Option<HeaderValue>,
}

impl Conditions {
    /// Takes the conditions out of `headers`, so that the handler answers with
    /// a whole representation.
    pub(super) fn take(headers: &mut HeaderMap) -> Self {
        let conditions = Self::of(headers);
        headers.remove(IF_NONE_MATCH);
        headers.remove(IF_MODIFIED_SINCE);
        conditions
    }

    /// Reads the conditions of a request that is answered from the store.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self {
            if_none_match: headers.get_all(IF_NONE_MATCH).iter().cloned().collect(),
            if_modified_since: headers.get(IF_MODIFIED_SINCE).cloned(),
        }
    }

    /// Whether the client has this entry already.
    fn hold(&self, entry: &Entry) -> bool {
        if entry.status != StatusCode::OK {
            return false;
        }
        if self.if_none_match.is_empty() {
            let modified = entry.headers.get(LAST_MODIFIED);
            return modified.is_some() && self.if_modified_since.as_ref() == modified;
        }
        let opaque = |tag: &HeaderValue| opaque(tag.as_bytes()).to_vec();
        let own = entry.headers.get(ETAG).map(opaque);
        self.if_none_match
            .iter()
            .flat_map(vary::names)
            .any(|tag| tag == b"*" || own.as_deref() == Some(self::opaque(tag)))
    }
}

/// A tag without its weakness mark.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Lifetime = Lifetime {
        age: Duration::ZERO,
        fresh_for: Duration::from_secs(10),
        stale_for: Duration::from_secs(5),
    };

    fn entry(status: u16, headers: &[(HeaderName, &'static str)], now: Instant) -> Entry {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(name, HeaderValue::from_static(value));
        }
        let status = StatusCode::from_u16(status).expect("a status");
        Entry::new(status, map, Bytes::from_static(b"body"), LIFE, true, now)
    }

    #[track_caller]
    fn check(entry: &Entry, name: &HeaderName, lines: &[&'static str], expected: u16) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name.clone(), HeaderValue::from_static(line));
        }
        let answer = entry.answer(&Conditions::take(&mut headers), None);
        assert_eq!(answer.status(), expected, "{lines:?}");
        assert!(headers.is_empty());
        let length = http_body::Body::size_hint(answer.body()).exact();
        assert_eq!(length, Some(if expected == 304 { 0 } else { 4 }));
    }

    #[test]
    fn tags_are_compared_weakly() {
        let now = Instant::now();
        let tagged = entry(200, &[(ETAG, "\"a\"")], now);
        for lines in [
            &["\"a\""][..],
            &["W/\"a\""],
            &["*"],
            &["\"b\", \"a\""],
            &["\"b\"", "\"c\", W/\"a\""],
        ] {
            check(&tagged, &IF_NONE_MATCH, lines, 304);
        }
        for lines in [&["\"b\""][..], &["a"], &["\"A\""], &[""], &[]] {
            check(&tagged, &IF_NONE_MATCH, lines, 200);
        }
        let weak = entry(200, &[(ETAG, "W/\"a\"")], now);
        check(&weak, &IF_NONE_MATCH, &["\"a\""], 304);
        let missing = entry(404, &[(ETAG, "\"a\"")], now);
        check(&missing, &IF_NONE_MATCH, &["\"a\""], 404);
    }

    #[test]
    fn dates_have_to_be_equal() {
        const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        let dated = entry(200, &[(LAST_MODIFIED, DATE)], Instant::now());
        check(&dated, &IF_MODIFIED_SINCE, &[DATE], 304);
        let other = "Sun, 06 Nov 1994 08:49:38 GMT";
        check(&dated, &IF_MODIFIED_SINCE, &[other], 200);
        let mut both = HeaderMap::new();
        both.insert(IF_MODIFIED_SINCE, HeaderValue::from_static(DATE));
        both.insert(IF_NONE_MATCH, HeaderValue::from_static("\"x\""));
        let answer = dated.answer(&Conditions::of(&both), None);
        assert_eq!(answer.status(), 200, "a tag overrides the date");
    }

    #[test]
    fn a_tag_is_made_of_the_bytes() {
        let now = Instant::now();
        let tag = |entry: &Entry| entry.headers.get(ETAG).cloned();
        let made = tag(&entry(200, &[], now)).expect("a tag");
        assert_eq!(Some(&made), tag(&entry(200, &[], now)).as_ref());
        assert_ne!(made, etag(b"other"));
        assert_eq!(tag(&entry(404, &[], now)), None);
    }

    #[test]
    fn an_entry_is_fresh_then_servable_then_neither() {
        let now = Instant::now();
        let entry = entry(200, &[], now);
        for (seconds, fresh, servable) in [
            (0, true, true),
            (9, true, true),
            (10, false, true),
            (14, false, true),
            (15, false, false),
        ] {
            let then = now + Duration::from_secs(seconds);
            assert_eq!(entry.is_fresh(then), fresh, "{seconds}");
            assert_eq!(entry.is_servable(then), servable, "{seconds}");
        }
        let old = entry.answer(&Conditions::default(), Some(Duration::from_millis(3900)));
        assert_eq!(old.headers()[AGE], "3");
    }

    #[test]
    fn not_modified_repeats_what_belongs_to_it() {
        let headers = [
            (ETAG, "\"a\""),
            (CACHE_CONTROL, "max-age=1"),
            (http::header::CONTENT_TYPE, "text/plain"),
        ];
        let entry = entry(200, &headers, Instant::now());
        let mut asked = HeaderMap::new();
        asked.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        let answer = entry.answer(&Conditions::of(&asked), None);
        let names: Vec<_> = answer.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["cache-control", "etag"]);
    }
}
