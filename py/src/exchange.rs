//! One request as Python sees it: an ASGI scope and its two callables.
//!
//! Guarantee: nothing of it is made before somebody asks; the body is read
//! only while the application receives it.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use justapi_core::{Body, BodyError, Peer, Reject, Request, Response, Session};
use percent_encoding::percent_decode_str;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use smallvec::SmallVec;

use crate::awaitable::Ready;
use crate::event_loop::EventLoop;
use crate::kept::Kept;
use crate::mount::Mount;
use crate::respond;
use crate::route::Plan;
use crate::session;
use crate::shared::{Shared, is_done, resolve};

/// A request that Python has a hold of.
#[pyclass(frozen, module = "justapi._core")]
pub(crate) struct Exchange {
    shared: Arc<Shared>,
    request: Mutex<Request>,
    is_head: bool,
    body: Arc<Mutex<Content>>,
    mount: Arc<Mount>,
    plan: Option<Arc<Plan>>,
    scope: OnceLock<Py<PyDict>>,
    context: Mutex<Option<Py<PyAny>>>,
    response: Mutex<respond::Start>,
    is_outside: AtomicBool,
}

/// What is left of the request's body.
pub(crate) enum Content {
    /// It is all here and has not been received.
    Ready(Bytes),
    /// It has to be read.
    Unread(Body),
    /// It is being read, for this future.
    Reading(Py<PyAny>),
    /// It was read for somebody who did not wait for it.
    Kept(Option<Result<Bytes, BodyError>>, Body),
    /// It has been received to its end.
    Ended,
    /// It cannot be received: the client has left or broken a rule, and an
    /// answer of this status is counted as this.
    Failed(Option<(StatusCode, Reject)>),
}

impl Content {
    /// The body of a request that may not have come yet.
    pub(crate) fn of(body: Body) -> Self {
        match body.into_ready() {
            Ok(bytes) => Self::Ready(bytes),
            Err(body) => Self::Unread(body),
        }
    }
}

impl Exchange {
    pub(crate) fn new<'py>(
        py: Python<'py>,
        request: Request,
        body: Content,
        mount: &Arc<Mount>,
        plan: Option<&Arc<Plan>>,
    ) -> PyResult<Bound<'py, Self>> {
        Bound::new(
            py,
            Self {
                shared: Shared::new(mount, &request),
                is_head: request.method() == Method::HEAD,
                request: Mutex::new(request),
                body: Arc::new(Mutex::new(body)),
                mount: Arc::clone(mount),
                plan: plan.map(Arc::clone),
                scope: OnceLock::new(),
                context: Mutex::new(None),
                response: Mutex::default(),
                is_outside: AtomicBool::new(false),
            },
        )
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether the answer is to have no body.
    pub(crate) const fn is_head(&self) -> bool {
        self.is_head
    }

    pub(crate) const fn start(&self) -> &Mutex<respond::Start> {
        &self.response
    }

    /// Adds to an answer what is known of its request: that middleware has
    /// nothing to do with it, which limit its body has broken, or a session
    /// that has changed.
    pub(crate) fn complete(&self, py: Python<'_>, mut response: Response) -> PyResult<Response> {
        if self.is_outside.load(Ordering::Relaxed) {
            response.extensions_mut().insert(respond::Outside);
            return Ok(response);
        }
        if let Some((status, reject)) = self.refusal()
            && status == response.status()
        {
            response.extensions_mut().insert(reject);
        }
        let scope = self.scope.get().filter(|_| self.mount.has_sessions);
        let Some(scope) = scope else {
            return Ok(response);
        };
        let after = match scope.bind(py).get_item(intern!(py, "session"))? {
            Some(session) => session::read(&session)?,
            None => Session::new(),
        };
        let request = self.request.lock_py_attached(py);
        let before = request.unwrap_or_else(PoisonError::into_inner).session();
        Ok(if after == before {
            response
        } else if after.is_empty() {
            response.without_session()
        } else {
            response.with_session(after)
        })
    }

    fn make_scope<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        // Python may run below, and another thread may wait for this lock.
        let request = self.request.lock_py_attached(py);
        let request = request.unwrap_or_else(PoisonError::into_inner);
        let scope = base_scope(py, &request, &self.mount, false)?;
        let method = match *request.method() {
            Method::GET => intern!(py, "GET").clone(),
            Method::POST => intern!(py, "POST").clone(),
            _ => PyString::new(py, request.method().as_str()),
        };
        scope.set_item(intern!(py, "method"), method)?;
        if self.shared.witness().is_some()
            && let Some(extensions) = scope.get_item(intern!(py, "extensions"))?
        {
            extensions.set_item(intern!(py, "http.response.debug"), PyDict::new(py))?;
        }
        if let Some(plan) = &self.plan {
            scope.set_item(intern!(py, "app"), self.mount.app.bind(py))?;
            let params = PyDict::new(py);
            for (name, value) in request.params() {
                params.set_item(name, value)?;
            }
            if let Some(converters) = &plan.path_converters {
                let converters = converters.bind(py).cast::<PyDict>()?;
                for (name, convert) in converters.iter() {
                    if let Some(text) = params.get_item(&name)? {
                        params.set_item(&name, convert.call1((text,))?)?;
                    }
                }
            }
            scope.set_item(intern!(py, "path_params"), params)?;
            scope.set_item(intern!(py, "endpoint"), plan.endpoint.bind(py))?;
            scope.set_item(intern!(py, "route"), plan.route.bind(py))?;
        }
        Ok(scope)
    }
}

