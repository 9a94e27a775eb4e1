//! One request and its response: checks, middleware, handler, finish.
//!
//! Guarantees: a panic or a missed time limit costs this request only; the
//! response that leaves is framed right whatever the handler set; without
//! middleware nothing is allocated here.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

use http::header::{
    ALLOW, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, ORIGIN, REFERER,
    TRANSFER_ENCODING, USER_AGENT,
};
use http::request::Parts;
use http::{Method, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::connection::Connection;
use super::lane::{App, Lane};
use crate::body::Body;
use crate::error::BodyError;
use crate::gate::is_valid_host;
use crate::handler::FutureSlot;
use crate::limits::Reject;
use crate::middleware::{Entry, Next, RequestId};
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse as _, Response};
use crate::router::{Lookup, RouteId};

/// Answers one request of `connection`.
pub(super) async fn exchange(
    connection: Rc<Connection>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Body>, Infallible> {
    connection.used.set(true);
    let index = connection.num_exchanges.get();
    connection.num_exchanges.set(index + 1);
    let lane = &*connection.lane;
    let app = &*lane.app;
    let (mut head, incoming) = request.into_parts();
    if let Some(authority) = head.uri.authority()
        && !connection.is_h2.get()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        // RFC 9112 §3.2.2: a target in absolute form overrides Host.
        head.headers.insert(HOST, host);
    }
    let mut record = Record::start(lane, &head, index);
    let matched = Cell::new(RouteId::UNMATCHED);

    let response = if let Some(response) = answer_early(app, &head) {
        response
    } else {
        let stall = (head.version == Version::HTTP_2).then_some(app.limits.body_stall_timeout);
        let body = Body::incoming(incoming, app.limits.max_body_bytes, stall);
        let request = Request::from_parts(head, body, connection.peer, record.request_id.clone());
        if app.middleware.is_empty() {
            let mut slot = SlotGuard::take(lane);
            let called = catch_unwind(AssertUnwindSafe(|| {
                app.router.dispatch(request, &matched, slot.get())
            }));
            match called {
                Ok(Some(response)) => response,
                Ok(None) => {
                    let mut timer = None;
                    poll_fn(|cx| poll_guarded(|cx| slot.get().poll(cx), lane, &mut timer, cx)).await
                }
                Err(_) => answer_panic(lane),
            }
        } else {
            let next = Next::new(&app.middleware, &app.router, &matched);
            match catch_unwind(AssertUnwindSafe(|| next.run(request))) {
                Ok(mut chain) => {
                    let mut timer = None;
                    poll_fn(|cx| poll_guarded(|cx| chain.as_mut().poll(cx), lane, &mut timer, cx))
                        .await
                }
                Err(_) => answer_panic(lane),
            }
        }
    };
    Ok(record.finish(&connection, matched.get(), response))
}

/// A future slot on loan from the lane, given back empty.
struct SlotGuard<'a> {
    lane: &'a Lane,
    slot: Option<FutureSlot>,
}

impl<'a> SlotGuard<'a> {
    fn take(lane: &'a Lane) -> Self {
        let slot = lane.future_slots.borrow_mut().pop();
        Self { lane, slot }
    }

    fn get(&mut self) -> &mut FutureSlot {
        self.slot.get_or_insert_with(FutureSlot::new)
    }
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        if let Some(mut slot) = self.slot.take() {
            slot.clear();
            self.lane.future_slots.borrow_mut().push(slot);
        }
    }
}

/// Polls a handler; its panic or its time limit is an answer too.
fn poll_guarded(
    poll: impl FnOnce(&mut Context<'_>) -> Poll<Response>,
    lane: &Lane,
    timer: &mut Option<Pin<Box<Sleep>>>,
    cx: &mut Context<'_>,
) -> Poll<Response> {
    match catch_unwind(AssertUnwindSafe(|| poll(cx))) {
        Ok(Poll::Ready(response)) => return Poll::Ready(response),
        Ok(Poll::Pending) => {}
        Err(_) => return Poll::Ready(answer_panic(lane)),
    }
    let Some(limit) = lane.app.limits.request_timeout else {
        return Poll::Pending;
    };
    let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
    if timer.as_mut().poll(cx).is_pending() {
        return Poll::Pending;
    }
    lane.metrics().rejected(Reject::RequestTimeout);
    Poll::Ready(
        Problem::new(StatusCode::GATEWAY_TIMEOUT)
            .with_detail("the handler did not answer within server.limits.timeout_request")
            .into_response(),
    )
}

/// The panic hook has said where; the client learns that it failed.
fn answer_panic(lane: &Lane) -> Response {
    lane.metrics().panicked();
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR).into_response()
}

/// What is answered without the application: invalid HTTP/2 heads,
/// `OPTIONS *`, CORS preflight.
fn answer_early(app: &App, head: &Parts) -> Option<Response> {
    if head.version == Version::HTTP_2
        && let Err(detail) = check_h2_head(head)
    {
        let problem = Problem::new(StatusCode::BAD_REQUEST).with_detail(detail);
        return Some(problem.into_response());
    }
    if head.method != Method::OPTIONS {
        return None;
    }
    if head.uri.path() == "*" {
        let allow = HeaderValue::from_static("DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");
        return Some(Response::new(StatusCode::NO_CONTENT).with_header(ALLOW, allow));
    }
    let cors = app.builtins.cors.as_ref()?;
    match app.router.find(&head.method, head.uri.path()) {
        Lookup::NotFound | Lookup::BadPath | Lookup::Redirect { .. } => None,
        Lookup::Options { allow } | Lookup::MethodNotAllowed { allow } => {
            cors.preflight(head, Some(&allow))
        }
        Lookup::Found { .. } => cors.preflight(head, None),
    }
}

