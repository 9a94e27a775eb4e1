//! The plain part of JSON Schema, checked while a text is read.
//!
//! Guarantee: what an [`Acceptor`] accepts is a JSON text that `serde_json`
//! reads, and is valid by draft 2020-12. Of everything else it says nothing:
//! schemas with other keywords have no acceptor, and texts that are unusual or
//! not valid are left to those who can tell why.

mod scan;

use serde_json::{Map, Number, Value};

use self::scan::Scan;

/// The only dialect it knows.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Names that an object can have rules for: a bit each.
const MAX_NAMES: usize = u64::BITS as usize;
/// Schemas inside of one, at most; beyond it a schema has no acceptor.
const MAX_RULES: usize = 4096;
/// Bounds of what may be any number.
const ANY_NUMBER: (u64, u64) = (0, u64::MAX);
/// Keywords that say nothing about validity.
const ANNOTATIONS: [&str; 11] = [
    "$comment",
    "$defs",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "format",
    "readOnly",
    "title",
    "writeOnly",
];

/// A schema of plain keywords, compiled.
#[derive(Debug)]
pub(super) struct Acceptor {
    rules: Vec<Rule>,
    root: Place,
}

/// What an accepted text is known to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Acceptance {
    /// Whether no object has two members of one name, as far as was looked.
    pub(super) has_distinct_names: bool,
}

/// What is asked of a value.
#[derive(Debug, Clone, Copy)]
struct Place {
    rule: u32,
    /// Null is welcome besides.
    or_null: bool,
}

impl Place {
    /// Where any value is welcome.
    const ANY: Self = Self::of(0);

    const fn of(rule: u32) -> Self {
        Self {
            rule,
            or_null: false,
        }
    }
}

/// A set of JSON types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Types(u8);

impl Types {
    const NONE: Self = Self(0);
    const NULL: Self = Self(1);
    const BOOLEAN: Self = Self(2);
    const INTEGER: Self = Self(4);
    /// Written with a fraction or an exponent.
    const FLOAT: Self = Self(8);
    const NUMBER: Self = Self(Self::INTEGER.0 | Self::FLOAT.0);
    const STRING: Self = Self(16);
    const ARRAY: Self = Self(32);
    const OBJECT: Self = Self(64);
    const ALL: Self = Self(127);

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER,
            "string" => Self::STRING,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => return None,
        })
    }

    /// Whether each of `others` is in it.
    const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

/// What one schema asks for.
#[derive(Debug)]
struct Rule {
    types: Types,
    /// Bounds of a string's length in characters, and of an array's in items.
    lengths: Option<(u64, u64)>,
    num_items: (u64, u64),
    /// The only strings that are welcome.
    choices: Option<Box<[Box<[u8]>]>>,
    /// A string has to be an address of e-mail.
    is_email: bool,
    bounds: Option<Box<Bounds>>,
    items: Place,
    members: Box<[Member]>,
    /// Bits of the members that have to be there.
    required: u64,
    /// For members of other names; `None` forbids them.
    others: Option<Place>,
}

impl Rule {
    fn any() -> Self {
        Self {
            types: Types::ALL,
            lengths: None,
            num_items: ANY_NUMBER,
            choices: None,
            is_email: false,
            bounds: None,
            items: Place::ANY,
            members: Box::default(),
            required: 0,
            others: Some(Place::ANY),
        }
    }

    /// Whether nothing is asked of a string but to be one.
    const fn is_any_string(&self) -> bool {
        self.lengths.is_none() && self.choices.is_none() && !self.is_email
    }
}

/// A member that an object has a rule for.
#[derive(Debug)]
struct Member {
    /// The name, the quotation mark and the colon behind it.
    key: Box<[u8]>,
    /// Up to eight bytes of it in one word, and which bits of that count.
    first: u64,
    mask: u64,
    place: Place,
}

impl Member {
    fn new(name: &str, place: Place) -> Option<Self> {
        let name = name.as_bytes();
        let key = [name, b"\":"].concat();
        let (mut first, mut mask) = ([0; 8], [0; 8]);
        for (index, byte) in key.iter().take(8).enumerate() {
            (first[index], mask[index]) = (*byte, 0xff);
        }
        is_written_as_is(name).then(|| Self {
            key: key.into(),
            first: u64::from_le_bytes(first),
            mask: u64::from_le_bytes(mask),
            place,
        })
    }

    fn name(&self) -> &[u8] {
        &self.key[..self.key.len() - 2]
    }
}

