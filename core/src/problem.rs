//! Problem documents: the one shape of every error answer (RFC 9457).
//!
//! A 5xx document carries no internals: only status, title and what the
//! caller of [`Problem::with_detail`] chose to say.

use std::borrow::Cow;

use http::{HeaderValue, StatusCode};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::body::Body;
use crate::error::BodyError;
use crate::response::{IntoResponse, Response};

/// `application/problem+json`
pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// An error answer as `application/problem+json`.
#[derive(Debug, Clone)]
pub struct Problem {
    status: StatusCode,
    detail: Option<Cow<'static, str>>,
    limit: Option<(&'static str, u64)>,
}

impl Problem {
    /// A problem whose title is the status' reason phrase.
    pub const fn new(status: StatusCode) -> Self {
        Self {
            status,
            detail: None,
            limit: None,
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

    /// Status code.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The document as JSON bytes.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and integers always serialise")
    }
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
        Response::with_content(PROBLEM_JSON, Body::from(self.to_json())).with_status(self.status)
    }
}

impl From<&BodyError> for Problem {
    fn from(error: &BodyError) -> Self {
        match error {
            BodyError::TooLarge { limit } => Self::new(StatusCode::PAYLOAD_TOO_LARGE)
                .with_limit("server.limits.body", *limit)
                .with_detail("the body is larger than this route accepts"),
            BodyError::Ratio { limit } => Self::new(StatusCode::PAYLOAD_TOO_LARGE)
                .with_limit("server.limits.decompression_ratio", u64::from(*limit))
                .with_detail("the body decompresses to too many times its size"),
            BodyError::Coding { coding } => Self::new(StatusCode::BAD_REQUEST).with_detail(
                format!("the body is damaged or ends early: it is not valid {coding}"),
            ),
            BodyError::Incomplete { .. } => Self::new(StatusCode::BAD_REQUEST)
                .with_detail("the body ended early or its framing is invalid"),
            BodyError::Stalled => Self::new(StatusCode::REQUEST_TIMEOUT)
                .with_detail("no more of the body came within server.limits.timeout_body"),
            BodyError::Json { source } => {
                Self::new(StatusCode::BAD_REQUEST).with_detail(source.to_string())
            }
            BodyError::File { .. } | BodyError::Producer => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }
}
