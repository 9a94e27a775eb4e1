//! From a lookup to an answer: the handler's, or the refusal's.

use std::cell::Cell;
use std::ops::ControlFlow;

use http::header::{ALLOW, LOCATION};
use http::{HeaderValue, StatusCode};

use crate::error::BodyError;
use crate::handler::FutureSlot;
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse as _, Response};
use crate::router::{Lookup, RouteId, Router};

impl Router {
    /// Calls the handler of the matching route, or answers in its place.
    ///
    /// Sets `matched` before the handler runs, and only when a route matched.
    pub(crate) fn dispatch(
        &self,
        request: Request,
        matched: &Cell<RouteId>,
        slot: &mut FutureSlot,
    ) -> Option<Response> {
        self.dispatch_arrived(&mut Some(request), matched, slot)
    }

    /// [`Router::dispatch`] of a request that is taken where it lies: it is
    /// large, and each move copies it.
    pub(crate) fn dispatch_arrived(
        &self,
        arrived: &mut Option<Request>,
        matched: &Cell<RouteId>,
        slot: &mut FutureSlot,
    ) -> Option<Response> {
        let request = arrived.as_ref().expect("a request has arrived");
        let lookup = self.find_bytes(request.method(), request.head().path_bytes());
        let layer = self.layer.as_ref().filter(|layer| layer.covers(&lookup));
        let Some(layer) = layer else {
            return answer(lookup, arrived, matched, slot);
        };
        let finish = match layer.layer.begin(request) {
            ControlFlow::Continue(finish) => finish,
            ControlFlow::Break(response) => {
                if let Lookup::Found { route, .. } = lookup {
                    matched.set(route.id);
                }
                return Some(response);
            }
        };
        match (answer(lookup, arrived, matched, slot), finish) {
            (Some(response), Some(finish)) => Some(finish(response)),
            (None, Some(finish)) => {
                slot.finish_with(finish);
                None
            }
            (answered, None) => answered,
        }
    }
}

fn answer(
    lookup: Lookup<'_>,
    arrived: &mut Option<Request>,
    matched: &Cell<RouteId>,
    slot: &mut FutureSlot,
) -> Option<Response> {
    let request = arrived.as_mut().expect("a request has arrived");
    match lookup {
        Lookup::Found { route, params } => {
            matched.set(route.id);
            request.set_params(params);
            if let Some(bytes) = route.options.max_body_bytes {
                request.body_mut().set_limit(bytes);
            }
            if let Some(limit) = request.body_mut().exceeded_limit() {
                return Some(BodyError::TooLarge { limit }.into_response());
            }
            let request = arrived.take().expect("it has been looked at");
            route.handler.call(request, slot)
        }
        refused => Some(refusal(refused, request.query())),
    }
}

fn refusal(lookup: Lookup<'_>, query: Option<&str>) -> Response {
    match lookup {
        Lookup::MethodNotAllowed { allow } => Problem::new(StatusCode::METHOD_NOT_ALLOWED)
            .into_response()
            .with_header(ALLOW, allow),
        Lookup::Options { allow } => {
            Response::new(StatusCode::NO_CONTENT).with_header(ALLOW, allow)
        }
        Lookup::Redirect { mut path } => {
            if let Some(query) = query {
                path.push('?');
                path.push_str(query);
            }
            match HeaderValue::try_from(path) {
                Ok(location) => {
                    Response::new(StatusCode::PERMANENT_REDIRECT).with_header(LOCATION, location)
                }
                Err(_) => bad_request("the query holds control characters"),
            }
        }
        Lookup::BadPath => bad_request("the path is not percent-encoded UTF-8"),
        Lookup::NotFound | Lookup::Found { .. } => {
            Problem::new(StatusCode::NOT_FOUND).into_response()
        }
    }
}

fn bad_request(detail: &'static str) -> Response {
    Problem::new(StatusCode::BAD_REQUEST)
        .with_detail(detail)
        .into_response()
}
