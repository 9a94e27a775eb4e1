//! What a client is told that did not get its answer: OpenAI's error object,
//! `{"error":{"message","type","param","code"}}`, with the status that fits.
//!
//! Guarantee: a message says what was wrong with the request, and nothing of
//! the inside of the server. Source: OpenAI API reference, "Errors".

use std::borrow::Cow;
use std::time::Duration;

use justapi_core::{BodyError, HeaderValue, IntoResponse, Response, StatusCode, header};
use serde::Serialize;

use crate::{Error, Refusal};

/// An error answer, or an error event in a stream that has begun.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: Cow<'static, str>,
    param: Option<Cow<'static, str>>,
    code: Option<&'static str>,
    retry_after: Option<Duration>,
}

/// The error object as JSON.
#[derive(Serialize)]
struct Envelope<'a> {
    error: Fields<'a>,
}

#[derive(Serialize)]
struct Fields<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    code: Option<&'static str>,
}

impl ApiError {
    /// An error of the kind that belongs to its status.
    pub(super) fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            kind: kind_of(status),
            message: message.into(),
            param: None,
            code: None,
            retry_after: None,
        }
    }

    /// 400: the request cannot be meant.
    pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 400 because of one parameter, which the message begins with.
    pub(super) fn parameter(
        name: impl Into<Cow<'static, str>>,
        reason: impl std::fmt::Display,
    ) -> Self {
        let name = name.into();
        Self::invalid(format!("{name}: {reason}")).with_param(name)
    }

    /// 400 for a parameter that would change the answer in a way that this
    /// version does not.
    pub(super) fn unsupported(name: &'static str) -> Self {
        Self {
            code: Some("unsupported_parameter"),
            ..Self::parameter(name, "not supported by this server")
        }
    }

    /// 400 for more tokens than fit.
    pub(super) fn too_long(message: impl Into<Cow<'static, str>>) -> Self {
        Self::invalid(message).with_code("context_length_exceeded")
    }

    /// 404 for a model that is not served.
    pub(super) fn model_not_found(model: &str) -> Self {
        let message = format!("the model `{model}` does not exist");
        Self::new(StatusCode::NOT_FOUND, message)
            .with_param("model")
            .with_code("model_not_found")
    }

    /// 401: no key, or none that is known; both look alike.
    pub(super) fn unauthorized() -> Self {
        let message = "this server wants an API key: `Authorization: Bearer KEY`, with a KEY \
                       that it knows";
        Self::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key")
    }

    /// Why the engine did not take a request.
    pub(super) fn refused(refusal: &Refusal, param: &'static str) -> Self {
        match refusal {
            Refusal::QueueFull { retry_after, .. } => Self {
                retry_after: Some(*retry_after),
                ..Self::new(StatusCode::TOO_MANY_REQUESTS, refusal.to_string())
                    .with_code("queue_full")
            },
            Refusal::TooLong { .. } => Self::too_long(refusal.to_string()).with_param(param),
            Refusal::Parameter { parameter, reason } => Self::parameter(*parameter, reason),
            Refusal::Failed => Self::failed(),
            Refusal::Stopped => Self::stopped(),
        }
    }

    /// 503: the engine ends, or has failed for good.
    pub(super) fn stopped() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the engine is stopped")
            .with_code("engine_stopped")
    }

    /// 500: the engine failed at this one request.
    pub(super) fn failed() -> Self {
        let message = "the engine failed at this request";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message).with_code("engine_failed")
    }

    /// Names the parameter that is to blame.
    pub(super) fn with_param(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.param = Some(name.into());
        self
    }

    /// Adds the word that programs look for.
    pub(super) const fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The object as JSON, for an answer or an event.
    pub(super) fn to_json(&self) -> String {
        let error = Fields {
            message: &self.message,
            r#type: self.kind,
            param: self.param.as_deref(),
            code: self.code,
        };
        serde_json::to_string(&Envelope { error }).expect("texts always serialise")
    }
}

/// Names of kinds as OpenAI's clients know them.
fn kind_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        const JSON: HeaderValue = HeaderValue::from_static("application/json");
        const BEARER: HeaderValue = HeaderValue::from_static("Bearer");
        let body = self.to_json();
        let mut response = Response::with_content(JSON, body.into()).with_status(self.status);
        if let Some(after) = self.retry_after {
            // Whole seconds; a client that comes back too soon is refused again.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            response = response.with_header(header::RETRY_AFTER, seconds.max(1).into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response = response.with_header(header::WWW_AUTHENTICATE, BEARER);
        }
        response
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        let status = match error {
            BodyError::TooLarge { .. } | BodyError::Ratio { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::OutOfMemory { .. } => StatusCode::SERVICE_UNAVAILABLE,
            BodyError::Stalled => StatusCode::REQUEST_TIMEOUT,
            BodyError::File { .. } | BodyError::Producer => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}

/// A failure of the model's files, seen while a request is prepared.
impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self::invalid(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: ApiError, status: u16, retry_after: Option<&str>, body: &str) {
        assert_eq!(error.to_json(), body);
        let response = error.into_response();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["content-type"], "application/json");
        let found = response.headers().get("retry-after");
        assert_eq!(
            found.map(|value| value.to_str().expect("digits")),
            retry_after
        );
    }

    #[test]
    fn refusals_have_the_status_that_fits() {
        let full = Refusal::QueueFull {
            num_waiting: 8,
            max_waiting: 8,
            retry_after: Duration::from_millis(1_200),
        };
        check(
            ApiError::refused(&full, "prompt"),
            429,
            Some("2"),
            r#"{"error":{"message":"8 requests wait already, of at most 8","type":"rate_limit_error","param":null,"code":"queue_full"}}"#,
        );
        let long = Refusal::TooLong {
            num_tokens: 9,
            max_tokens: 8,
            limit: "the context",
        };
        check(
            ApiError::refused(&long, "messages"),
            400,
            None,
            r#"{"error":{"message":"9 tokens are more than the 8 of the context","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        );
        check(
            ApiError::refused(&Refusal::Stopped, "prompt"),
            503,
            None,
            r#"{"error":{"message":"the engine is stopped","type":"server_error","param":null,"code":"engine_stopped"}}"#,
        );
        let parameter = Refusal::Parameter {
            parameter: "top_p",
            reason: "too odd".to_owned(),
        };
        check(
            ApiError::refused(&parameter, "prompt"),
            400,
            None,
            r#"{"error":{"message":"top_p: too odd","type":"invalid_request_error","param":"top_p","code":null}}"#,
        );
    }

    #[test]
    fn a_wrong_key_is_asked_for_again() {
        let response = ApiError::unauthorized().into_response();
        assert_eq!(response.status(), 401);
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
    }
}
