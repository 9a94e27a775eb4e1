//! The head of a request; an HTTP/1.1 one is kept as the text that came.
//!
//! Guarantee: what a handler does not ask for is not parsed: target and header
//! map are made of the text when first used. The text has passed the gate, so
//! making them cannot fail. Texts and header maps come from a pool.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::Authority;
use http::{Extensions, Method, Uri, Version};
use memchr::memchr;

use crate::gate::AdmittedHead;
use crate::header_map_pool;

/// Texts that a thread keeps for further requests.
const MAX_KEPT_TEXTS: usize = 64;
/// Largest capacity of a text worth keeping; browsers send a kilobyte or two.
const MAX_KEPT_TEXT_BYTES: usize = 4096;

thread_local! {
    static TEXTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Method, target, version and header fields.
pub(crate) struct Head {
    method: Method,
    version: Version,
    text: Text,
    uri: OnceCell<Box<Uri>>,
    headers: OnceCell<Box<HeaderMap>>,
    extensions: Extensions,
}

/// A head as it came over HTTP/1.1; empty for others.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    /// The whole target.
    target: Span,
    /// Without the query; `*` counts as one.
    path: Span,
    /// Value of `Host`, or the authority of a target that has one.
    host: Option<Span>,
    /// Start of the first field line.
    fields: u32,
}

/// Byte range in a text, whose size the gate bounds.
#[derive(Debug, Default, Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    const fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

impl Head {
    /// Takes over the head that `input` begins with, as the gate admitted it.
    pub(crate) fn admitted(input: &[u8], admitted: &AdmittedHead) -> Self {
        let mut bytes = TEXTS.with_borrow_mut(Vec::pop).unwrap_or_default();
        bytes.extend_from_slice(&input[admitted.start..admitted.end]);
        let shift = |at: usize| at - admitted.start;
        let method_end = shift(admitted.cuts.method);
        let target_end = shift(admitted.cuts.target);
        let path_end = shift(admitted.cuts.path);
        let method = match &bytes[..method_end] {
            b"GET" => Method::GET,
            b"POST" => Method::POST,
            other => Method::from_bytes(other).expect("the gate saw a token"),
        };
        let target_start = method_end + 1;
        let target = &bytes[target_start..target_end];
        let span = |start: usize, end: usize| Span {
            start: start as u32,
            end: end as u32,
        };
        let (path_start, host) = match target {
            [b'/', ..] | b"*" => {
                let host = admitted.host;
                (0, host.map(|(start, end)| span(shift(start), shift(end))))
            }
            absolute => {
                let authority = authority(absolute);
                let host = span(target_start + authority.start, target_start + authority.end);
                (authority.end, Some(host))
            }
        };
        let path_start = target_start + path_start;
        let version = if admitted.is_http10 {
            Version::HTTP_10
        } else {
            Version::HTTP_11
        };
        Self {
            method,
            version,
            text: Text {
                target: span(target_start, target_end),
                path: span(path_start, path_end),
                host,
                // The version and CRLF.
                fields: (target_end + " HTTP/1.1\r\n".len()) as u32,
                bytes,
            },
            uri: OnceCell::new(),
            headers: OnceCell::new(),
            extensions: Extensions::new(),
        }
    }

    pub(crate) const fn method(&self) -> &Method {
        &self.method
    }

    pub(crate) const fn version(&self) -> Version {
        self.version
    }

    /// Path as it was sent.
    pub(crate) fn path(&self) -> &str {
        std::str::from_utf8(self.path_bytes()).expect("the gate admits ASCII in targets")
    }

    /// Path as it was sent, for who reads it byte by byte: that it is text is a
    /// check of its own.
    pub(crate) fn path_bytes(&self) -> &[u8] {
        if self.text.bytes.is_empty() {
            return self.uri().path().as_bytes();
        }
        match &self.text.bytes[self.text.path.range()] {
            // A target in absolute form may have none.
            [] => b"/",
            path => path,
        }
    }

    /// Query as it was sent, without the `?`.
    pub(crate) fn query(&self) -> Option<&str> {
        if self.text.bytes.is_empty() {
            return self.uri().query();
        }
        let (path, target) = (self.text.path, self.text.target);
        (path.end < target.end).then(|| {
            self.text.str(Span {
                start: path.end + 1,
                end: target.end,
            })
        })
    }

    pub(crate) fn uri(&self) -> &Uri {
        self.uri.get_or_init(|| {
            let target = &self.text.bytes[self.text.target.range()];
            let uri = Uri::try_from(target).expect("the gate admits what is a URI");
            Box::new(uri)
        })
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.headers.get_or_init(|| Box::new(self.text.to_map()))
    }

    pub(crate) fn headers_mut(&mut self) -> &mut HeaderMap {
        self.headers();
        self.headers.get_mut().expect("they were just made")
    }

