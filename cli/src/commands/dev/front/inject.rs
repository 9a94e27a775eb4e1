//! The script that makes a page load anew, at the end of HTML documents.
//!
//! Guarantee: only documents that a browser asked for as such are touched;
//! whatever a program reads is what the application has sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use justapi_core::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};
use justapi_core::{Body, BodyError, HeaderMap, HeaderValue, Method, Request, Response};

/// Where the script is.
pub(super) const SCRIPT_PATH: &str = "/__justapi/dev.js";
/// Where it hears of news.
pub(super) const EVENTS_PATH: &str = "/__justapi/events";
pub(super) const SCRIPT: &str = include_str!("dev.js");

/// Whether a browser shows the answer to this as a document.
pub(super) fn is_for_a_document(request: &Request) -> bool {
    if request.method() != Method::GET && request.method() != Method::POST {
        return false;
    }
    let headers = request.headers();
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(destination) = value("sec-fetch-dest") {
        return matches!(destination, "document" | "iframe" | "frame");
    }
    let accepts = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        text.split([',', ';'])
            .any(|part| part.trim() == "text/html")
    };
    headers.get_all(ACCEPT).iter().any(accepts) && value("hx-request").is_none()
}

/// Asks for the whole document: one that the browser already has, or has a part
/// of, carries the number of the code that made that.
pub(super) fn ask_for_all(headers: &mut HeaderMap) {
    for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_RANGE, RANGE] {
        headers.remove(name);
    }
}

/// Appends the script to an HTML document, with the number of the code that
/// has made it.
///
/// The document is for this one time: kept and shown after a change, it would
/// load itself anew for ever.
pub(super) fn inject(mut response: Response, number: &str) -> Response {
    if !is_plain_html(response.headers()) {
        return response;
    }
    let tail = format!("<script src=\"{SCRIPT_PATH}?{number}\" async></script>\n");
    let headers = response.headers_mut();
    let length = headers.get(CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if let Some(length) = length {
        headers.insert(
            CONTENT_LENGTH,
            HeaderValue::from(length + tail.len() as u64),
        );
    }
    headers.remove(ETAG);
    headers.remove(LAST_MODIFIED);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let (parts, body) = response.into_http().into_parts();
    let body = Body::custom(Extended {
        inner: body,
        tail: Some(Bytes::from(tail)),
    });
    Response::from(http::Response::from_parts(parts, body))
}

fn is_plain_html(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let is_html = content_type.is_some_and(|value| {
        let name = value.split(';').next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case("text/html")
    });
    let is_attached = headers
        .get(CONTENT_DISPOSITION)
        .is_some_and(|value| value.as_bytes().starts_with(b"attachment"));
    is_html
        && !is_attached
        && !headers.contains_key(CONTENT_ENCODING)
        && !headers.contains_key(CONTENT_RANGE)
}

/// A body with something behind it.
struct Extended {
    inner: Body,
    tail: Option<Bytes>,
}

impl HttpBody for Extended {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match Pin::new(&mut self.inner).poll_frame(cx) {
            // Trailers would come behind it.
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => {
                Poll::Ready(self.tail.take().map(|tail| Ok(Frame::data(tail))))
            }
            Poll::Ready(None) => Poll::Ready(self.tail.take().map(|tail| Ok(Frame::data(tail)))),
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.tail.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let tail = self.tail.as_ref().map_or(0, |tail| tail.len() as u64);
        match self.inner.size_hint().exact() {
            Some(length) => SizeHint::with_exact(length + tail),
            None => SizeHint::default(),
        }
    }
}
