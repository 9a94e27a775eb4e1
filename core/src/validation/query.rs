//! Query strings as objects: texts become what the schema says they are.
//!
//! Guarantee: what cannot become a value of the type that the schema names
//! stays a string, so that validation refuses it and says why. Decoding is
//! that of `application/x-www-form-urlencoded` (WHATWG URL §5.1).

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::StatusCode;
use percent_encoding::percent_decode;
use serde_json::{Map, Number, Value};
use smallvec::SmallVec;

use crate::limits::{MAX_QUERY_PARAMETERS, MAX_SCHEMA_HOPS, MAX_SCHEMA_VISITS};
use crate::problem::Problem;
use crate::validation::schema::Schema;

/// How each parameter of a route is read, worked out from its schema once.
#[derive(Debug, Default)]
pub(super) struct QueryPlan {
    properties: BTreeMap<String, Coercion>,
    /// For names that no `properties` lists.
    others: Coercion,
}

/// What a text may become.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Coercion {
    scalar: Types,
    /// Types of the items; `None` when the schema allows no array.
    items: Option<Types>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four types, each allowed or not"
)]
struct Types {
    null: bool,
    boolean: bool,
    number: bool,
    string: bool,
}

impl QueryPlan {
    pub(super) fn new(schema: &Schema) -> Self {
        let mut plan = Self::default();
        let mut walk = Walk::new(schema);
        walk.objects(schema.document(), 0, &mut |walk, found, hops| match found {
            Found::Property(name, property) => {
                let coercion = plan.properties.entry(name.to_owned()).or_default();
                walk.types(property, hops, coercion);
            }
            Found::Others(others) => walk.types(others, hops, &mut plan.others),
        });
        plan
    }

    /// The query as an object.
    ///
    /// # Errors
    /// 400 when a name or value is not UTF-8, or there are too many.
    pub(super) fn read(&self, query: &str) -> Result<Value, Problem> {
        let mut texts: BTreeMap<Cow<'_, str>, SmallVec<[Cow<'_, str>; 1]>> = BTreeMap::new();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        for (index, pair) in pairs.enumerate() {
            if index >= MAX_QUERY_PARAMETERS {
                return Err(Problem::new(StatusCode::BAD_REQUEST)
                    .with_detail("the query has too many parameters")
                    .with_limit("query parameters", MAX_QUERY_PARAMETERS as u64));
            }
            let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(text)) = (decode(name), decode(text)) else {
                return Err(Problem::new(StatusCode::BAD_REQUEST)
                    .with_detail("the query is not percent-encoded UTF-8"));
            };
            texts.entry(name).or_default().push(text);
        }
        let object: Map<String, Value> = texts
            .into_iter()
            .map(|(name, texts)| {
                let coercion = self.properties.get(&*name).unwrap_or(&self.others);
                (name.into_owned(), coercion.read(texts))
            })
            .collect();
        Ok(Value::Object(object))
    }
}

impl Coercion {
    /// The value of a parameter that came as `texts`, one for each time.
    fn read(self, mut texts: SmallVec<[Cow<'_, str>; 1]>) -> Value {
        let is_array_only = self.items.is_some() && self.scalar == Types::default();
        if texts.len() == 1 && !is_array_only {
            return self.scalar.read(texts.remove(0));
        }
        let items = self.items.unwrap_or(self.scalar);
        Value::Array(texts.into_iter().map(|text| items.read(text)).collect())
    }
}

impl Types {
    fn read(self, text: Cow<'_, str>) -> Value {
        match &*text {
            "null" if self.null => return Value::Null,
            "true" if self.boolean => return Value::Bool(true),
            "false" if self.boolean => return Value::Bool(false),
            _ => {}
        }
        match number(&text).filter(|_| self.number) {
            Some(number) => Value::Number(number),
            None => Value::String(text.into_owned()),
        }
    }

    fn name(&mut self, name: &str) {
        match name {
            "null" => self.null = true,
            "boolean" => self.boolean = true,
            "integer" | "number" => self.number = true,
            "string" => self.string = true,
            _ => {}
        }
    }

    fn of(&mut self, value: &Value) {
        self.name(match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) | Value::Object(_) => "",
        });
    }
}

/// A number as JSON spells it, so that `007` and `1_000` stay texts.
fn number(text: &str) -> Option<Number> {
    let is_bare = text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_digit());
    if is_bare {
        serde_json::from_str(text).ok()
    } else {
        None
    }
}