    /// Value of the only field called `name`, which is in lower case; `None`
    /// when there is none or more than one.
    ///
    /// Does not make the header map, and answers as it would: of a target in
    /// absolute form, `Host` is its authority.
    pub(crate) fn sole_field(&self, name: &HeaderName) -> Option<&[u8]> {
        if self.text.bytes.is_empty() || self.headers.get().is_some() {
            let mut values = self.headers().get_all(name).iter();
            return match (values.next(), values.next()) {
                (Some(value), None) => Some(value.as_bytes()),
                _ => None,
            };
        }
        if *name == HOST && self.text.is_absolute() {
            return self.text.host.map(|host| &self.text.bytes[host.range()]);
        }
        let name = name.as_str().as_bytes();
        let mut fields = self.text.fields();
        let found = fields
            .find(|(known, _)| known.eq_ignore_ascii_case(name))?
            .1;
        let is_sole = fields.all(|(known, _)| !known.eq_ignore_ascii_case(name));
        is_sole.then_some(found)
    }

    /// Field lines in the order in which they came, names as they were spelt.
    ///
    /// Does not make the header map; where it has been made, its order counts.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let is_text = !self.text.bytes.is_empty() && self.headers.get().is_none();
        let of_text = is_text.then(|| self.text.fields());
        let of_map = (!is_text).then(|| self.headers());
        let of_map = of_map.into_iter().flat_map(|map| {
            map.iter()
                .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
        });
        of_text.into_iter().flatten().chain(of_map)
    }

    /// Whether there is a field of one of these names, without making the
    /// header map.
    pub(crate) fn has_any_field(&self, names: &[HeaderName]) -> bool {
        if self.text.bytes.is_empty() || self.headers.get().is_some() {
            return self.headers().keys().any(|name| names.contains(name));
        }
        if self.text.is_absolute() && names.contains(&HOST) {
            return true;
        }
        self.text.fields().any(|(known, _)| {
            let known = |name: &HeaderName| known.eq_ignore_ascii_case(name.as_str().as_bytes());
            names.iter().any(known)
        })
    }

    /// Host that the peer asked for, with its port if it named one.
    ///
    /// The authority of the target goes before `Host` (RFC 9112 §3.2.2).
    pub(crate) fn host(&self) -> Option<&str> {
        std::str::from_utf8(self.host_bytes()?).ok()
    }

    /// [`Self::host`] for who compares it: that it is text is a check of its own.
    pub(crate) fn host_bytes(&self) -> Option<&[u8]> {
        if self.text.bytes.is_empty() {
            let field = self.headers().get(HOST).and_then(|host| host.to_str().ok());
            let host = field.or_else(|| self.uri().authority().map(Authority::as_str));
            return host.map(str::as_bytes);
        }
        Some(&self.text.bytes[self.text.host?.range()])
    }

    pub(crate) const fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    pub(crate) const fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

impl From<Parts> for Head {
    fn from(parts: Parts) -> Self {
        Self {
            method: parts.method,
            version: parts.version,
            text: Text::default(),
            uri: OnceCell::from(Box::new(parts.uri)),
            headers: OnceCell::from(Box::new(parts.headers)),
            extensions: parts.extensions,
        }
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        if let Some(headers) = self.headers.take() {
            header_map_pool::put(*headers);
        }
        let mut text = std::mem::take(&mut self.text.bytes);
        if (1..=MAX_KEPT_TEXT_BYTES).contains(&text.capacity()) {
            text.clear();
            TEXTS.with_borrow_mut(|texts| {
                if texts.len() < MAX_KEPT_TEXTS {
                    texts.push(text);
                }
            });
        }
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("method", &self.method)
            .field("uri", self.uri())
            .field("version", &self.version)
            .field("headers", self.headers())
            .finish_non_exhaustive()
    }
}

impl Text {
    /// Whether the target has scheme and authority (RFC 9112 §3.2.2).
    const fn is_absolute(&self) -> bool {
        self.path.start != self.target.start
    }

    fn str(&self, span: Span) -> &str {
        let bytes = &self.bytes[span.range()];
        std::str::from_utf8(bytes).expect("the gate admits ASCII in targets")
    }

    /// Names as they were written, and values without the white space around.
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let lines = self.spans();
        lines.map(|(name, value)| (&self.bytes[name], &self.bytes[value]))
    }

    fn spans(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let mut at = self.fields as usize;
        std::iter::from_fn(move || {
            let line = &self.bytes[at..];
            let colon = memchr(b':', line)?;
            let end = colon + memchr(b'\n', &line[colon..])?;
            let raw = &line[colon + 1..end - 1];
            let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t');
            let before = raw.iter().take_while(is_space).count();
            let after = raw[before..].iter().rev().take_while(is_space).count();
            let value = at + colon + 1 + before..at + end - 1 - after;
            let name = at..at + colon;
            at += end + 1;
            Some((name, value))
        })
    }

    fn to_map(&self) -> HeaderMap {
        let mut map = header_map_pool::take();
        // One copy, of which the values are parts.
        let shared = Bytes::copy_from_slice(&self.bytes);
        for (name, value) in self.spans() {
            let name = HeaderName::from_bytes(&shared[name]).expect("the gate saw a token");
            let value = HeaderValue::from_maybe_shared(shared.slice(value));
            map.append(name, value.expect("the gate saw a field value"));
        }
        let target = &self.bytes[self.target.range()];
        if !matches!(target, [b'/', ..] | b"*") {
            // RFC 9112 §3.2.2: a target in absolute form overrides Host.
            let host = HeaderValue::from_bytes(&target[authority(target)]);
            map.insert(HOST, host.expect("the gate saw a host"));
        }
        map
    }
}

