//! A JSON Schema with what it needs to be compiled, and the compiled form.
//!
//! Guarantees: compiling reads no file and opens no connection, so a `$ref`
//! to a document that was not given is an error; patterns run in linear time
//! unless the schema asks for look-around, which then has a step limit.

use std::sync::Arc;

use jsonschema::json::Json;
use jsonschema::{
    PatternCache, PatternOptions, Registry, Retrieve, ValidationError, ValidationOptions, Validator,
};
use serde_json::Value;

use crate::limits::{MAX_PATTERN_BYTES, MAX_SCHEMA_DEPTH};
use crate::validation::acceptor::{Acceptance, Acceptor};
use crate::validation::contract::{Place, SchemaFault};
use crate::validation::email;
use crate::validation::flat::{FlatJson, FlatNode};
use crate::validation::instance::Instance;

/// A JSON Schema, draft 2020-12 unless its `$schema` says otherwise.
///
/// ```
/// use justapi_core::Schema;
/// use serde_json::json;
///
/// let schema = Schema::new(json!({
///     "type": "object",
///     "properties": {"owner": {"$ref": "https://example.com/user.json"}},
/// }))
/// .with_resource("https://example.com/user.json", json!({"type": "string"}));
/// # assert_eq!(schema.document()["type"], "object");
/// ```
#[derive(Debug, Clone)]
pub struct Schema {
    document: Value,
    resources: Vec<(String, Value)>,
    asserts_formats: bool,
    max_pattern_steps: Option<usize>,
}

impl Schema {
    /// Takes a schema document; a boolean is one too.
    pub const fn new(document: Value) -> Self {
        Self {
            document,
            resources: Vec::new(),
            asserts_formats: false,
            max_pattern_steps: None,
        }
    }

    /// Adds a document that references may name by its absolute URI.
    ///
    /// Nothing is fetched: a reference finds the meta-schemas of the known
    /// drafts and what is given here.
    #[must_use]
    pub fn with_resource(mut self, uri: impl Into<String>, document: Value) -> Self {
        self.resources.push((uri.into(), document));
        self
    }

    /// Checks `format`, which draft 2020-12 only notes by default.
    #[must_use]
    pub const fn assert_formats(mut self) -> Self {
        self.asserts_formats = true;
        self
    }

    /// Allows look-around and back-references in patterns, at most `max_steps`
    /// backtracking steps for one text.
    ///
    /// A text that needs more steps is refused as invalid. Without this such a
    /// pattern is an error at registration, and all patterns are linear.
    #[must_use]
    pub const fn allow_backtracking(mut self, max_steps: usize) -> Self {
        self.max_pattern_steps = Some(max_steps);
        self
    }

    /// The document as it was given.
    pub const fn document(&self) -> &Value {
        &self.document
    }

    /// The documents that references may name, by URI.
    pub fn resources(&self) -> impl Iterator<Item = (&str, &Value)> {
        let pairs = self.resources.iter();
        pairs.map(|(uri, document)| (uri.as_str(), document))
    }

    /// Compiles it for `place` of a route.
    ///
    /// # Errors
    /// A fault that says where in the document, and why.
    pub(super) fn compile(&self, place: Place) -> Result<Validator, SchemaFault> {
        let registry = self.registry(place)?;
        let options = self.options(&registry, PatternCache::new());
        build(place, &options, &self.document)
    }

    /// Compiles it for the body of a route: for documents as they come, and
    /// for parsed ones.
    ///
    /// # Errors
    /// As [`Schema::compile`].
    pub(super) fn compile_for_body(&self) -> Result<BodyValidator, SchemaFault> {
        let registry = self.registry(Place::Body)?;
        let patterns = PatternCache::new();
        let exact = self.options(&registry, patterns.clone());
        let flat = self
            .options::<FlatJson>(&registry, patterns)
            .with_format("email", email::is_valid);
        Ok(BodyValidator {
            plain: Acceptor::new(&self.document, self.asserts_formats),
            exact: build(Place::Body, &exact, &self.document)?,
            flat: build(Place::Body, &flat, &self.document)?,
        })
    }

    /// The documents that references may name, and nothing else.
    fn registry(&self, place: Place) -> Result<Registry<'_>, SchemaFault> {
        let documents = self.resources.iter().map(|(_, document)| document);
        if documents.chain([&self.document]).any(is_too_deep) {
            let reason = format!("it is nested more than {MAX_SCHEMA_DEPTH} levels deep");
            return Err(SchemaFault::new(place, "", reason));
        }
        Registry::new()
            .retriever(Refuse)
            .extend(self.resources())
            .and_then(jsonschema::RegistryBuilder::prepare)
            .map_err(|error| SchemaFault::new(place, "", error.to_string()))
    }

    /// How to compile it for documents of the form `F`.
    fn options<'r, F: Json>(
        &self,
        registry: &'r Registry<'r>,
        patterns: PatternCache,
    ) -> Options<'r, F> {
        let mut options = jsonschema::options_for::<F>()
            .with_registry(registry)
            .with_retriever(Refuse)
            .with_pattern_cache(patterns);
        if self.asserts_formats {
            options = options.should_validate_formats(true);
        }
        match self.max_pattern_steps {
            None => options.with_pattern_options(
                PatternOptions::regex()
                    .size_limit(MAX_PATTERN_BYTES)
                    .dfa_size_limit(MAX_PATTERN_BYTES),
            ),
            Some(steps) => options.with_pattern_options(
                PatternOptions::fancy_regex()
                    .backtrack_limit(steps)
                    .size_limit(MAX_PATTERN_BYTES)
                    .dfa_size_limit(MAX_PATTERN_BYTES),
            ),
        }
    }
}

type Options<'r, F> = ValidationOptions<'r, Arc<dyn Retrieve>, F>;

fn build<F: Json>(
    place: Place,
    options: &Options<'_, F>,
    document: &Value,
) -> Result<Validator<F>, SchemaFault> {
    options
        .build(document)
        .map_err(|error: ValidationError<'_>| {
            SchemaFault::new(place, error.instance_path().as_str(), error.to_string())
        })
}

/// What the body of a route is checked with.
pub(super) struct BodyValidator {
    /// Has the first word, where the schema is plain.
    plain: Option<Acceptor>,
    flat: Validator<FlatJson>,
    /// Has the last word on what the other one does not accept.
    exact: Validator,
}

impl BodyValidator {
    /// Whether it accepts a text for sure, without making anything of it.
    pub(super) fn accept(&self, text: &str) -> Option<Acceptance> {
        self.plain.as_ref()?.accept(text)
    }

    /// Whether it accepts a document as it came.
    pub(super) fn accepts(&self, instance: &Instance<'_>) -> bool {
        self.flat.is_valid(FlatNode::root(instance))
    }

    /// The validator for parsed documents, which tells all errors.
    pub(super) const fn exact(&self) -> &Validator {
        &self.exact
    }
}

/// Answers every request for a document with a refusal.
#[derive(Debug)]
struct Refuse;

impl Retrieve for Refuse {
    fn retrieve(
        &self,
        uri: &jsonschema::Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("{uri} was not given with the schema, and nothing is fetched").into())
    }
}

/// Whether compiling, which recurses, would need an unreasonable stack.
fn is_too_deep(document: &Value) -> bool {
    let mut level = vec![document];
    for _ in 0..MAX_SCHEMA_DEPTH {
        let mut next = Vec::new();
        for value in level {
            match value {
                Value::Array(items) => next.extend(items),
                Value::Object(members) => next.extend(members.values()),
                _ => {}
            }
        }
        if next.is_empty() {
            return false;
        }
        level = next;
    }
    true
}
