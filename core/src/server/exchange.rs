//! One request and its response: checks, middleware, handler, finish.
//!
//! Guarantees: a panic or a missed time limit costs this request only; the
//! response that leaves is framed right whatever the handler set; without
//! middleware nothing is allocated here.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::header::{
    ALLOW, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, ORIGIN, REFERER, USER_AGENT,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, StatusCode, Version};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::connection::Connection;
use super::handover::{Tunnel, hand_over};
use super::lane::Lane;
use crate::body::Body;
use crate::compression::Accepted;
use crate::error::BodyError;
use crate::gate::is_valid_host;
use crate::handler::FutureSlot;
use crate::head::Head;
use crate::limits::{Limits, Reject};
use crate::middleware::{Arrival, Cors, Decoration, Entry, Next, TraceContext};
use crate::pace::Pace;
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse as _, Response};
use crate::router::{Lookup, RouteId};
use crate::upgrade::OnUpgrade;

/// Bodies up to this size fit the socket's buffer: the response is gone when
/// its head is.
const MAX_SHORT_BODY_BYTES: u64 = 16 * 1024;
/// Empty future slots that a lane keeps: 1 MiB of them.
const MAX_KEPT_SLOTS: usize = 1024;

/// Begins to answer a request of HTTP/2.
pub(super) fn begin_h2(
    connection: &Rc<Connection>,
    mut request: http::Request<Incoming>,
) -> Exchange {
    let limits = &connection.lane.app.limits;
    let tunnel = Tunnel::of(&mut request);
    let (parts, incoming) = request.into_parts();
    let verdict = check_h2_head(&parts, limits);
    let head = Head::from(parts);
    let now = Instant::now();
    if let Err((reject, problem)) = verdict {
        connection.used.set(true);
        connection.lane.metrics().rejected(reject);
        let mut record = Record::start(connection, &head, now);
        return Exchange::ready(&mut record, problem.into_response());
    }
    let body = Body::http2(incoming, limits.max_body_bytes, Pace::of_body(limits));
    let request = Request::from_head(head, body, connection.peer, now);
    start(connection, &mut Some(request), tunnel)
}

/// Begins to answer one request of HTTP/1.1.
///
/// Whoever answers takes it out of `arrived`; where it stays nobody wants it.
pub(super) fn begin(connection: &Rc<Connection>, arrived: &mut Option<Request>) -> Exchange {
    start(connection, arrived, None)
}

/// Begins to answer one request of `connection`.
///
/// Everything up to the first wait happens here, so that an answer that is
/// ready at once is never moved through a larger future.
fn start(
    connection: &Rc<Connection>,
    arrived: &mut Option<Request>,
    tunnel: Option<Tunnel>,
) -> Exchange {
    connection.used.set(true);
    let app = &*connection.lane.app;
    let request = arrived.as_mut().expect("a request has arrived");
    let mut record = Record::start(connection, request.head(), request.received_at());
    record.tunnel = tunnel;
    if *request.method() == Method::OPTIONS
        && let Some(response) = answer_options(&connection.lane, request.head())
    {
        return Exchange::ready(&mut record, response);
    }
    let id = record.decoration.request_id.clone();
    request.complete(id, record.arrival.clone());
    if let Some(mut response) = app.builtins.admit(request) {
        if let Some(reason) = response.extensions_mut().remove::<Reject>() {
            connection.lane.metrics().rejected(reason);
        }
        return Exchange::ready(&mut record, response);
    }
    let work = if app.middleware.is_empty() {
        let mut slot = SlotGuard::take(connection);
        let called = catch_unwind(AssertUnwindSafe(|| {
            let slot = slot.get();
            app.router.dispatch_arrived(arrived, &record.route, slot)
        }));
        match called {
            Ok(Some(response)) => return Exchange::ready(&mut record, response),
            Ok(None) => Work::Handler(slot),
            Err(_) => {
                let response = answer_panic(&connection.lane);
                return Exchange::ready(&mut record, response);
            }
        }
    } else {
        let matched = Rc::new(Cell::new(RouteId::UNMATCHED));
        let request = arrived.take().expect("it has been admitted");
        let chain = run_middleware(connection, request, Rc::clone(&matched));
        Work::Middleware(chain, matched)
    };
    Exchange::Waiting(Waiting {
        record,
        work,
        timer: None,
    })
}