/// Where the authority of a target in absolute form lies.
fn authority(target: &[u8]) -> Range<usize> {
    let slash = memchr(b'/', target).expect("the gate saw a scheme");
    let start = slash + 2;
    let length = target[start..]
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'));
    start..length.map_or(target.len(), |length| start + length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Gate, GateLimits};
    use crate::limits::Limits;

    fn head(text: &str) -> Head {
        let mut gate = Gate::new(GateLimits::from(&Limits::DEFAULT));
        let admitted = gate.read_head(text.as_bytes()).unwrap().unwrap();
        Head::admitted(text.as_bytes(), &admitted)
    }

    /// Checks path, query and URI of a target, and the Host that counts.
    #[track_caller]
    fn check(target: &str, path: &str, query: Option<&str>, host: &str) {
        let method = if target == "*" { "OPTIONS" } else { "GET" };
        let head = head(&format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!((head.path(), head.query()), (path, query), "{target}");
        assert_eq!(head.uri().path(), path, "{target}");
        assert_eq!(head.uri().query(), query, "{target}");
        assert_eq!(head.host(), Some(host), "{target}");
        assert_eq!(head.headers()[HOST], host, "{target}");
        assert_eq!(head.method().as_str(), method);
    }

    #[test]
    fn targets_of_every_form_are_cut() {
        check("/", "/", None, "h");
        check("/a/b%20c", "/a/b%20c", None, "h");
        check("/a?", "/a", Some(""), "h");
        check("/a?b=/c?d", "/a", Some("b=/c?d"), "h");
        check("//a//", "//a//", None, "h");
        check("*", "*", None, "h");
        check("http://x:8/a?b", "/a", Some("b"), "x:8");
        check("HTTP://[::1]/", "/", None, "[::1]");
        check("https://x", "/", None, "x");
        check("http://x?q=1/2", "/", Some("q=1/2"), "x");
    }

    #[test]
    fn fields_are_found_in_any_case_and_trimmed() {
        let text = "\r\nPOST / HTTP/1.0\r\nX-A: \t1 2\t\r\nx-a:\r\nb:c:d\r\nE: \u{e9}\r\n\r\n";
        let head = head(text);
        assert_eq!(head.version(), Version::HTTP_10);
        let (a, b) = (HeaderName::from_static("x-a"), HeaderName::from_static("b"));
        assert_eq!(head.sole_field(&b), Some(&b"c:d"[..]));
        assert_eq!(head.sole_field(&a), None);
        assert_eq!(head.sole_field(&HOST), None);
        assert!(head.has_any_field(&[HOST, a.clone()]) && !head.has_any_field(&[HOST]));
        let values: Vec<_> = head.headers().get_all(&a).iter().collect();
        assert_eq!(values, ["1 2", ""]);
        assert_eq!(head.sole_field(&b), Some(&b"c:d"[..]));
        assert_eq!(head.sole_field(&a), None);
        let name = HeaderName::from_static("e");
        assert_eq!(head.headers()[name].as_bytes(), "\u{e9}".as_bytes());
    }

    /// Asked before and after the header map is made, by name and by any.
    #[test]
    fn the_host_that_counts_is_the_same_with_and_without_a_map() {
        for (text, host) in [
            ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", Some("h")),
            ("GET http://x:8/a HTTP/1.1\r\nHost: h\r\n\r\n", Some("x:8")),
            ("GET http://x HTTP/1.1\r\nHost: x\r\n\r\n", Some("x")),
            ("GET http://x?q HTTP/1.0\r\nA: b\r\n\r\n", Some("x")),
            ("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", Some("h")),
            ("GET / HTTP/1.0\r\nA: b\r\n\r\n", None),
        ] {
            let head = head(text);
            let expected = host.map(str::as_bytes);
            for _ in 0..2 {
                assert_eq!(head.sole_field(&HOST), expected, "{text}");
                assert_eq!(head.has_any_field(&[HOST]), host.is_some(), "{text}");
                // Made here, for the second round.
                let in_map = head.headers().get(HOST).map(HeaderValue::as_bytes);
                assert_eq!(in_map, expected, "{text}");
            }
        }
    }

    #[test]
    fn a_text_is_used_again() {
        drop(head("GET /aaaa HTTP/1.1\r\nHost: a\r\n\r\n"));
        let kept = TEXTS.with_borrow(Vec::len);
        assert!(kept > 0);
        let head = head("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(head.path(), "/");
        assert_eq!(TEXTS.with_borrow(Vec::len), kept - 1);
    }
}
