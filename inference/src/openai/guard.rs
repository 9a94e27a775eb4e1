//! What stands around every route: who may come in, and the one shape of all
//! that is refused.
//!
//! Guarantees: without a known key nothing but the chat page is answered, and a
//! wrong key looks like none; refusals of the server's own (404, 405, 413) have
//! OpenAI's error object; an `X-Request-Id` comes back with the answer.

use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;

use justapi_core::{
    Begun, HeaderName, HeaderValue, IntoResponse as _, Layer, Method, Request, Response, header,
};
use serde::Deserialize;

use super::api::Api;
use super::error::ApiError;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM_JSON: &str = "application/problem+json";
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that comes back; as the server's own middleware.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// The layer around the routes.
pub(super) struct Guard(pub(super) Arc<Api>);

impl Guard {
    fn is_allowed(&self, request: &Request) -> bool {
        let Some(keys) = &self.0.options.api_keys else {
            return true;
        };
        // A browser asks without a key whether it may ask with one; and the
        // page is where the key is typed in.
        let is_page = request.path() == "/" && !self.0.options.without_page;
        *request.method() == Method::OPTIONS || is_page || keys.name_of(request.headers()).is_some()
    }
}

impl Layer for Guard {
    fn begin(&self, request: &Request) -> Begun {
        let id = request_id(request);
        if !self.is_allowed(request) {
            self.0.model.metrics().count_unauthorized();
            let refused = ApiError::unauthorized().into_response();
            return ControlFlow::Break(with_id(refused, id));
        }
        ControlFlow::Continue(Some(Box::new(|response| with_id(reshape(response), id))))
    }
}

/// The id that the answer is to have, unless the server gives it one.
fn request_id(request: &Request) -> Option<HeaderValue> {
    if request.id().is_some() {
        return None;
    }
    let id = request.headers().get(X_REQUEST_ID)?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let bytes = id.as_bytes();
    let is_valid = (1..=MAX_REQUEST_ID_BYTES).contains(&bytes.len()) && bytes.iter().all(is_plain);
    is_valid.then(|| id.clone())
}

fn with_id(response: Response, id: Option<HeaderValue>) -> Response {
    match id {
        Some(id) => response.with_header(X_REQUEST_ID, id),
        None => response,
    }
}

/// What the server says of a refusal (RFC 9457).
#[derive(Deserialize)]
struct Problem {
    title: String,
    detail: Option<String>,
}

/// Makes OpenAI's error object of a problem document; anything else stays.
fn reshape(response: Response) -> Response {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    if content_type.is_none_or(|value| value != PROBLEM_JSON) {
        return response;
    }
    let mut message = response.into_http();
    let body = mem::take(message.body_mut());
    let problem = body
        .into_ready()
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Problem>(&bytes).ok());
    let text = problem.map_or_else(
        || "the request failed".to_owned(),
        |problem| problem.detail.unwrap_or(problem.title),
    );
    *message.body_mut() = ApiError::new(message.status(), text).to_json().into();
    message.headers_mut().insert(header::CONTENT_TYPE, JSON);
    message.into()
}
