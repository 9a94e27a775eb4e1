//! How the validator walks a document in its flat form.
//!
//! Guarantee: what it is told of an [`Instance`] is what it would see in the
//! [`Value`] of the same text, so that its verdict is the same.

use std::borrow::Cow;
use std::slice;

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp, unique};
use serde_json::{Number, Value};

use crate::validation::instance::{Instance, Item, MAX_UNSORTED_MEMBERS, Member};

/// Arrays up to this length are compared item by item, as the library does.
const MAX_COMPARED_ITEMS: usize = 15;

/// JSON in the form of [`Instance`].
pub(super) struct FlatJson;

/// A value of a document.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlatNode<'a> {
    instance: &'a Instance<'a>,
    item: &'a Item,
}

impl<'a> FlatNode<'a> {
    pub(super) const fn root(instance: &'a Instance<'a>) -> Self {
        Self {
            instance,
            item: instance.root(),
        }
    }

    fn value(self) -> Value {
        self.instance.value(self.item)
    }

    /// Whether it is no array and no object.
    const fn is_scalar(self) -> bool {
        !matches!(self.item, Item::Array(_) | Item::Object(_))
    }

    /// Whether two scalars are equal (JSON Schema core §4.2.2).
    fn equals_scalar(self, other: Self) -> bool {
        match (self.item, other.item) {
            (Item::Null, Item::Null) => true,
            (Item::Bool(one), Item::Bool(two)) => one == two,
            (Item::Number(one), Item::Number(two)) => cmp::equal_numbers(one, two),
            (Item::String(one), Item::String(two)) => {
                self.instance.str(*one) == other.instance.str(*two)
            }
            _ => false,
        }
    }
}

impl Json for FlatJson {
    type Node<'a> = FlatNode<'a>;
    type PreparedKey = Box<str>;
    type StringBuffer = Instance<'static>;

    // As for the library's own: a pass over few members is cheaper than to
    // search them several times.
    const KEYS_PER_LOOKUP: usize = 2;
    const ACYCLIC: bool = true;

    fn prepare_key(key: &str) -> Box<str> {
        key.into()
    }

    fn with_string_node<T>(
        buffer: &mut Instance<'static>,
        string: &str,
        f: impl FnOnce(FlatNode<'_>) -> T,
    ) -> T {
        buffer.set_string(string);
        f(FlatNode::root(buffer))
    }
}

impl<'a> Node<'a, FlatJson> for FlatNode<'a> {
    type Object = FlatObject<'a>;
    type Array = FlatArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<FlatObject<'a>> {
        match self.item {
            Item::Object(span) => Some(FlatObject {
                instance: self.instance,
                members: self.instance.members(*span),
            }),
            _ => None,
        }
    }

    fn as_array(&self) -> Option<FlatArray<'a>> {
        match self.item {
            Item::Array(span) => Some(FlatArray {
                instance: self.instance,
                items: self.instance.items(*span),
            }),
            _ => None,
        }
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        match self.item {
            Item::String(span) => Some(Cow::Borrowed(self.instance.str(*span))),
            _ => None,
        }
    }

    fn as_number(&self) -> Option<&'a Number> {
        match self.item {
            Item::Number(number) => Some(number),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        match self.item {
            Item::Bool(boolean) => Some(*boolean),
            _ => None,
        }
    }

    fn is_null(&self) -> bool {
        matches!(self.item, Item::Null)
    }

    fn json_type(&self) -> JsonType {
        match self.item {
            Item::Null => JsonType::Null,
            Item::Bool(_) => JsonType::Boolean,
            Item::Number(_) => JsonType::Number,
            Item::String(_) => JsonType::String,
            Item::Array(_) => JsonType::Array,
            Item::Object(_) => JsonType::Object,
        }
    }

    fn string_length_within(&self, min: u64, max: u64) -> Option<bool> {
        let Item::String(span) = self.item else {
            return None;
        };
        // A code point takes one to four bytes.
        let most = span.length() as u64;
        let fewest = most.div_ceil(4);
        if most < min || fewest > max {
            return Some(false);
        }
        if min <= fewest && most <= max {
            return Some(true);
        }
        let length = self.instance.str(*span).chars().count() as u64;
        Some((min..=max).contains(&length))
    }

    fn equals_value(&self, expected: &Value) -> bool {
        match (self.item, expected) {
            (Item::Null, Value::Null) => true,
            (Item::Bool(found), Value::Bool(expected)) => found == expected,
            (Item::Number(found), Value::Number(expected)) => cmp::equal_numbers(found, expected),
            (Item::String(found), Value::String(expected)) => self.instance.str(*found) == expected,
            (Item::Array(_), Value::Array(_)) | (Item::Object(_), Value::Object(_)) => {
                cmp::equal(&self.value(), expected)
            }
            _ => false,
        }
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Owned(self.value())
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref(self.item).addr()))
    }
}

/// An object of a document.
#[derive(Debug)]
pub(super) struct FlatObject<'a> {
    instance: &'a Instance<'a>,
    members: &'a [Member],
}

