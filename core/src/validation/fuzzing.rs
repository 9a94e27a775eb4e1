//! Schemas, documents and queries: compiling and checking end and agree, a
//! document is the same in both of its forms, and a query's values are what
//! its texts say.

use http_body::Body as _;
use jsonschema::JsonType;
use jsonschema::json::{Array as _, Json as _, Node as _, Object as _, unique};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::acceptor::Acceptor;
use super::contract::Place;
use super::flat::{FlatJson, FlatNode};
use super::instance::Instance;
use super::query::{QueryPlan, parameters};
use super::rejection::{self, Faults};
use super::schema::Schema;
use crate::fuzzing::Input;
use crate::limits::{
    MAX_QUERY_PARAMETERS, MAX_SCHEMA_VISITS, MAX_VALIDATION_ERRORS, MAX_VALIDATION_TEXT_BYTES,
};

/// The first line is a schema, the rest a document.
pub(crate) fn check_schema(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let switches = input.byte();
    let end = input.rest().iter().position(|byte| *byte == b'\n');
    let (schema, instance) = input.rest().split_at(end.unwrap_or(input.rest().len()));
    let Ok(document) = serde_json::from_slice::<Value>(schema) else {
        return;
    };
    let mut schema = Schema::new(document).with_resource(
        "https://example.com/other",
        json!({"$ref": "other#/x", "x": {"type": "string"}}),
    );
    if switches & 1 == 1 {
        schema = schema.assert_formats();
    }
    if switches & 2 == 2 {
        schema = schema.allow_backtracking(10_000);
    }
    assert!(parameters(&schema).len() <= MAX_SCHEMA_VISITS);
    let plan = QueryPlan::new(&schema);
    let Ok(body) = schema.compile_for_body() else {
        return;
    };
    let validator = body.exact();
    assert!(
        schema.compile(Place::Query).is_ok(),
        "compiling is repeatable"
    );
    let value = match serde_json::from_slice::<Value>(instance) {
        Ok(value) => value,
        // A query then.
        Err(_) => match plan.read(&String::from_utf8_lossy(instance)) {
            Ok(value) => value,
            Err(_) => return,
        },
    };
    let is_valid = validator.is_valid(&value);
    if let Ok(text) = std::str::from_utf8(instance)
        && let Some(instance) = Instance::read(text)
    {
        assert_eq!(body.accepts(&instance), is_valid, "both forms agree");
        if let Some(acceptance) = body.accept(text) {
            assert!(is_valid, "what is accepted for sure is valid");
            let has_distinct_names = acceptance.has_distinct_names;
            assert!(!has_distinct_names || !instance.has_repeated_names());
        }
    }
    assert_eq!(is_valid, validator.validate(&value).is_ok());
    assert_eq!(is_valid, validator.iter_errors(&value).next().is_none());
    if !is_valid {
        let faults = Faults::of(Place::Body, validator, &value, instance.len());
        let answer = rejection::invalid(None, Some(faults));
        assert_eq!(answer.status().as_u16(), 422);
        let size = answer.body().size_hint().exact().expect("it is whole");
        // JSON writes a control character in six bytes.
        let texts = MAX_VALIDATION_ERRORS * 3 * (6 * MAX_VALIDATION_TEXT_BYTES + 100);
        assert!(size <= texts as u64, "the answer is bounded");
    }
}

/// Bytes that may be a JSON text.
pub(crate) fn check_json_text(bytes: &[u8]) {
    let parsed = serde_json::from_slice::<Value>(bytes).ok();
    let text = std::str::from_utf8(bytes).ok();
    let instance = text.and_then(Instance::read);
    let value = instance
        .as_ref()
        .map(|instance| instance.value(instance.root()));
    assert_eq!(value, parsed, "the same texts are read, as the same values");
    let anything = Acceptor::new(&json!(true), true).expect("it is plain");
    if let Some(acceptance) = text.and_then(|text| anything.accept(text)) {
        let instance = instance.as_ref().expect("what is accepted is JSON");
        assert!(!acceptance.has_distinct_names || !instance.has_repeated_names());
    }
    if let (Some(instance), Some(value)) = (&instance, &parsed) {
        assert_same(FlatNode::root(instance), value);
    }
}