/// What scopes of all kinds have in common.
pub(crate) fn base_scope<'py>(
    py: Python<'py>,
    request: &Request,
    mount: &Mount,
    is_socket: bool,
) -> PyResult<Bound<'py, PyDict>> {
    // A copy has room for all keys, and most values need no change.
    let scope = mount.scope.bind(py).copy()?;
    if is_socket {
        scope.set_item(intern!(py, "type"), intern!(py, "websocket"))?;
        scope.del_item(intern!(py, "method"))?;
    }
    match request.version() {
        Version::HTTP_10 => scope.set_item(intern!(py, "http_version"), intern!(py, "1.0"))?,
        Version::HTTP_2 => scope.set_item(intern!(py, "http_version"), intern!(py, "2"))?,
        _ => {}
    }
    let scheme = match (request.scheme(), is_socket) {
        ("https", false) => Some(intern!(py, "https")),
        ("https", true) => Some(intern!(py, "wss")),
        (_, false) => None,
        (_, true) => Some(intern!(py, "ws")),
    };
    if let Some(scheme) = scheme {
        scope.set_item(intern!(py, "scheme"), scheme)?;
    }
    let raw = request.path();
    let path = percent_decode_str(raw).decode_utf8_lossy();
    scope.set_item(intern!(py, "path"), path.as_ref())?;
    scope.set_item(intern!(py, "raw_path"), PyBytes::new(py, raw.as_bytes()))?;
    if let Some(query) = request.query() {
        let query = PyBytes::new(py, query.as_bytes());
        scope.set_item(intern!(py, "query_string"), query)?;
    }
    scope.set_item(intern!(py, "headers"), headers(py, request)?)?;
    if matches!(request.peer(), Peer::Memory(_)) {
        scope.set_item(intern!(py, "client"), mount.client.bind(py))?;
    } else if let Some(address) = request.client() {
        let port = match request.peer() {
            Peer::Tcp(peer) if peer.ip().to_canonical() == address => peer.port(),
            _ => 0,
        };
        scope.set_item(intern!(py, "client"), (shown(py, address), port))?;
    }
    scope.set_item(intern!(py, "state"), mount.state.bind(py).copy()?)?;
    scope.set_item(intern!(py, "extensions"), mount.extensions.bind(py).copy()?)?;
    if mount.has_sessions {
        let session = session::write(py, &request.session())?;
        scope.set_item(intern!(py, "session"), session)?;
    }
    Ok(scope)
}

thread_local! {
    /// Names of header lines in lower case, by their spelling.
    static NAMES: RefCell<Kept<PyBytes>> = const { RefCell::new(Kept::new()) };
    /// The last client's address as text: many come from one.
    static ADDRESS: RefCell<Option<(IpAddr, Py<PyString>)>> = const { RefCell::new(None) };
}