impl<'a> Object<'a, FlatJson> for FlatObject<'a> {
    type Node = FlatNode<'a>;
    type MemberName = &'a str;
    type MembersIter = Members<'a>;

    fn len(&self) -> usize {
        self.members.len()
    }

    fn get(&self, key: &Box<str>) -> Option<FlatNode<'a>> {
        let Self { instance, members } = self;
        let found = if members.len() <= MAX_UNSORTED_MEMBERS {
            let mut members = members.iter();
            members.find(|member| instance.name_bytes(member) == key.as_bytes())?
        } else {
            let order = |member: &Member| instance.name_bytes(member).cmp(key.as_bytes());
            &members[members.binary_search_by(order).ok()?]
        };
        Some(FlatNode {
            instance,
            item: &found.value,
        })
    }

    fn members(&self) -> Members<'a> {
        Members {
            instance: self.instance,
            members: self.members.iter(),
        }
    }
}

/// The members of an object, in no order.
#[derive(Debug)]
pub(super) struct Members<'a> {
    instance: &'a Instance<'a>,
    members: slice::Iter<'a, Member>,
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, FlatNode<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let member = self.members.next()?;
        let node = FlatNode {
            instance: self.instance,
            item: &member.value,
        };
        Some((self.instance.name(member), node))
    }
}

/// An array of a document.
#[derive(Debug)]
pub(super) struct FlatArray<'a> {
    instance: &'a Instance<'a>,
    items: &'a [Item],
}

impl<'a> Array<'a, FlatJson> for FlatArray<'a> {
    type Node = FlatNode<'a>;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        self.items.len()
    }

    fn elements(&self) -> Elements<'a> {
        Elements {
            instance: self.instance,
            items: self.items.iter(),
        }
    }

    fn is_unique(&self) -> bool {
        if self.items.len() <= MAX_COMPARED_ITEMS && self.elements().all(FlatNode::is_scalar) {
            return self.elements().enumerate().all(|(index, node)| {
                let mut earlier = self.elements().take(index);
                earlier.all(|other| !node.equals_scalar(other))
            });
        }
        let values: Vec<_> = self.elements().map(FlatNode::value).collect();
        unique::is_unique(&values)
    }
}