/// Fails unless a validator sees the same in both forms of a value.
fn assert_same(node: FlatNode<'_>, value: &Value) {
    assert!(node.equals_value(value));
    assert!(!node.equals_value(&json!([value])));
    assert_eq!(node.identity(), node.identity());
    assert_eq!(node.to_value().as_ref(), value);
    assert_eq!(node.json_type(), (&value).json_type());
    assert_eq!(node.is_null(), value.is_null());
    assert_eq!(node.as_boolean(), value.as_bool());
    assert_eq!(node.as_string().as_deref(), value.as_str());
    assert_eq!(node.string_length(), (&value).string_length());
    assert_eq!(node.is_string(), node.json_type() == JsonType::String);
    for (min, max) in [(0, 0), (0, 2), (1, 3), (2, 2), (5, u64::MAX)] {
        let expected = (&value).string_length_within(min, max);
        assert_eq!(node.string_length_within(min, max), expected);
    }
    assert_eq!(node.as_number(), value.as_number());
    assert_eq!(node.as_array().is_some(), value.is_array());
    if let (Some(array), Value::Array(values)) = (node.as_array(), value) {
        assert_eq!(array.len(), values.len());
        assert_eq!(array.is_unique(), unique::is_unique(values.as_slice()));
        for (element, value) in array.elements().zip(values) {
            assert_ne!(element.identity(), node.identity());
            assert_same(element, value);
        }
    }
    assert_eq!(node.as_object().is_some(), value.is_object());
    if let (Some(object), Value::Object(values)) = (node.as_object(), value) {
        assert_eq!(object.len(), values.len());
        let mut names: Vec<_> = object.members().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert!(names.iter().eq(values.keys()));
        for (name, value) in values {
            let member = object.get(&FlatJson::prepare_key(name));
            assert_same(member.expect("it is a member"), value);
            let longer = FlatJson::prepare_key(&format!("{name}0"));
            assert_eq!(object.get(&longer).is_some(), values.contains_key(&*longer));
            FlatJson::with_string_node(&mut Instance::default(), name, |node| {
                assert_same(node, &json!(name));
            });
        }
    }
}

/// A query against one of a few schemas.
pub(crate) fn check_query(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let any = json!({"type": ["null", "boolean", "number", "string"]});
    let schema = match input.byte() % 5 {
        0 => json!({}),
        1 => json!({"additionalProperties": {"type": "number"}}),
        2 => json!({"additionalProperties": any}),
        3 => json!({"additionalProperties": {"type": "array", "items": any}}),
        _ => json!({"properties": {
            "a": {"type": "integer"},
            "b": {"type": ["boolean", "null"]},
            "c": {"type": "array", "items": {"type": "number"}},
            "d": {"$ref": "#/properties/c/items"},
        }}),
    };
    let query = String::from_utf8_lossy(input.rest());
    let pairs: Vec<_> = query.split('&').filter(|pair| !pair.is_empty()).collect();
    let decoded: Option<Vec<_>> = pairs
        .iter()
        .map(|pair| {
            let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(text)?))
        })
        .collect();
    let read = QueryPlan::new(&Schema::new(schema)).read(&query);
    let (Ok(Value::Object(object)), Some(decoded)) = (&read, &decoded) else {
        let is_refused = decoded.is_none() || pairs.len() > MAX_QUERY_PARAMETERS;
        assert!(read.is_err() && is_refused, "{read:?}");
        return;
    };
    for (name, value) in object {
        let mut texts = decoded
            .iter()
            .filter_map(|(known, text)| (known == name).then_some(text));
        match value {
            Value::Array(values) => {
                for value in values {
                    check_scalar(value, texts.next().expect("one for each"));
                }
            }
            value => check_scalar(value, texts.next().expect("it was sent")),
        }
        assert_eq!(texts.next(), None, "no value is lost");
    }
    for (name, _) in decoded {
        assert!(object.contains_key(name), "no name is lost");
    }
}

fn decode(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

/// A value is the text, or what JSON makes of it.
fn check_scalar(value: &Value, text: &str) {
    match value {
        Value::String(string) => assert_eq!(string, text),
        other => {
            assert!(other.is_null() || other.is_boolean() || other.is_number());
            assert_eq!(
                serde_json::from_str::<Value>(text).ok().as_ref(),
                Some(other)
            );
        }
    }
}
