//! `; name=value` lists of `Content-Type` and `Content-Disposition`.
//!
//! Guarantee: a list either follows the grammar to its last byte or is
//! refused, so that a value in quotes can never be taken for a parameter
//! (RFC 9110 §5.6.6, RFC 7578 §4.2).

use std::borrow::Cow;

use crate::gate::is_token_byte;

/// Takes the part of `text` before its parameters, without white space.
pub(super) fn split_value(text: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr(b';', text).unwrap_or(text.len());
    (text[..end].trim_ascii(), &text[end..])
}

/// Parameters in order; ends after the first that is malformed.
pub(super) struct Parameters<'a>(pub(super) &'a [u8]);

/// The list does not follow its grammar.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl<'a> Iterator for Parameters<'a> {
    type Item = Result<(&'a [u8], Cow<'a, [u8]>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.0.trim_ascii_start();
        if text.is_empty() {
            return None;
        }
        let parameter = text.strip_prefix(b";").and_then(|text| {
            let text = text.trim_ascii_start();
            // A semicolon at the end, or two in a row, announce nothing.
            if text.is_empty() || text.starts_with(b";") {
                return Some((None, text));
            }
            let (name, text) = split(text, is_token_byte)?;
            let text = text.strip_prefix(b"=")?;
            let (value, rest) = match text.strip_prefix(b"\"") {
                Some(quoted) => unquote(quoted)?,
                None => split(text, is_bare).map(|(value, rest)| (Cow::Borrowed(value), rest))?,
            };
            Some((Some((name, value)), rest))
        });
        match parameter {
            Some((Some(parameter), rest)) => {
                self.0 = rest;
                Some(Ok(parameter))
            }
            Some((None, rest)) => {
                self.0 = rest;
                self.next()
            }
            None => {
                self.0 = b"";
                Some(Err(Malformed))
            }
        }
    }
}

/// The longest non-empty start of `text` of such bytes, and the rest.
fn split(text: &[u8], is_part: fn(u8) -> bool) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| !is_part(*byte));
    let end = end.unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Reads up to the closing quote.
///
/// A backslash quotes only a quote and itself: browsers send file names with
/// backslashes as they are.
fn unquote(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let mut decoded = Vec::new();
    let mut start = 0;
    let mut index = 0;
    loop {
        match text.get(index)? {
            b'"' => break,
            b'\\' if matches!(text.get(index + 1), Some(b'"' | b'\\')) => {
                decoded.extend_from_slice(&text[start..index]);
                start = index + 1;
                index += 2;
            }
            _ => index += 1,
        }
    }
    let rest = &text[index + 1..];
    if start == 0 {
        return Some((Cow::Borrowed(&text[..index]), rest));
    }
    decoded.extend_from_slice(&text[start..index]);
    Some((Cow::Owned(decoded), rest))
}

/// Bytes of a value without quotes; more than a token's, because clients send
/// boundaries such as `a=b/c` bare.
const fn is_bare(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f && !matches!(byte, b'"' | b';' | b'\\' | b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&[(&str, &str)], ()>) {
        let found: Result<Vec<_>, _> = Parameters(text.as_bytes()).collect();
        let found = found.map_err(|Malformed| ()).map(|pairs| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            pairs
                .iter()
                .map(|(name, value)| (text(name), text(value)))
                .collect::<Vec<_>>()
        });
        let expected = expected.map(|pairs| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            pairs.iter().map(owned).collect::<Vec<_>>()
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn parameters_follow_the_grammar_or_are_refused() {
        for (text, expected) in [
            ("", Ok(&[][..])),
            (" ", Ok(&[])),
            (";", Ok(&[])),
            ("; a=b", Ok(&[("a", "b")])),
            (";a=b;c=d", Ok(&[("a", "b"), ("c", "d")])),
            ("; a=b ; c=d ;", Ok(&[("a", "b"), ("c", "d")])),
            (";; a=b", Ok(&[("a", "b")])),
            ("; a=\"\"", Ok(&[("a", "")])),
            ("; a=\"b; c=d\"", Ok(&[("a", "b; c=d")])),
            ("; a=\"b\\\"c\"; d=e", Ok(&[("a", "b\"c"), ("d", "e")])),
            ("; a=\"\\\\\"", Ok(&[("a", "\\")])),
            ("; a=\"C:\\temp\\x\"", Ok(&[("a", "C:\\temp\\x")])),
            ("; a*=UTF-8''%e2%82%ac", Ok(&[("a*", "UTF-8''%e2%82%ac")])),
            ("; a=b=c/d:e", Ok(&[("a", "b=c/d:e")])),
            ("; a=\"\u{e9}\"", Ok(&[("a", "\u{e9}")])),
            ("a=b", Err(())),
            ("; a", Err(())),
            ("; a=", Err(())),
            ("; =b", Err(())),
            ("; a =b", Err(())),
            ("; a= b", Err(())),
            ("; a=\"b", Err(())),
            ("; a=\"b\\\"", Err(())),
            ("; a=\"b\"c", Err(())),
            ("; a=b c", Err(())),
            ("; a=b\"c\"", Err(())),
            ("; a=b; c", Err(())),
        ] {
            check(text, expected);
        }
    }
}
