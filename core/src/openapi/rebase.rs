//! Moving a JSON Schema into a larger document.
//!
//! Guarantee: a reference to a JSON pointer still finds what it found before;
//! literal values (`const`, `enum`, `default`, `examples`) are left alone, and
//! so is a schema with an `$id`, whose references are relative to that.

use serde_json::Value;

/// Keywords whose value is data, not a schema.
const LITERALS: [&str; 5] = ["const", "enum", "default", "examples", "example"];
/// Keywords whose members are schemas under names of the user's choice.
const NAMED: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];

/// Makes references of `schema` relative to a document that holds its root at
/// `base`, which is a fragment such as `#/components/schemas/User`.
pub(super) fn rebase(schema: &mut Value, base: &str) {
    match schema {
        Value::Object(members) if !members.contains_key("$id") => {
            for (keyword, value) in members {
                match keyword.as_str() {
                    "$ref" | "$dynamicRef" => rebase_reference(value, base),
                    keyword if LITERALS.contains(&keyword) => {}
                    keyword if NAMED.contains(&keyword) => {
                        let named = value.as_object_mut().into_iter().flatten();
                        named.for_each(|(_, schema)| rebase(schema, base));
                    }
                    _ => rebase(value, base),
                }
            }
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(|schema| rebase(schema, base)),
        _ => {}
    }
}

/// Whether a schema has references that [`rebase`] would change.
pub(super) fn has_local_references(schema: &Value) -> bool {
    let mut moved = schema.clone();
    rebase(&mut moved, "#/elsewhere");
    moved != *schema
}

fn rebase_reference(reference: &mut Value, base: &str) {
    let Value::String(text) = reference else {
        return;
    };
    if let Some(pointer) = text.strip_prefix('#')
        && (pointer.is_empty() || pointer.starts_with('/'))
    {
        *text = format!("{base}{pointer}");
    }
}
