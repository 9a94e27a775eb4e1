//! From what Python answers to a response of core.
//!
//! Guarantee: a header that HTTP does not allow is an error of the
//! application, never bytes on the wire; a short answer leaves whole.

use std::fs::File;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use http::header::RETRY_AFTER;
use http_body::{Body as HttpBody, Frame, SizeHint};
use justapi_core::{Body, BodyError, HeaderValue, IntoResponse as _, Problem, Reject, Response};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::awaitable::Ready;
use crate::event_loop::EventLoop;
use crate::exchange::{Exchange, kind, left};
use crate::heads::{Head, status};
use crate::mount::Mount;
use crate::route::Plan;
use crate::shared::{Outcome, report};
use crate::stream::{Pushed, Stream, StreamBody};
use crate::witness::Witness;

/// The head of an answer that waits for its first body message.
#[derive(Default)]
pub(crate) struct Start(Option<Head>);

/// Makes the response of a result that is no response itself.
pub(crate) fn encoded(plan: &Plan, result: &Bound<'_, PyAny>) -> PyResult<Response> {
    let bytes = plan.encode(result)?;
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
/// `is_head`: the request was `HEAD`. `witness` hears of what follows.
pub(crate) fn shape(
    mount: &Arc<Mount>,
    object: &Bound<'_, PyAny>,
    is_head: bool,
    witness: Option<Witness>,
) -> PyResult<Shape> {
    let py = object.py();
    if !object.is_instance(mount.response_class.bind(py))? {
        let is_response = object.is_callable()
            && object.hasattr(intern!(py, "raw_headers"))?
            && object.hasattr(intern!(py, "status_code"))?
            && !is_data(object)?;
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
    let head = Head::read(status, &headers)?;
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let is_followed = !object.getattr(intern!(py, "_after"))?.is_none()
        || !object.getattr(intern!(py, "background"))?.is_none();
    let body = if is_followed {
        if let Some(witness) = &witness {
            witness.begin(object);
        }
        Body::custom(Followed {
            bytes: Some(bytes),
            response: Some(object.clone().unbind()),
            mount: Arc::clone(mount),
            witness,
        })
    } else {
        whole(&head, bytes, is_head)
    };
    Ok(Shape::Whole(head.into_response().with_body(body)))
}

/// Whether it is of a class that declares its fields: a model, a dataclass or
/// a structure, never a response whatever the fields' names are.
fn is_data(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (py, class) = (object.py(), object.get_type());
    Ok(class.hasattr(intern!(py, "__pydantic_fields__"))?
        || class.hasattr(intern!(py, "__dataclass_fields__"))?
        || class.hasattr(intern!(py, "__struct_fields__"))?)
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
                Some(headers) if !headers.is_none() => Head::read(code, &headers)?,
                _ => Head::of_status(code)?,
            };
            let is_outside = item(intern!(py, "justapi.outside"))?.is_some();
            let made = made.try_map(|mut response| {
                if is_outside {
                    response.extensions_mut().insert(Outside);
                    return Ok(response);
                }
                exchange.complete(py, response)
            })?;
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
            let Some(head) = lock(exchange.start()).0.take() else {
                return Err(out_of_order("http.response.pathsend"));
            };
            let file = File::open(path)?;
            let length = file.metadata()?.len();
            let body = Body::file(Arc::new(file), 0..length);
            exchange
                .shared()
                .settle(Outcome::Response(head.into_response().with_body(body)));
            Ready::of(py, None)
        }
        "http.response.debug" if let Some(witness) = exchange.shared().witness() => {
            let info = item(intern!(py, "info"))?;
            witness.debug(py, &info.unwrap_or_else(|| py.None().into_bound(py)))?;
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
    if let Some(head) = start {
        if !more {
            let body = whole(&head, chunk, exchange.is_head());
            shared.settle(Outcome::Response(head.into_response().with_body(body)));
            return Ready::of(py, None);
        }
        let stream = Arc::new(Stream::default());
        let body = Body::custom(StreamBody::new(&stream, shared));
        shared.set_stream(&stream);
        shared.settle(Outcome::Response(head.announcing().with_body(body)));
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
fn whole(head: &Head, bytes: Bytes, is_head: bool) -> Body {
    if is_head
        && bytes.is_empty()
        && let Some(length) = head.length()
    {
        return Body::custom(Announced(length));
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

/// Marks an answer that is made around the middleware, as extension of it.
#[derive(Clone, Copy)]
pub(crate) struct Outside;

/// The answer where the application has failed, and what failed it is logged.
pub(crate) fn server_error() -> Response {
    let mut response = Problem::new(StatusCode::INTERNAL_SERVER_ERROR).into_response();
    response.extensions_mut().insert(Outside);
    response
}

/// The answer while `limit` calls wait for a thread already.
pub(crate) fn queue_is_full(limit: usize) -> Response {
    let mut response = Problem::new(StatusCode::SERVICE_UNAVAILABLE)
        .with_detail("as many requests wait for a thread as may")
        .with_limit("python.thread_queue", limit as u64)
        .into_response()
        .with_header(RETRY_AFTER, HeaderValue::from_static("1"));
    response.extensions_mut().insert(Reject::ThreadQueue);
    response
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

/// The status of the answer to such a body, and what that is counted as where
/// the status does not say so.
pub(crate) fn refusal(error: &BodyError) -> Option<(StatusCode, Reject)> {
    let response = Problem::from(error).into_response();
    let reject = response.extensions().get::<Reject>()?;
    Some((response.status(), *reject))
}

/// A whole body, and what is to be started when it has been sent.
struct Followed {
    bytes: Option<Bytes>,
    /// The response object, which knows what follows it.
    response: Option<Py<PyAny>>,
    mount: Arc<Mount>,
    witness: Option<Witness>,
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
            let witness = self.witness.take().map(|witness| witness.object(py));
            if let Some(event_loop) = EventLoop::current() {
                let called = event_loop.call_soon(py, start, (response, witness));
                report(py, called);
            }
        });
    }
}
