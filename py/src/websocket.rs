//! A WebSocket of core as an ASGI application sees it.
//!
//! Guarantee: messages wait in bounded queues on both sides; a socket that the
//! application does not accept is refused with 403, and one whose application
//! fails is closed with 1011.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use http::StatusCode;
use http::header::{HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use justapi_core::{
    CloseCode, Deflate, FutureSlot, Handler, IntoResponse as _, Message, Problem, Request,
    Response, WebSocket, WebSocketError, WebSocketUpgrade,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::awaitable::Ready;
use crate::event_loop::EventLoop;
use crate::exchange::{base_scope, fail, kind, left};
use crate::handler::{Stage, end_of_answer, watch};
use crate::heads::Head;
use crate::mount::Mount;
use crate::respond;
use crate::shared::{Outcome, Shared, guarded, is_done, report, resolve, result_of};

/// Bytes of received messages that wait for the application.
const MAX_RECEIVED_BYTES: usize = 1024 * 1024;
/// Bytes that wait for the peer before `send` waits.
const MAX_SENT_BYTES: usize = 256 * 1024;
/// What a queued message counts for beside its bytes.
const MESSAGE_BYTES: usize = 64;

/// Where the socket is: before its accept, open, or closed.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Connecting,
    Open,
    Closed,
}

/// The queues between the application and the socket.
#[derive(Default)]
struct Queues {
    phase: Phase,
    is_connect_received: bool,
    received: VecDeque<Message>,
    received_bytes: usize,
    receiver: Option<Py<PyAny>>,
    closed: Option<(u16, String)>,
    to_send: VecDeque<Outgoing>,
    to_send_bytes: usize,
    /// Futures of those whose messages have been sent, but who wait for room.
    senders: Vec<Py<PyAny>>,
    waker: Option<Waker>,
    denial: Option<Denial>,
}

enum Outgoing {
    /// A message, and the future of a sender that waits for room.
    Message(Message, Option<Py<PyAny>>),
    Close(u16, String),
}

/// A refusal with a response of the application's.
struct Denial {
    response: Response,
    body: Vec<u8>,
}

type Shareable = Arc<Mutex<Queues>>;

fn lock(queues: &Shareable) -> MutexGuard<'_, Queues> {
    queues.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A WebSocket that Python has a hold of.
#[pyclass(frozen, module = "justapi._core")]
pub(crate) struct Socket {
    shared: Arc<Shared>,
    request: Mutex<Option<Request>>,
    queues: Shareable,
    mount: Arc<Mount>,
    scope: OnceLock<Py<PyDict>>,
}

/// The application's sockets.
pub(crate) struct SocketHandler {
    mount: Arc<Mount>,
}

impl SocketHandler {
    pub(crate) fn new(mount: &Arc<Mount>) -> Self {
        Self {
            mount: Arc::clone(mount),
        }
    }

    fn begin(&self, py: Python<'_>, request: Request) -> PyResult<(Arc<Shared>, Shareable)> {
        let socket = Bound::new(
            py,
            Socket {
                shared: Shared::new(&self.mount, &request),
                request: Mutex::new(Some(request)),
                queues: Arc::default(),
                mount: Arc::clone(&self.mount),
                scope: OnceLock::new(),
            },
        )?;
        let shared = Arc::clone(&socket.get().shared);
        let queues = Arc::clone(&socket.get().queues);
        let helpers = &self.mount.helpers;
        let coroutine = helpers
            .run_socket
            .bind(py)
            .call1((self.mount.called.bind(py), &socket))?;
        let event_loop = EventLoop::of_lane()?;
        let task = event_loop.start_task(py, coroutine)?;
        if task.call_method0(intern!(py, "done"))?.is_truthy()? {
            let result = result_of(&task);
            end_of_answer(py, &self.mount, &shared, result);
        } else {
            watch(&event_loop, &task, &shared, &self.mount, Stage::Answer)?;
        }
        event_loop.after_call(py);
        Ok((shared, queues))
    }
}

impl Handler for SocketHandler {
    fn call(&self, request: Request, slot: &mut FutureSlot) -> Option<Response> {
        let begun = Python::attach(|py| {
            let begun = guarded(|| self.begin(py, request));
            begun.map_err(|error| self.mount.log(py, error)).ok()
        });
        match begun {
            Some((shared, queues)) => {
                let mut leaving = Leaving(Some(queues));
                slot.set(async move {
                    loop {
                        if let Outcome::Response(response) =
                            poll_fn(|cx| shared.poll_outcome(cx)).await
                        {
                            leaving.not_any_more();
                            return response;
                        }
                    }
                });
                None
            }
            None => Some(respond::server_error()),
        }
    }
}

/// Tells the application of a socket that ends without its closing handshake.
struct Leaving(Option<Shareable>);

impl Leaving {
    fn not_any_more(&mut self) {
        self.0 = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(queues) = self.0.take() {
            Python::attach(|py| close(py, &queues, CloseCode::ABNORMAL.as_u16(), ""));
        }
    }
}

#[pymethods]
impl Socket {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(scope) = self.scope.get() {
            visit.call(scope)?;
        }
        match self.queues.try_lock() {
            Ok(queues) => {
                visit.call(&queues.receiver)?;
                for outgoing in &queues.to_send {
                    if let Outgoing::Message(_, sender) = outgoing {
                        visit.call(sender)?;
                    }
                }
                queues.senders.iter().try_for_each(|one| visit.call(one))
            }
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        // The scope is a dictionary, which clears itself.
        let (receiver, senders) = match self.queues.try_lock() {
            Ok(mut queues) => (queues.receiver.take(), std::mem::take(&mut queues.senders)),
            Err(_) => return,
        };
        drop((receiver, senders));
    }

    /// The ASGI scope.
    #[getter]
    fn scope<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if let Some(scope) = self.scope.get() {
            return Ok(scope.bind(py).clone());
        }
        let request = self.request.lock_py_attached(py);
        let request = request.unwrap_or_else(PoisonError::into_inner);
        let Some(request) = &*request else {
            return Err(PyRuntimeError::new_err("the scope was not made in time"));
        };
        let scope = base_scope(py, request, &self.mount, true)?;
        let protocols = PyList::empty(py);
        for value in request.headers().get_all(SEC_WEBSOCKET_PROTOCOL) {
            for protocol in value.to_str().unwrap_or_default().split(',') {
                protocols.append(protocol.trim())?;
            }
        }
        scope.set_item(intern!(py, "subprotocols"), protocols)?;
        let extensions = PyDict::new(py);
        extensions.set_item("websocket.http.response", PyDict::new(py))?;
        scope.set_item(intern!(py, "extensions"), extensions)?;
        Ok(self.scope.get_or_init(|| scope.unbind()).bind(py).clone())
    }

    /// The ASGI callable that receives.
    fn receive<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut queues = lock(&self.queues);
        if !queues.is_connect_received {
            queues.is_connect_received = true;
            drop(queues);
            let message = PyDict::new(py);
            message.set_item(intern!(py, "type"), intern!(py, "websocket.connect"))?;
            return Ready::of(py, Some(message.into_any().unbind()));
        }
        if let Some(message) = queues.received.pop_front() {
            queues.received_bytes -= message.len() + MESSAGE_BYTES;
            wake(queues);
            return Ready::of(py, Some(received(py, message)?.into_any().unbind()));
        }
        if let Some((code, reason)) = queues.closed.clone() {
            drop(queues);
            let message = disconnected(py, code, &reason)?;
            return Ready::of(py, Some(message.into_any().unbind()));
        }
        let waiting = queues.receiver.take();
        drop(queues);
        // A receive that was cancelled does not wait any more.
        if let Some(waiting) = waiting
            && !is_done(waiting.bind(py))
        {
            lock(&self.queues).receiver = Some(waiting);
            return Err(PyRuntimeError::new_err("another receive() is waiting"));
        }
        let future = EventLoop::of_lane()?.create_future(py)?;
        lock(&self.queues).receiver = Some(future.clone().unbind());
        Ok(future)
    }

    /// The ASGI callable that sends.
    fn send<'py>(&self, message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let py = message.py();
        let kind = kind(message)?;
        let phase = lock(&self.queues).phase;
        match (kind.to_str()?, phase) {
            (_, Phase::Closed) => return Err(left()),
            ("websocket.accept", Phase::Connecting) => self.accept(message)?,
            ("websocket.close", Phase::Connecting) => {
                if let Some(witness) = self.shared.witness() {
                    let (code, reason) = close_of(message)?;
                    witness.refused(py, code, &reason);
                }
                let refusal = Problem::new(StatusCode::FORBIDDEN).into_response();
                self.refuse(py, refusal);
            }
            ("websocket.http.response.start", Phase::Connecting) => {
                let code: u16 = item(message, "status")?.extract()?;
                let headers = match message.get_item("headers")? {
                    Some(headers) => headers,
                    None => PyList::empty(py).into_any(),
                };
                let response = Head::read(code, &headers)?.into_response();
                lock(&self.queues).denial = Some(Denial {
                    response,
                    body: Vec::new(),
                });
            }
            ("websocket.http.response.body", Phase::Connecting) => self.deny(message)?,
            ("websocket.send", Phase::Open) => {
                let message = match message.get_item(intern!(py, "text"))? {
                    Some(text) if !text.is_none() => {
                        Message::from(text.cast::<PyString>()?.to_str()?)
                    }
                    _ => Message::from(item(message, "bytes")?.extract::<Vec<u8>>()?),
                };
                return self.queue(py, message);
            }
            ("websocket.close", Phase::Open) => {
                let (code, reason) = close_of(message)?;
                if CloseCode::new(code).is_none() {
                    return Err(PyValueError::new_err(format!("{code} cannot be sent")));
                }
                self.end(code, reason);
            }
            (other, _) => {
                return Err(PyRuntimeError::new_err(format!(
                    "unexpected ASGI message {other:?}"
                )));
            }
        }
        Ready::of(py, None)
    }

    /// Ends a socket whose application has returned or failed.
    fn finish(&self, py: Python<'_>, has_failed: bool) {
        let phase = lock(&self.queues).phase;
        match phase {
            Phase::Connecting => {
                let refusal = if has_failed {
                    respond::server_error()
                } else {
                    Problem::new(StatusCode::FORBIDDEN).into_response()
                };
                self.refuse(py, refusal);
            }
            Phase::Open => self.end(if has_failed { 1011 } else { 1000 }, String::new()),
            Phase::Closed => {}
        }
    }
}

