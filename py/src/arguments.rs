//! The fast path from a request to a target's arguments.
//!
//! Guarantee: a value is made here only where Python's slow path would make
//! the same one; whatever is missing, repeated in an unusual way or oddly
//! spelt goes there.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderName;
use http::header::{CONTENT_TYPE, COOKIE};
use justapi_core::Request;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyList, PyString};
use smallvec::SmallVec;

use crate::decode::decode;
use crate::route::{Coercion, Input, Plan, Source};
use crate::shape_decode::decode_shaped;

/// Arguments of one call; most targets take few.
pub(crate) type Arguments<'py> = SmallVec<[Bound<'py, PyAny>; 6]>;

/// The slow path has to decide.
#[derive(Debug)]
pub(crate) struct NeedsSlowPath;

/// Takes the inputs out of `request`, all but those of the exchange.
///
/// `None` stands for the exchange's inputs, which have to be filled in.
pub(crate) fn collect<'py>(
    py: Python<'py>,
    plan: &Plan,
    request: &Request,
    body: &Bytes,
) -> Result<SmallVec<[Option<Bound<'py, PyAny>>; 6]>, NeedsSlowPath> {
    let query: Query<'_> = if plan.needs_query {
        parse_query(request.query().unwrap_or_default())?
    } else {
        SmallVec::new()
    };
    plan.inputs
        .iter()
        .map(|input| value(py, input, request, &query, body))
        .collect()
}

type Query<'a> = SmallVec<[(Cow<'a, str>, Cow<'a, str>); 8]>;

fn value<'py>(
    py: Python<'py>,
    input: &Input,
    request: &Request,
    query: &Query<'_>,
    body: &Bytes,
) -> Result<Option<Bound<'py, PyAny>>, NeedsSlowPath> {
    let found = match &input.source {
        Source::Exchange => return Ok(None),
        Source::Path(name) => request.param(name).map(|text| coerce(py, input, text)),
        Source::Query(name) => {
            let values = query.iter().rev();
            let mut values = values.filter(|(known, _)| known == name);
            values.next().map(|(_, value)| coerce(py, input, value))
        }
        Source::QueryList(name) => {
            let values = query.iter().filter(|(known, _)| known == name);
            let list = PyList::empty(py);
            for (_, value) in values {
                list.append(value.as_ref()).map_err(|_| NeedsSlowPath)?;
            }
            (!list.is_empty()).then(|| converted(input, list.into_any()))
        }
        Source::Header(name) => match fields(request, name).next() {
            Some(value) => Some(coerce(py, input, ascii(value)?)),
            None => None,
        },
        Source::HeaderList(name) => {
            let list = PyList::empty(py);
            for value in fields(request, name) {
                list.append(ascii(value)?).map_err(|_| NeedsSlowPath)?;
            }
            (!list.is_empty()).then(|| converted(input, list.into_any()))
        }
        Source::Cookie(name) => cookie(request, name)?.map(|text| coerce(py, input, text)),
        Source::Body => {
            if body.is_empty() {
                None
            } else if is_json(request) {
                Some(json_body(py, input, body))
            } else {
                return Err(NeedsSlowPath);
            }
        }
    };
    match found {
        Some(value) => value.map(Some),
        None if input.is_required => Err(NeedsSlowPath),
        None => Ok(Some(input.default.bind(py).clone())),
    }
}

/// Pairs of a query, decoded as `application/x-www-form-urlencoded`.
fn parse_query(query: &str) -> Result<Query<'_>, NeedsSlowPath> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode_form(name)?, decode_form(value)?))
        })
        .collect()
}

fn decode_form(text: &str) -> Result<Cow<'_, str>, NeedsSlowPath> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Ok(Cow::Borrowed(text));
    }
    let spaced = text.replace('+', " ");
    let decoded: Vec<u8> = percent_encoding::percent_decode_str(&spaced).collect();
    // What is not UTF-8 is replaced there, not refused.
    String::from_utf8(decoded)
        .map(Cow::Owned)
        .map_err(|_| NeedsSlowPath)
}

fn fields<'a>(request: &'a Request, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let name = name.clone();
    request.fields().filter_map(move |(known, value)| {
        known
            .eq_ignore_ascii_case(name.as_str().as_bytes())
            .then_some(value)
    })
}

/// A header value as text; others than ASCII are Latin-1 there.
fn ascii(value: &[u8]) -> Result<&str, NeedsSlowPath> {
    if !value.is_ascii() {
        return Err(NeedsSlowPath);
    }
    std::str::from_utf8(value).map_err(|_| NeedsSlowPath)
}

/// The cookie of that name, if its spelling is plain and it came once.
fn cookie<'a>(request: &'a Request, name: &str) -> Result<Option<&'a str>, NeedsSlowPath> {
    let mut found = None;
    for line in fields(request, &COOKIE) {
        for pair in ascii(line)?.split(';') {
            let Some((known, value)) = pair.split_once('=') else {
                continue;
            };
            if known.trim() != name {
                continue;
            }
            let value = value.trim();
            if found.is_some() || value.contains('"') {
                return Err(NeedsSlowPath);
            }
            found = Some(value);
        }
    }
    Ok(found)
}

/// Whether the body says that it is JSON.
fn is_json(request: &Request) -> bool {
    let Some(value) = fields(request, &CONTENT_TYPE).next() else {
        return false;
    };
    let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
    essence
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/json")
}

fn json_body<'py>(
    py: Python<'py>,
    input: &Input,
    body: &Bytes,
) -> Result<Bound<'py, PyAny>, NeedsSlowPath> {
    if let Coercion::Json(root) = input.coercion
        && let Ok(value) = decode(py, body, root)
    {
        return Ok(value);
    }
    if let Some(shape) = &input.shape
        && let Ok(value) = decode_shaped(py, body, shape)
    {
        return Ok(value);
    }
    converted(input, PyBytes::new(py, body).into_any())
}

fn coerce<'py>(
    py: Python<'py>,
    input: &Input,
    text: &str,
) -> Result<Bound<'py, PyAny>, NeedsSlowPath> {
    match input.coercion {
        Coercion::Text => return Ok(PyString::new(py, text).into_any()),
        Coercion::Int => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            if (1..=18).contains(&digits.len())
                && digits.bytes().all(|byte| byte.is_ascii_digit())
                && let Ok(number) = text.parse::<i64>()
                && input.bounds.contains(&number)
                && let Ok(number) = number.into_pyobject(py)
            {
                return Ok(number.into_any());
            }
        }
        Coercion::Float => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            if (1..=30).contains(&digits.len())
                && digits.starts_with(|first: char| first.is_ascii_digit())
                && digits.ends_with(|last: char| last.is_ascii_digit())
                && digits
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || byte == b'.')
                && let Ok(number) = text.parse::<f64>()
            {
                return Ok(PyFloat::new(py, number).into_any());
            }
        }
        Coercion::Bool => match text {
            "true" | "1" => return Ok(PyBool::new(py, true).to_owned().into_any()),
            "false" | "0" => return Ok(PyBool::new(py, false).to_owned().into_any()),
            _ => {}
        },
        Coercion::Call | Coercion::Json(_) => {}
        Coercion::Unknown => return Err(NeedsSlowPath),
    }
    converted(input, PyString::new(py, text).into_any())
}

fn converted<'py>(
    input: &Input,
    value: Bound<'py, PyAny>,
) -> Result<Bound<'py, PyAny>, NeedsSlowPath> {
    match &input.convert {
        Some(convert) => convert
            .bind(value.py())
            .call1((value,))
            .map_err(|_| NeedsSlowPath),
        None => Ok(value),
    }
}
