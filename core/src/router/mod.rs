//! The URL router: (method, path) → route, or the right refusal.
//!
//! Guarantees: a lookup with up to four parameters and nothing to decode
//! allocates nothing; a path is compared in its canonical spelling (RFC 3986
//! §6.2.2), so an encoded slash never splits a segment; `Allow` is complete
//! (RFC 9110 §10.2.1). Why a trie of our own: `docs/adr/0003-own-route-trie.md`.

mod dispatch;
mod layer;
mod lookup;
mod path;
mod pattern;
mod percent;
mod route;
mod stems;
#[cfg(test)]
mod tests;
mod trie;

use http::{HeaderValue, Method};

use crate::error::Error;
use crate::handler::Handler;
use crate::request::PathParams;
use crate::router::layer::Layered;
use crate::router::pattern::Pattern;
use crate::router::trie::{ANY, NUM_STANDARD, Slot, Trie};

pub use crate::router::layer::{Begun, Finish, Layer};
pub use crate::router::route::{Route, RouteId, RouteInfo, RouteOptions};

/// What to do with a path that differs from a route by one trailing slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrailingSlash {
    /// Not found.
    #[default]
    Strict,
    /// 308 to the registered form.
    Redirect,
    /// Served as if it were the registered form.
    Ignore,
}

/// Outcome of a lookup.
#[derive(Debug)]
pub enum Lookup<'r> {
    /// A route answers; HEAD is answered by the GET route.
    Found {
        /// The route.
        route: &'r Route,
        /// Its path parameters.
        params: PathParams,
    },
    /// The path exists for other methods, which `allow` lists.
    MethodNotAllowed {
        /// Value of the `Allow` header, complete.
        allow: HeaderValue,
    },
    /// An OPTIONS request that no route answers itself.
    Options {
        /// Value of the `Allow` header, complete.
        allow: HeaderValue,
    },
    /// The registered form of the path, relative, with one leading slash.
    Redirect {
        /// Path without query.
        path: String,
    },
    /// Invalid percent-encoding or not UTF-8: 400.
    BadPath,
    /// No route has this path.
    NotFound,
}

/// Maps a method and a path to a route.
///
/// # Patterns
/// Segments are literal text, `{name}`, a typed `{name:int}`, or at the end
/// a catch-all `{*name}`. Types: `int` (`i64`), `uint` (`u64`), `float`
/// (finite), `uuid` (hyphenated), `str` (the default) and `path`, which is
/// the catch-all. A parameter fills its segment and matches one or more
/// characters; a catch-all matches one or more characters, slashes included,
/// and does not remove `..`. A literal brace is written `%7B` or `%7D`.
///
/// # Which route wins
/// Segment by segment from the left: literal, typed parameter (uuid, uint,
/// int, float), parameter, catch-all. A choice that leads nowhere, because a
/// later segment or a type does not match or the method has no route there, is
/// given up for the next. Two routes of a method that differ in the names of
/// parameters alone are a conflict when registered.
///
/// # Methods
/// HEAD without a route of its own is answered by GET's. OPTIONS without one
/// is answered with `Allow`. A route for any method answers custom methods
/// too, and yields to a route for one method with the same path.
///
/// ```
/// use http::Method;
/// use justapi_core::{Lookup, Request, Router};
///
/// # fn main() -> Result<(), justapi_core::Error> {
/// let router = Router::new()
///     .get("/users/{id:int}", async |request: Request| {
///         request.param("id").unwrap_or_default().to_owned()
///     })?
///     .post("/users", async |_| "made")?;
///
/// let Lookup::Found { route, params } = router.find(&Method::GET, "/users/7") else {
///     panic!("no route");
/// };
/// assert_eq!(route.pattern(), "/users/{id:int}");
/// assert_eq!(params.get("id", "/users/7"), Some("7"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Router {
    /// Index is the route's id.
    routes: Vec<Route>,
    trailing_slash: TrailingSlash,
    trie: Trie,
    /// Methods beyond [`STANDARD`], whose slots follow [`ANY`].
    custom: Vec<Method>,
    /// Whether a HEAD request may have a route that is not GET's.
    has_head_routes: bool,
    layer: Option<Layered>,
}

impl Router {
    /// A router without routes, strict about trailing slashes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route.
    ///
    /// # Errors
    /// [`Error::RoutePattern`] when the pattern breaks the grammar,
    /// [`Error::RouteConflict`] when no lookup could tell it from another.
    pub fn route(
        self,
        method: Method,
        pattern: &str,
        handler: impl Handler,
    ) -> Result<Self, Error> {
        self.route_with(method, pattern, RouteOptions::new(), handler)
    }