/// Code and reason of a close message.
fn close_of(message: &Bound<'_, PyDict>) -> PyResult<(u16, String)> {
    let py = message.py();
    let code = match message.get_item(intern!(py, "code"))? {
        Some(code) if !code.is_none() => code.extract()?,
        _ => 1000,
    };
    let reason = match message.get_item(intern!(py, "reason"))? {
        Some(reason) if !reason.is_none() => reason.extract()?,
        _ => String::new(),
    };
    Ok((code, reason))
}

fn item<'py>(message: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    message
        .get_item(name)?
        .ok_or_else(|| PyValueError::new_err(format!("a message without {name:?}")))
}

impl Socket {
    fn accept(&self, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = message.py();
        let protocol: Option<String> = match message.get_item(intern!(py, "subprotocol"))? {
            Some(protocol) => protocol.extract()?,
            None => None,
        };
        let mut request = {
            let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
            request.take()
        };
        let Some(request) = &mut request else {
            return Err(PyRuntimeError::new_err("the socket was accepted before"));
        };
        let upgrade = WebSocketUpgrade::new()
            .allow_any_origin()
            .protocols(protocol.as_deref())
            .deflate(Deflate::default());
        let queues = Arc::clone(&self.queues);
        // Told of, too, where the connection ends before the socket is open.
        let leaving = Leaving(Some(queues));
        let mut response = upgrade.accept(request, move |socket| run(socket, leaving));
        if let Some(headers) = message.get_item(intern!(py, "headers"))? {
            for pair in headers.try_iter()? {
                let (name, value): (Vec<u8>, Vec<u8>) = pair?.extract()?;
                let name = HeaderName::from_bytes(&name);
                let value = HeaderValue::from_bytes(&value);
                let (Ok(name), Ok(value)) = (name, value) else {
                    return Err(PyValueError::new_err("a header of the accept is not valid"));
                };
                response.headers_mut().append(name, value);
            }
        }
        if response.status().is_success() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            lock(&self.queues).phase = Phase::Open;
        } else {
            close(py, &self.queues, CloseCode::ABNORMAL.as_u16(), "");
        }
        self.shared.settle(Outcome::Response(response));
        Ok(())
    }

    fn refuse(&self, py: Python<'_>, response: Response) {
        self.shared.settle(Outcome::Response(response));
        close(py, &self.queues, CloseCode::ABNORMAL.as_u16(), "");
    }

    fn deny(&self, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = message.py();
        let Some(mut denial) = lock(&self.queues).denial.take() else {
            return Err(PyRuntimeError::new_err(
                "websocket.http.response.body before its start",
            ));
        };
        if let Some(body) = message.get_item(intern!(py, "body"))? {
            denial.body.extend(body.extract::<Vec<u8>>()?);
        }
        let more = match message.get_item(intern!(py, "more_body"))? {
            Some(more) => more.is_truthy()?,
            None => false,
        };
        if more {
            lock(&self.queues).denial = Some(denial);
        } else {
            self.refuse(py, denial.response.with_body(denial.body));
        }
        Ok(())
    }

    fn queue<'py>(&self, py: Python<'py>, message: Message) -> PyResult<Bound<'py, PyAny>> {
        let length = message.len() + MESSAGE_BYTES;
        let is_full = lock(&self.queues).to_send_bytes + length > MAX_SENT_BYTES;
        let future = if is_full {
            Some(EventLoop::of_lane()?.create_future(py)?)
        } else {
            None
        };
        let mut queues = lock(&self.queues);
        queues.to_send_bytes += length;
        let sender = future.as_ref().map(|future| future.clone().unbind());
        queues.to_send.push_back(Outgoing::Message(message, sender));
        wake(queues);
        match future {
            Some(future) => Ok(future),
            None => Ready::of(py, None),
        }
    }

    fn end(&self, code: u16, reason: String) {
        let mut queues = lock(&self.queues);
        queues.phase = Phase::Closed;
        queues.to_send.push_back(Outgoing::Close(code, reason));
        wake(queues);
    }
}

