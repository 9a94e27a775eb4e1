//! Route patterns: the grammar, and the types of parameters.
//!
//! ```text
//! pattern   = 1*( "/" segment )
//! segment   = literal / "{" name [ ":" type ] "}" / "{*" name "}"
//! type      = "str" / "int" / "uint" / "float" / "uuid" / "path"
//! ```

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::error::Error;
use crate::router::percent;

/// A parsed route pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    /// As the user wrote it.
    pub(super) text: String,
    /// Equal for patterns that match the same paths.
    pub(super) segments: Box<[Segment]>,
    /// Of the parameters, in order.
    pub(super) names: &'static [&'static str],
}

/// What one segment of a path must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Segment {
    /// This text in its canonical spelling; may be empty.
    Literal(Box<str>),
    /// Anything that is not empty and of this type.
    Parameter(Kind),
}

/// Type of a parameter, the narrowest first: the order in which the
/// parameters that share a place are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Uuid,
    Uint,
    Int,
    Float,
    Str,
    /// Catch-all: all segments that are left.
    Path,
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

    /// Whether a segment of a canonical path, once decoded, is of this type.
    pub(super) fn accepts(self, segment: &[u8]) -> bool {
        if matches!(self, Self::Str | Self::Path) {
            return true;
        }
        let Ok(segment) = std::str::from_utf8(segment) else {
            return false;
        };
        self.accepts_decoded(segment)
            || segment.contains('%')
                && percent::decode(segment).is_some_and(|text| self.accepts_decoded(&text))
    }

    fn accepts_decoded(self, text: &str) -> bool {
        match self {
            Self::Str | Self::Path => true,
            Self::Int => text.parse::<i64>().is_ok(),
            Self::Uint => text.parse::<u64>().is_ok(),
            Self::Float => text.parse::<f64>().is_ok_and(f64::is_finite),
            Self::Uuid => is_uuid(text),
        }
    }
}

fn parse(text: &str) -> Result<Pattern, &'static str> {
    let written = text.strip_prefix('/').ok_or("must start with a slash")?;
    if text.contains(['?', '#']) {
        return Err("a pattern is a path: no query and no fragment");
    }
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("whitespace and control characters must be percent-encoded");
    }
    let mut segments = Vec::new();
    let mut names = Vec::new();
    for segment in written.split('/') {
        if segments.last() == Some(&Segment::Parameter(Kind::Path)) {
            return Err("a catch-all must be the last segment");
        }
        let Some((name, kind)) = parse_parameter(segment)? else {
            let literal = percent::canonical_literal(segment)
                .ok_or("percent-encoding must be valid, UTF-8 and without %00")?;
            segments.push(Segment::Literal(literal.into()));
            continue;
        };
        if names.contains(&name) {
            return Err("two parameters have the same name");
        }
        names.push(name);
        segments.push(Segment::Parameter(kind));
    }
    Ok(Pattern {
        text: text.to_owned(),
        segments: segments.into(),
        names: intern(&names),
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

/// Gives a list of names a static life by leaking it, once per distinct list.
///
/// What is leaked is bounded by the program's patterns, however many routers
/// are built; requests never get here.
fn intern(names: &[&str]) -> &'static [&'static str] {
    static LISTS: Mutex<BTreeMap<String, &'static [&'static str]>> = Mutex::new(BTreeMap::new());
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    // No name has a slash, so that no two lists are joined alike.
    lists.entry(names.join("/")).or_insert_with(|| {
        let leak = |name: &&str| -> &'static str { Box::leak(Box::from(*name)) };
        Box::leak(names.iter().map(leak).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares segments written as text, `{Int}` for a parameter.
    #[track_caller]
    fn segments(text: &str, expected: &str) {
        let pattern = Pattern::parse(text).unwrap();
        let written = pattern.segments.iter().map(|segment| match segment {
            Segment::Literal(text) => format!("/{text}"),
            Segment::Parameter(kind) => format!("/{{{kind:?}}}"),
        });
        assert_eq!(written.collect::<String>(), expected, "{text}");
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
            assert!(kind.accepts(text.as_bytes()), "{kind:?} {text}");
        }
        for text in refused {
            assert!(!kind.accepts(text.as_bytes()), "{kind:?} {text}");
        }
    }

    #[test]
    fn segments_are_canonical_and_nameless() {
        segments("/", "/");
        segments("/a/", "/a/");
        segments("/café/%7euser", "/caf%C3%A9/~user");
        segments("/%7bliteral%7d", "/%7Bliteral%7D");
        segments("/a/{id:int}/{größe}", "/a/{Int}/{Str}");
        segments("/{*rest}", "/{Path}");
        segments("/f/{rest:path}", "/f/{Path}");
        let many: Vec<String> = (0..40).map(|index| format!("/{{p{index}}}")).collect();
        segments(&many.concat(), &"/{Str}".repeat(40));
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
        let first = intern(&["leaked", "once"]);
        assert!(std::ptr::eq(first, intern(&["leaked", "once"])));
        assert_eq!(first, ["leaked", "once"]);
    }
}
