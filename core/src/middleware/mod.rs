//! Code around every request: the trait for users' own, and the built-in set.
//!
//! The built-in members are plain hooks that the server calls in one place, in
//! a fixed order; one that is not configured is one untaken branch. Users'
//! middleware cost one boxed future each, and two allocations for the chain.

mod access_log;
mod cors;
mod request_id;
mod security_headers;

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;

use http::header::{HeaderMap, HeaderValue};

pub use self::access_log::{AccessLog, AccessLogFormat};
pub use self::cors::{Cors, CorsConfig};
pub(crate) use self::request_id::Id;
pub use self::request_id::RequestId;
pub use self::security_headers::SecurityHeaders;
use crate::handler::FutureSlot;
use crate::request::Request;
use crate::response::Response;
use crate::router::{RouteId, Router};

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
}

impl Builtins {
    /// Adds to a response what the members of this set say.
    pub(crate) fn apply(&self, decoration: &Decoration, headers: &mut HeaderMap) {
        if let Some(id) = &decoration.request_id {
            RequestId::apply(id, headers);
        }
        if let Some(security) = &self.security_headers {
            security.apply(headers);
        }
        if let Some(cors) = &self.cors {
            cors.apply(decoration.origin.as_ref(), headers);
        }
    }

    /// [`Builtins::apply`] for a response that is being written: the lines that
    /// its header map need not hold are added to `head` at once.
    pub(crate) fn write(
        &self,
        decoration: &Decoration,
        headers: &mut HeaderMap,
        head: &mut Vec<u8>,
    ) {
        if let Some(id) = &decoration.request_id {
            RequestId::write(id, headers, head);
        }
        if let Some(security) = &self.security_headers {
            security.write(headers, head);
        }
        if let Some(cors) = &self.cors {
            cors.write(decoration.origin.as_ref(), headers, head);
        }
    }
}

/// What the built-in members keep of a request for its response.
#[derive(Debug, Default)]
pub(crate) struct Decoration {
    pub(crate) request_id: Option<Id>,
    pub(crate) origin: Option<HeaderValue>,
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
