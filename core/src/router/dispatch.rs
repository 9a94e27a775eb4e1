//! From a lookup to an answer: the handler's, or the refusal's.

use std::cell::Cell;

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
        mut request: Request,
        matched: &Cell<RouteId>,
        slot: &mut FutureSlot,
    ) -> Option<Response> {
        match self.find(request.method(), request.path()) {
            Lookup::Found { route, params } => {
                matched.set(route.id);
                request.set_params(params);
                if let Some(bytes) = route.options.max_body_bytes {
                    request.body_mut().set_limit(bytes);
                }
                if let Some(limit) = request.body_mut().exceeded_limit() {
                    return Some(BodyError::TooLarge { limit }.into_response());
                }
                route.handler.call(request, slot)
            }
            refused => Some(refusal(refused, request.query())),
        }
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
