//! The answers to requests that a route's schemas refuse.
//!
//! Guarantee: at most [`MAX_VALIDATION_ERRORS`] errors of at most
//! [`MAX_VALIDATION_TEXT_BYTES`] each, and no value of the request in them:
//! an error says where it is and what was expected.

use http::header::ACCEPT;
use http::{HeaderValue, StatusCode};
use jsonschema::{ValidationError, Validator};
use serde::Serialize;
use serde_json::Value;

use crate::body::Body;
use crate::limits::{MAX_LISTED_DOCUMENT_BYTES, MAX_VALIDATION_ERRORS, MAX_VALIDATION_TEXT_BYTES};
use crate::problem::{PROBLEM_JSON, Problem};
use crate::response::{IntoResponse as _, Response};
use crate::validation::contract::Place;

/// 415: the body does not say that it is JSON.
#[cold]
pub(super) fn not_json() -> Response {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE)
        .with_detail("the body must be JSON, with the Content-Type application/json")
        .into_response()
        .with_header(ACCEPT, HeaderValue::from_static("application/json"))
}

/// 400: the body is not JSON; says line and column.
#[cold]
pub(super) fn malformed(error: &serde_json::Error) -> Response {
    document(&Document {
        line: Some(error.line()),
        column: Some(error.column()),
        ..Document::new(StatusCode::BAD_REQUEST, error.to_string())
    })
}

/// 400: the query is not percent-encoded UTF-8, or has too many parameters.
#[cold]
pub(super) fn bad_query(problem: Problem) -> Response {
    problem.into_response()
}

/// 422: lists what `validator` finds wrong with `value`.
///
/// `num_bytes` is the size of the text that `value` was read from. The errors
/// of a large document are not counted: each costs more memory than the two
/// bytes that can cause it.
#[cold]
pub(super) fn invalid(
    place: Place,
    validator: &Validator,
    value: &Value,
    num_bytes: usize,
) -> Response {
    let is_listed = num_bytes <= MAX_LISTED_DOCUMENT_BYTES;
    let mut errors = Vec::new();
    let mut num_more_errors = 0;
    if is_listed {
        let mut found = validator.iter_errors(value);
        errors.extend(found.by_ref().take(MAX_VALIDATION_ERRORS).map(Entry::of));
        num_more_errors = found.count();
    } else if let Err(error) = validator.validate(value) {
        errors.push(Entry::of(error));
    }
    let rule = format!("the {place} does not match the schema of this route");
    let detail = if is_listed {
        rule
    } else {
        format!("{rule}; only the first error above {MAX_LISTED_DOCUMENT_BYTES} bytes is listed")
    };
    document(&Document {
        errors: Some(errors),
        num_more_errors: (num_more_errors > 0).then_some(num_more_errors),
        ..Document::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    })
}

/// 422: the schema accepts the value, the handler's type does not.
#[cold]
pub(super) fn unfit(place: Place, error: &serde_json::Error) -> Response {
    let entry = Entry {
        instance_path: String::new(),
        schema_path: String::new(),
        message: cut(error.to_string()),
    };
    let detail = format!("the {place} does not have the form that this route expects");
    document(&Document {
        errors: Some(vec![entry]),
        ..Document::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    })
}

/// A problem document (RFC 9457) with extension members.
#[derive(Serialize)]
struct Document {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<Entry>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_more_errors: Option<usize>,
}

impl Document {
    fn new(status: StatusCode, detail: String) -> Self {
        Self {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail,
            line: None,
            column: None,
            errors: None,
            num_more_errors: None,
        }
    }
}

/// One error of a document: two JSON pointers (RFC 6901) and a sentence.
#[derive(Serialize)]
struct Entry {
    instance_path: String,
    schema_path: String,
    message: String,
}

impl Entry {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "made to be mapped over an iterator of errors"
    )]
    fn of(error: ValidationError<'_>) -> Self {
        Self {
            instance_path: cut(error.instance_path().to_string()),
            schema_path: cut(error.schema_path().to_string()),
            message: cut(error.masked().to_string()),
        }
    }
}

/// Shortens a text to [`MAX_VALIDATION_TEXT_BYTES`], and shows that it did.
fn cut(mut text: String) -> String {
    if text.len() > MAX_VALIDATION_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_VALIDATION_TEXT_BYTES));
        text.push('…');
    }
    text
}

fn document(document: &Document) -> Response {
    let bytes = serde_json::to_vec(document).expect("strings and numbers always serialise");
    let status = StatusCode::from_u16(document.status).expect("made of a status code");
    Response::with_content(PROBLEM_JSON, Body::from(bytes)).with_status(status)
}
