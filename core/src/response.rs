//! Responses and what converts into one.
//!
//! Header values are typed, so a CR, LF or NUL can never reach the wire.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue,
    TRANSFER_ENCODING,
};
use http::response::Parts;
use http::{Extensions, StatusCode};
use serde::Serialize;

use crate::body::Body;
use crate::error::{BodyError, SessionError};
use crate::header_map_pool;
use crate::middleware::write_field;
use crate::problem::Problem;

/// `application/json`
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

static JSON_HEAD: LazyLock<SharedHead> = LazyLock::new(|| SharedHead::of_type(JSON));
static TEXT_HEAD: LazyLock<SharedHead> = LazyLock::new(|| SharedHead::of_type(TEXT));
static HTML_HEAD: LazyLock<SharedHead> = LazyLock::new(|| SharedHead::of_type(HTML));

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
pub struct Response {
    /// Its header map is empty while there is a shared head.
    message: http::Response<Body>,
    shared: Option<Shared>,
}

impl Response {
    /// An empty response of this status.
    pub fn new(status: StatusCode) -> Self {
        let mut response = http::Response::new(Body::empty());
        *response.status_mut() = status;
        response.into()
    }

    /// 200 with the header fields of `head`, which costs as much as a pointer
    /// until somebody changes one.
    pub(crate) fn with_shared_head(head: Arc<SharedHead>, body: Body) -> Self {
        Self::sharing(Shared::Counted(head), body)
    }

    /// 200 with header fields that are rendered already, and no body.
    ///
    /// They cost as much as a pointer until somebody changes one.
    pub fn with_shared_fields(fields: &SharedFields) -> Self {
        Self::with_shared_head(Arc::clone(&fields.0), Body::empty())
    }

    fn sharing(head: Shared, body: Body) -> Self {
        Self {
            message: http::Response::new(body),
            shared: Some(head),
        }
    }

    /// 200 with `value` serialised as JSON; 500 when it cannot be serialised.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Self {
        match serialise(value) {
            Ok(bytes) => Self::sharing(Shared::Static(&JSON_HEAD), bytes.into()),
            Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR).into_response(),
        }
    }

    /// 200 with plain text.
    pub fn text(text: impl Into<Body>) -> Self {
        Self::sharing(Shared::Static(&TEXT_HEAD), text.into())
    }

    /// 200 with an HTML page.
    pub fn html(page: impl Into<Body>) -> Self {
        Self::sharing(Shared::Static(&HTML_HEAD), page.into())
    }

    /// 200 with a body of the given media type.
    pub fn with_content(content_type: HeaderValue, body: Body) -> Self {
        if content_type == JSON {
            return Self::sharing(Shared::Static(&JSON_HEAD), body);
        }
        let mut response = http::Response::new(body);
        let mut headers = header_map_pool::take();
        headers.insert(CONTENT_TYPE, content_type);
        *response.headers_mut() = headers;
        response.into()
    }

    /// Replaces the status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        *self.message.status_mut() = status;
        self
    }

    /// Sets a header, replacing any value it had.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers_mut().insert(name, value);
        self
    }

    /// Replaces the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Body>) -> Self {
        *self.message.body_mut() = body.into();
        self
    }

    /// Status code.
    pub fn status(&self) -> StatusCode {
        self.message.status()
    }

    /// Headers.
    pub fn headers(&self) -> &HeaderMap {
        match &self.shared {
            Some(shared) => &shared.fields,
            None => self.message.headers(),
        }
    }

    /// Headers, to change.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        self.own_shared_head();
        let headers = self.message.headers_mut();
        if headers.capacity() == 0 {
            *headers = header_map_pool::take();
        }
        headers
    }

    /// Body.
    pub fn body(&self) -> &Body {
        self.message.body()
    }

    /// Body, to replace.
    pub(crate) fn body_mut(&mut self) -> &mut Body {
        self.message.body_mut()
    }

    /// Typed values that middleware attached.
    pub fn extensions(&self) -> &Extensions {
        self.message.extensions()
    }

    /// Typed values, to attach.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        self.message.extensions_mut()
    }

    /// The body alone.
    pub fn into_body(self) -> Body {
        self.message.into_body()
    }

    /// The `http` crate's type.
    pub fn into_http(mut self) -> http::Response<Body> {
        self.own_shared_head();
        self.message
    }

    /// Status and own header fields, shared ones, and the body.
    pub(crate) fn into_parts(self) -> (Parts, Option<Shared>, Body) {
        let (parts, body) = self.message.into_parts();
        (parts, self.shared, body)
    }

    /// Removes the fields that say how the body is framed.
    pub(crate) fn remove_framing(&mut self) {
        if self.shared.is_some() {
            // It has none.
            return;
        }
        let headers = self.message.headers_mut();
        // Two look-ups are dearer than a glance at the few headers there are.
        if headers
            .keys()
            .any(|name| name == CONTENT_LENGTH || name == TRANSFER_ENCODING)
        {
            headers.remove(CONTENT_LENGTH);
            headers.remove(TRANSFER_ENCODING);
        }
    }

    fn own_shared_head(&mut self) {
        if let Some(shared) = self.shared.take() {
            let mut headers = header_map_pool::take();
            for (name, value) in &shared.fields {
                headers.append(name, value.clone());
            }
            *self.message.headers_mut() = headers;
        }
    }
}

/// Header fields that many responses have, rendered once for all of them.
///
/// ```
/// use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
/// use justapi_core::{Response, SharedFields};
///
/// let html = HeaderValue::from_static("text/html");
/// let fields = HeaderMap::from_iter([(CONTENT_TYPE, html)]);
/// let shared = SharedFields::of(&fields).expect("they fit any response");
/// let response = Response::with_shared_fields(&shared).with_body("<p>hello");
/// assert_eq!(response.headers()["content-type"], "text/html");
/// ```
#[derive(Debug, Clone)]
pub struct SharedFields(Arc<SharedHead>);

