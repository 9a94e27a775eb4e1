//! The grammar of hosts, against a plain model and the `http` crate.

use std::net::Ipv6Addr;

use http::Uri;

use super::Verdict;
use crate::gate::is_valid_host;

pub(super) fn check(host: &[u8]) {
    let is_valid = is_valid_host(host);
    assert_eq!(is_valid, model(host), "{}", host.escape_ascii());
    // As the gate reads it from a request that is right otherwise.
    let is_text = !host.iter().any(u8::is_ascii_control);
    let is_trimmed = host.trim_ascii() == host;
    if is_text && is_trimmed && host.len() < 500 {
        let request = [b"GET / HTTP/1.1\r\nHost:", host, b"\r\n\r\n"].concat();
        assert_eq!(Verdict::of(&[&request]).heads.len(), usize::from(is_valid));
    }
    // The `http` crate takes no percent signs, no empty host and no empty port.
    if !is_valid || host.is_empty() || host.contains(&b'%') || host[0] == b':' {
        return;
    }
    let text = std::str::from_utf8(host).expect("hosts are ASCII");
    // Nothing of it can move into another part of a URL.
    let uri: Uri = format!("http://{text}/path?query").parse().expect("a URI");
    assert_eq!((uri.path(), uri.query()), ("/path", Some("query")));
    let authority = uri.authority().expect("it has one");
    assert_eq!(authority.as_str(), text);
    assert!(text.starts_with(authority.host()));
}

fn model(host: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(host) else {
        return false;
    };
    let (name, port) = match text.rfind(':') {
        Some(colon) if !text[colon..].contains(']') => (&text[..colon], &text[colon + 1..]),
        _ => (text, ""),
    };
    let is_port = port.is_empty()
        || port.len() <= 5
            && port.chars().all(|digit| digit.is_ascii_digit())
            && port.parse::<u32>().is_ok_and(|port| port <= 65_535);
    let is_address = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    is_port && (is_address || is_name(name))
}

/// `reg-name` of RFC 3986 §3.2.2.
fn is_name(name: &str) -> bool {
    let mut pieces = name.split('%');
    let is_plain = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=".contains(c))
    };
    let is_encoded = |text: &str| {
        text.len() >= 2
            && text.is_char_boundary(2)
            && text[..2].chars().all(|c| c.is_ascii_hexdigit())
            && is_plain(&text[2..])
    };
    pieces.next().is_some_and(is_plain) && pieces.all(is_encoded)
}
