//! One registered route, and what can be said about it from outside.

use std::fmt;

use http::Method;

use crate::handler::Handler;
use crate::router::pattern::Pattern;
use crate::validation::Contract;

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

    /// What the route decides for itself, and says of itself.
    pub fn options(&self) -> &RouteOptions {
        &self.options
    }

    /// What its handler demands of requests.
    pub fn contract(&self) -> Contract<'_> {
        self.handler.contract()
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

/// What a route decides for itself instead of the server, and what its
/// description says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteOptions {
    /// Body limit in bytes; `None` keeps the server's.
    pub max_body_bytes: Option<u64>,
    /// Description: what it does, in a few words.
    pub summary: Option<&'static str>,
    /// Description: what it does, at length.
    pub description: Option<&'static str>,
    /// Description: its name in generated clients; made of method and path
    /// otherwise.
    pub operation_id: Option<&'static str>,
    /// Description: groups that it belongs to.
    pub tags: &'static [&'static str],
    /// Description: media types of the body that a request has to have.
    pub body_types: &'static [&'static str],
    /// Description: whether it is left out.
    pub is_hidden: bool,
}

impl RouteOptions {
    /// The server's settings throughout.
    pub const fn new() -> Self {
        Self {
            max_body_bytes: None,
            summary: None,
            description: None,
            operation_id: None,
            tags: &[],
            body_types: &[],
            is_hidden: false,
        }
    }

    /// Says what the route does, in a few words.
    #[must_use]
    pub const fn summary(mut self, text: &'static str) -> Self {
        self.summary = Some(text);
        self
    }

    /// Says what the route does, at length.
    #[must_use]
    pub const fn description(mut self, text: &'static str) -> Self {
        self.description = Some(text);
        self
    }

    /// Names the operation in generated clients.
    #[must_use]
    pub const fn operation_id(mut self, name: &'static str) -> Self {
        self.operation_id = Some(name);
        self
    }

    /// Puts the route into groups of the description.
    #[must_use]
    pub const fn tags(mut self, names: &'static [&'static str]) -> Self {
        self.tags = names;
        self
    }

    /// Says that a request has to have a body of one of these media types.
    ///
    /// For handlers without a schema, which say more by themselves.
    #[must_use]
    pub const fn body_types(mut self, media_types: &'static [&'static str]) -> Self {
        self.body_types = media_types;
        self
    }

    /// Leaves the route out of the description.
    #[must_use]
    pub const fn hidden(mut self) -> Self {
        self.is_hidden = true;
        self
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