/// Runs the users' middleware; `matched` receives the route.
fn run_middleware(
    connection: &Rc<Connection>,
    request: Request,
    matched: Rc<Cell<RouteId>>,
) -> Pin<Box<dyn Future<Output = Response>>> {
    let connection = Rc::clone(connection);
    Box::pin(async move {
        let app = &*connection.lane.app;
        let next = Next::new(&app.middleware, &app.router, &matched);
        next.run(request).await
    })
}

/// A response, and what the built-in middleware adds while it is written.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: Response,
    pub(super) ready_at: Instant,
    pub(super) decoration: Decoration,
}

/// The work on one request, a future of its answer.
pub(super) enum Exchange {
    /// Answered while it began.
    Ready(Option<Answer>),
    /// A handler or middleware has work to do.
    Waiting(Waiting),
}

impl Exchange {
    fn ready(record: &mut Record, response: Response) -> Self {
        Self::Ready(Some(record.finish(response)))
    }
}

/// What an exchange keeps while it waits.
pub(super) struct Waiting {
    record: Record,
    work: Work,
    timer: Option<Pin<Box<Sleep>>>,
}

enum Work {
    Handler(SlotGuard),
    Middleware(Pin<Box<dyn Future<Output = Response>>>, Rc<Cell<RouteId>>),
}

impl Future for Exchange {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Ready(response) => {
                Poll::Ready(response.take().expect("polled after it was ready"))
            }
            Self::Waiting(waiting) => waiting.poll(cx),
        }
    }
}

impl Waiting {
    /// Polls the work; its panic or its time limit is an answer too.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Answer> {
        let Self {
            record,
            work,
            timer,
        } = self;
        let lane = Rc::clone(&record.connection.lane);
        let polled = catch_unwind(AssertUnwindSafe(|| match work {
            Work::Handler(slot) => slot.get().poll(cx),
            Work::Middleware(chain, _) => chain.as_mut().poll(cx),
        }));
        let response = match polled {
            Ok(Poll::Ready(response)) => response,
            Ok(Poll::Pending) => {
                let Some(limit) = lane.app.limits.request_timeout else {
                    return Poll::Pending;
                };
                let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                lane.metrics().rejected(Reject::RequestTimeout);
                Problem::new(StatusCode::GATEWAY_TIMEOUT)
                    .with_detail("the handler did not answer within server.limits.timeout_request")
                    .into_response()
            }
            Err(_) => answer_panic(&lane),
        };
        if let Work::Middleware(_, matched) = work {
            record.route.set(matched.get());
        }
        Poll::Ready(record.finish(response))
    }
}

/// A future slot on loan from the lane, given back empty.
struct SlotGuard {
    connection: Rc<Connection>,
    slot: Option<FutureSlot>,
}

impl SlotGuard {
    fn take(connection: &Rc<Connection>) -> Self {
        Self {
            slot: connection.lane.future_slots.borrow_mut().pop(),
            connection: Rc::clone(connection),
        }
    }

    fn get(&mut self) -> &mut FutureSlot {
        self.slot.get_or_insert_with(FutureSlot::new)
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if let Some(mut slot) = self.slot.take() {
            slot.clear();
            let mut kept = self.connection.lane.future_slots.borrow_mut();
            if kept.len() < MAX_KEPT_SLOTS {
                kept.push(slot);
            }
        }
    }
}

/// Polls a response body; its panic fails the message, and nothing else.
///
/// After an error it must not be polled again.
pub(super) fn poll_body(
    body: &mut Body,
    lane: &Lane,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
    catch_unwind(AssertUnwindSafe(|| Pin::new(body).poll_frame(cx))).unwrap_or_else(|_| {
        lane.metrics().panicked();
        Poll::Ready(Some(Err(BodyError::Producer)))
    })
}

/// The panic hook has said where; the client learns that it failed.
fn answer_panic(lane: &Lane) -> Response {
    lane.metrics().panicked();
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR).into_response()
}

/// What is answered to OPTIONS without the application: `*` and preflights.
fn answer_options(lane: &Lane, head: &Head) -> Option<Response> {
    if head.path() == "*" {
        let allow = HeaderValue::from_static("DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");
        return Some(Response::new(StatusCode::NO_CONTENT).with_header(ALLOW, allow));
    }
    let cors = lane.app.builtins.cors.as_ref()?;
    match lane.app.router.find(head.method(), head.path()) {
        Lookup::NotFound | Lookup::BadPath | Lookup::Redirect { .. } => None,
        Lookup::Options { allow } | Lookup::MethodNotAllowed { allow } => {
            cors.preflight(head.method(), head.headers(), Some(&allow))
        }
        Lookup::Found { .. } => cors.preflight(head.method(), head.headers(), None),
    }
}