    /// Adds a route that does not keep all of the server's settings.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub fn route_with(
        self,
        method: Method,
        pattern: &str,
        options: RouteOptions,
        handler: impl Handler,
    ) -> Result<Self, Error> {
        self.add(Some(method), pattern, options, Box::new(handler))
    }

    /// Adds a route for every method, custom ones included.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub fn any(self, pattern: &str, handler: impl Handler) -> Result<Self, Error> {
        self.any_with(pattern, RouteOptions::new(), handler)
    }

    /// [`Router::any`] that does not keep all of the server's settings.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub fn any_with(
        self,
        pattern: &str,
        options: RouteOptions,
        handler: impl Handler,
    ) -> Result<Self, Error> {
        self.add(None, pattern, options, Box::new(handler))
    }

    /// Adds a GET route, which also answers HEAD.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub fn get(self, pattern: &str, handler: impl Handler) -> Result<Self, Error> {
        self.route(Method::GET, pattern, handler)
    }

    /// Adds a POST route.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub fn post(self, pattern: &str, handler: impl Handler) -> Result<Self, Error> {
        self.route(Method::POST, pattern, handler)
    }

    /// Adds a PUT route.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub fn put(self, pattern: &str, handler: impl Handler) -> Result<Self, Error> {
        self.route(Method::PUT, pattern, handler)
    }

    /// Adds a PATCH route.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub fn patch(self, pattern: &str, handler: impl Handler) -> Result<Self, Error> {
        self.route(Method::PATCH, pattern, handler)
    }

    /// Adds a DELETE route.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub fn delete(self, pattern: &str, handler: impl Handler) -> Result<Self, Error> {
        self.route(Method::DELETE, pattern, handler)
    }

    /// Adds a HEAD route, in place of the one that GET implies.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub fn head(self, pattern: &str, handler: impl Handler) -> Result<Self, Error> {
        self.route(Method::HEAD, pattern, handler)
    }

    /// Adds an OPTIONS route, in place of the automatic answer.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub fn options(self, pattern: &str, handler: impl Handler) -> Result<Self, Error> {
        self.route(Method::OPTIONS, pattern, handler)
    }

    /// Puts a layer around the routes that there are, and around what is
    /// answered where no route does; in place of one that was put before.
    ///
    /// Routes that are added later are outside of it, those of the server
    /// among them.
    #[must_use]
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.layer = Some(Layered {
            layer: Box::new(layer),
            num_routes: self.routes.len() as u32,
        });
        self
    }

    /// Adds the routes of `inner` below `prefix`, after the ones here.
    ///
    /// `prefix` is a pattern and may have parameters. The inner `/` becomes
    /// the prefix itself, without a slash unless the prefix ends with one.
    /// The trailing slash policy and the layer of `inner` are dropped.
    ///
    /// # Errors
    /// As [`Router::route`], with patterns as they read after nesting.
    pub fn nest(self, prefix: &str, inner: Self) -> Result<Self, Error> {
        Pattern::parse(prefix)?;
        let stem = prefix.strip_suffix('/').unwrap_or(prefix);
        inner.routes.into_iter().try_fold(self, |router, route| {
            let pattern = match route.pattern() {
                "/" => prefix.to_owned(),
                pattern => format!("{stem}{pattern}"),
            };
            router.add(route.method, &pattern, route.options, route.handler)
        })
    }

    /// Adds the routes of `other`, after the ones here.
    ///
    /// The trailing slash policy and the layer of `other` are dropped.
    ///
    /// # Errors
    /// [`Error::RouteConflict`] as [`Router::route`].
    pub fn merge(self, other: Self) -> Result<Self, Error> {
        other.routes.into_iter().try_fold(self, |router, route| {
            router.add(
                route.method,
                &route.pattern.text,
                route.options,
                route.handler,
            )
        })
    }

    /// Sets what happens to a path with one trailing slash too many or too few.
    #[must_use]
    pub fn trailing_slash(mut self, policy: TrailingSlash) -> Self {
        self.trailing_slash = policy;
        self
    }

    /// The routes themselves, in the order of their ids.
    pub(crate) fn table(&self) -> &[Route] {
        &self.routes
    }

    /// All routes in the order of their ids.
    pub fn routes(&self) -> impl Iterator<Item = RouteInfo> {
        self.routes.iter().map(|route| RouteInfo {
            id: route.id,
            method: route.method.clone(),
            pattern: route.pattern.text.clone(),
        })
    }

    fn add(
        mut self,
        method: Option<Method>,
        pattern: &str,
        options: RouteOptions,
        handler: Box<dyn Handler>,
    ) -> Result<Self, Error> {
        if let Some(fault) = handler.contract().fault() {
            return Err(Error::RouteSchema {
                method: method.map_or_else(|| "*".to_owned(), |method| method.to_string()),
                path: pattern.to_owned(),
                fault: fault.clone(),
            });
        }
        let index = self.routes.len() as u32;
        self.routes.push(Route {
            id: RouteId(index),
            method,
            pattern: Pattern::parse(pattern)?,
            options,
            handler,
        });
        let route = &self.routes[index as usize];
        let slot = match &route.method {
            Some(method) => self.slot(method).unwrap_or_else(|| {
                self.custom.push(method.clone());
                ANY + self.custom.len()
            }),
            None => ANY,
        };
        self.has_head_routes |= route.method == Some(Method::HEAD);
        match self.trie.insert(&route.pattern.segments, slot, index) {
            Ok(()) => Ok(self),
            Err(existing) => Err(Error::RouteConflict {
                method: route.method.clone().unwrap_or(Method::GET),
                path: pattern.to_owned(),
                existing: self.routes[existing as usize].pattern.text.clone(),
            }),
        }
    }

    /// Place of a method in the trie; `None` when no route names it.
    #[inline]
    fn slot(&self, method: &Method) -> Option<Slot> {
        Some(match *method {
            Method::GET => GET,
            Method::POST => 1,
            Method::PUT => 2,
            Method::DELETE => 3,
            Method::HEAD => HEAD,
            Method::OPTIONS => 5,
            Method::CONNECT => 6,
            Method::PATCH => 7,
            Method::TRACE => 8,
            _ => ANY + 1 + self.custom.iter().position(|known| known == method)?,
        })
    }
}

const GET: Slot = 0;
const HEAD: Slot = 4;

/// Methods by their slots; custom ones are searched for by name.
const STANDARD: [Method; NUM_STANDARD] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::HEAD,
    Method::OPTIONS,
    Method::CONNECT,
    Method::PATCH,
    Method::TRACE,
];
