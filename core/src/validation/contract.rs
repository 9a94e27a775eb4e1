//! What a handler demands of its requests, as the router and the API
//! description see it.

use std::fmt;

use crate::validation::schema::Schema;

/// The schemas of a handler, and whether they could be compiled.
#[derive(Debug, Clone, Copy, Default)]
pub struct Contract<'a> {
    pub(super) body: Option<&'a Schema>,
    pub(super) query: Option<&'a Schema>,
    pub(super) answer: Option<&'a Schema>,
    pub(super) fault: Option<&'a SchemaFault>,
}

impl<'a> Contract<'a> {
    /// Schema of the JSON body; `None` when the handler takes any body.
    pub const fn body(&self) -> Option<&'a Schema> {
        self.body
    }

    /// Schema of the query as an object; `None` when any query will do.
    pub const fn query(&self) -> Option<&'a Schema> {
        self.query
    }

    /// Schema of the JSON that a success answers, when the handler says it.
    pub const fn answer(&self) -> Option<&'a Schema> {
        self.answer
    }

    /// Why the handler cannot be registered.
    pub const fn fault(&self) -> Option<&'a SchemaFault> {
        self.fault
    }
}

/// Part of a request that a schema speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Body,
    Query,
    Answer,
}

impl Place {
    /// As it stands in answers.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::Query => "query",
            Self::Answer => "answer",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A schema that cannot be compiled: which, where in it, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaFault {
    place: Place,
    pointer: String,
    reason: String,
}

impl SchemaFault {
    pub(super) fn new(place: Place, pointer: &str, reason: String) -> Self {
        Self {
            place,
            pointer: pointer.to_owned(),
            reason,
        }
    }
}

impl fmt::Display for SchemaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            pointer,
            reason,
        } = self;
        match pointer.as_str() {
            "" => write!(f, "{place} schema: {reason}"),
            pointer => write!(f, "{place} schema at {pointer}: {reason}"),
        }
    }
}
