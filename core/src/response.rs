//! Responses and what converts into one.
//!
//! Header values are typed, so a CR, LF or NUL can never reach the wire.

use std::cell::Cell;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Extensions, StatusCode};
use serde::Serialize;

use crate::body::Body;
use crate::error::{BodyError, SessionError};
use crate::header_map_pool;
use crate::problem::Problem;

/// `application/json`
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Documents up to this size are copied out of the serialising buffer; copying
/// a larger one costs more than the allocations it saves.
const MAX_COPIED_JSON_BYTES: usize = 16 * 1024;

/// A response under construction: status, headers, body.
///
/// ```
/// use justapi_core::{Response, StatusCode};
/// let response = Response::text("made").with_status(StatusCode::CREATED);
/// assert_eq!(response.status(), 201);
/// ```
#[derive(Debug)]
pub struct Response(http::Response<Body>);

impl Response {
    /// An empty response of this status.
    pub fn new(status: StatusCode) -> Self {
        let mut response = http::Response::new(Body::empty());
        *response.status_mut() = status;
        Self(response)
    }

    /// 200 with `value` serialised as JSON; 500 when it cannot be serialised.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Self {
        match serialise(value) {
            Ok(bytes) => Self::with_content(JSON, bytes.into()),
            Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR).into_response(),
        }
    }

    /// 200 with plain text.
    pub fn text(text: impl Into<Body>) -> Self {
        Self::with_content(TEXT, text.into())
    }

    /// 200 with an HTML page.
    pub fn html(page: impl Into<Body>) -> Self {
        Self::with_content(HTML, page.into())
    }

    /// 200 with a body of the given media type.
    pub fn with_content(content_type: HeaderValue, body: Body) -> Self {
        let mut response = http::Response::new(body);
        let mut headers = header_map_pool::take();
        headers.insert(CONTENT_TYPE, content_type);
        *response.headers_mut() = headers;
        Self(response)
    }

    /// Replaces the status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        *self.0.status_mut() = status;
        self
    }

    /// Sets a header, replacing any value it had.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers_mut().insert(name, value);
        self
    }

    /// Replaces the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Body>) -> Self {
        *self.0.body_mut() = body.into();
        self
    }

    /// Status code.
    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    /// Headers.
    pub fn headers(&self) -> &HeaderMap {
        self.0.headers()
    }

    /// Headers, to change.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        self.0.headers_mut()
    }

    /// Body.
    pub fn body(&self) -> &Body {
        self.0.body()
    }

    /// Typed values that middleware attached.
    pub fn extensions(&self) -> &Extensions {
        self.0.extensions()
    }

    /// Typed values, to attach.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        self.0.extensions_mut()
    }

    /// The body alone.
    pub fn into_body(self) -> Body {
        self.0.into_body()
    }

    /// The `http` crate's type.
    pub fn into_http(self) -> http::Response<Body> {
        self.0
    }
}

/// Serialises through a buffer of the thread, so that a small document costs
/// one allocation of its own size.
fn serialise<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Bytes> {
    thread_local! {
        static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    // Taken out, not borrowed: a `Serialize` may itself come back here.
    let mut buffer = BUFFER.take();
    buffer.clear();
    serde_json::to_writer(&mut buffer, value)?;
    if buffer.len() > MAX_COPIED_JSON_BYTES {
        return Ok(buffer.into());
    }
    let bytes = Bytes::copy_from_slice(&buffer);
    BUFFER.set(buffer);
    Ok(bytes)
}

impl From<http::Response<Body>> for Response {
    fn from(response: http::Response<Body>) -> Self {
        Self(response)
    }
}

/// What a handler may return.
pub trait IntoResponse {
    /// Converts into the response to send.
    fn into_response(self) -> Response;
}

impl IntoResponse for Response {
    fn into_response(self) -> Response {
        self
    }
}

impl IntoResponse for StatusCode {
    fn into_response(self) -> Response {
        Response::new(self)
    }
}

impl IntoResponse for &'static str {
    fn into_response(self) -> Response {
        Response::text(self)
    }
}

impl IntoResponse for String {
    fn into_response(self) -> Response {
        Response::text(self)
    }
}

impl IntoResponse for Bytes {
    fn into_response(self) -> Response {
        Response::with_content(
            HeaderValue::from_static("application/octet-stream"),
            self.into(),
        )
    }
}

/// A value that answers as `application/json`.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(
    /// Value to serialise.
    pub T,
);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        Response::json(&self.0)
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    fn into_response(self) -> Response {
        match self {
            Ok(value) => value.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        Problem::from(&self).into_response()
    }
}

impl IntoResponse for SessionError {
    fn into_response(self) -> Response {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR).into_response()
    }
}
