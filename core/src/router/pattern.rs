//! Route patterns: the grammar, and cutting parameters out of a path.
//!
//! ```text
//! pattern   = 1*( "/" segment )
//! segment   = literal / "{" name [ ":" type ] "}" / "{*" name "}"
//! type      = "str" / "int" / "uint" / "float" / "uuid" / "path"
//! ```

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::error::Error;
use crate::request::{ParamValue, PathParams};
use crate::router::lookup::Target;
use crate::router::percent;

/// matchit names parameters by letter and panics at the 26th.
const MAX_PARAMETERS: usize = 25;

/// A parsed route pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    /// As the user wrote it.
    pub(super) text: String,
    /// Canonical form without names and types, in matchit's syntax: equal for
    /// patterns that match the same paths.
    pub(super) key: String,
    parameters: Box<[Parameter]>,
    /// Bytes after the last parameter.
    literal_after: usize,
}

impl Pattern {
    /// # Errors
    /// [`Error::RoutePattern`] with the first rule that `text` breaks.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|reason| Error::RoutePattern {
            path: text.to_owned(),
            reason,
        })
    }

    pub(super) fn is_static(&self) -> bool {
        self.parameters.is_empty()
    }

    /// Whether no lookup could tell this pattern from `other`: the same key,
    /// or a parameter where the other has its catch-all.
    pub(super) fn conflicts_with(&self, other: &Self) -> bool {
        let pairs = self.key.split('/').zip(other.key.split('/'));
        match pairs.into_iter().find(|(a, b)| a != b) {
            Some(pair) => matches!(pair, (PARAMETER, CATCH_ALL) | (CATCH_ALL, PARAMETER)),
            None => self.key == other.key,
        }
    }

    /// Cuts the parameters out of the path that this pattern matched.
    ///
    /// `params` is empty before; `false`, and anything in it, when a value
    /// does not parse as its type. Only the values before the last are searched for their
    /// end: all else follows from the lengths of the literals.
    pub(super) fn cut(&self, target: Target<'_>, params: &mut PathParams) -> bool {
        let path = target.canonical;
        let mut start = 0;
        let mut parameters = self.parameters.iter().peekable();
        while let Some(parameter) = parameters.next() {
            start += parameter.literal_before;
            let end = if parameters.peek().is_none() {
                path.len() - self.literal_after
            } else {
                let slash = path.bytes().skip(start).position(|byte| byte == b'/');
                start + slash.expect("a slash separates two parameters")
            };
            let raw = &path[start..end];
            let value = if target.is_rewritten {
                let Some(text) = percent::decode(raw) else {
                    return false;
                };
                if !parameter.kind.accepts(&text) {
                    return false;
                }
                ParamValue::Decoded(text)
            } else {
                if !parameter.kind.accepts(raw) {
                    return false;
                }
                ParamValue::Span(start as u32, end.min(target.sent_len) as u32)
            };
            params.push(parameter.name, value);
            start = end;
        }
        true
    }
}

#[derive(Debug)]
struct Parameter {
    name: &'static str,
    kind: Kind,
    /// Bytes between the previous parameter's end, or the path's start, and
    /// this one.
    literal_before: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Str,
    Int,
    Uint,
    Float,
    Uuid,
    /// Catch-all.
    Path,
}

impl Kind {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "str" => Self::Str,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "float" => Self::Float,
            "uuid" => Self::Uuid,
            "path" => Self::Path,
            _ => return None,
        })
    }

    fn accepts(self, text: &str) -> bool {
        match self {
            Self::Str | Self::Path => true,
            Self::Int => text.parse::<i64>().is_ok(),
            Self::Uint => text.parse::<u64>().is_ok(),
            Self::Float => text.parse::<f64>().is_ok_and(f64::is_finite),
            Self::Uuid => is_uuid(text),
        }
    }
}

const PARAMETER: &str = "{p}";
const CATCH_ALL: &str = "{*p}";

fn parse(text: &str) -> Result<Pattern, &'static str> {
    let segments = text.strip_prefix('/').ok_or("must start with a slash")?;
    if text.contains(['?', '#']) {
        return Err("a pattern is a path: no query and no fragment");
    }
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("whitespace and control characters must be percent-encoded");
    }
    let mut key = String::with_capacity(text.len());
    let mut parameters: Vec<Parameter> = Vec::new();
    let mut parameter_end = 0;
    for segment in segments.split('/') {
        if parameters
            .last()
            .is_some_and(|last| last.kind == Kind::Path)
        {
            return Err("a catch-all must be the last segment");
        }
        key.push('/');
        let Some((name, kind)) = parse_parameter(segment)? else {
            key += &percent::canonical_literal(segment)
                .ok_or("percent-encoding must be valid, UTF-8 and without %00")?;
            continue;
        };
        if parameters.iter().any(|known| known.name == name) {
            return Err("two parameters have the same name");
        }
        if parameters.len() == MAX_PARAMETERS {
            return Err("more than 25 parameters");
        }
        parameters.push(Parameter {
            name: intern(name),
            kind,
            literal_before: key.len() - parameter_end,
        });
        key += if kind == Kind::Path {
            CATCH_ALL
        } else {
            PARAMETER
        };
        parameter_end = key.len();
    }
    Ok(Pattern {
        text: text.to_owned(),
        parameters: parameters.into(),
        literal_after: key.len() - parameter_end,
        key,
    })
}

