//! Code around every request: the trait for users' own, and the built-in set.
//!
//! The built-in members are plain hooks that the server calls in one place, in
//! a fixed order; one that is not configured is one untaken branch. Users'
//! middleware cost one boxed future each, and two allocations for the chain.

mod access_log;
mod arrival;
mod cors;
mod forwarded;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod head_lines;
mod https_redirect;
mod rate_limit;
mod request_id;
mod security_headers;
mod span_export;
mod trace_context;
mod trusted_hosts;

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::{Method, Uri};

use http::header::{HeaderMap, HeaderValue};

pub use self::access_log::{AccessLog, AccessLogFormat};
pub(crate) use self::arrival::Arrival;
pub use self::cors::{Cors, CorsConfig};
pub use self::forwarded::{Forwarded, ForwardedHeader, TrustedPeer};
use self::head_lines::HeadLines;
pub use self::https_redirect::HttpsRedirect;
pub use self::rate_limit::{Rate, RateLimit, RateLimitConfig, RateLimitKey};
pub(crate) use self::request_id::Id;
pub use self::request_id::RequestId;
use self::request_id::X_REQUEST_ID;
pub use self::security_headers::SecurityHeaders;
pub use self::span_export::OtlpEndpoint;
pub use self::trace_context::{Trace, TraceContext};
pub use self::trusted_hosts::{HostPattern, TrustedHosts};
use crate::compression::Compression;
use crate::decompression::Decompression;
use crate::handler::FutureSlot;
use crate::limits::Reject;
use crate::request::Request;
use crate::response::Response;
use crate::router::{RouteId, Router};
use crate::session::Sessions;

pub(crate) use self::access_log::Entry;

/// Future of a middleware; it may borrow the middleware.
pub type MiddlewareFuture<'a> = Pin<Box<dyn Future<Output = Response> + 'a>>;

/// Code that runs around routing and the handler.
///
/// It may answer without calling `next` (short-circuit), change the request
/// before and the response after. Implemented by
/// `async |request: Request, next: Next<'_>| -> Response`.
pub trait Middleware: Send + Sync + 'static {
    /// Handles `request`, usually through `next.run(request)`.
    fn handle<'a>(&'a self, request: Request, next: Next<'a>) -> MiddlewareFuture<'a>;
}

impl<F> Middleware for F
where
    F: for<'a> AsyncFn(Request, Next<'a>) -> Response + Send + Sync + 'static,
{
    fn handle<'a>(&'a self, request: Request, next: Next<'a>) -> MiddlewareFuture<'a> {
        Box::pin(self(request, next))
    }
}

/// The rest of the chain, ending in the router.
#[derive(Clone, Copy)]
pub struct Next<'a> {
    chain: &'a [Box<dyn Middleware>],
    router: &'a Router,
    matched: &'a Cell<RouteId>,
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next")
            .field("remaining", &self.chain.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Next<'a> {
    /// `matched` receives the route that the router chose.
    pub(crate) const fn new(
        chain: &'a [Box<dyn Middleware>],
        router: &'a Router,
        matched: &'a Cell<RouteId>,
    ) -> Self {
        Self {
            chain,
            router,
            matched,
        }
    }

    /// Runs what is left: further middleware, then the router's handler.
    pub fn run(self, request: Request) -> MiddlewareFuture<'a> {
        match self.chain.split_first() {
            Some((first, rest)) => first.handle(
                request,
                Next {
                    chain: rest,
                    ..self
                },
            ),
            None => {
                let mut slot = FutureSlot::new();
                match self.router.dispatch(request, self.matched, &mut slot) {
                    Some(response) => Box::pin(std::future::ready(response)),
                    None => Box::pin(poll_fn(move |cx| slot.poll(cx))),
                }
            }
        }
    }
}

/// The built-in members that a server has switched on.
#[derive(Debug, Default)]
pub(crate) struct Builtins {
    pub(crate) cors: Option<Cors>,
    pub(crate) security_headers: Option<SecurityHeaders>,
    pub(crate) request_id: Option<RequestId>,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) forwarded: Option<Forwarded>,
    pub(crate) trusted_hosts: Option<TrustedHosts>,
    pub(crate) https_redirect: Option<HttpsRedirect>,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) sessions: Option<Sessions>,
    pub(crate) trace: Option<Trace>,
    pub(crate) compression: Option<Compression>,
    pub(crate) decompression: Option<Decompression>,
    /// Paths of the server's own probes: an orchestrator asks for them under
    /// any host, in clear, and as often as it likes.
    pub(crate) probe_paths: Vec<&'static str>,
    lines: Option<HeadLines>,
}

