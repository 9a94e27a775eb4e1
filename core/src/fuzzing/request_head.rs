//! Request line, target and header block: the gate, and the accessors of what
//! it admits against the `http` crate.

use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri, Version};

use super::{Input, Verdict};
use crate::gate::{AdmittedHead, Framing};
use crate::head::Head;

pub(super) fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let pieces = input.pieces();
    let verdict = Verdict::of(&[&pieces.concat()]);
    verdict.assert_same(&Verdict::of(&pieces));
    for (bytes, admitted) in &verdict.heads {
        check_head(bytes, admitted);
    }
}

/// The head as a plain reader sees it: lines, and what stands around `:`.
fn check_head(bytes: &[u8], admitted: &AdmittedHead) {
    assert!(
        bytes[..admitted.start]
            .iter()
            .all(|byte| b"\r\n".contains(byte))
    );
    let text = &bytes[admitted.start..];
    assert!(text.len() <= 600 && text.ends_with(b"\r\n\r\n"));
    let mut lines = text.split(|byte| *byte == b'\n').map(|line| {
        let end = line.len().saturating_sub(1);
        &line[..end]
    });
    let request_line = std::str::from_utf8(lines.next().expect("a line")).expect("ASCII");
    let [method, target, version] = request_line.split(' ').collect::<Vec<_>>()[..] else {
        panic!("a request line has three words");
    };
    let method = Method::from_bytes(method.as_bytes()).expect("a token");
    let uri: Uri = target.parse().expect("a URI");
    let mut headers = HeaderMap::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let colon = line.iter().position(|byte| *byte == b':').expect("a colon");
        let name = HeaderName::from_bytes(&line[..colon]).expect("a token");
        let value = HeaderValue::from_bytes(trim(&line[colon + 1..])).expect("a value");
        headers.append(name, value);
    }

    let head = Head::admitted(bytes, admitted);
    assert_eq!(head.method(), method);
    assert_eq!(head.version() == Version::HTTP_11, version == "HTTP/1.1");
    assert_eq!(head.version() == Version::HTTP_10, admitted.is_http10);
    assert_eq!(head.uri(), &uri);
    assert_eq!(head.path(), uri.path());
    assert_eq!(head.query(), uri.query());
    // Before and after the header map is made.
    for _ in 0..2 {
        for name in headers.keys().filter(|name| *name != HOST) {
            assert!(head.has_any_field(std::slice::from_ref(name)));
            let mut values = headers.get_all(name).iter();
            let sole = match (values.next(), values.next()) {
                (Some(value), None) => Some(value.as_bytes()),
                _ => None,
            };
            assert_eq!(head.sole_field(name), sole, "{name}");
        }
        head.headers();
    }
    if let Some(authority) = uri.authority() {
        let host = HeaderValue::from_str(authority.as_str()).expect("ASCII");
        headers.insert(HOST, host);
    }
    assert_eq!(head.headers(), &headers);
    assert_eq!(
        head.host().map(str::as_bytes),
        headers.get(HOST).map(HeaderValue::as_bytes)
    );
    check_framing(admitted, &headers);
}

/// The framing is what the headers say, and they say it once.
fn check_framing(admitted: &AdmittedHead, headers: &HeaderMap) {
    let number = |length: &HeaderValue| length.to_str().expect("digits").parse::<u64>();
    let lengths: Vec<_> = headers
        .get_all("content-length")
        .iter()
        .map(number)
        .collect();
    let is_chunked = headers.contains_key("transfer-encoding");
    match admitted.framing {
        Framing::None => assert!(lengths.is_empty() && !is_chunked),
        Framing::Fixed(length) => assert!(lengths == [Ok(length)] && !is_chunked),
        Framing::Chunked => {
            assert!(lengths.is_empty() && !admitted.is_http10);
            let codings: Vec<_> = headers.get_all("transfer-encoding").iter().collect();
            assert!(codings.len() == 1 && codings[0].as_bytes().eq_ignore_ascii_case(b"chunked"));
        }
    }
    assert_eq!(
        headers.get_all(HOST).iter().count() == 1,
        headers.contains_key(HOST),
        "one Host at most"
    );
}

fn trim(text: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !b" \t".contains(byte);
    let Some(start) = text.iter().position(is_text) else {
        return b"";
    };
    let end = text.iter().rposition(is_text).expect("it has text");
    &text[start..=end]
}