impl SharedFields {
    /// Renders `fields`; `None` if one is about the connection, the framing or
    /// the moment, which is of one response.
    pub fn of(fields: &HeaderMap) -> Option<Self> {
        let are_shared = fields.keys().all(SharedHead::may_have);
        are_shared.then(|| Self(SharedHead::new(fields.clone())))
    }
}

/// A head that a response refers to.
#[derive(Debug)]
pub(crate) enum Shared {
    /// Of the program: not even a count changes.
    Static(&'static SharedHead),
    Counted(Arc<SharedHead>),
}

impl Deref for Shared {
    type Target = SharedHead;

    fn deref(&self) -> &SharedHead {
        match self {
            Self::Static(head) => head,
            Self::Counted(head) => head,
        }
    }
}

/// Header fields that many responses have, rendered once for all of them.
///
/// None is about the connection, the framing or the moment.
#[derive(Debug, Default)]
pub(crate) struct SharedHead {
    fields: HeaderMap,
    /// The fields as they stand in an HTTP/1.1 head.
    lines: Box<[u8]>,
}

impl SharedHead {
    /// Bytes of an empty head and its header map of at most 14 fields, rounded
    /// up.
    pub(crate) const BASE_BYTES: usize = 2048;

    /// # Panics
    /// If a field is not for all responses that share it.
    pub(crate) fn new(fields: HeaderMap) -> Arc<Self> {
        Arc::new(Self::render(fields))
    }

    /// Whether a field of this name may be one of several responses.
    fn may_have(name: &HeaderName) -> bool {
        ![CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING].contains(name)
    }

    fn of_type(content_type: HeaderValue) -> Self {
        Self::render(HeaderMap::from_iter([(CONTENT_TYPE, content_type)]))
    }

    fn render(fields: HeaderMap) -> Self {
        let mut lines = Vec::with_capacity(256);
        for (name, value) in &fields {
            assert!(Self::may_have(name), "{name} is of one response");
            write_field(&mut lines, name.as_str().as_bytes(), value.as_bytes());
        }
        Self {
            fields,
            lines: lines.into(),
        }
    }

    pub(crate) const fn fields(&self) -> &HeaderMap {
        &self.fields
    }

    /// `name: value` of each field, ended by CRLF.
    pub(crate) const fn lines(&self) -> &[u8] {
        &self.lines
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
    fn from(message: http::Response<Body>) -> Self {
        Self {
            message,
            shared: None,
        }
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

#[cfg(test)]
mod tests {
    use http::header::{ETAG, VARY};

    use super::*;

    const PLAIN: HeaderValue = HeaderValue::from_static("text/plain");

    fn head() -> Arc<SharedHead> {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, TEXT);
        fields.insert(ETAG, HeaderValue::from_static("\"a\""));
        fields.append(VARY, HeaderValue::from_static("a"));
        fields.append(VARY, HeaderValue::from_static("b"));
        SharedHead::new(fields)
    }

    #[test]
    fn a_shared_head_is_there_for_whoever_looks() {
        let head = head();
        let response = Response::with_shared_head(Arc::clone(&head), "body".into());
        assert_eq!(response.headers(), head.fields());
        assert_eq!(
            head.lines(),
            b"content-type: text/plain; charset=utf-8\r\netag: \"a\"\r\nvary: a\r\nvary: b\r\n"
        );
        assert_eq!(response.into_http().headers(), head.fields());
    }

    #[test]
    fn answers_of_common_types_share_their_heads() {
        for (response, content_type) in [
            (Response::json("a"), JSON),
            (Response::with_content(JSON, "a".into()), JSON),
            (Response::text("a"), TEXT),
            (Response::html("a"), HTML),
        ] {
            let expected = HeaderMap::from_iter([(CONTENT_TYPE, content_type)]);
            assert_eq!(*response.headers(), expected);
            let (parts, shared, _) = response.into_parts();
            assert!(parts.headers.is_empty());
            assert_eq!(*shared.expect("it is shared").fields(), expected);
        }
        let mut own = Response::with_content(PLAIN, "a".into());
        assert_eq!(own.headers()[CONTENT_TYPE], PLAIN);
        own.headers_mut().clear();
        assert!(own.into_parts().1.is_none());
    }

    #[test]
    fn a_change_is_to_this_response_alone() {
        let head = head();
        let response = || Response::with_shared_head(Arc::clone(&head), "body".into());
        let changed = response().with_header(ETAG, HeaderValue::from_static("\"b\""));
        assert_eq!(changed.headers()[ETAG], "\"b\"");
        assert_eq!(changed.headers().len(), head.fields().len());
        let mut bare = response();
        bare.headers_mut().clear();
        assert!(bare.headers().is_empty());
        let (parts, shared, _) = bare.into_parts();
        assert!(parts.headers.is_empty() && shared.is_none());
        assert_eq!(response().headers(), head.fields());
    }

    #[test]
    fn framing_that_a_handler_sets_beside_a_shared_head_is_removed() {
        let mut response = Response::with_shared_head(head(), "body".into())
            .with_header(CONTENT_LENGTH, HeaderValue::from_static("9"))
            .with_header(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        response.remove_framing();
        assert_eq!(response.headers(), head().fields());
    }

    #[test]
    #[should_panic(expected = "content-length is of one response")]
    fn framing_is_not_shared() {
        let length = (CONTENT_LENGTH, HeaderValue::from_static("9"));
        SharedHead::new(HeaderMap::from_iter([length]));
    }
}
