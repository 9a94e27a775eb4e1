//! One registered route, and what can be said about it from outside.

use std::fmt;

use http::Method;

use crate::handler::Handler;
use crate::router::pattern::Pattern;

/// A registered route: method, pattern and handler.
pub struct Route {
    pub(super) id: RouteId,
    pub(super) method: Option<Method>,
    pub(super) pattern: Pattern,
    pub(super) options: RouteOptions,
    pub(super) handler: Box<dyn Handler>,
}

impl Route {
    /// Number of the route in its router.
    pub fn id(&self) -> RouteId {
        self.id
    }

    /// Method it answers; `None` for every method.
    pub fn method(&self) -> Option<&Method> {
        self.method.as_ref()
    }

    /// Pattern as written, with the prefixes of the nesting.
    pub fn pattern(&self) -> &str {
        &self.pattern.text
    }

    /// Body limit in bytes that replaces the server's.
    pub fn max_body_bytes(&self) -> Option<u64> {
        self.options.max_body_bytes
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("id", &self.id)
            .field("method", &self.method)
            .field("pattern", &self.pattern.text)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Dense number of a route in registration order; [`RouteId::UNMATCHED`] for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteId(pub u32);

impl RouteId {
    /// No route.
    pub const UNMATCHED: Self = Self(u32::MAX);
}

/// What a route decides for itself instead of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteOptions {
    /// Body limit in bytes; `None` keeps the server's.
    pub max_body_bytes: Option<u64>,
}

impl RouteOptions {
    /// The server's settings throughout.
    pub const fn new() -> Self {
        Self {
            max_body_bytes: None,
        }
    }

    /// Replaces the server's body limit, in bytes.
    #[must_use]
    pub const fn max_body_bytes(mut self, bytes: u64) -> Self {
        self.max_body_bytes = Some(bytes);
        self
    }
}

/// Description of a route, for listings and metric labels.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteInfo {
    /// Number of the route in its router.
    pub id: RouteId,
    /// Method it answers; `None` for every method.
    pub method: Option<Method>,
    /// Pattern as written, with the prefixes of the nesting.
    pub pattern: String,
}
