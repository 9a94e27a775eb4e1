//! From what Python answers to a response of core.
//!
//! Guarantee: a header that HTTP does not allow is an error of the
//! application, never bytes on the wire; a short answer leaves whole.

use std::fs::File;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderName, HeaderValue, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use justapi_core::{Body, BodyError, IntoResponse as _, Problem, Response};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::awaitable::Ready;
use crate::event_loop::EventLoop;
use crate::exchange::{Exchange, kind, left};
use crate::json;
use crate::mount::Mount;
use crate::route::Plan;
use crate::shared::{Outcome, report};
use crate::stream::{Pushed, Stream, StreamBody};

/// The head of an answer that waits for its first body message.
#[derive(Default)]
pub(crate) struct Start(Option<Response>);

/// Makes the response of a result that is no response itself.
pub(crate) fn encoded(plan: &Plan, result: &Bound<'_, PyAny>) -> PyResult<Response> {
    let py = result.py();
    let bytes = match &plan.encode {
        Some(encode) => {
            let encoded = encode.bind(py).call1((result,))?;
            Bytes::copy_from_slice(encoded.cast::<PyBytes>()?.as_bytes())
        }
        None => json::encode(result, Some(plan.encode_default.bind(py)))?,
    };
    let mut response = match &plan.media_type {
        Some(media_type) => Response::with_content(media_type.clone(), bytes.into()),
        None => Response::new(StatusCode::OK).with_body(bytes),
    };
    if plan.status != 200 {
        response = response.with_status(status(plan.status)?);
    }
    Ok(response)
}

/// What a returned object is.
pub(crate) enum Shape {
    /// A value to encode.
    Value,
    /// A response with its whole body.
    Whole(Response),
    /// A response that sends itself over ASGI.
    Callable,
}

/// Looks at what a handler returned.
///
/// `is_head`: the request was `HEAD`.
pub(crate) fn shape(
    mount: &Arc<Mount>,
    object: &Bound<'_, PyAny>,
    is_head: bool,
) -> PyResult<Shape> {
    let py = object.py();
    if !object.is_instance(mount.response_class.bind(py))? {
        let is_response = object.is_callable()
            && object.hasattr(intern!(py, "raw_headers"))?
            && object.hasattr(intern!(py, "status_code"))?;
        return Ok(if is_response {
            Shape::Callable
        } else {
            Shape::Value
        });
    }
    if object.getattr(intern!(py, "streaming"))?.is_truthy()? {
        return Ok(Shape::Callable);
    }
    let body = object.getattr(intern!(py, "body"))?;
    let Ok(body) = body.cast::<PyBytes>() else {
        return Ok(Shape::Callable);
    };
    let status: u16 = object.getattr(intern!(py, "status_code"))?.extract()?;
    let headers = object.getattr(intern!(py, "raw_headers"))?;
    let response = head(status, &headers)?;
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let is_followed = !object.getattr(intern!(py, "_after"))?.is_none()
        || !object.getattr(intern!(py, "background"))?.is_none();
    let body = if is_followed {
        Body::custom(Followed {
            bytes: Some(bytes),
            response: Some(object.clone().unbind()),
            mount: Arc::clone(mount),
        })
    } else {
        whole(&response, bytes, is_head)
    };
    Ok(Shape::Whole(response.with_body(body)))
}

fn status(code: u16) -> PyResult<StatusCode> {
    StatusCode::from_u16(code)
        .map_err(|_| PyValueError::new_err(format!("{code} is no HTTP status code")))
}

/// A response without body of `headers`: pairs of bytes.
pub(crate) fn head(code: u16, headers: &Bound<'_, PyAny>) -> PyResult<Response> {
    let mut response = Response::new(status(code)?);
    let map = response.headers_mut();
    let mut add = |pair: &Bound<'_, PyAny>| -> PyResult<()> {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        let (name, value) = (octets(&name)?, octets(&value)?);
        let name = HeaderName::from_bytes(&name).map_err(|_| bad_header("name", &name))?;
        let value = HeaderValue::from_bytes(&value).map_err(|_| bad_header("value", &value))?;
        if name != CONTENT_LENGTH {
            map.append(name, value);
        } else if map.insert(name, value).is_some() {
            return Err(PyValueError::new_err("more than one content-length"));
        }
        Ok(())
    };
    if let Ok(list) = headers.cast::<PyList>() {
        list.iter().try_for_each(|pair| add(&pair))?;
    } else {
        for pair in headers.try_iter()? {
            add(&pair?)?;
        }
    }
    Ok(response)
}

fn octets(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match value.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => value
            .extract::<Vec<u8>>()
            .map_err(|_| PyTypeError::new_err("header names and values of a response are bytes")),
    }
}

fn bad_header(part: &str, text: &[u8]) -> PyErr {
    let shown = String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned();
    PyValueError::new_err(format!("{shown:?} is no valid header {part}"))
}

