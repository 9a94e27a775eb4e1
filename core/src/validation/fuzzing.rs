//! Schemas and queries: compiling and checking end and agree, and a query's
//! values are what its texts say.

use http_body::Body as _;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::contract::Place;
use super::query::{QueryPlan, parameters};
use super::rejection;
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
    let Ok(validator) = schema.compile(Place::Body) else {
        return;
    };
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
    assert_eq!(is_valid, validator.validate(&value).is_ok());
    assert_eq!(is_valid, validator.iter_errors(&value).next().is_none());
    if !is_valid {
        let answer = rejection::invalid(Place::Body, &validator, &value, instance.len());
        assert_eq!(answer.status().as_u16(), 422);
        let size = answer.body().size_hint().exact().expect("it is whole");
        // JSON writes a control character in six bytes.
        let texts = MAX_VALIDATION_ERRORS * 3 * (6 * MAX_VALIDATION_TEXT_BYTES + 100);
        assert!(size <= texts as u64, "the answer is bounded");
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