/// The rules of the gate for an HTTP/2 head, as far as h2 leaves them open.
///
/// RFC 9113 §8.2.1 and §8.3.1. A fragment in `:path` cannot be seen here: the `http`
/// crate drops it while it parses.
fn check_h2_head(head: &Parts, limits: &Limits) -> Result<(), (Reject, Problem)> {
    let bad = |detail| {
        let problem = Problem::new(StatusCode::BAD_REQUEST).with_detail(detail);
        Err((Reject::BadRequest, problem))
    };
    if head.method == Method::CONNECT {
        return bad("this server is no proxy");
    }
    let target = head.uri.path_and_query().map_or("", PathAndQuery::as_str);
    if !(target.starts_with('/') || target == "*" && head.method == Method::OPTIONS) {
        return bad("the :path is not a path");
    }
    if !target.is_ascii() {
        return bad("the :path has a byte that is not allowed in a URI");
    }
    if target.len() > limits.max_request_line_bytes {
        let limit = limits.max_request_line_bytes as u64;
        let problem = Problem::new(StatusCode::URI_TOO_LONG)
            .with_detail("the :path is too long")
            .with_limit("server.limits.request_line", limit);
        return Err((Reject::RequestLine, problem));
    }
    if head.headers.len() > limits.max_headers {
        let limit = limits.max_headers as u64;
        let problem = Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
            .with_detail("there are too many header fields")
            .with_limit("server.limits.headers", limit);
        return Err((Reject::HeaderCount, problem));
    }
    if head.uri.scheme_str() == Some("") {
        return bad("the :scheme is empty");
    }
    if !head.headers.values().all(is_trimmed) {
        return bad("a field value begins or ends with white space");
    }
    let is_repeated = |name| head.headers.get_all(name).iter().nth(1).is_some();
    if is_repeated(HOST) || is_repeated(CONTENT_LENGTH) {
        return bad("the request has two Host or two content-length fields");
    }
    let authority = head
        .uri
        .authority()
        .map(|authority| authority.as_str().as_bytes());
    let host = head.headers.get(HOST).map(HeaderValue::as_bytes);
    match (authority, host) {
        (None, None) => bad("the request has neither :authority nor Host"),
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            bad(":authority and Host differ")
        }
        (Some(value), _) | (None, Some(value)) if !is_valid_host(value) => {
            bad("the :authority is not a host")
        }
        _ => Ok(()),
    }
}

/// Whether a value has no white space around it.
fn is_trimmed(value: &HeaderValue) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let bytes = value.as_bytes();
    !is_space(bytes.first()) && !is_space(bytes.last())
}

/// What is kept of a request for the moment its response is ready.
struct Record {
    connection: Rc<Connection>,
    started: Instant,
    method: Method,
    route: Cell<RouteId>,
    decoration: Decoration,
    arrival: Arrival,
    accepted: Option<Accepted>,
    log: Option<Box<LogFields>>,
    tunnel: Option<Tunnel>,
    finished: bool,
}

/// What only the access log needs.
struct LogFields {
    time: SystemTime,
    path: String,
    query: Option<String>,
    version: Version,
    user_agent: Option<HeaderValue>,
    referer: Option<HeaderValue>,
}

impl LogFields {
    fn new(head: &Head) -> Self {
        let field = |name: HeaderName| {
            let value = head.sole_field(&name)?;
            HeaderValue::from_bytes(value).ok()
        };
        Self {
            time: SystemTime::now(),
            path: head.path().to_owned(),
            query: head.query().map(str::to_owned),
            version: head.version(),
            user_agent: field(USER_AGENT),
            referer: field(REFERER),
        }
    }
}

