//! An accepted document, and what handlers take it as.
//!
//! Guarantee: what a handler does not ask for is not made.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::response::Json;
use crate::validation::acceptor::Acceptance;
use crate::validation::instance::Instance;

/// A JSON document that a schema has accepted.
#[derive(Debug)]
pub struct Document<'a>(Form<'a>);

#[derive(Debug)]
enum Form<'a> {
    /// Nothing has been made of it but the verdict.
    Accepted(&'a str, Acceptance),
    Text(Instance<'a>),
    Value(Value),
}

impl<'a> Document<'a> {
    pub(super) const fn accepted(text: &'a str, acceptance: Acceptance) -> Self {
        Self(Form::Accepted(text, acceptance))
    }

    pub(super) const fn of_text(instance: Instance<'a>) -> Self {
        Self(Form::Text(instance))
    }

    pub(super) const fn of_value(value: Value) -> Self {
        Self(Form::Value(value))
    }

    /// The document itself.
    #[expect(
        clippy::missing_panics_doc,
        reason = "what is not a JSON text is not accepted"
    )]
    pub fn into_value(self) -> Value {
        match self.0 {
            Form::Accepted(text, _) => {
                serde_json::from_str(text).expect("what was accepted is a JSON text")
            }
            Form::Text(instance) => instance.value(instance.root()),
            Form::Value(value) => value,
        }
    }

    /// Any type that serde can make of it.
    ///
    /// # Errors
    /// When it is not of this type.
    pub fn deserialize<T: DeserializeOwned>(self) -> Result<T, serde_json::Error> {
        match self.0 {
            Form::Accepted(text, acceptance) if acceptance.has_distinct_names => {
                serde_json::from_str(text)
            }
            Form::Accepted(text, _) => match Instance::read(text) {
                Some(instance) => Self::of_text(instance).deserialize(),
                None => serde_json::from_str(text),
            },
            // A derived type refuses members that come twice; the schema has
            // seen the last one alone.
            Form::Text(instance) if !instance.has_repeated_names() => {
                serde_json::from_str(instance.text())
            }
            form => serde_json::from_value(Self(form).into_value()),
        }
    }
}

/// What a JSON document that was accepted can be handed over as.
///
/// `Value` is the document itself, [`Json`] any type that serde can make of
/// it, `()` nothing.
pub trait FromJson: Sized {
    /// Converts `document`.
    ///
    /// # Errors
    /// When `document` is not of this form: 422.
    fn from_json(document: Document<'_>) -> Result<Self, serde_json::Error>;
}

impl FromJson for Value {
    fn from_json(document: Document<'_>) -> Result<Self, serde_json::Error> {
        Ok(document.into_value())
    }
}

impl FromJson for () {
    fn from_json(_: Document<'_>) -> Result<Self, serde_json::Error> {
        Ok(())
    }
}

impl<T: DeserializeOwned> FromJson for Json<T> {
    fn from_json(document: Document<'_>) -> Result<Self, serde_json::Error> {
        document.deserialize().map(Self)
    }
}