fn shown(py: Python<'_>, address: IpAddr) -> Bound<'_, PyString> {
    ADDRESS.with_borrow_mut(|last| match last {
        Some((known, text)) if *known == address => text.bind(py).clone(),
        _ => {
            let text = PyString::new(py, &address.to_string());
            *last = Some((address, text.clone().unbind()));
            text
        }
    })
}

/// Header lines as ASGI wants them: names in lower case.
fn headers<'py>(py: Python<'py>, request: &Request) -> PyResult<Bound<'py, PyList>> {
    let mut pairs: SmallVec<[Bound<'py, PyTuple>; 24]> = SmallVec::new();
    let mut has_host = false;
    for (name, value) in request.fields() {
        has_host |= name.eq_ignore_ascii_case(b"host");
        let name = NAMES.with_borrow_mut(|names| {
            names.get(py, name, || PyBytes::new(py, &name.to_ascii_lowercase()))
        });
        pairs.push((name, PyBytes::new(py, value)).into_pyobject(py)?);
    }
    // HTTP/2 names the host in a field of its own.
    if !has_host && let Some(host) = request.host() {
        let host = PyBytes::new(py, host.as_bytes());
        pairs.insert(0, (PyBytes::new(py, b"host"), host).into_pyobject(py)?);
    }
    PyList::new(py, pairs)
}

#[pymethods]
impl Exchange {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(scope) = self.scope.get() {
            visit.call(scope)?;
        }
        match self.context.try_lock() {
            Ok(context) => visit.call(&*context),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        if let Ok(mut context) = self.context.try_lock() {
            *context = None;
        }
    }

    /// The ASGI scope.
    #[getter]
    pub(crate) fn scope<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if let Some(scope) = self.scope.get() {
            return Ok(scope.bind(py).clone());
        }
        // Two threads may make one each; the first is kept.
        let scope = self.make_scope(py)?;
        Ok(self.scope.get_or_init(|| scope.unbind()).bind(py).clone())
    }

    /// Free for the Python layer.
    #[getter]
    fn context(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let context = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        context.as_ref().map(|value| value.clone_ref(py))
    }

    #[setter]
    fn set_context(&self, value: Py<PyAny>) {
        let mut context = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = context.replace(value);
        drop(context);
        // Its end may run code of the application's.
        drop(replaced);
    }

    /// Whether no middleware has to do with the answer.
    #[getter]
    fn is_outside(&self) -> bool {
        self.is_outside.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_is_outside(&self, is_outside: bool) {
        self.is_outside.store(is_outside, Ordering::Relaxed);
    }

    /// Who watches the request, if a test client does.
    #[getter]
    fn witness<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.shared.witness().map(|witness| witness.object(py))
    }

    /// The ASGI callable that receives.
    fn receive<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // Nothing of Python's runs while the content is locked.
        match self.replace_content(Content::Ended) {
            Content::Ready(bytes) => {
                Ready::of(py, Some(message(py, &bytes, false)?.into_any().unbind()))
            }
            Content::Unread(body) => match new_future(py) {
                Ok(future) => {
                    self.read(&future, body)?;
                    Ok(future)
                }
                Err(error) => {
                    self.replace_content(Content::Unread(body));
                    Err(error)
                }
            },
            Content::Reading(waiting) if is_done(waiting.bind(py)) => {
                // That receive was cancelled; its piece is still to come.
                let future = new_future(py);
                let next = match &future {
                    Ok(future) => future.clone().unbind(),
                    Err(_) => waiting,
                };
                self.replace_content(Content::Reading(next));
                future
            }
            Content::Reading(waiting) => {
                self.replace_content(Content::Reading(waiting));
                Err(PyRuntimeError::new_err("another receive() is waiting"))
            }
            Content::Kept(piece, body) => {
                let (content, made) = received(py, piece, body);
                self.replace_content(content);
                Ready::of(py, Some(made?.into_any().unbind()))
            }
            Content::Ended => self.wait_for_leaving(py, false),
            Content::Failed(refusal) => {
                self.replace_content(Content::Failed(refusal));
                self.wait_for_leaving(py, true)
            }
        }
    }

    /// The ASGI callable that sends.
    fn send<'py>(
        slf: &Bound<'py, Self>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        respond::send(slf.get(), message)
    }
}

