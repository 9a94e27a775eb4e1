//! Heads of answers as Python gives them, and those that come again and again.
//!
//! Guarantees: a name or value that HTTP does not allow is an error; the
//! memory is bounded, whatever applications answer: each head has one place,
//! and the next that has the same place replaces it.

use std::cell::RefCell;

use http::header::{CONTENT_LENGTH, HeaderMap};
use http::{HeaderName, HeaderValue, StatusCode};
use justapi_core::{Response, SharedFields};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use smallvec::SmallVec;

/// Heads that a thread remembers, a power of two.
const NUM_PLACES: usize = 64;
/// Longest head in bytes that is remembered.
const MAX_KEPT_BYTES: usize = 1024;

thread_local! {
    static PLACES: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// The head of an answer whose body is not known yet.
pub(crate) struct Head {
    response: Response,
    /// Length of the body, as the application announces it.
    length: Option<u64>,
}

impl Head {
    /// A head without fields.
    pub(crate) fn of_status(code: u16) -> PyResult<Self> {
        Ok(Self {
            response: Response::new(status(code)?),
            length: None,
        })
    }

    /// A head with `fields`: pairs of bytes.
    pub(crate) fn read(code: u16, fields: &Bound<'_, PyAny>) -> PyResult<Self> {
        let status = status(code)?;
        let fields = Fields::read(fields)?;
        let length = fields.length;
        let mut response = fields.response()?;
        if status != StatusCode::OK {
            response = response.with_status(status);
        }
        Ok(Self { response, length })
    }

    pub(crate) const fn length(&self) -> Option<u64> {
        self.length
    }

    /// For a body that says itself how long it is.
    pub(crate) fn into_response(self) -> Response {
        self.response
    }

    /// For a body that does not: with the length that was announced.
    pub(crate) fn announcing(self) -> Response {
        match self.length {
            Some(length) => self.response.with_header(CONTENT_LENGTH, length.into()),
            None => self.response,
        }
    }

    /// With what `change` makes of the response.
    pub(crate) fn try_map(
        self,
        change: impl FnOnce(Response) -> PyResult<Response>,
    ) -> PyResult<Self> {
        Ok(Self {
            response: change(self.response)?,
            length: self.length,
        })
    }
}

pub(crate) fn status(code: u16) -> PyResult<StatusCode> {
    StatusCode::from_u16(code)
        .map_err(|_| PyValueError::new_err(format!("{code} is no HTTP status code")))
}

/// Fields as Python gives them, one behind the other.
#[derive(Default)]
struct Fields {
    /// Of each its lengths, its name and its value.
    bytes: SmallVec<[u8; 512]>,
    length: Option<u64>,
    has_length: bool,
}

impl Fields {
    fn read(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut fields = Self::default();
        if let Ok(list) = given.cast::<PyList>() {
            list.iter().try_for_each(|pair| fields.add(&pair))?;
        } else {
            for pair in given.try_iter()? {
                fields.add(&pair?)?;
            }
        }
        Ok(fields)
    }

    fn add(&mut self, pair: &Bound<'_, PyAny>) -> PyResult<()> {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        octets(&name, |name| octets(&value, |value| self.push(name, value)))??
    }

    fn push(&mut self, name: &[u8], value: &[u8]) -> PyResult<()> {
        if name.eq_ignore_ascii_case(b"content-length") {
            if std::mem::replace(&mut self.has_length, true) {
                return Err(PyValueError::new_err("more than one content-length"));
            }
            let text = std::str::from_utf8(value).ok();
            self.length = text.and_then(|text| text.parse().ok());
            if self.length.is_none() {
                // It announces nothing, but has to be a value.
                field_value(value)?;
            }
            return Ok(());
        }
        for length in [name.len(), value.len()] {
            self.bytes.extend_from_slice(&(length as u32).to_ne_bytes());
        }
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &*self.bytes;
        std::iter::from_fn(move || {
            let (name, after) = rest.split_first_chunk::<4>()?;
            let (value, after) = after.split_first_chunk::<4>()?;
            let (name, after) = after.split_at(u32::from_ne_bytes(*name) as usize);
            let (value, after) = after.split_at(u32::from_ne_bytes(*value) as usize);
            rest = after;
            Some((name, value))
        })
    }

    /// A response that has them, remembered or new.
    fn response(&self) -> PyResult<Response> {
        if self.bytes.len() > MAX_KEPT_BYTES {
            return self.new_response();
        }
        PLACES.with_borrow_mut(|places| {
            if places.is_empty() {
                places.resize_with(NUM_PLACES, Place::default);
            }
            let fingerprint = fingerprint(&self.bytes);
            let place = &mut places[(fingerprint >> 32) as usize % NUM_PLACES];
            if place.fingerprint != fingerprint {
                // Rendering it pays only if it comes again.
                *place = Place {
                    fingerprint,
                    kept: None,
                };
                return self.new_response();
            }
            if let Some((bytes, shared)) = &place.kept {
                return if **bytes == *self.bytes {
                    Ok(Response::with_shared_fields(shared))
                } else {
                    self.new_response()
                };
            }
            let response = self.new_response()?;
            if let Some(shared) = SharedFields::of(response.headers()) {
                place.kept = Some((Box::from(&*self.bytes), shared));
            }
            Ok(response)
        })
    }

    fn new_response(&self) -> PyResult<Response> {
        let mut response = Response::new(StatusCode::OK);
        let map: &mut HeaderMap = response.headers_mut();
        for (name, value) in self.iter() {
            let made = HeaderName::from_bytes(name).map_err(|_| bad_header("name", name))?;
            map.append(made, field_value(value)?);
        }
        Ok(response)
    }
}

fn field_value(value: &[u8]) -> PyResult<HeaderValue> {
    HeaderValue::from_bytes(value).map_err(|_| bad_header("value", value))
}

fn bad_header(part: &str, text: &[u8]) -> PyErr {
    let shown = String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned();
    PyValueError::new_err(format!("{shown:?} is no valid header {part}"))
}

fn octets<R>(value: &Bound<'_, PyAny>, read: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(read(bytes.as_bytes()));
    }
    let bytes: Vec<u8> = value
        .extract()
        .map_err(|_| PyTypeError::new_err("header names and values of a response are bytes"))?;
    Ok(read(&bytes))
}

/// Where one head is remembered.
#[derive(Default)]
struct Place {
    /// Of the last head that had this place.
    fingerprint: u64,
    /// Its bytes and fields, once it has come twice.
    kept: Option<(Box<[u8]>, SharedFields)>,
}

/// A number that few others have; whoever finds two with the same makes them
/// take turns in one place.
fn fingerprint(bytes: &[u8]) -> u64 {
    // A prime near 2^64 divided by the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c55;
    let mix = |hash: u64, word: [u8; 8]| {
        (hash.rotate_left(23) ^ u64::from_ne_bytes(word)).wrapping_mul(FACTOR)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words
        .iter()
        .fold(bytes.len() as u64, |hash, word| mix(hash, *word));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // Zero is that of an empty place.
    mix(hash, last) | 1
}
