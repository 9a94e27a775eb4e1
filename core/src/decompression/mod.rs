//! Request bodies with a `Content-Encoding` (RFC 9110 §8.4), decoded before
//! the handler reads them.
//!
//! Guarantees: a handler sees either the whole decoded body or an error; an
//! unknown coding is refused before the body is read.

mod decoder;
mod stream;

use http::StatusCode;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderValue};
use http_body::Body as _;

pub(crate) use self::stream::DecodedBody;
use crate::body::Body;
use crate::compression::Coding;
use crate::limits::{Limits, MAX_CONTENT_CODINGS, Reject};
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse as _, Response};
use crate::vary;

const OUR_CODINGS: HeaderValue = HeaderValue::from_static("zstd, br, gzip");

/// Decodes request bodies.
#[derive(Debug)]
pub(crate) struct Decompression {
    max_body_bytes: u64,
    max_ratio: u32,
}

impl Decompression {
    pub(crate) const fn new(limits: &Limits) -> Self {
        Self {
            max_body_bytes: limits.max_body_bytes,
            max_ratio: limits.max_decompression_ratio,
        }
    }

    /// Puts decoders before the body, or answers 415.
    ///
    /// The headers that described the coded body go: what the handler sees is
    /// a body without coding and of unknown length. A request without a body
    /// is left alone whatever it says.
    pub(crate) fn admit(&self, request: &mut Request) -> Option<Response> {
        if !request.headers().contains_key(CONTENT_ENCODING) || request.body_mut().is_end_stream() {
            return None;
        }
        let mut found = None;
        for name in request
            .headers()
            .get_all(CONTENT_ENCODING)
            .iter()
            .flat_map(vary::names)
        {
            if name.eq_ignore_ascii_case(b"identity") {
                continue;
            }
            let Some(coding) = Coding::named(name) else {
                let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE)
                    .with_detail("the body has a content coding that this server does not know");
                return Some(refusal(problem));
            };
            // Decoders are not stacked: the second one is one too many.
            const { assert!(MAX_CONTENT_CODINGS == 1) }
            if found.replace(coding).is_some() {
                let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE)
                    .with_detail("the body has too many content codings on top of each other")
                    .with_limit("max_content_codings", MAX_CONTENT_CODINGS as u64)
                    .counted_as(Reject::ContentCodings);
                return Some(refusal(problem));
            }
        }
        if let Some(coding) = found {
            let inner = std::mem::take(request.body_mut());
            match DecodedBody::new(inner, coding, self.max_body_bytes, self.max_ratio) {
                Ok(decoded) => *request.body_mut() = Body::decoded(decoded),
                Err(error) => return Some(error.into_response()),
            }
        }
        request.headers_mut().remove(CONTENT_ENCODING);
        request.headers_mut().remove(CONTENT_LENGTH);
        None
    }
}

/// RFC 9110 §12.5.3: a 415 for a coding lists those that are accepted.
fn refusal(problem: Problem) -> Response {
    problem
        .into_response()
        .with_header(ACCEPT_ENCODING, OUR_CODINGS)
}

#[cfg(test)]
mod tests;