impl Builtins {
    /// Checks a request before it is routed; its refusal or redirect.
    ///
    /// A refusal carries its [`Reject`] as an extension.
    pub(crate) fn admit(&self, request: &mut Request) -> Option<Response> {
        let refused = |mut response: Response, reason: Reject| {
            response.extensions_mut().insert(reason);
            response
        };
        let is_exempt = |uri: &Uri| self.probe_paths.contains(&uri.path());
        if let Some(hosts) = &self.trusted_hosts
            && let Some(response) = hosts.check(request)
            && !is_exempt(request.uri())
        {
            return Some(refused(response, Reject::Host));
        }
        if let Some(redirect) = &self.https_redirect
            && let Some(response) = redirect.check(request)
            && !is_exempt(request.uri())
        {
            return Some(response);
        }
        if let Some(limit) = &self.rate_limit
            && !is_exempt(request.uri())
            && let Some(response) = limit.check(request)
        {
            return Some(refused(response, Reject::RateLimit));
        }
        if let Some(sessions) = &self.sessions {
            sessions.open_into(request);
        }
        self.decompression
            .as_ref()
            .and_then(|decompression| decompression.admit(request))
    }

    /// Completes a response: the session's cookie, and the end of the span.
    pub(crate) fn complete(
        &self,
        arrival: &Arrival,
        method: &Method,
        route: Option<&str>,
        duration: Duration,
        response: &mut Response,
    ) {
        if let Some(sessions) = &self.sessions {
            sessions.apply(response, arrival.is_secure());
        }
        if let Some(trace) = &self.trace {
            trace.finish(arrival, method, route, Some(response.status()), duration);
        }
    }

    /// Ends the span of a request that gets no answer.
    pub(crate) fn abandon(
        &self,
        arrival: &Arrival,
        method: &Method,
        route: Option<&str>,
        duration: Duration,
    ) {
        if let Some(trace) = &self.trace {
            trace.finish(arrival, method, route, None, duration);
        }
    }

    /// Counters that members keep themselves: name, help and value.
    pub(crate) fn counters(&self) -> Vec<(&'static str, &'static str, Arc<AtomicU64>)> {
        let mut counters = Vec::new();
        if let Some(limit) = &self.rate_limit {
            counters.push((
                "justapi_rate_limit_evicted_total",
                "Clients forgotten before their bucket was full.",
                Arc::clone(limit.num_evicted()),
            ));
        }
        if let Some([exported, dropped, failed]) = self.trace.as_ref().and_then(Trace::counters) {
            counters.push((
                "justapi_spans_exported_total",
                "Spans that the collector took.",
                Arc::clone(exported),
            ));
            counters.push((
                "justapi_spans_dropped_total",
                "Spans that found the export queue full.",
                Arc::clone(dropped),
            ));
            counters.push((
                "justapi_spans_failed_total",
                "Spans that the collector did not take.",
                Arc::clone(failed),
            ));
        }
        counters
    }
}

impl Builtins {
    /// Adds to a response what the members of this set say.
    pub(crate) fn apply(&self, decoration: &Decoration, headers: &mut HeaderMap) {
        if let Some(id) = &decoration.request_id {
            RequestId::apply(id, headers);
        }
        if let Some(security) = &self.security_headers {
            security.apply(headers, decoration.is_secure);
        }
        if let Some(cors) = &self.cors {
            cors.apply(decoration.origin.as_ref(), headers);
        }
    }

    /// Renders in advance what the members add to responses, if they do.
    ///
    /// To be called once they are complete: [`Self::write`] adds nothing else.
    pub(crate) fn prepared(mut self) -> Self {
        let (id, security, cors) = (&self.request_id, &self.security_headers, &self.cors);
        let has_lines = id.is_some() || security.is_some() || cors.is_some();
        self.lines =
            has_lines.then(|| HeadLines::of(id.as_ref(), security.as_ref(), cors.as_ref()));
        self
    }

    /// [`Builtins::apply`] for a response that is being written: the lines that
    /// its header map need not hold are added to `head` at once.
    pub(crate) fn write(
        &self,
        decoration: &Decoration,
        response: &mut Response,
        head: &mut Vec<u8>,
    ) {
        let Some(lines) = &self.lines else {
            return;
        };
        if lines.is_touched(response.headers()) {
            return self.write_around(decoration, response.headers_mut(), head);
        }
        head.extend_from_slice(lines.block(decoration.is_secure));
        if let Some(cors) = &self.cors {
            cors.write_for(decoration.origin.as_ref(), head);
        }
        if let Some(id) = &decoration.request_id {
            id.write(head);
        }
    }