/// `None` when it is not UTF-8; a stray `%` stands for itself.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    let bytes = text.as_bytes();
    if !bytes.contains(&b'+') {
        return percent_decode(bytes).decode_utf8().ok();
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode(spaced.as_bytes()).decode_utf8().ok()?;
    Some(Cow::Owned(decoded.into_owned()))
}

/// The parameters that a query schema lists: name, whether it is required
/// wherever it is listed, schema.
pub(crate) fn parameters(schema: &Schema) -> Vec<(String, bool, Value)> {
    let mut listed: Vec<(String, bool, Value)> = Vec::new();
    let mut walk = Walk::new(schema);
    walk.objects(schema.document(), 0, &mut |_, found, _| {
        if let Found::Property(name, property) = found
            && !listed.iter().any(|(known, ..)| known == name)
        {
            listed.push((name.to_owned(), false, property.clone()));
        }
    });
    let required = schema.document().get("required").and_then(Value::as_array);
    for (name, is_required, _) in &mut listed {
        *is_required = required.is_some_and(|names| names.iter().any(|text| text == name));
    }
    listed
}

/// A part of an object schema.
enum Found<'s> {
    Property(&'s str, &'s Value),
    Others(&'s Value),
}

/// A walk over schemas that ends: references may form a circle.
struct Walk<'s> {
    schema: &'s Schema,
    num_visits: usize,
}

/// Keywords whose subschemas speak of the same value.
const IN_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const IN_PLACE: [&str; 3] = ["if", "then", "else"];

impl<'s> Walk<'s> {
    const fn new(schema: &'s Schema) -> Self {
        Self {
            schema,
            num_visits: 0,
        }
    }

    /// Calls `visit` with each part of the object that `schema` describes.
    fn objects(
        &mut self,
        schema: &'s Value,
        hops: usize,
        visit: &mut impl FnMut(&mut Self, Found<'s>, usize),
    ) {
        if !self.may_visit(hops) {
            return;
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                visit(self, Found::Property(name, property), hops);
            }
        }
        if let Some(others) = schema.get("additionalProperties") {
            visit(self, Found::Others(others), hops);
        }
        for next in self.in_place(schema) {
            self.objects(next, hops + 1, visit);
        }
    }

    /// Adds what `schema` says about the type of a value.
    fn types(&mut self, schema: &'s Value, hops: usize, coercion: &mut Coercion) {
        if !self.may_visit(hops) {
            return;
        }
        let names: Vec<&str> = match schema.get("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        for name in &names {
            coercion.scalar.name(name);
        }
        if names.contains(&"array") {
            let mut items = Coercion::default();
            for keyword in ["items", "contains"] {
                if let Some(item) = schema.get(keyword) {
                    self.types(item, hops + 1, &mut items);
                }
            }
            for item in list(schema, "prefixItems") {
                self.types(item, hops + 1, &mut items);
            }
            let known = coercion.items.get_or_insert_default();
            known.null |= items.scalar.null;
            known.boolean |= items.scalar.boolean;
            known.number |= items.scalar.number;
            known.string |= items.scalar.string;
        }
        if names.is_empty() {
            for value in list(schema, "enum").chain(schema.get("const")) {
                coercion.scalar.of(value);
            }
        }
        for next in self.in_place(schema) {
            self.types(next, hops + 1, coercion);
        }
    }

    fn may_visit(&mut self, hops: usize) -> bool {
        self.num_visits += 1;
        hops <= MAX_SCHEMA_HOPS && self.num_visits <= MAX_SCHEMA_VISITS
    }

    /// Schemas that speak of the same value as `schema`.
    fn in_place(&self, schema: &'s Value) -> Vec<&'s Value> {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let mut next: Vec<_> = reference
            .and_then(|reference| self.resolve(reference))
            .into_iter()
            .collect();
        for keyword in IN_PLACE_LISTS {
            next.extend(list(schema, keyword));
        }
        next.extend(IN_PLACE.iter().filter_map(|keyword| schema.get(keyword)));
        next
    }

    /// Finds `#/pointer` and `URI#/pointer`; anchors and `$id` are not followed.
    fn resolve(&self, reference: &str) -> Option<&'s Value> {
        let (uri, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let document = if uri.is_empty() {
            self.schema.document()
        } else {
            let mut resources = self.schema.resources();
            resources.find_map(|(known, document)| (known == uri).then_some(document))?
        };
        let pointer = decode(pointer)?;
        document.pointer(&pointer)
    }
}

fn list<'s>(schema: &'s Value, keyword: &str) -> impl Iterator<Item = &'s Value> {
    let items = schema.get(keyword).and_then(Value::as_array);
    items.into_iter().flatten()
}
