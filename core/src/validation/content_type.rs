//! Whether a body says that it is JSON.

use http::header::CONTENT_TYPE;

use crate::head::Head;

/// Whether there is one `Content-Type`, and it is JSON (RFC 8259 §11) or has
/// the suffix `+json` (RFC 6839 §3.1); parameters are ignored.
pub(super) fn is_json(head: &Head) -> bool {
    let Some(value) = head.sole_field(&CONTENT_TYPE) else {
        return false;
    };
    if value == b"application/json" {
        return true;
    }
    let text = std::str::from_utf8(value).unwrap_or_default();
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
    use super::*;

    fn accepts(values: &[&'static str]) -> bool {
        let mut request = http::Request::builder();
        for value in values {
            request = request.header(CONTENT_TYPE, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        is_json(&Head::from(parts))
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
