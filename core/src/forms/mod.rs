//! Bodies of HTML forms: urlencoded fields, and multipart with files.
//!
//! Guarantee: a form that is too large, malformed or of another type is an
//! answer of 413, 400 or 415; memory is bounded by the limits, not by what the
//! client sends.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod multipart;
mod parameters;
mod urlencoded;

use std::future::Future;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

pub use self::multipart::{Multipart, Part};
use self::parameters::{Parameters, split_value};
pub use self::urlencoded::Form;
use crate::error::FormError;
use crate::limits::{Limits, Reject};
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse, Response};
use crate::server::with_limits;

const URLENCODED: &str = "application/x-www-form-urlencoded";

/// Bounds of one form; a body's size has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FormLimits {
    /// Fields of a form, or parts of a multipart one.
    pub max_fields: usize,
    /// Bytes of a name or value, or of a part that is no file.
    pub max_field_bytes: usize,
    /// Bytes of a part that is a file.
    pub max_file_bytes: u64,
    /// Bytes of the header lines of a part, and of what may stand around parts.
    pub max_header_bytes: usize,
}

impl FormLimits {
    /// The defaults of a server.
    pub const DEFAULT: Self = Self::of(&Limits::DEFAULT);

    /// The limits of the server that the calling thread belongs to; the
    /// defaults elsewhere than on a lane.
    pub fn current() -> Self {
        with_limits(Self::of)
    }

    const fn of(limits: &Limits) -> Self {
        Self {
            max_fields: limits.max_form_fields,
            max_field_bytes: limits.max_form_field_bytes,
            max_file_bytes: limits.max_form_file_bytes,
            max_header_bytes: limits.max_form_header_bytes,
        }
    }
}

impl Request {
    /// Reads the body to its end as urlencoded fields, as `T`.
    ///
    /// `T` is a struct of fields, or a list of pairs of strings.
    ///
    /// # Errors
    /// [`FormError`], which is a response too.
    pub fn form<T: DeserializeOwned>(self) -> impl Future<Output = Result<T, FormError>> + Send {
        let checked = check_urlencoded(self.headers());
        let limits = FormLimits::current();
        let body = self.into_body();
        async move {
            checked?;
            urlencoded::deserialize(&urlencoded::read(body, &limits).await?)
        }
    }

    /// Reads the body to its end as urlencoded fields, in their order.
    ///
    /// # Errors
    /// [`FormError`], which is a response too.
    pub fn form_fields(self) -> impl Future<Output = Result<Form, FormError>> + Send {
        let checked = check_urlencoded(self.headers());
        let limits = FormLimits::current();
        let body = self.into_body();
        async move {
            checked?;
            Ok(Form::of_checked(&urlencoded::read(body, &limits).await?))
        }
    }

    /// Streams the body as the parts of `multipart/form-data`.
    ///
    /// # Errors
    /// [`FormError::ContentType`] for another type, [`FormError::Malformed`]
    /// for a boundary that cannot be one.
    pub fn multipart(self) -> Result<Multipart, FormError> {
        let boundary = multipart_boundary(self.headers())?;
        Ok(Multipart::new(
            self.into_body(),
            &boundary,
            FormLimits::current(),
        ))
    }
}

/// The one `Content-Type` of a request.
fn content_type<'a>(headers: &'a HeaderMap, expected: &'static str) -> Result<&'a [u8], FormError> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value.as_bytes()),
        _ => Err(FormError::ContentType { expected }),
    }
}

fn check_urlencoded(headers: &HeaderMap) -> Result<(), FormError> {
    let (media_type, _) = split_value(content_type(headers, URLENCODED)?);
    // The charset says nothing: such a form is UTF-8 (WHATWG URL §5.1).
    if media_type.eq_ignore_ascii_case(URLENCODED.as_bytes()) {
        return Ok(());
    }
    Err(FormError::ContentType {
        expected: URLENCODED,
    })
}

/// The boundary of a `multipart/form-data` request (RFC 2046 §5.1.1).
fn multipart_boundary(headers: &HeaderMap) -> Result<Vec<u8>, FormError> {
    const EXPECTED: &str = "multipart/form-data";
    /// Longest boundary (RFC 2046 §5.1.1).
    const MAX_BOUNDARY_BYTES: usize = 70;
    let (media_type, parameters) = split_value(content_type(headers, EXPECTED)?);
    if !media_type.eq_ignore_ascii_case(EXPECTED.as_bytes()) {
        return Err(FormError::ContentType { expected: EXPECTED });
    }
    let malformed = |reason| FormError::Malformed { reason };
    let mut boundary = None;
    for parameter in Parameters(parameters) {
        let (name, value) =
            parameter.map_err(|_| malformed("the parameters of Content-Type are malformed"))?;
        if name.eq_ignore_ascii_case(b"boundary") && boundary.replace(value).is_some() {
            return Err(malformed("Content-Type has two boundaries"));
        }
    }
    let boundary = boundary.ok_or(malformed("Content-Type has no boundary"))?;
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
    if boundary.is_empty() || boundary.len() > MAX_BOUNDARY_BYTES {
        return Err(malformed("the boundary has not 1 to 70 characters"));
    }
    // WebKit and others stay inside this set, so nothing real is refused.
    if !boundary.iter().all(is_allowed) || boundary.ends_with(b" ") {
        return Err(malformed(
            "the boundary has a character that it may not have",
        ));
    }
    Ok(boundary.into_owned())
}

impl FormError {
    const fn limit(reject: Reject, name: &'static str, limit: u64) -> Self {
        Self::Limit {
            reject,
            name,
            limit,
        }
    }
}

impl IntoResponse for FormError {
    fn into_response(self) -> Response {
        let problem = match self {
            Self::Body(error) => return error.into_response(),
            Self::ContentType { expected } => Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE)
                .with_detail(format!("the body is not {expected}")),
            Self::Malformed { reason } => Problem::new(StatusCode::BAD_REQUEST).with_detail(reason),
            Self::Fields { source } => {
                Problem::new(StatusCode::BAD_REQUEST).with_detail(source.to_string())
            }
            Self::Limit {
                reject,
                name,
                limit,
            } => {
                let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE)
                    .with_detail("the form is larger than this server accepts")
                    .with_limit(name, limit);
                let mut response = problem.into_response();
                response.extensions_mut().insert(reject);
                return response;
            }
        };
        problem.into_response()
    }
}