/// Target and authority rules of HTTP/2 (RFC 9113 §8.3.1) that h2 leaves open.
fn check_h2_head(head: &Parts) -> Result<(), &'static str> {
    if head.method == Method::CONNECT {
        return Err("CONNECT is not served here");
    }
    let path = head.uri.path();
    if !(path.starts_with('/') || path == "*" && head.method == Method::OPTIONS) {
        return Err("the :path is not a path");
    }
    let authority = head
        .uri
        .authority()
        .map(|authority| authority.as_str().as_bytes());
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = hosts.next().map(HeaderValue::as_bytes);
    if hosts.next().is_some() {
        return Err("the request has two Host headers");
    }
    match (authority, host) {
        (None, None) => Err("the request has neither :authority nor Host"),
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            Err(":authority and Host differ")
        }
        (Some(value), _) | (None, Some(value)) if !is_valid_host(value) => {
            Err("the :authority is not a host")
        }
        _ => Ok(()),
    }
}

/// What is kept of a request for the moment its response is ready.
struct Record<'a> {
    lane: &'a Lane,
    /// Number of the request on its connection, from 0.
    index: u64,
    started: Instant,
    method: Method,
    request_id: Option<HeaderValue>,
    origin: Option<HeaderValue>,
    log: Option<Box<LogFields>>,
    finished: bool,
}

/// What only the access log needs.
struct LogFields {
    time: SystemTime,
    uri: Uri,
    version: Version,
    user_agent: Option<HeaderValue>,
    referer: Option<HeaderValue>,
}

impl<'a> Record<'a> {
    fn start(lane: &'a Lane, head: &Parts, index: u64) -> Self {
        lane.metrics().request_started();
        let builtins = &lane.app.builtins;
        Self {
            lane,
            index,
            started: Instant::now(),
            method: head.method.clone(),
            request_id: builtins
                .request_id
                .as_ref()
                .map(|id| id.assign(&head.headers)),
            origin: builtins
                .cors
                .as_ref()
                .and_then(|_| head.headers.get(ORIGIN).cloned()),
            log: builtins.access_log.as_ref().map(|_| {
                Box::new(LogFields {
                    time: SystemTime::now(),
                    uri: head.uri.clone(),
                    version: head.version,
                    user_agent: head.headers.get(USER_AGENT).cloned(),
                    referer: head.headers.get(REFERER).cloned(),
                })
            }),
            finished: false,
        }
    }

    /// Completes `response`, counts and logs it.
    fn finish(
        &mut self,
        connection: &Connection,
        route: RouteId,
        response: Response,
    ) -> http::Response<Body> {
        let lane = self.lane;
        let builtins = &lane.app.builtins;
        let mut response = self.settle(connection, response).into_http();
        let status = response.status();
        if let Some(id) = &self.request_id {
            RequestId::apply(id.clone(), response.headers_mut());
        }
        if let Some(security) = &builtins.security_headers {
            security.apply(response.headers_mut());
        }
        if let Some(cors) = &builtins.cors {
            cors.apply(self.origin.as_ref(), response.headers_mut());
        }
        if status == StatusCode::PAYLOAD_TOO_LARGE {
            lane.metrics().rejected(Reject::BodyBytes);
        }
        let now = Instant::now();
        connection.answered_at.set(now);
        let duration = now - self.started;
        lane.metrics()
            .request_finished(route, &self.method, status, duration);
        self.finished = true;
        if let (Some(log), Some(fields)) = (&builtins.access_log, &self.log) {
            let lost = log.record(&Entry {
                time: fields.time,
                peer: connection.peer,
                method: &self.method,
                path: fields.uri.path(),
                query: fields.uri.query(),
                version: fields.version,
                status,
                bytes: response.body().size_hint().exact(),
                duration,
                route: lane.app.pattern(route),
                request_id: self.request_id.as_ref(),
                user_agent: fields.user_agent.as_ref(),
                referer: fields.referer.as_ref(),
            });
            lane.metrics().access_log_dropped(lost);
        }
        response
    }

    /// Makes the framing of `response` right, whatever the handler set.
    fn settle(&self, connection: &Connection, mut response: Response) -> Response {
        let status = response.status();
        if connection.body_stalled.get() && status == StatusCode::BAD_REQUEST {
            response = Problem::from(&BodyError::Stalled).into_response();
        } else if status.is_informational() {
            response = Problem::new(StatusCode::INTERNAL_SERVER_ERROR).into_response();
        } else if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
            response = response.with_body(Body::empty());
            remove_framing(response.headers_mut());
        } else if let Some(length) = response.body().size_hint().exact() {
            // hyper writes the length of a body that it knows; a different one
            // from the handler would put the connection out of step.
            remove_framing(response.headers_mut());
            if connection.is_h2.get() && self.method == Method::HEAD {
                // On HTTP/2 hyper sends the body of an answer to HEAD too.
                response = response
                    .with_body(Body::empty())
                    .with_header(CONTENT_LENGTH, length.into());
            }
        } else if connection.is_h2.get() && self.method == Method::HEAD {
            response = response.with_body(Body::empty());
        }
        // An answer that overtakes its request's body ends the connection:
        // what is left of the body cannot be waited for.
        let overtakes = connection.num_complete.get() <= self.index;
        let ends = overtakes || connection.lane.draining_since.get().is_some();
        if ends && !connection.is_h2.get() {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.lane.metrics().request_abandoned();
        }
    }
}

fn remove_framing(headers: &mut HeaderMap) {
    // Two look-ups are dearer than a glance at the few headers there are.
    if headers
        .keys()
        .any(|name| name == CONTENT_LENGTH || name == TRANSFER_ENCODING)
    {
        headers.remove(CONTENT_LENGTH);
        headers.remove(TRANSFER_ENCODING);
    }
}