/// The items of an array.
#[derive(Debug)]
pub(super) struct Elements<'a> {
    instance: &'a Instance<'a>,
    items: slice::Iter<'a, Item>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = FlatNode<'a>;

    fn next(&mut self) -> Option<FlatNode<'a>> {
        let item = self.items.next()?;
        Some(FlatNode {
            instance: self.instance,
            item,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::validation::Schema;
    use crate::validation::fuzzing::check_json_text;

    #[test]
    fn texts_are_the_same_in_both_forms() {
        let wide: Vec<_> = (0..40)
            .map(|number| format!(r#""k{number}":{number}"#))
            .collect();
        let wide = format!("{{{}}}", wide.join(","));
        for text in [
            "null",
            " true ",
            "[]",
            "{}",
            "\"\"",
            r#"{"b":1,"a":2}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"b":{"a":3,"a":4},"a":[5]}"#,
            r#"{"h":1,"g":2,"f":3,"e":4,"d":5,"c":6,"b":7,"a":8}"#,
            r#"{"h":1,"g":2,"f":3,"e":4,"d":5,"c":6,"b":7,"a":8,"i":9}"#,
            r#"{"h":1,"g":2,"f":3,"e":4,"d":5,"c":6,"b":7,"a":8,"h":9}"#,
            r#"{"":0,"a":1,"aa":2,"B":3,"ä":4,"𝄞":5,"":6}"#,
            r#"{"a":1,"\u0061":2,"b\n":"\ud834\udd1e x"}"#,
            r#"["\"","a\"b","\\","ab"]"#,
            "[0,-0,-0.0,0.0,1,1.0,1e2,100,18446744073709551615,18446744073709551616,-9223372036854775809]",
            "[1e308,5e-324,0.1,123456789012345678901234567890]",
            r#"[{"a":1},{"a":1.0},[1],[1.0],"1",1]"#,
            "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,1]",
            &wide,
        ] {
            assert!(serde_json::from_str::<Value>(text).is_ok(), "{text}");
            check_json_text(text.as_bytes());
        }
    }

    #[test]
    fn what_is_not_json_is_in_neither_form() {
        let deep = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for text in [
            &b""[..],
            b"1 2",
            b"[1,]",
            b"{\"a\":1,}",
            b"{1:2}",
            b"01",
            b"1.",
            b"+1",
            b"1e400",
            b"nul",
            b"\"\xff\"",
            b"\xef\xbb\xbf1",
            b"\"\xed\xa0\x80\"",
            b"\"a\nb\"",
            br#""\ud834""#,
            br#""\udd1e\ud834""#,
            br#""\x""#,
            b"[1] \0",
            deep(128).as_bytes(),
        ] {
            assert!(
                serde_json::from_slice::<Value>(text).is_err(),
                "{}",
                text.escape_ascii()
            );
            check_json_text(text);
        }
        check_json_text(deep(127).as_bytes());
    }

    #[test]
    fn buffers_of_an_earlier_document_do_not_show() {
        for text in [
            r#"{"a":["\n",{"b":1}]}"#,
            "[1",
            r#"{"\t":["\n"]}"#,
            "{}",
            r#"["x"]"#,
        ] {
            check_json_text(text.as_bytes());
        }
        let outer = Instance::read(r#"["\n"]"#).unwrap();
        let inner = Instance::read(r#"["\t"]"#).unwrap();
        assert_eq!(outer.value(outer.root()), json!(["\n"]));
        assert_eq!(inner.value(inner.root()), json!(["\t"]));
    }

    #[test]
    fn valid_documents_are_accepted_as_they_came() {
        let schema = Schema::new(json!({"properties": {"a": {"minLength": 2}}, "required": ["a"]}));
        let validator = schema.compile_for_body().unwrap();
        let accepts = |text: &str| validator.accepts(&Instance::read(text).unwrap());
        assert!(accepts(r#"{"a": "xy"}"#));
        assert!(accepts(r#"{"a": 1, "a": "\u0061\n"}"#));
        assert!(!accepts(r#"{"a": "xy", "a": "x"}"#));
        assert!(!accepts("{}"));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            (-3..4).prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[ab]{0,2}".prop_map(Value::from),
            "\\PC{0,4}".prop_map(Value::from),
            "[\"\\\\\n/ä]{0,3}".prop_map(Value::from),
        ];
        scalar.prop_recursive(4, 24, 6, |inner| {
            let name = prop_oneof!["[abc]", "\\PC{0,3}"];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(name, inner, 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Schemas that speak of what [`any_json`] makes.
    fn any_schema() -> impl Strategy<Value = Value> {
        let keyword = prop_oneof![
            prop_oneof![
                "null", "boolean", "integer", "number", "string", "array", "object"
            ]
            .prop_map(|name| json!({"type": name})),
            (-3..4).prop_map(|bound| json!({"minimum": bound, "exclusiveMaximum": bound + 3})),
            (1..4).prop_map(|factor| json!({"multipleOf": factor})),
            (0..3).prop_map(|bound| json!({"minLength": bound, "maxLength": bound + 1})),
            (0..3).prop_map(|bound| json!({"minItems": bound, "uniqueItems": true})),
            (0..3).prop_map(|bound| json!({"minProperties": bound, "maxProperties": bound + 2})),
            Just(json!({"pattern": "^a*$"})),
            Just(json!({"format": "email"})),
            any_json().prop_map(|value| json!({"const": value})),
            proptest::collection::vec(any_json(), 1..3).prop_map(|values| json!({"enum": values})),
            Just(json!({"required": ["a", "b"]})),
            Just(json!({"propertyNames": {"maxLength": 1}})),
            Just(json!({"dependentRequired": {"a": ["b"]}})),
            Just(json!({"$ref": "#"})),
        ];
        keyword.prop_recursive(3, 12, 3, |inner| {
            let pair = (inner.clone(), inner.clone());
            prop_oneof![
                inner.clone().prop_map(|schema| json!({"items": schema})),
                inner.clone().prop_map(|schema| json!({"contains": schema, "maxContains": 2})),
                inner.clone().prop_map(|schema| json!({"not": schema})),
                inner.clone().prop_map(|schema| json!({"additionalProperties": schema})),
                inner.prop_map(|schema| json!({"patternProperties": {"^[ab]": schema}, "unevaluatedProperties": false})),
                pair.clone().prop_map(|(a, b)| json!({"properties": {"a": a, "b": b}})),
                pair.clone().prop_map(|(a, b)| json!({"prefixItems": [a, b], "unevaluatedItems": false})),
                pair.clone().prop_map(|(one, two)| json!({"anyOf": [one, two]})),
                pair.clone().prop_map(|(one, two)| json!({"oneOf": [one, two]})),
                pair.prop_map(|(one, two)| json!({"if": one, "then": two})),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_text_is_the_same_in_both_forms(value in any_json(), at in any::<prop::sample::Index>(), byte: u8) {
            let mut text = value.to_string().into_bytes();
            check_json_text(&text);
            let at = at.index(text.len());
            check_json_text(&text[..at]);
            text[at] = byte;
            check_json_text(&text);
        }

        #[test]
        fn verdicts_are_the_same_in_both_forms(schema in any_schema(), values in proptest::collection::vec(any_json(), 8)) {
            let validator = Schema::new(schema).assert_formats().compile_for_body();
            // A reference may lead back to itself.
            if let Ok(validator) = validator {
                for value in values {
                    let text = value.to_string();
                    let instance = Instance::read(&text).unwrap();
                    let expected = validator.exact().is_valid(&value);
                    prop_assert_eq!(validator.accepts(&instance), expected, "{}", text);
                    prop_assert!(expected || validator.accept(&text).is_none(), "{}", text);
                }
            }
        }
    }
}