impl Record {
    fn start(connection: &Rc<Connection>, head: &Head, started: Instant) -> Self {
        let lane = &connection.lane;
        lane.metrics().request_started();
        let builtins = &lane.app.builtins;
        let origin = |cors: &Cors| {
            let origin = cors.asks_origin().then(|| head.sole_field(&ORIGIN))??;
            HeaderValue::from_bytes(origin).ok()
        };
        let arrival = Arrival::of(builtins, head, connection.peer, connection.is_tls);
        Self {
            connection: Rc::clone(connection),
            started,
            method: head.method().clone(),
            route: Cell::new(RouteId::UNMATCHED),
            decoration: Decoration {
                request_id: builtins.request_id.as_ref().map(|id| id.assign(head)),
                origin: builtins.cors.as_ref().and_then(origin),
                is_secure: arrival.is_secure(),
            },
            arrival,
            accepted: builtins
                .compression
                .as_ref()
                .map(|_| Accepted::of(head.headers())),
            log: builtins
                .access_log
                .as_ref()
                .map(|_| Box::new(LogFields::new(head))),
            tunnel: None,
            finished: false,
        }
    }

    /// Completes `response`, counts and logs it.
    fn finish(&mut self, mut response: Response) -> Answer {
        let builtins = &self.connection.lane.app.builtins;
        if let (Some(compression), Some(accepted)) = (&builtins.compression, self.accepted) {
            response = compression.apply(accepted, response);
        }
        self.settle(&mut response);
        if let Some(tunnel) = self.tunnel.take() {
            response = hand_over(&self.connection, tunnel, response);
        }
        let lane = &*self.connection.lane;
        let status = response.status();
        let reject = response.extensions().get::<Reject>().copied();
        let is_too_large = status == StatusCode::PAYLOAD_TOO_LARGE;
        if let Some(reject) = reject.or(is_too_large.then_some(Reject::BodyBytes)) {
            lane.metrics().rejected(reject);
        }
        if response.body().is_file() && self.method != Method::HEAD {
            lane.metrics().file_response();
        }
        let now = Instant::now();
        let length = response.body().size_hint().exact();
        let is_short = length.is_some_and(|length| length <= MAX_SHORT_BODY_BYTES);
        self.connection.answered_at.set(is_short.then_some(now));
        let duration = now - self.started;
        let route = self.route.get();
        lane.metrics()
            .request_finished(route, &self.method, status, duration);
        self.finished = true;
        let pattern = lane.app.pattern(route);
        lane.app.builtins.complete(
            &self.arrival,
            &self.method,
            pattern,
            duration,
            &mut response,
        );
        let decoration = std::mem::take(&mut self.decoration);
        if let (Some(log), Some(fields)) = (&lane.app.builtins.access_log, &self.log) {
            let lost = log.record(&Entry {
                time: fields.time,
                peer: self.arrival.client_of(self.connection.peer),
                method: &self.method,
                path: &fields.path,
                query: fields.query.as_deref(),
                version: fields.version,
                status,
                bytes: length,
                duration,
                route: pattern,
                request_id: decoration.request_id_in(response.headers()).as_ref(),
                trace_id: self.arrival.trace().map(TraceContext::trace_id),
                user_agent: fields.user_agent.as_ref(),
                referer: fields.referer.as_ref(),
            });
            lane.metrics().access_log_dropped(lost);
        }
        Answer {
            response,
            ready_at: now,
            decoration,
        }
    }

    /// Makes the framing of `response` right, whatever the handler set.
    fn settle(&self, response: &mut Response) {
        let is_h2 = self.connection.is_h2.get();
        if OnUpgrade::is_in(response.extensions()) {
            return;
        }
        let status = response.status();
        if status.is_informational() {
            *response = Problem::new(StatusCode::INTERNAL_SERVER_ERROR).into_response();
        }
        if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
            *response.body_mut() = Body::empty();
            response.remove_framing();
        } else if let Some(length) = response.body().size_hint().exact() {
            // The length of a body that is known is written from it; a different
            // one from the handler would put the connection out of step.
            response.remove_framing();
            if is_h2 && self.method == Method::HEAD {
                // On HTTP/2 hyper sends the body of an answer to HEAD too.
                *response.body_mut() = Body::empty();
                response.headers_mut().insert(CONTENT_LENGTH, length.into());
            }
        } else if is_h2 && self.method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.finished {
            let lane = &*self.connection.lane;
            lane.metrics().request_abandoned();
            let pattern = lane.app.pattern(self.route.get());
            let duration = self.started.elapsed();
            lane.app
                .builtins
                .abandon(&self.arrival, &self.method, pattern, duration);
        }
    }
}
