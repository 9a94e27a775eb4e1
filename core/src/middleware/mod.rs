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

pub use self::access_log::{AccessLog, AccessLogFormat};
pub use self::cors::{Cors, CorsConfig};
pub(crate) use self::request_id::Id;
pub use self::request_id::RequestId;
pub use self::security_headers::SecurityHeaders;
use crate::compression::Compression;
use crate::decompression::Decompression;
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
    pub(crate) compression: Option<Compression>,
    pub(crate) decompression: Option<Decompression>,
}

impl Builtins {
    /// The checks before routing: one may change the request, or answer it.
    #[inline]
    pub(crate) fn admit(&self, request: &mut Request) -> Option<Response> {
        if let Some(decompression) = &self.decompression {
            return decompression.admit(request);
        }
        None
    }
}