fn wake(mut queues: MutexGuard<'_, Queues>) {
    let waker = queues.waker.take();
    drop(queues);
    if let Some(waker) = waker {
        match EventLoop::current() {
            Some(event_loop) => event_loop.wake(waker),
            None => waker.wake(),
        }
    }
}

/// What happens next on an open socket.
enum Next {
    /// The message before has left, or never will.
    Sent,
    Send(Outgoing),
    Received(Option<Result<Message, WebSocketError>>),
}

/// Moves messages between the socket and the queues until it is closed.
///
/// A peer that reads nothing is heard all the same.
async fn run(mut socket: WebSocket, leaving: Leaving) {
    let Some(queues) = leaving.0.as_ref().map(Arc::clone) else {
        return;
    };
    // What the message that is on its way counts for.
    let mut on_its_way = None;
    // In turns: neither side's flood may hide what the other says.
    let mut is_turn_to_receive = false;
    loop {
        let next = poll_fn(|cx| {
            let may_receive = lock(&queues).received_bytes <= MAX_RECEIVED_BYTES;
            if may_receive
                && is_turn_to_receive
                && let Poll::Ready(received) = socket.poll_recv(cx)
            {
                return Poll::Ready(Next::Received(received));
            }
            let is_sending = on_its_way.is_some();
            if (is_sending || !lock(&queues).to_send.is_empty()) && socket.poll_ready(cx).is_ready()
            {
                if is_sending {
                    return Poll::Ready(Next::Sent);
                }
                if let Some(outgoing) = lock(&queues).to_send.pop_front() {
                    return Poll::Ready(Next::Send(outgoing));
                }
            }
            // Also for who receives meanwhile, and so makes room to receive.
            lock(&queues).waker = Some(cx.waker().clone());
            if may_receive && !is_turn_to_receive {
                return socket.poll_recv(cx).map(Next::Received);
            }
            Poll::Pending
        })
        .await;
        is_turn_to_receive = !matches!(next, Next::Received(_));
        match next {
            Next::Sent => {
                // What is wrong with the socket is seen by the next receive.
                sent(&queues, on_its_way.take().unwrap_or_default());
            }
            Next::Send(Outgoing::Message(message, sender)) => {
                let length = message.len() + MESSAGE_BYTES;
                let is_waited_for = sender.is_some();
                lock(&queues).senders.extend(sender);
                match socket.start_send(message) {
                    Err(error @ WebSocketError::TooLarge { .. }) => {
                        refused(&queues, length, is_waited_for, &error);
                    }
                    _ => on_its_way = Some(length),
                }
            }
            Next::Send(Outgoing::Close(code, reason)) => {
                let code = CloseCode::new(code).unwrap_or(CloseCode::NORMAL);
                socket.close(code, &reason).await;
                Python::attach(|py| close(py, &queues, code.as_u16(), &reason));
                return;
            }
            Next::Received(Some(Ok(message))) => {
                Python::attach(|py| deliver(py, &queues, message));
            }
            Next::Received(Some(Err(_))) => {}
            Next::Received(None) => {
                let (code, reason) = socket.close_frame().map_or_else(
                    || (CloseCode::ABNORMAL.as_u16(), String::new()),
                    |frame| (frame.code.as_u16(), frame.reason.clone()),
                );
                Python::attach(|py| close(py, &queues, code, &reason));
                return;
            }
        }
    }
}

