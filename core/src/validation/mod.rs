//! Request validation by JSON Schema: bodies and query strings of a route.
//!
//! Guarantees: a schema is compiled when its route is registered, and a bad
//! one is an error there; nothing is ever fetched; a handler behind
//! [`validated`] sees only what its schemas accept; the text of a refusal is
//! bounded. JSON Schema draft 2020-12, or the draft that `$schema` names.

mod acceptor;
mod collect;
mod content_type;
mod contract;
mod document;
mod email;
mod flat;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod handler;
mod instance;
mod query;
mod rejection;
mod schema;
#[cfg(test)]
mod tests;

pub use self::contract::{Contract, SchemaFault};
pub use self::document::{Document, FromJson};
pub use self::handler::{Accepted, Validated, validated};
pub(crate) use self::query::parameters;
pub use self::schema::Schema;