/// Bounds of a number.
#[derive(Debug, Default)]
struct Bounds {
    minimum: Option<Bound>,
    above: Option<Bound>,
    maximum: Option<Bound>,
    below: Option<Bound>,
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    Integer(i64),
    Float(f64),
}

impl Bound {
    fn of(number: &Number) -> Option<Self> {
        match number.as_i64() {
            Some(integer) => Some(Self::Integer(integer)),
            // Unsigned ones beyond the signed are not worth a case.
            None if number.is_u64() => None,
            None => number.as_f64().map(Self::Float),
        }
    }
}

impl Acceptor {
    /// Compiles `document`; `None` when not all of it is plain.
    pub(super) fn new(document: &Value, asserts_formats: bool) -> Option<Self> {
        let mut compiler = Compiler {
            document,
            asserts_formats,
            rules: vec![Rule::any()],
            targets: Vec::new(),
        };
        let root = match document {
            Value::Object(keywords) if keywords.contains_key("$schema") => {
                let dialect = keywords["$schema"].as_str()?;
                if dialect.trim_end_matches('#') != DIALECT {
                    return None;
                }
                let mut keywords = keywords.clone();
                keywords.remove("$schema");
                compiler.place(&Value::Object(keywords))?
            }
            document => compiler.place(document)?,
        };
        Some(Self {
            rules: compiler.rules,
            root,
        })
    }

    /// Whether `text` is accepted for sure.
    pub(super) fn accept(&self, text: &str) -> Option<Acceptance> {
        Scan::new(self, text).document()
    }
}

struct Compiler<'s> {
    document: &'s Value,
    asserts_formats: bool,
    rules: Vec<Rule>,
    /// Rules of what references name.
    targets: Vec<(String, u32)>,
}

impl Compiler<'_> {
    fn place(&mut self, schema: &Value) -> Option<Place> {
        let keywords = match schema {
            Value::Bool(true) => return Some(Place::ANY),
            Value::Object(keywords) => keywords,
            _ => return None,
        };
        if let Some(reference) = keywords.get("$ref") {
            self.are_annotations(keywords, "$ref")?;
            return self.target(reference.as_str()?);
        }
        if let Some(choices) = keywords.get("anyOf") {
            self.are_annotations(keywords, "anyOf")?;
            return self.nullable(choices.as_array()?);
        }
        let rule = self.reserve()?;
        self.rules[rule as usize] = self.rule(keywords)?;
        Some(Place::of(rule))
    }

    /// A place for the rule of a schema, which may refer to itself.
    fn reserve(&mut self) -> Option<u32> {
        let number = self.rules.len();
        if number >= MAX_RULES {
            return None;
        }
        self.rules.push(Rule::any());
        Some(number as u32)
    }

    /// Whether all `keywords` but one are annotations.
    fn are_annotations(&self, keywords: &Map<String, Value>, but: &str) -> Option<()> {
        let mut names = keywords.keys().filter(|name| *name != but);
        names.all(|name| self.is_annotation(name)).then_some(())
    }

    fn is_annotation(&self, name: &str) -> bool {
        ANNOTATIONS.contains(&name) && !(name == "format" && self.asserts_formats)
    }

    /// What `#/$defs/NAME` or `#/definitions/NAME` is.
    fn target(&mut self, reference: &str) -> Option<Place> {
        let known = self.targets.iter().find(|(known, _)| known == reference);
        if let Some((_, rule)) = known {
            return Some(Place::of(*rule));
        }
        let (folder, name) = reference.strip_prefix("#/")?.split_once('/')?;
        if !matches!(folder, "$defs" | "definitions") || name.contains(['/', '~', '%']) {
            return None;
        }
        let definitions = self.document.get(folder)?;
        let keywords = definitions.get(name)?.as_object()?;
        // What refers on would have to be followed, perhaps in a circle.
        if keywords.contains_key("$ref") || keywords.contains_key("anyOf") {
            return None;
        }
        let rule = self.reserve()?;
        self.targets.push((reference.to_owned(), rule));
        self.rules[rule as usize] = self.rule(keywords)?;
        Some(Place::of(rule))
    }

    /// One schema, or null.
    fn nullable(&mut self, choices: &[Value]) -> Option<Place> {
        let is_null = |schema: &Value| {
            let keywords = schema.as_object()?;
            self.are_annotations(keywords, "type")?;
            (keywords.get("type")?.as_str()? == "null").then_some(())
        };
        let other = match choices {
            [one, other] if is_null(one).is_some() => other,
            [other, one] if is_null(one).is_some() => other,
            _ => return None,
        };
        let place = self.place(other)?;
        Some(Place {
            or_null: true,
            ..place
        })
    }

    fn rule(&mut self, keywords: &Map<String, Value>) -> Option<Rule> {
        let mut rule = Rule::any();
        for (name, value) in keywords {
            match name.as_str() {
                "type" => rule.types = types(value)?,
                "minLength" => rule.lengths.get_or_insert(ANY_NUMBER).0 = value.as_u64()?,
                "maxLength" => rule.lengths.get_or_insert(ANY_NUMBER).1 = value.as_u64()?,
                "minItems" => rule.num_items.0 = value.as_u64()?,
                "maxItems" => rule.num_items.1 = value.as_u64()?,
                "enum" => rule.choices = Some(texts(value.as_array()?)?),
                "const" => rule.choices = Some(texts(std::slice::from_ref(value))?),
                "minimum" => rule.bounds.get_or_insert_default().minimum = Some(bound(value)?),
                "exclusiveMinimum" => {
                    rule.bounds.get_or_insert_default().above = Some(bound(value)?);
                }
                "maximum" => rule.bounds.get_or_insert_default().maximum = Some(bound(value)?),
                "exclusiveMaximum" => {
                    rule.bounds.get_or_insert_default().below = Some(bound(value)?);
                }
                "items" => rule.items = self.place(value)?,
                "format" if self.asserts_formats && value == "email" => rule.is_email = true,
                "properties" | "required" | "additionalProperties" => {}
                name if self.is_annotation(name) => {}
                _ => return None,
            }
        }
        // Two lists of choices would have to be compared.
        if keywords.contains_key("enum") && keywords.contains_key("const") {
            return None;
        }
        self.members(keywords, &mut rule)?;
        Some(rule)
    }

    fn members(&mut self, keywords: &Map<String, Value>, rule: &mut Rule) -> Option<()> {
        rule.others = match keywords.get("additionalProperties") {
            None => Some(Place::ANY),
            Some(Value::Bool(false)) => None,
            Some(schema) => Some(self.place(schema)?),
        };
        let mut members = Vec::new();
        if let Some(properties) = keywords.get("properties") {
            for (name, schema) in properties.as_object()? {
                let place = self.place(schema)?;
                members.push(Member::new(name, place)?);
            }
        }
        if let Some(names) = keywords.get("required") {
            for name in names.as_array()? {
                let name = name.as_str()?;
                let known = members.iter();
                let known = known
                    .map(Member::name)
                    .position(|known| known == name.as_bytes());
                let index = match known {
                    Some(index) => index,
                    None => {
                        members.push(Member::new(name, rule.others?)?);
                        members.len() - 1
                    }
                };
                rule.required |= 1_u64.checked_shl(index as u32)?;
            }
        }
        if members.len() > MAX_NAMES {
            return None;
        }
        rule.members = members.into();
        Some(())
    }
}

