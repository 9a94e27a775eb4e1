//! The `Vary` response header (RFC 9110 §12.5.5), merged and never repeated.

use http::header::{Entry, HeaderMap, HeaderName, HeaderValue, VARY};

/// Adds `name` unless the response says it, or `*`, already.
///
/// `value` is the same name as it is to be written.
pub(crate) fn add(headers: &mut HeaderMap, name: &HeaderName, value: HeaderValue) {
    let covers = |present: &HeaderValue| {
        names(present)
            .any(|listed| listed == b"*" || listed.eq_ignore_ascii_case(name.as_str().as_bytes()))
    };
    match headers.entry(VARY) {
        Entry::Vacant(entry) => {
            entry.insert(value);
        }
        Entry::Occupied(mut entry) => {
            if !entry.iter().any(covers) {
                entry.append(value);
            }
        }
    }
}

/// The members of one field line.
pub(crate) fn names(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value
        .as_bytes()
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT_ENCODING, ORIGIN};

    use super::*;

    #[test]
    fn a_name_is_added_once() {
        for (before, after) in [
            (&[][..], &["Origin"][..]),
            (&["origin"], &["origin"]),
            (&["*"], &["*"]),
            (&["Accept, ORIGIN"], &["Accept, ORIGIN"]),
            (
                &["Accept", "Cookie , origin"],
                &["Accept", "Cookie , origin"],
            ),
            (&["Accept"], &["Accept", "Origin"]),
            (&["X-Origin"], &["X-Origin", "Origin"]),
        ] {
            let mut headers = HeaderMap::new();
            for value in before {
                headers.append(VARY, HeaderValue::from_static(value));
            }
            add(&mut headers, &ORIGIN, HeaderValue::from_static("Origin"));
            let found: Vec<_> = headers.get_all(VARY).iter().collect();
            assert_eq!(found, after, "{before:?}");
        }
    }

    #[test]
    fn two_names_stand_beside_each_other() {
        let mut headers = HeaderMap::new();
        add(&mut headers, &ORIGIN, HeaderValue::from_static("Origin"));
        let value = HeaderValue::from_static("Accept-Encoding");
        add(&mut headers, &ACCEPT_ENCODING, value);
        assert_eq!(headers.get_all(VARY).iter().count(), 2);
    }
}