    /// [`Builtins::write`] where the response has fields of the members.
    #[cold]
    fn write_around(&self, decoration: &Decoration, headers: &mut HeaderMap, head: &mut Vec<u8>) {
        if let Some(id) = &decoration.request_id {
            headers.remove(X_REQUEST_ID);
            id.write(head);
        }
        if let Some(security) = &self.security_headers {
            security.write(headers, decoration.is_secure, head);
        }
        if let Some(cors) = &self.cors {
            cors.apply(decoration.origin.as_ref(), headers);
        }
    }
}

/// What the built-in members keep of a request for its response.
#[derive(Debug, Default)]
pub(crate) struct Decoration {
    pub(crate) request_id: Option<Id>,
    pub(crate) origin: Option<HeaderValue>,
    /// Whether the client speaks HTTPS.
    pub(crate) is_secure: bool,
}

impl Decoration {
    /// The id that a response with these headers will carry.
    pub(crate) fn request_id_in(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        match &self.request_id {
            Some(id) => Some(id.to_header()),
            None => RequestId::of(headers).cloned(),
        }
    }
}

/// Adds a field line to a response head that is being written.
pub(crate) fn write_field(head: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    head.reserve(name.len() + value.len() + 4);
    head.extend_from_slice(name);
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use http::header::{CACHE_CONTROL, ETAG, HeaderName, VARY};

    use super::*;
    use crate::response::SharedHead;

    /// Fields by name, each with its values in order.
    fn sorted(headers: &HeaderMap) -> Vec<(String, String)> {
        let lines = headers.iter().map(|(name, value)| {
            let value = value.to_str().expect("these are text");
            (name.to_string(), value.to_owned())
        });
        let mut lines: Vec<_> = lines.collect();
        lines.sort();
        lines
    }

    /// Checks that the lines of a head say what [`Builtins::apply`] makes of
    /// a response with `fields`, shared or its own.
    #[track_caller]
    fn check(builtins: &Builtins, fields: &[(HeaderName, &'static str)]) {
        let decoration = Decoration {
            request_id: builtins
                .request_id
                .as_ref()
                .map(|_| Id::Taken(HeaderValue::from_static("1"))),
            origin: Some(HeaderValue::from_static("https://a")),
            is_secure: true,
        };
        let fields = fields.iter().cloned();
        let fields: HeaderMap = fields
            .map(|(name, value)| (name, HeaderValue::from_static(value)))
            .collect();
        let mut expected = fields.clone();
        builtins.apply(&decoration, &mut expected);
        let mut own = Response::new(http::StatusCode::OK);
        own.headers_mut().clone_from(&fields);
        let shared = Response::with_shared_head(SharedHead::new(fields), "".into());
        for mut response in [own, shared] {
            let mut head = Vec::new();
            builtins.write(&decoration, &mut response, &mut head);
            let (parts, shared, _) = response.into_parts();
            if let Some(shared) = shared {
                head.extend_from_slice(shared.lines());
            }
            let mut found = parts.headers;
            for line in std::str::from_utf8(&head).expect("text").lines() {
                let (name, value) = line.split_once(": ").expect("a field");
                let name: HeaderName = name.parse().expect("a name");
                found.append(name, value.parse().expect("a value"));
            }
            assert_eq!(sorted(&found), sorted(&expected));
        }
    }

    #[test]
    fn what_is_written_is_what_is_applied() {
        let cors = |origins: &str| {
            Cors::new(CorsConfig {
                origins: vec![origins.into()],
                ..CorsConfig::default()
            })
        };
        let security = SecurityHeaders::new().with_header(CACHE_CONTROL, "no-store");
        let mut builtins = Builtins {
            request_id: Some(RequestId::new(false)),
            security_headers: Some(security.expect("a valid field")),
            ..Builtins::default()
        };
        for cors in [None, Some(cors("*")), Some(cors("https://a"))] {
            builtins.cors = cors.map(|cors| cors.expect("a valid configuration"));
            builtins = builtins.prepared();
            check(&builtins, &[]);
            check(&builtins, &[(ETAG, "\"a\"")]);
            check(
                &builtins,
                &[(CACHE_CONTROL, "max-age=9"), (VARY, "Accept-Encoding")],
            );
            let id = HeaderName::from_static("x-request-id");
            check(&builtins, &[(id, "of the handler"), (ETAG, "\"a\"")]);
        }
    }
}
