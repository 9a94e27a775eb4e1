//! From a resource and a request to the response: the one place that makes it.
//!
//! Source: RFC 9110 §13.2.2 (order of conditions), §14.2 (`Range` counts for
//! GET alone), §15.3.7 (206), §15.4.5 (304), §15.5.17 (416).

use std::ops::Range;
use std::sync::Arc;

use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE, VARY,
};
use http::{Method, StatusCode};

use super::conditional::{Outcome, evaluate};
use super::encoding::{Encoding, choose};
use super::multipart::{Multipart, boundary};
use super::range::{Parts, Selection};
use super::representation::{Representation, Resource};
use crate::body::Body;
use crate::limits::Reject;
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse as _, Response};
use crate::server::{count_rejected, with_limits};

/// Answers a GET or HEAD request for `resource`.
pub(super) fn respond(resource: &Resource, request: &Request) -> Response {
    let encoding = if resource.varies {
        choose(
            request.headers().get_all(ACCEPT_ENCODING).iter(),
            |encoding| resource.stored[encoding as usize].is_some(),
        )
    } else {
        Encoding::Identity
    };
    let answer = Answer {
        resource,
        representation: resource.representation(encoding),
    };
    if asks_plainly(request) {
        return answer.whole();
    }
    let headers = request.headers();
    match evaluate(headers, answer.representation.validators()) {
        Outcome::NotModified => answer.not_modified(),
        Outcome::Failed => Problem::new(StatusCode::PRECONDITION_FAILED)
            .with_detail("the file is not the one that the request is for")
            .into_response(),
        Outcome::Proceed { with_range } => {
            let mut ranges = headers.get_all(RANGE).iter();
            match (ranges.next(), ranges.next()) {
                (Some(range), None) if with_range && request.method() == Method::GET => {
                    answer.ranges(range.as_bytes())
                }
                _ => answer.whole(),
            }
        }
    }
}

/// Whether no header asks for anything but the whole, in one pass.
fn asks_plainly(request: &Request) -> bool {
    // `If-Range` says nothing without `Range`.
    static ASKING: [HeaderName; 5] = [
        RANGE,
        IF_NONE_MATCH,
        IF_MODIFIED_SINCE,
        IF_MATCH,
        IF_UNMODIFIED_SINCE,
    ];
    !request.head().has_any_field(&ASKING)
}

/// A resource, and which of its forms is to be sent.
struct Answer<'a> {
    resource: &'a Resource,
    representation: &'a Representation,
}

impl Answer<'_> {
    /// 200.
    fn whole(&self) -> Response {
        self.with_body(self.body(0..self.representation.size()))
    }

    /// 304 with what a cache needs.
    fn not_modified(&self) -> Response {
        let mut response = Response::new(StatusCode::NOT_MODIFIED);
        let headers = response.headers_mut();
        for (name, value) in self.representation.head.fields() {
            if [ETAG, VARY, CACHE_CONTROL].contains(name) {
                headers.insert(name, value.clone());
            }
        }
        response
    }

    /// 206 or 416, or 200 where the ranges are none that we answer.
    fn ranges(&self, header: &[u8]) -> Response {
        let size = self.representation.size();
        let max_ranges = with_limits(|limits| limits.max_ranges);
        match Selection::new(header, size, max_ranges) {
            Selection::Whole => self.whole(),
            Selection::TooMany => {
                count_rejected(Reject::Ranges);
                self.whole()
            }
            Selection::Unsatisfiable => Problem::new(StatusCode::RANGE_NOT_SATISFIABLE)
                .with_detail("no byte of the ranges is in the file")
                .into_response()
                .with_header(CONTENT_RANGE, content_range(None, size)),
            Selection::Parts(parts) => match &parts[..] {
                [part] => self.one_part(part.clone()),
                // The coding would be that of the parts together, which it is not.
                _ if self.representation.encoding != Encoding::Identity => self.whole(),
                _ => self.several_parts(&parts),
            },
        }
    }

    fn one_part(&self, part: Range<u64>) -> Response {
        let range = content_range(Some(&part), self.representation.size());
        self.with_body(self.body(part))
            .with_status(StatusCode::PARTIAL_CONTENT)
            .with_header(CONTENT_RANGE, range)
    }

    fn several_parts(&self, parts: &Parts) -> Response {
        let boundary = boundary();
        let body = Multipart::new(
            &boundary,
            parts,
            &self.representation.content,
            self.representation.size(),
            &self.resource.content_type,
        );
        let kind = HeaderValue::try_from(format!("multipart/byteranges; boundary={boundary}"));
        self.with_body(Body::custom(body))
            .with_status(StatusCode::PARTIAL_CONTENT)
            .with_header(CONTENT_TYPE, kind.expect("a boundary is hexadecimal"))
    }

    fn body(&self, range: Range<u64>) -> Body {
        self.representation.content.body(range)
    }

    fn with_body(&self, body: Body) -> Response {
        Response::with_shared_head(Arc::clone(&self.representation.head), body)
    }
}

/// `bytes first-last/size`, or `bytes */size`.
fn content_range(part: Option<&Range<u64>>, size: u64) -> HeaderValue {
    let text = match part {
        Some(part) => format!("bytes {}-{}/{size}", part.start, part.end - 1),
        None => format!("bytes */{size}"),
    };
    HeaderValue::try_from(text).expect("digits are a header value")
}