/// Name and type when `segment` is a parameter, `None` when it is literal.
fn parse_parameter(segment: &str) -> Result<Option<(&str, Kind)>, &'static str> {
    let mut open = false;
    for c in segment.chars() {
        match (c, open) {
            ('{', false) => open = true,
            ('}', true) => open = false,
            ('{', true) | ('}', false) => return Err(UNBALANCED),
            _ => {}
        }
    }
    if open {
        return Err(UNBALANCED);
    }
    if !segment.contains('{') {
        return Ok(None);
    }
    let inner = segment
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .filter(|inner| !inner.contains('{'))
        .ok_or("a parameter must fill its whole segment")?;
    let (name, kind) = match (inner.strip_prefix('*'), inner.split_once(':')) {
        (Some(name), None) => (name, Kind::Path),
        (Some(_), Some(_)) => return Err("a {*catch-all} has no type"),
        (None, Some((name, kind))) => (
            name,
            Kind::named(kind).ok_or("types are str, int, uint, float, uuid and path")?,
        ),
        (None, None) => (inner, Kind::Str),
    };
    if name.is_empty() {
        return Err("a parameter needs a name");
    }
    if !name
        .chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
    {
        return Err("parameter names are letters, digits, _ and -");
    }
    Ok(Some((name, kind)))
}

const UNBALANCED: &str = "unbalanced braces; write %7B and %7D for literal ones";

/// Text form of RFC 9562 §4, in either case.
fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Gives a name a static life by leaking it, once per distinct name.
///
/// What is leaked is bounded by the names in the program's patterns, however
/// many routers are built; requests never get here.
fn intern(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let leaked: &'static str = Box::leak(name.into());
    names.insert(leaked);
    leaked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn key(text: &str, expected: &str) {
        assert_eq!(Pattern::parse(text).unwrap().key, expected, "{text}");
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = Pattern::parse(text).unwrap_err();
        let Error::RoutePattern { path, reason } = error else {
            panic!("{text}: {error}");
        };
        assert_eq!(path, text);
        assert!(reason.contains(expected), "{text}: {reason}");
    }

    #[track_caller]
    fn typed(kind: &str, accepted: &[&str], refused: &[&str]) {
        let kind = Kind::named(kind).unwrap();
        for text in accepted {
            assert!(kind.accepts(text), "{kind:?} {text}");
        }
        for text in refused {
            assert!(!kind.accepts(text), "{kind:?} {text}");
        }
    }

    #[test]
    fn keys_are_canonical_and_nameless() {
        key("/", "/");
        key("/a/", "/a/");
        key("/café/%7euser", "/caf%C3%A9/~user");
        key("/%7bliteral%7d", "/%7Bliteral%7D");
        key("/a/{id:int}/{größe}", "/a/{p}/{p}");
        key("/{*rest}", "/{*p}");
        key("/f/{rest:path}", "/f/{*p}");
    }

    #[test]
    fn broken_patterns_say_which_rule() {
        refused("", "start with a slash");
        refused("a/b", "start with a slash");
        refused("/{a", "unbalanced");
        refused("/a}", "unbalanced");
        refused("/{{a}}", "unbalanced");
        refused("/{a/b}", "unbalanced");
        refused("/{}", "needs a name");
        refused("/{*}", "needs a name");
        refused("/{:int}", "needs a name");
        refused("/{a.b}", "names are");
        refused("/{a}/{a:int}", "same name");
        refused("/{*rest}/x", "last segment");
        refused("/{rest:path}/", "last segment");
        refused("/{a:number}", "types are");
        refused("/{a:}", "types are");
        refused("/{*a:path}", "no type");
        refused("/{a}.json", "whole segment");
        refused("/{a}{b}", "whole segment");
        refused("/a?b", "no query");
        refused("/a#b", "no query");
        refused("/a b", "whitespace");
        refused("/a\tb", "whitespace");
        refused("/a\u{7f}", "control");
        refused("/100%", "percent-encoding");
        refused("/%ff", "percent-encoding");
        refused("/%00", "percent-encoding");
        let many: Vec<String> = (0..26).map(|index| format!("/{{p{index}}}")).collect();
        refused(&many.concat(), "25 parameters");
    }

    #[test]
    fn types_accept_what_they_name() {
        let uuid = "550e8400-e29b-41d4-a716-446655440000";
        typed("str", &["a", "1"], &[]);
        typed(
            "int",
            &["0", "-7", "9223372036854775807"],
            &["9223372036854775808", "1.0", "x", ""],
        );
        typed(
            "uint",
            &["0", "18446744073709551615"],
            &["-1", "18446744073709551616", ""],
        );
        typed(
            "float",
            &["1", "-2.5", "1e9"],
            &["nan", "inf", "1e999", "x", ""],
        );
        typed(
            "uuid",
            &[uuid, &uuid.to_uppercase()],
            &[&uuid[1..], &uuid.replace('-', "0"), ""],
        );
    }

    #[test]
    fn names_are_leaked_once() {
        let first = intern("leaked_once");
        assert!(std::ptr::eq(first, intern(&String::from("leaked_once"))));
    }
}
