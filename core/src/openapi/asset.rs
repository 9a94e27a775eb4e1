//! Bytes that are made once and sent again and again.
//!
//! Guarantee: each carries an entity tag of its content, and a client that has
//! it already gets 304 (RFC 9110 §13.1.2).

use std::hash::{DefaultHasher, Hasher as _};

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderMap, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, StatusCode};

use crate::body::Body;
use crate::request::Request;
use crate::response::{JSON, Response};

/// Stored by caches, and asked about before each use.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");
/// Own scripts and styles only, requests to this server only, no frames.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// One file of the documentation.
#[derive(Debug)]
pub(super) struct Asset {
    bytes: Bytes,
    content_type: HeaderValue,
    tag: HeaderValue,
    is_page: bool,
}

impl Asset {
    pub(super) fn json(text: String) -> Self {
        Self::new(text.into(), JSON, false)
    }

    pub(super) fn page(text: &'static [u8]) -> Self {
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        Self::new(Bytes::from_static(text), html, true)
    }

    /// `media_type` is text in UTF-8.
    pub(super) fn text(media_type: &str, text: &'static [u8]) -> Self {
        let content_type = HeaderValue::try_from(format!("{media_type}; charset=utf-8"))
            .expect("a media type is a header value");
        Self::new(Bytes::from_static(text), content_type, false)
    }

    fn new(bytes: Bytes, content_type: HeaderValue, is_page: bool) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        let tag = format!("\"{:016x}\"", hasher.finish());
        Self {
            bytes,
            content_type,
            tag: HeaderValue::try_from(tag).expect("hexadecimal digits"),
            is_page,
        }
    }

    pub(super) fn answer(&self, request: &Request) -> Response {
        let response = if self.is_known(request.headers()) {
            Response::new(StatusCode::NOT_MODIFIED)
        } else {
            Response::with_content(self.content_type.clone(), Body::from(self.bytes.clone()))
        };
        let response = response
            .with_header(ETAG, self.tag.clone())
            .with_header(CACHE_CONTROL, REVALIDATE)
            .with_header(X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
        if self.is_page {
            response.with_header(CONTENT_SECURITY_POLICY, POLICY)
        } else {
            response
        }
    }

    /// Whether `If-None-Match` lists the tag, by weak comparison.
    fn is_known(&self, headers: &HeaderMap) -> bool {
        let own = self.tag.as_bytes();
        let lines = headers.get_all(IF_NONE_MATCH).iter();
        lines
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == own)
    }
}