/// Tells the sender of a message that it cannot be sent.
fn refused(queues: &Shareable, length: usize, is_waited_for: bool, error: &WebSocketError) {
    let mut waiting = lock(queues);
    waiting.to_send_bytes -= length;
    let sender = is_waited_for.then(|| waiting.senders.pop()).flatten();
    drop(waiting);
    Python::attach(|py| {
        let error = PyValueError::new_err(error.to_string());
        match sender {
            Some(sender) => fail(sender.bind(py), error),
            None => report(py, Err(error)),
        }
        news(py);
    });
}

/// Notes that a message has left; lets senders go on.
fn sent(queues: &Shareable, length: usize) {
    let mut waiting = lock(queues);
    waiting.to_send_bytes -= length;
    if waiting.to_send_bytes > MAX_SENT_BYTES / 2 || waiting.senders.is_empty() {
        return;
    }
    let senders = std::mem::take(&mut waiting.senders);
    drop(waiting);
    Python::attach(|py| {
        for future in senders {
            resolve(future.bind(py), py.None());
        }
        news(py);
    });
}

fn news(py: Python<'_>) {
    if let Some(event_loop) = EventLoop::current() {
        event_loop.after_call(py);
    }
}

/// Gives a message to who waits for it, or keeps it.
fn deliver(py: Python<'_>, queues: &Shareable, message: Message) {
    let mut waiting = lock(queues);
    let Some(receiver) = waiting.receiver.take() else {
        waiting.received_bytes += message.len() + MESSAGE_BYTES;
        waiting.received.push_back(message);
        return;
    };
    drop(waiting);
    let receiver = receiver.bind(py);
    // A receive that was cancelled has not taken anything.
    if is_done(receiver) {
        return deliver(py, queues, message);
    }
    match received(py, message) {
        Ok(message) => resolve(receiver, message.into_any().unbind()),
        Err(error) => report(py, Err(error)),
    }
    news(py);
}

