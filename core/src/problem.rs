//! Problem documents: the one shape of every error answer (RFC 9457).
//!
//! A 5xx document carries no internals: only status, title and what the
//! caller of [`Problem::with_detail`] chose to say.

use std::borrow::Cow;

use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::body::Body;
use crate::error::BodyError;
use crate::limits::{MAX_JSON_DEPTH, Reject};
use crate::response::{IntoResponse, Response};

/// `application/problem+json`
pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// An error answer as `application/problem+json`.
#[derive(Debug, Clone)]
pub struct Problem {
    status: StatusCode,
    detail: Option<Cow<'static, str>>,
    limit: Option<(&'static str, u64)>,
    is_momentary: bool,
    reject: Option<Reject>,
}

impl Problem {
    /// A problem whose title is the status' reason phrase.
    pub const fn new(status: StatusCode) -> Self {
        Self {
            status,
            detail: None,
            limit: None,
            is_momentary: false,
            reject: None,
        }
    }

    /// Says what was wrong with this request, in words for its sender.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Names the limit that was exceeded and its value, as members `limit`
    /// and `limit_value`.
    #[must_use]
    pub const fn with_limit(mut self, name: &'static str, value: u64) -> Self {
        self.limit = Some((name, value));
        self
    }

    /// Says that the same request may be served in a second.
    #[must_use]
    const fn with_retry(mut self) -> Self {
        self.is_momentary = true;
        self
    }

    /// Counts the answer under `reject`.
    pub(crate) const fn counted_as(mut self, reject: Reject) -> Self {
        self.reject = Some(reject);
        self
    }

    /// Status code.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The document as JSON bytes.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and integers always serialise")
    }
}

/// Whether a text has more levels than [`MAX_JSON_DEPTH`], which `serde_json`
/// says in words alone.
pub(crate) fn is_too_deep(error: &serde_json::Error) -> bool {
    error.is_syntax() && error.to_string().starts_with("recursion limit exceeded")
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "about:blank")?;
        map.serialize_entry("title", self.status.canonical_reason().unwrap_or("Error"))?;
        map.serialize_entry("status", &self.status.as_u16())?;
        if let Some(detail) = &self.detail {
            map.serialize_entry("detail", detail)?;
        }
        if let Some((name, value)) = self.limit {
            map.serialize_entry("limit", name)?;
            map.serialize_entry("limit_value", &value)?;
        }
        map.end()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body::from(self.to_json());
        let mut response = Response::with_content(PROBLEM_JSON, body).with_status(self.status);
        if let Some(reject) = self.reject {
            response.extensions_mut().insert(reject);
        }
        if self.is_momentary {
            return response.with_header(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<&BodyError> for Problem {
    fn from(error: &BodyError) -> Self {
        match error {
            BodyError::TooLarge { limit } => Self::new(StatusCode::PAYLOAD_TOO_LARGE)
                .with_limit("server.limits.body", *limit)
                .with_detail("the body is larger than this route accepts"),
            BodyError::OutOfMemory { limit } => Self::new(StatusCode::SERVICE_UNAVAILABLE)
                .with_limit("server.limits.body_memory", *limit)
                .with_detail("the bodies of other requests leave no room for this one")
                .with_retry(),
            BodyError::Ratio { limit } => Self::new(StatusCode::PAYLOAD_TOO_LARGE)
                .counted_as(Reject::DecompressionRatio)
                .with_limit("server.limits.decompression_ratio", u64::from(*limit))
                .with_detail("the body decompresses to too many times its size"),
            BodyError::Coding { coding } => Self::new(StatusCode::BAD_REQUEST).with_detail(
                format!("the body is damaged or ends early: it is not valid {coding}"),
            ),
            BodyError::Incomplete { .. } => Self::new(StatusCode::BAD_REQUEST)
                .with_detail("the body ended early or its framing is invalid"),
            BodyError::Stalled => Self::new(StatusCode::REQUEST_TIMEOUT)
                .with_detail("no more of the body came within server.limits.timeout_body, or it came more slowly \
                 than server.limits.body_rate"),
            BodyError::Json { source } => {
                let problem = Self::new(StatusCode::BAD_REQUEST).with_detail(source.to_string());
                if is_too_deep(source) {
                    problem
                        .counted_as(Reject::JsonDepth)
                        .with_limit("json_depth", MAX_JSON_DEPTH)
                } else {
                    problem
                }
            }
            BodyError::File { .. } | BodyError::Producer => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_of_json_is_told_from_its_other_faults() {
        let check = |depth: usize, expected: Option<bool>| {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let text = open.repeat(depth) + "1" + &close.repeat(depth);
                let error = serde_json::from_str::<serde_json::Value>(&text).err();
                assert_eq!(error.as_ref().map(is_too_deep), expected, "{depth}");
            }
        };
        let most = MAX_JSON_DEPTH as usize;
        check(most - 1, None);
        check(most, Some(true));
        check(10_000, Some(true));
        let cut = serde_json::from_str::<serde_json::Value>(&"[".repeat(most - 1));
        assert!(!is_too_deep(&cut.unwrap_err()), "one that ends early");
    }
}