/// ASGI's `send` of an HTTP exchange.
pub(crate) fn send<'py>(
    exchange: &Exchange,
    message: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = message.py();
    let kind = kind(message)?;
    let item = |name: &Bound<'py, pyo3::types::PyString>| message.get_item(name);
    match kind.to_str()? {
        "http.response.start" => {
            let code = item(intern!(py, "status"))?
                .ok_or_else(|| PyValueError::new_err("a start without a status"))?
                .extract()?;
            let made = match item(intern!(py, "headers"))? {
                Some(headers) if !headers.is_none() => head(code, &headers)?,
                _ => Response::new(status(code)?),
            };
            let mut start = lock(exchange.start());
            if start.0.is_some() || exchange.shared().is_answered() {
                return Err(out_of_order("http.response.start"));
            }
            start.0 = Some(made);
            Ready::of(py, None)
        }
        "http.response.body" => {
            let chunk = match item(intern!(py, "body"))? {
                Some(body) => chunk(&body)?,
                None => Bytes::new(),
            };
            let more = match item(intern!(py, "more_body"))? {
                Some(more) => more.is_truthy()?,
                None => false,
            };
            send_body(py, exchange, chunk, more)
        }
        "http.response.pathsend" => {
            let path: std::path::PathBuf = item(intern!(py, "path"))?
                .ok_or_else(|| PyValueError::new_err("a pathsend without a path"))?
                .extract()?;
            let Some(response) = lock(exchange.start()).0.take() else {
                return Err(out_of_order("http.response.pathsend"));
            };
            let file = File::open(path)?;
            let length = file.metadata()?.len();
            let body = Body::file(Arc::new(file), 0..length);
            exchange
                .shared()
                .settle(Outcome::Response(response.with_body(body)));
            Ready::of(py, None)
        }
        // Extensions that a server does not know are an error of the caller.
        other => Err(PyValueError::new_err(format!(
            "{other:?} is no message of an HTTP response"
        ))),
    }
}

fn lock(start: &Mutex<Start>) -> std::sync::MutexGuard<'_, Start> {
    start.lock().unwrap_or_else(PoisonError::into_inner)
}

fn out_of_order(kind: &str) -> PyErr {
    PyRuntimeError::new_err(format!("unexpected ASGI message {kind:?}"))
}

fn chunk(body: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = body.cast::<PyBytes>() {
        return Ok(Bytes::copy_from_slice(bytes.as_bytes()));
    }
    let bytes: Vec<u8> = body
        .extract()
        .map_err(|_| PyTypeError::new_err("the body of a message is bytes"))?;
    Ok(bytes.into())
}

fn send_body<'py>(
    py: Python<'py>,
    exchange: &Exchange,
    chunk: Bytes,
    more: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let shared = exchange.shared();
    let start = lock(exchange.start()).0.take();
    if let Some(response) = start {
        if !more {
            let body = whole(&response, chunk, exchange.is_head());
            shared.settle(Outcome::Response(response.with_body(body)));
            return Ready::of(py, None);
        }
        let stream = Arc::new(Stream::default());
        let body = Body::custom(StreamBody::new(&stream, shared));
        shared.set_stream(&stream);
        shared.settle(Outcome::Response(response.with_body(body)));
        return push(py, &stream, chunk, false);
    }
    match shared.stream() {
        Some(stream) => push(py, &stream, chunk, !more),
        None if shared.has_left() => Err(left()),
        None if shared.is_answered() => Err(out_of_order("http.response.body")),
        None => Err(PyRuntimeError::new_err(
            "http.response.body before http.response.start",
        )),
    }
}

fn push<'py>(
    py: Python<'py>,
    stream: &Arc<Stream>,
    chunk: Bytes,
    is_last: bool,
) -> PyResult<Bound<'py, PyAny>> {
    match stream.push(chunk, is_last) {
        Pushed::Taken => Ready::of(py, None),
        Pushed::Unwanted => Err(left()),
        Pushed::Full => {
            let future = EventLoop::of_lane()?.create_future(py)?;
            stream.wait_for_room(future.clone().unbind());
            Ok(future)
        }
    }
}

/// The body of an answer that is all there.
///
/// To `HEAD` an application may answer with the length of a body that it does
/// not send.
fn whole(response: &Response, bytes: Bytes, is_head: bool) -> Body {
    if is_head && bytes.is_empty() {
        let length = response.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if let Some(length) = length {
            return Body::custom(Announced(length));
        }
    }
    Body::from(bytes)
}

/// A body of this length that is never sent.
struct Announced(u64);

impl HttpBody for Announced {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

/// The answer where the application has failed, and what failed it is logged.
pub(crate) fn server_error() -> Response {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR).into_response()
}

/// What `receive` raises for a body that breaks a limit.
pub(crate) fn body_error(py: Python<'_>, error: &BodyError) -> PyErr {
    let status = error_status(error);
    let made = py
        .import(intern!(py, "justapi._lane"))
        .and_then(|module| module.getattr(intern!(py, "body_error")))
        .and_then(|make| make.call1((status, error.to_string())));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

fn error_status(error: &BodyError) -> u16 {
    Problem::from(error).status().as_u16()
}

/// A whole body, and what is to be started when it has been sent.
struct Followed {
    bytes: Option<Bytes>,
    /// The response object, which knows what follows it.
    response: Option<Py<PyAny>>,
    mount: Arc<Mount>,
}

impl HttpBody for Followed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let bytes = self.bytes.take().filter(|bytes| !bytes.is_empty());
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let Some(response) = self.response.take() else {
            return;
        };
        Python::attach(|py| {
            let start = self.mount.helpers.start_after.bind(py);
            if let Some(event_loop) = EventLoop::current() {
                report(py, event_loop.call_soon(py, start, response.bind(py)));
            }
        });
    }
}