/// Tells the application, once, that the socket is closed.
fn close(py: Python<'_>, queues: &Shareable, code: u16, reason: &str) {
    let mut waiting = lock(queues);
    waiting.phase = Phase::Closed;
    if waiting.closed.is_some() {
        return;
    }
    waiting.closed = Some((code, reason.to_owned()));
    let receiver = waiting.receiver.take();
    let senders = std::mem::take(&mut waiting.senders);
    let unsent = std::mem::take(&mut waiting.to_send);
    drop(waiting);
    let unsent = unsent.into_iter().filter_map(|outgoing| match outgoing {
        Outgoing::Message(_, sender) => sender,
        Outgoing::Close(..) => None,
    });
    for future in senders.into_iter().chain(unsent) {
        resolve(future.bind(py), py.None());
    }
    if let Some(receiver) = receiver {
        match disconnected(py, code, reason) {
            Ok(message) => resolve(receiver.bind(py), message.into_any().unbind()),
            Err(error) => report(py, Err(error)),
        }
    }
    news(py);
}

fn received(py: Python<'_>, message: Message) -> PyResult<Bound<'_, PyDict>> {
    let made = PyDict::new(py);
    made.set_item(intern!(py, "type"), intern!(py, "websocket.receive"))?;
    match message {
        Message::Text(text) => made.set_item(intern!(py, "text"), text)?,
        Message::Binary(bytes) => {
            made.set_item(intern!(py, "bytes"), PyBytes::new(py, &bytes))?;
        }
    }
    Ok(made)
}

fn disconnected<'py>(py: Python<'py>, code: u16, reason: &str) -> PyResult<Bound<'py, PyDict>> {
    let message = PyDict::new(py);
    message.set_item(intern!(py, "type"), intern!(py, "websocket.disconnect"))?;
    message.set_item(intern!(py, "code"), code)?;
    message.set_item(intern!(py, "reason"), reason)?;
    Ok(message)
}

/// HTTP on one side and `WebSocket`s on the other of one route.
pub(crate) struct Either<H> {
    pub(crate) http: H,
    pub(crate) socket: SocketHandler,
}

impl<H: Handler> Handler for Either<H> {
    fn call(&self, request: Request, slot: &mut FutureSlot) -> Option<Response> {
        if request.wants_websocket() {
            self.socket.call(request, slot)
        } else {
            self.http.call(request, slot)
        }
    }
}
