//! The header lines of one part (RFC 7578 §4).
//!
//! Guarantee: a part has one name, and a file name without any folder; what
//! could be read in two ways is refused.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use crate::error::FormError;
use crate::forms::parameters::{Parameters, split_value};
use crate::gate::is_token_byte;

/// What the header lines of a part say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartHead {
    pub(super) name: String,
    /// `None` for a plain field; may be empty.
    pub(super) file_name: Option<String>,
    pub(super) content_type: Option<String>,
}

impl PartHead {
    /// Parses lines with CR LF between them.
    pub(super) fn parse(lines: &[u8]) -> Result<Self, FormError> {
        let mut disposition = None;
        let mut content_type = None;
        let mut rest = lines;
        while !rest.is_empty() {
            let end = memchr::memmem::find(rest, b"\r\n").unwrap_or(rest.len());
            let line = &rest[..end];
            rest = rest.get(end + 2..).unwrap_or_default();
            let (name, value) = split_line(line)?;
            if name.eq_ignore_ascii_case(b"content-disposition") {
                if disposition.replace(Disposition::parse(value)?).is_some() {
                    return Err(malformed("a part has two Content-Disposition"));
                }
            } else if name.eq_ignore_ascii_case(b"content-type") {
                let value = text(value, "the Content-Type of a part is not UTF-8")?;
                if content_type.replace(value).is_some() {
                    return Err(malformed("a part has two Content-Type"));
                }
            } else if name.eq_ignore_ascii_case(b"content-transfer-encoding")
                && ![&b"7bit"[..], b"8bit", b"binary"]
                    .iter()
                    .any(|plain| value.eq_ignore_ascii_case(plain))
            {
                // RFC 7578 §4.7 has no such encodings, and nobody decodes them.
                return Err(malformed("a part has a transfer encoding"));
            }
        }
        let disposition = disposition.ok_or(malformed("a part has no Content-Disposition"))?;
        Ok(Self {
            name: disposition.name,
            file_name: disposition.file_name,
            content_type,
        })
    }
}

fn split_line(line: &[u8]) -> Result<(&[u8], &[u8]), FormError> {
    let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    let colon = memchr::memchr(b':', line).filter(|colon| *colon > 0);
    match colon {
        Some(colon)
            if line[..colon].iter().all(|byte| is_token_byte(*byte))
                && !line.iter().any(is_control) =>
        {
            Ok((&line[..colon], line[colon + 1..].trim_ascii()))
        }
        _ => Err(malformed("a header line of a part is malformed")),
    }
}

/// `Content-Disposition` of a part (RFC 7578 §4.2).
struct Disposition {
    name: String,
    file_name: Option<String>,
}

impl Disposition {
    fn parse(value: &[u8]) -> Result<Self, FormError> {
        let (kind, parameters) = split_value(value);
        if !kind.eq_ignore_ascii_case(b"form-data") {
            return Err(malformed(
                "the Content-Disposition of a part is not form-data",
            ));
        }
        let mut name = None;
        let mut file_name = None;
        let mut extended_file_name = None;
        for parameter in Parameters(parameters) {
            let (key, value) = parameter
                .map_err(|_| malformed("the Content-Disposition of a part is malformed"))?;
            let field = if key.eq_ignore_ascii_case(b"name") {
                &mut name
            } else if key.eq_ignore_ascii_case(b"filename") {
                &mut file_name
            } else if key.eq_ignore_ascii_case(b"filename*") {
                &mut extended_file_name
            } else {
                continue;
            };
            if field.replace(value).is_some() {
                return Err(malformed(
                    "the Content-Disposition of a part says something twice",
                ));
            }
        }
        let name = name.ok_or(malformed("a part has no name"))?;
        // RFC 7578 §4.2 forbids the extended form to clients; where one sends
        // both, the plain one is what every other server reads.
        let file_name = match (file_name, extended_file_name) {
            (Some(plain), _) => Some(plain),
            (None, Some(extended)) => Some(Cow::Owned(decode_extended(&extended)?)),
            (None, None) => None,
        };
        let file_name = file_name
            .map(|name| text(base_name(&name), "the file name of a part is not UTF-8"))
            .transpose()?;
        Ok(Self {
            name: text(&name, "the name of a part is not UTF-8")?,
            file_name,
        })
    }
}

/// `UTF-8'language'percent-encoded` (RFC 8187 §3.2).
fn decode_extended(value: &[u8]) -> Result<Vec<u8>, FormError> {
    let mut parts = value.splitn(3, |byte| *byte == b'\'');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(charset), Some(_language), Some(encoded))
            if charset.eq_ignore_ascii_case(b"utf-8") =>
        {
            let decoded: Vec<u8> = percent_decode(encoded).collect();
            if decoded.iter().any(u8::is_ascii_control) {
                return Err(malformed("the file name of a part has control characters"));
            }
            Ok(decoded)
        }
        _ => Err(malformed("the filename* of a part is malformed")),
    }
}

/// The name behind the last separator of any system; none for a folder.
fn base_name(name: &[u8]) -> &[u8] {
    let start = memchr::memrchr2(b'/', b'\\', name).map_or(0, |separator| separator + 1);
    match &name[start..] {
        b"." | b".." => b"",
        base => base,
    }
}

fn text(bytes: &[u8], reason: &'static str) -> Result<String, FormError> {
    let text = std::str::from_utf8(bytes).map_err(|_| malformed(reason))?;
    Ok(text.to_owned())
}

const fn malformed(reason: &'static str) -> FormError {
    FormError::Malformed { reason }
}
