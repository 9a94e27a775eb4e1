//! Cookies: what is read, and that a value that was set comes back.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{COOKIE, HeaderValue};

use super::Input;
use crate::cookie::{cookies, is_valid_name, set_cookie};

/// Pairs that are read of one request.
const MAX_COOKIES: usize = 200;

pub(super) fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let is_secure = input.byte().is_multiple_of(2);
    check_round_trip(input.rest(), is_secure);
    check_reading(input.rest());
}

/// Lines of input are `Cookie` lines.
fn check_reading(text: &[u8]) {
    let mut headers = HeaderMap::new();
    let mut expected = Vec::new();
    for line in text.split(|byte| *byte == b'\n').take(100) {
        let Ok(value) = HeaderValue::from_bytes(line) else {
            continue;
        };
        headers.append(COOKIE, value);
        // A value may hold bytes that are no text; `to_str` refuses the line.
        let is_text = line.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        if is_text {
            let line = std::str::from_utf8(line).expect("ASCII");
            expected.extend(line.split(';').map(str::to_owned));
        }
    }
    expected.truncate(MAX_COOKIES);
    let mut expected = expected.iter().filter_map(|pair| {
        let at = pair.find('=')?;
        let name = pair[..at].trim_matches([' ', '\t']);
        (!name.is_empty()).then(|| (name, pair[at + 1..].trim_matches([' ', '\t'])))
    });
    for (name, value) in cookies(&headers) {
        assert!(!name.contains([';', '=']) && !value.contains(';'));
        let (expected_name, written) = expected.next().expect("it was sent");
        assert_eq!(name, expected_name);
        assert!(written == value || written == format!("\"{value}\""));
    }
    assert_eq!(expected.next(), None, "all are read");
}

/// The first line is a name, the rest a value.
fn check_round_trip(text: &[u8], is_secure: bool) {
    let end = text.iter().position(|byte| *byte == b'\n');
    let (name, value) = text.split_at(end.unwrap_or(text.len()));
    let Ok(name) = std::str::from_utf8(name) else {
        return;
    };
    if !is_valid_name(name) {
        return;
    }
    let value = URL_SAFE_NO_PAD.encode(value);
    let line = set_cookie(name, &value, Duration::from_mins(1), is_secure);
    let line = line.to_str().expect("ASCII");
    assert_eq!(line.contains("; Secure"), is_secure);
    let (pair, attributes) = line.split_once("; ").expect("it has attributes");
    assert!(!attributes.contains(['\r', '\n']));
    let mut headers = HeaderMap::new();
    headers.append(COOKIE, HeaderValue::from_str(pair).expect("ASCII"));
    let read: Vec<_> = cookies(&headers).collect();
    assert_eq!(read, [(name, &value[..])]);
}