fn types(value: &Value) -> Option<Types> {
    match value {
        Value::String(name) => Types::named(name),
        Value::Array(names) => names.iter().try_fold(Types::NONE, |all, name| {
            Some(Types(all.0 | Types::named(name.as_str()?)?.0))
        }),
        _ => None,
    }
}

/// Strings that are written as they are.
fn texts(values: &[Value]) -> Option<Box<[Box<[u8]>]>> {
    let texts = values.iter().map(|value| {
        let text = value.as_str()?.as_bytes();
        is_written_as_is(text).then(|| text.into())
    });
    texts.collect()
}

fn bound(value: &Value) -> Option<Bound> {
    Bound::of(value.as_number()?)
}

/// Whether JSON has no need to escape anything in `text`.
fn is_written_as_is(text: &[u8]) -> bool {
    text.iter()
        .all(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::validation::Schema;
    use crate::validation::fuzzing::check_json_text;

    /// Whether `text` is accepted for sure, which only valid ones are.
    #[track_caller]
    fn accepts(schema: &Value, text: &str) -> bool {
        let validator = Schema::new(schema.clone()).assert_formats();
        let validator = validator.compile_for_body().unwrap();
        let plain = Acceptor::new(schema, true).expect("a plain schema");
        let accepts = plain.accept(text).is_some();
        if accepts {
            let value = serde_json::from_str(text).unwrap();
            assert!(validator.exact().is_valid(&value), "{schema} {text}");
        }
        accepts
    }

    #[track_caller]
    fn check(schema: &Value, accepted: &[&str], left: &[&str]) {
        for text in accepted {
            assert!(accepts(schema, text), "{schema} {text}");
        }
        for text in left {
            assert!(!accepts(schema, text), "{schema} {text}");
        }
    }

    #[test]
    fn texts_are_read_by_the_grammar() {
        check(
            &json!(true),
            &[
                " null ",
                "true",
                "\t[false\r,\n1 ]",
                "{}",
                "[]",
                r#"{"a" : {"b":[{}]} }"#,
                r#"" ~\"\\\/\b\f\n\r\t\u00e4ä𝄞""#,
                "\"12345678\"",
                "\"1234567\\n\"",
                "[0,-0,1.5,-1.5e+10,1E-3,0.0,12345678901234567890]",
            ],
            &[
                "",
                " ",
                "nul",
                "truee",
                "1 2",
                "[1,]",
                "[,1]",
                "[1",
                "{\"a\":1,}",
                "{\"a\" 1}",
                "{a:1}",
                "{1:2}",
                "{\"a\":}",
                "01",
                "-",
                "1.",
                ".5",
                "1e",
                "+1",
                "1e400",
                "\"a",
                "\"\\x\"",
                "\"\\u12g4\"",
                "\"\\u+123\"",
                "\"\\ud834\"",
                "\"1234567\n\"",
                "\"12345678\u{1f}\"",
                "\u{feff}1",
            ],
        );
    }

    #[test]
    fn what_is_unusual_is_left_to_others() {
        let deep = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let long = "1".repeat(41);
        check(
            &json!({"properties": {"a": {}}}),
            &[&deep(100), &long[..40], r#"{"b":1,"c":2}"#, "1e99"],
            &[
                &deep(101),
                &long,
                r#"{"\u0061":1}"#,
                r#"{"a":1,"a":2}"#,
                "1e100",
                r#""\ud834\udd1e""#,
            ],
        );
    }

    #[test]
    fn names_that_may_be_repeated_are_noted() {
        let schema = json!({"properties": {"a": {}}});
        let plain = Acceptor::new(&schema, false).unwrap();
        let are_distinct = |text| plain.accept(text).unwrap().has_distinct_names;
        assert!(are_distinct(r#"{"a":[{"b":1},{"b":1}],"b":2}"#));
        assert!(!are_distinct(r#"{"a":1,"b":2,"b":3}"#));
        assert!(!are_distinct(r#"[{"b":1,"b":3}]"#));
    }

    #[test]
    fn keywords_are_what_the_library_says() {
        check(
            &json!({"type": "integer"}),
            &["1", "-7"],
            &["1.0", "1.5", "1e2", "\"1\"", "null"],
        );
        check(
            &json!({"type": ["number", "null"]}),
            &["1", "1.5", "null"],
            &["true", "[]"],
        );
        check(
            &json!({"type": "string", "minLength": 2, "maxLength": 3}),
            &["\"ab\"", "\"äöü\"", "\"𝄞𝄞\""],
            &["\"a\"", "\"abcd\"", "\"\\n\\n\"", "1"],
        );
        check(&json!({"minLength": 2}), &["1", "\"ab\""], &["\"a\""]);
        check(
            &json!({"enum": ["a", "ä"]}),
            &["\"a\"", "\"ä\""],
            &["\"b\"", "\"\\u0061\"", "1", "null", "[]", "{}", "true"],
        );
        check(&json!({"const": "a"}), &["\"a\""], &["\"aa\"", "false"]);
        check(
            &json!({"minimum": 1, "exclusiveMaximum": 3.5}),
            &["1", "3", "1.5", "3.25", "\"x\""],
            &["0", "4", "1.0", "3.5", "0.5", "1234567890123456789"],
        );
        check(
            &json!({"exclusiveMinimum": 0, "maximum": 9_007_199_254_740_993_i64}),
            &["1", "9007199254740993"],
            &["0", "-0", "-1", "9007199254740994", "5e-3", "1.5e16"],
        );
        check(
            &json!({"exclusiveMinimum": 0, "maximum": 1e3}),
            &["5e-3", "999.5", "1000"],
            &["0.0", "-0.5", "1000.0", "1001"],
        );
        check(
            &json!({"items": {"type": "integer"}, "minItems": 1, "maxItems": 2}),
            &["[1]", "[1,2]", "{}"],
            &["[]", "[1,2,3]", "[1,\"a\"]"],
        );
        check(
            &json!({"type": "string", "format": "email"}),
            &["\"ada@example.com\""],
            &["\"ada\"", "\"a@b\\u0063\""],
        );
    }

    #[test]
    fn members_are_checked_in_any_order() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "User",
            "$defs": {
                "Tag": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Tag"}}},
            },
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "name": {"type": "string", "default": "x"},
                "tag": {"$ref": "#/$defs/Tag", "description": "a reference"},
                "age": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": null},
            },
            "required": ["id", "more"],
            "additionalProperties": {"type": "boolean"},
        });
        check(
            &schema,
            &[
                r#"{"id":1,"more":true}"#,
                r#"{"more":true,"name":"a","id":1,"any":false}"#,
                r#"{"tag":{"next":{"next":{}}},"more":true,"id":1,"age":null}"#,
                r#"{"id":1,"age":2.5,"more":true}"#,
            ],
            &[
                "[]",
                r#"{"id":1}"#,
                r#"{"id":1,"more":1}"#,
                r#"{"id":1,"more":true,"any":1}"#,
                r#"{"id":1,"more":true,"age":"x"}"#,
                r#"{"id":1,"more":true,"tag":{"next":1}}"#,
                r#"{"id":1,"more":true,"id":2}"#,
            ],
        );
        check(
            &json!({"properties": {"a": true}, "additionalProperties": false}),
            &["{}", r#"{"a":[1]}"#],
            &[r#"{"b":1}"#, r#"{"a":1,"b":1}"#],
        );
    }

    #[test]
    fn schemas_that_are_not_plain_have_no_acceptor() {
        for schema in [
            json!(false),
            json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
            json!({"$id": "https://example.com/x"}),
            json!({"pattern": "a"}),
            json!({"properties": {"a": {"not": {}}}}),
            json!({"properties": {"a\"b": {}}}),
            json!({"enum": [1]}),
            json!({"enum": ["a\n"]}),
            json!({"enum": ["a"], "const": "b"}),
            json!({"minLength": 1.5}),
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            json!({"$ref": "#"}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
            json!({"$ref": "#/$defs/a", "minimum": 1, "$defs": {"a": {}}}),
            json!({"$ref": "https://example.com/other"}),
            json!({"required": ["a"], "additionalProperties": false}),
            json!({"format": "date"}),
        ] {
            assert!(Acceptor::new(&schema, true).is_none(), "{schema}");
        }
        assert!(Acceptor::new(&json!({"format": "date"}), false).is_some());
    }

    /// Schemas that have an acceptor, of few names.
    fn plain_schema() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            prop_oneof!["null", "boolean", "integer", "number", "string"]
                .prop_map(|name| json!({"type": name})),
            (-2..3).prop_map(|bound| json!({"minimum": bound, "exclusiveMaximum": bound + 3})),
            (0..3).prop_map(|bound| json!({"minLength": bound, "maxLength": bound + 1})),
            Just(json!({"enum": ["a", "b", "ab"]})),
            Just(json!({"format": "email"})),
        ];
        scalar.prop_recursive(3, 16, 4, |inner| {
            let pair = (inner.clone(), inner.clone());
            prop_oneof![
                (inner.clone(), 0..3)
                    .prop_map(|(items, least)| json!({"items": items, "minItems": least})),
                inner
                    .clone()
                    .prop_map(|schema| json!({"anyOf": [{"type": "null"}, schema]})),
                inner.prop_map(|schema| json!({"additionalProperties": schema})),
                pair.prop_map(|(a, b)| json!({
                    "properties": {"a": a, "ab": b}, "required": ["ab"], "type": "object",
                })),
            ]
        })
    }

    fn small_json() -> impl Strategy<Value = String> {
        let scalar = prop_oneof![
            "null|true|-?[0-3]|[0-3]\\.[05]|-?[0-2]e[0-2]",
            "[abä]{0,4}".prop_map(|text| format!("\"{text}\"")),
            Just("\"\\u0061\"".to_owned()),
            Just("\"a@b\"".to_owned()),
        ];
        scalar.prop_recursive(4, 16, 4, |inner| {
            let member = ("a|ab|b", inner.clone());
            let member = member.prop_map(|(name, value)| format!("\"{name}\" :{value}"));
            prop_oneof![
                proptest::collection::vec(inner, 0..4)
                    .prop_map(|items| format!("[{}]", items.join(" ,"))),
                proptest::collection::vec(member, 0..4)
                    .prop_map(|members| format!("{{{}}}", members.join(","))),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_valid(schema in plain_schema(), texts in proptest::collection::vec(small_json(), 16)) {
            for text in texts {
                accepts(&schema, &text);
            }
        }

        #[test]
        fn what_is_accepted_is_json(text in small_json(), at in any::<prop::sample::Index>(), byte: u8) {
            let mut text = text.into_bytes();
            check_json_text(&text);
            let at = at.index(text.len());
            check_json_text(&text[..at]);
            text[at] = byte;
            check_json_text(&text);
        }
    }
}
