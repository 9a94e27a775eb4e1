//! The URL router: (method, path) → route, or the right refusal.
//!
//! Guarantees: finding a route without parameters allocates nothing; a path
//! is compared in its canonical spelling (RFC 3986 §6.2.2), so an encoded
//! slash never splits a segment; `Allow` is complete (RFC 9110 §10.2.1).

mod dispatch;
mod lookup;
mod pattern;
mod percent;
mod route;
mod table;
#[cfg(test)]
mod tests;

use http::{HeaderValue, Method};

use crate::error::Error;
use crate::handler::Handler;
use crate::request::PathParams;
use crate::router::pattern::Pattern;
use crate::router::table::Table;

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
/// Segment by segment from the left: literal, parameter, catch-all. The route
/// chosen so must also accept its typed values: `/users/x` is not found when
/// `/users/{id:int}` is the choice, even if a catch-all exists. Two routes of
/// a method that put a parameter and a catch-all, or two parameters, at the
/// same place of the same path are a conflict when registered.
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
    /// Routes for any method alone: what a method without a table answers.
    any: Table,
    /// By [`standard_index`]. A table also holds the any-method routes, so
    /// that one lookup decides by path before it decides by method; HEAD's
    /// does not, because GET's come first.
    standard: [Option<Box<Table>>; STANDARD.len()],
    custom: Vec<(Method, Table)>,
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

    /// Adds the routes of `inner` below `prefix`, after the ones here.
    ///
    /// `prefix` is a pattern and may have parameters. The inner `/` becomes
    /// the prefix itself, without a slash unless the prefix ends with one.
    /// The trailing slash policy of `inner` is dropped.
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
    /// The trailing slash policy of `other` is dropped.
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
        let index = self.routes.len() as u32;
        self.routes.push(Route {
            id: RouteId(index),
            method,
            pattern: Pattern::parse(pattern)?,
            options,
            handler,
        });
        let routes = &self.routes;
        let insert = |method: &Method, table: &mut Table| {
            table
                .insert(routes, index)
                .map_err(|existing| Error::RouteConflict {
                    method: method.clone(),
                    path: pattern.to_owned(),
                    existing,
                })
        };
        match &routes[index as usize].method {
            Some(method) => match standard_index(method) {
                Some(place) => {
                    let new = || Box::new(new_table(method, routes));
                    insert(method, self.standard[place].get_or_insert_with(new))?;
                }
                None => match self.custom.iter_mut().find(|(name, _)| name == method) {
                    Some((_, table)) => insert(method, table)?,
                    None => {
                        let mut table = new_table(method, routes);
                        insert(method, &mut table)?;
                        self.custom.push((method.clone(), table));
                    }
                },
            },
            None => {
                insert(&Method::GET, &mut self.any)?;
                for (method, table) in STANDARD.iter().zip(&mut self.standard) {
                    if let Some(table) = table.as_deref_mut().filter(|_| *method != Method::HEAD) {
                        insert(method, table)?;
                    }
                }
                for (method, table) in &mut self.custom {
                    insert(method, table)?;
                }
            }
        }
        Ok(self)
    }
}

/// Methods with a table each; custom ones are searched for by name.
const STANDARD: [Method; 9] = [
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

/// Index into [`STANDARD`], by comparing discriminants only.
fn standard_index(method: &Method) -> Option<usize> {
    Some(match *method {
        Method::GET => 0,
        Method::POST => 1,
        Method::PUT => 2,
        Method::DELETE => 3,
        Method::HEAD => 4,
        Method::OPTIONS => 5,
        Method::CONNECT => 6,
        Method::PATCH => 7,
        Method::TRACE => 8,
        _ => return None,
    })
}

/// Table of a method's first route: the any-method routes registered so far.
fn new_table(method: &Method, routes: &[Route]) -> Table {
    let mut table = Table::default();
    for route in routes {
        if route.method.is_none() && method != Method::HEAD {
            table
                .insert(routes, route.id.0)
                .expect("they are together in the any-method table already");
        }
    }
    table
}
