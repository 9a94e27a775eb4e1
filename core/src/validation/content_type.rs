//! Whether a body says that it is JSON.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// Whether there is one `Content-Type`, and it is JSON (RFC 8259 §11) or has
/// the suffix `+json` (RFC 6839 §3.1); parameters are ignored.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    if value.as_bytes() == b"application/json" {
        return true;
    }
    let text = value.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim_ascii();
    let Some((kind, subtype)) = essence.split_once('/') else {
        return false;
    };
    let has_suffix = subtype
        .len()
        .checked_sub(5)
        .filter(|start| *start > 0)
        .and_then(|start| subtype.as_bytes().get(start..))
        .is_some_and(|suffix| suffix.eq_ignore_ascii_case(b"+json"));
    kind.eq_ignore_ascii_case("application") && subtype.eq_ignore_ascii_case("json")
        || !kind.is_empty() && has_suffix
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn accepts(values: &[&'static str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_TYPE, HeaderValue::from_static(value));
        }
        is_json(&headers)
    }

    #[test]
    fn json_types_are_told_from_others() {
        for value in [
            "application/json",
            "application/json; charset=utf-8",
            "Application/JSON ;charset=utf-8",
            "application/problem+json",
            "application/vnd.api+JSON",
        ] {
            assert!(accepts(&[value]), "{value}");
        }
        for value in [
            "",
            "text/json",
            "text/plain",
            "application/jsonp",
            "application/+json",
            "json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=application/json",
        ] {
            assert!(!accepts(&[value]), "{value}");
        }
        assert!(!accepts(&[]));
        assert!(!accepts(&["application/json", "application/json"]));
    }
}
