//! Code around what a router answers, without a future of its own.
//!
//! Guarantee: a layer sees each request before the handler of its route, also
//! where no route answers, and each answer that is made inside of it; an answer
//! that the server makes in a handler's place, after a panic or a missed time
//! limit, is outside.

use std::fmt;
use std::ops::ControlFlow;

pub use crate::handler::Finish;
use crate::request::Request;
use crate::response::Response;
use crate::router::Lookup;

/// A layer's first word: the answer itself, or what is to be done to the
/// answer of the route.
pub type Begun = ControlFlow<Response, Option<Finish>>;

/// Looks at requests before, and at answers after the routes of a router.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use justapi_core::{Begun, HeaderValue, Layer, Request, Router, header};
///
/// struct Named;
///
/// impl Layer for Named {
///     fn begin(&self, _request: &Request) -> Begun {
///         ControlFlow::Continue(Some(Box::new(|response| {
///             response.with_header(header::SERVER, HeaderValue::from_static("named"))
///         })))
///     }
/// }
///
/// # fn main() -> Result<(), justapi_core::Error> {
/// let router = Router::new().get("/", async |_| "hello")?.layer(Named);
/// # Ok(())
/// # }
/// ```
pub trait Layer: Send + Sync + 'static {
    /// Answers `request`, or says what becomes of its answer.
    fn begin(&self, request: &Request) -> Begun;
}

/// A layer and the routes inside of it.
pub(super) struct Layered {
    pub(super) layer: Box<dyn Layer>,
    /// Routes with a lower number are inside.
    pub(super) num_routes: u32,
}

impl Layered {
    /// Whether what this lookup leads to is inside.
    pub(super) fn covers(&self, lookup: &Lookup<'_>) -> bool {
        match lookup {
            Lookup::Found { route, .. } => route.id.0 < self.num_routes,
            _ => true,
        }
    }
}

impl fmt::Debug for Layered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered")
            .field("num_routes", &self.num_routes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::{Context, Poll, Waker};

    use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};

    use super::*;
    use crate::body::Body;
    use crate::handler::{FutureSlot, inline};
    use crate::router::{RouteId, Router};

    const MARK: HeaderName = HeaderName::from_static("x-layer");

    /// Answers `?stop` itself, and marks every other answer.
    struct Marking;

    impl Layer for Marking {
        fn begin(&self, request: &Request) -> Begun {
            if request.query() == Some("stop") {
                return ControlFlow::Break(Response::new(StatusCode::IM_A_TEAPOT));
            }
            ControlFlow::Continue(Some(Box::new(|response| {
                response.with_header(MARK, HeaderValue::from_static("1"))
            })))
        }
    }

    /// Status, whether it was marked, and the number of the route.
    #[track_caller]
    fn check(target: &'static str, expected: (u16, bool, Option<u32>)) {
        let router = Router::new()
            .get("/ready", inline(|_: Request| "ready"))
            .and_then(|router| router.get("/later", async |_| "later"))
            .map(|router| router.layer(Marking))
            .and_then(|router| router.get("/outside", inline(|_: Request| "outside")))
            .expect("the patterns are valid");
        let request = Request::new(Method::GET, Uri::from_static(target), Body::empty());
        let (matched, mut slot) = (Cell::new(RouteId::UNMATCHED), FutureSlot::new());
        let answered = router.dispatch(request, &matched, &mut slot);
        let response =
            answered.unwrap_or_else(
                || match slot.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(response) => response,
                    Poll::Pending => panic!("{target} waits"),
                },
            );
        let number = matched.get();
        let found = (
            response.status().as_u16(),
            response.headers().contains_key(MARK),
            (number != RouteId::UNMATCHED).then_some(number.0),
        );
        assert_eq!(found, expected, "{target}");
    }

    #[test]
    fn a_layer_is_around_earlier_routes_and_refusals() {
        check("/ready", (200, true, Some(0)));
        check("/later", (200, true, Some(1)));
        check("/outside", (200, false, Some(2)));
        check("/nowhere", (404, true, None));
        check("/%ff", (400, true, None));
    }

    #[test]
    fn a_layer_answers_in_place_of_what_is_inside() {
        check("/ready?stop", (418, false, Some(0)));
        check("/later?stop", (418, false, Some(1)));
        check("/outside?stop", (200, false, Some(2)));
        check("/nowhere?stop", (418, false, None));
    }

    #[test]
    fn a_slot_that_is_used_again_has_no_finish_left() {
        let mut slot = FutureSlot::new();
        slot.set(async { Response::new(StatusCode::OK) });
        slot.finish_with(Box::new(|response| {
            response.with_header(MARK, HeaderValue::from_static("1"))
        }));
        slot.clear();
        slot.set(async { Response::new(StatusCode::OK) });
        let polled = slot.poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(response) = polled else {
            panic!("the future was ready");
        };
        assert!(!response.headers().contains_key(MARK));
    }
}
