//! Conditional requests, in the order in which RFC 9110 §13.2.2 puts them.
//!
//! Guarantee: entity tags of preconditions that could lose an update
//! (`If-Match`, `If-Range`) are compared strongly, those of caches weakly.

use http::header::{
    HeaderMap, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE,
};

/// What identifies a representation to a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Validators<'a> {
    /// Entity tag as it is sent, `W/` included.
    pub(super) etag: &'a [u8],
    /// Seconds since 1970, when `Last-Modified` is sent.
    pub(super) modified: Option<u64>,
}

/// What the preconditions say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Send it; whether `Range` counts.
    Proceed {
        /// No `If-Range`, or one that holds.
        with_range: bool,
    },
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates the preconditions of a GET or HEAD request.
pub(super) fn evaluate(headers: &HeaderMap, validators: Validators<'_>) -> Outcome {
    if headers.contains_key(IF_MATCH) {
        if !matches(
            headers.get_all(IF_MATCH),
            validators.etag,
            Comparison::Strong,
        ) {
            return Outcome::Failed;
        }
    } else if let (Some(date), Some(modified)) =
        (date(headers, &IF_UNMODIFIED_SINCE), validators.modified)
        && modified > date
    {
        return Outcome::Failed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        if matches(
            headers.get_all(IF_NONE_MATCH),
            validators.etag,
            Comparison::Weak,
        ) {
            return Outcome::NotModified;
        }
    } else if let (Some(date), Some(modified)) =
        (date(headers, &IF_MODIFIED_SINCE), validators.modified)
        && modified <= date
    {
        return Outcome::NotModified;
    }
    Outcome::Proceed {
        with_range: allows_range(headers, validators),
    }
}

/// RFC 9110 §13.1.5.
fn allows_range(headers: &HeaderMap, validators: Validators<'_>) -> bool {
    let mut values = headers.get_all(IF_RANGE).iter();
    let Some(value) = values.next() else {
        return true;
    };
    if values.next().is_some() || is_weak(validators.etag) {
        // A weak tag also says that the date is too young to be strong.
        return false;
    }
    match parse_date(value) {
        Some(date) => validators.modified == Some(date),
        None => value.as_bytes() == validators.etag,
    }
}

#[derive(Clone, Copy)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether a list of entity tags, or `*`, has the representation's.
///
/// Reading stops where the syntax is broken: what stands before still counts.
fn matches<'a>(
    values: impl IntoIterator<Item = &'a HeaderValue>,
    etag: &[u8],
    comparison: Comparison,
) -> bool {
    let is_match = |candidate: &[u8]| match comparison {
        Comparison::Strong => candidate == etag && !is_weak(etag),
        Comparison::Weak => opaque(candidate) == opaque(etag),
    };
    values.into_iter().any(|value| {
        let value = value.as_bytes().trim_ascii();
        value == b"*" || tags(value).any(is_match)
    })
}

/// The entity tags of a list.
fn tags(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = list;
    std::iter::from_fn(move || {
        while let [b' ' | b'\t' | b',', after @ ..] = rest {
            rest = after;
        }
        let start = if rest.starts_with(b"W/\"") { 3 } else { 1 };
        if !opaque(rest).starts_with(b"\"") {
            return None;
        }
        let length = memchr::memchr(b'"', rest.get(start..)?)?;
        let (tag, after) = rest.split_at(start + length + 1);
        rest = after;
        Some(tag)
    })
}

fn is_weak(tag: &[u8]) -> bool {
    tag.starts_with(b"W/")
}

/// The tag without its weakness.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// The date of a header that came once and is valid.
fn date(headers: &HeaderMap, name: &http::HeaderName) -> Option<u64> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| parse_date(value))?
}