impl Exchange {
    /// What an answer of this status is counted as, once the body has broken a
    /// limit.
    fn refusal(&self) -> Option<(StatusCode, Reject)> {
        match *self.body.lock().unwrap_or_else(PoisonError::into_inner) {
            Content::Failed(refusal) => refusal,
            _ => None,
        }
    }

    fn replace_content(&self, content: Content) -> Content {
        replace(&self.body, content)
    }

    /// Reads the next piece of the body on the lane, for `future`.
    fn read(&self, future: &Bound<'_, PyAny>, mut body: Body) -> PyResult<()> {
        let event_loop = EventLoop::of_lane()?;
        self.replace_content(Content::Reading(future.clone().unbind()));
        let place = Arc::clone(&self.body);
        event_loop.spawn(async move {
            let piece = body.chunk().await;
            Python::attach(|py| give(py, &place, piece, body));
        });
        Ok(())
    }

    fn wait_for_leaving<'py>(
        &self,
        py: Python<'py>,
        has_failed: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !has_failed {
            let event_loop = EventLoop::of_lane()?;
            let future = event_loop.create_future(py)?;
            if self.shared.watch_leaving(&future) {
                return Ok(future);
            }
        }
        let message = PyDict::new(py);
        message.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?;
        Ready::of(py, Some(message.into_any().unbind()))
    }
}

fn new_future(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    EventLoop::of_lane()?.create_future(py)
}

fn replace(place: &Mutex<Content>, content: Content) -> Content {
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *place, content)
}

/// Gives a piece to the future that waits for it, or keeps it.
fn give(
    py: Python<'_>,
    place: &Mutex<Content>,
    piece: Option<Result<Bytes, BodyError>>,
    body: Body,
) {
    let Content::Reading(waiting) = replace(place, Content::Ended) else {
        return;
    };
    let waiting = waiting.bind(py);
    if is_done(waiting) {
        replace(place, Content::Kept(piece, body));
        return;
    }
    let (content, made) = received(py, piece, body);
    replace(place, content);
    match made {
        Ok(made) => resolve(waiting, made.into_any().unbind()),
        Err(error) => fail(waiting, error),
    }
    if let Some(event_loop) = EventLoop::current() {
        event_loop.after_call(py);
    }
}

/// What is left after a piece, and the message that it makes.
fn received(
    py: Python<'_>,
    piece: Option<Result<Bytes, BodyError>>,
    body: Body,
) -> (Content, PyResult<Bound<'_, PyDict>>) {
    match piece {
        Some(Ok(bytes)) => (Content::Unread(body), message(py, &bytes, true)),
        None => (Content::Ended, message(py, &[], false)),
        Some(Err(error)) => (
            Content::Failed(respond::refusal(&error)),
            failure(py, &error),
        ),
    }
}

/// The error of a body that the client or a limit broke off.
fn failure<'py>(py: Python<'py>, error: &BodyError) -> PyResult<Bound<'py, PyDict>> {
    match error {
        BodyError::Incomplete { .. } | BodyError::Stalled => {
            let message = PyDict::new(py);
            message.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?;
            Ok(message)
        }
        error => Err(respond::body_error(py, error)),
    }
}

/// Gives a future its exception unless it is done, for instance cancelled.
pub(crate) fn fail(future: &Bound<'_, PyAny>, error: PyErr) {
    if is_done(future) {
        return;
    }
    let py = future.py();
    let error = error.into_value(py);
    let set = future.call_method1(intern!(py, "set_exception"), (error,));
    crate::shared::report(py, set.map(drop));
}

fn message<'py>(py: Python<'py>, body: &[u8], more: bool) -> PyResult<Bound<'py, PyDict>> {
    let message = PyDict::new(py);
    message.set_item(intern!(py, "type"), intern!(py, "http.request"))?;
    message.set_item(intern!(py, "body"), PyBytes::new(py, body))?;
    message.set_item(intern!(py, "more_body"), more)?;
    Ok(message)
}

/// What `send` raises once nobody wants to hear more.
pub(crate) fn left() -> PyErr {
    PyOSError::new_err("the client has left")
}

/// The name of a message's type.
pub(crate) fn kind<'py>(message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyString>> {
    let py = message.py();
    match message.get_item(intern!(py, "type"))? {
        Some(kind) => Ok(kind.cast_into()?),
        None => Err(PyRuntimeError::new_err("a message without a type")),
    }
}
