//! The answers to requests that a route's schemas refuse.
//!
//! Guarantee: at most [`MAX_VALIDATION_ERRORS`] errors of the query and as many
//! of the body, of [`MAX_VALIDATION_TEXT_BYTES`] each, and no value of the request in them:
//! an error says where it is and what was expected.

use http::header::ACCEPT;
use http::{HeaderValue, StatusCode};
use jsonschema::{ValidationError, Validator};
use serde::Serialize;
use serde_json::Value;

use crate::body::Body;
use crate::limits::{
    MAX_JSON_DEPTH, MAX_LISTED_DOCUMENT_BYTES, MAX_VALIDATION_ERRORS, MAX_VALIDATION_TEXT_BYTES,
    Reject,
};
use crate::problem::{PROBLEM_JSON, Problem, is_too_deep};
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
    let is_too_deep = is_too_deep(error);
    let mut response = document(&Document {
        line: Some(error.line()),
        column: Some(error.column()),
        limit: is_too_deep.then_some("json_depth"),
        limit_value: is_too_deep.then_some(MAX_JSON_DEPTH),
        ..Document::new(StatusCode::BAD_REQUEST, error.to_string())
    });
    if is_too_deep {
        response.extensions_mut().insert(Reject::JsonDepth);
    }
    response
}

/// 400: the query is not percent-encoded UTF-8, or has too many parameters.
#[cold]
pub(super) fn bad_query(problem: Problem) -> Response {
    problem.into_response()
}

/// What is wrong with one part of a request, as far as it is listed.
#[derive(Debug)]
pub(super) struct Faults {
    place: Place,
    /// The rule that is broken, after "the query" or "the body".
    rule: &'static str,
    errors: Vec<Entry>,
    num_more_errors: usize,
    /// Whether the document was too large for more than its first error.
    is_cut: bool,
}

impl Faults {
    /// What `validator` finds wrong with `value`.
    ///
    /// `num_bytes` is the size of the text that `value` was read from. The
    /// errors of a large document are not counted: each costs more memory than
    /// the two bytes that can cause it.
    #[cold]
    pub(super) fn of(place: Place, validator: &Validator, value: &Value, num_bytes: usize) -> Self {
        let is_cut = num_bytes > MAX_LISTED_DOCUMENT_BYTES;
        let mut errors = Vec::new();
        let mut num_more_errors = 0;
        let entry = |error| Entry::of(place, error);
        if !is_cut {
            let mut found = validator.iter_errors(value);
            errors.extend(found.by_ref().take(MAX_VALIDATION_ERRORS).map(entry));
            num_more_errors = found.count();
        } else if let Err(error) = validator.validate(value) {
            errors.push(entry(error));
        }
        Self {
            place,
            rule: "does not match the schema of this route",
            errors,
            num_more_errors,
            is_cut,
        }
    }

    /// The schema accepts the value, the handler's type does not.
    #[cold]
    pub(super) fn unfit(place: Place, error: &serde_json::Error) -> Self {
        let entry = Entry {
            r#in: place.name(),
            instance_path: String::new(),
            schema_path: String::new(),
            message: cut(error.to_string()),
        };
        Self {
            place,
            rule: "does not have the form that this route expects",
            errors: vec![entry],
            num_more_errors: 0,
            is_cut: false,
        }
    }
}

/// 422: lists what is wrong with the query, with the body, or with both.
#[cold]
pub(super) fn invalid(query: Option<Faults>, body: Option<Faults>) -> Response {
    let mut details = Vec::new();
    let mut errors = Vec::new();
    let mut num_more_errors = 0;
    for faults in [query, body].into_iter().flatten() {
        let Faults { place, rule, .. } = faults;
        let only = if faults.is_cut {
            format!("; only the first error above {MAX_LISTED_DOCUMENT_BYTES} bytes is listed")
        } else {
            String::new()
        };
        details.push(format!("the {place} {rule}{only}"));
        num_more_errors += faults.num_more_errors;
        errors.extend(faults.errors);
    }
    document(&Document {
        errors: Some(errors),
        num_more_errors: (num_more_errors > 0).then_some(num_more_errors),
        ..Document::new(StatusCode::UNPROCESSABLE_ENTITY, details.join(", and "))
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
    limit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_value: Option<u64>,
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
            limit: None,
            limit_value: None,
            errors: None,
            num_more_errors: None,
        }
    }
}

/// One error of a document: `query` or `body`, two JSON pointers into it
/// (RFC 6901) and a sentence.
#[derive(Debug, Serialize)]
struct Entry {
    r#in: &'static str,
    instance_path: String,
    schema_path: String,
    message: String,
}

impl Entry {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "made to be mapped over an iterator of errors"
    )]
    fn of(place: Place, error: ValidationError<'_>) -> Self {
        Self {
            r#in: place.name(),
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