fn parse_date(value: &HeaderValue) -> Option<u64> {
    let time = httpdate::parse_http_date(value.to_str().ok()?).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRONG: &[u8] = b"\"a,b\"";
    const WEAK: &[u8] = b"W/\"a,b\"";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    /// [`SAME`].
    const MODIFIED: u64 = 784_111_777;

    const SEND: Outcome = Outcome::Proceed { with_range: true };
    const WHOLE: Outcome = Outcome::Proceed { with_range: false };
    use Outcome::{Failed, NotModified};

    #[track_caller]
    fn check_with(etag: &[u8], modified: Option<u64>, lines: &[(&str, &str)], expected: Outcome) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: http::HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let found = evaluate(&headers, Validators { etag, modified });
        assert_eq!(found, expected, "{lines:?}");
    }

    #[track_caller]
    fn check(lines: &[(&str, &str)], expected: Outcome) {
        check_with(STRONG, Some(MODIFIED), lines, expected);
    }

    #[track_caller]
    fn check_weak(lines: &[(&str, &str)], expected: Outcome) {
        check_with(WEAK, Some(MODIFIED), lines, expected);
    }

    #[test]
    fn if_match_is_strong() {
        check(&[("if-match", "\"a,b\"")], SEND);
        check(&[("if-match", "*")], SEND);
        check(&[("if-match", "\"x\" , \"a,b\"")], SEND);
        check(&[("if-match", "\"x\""), ("if-match", "\"a,b\"")], SEND);
        check(&[("if-match", "\"x\"")], Failed);
        check(&[("if-match", "W/\"a,b\"")], Failed);
        check(&[("if-match", "a,b")], Failed);
        check(&[("if-match", "")], Failed);
        check_weak(&[("if-match", "W/\"a,b\"")], Failed);
        check_weak(&[("if-match", "\"a,b\"")], Failed);
        check_weak(&[("if-match", "*")], SEND);
    }

    #[test]
    fn if_none_match_is_weak() {
        check(&[("if-none-match", "\"a,b\"")], NotModified);
        check(&[("if-none-match", "W/\"a,b\"")], NotModified);
        check(&[("if-none-match", "*")], NotModified);
        check(&[("if-none-match", "\"a\", W/\"a,b\"")], NotModified);
        check(
            &[("if-none-match", "\"x\""), ("if-none-match", "\"a,b\"")],
            NotModified,
        );
        check(&[("if-none-match", "\"a\", \"b\"")], SEND);
        check(&[("if-none-match", "a,b")], SEND);
        check(&[("if-none-match", "\"a,b")], SEND);
        check(&[("if-none-match", "w/\"a,b\"")], SEND);
        check_weak(&[("if-none-match", "\"a,b\"")], NotModified);
    }

    #[test]
    fn dates_compare_by_the_second() {
        check(&[("if-modified-since", BEFORE)], SEND);
        check(&[("if-modified-since", SAME)], NotModified);
        check(&[("if-modified-since", AFTER)], NotModified);
        check(
            &[("if-modified-since", "Sunday, 06-Nov-94 08:49:37 GMT")],
            NotModified,
        );
        check(&[("if-modified-since", "yesterday")], SEND);
        check(
            &[("if-modified-since", SAME), ("if-modified-since", SAME)],
            SEND,
        );
        check(&[("if-unmodified-since", BEFORE)], Failed);
        check(&[("if-unmodified-since", SAME)], SEND);
        check(&[("if-unmodified-since", AFTER)], SEND);
        check(&[("if-unmodified-since", "never")], SEND);
        check_with(STRONG, None, &[("if-modified-since", SAME)], SEND);
        check_with(STRONG, None, &[("if-unmodified-since", BEFORE)], SEND);
    }

    #[test]
    fn tags_win_over_dates_and_preconditions_over_caches() {
        check(
            &[("if-match", "\"a,b\""), ("if-unmodified-since", BEFORE)],
            SEND,
        );
        check(
            &[("if-none-match", "\"x\""), ("if-modified-since", SAME)],
            SEND,
        );
        check(
            &[("if-match", "\"x\""), ("if-none-match", "\"a,b\"")],
            Failed,
        );
        check(
            &[("if-match", "*"), ("if-none-match", "\"a,b\"")],
            NotModified,
        );
        check(
            &[("if-unmodified-since", BEFORE), ("if-none-match", "*")],
            Failed,
        );
        check(
            &[("if-none-match", "\"a,b\""), ("if-range", "\"x\"")],
            NotModified,
        );
    }

    #[test]
    fn if_range_needs_the_same_strong_validator() {
        check(&[("if-range", "\"a,b\"")], SEND);
        check(&[("if-range", SAME)], SEND);
        for other in [
            "\"x\"",
            "W/\"a,b\"",
            "*",
            "",
            BEFORE,
            AFTER,
            "\"x\", \"a,b\"",
        ] {
            check(&[("if-range", other)], WHOLE);
        }
        check(&[("if-range", SAME), ("if-range", SAME)], WHOLE);
        check_weak(&[("if-range", "W/\"a,b\"")], WHOLE);
        check_weak(&[("if-range", SAME)], WHOLE);
        check_with(STRONG, None, &[("if-range", SAME)], WHOLE);
    }
}
