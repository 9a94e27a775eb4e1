//! Field lines of a head or trailer section, and the framing they decide.
//!
//! One `Content-Length` of plain digits, or one `Transfer-Encoding: chunked`,
//! never both (RFC 9112 §6.1 allows refusing, and it is the only safe answer).

use http::StatusCode;

use super::host::is_valid_host;
use super::{Framing, Refusal, unexpected};
use crate::limits::Reject;

/// Bytes of a `token` (RFC 9110 §5.6.2).
static IS_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_usize;
    while byte < 256 {
        let character = byte as u8;
        table[byte] = character.is_ascii_alphanumeric()
            || matches!(
                character,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        byte += 1;
    }
    table
};

/// Whether a `token` may have this byte (RFC 9110 §5.6.2).
pub(crate) fn is_token_byte(byte: u8) -> bool {
    IS_TOKEN[usize::from(byte)]
}

/// Bytes of a field value: visible, space, tab, obs-text (RFC 9110 §5.5).
static IS_VALUE: [bool; 256] = {
    let mut table = [true; 256];
    let mut byte = 0_usize;
    while byte < 0x20 {
        table[byte] = byte == 0x09;
        byte += 1;
    }
    table[0x7f] = false;
    table
};

/// Bytes of a path: what the `http` crate takes, which is visible ASCII
/// without `#`, `?` and the four that RFC 3986 wants encoded most.
static IS_PATH: [bool; 256] = visible_except(b"#?<>`");

/// Bytes of a query; `?` is one of them.
static IS_QUERY: [bool; 256] = visible_except(b"#<>\"");

const fn visible_except(except: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0x21_usize;
    while byte < 0x7f {
        table[byte] = true;
        byte += 1;
    }
    let mut index = 0;
    while index < except.len() {
        table[except[index] as usize] = false;
        index += 1;
    }
    table
}

/// Length of the request target that `text` begins with, without its query and
/// with it.
pub(super) fn target_length(text: &[u8]) -> (usize, usize) {
    let path = prefix_length(text, &IS_PATH);
    match text.get(path) {
        Some(b'?') => (path, path + prefix_length(&text[path..], &IS_QUERY)),
        _ => (path, path),
    }
}

/// Length of the token that `text` begins with.
pub(super) fn token_length(text: &[u8]) -> usize {
    prefix_length(text, &IS_TOKEN)
}

pub(super) fn is_field_value(text: &[u8]) -> bool {
    value_length(text) == text.len()
}

/// Length of the field value that `text` begins with.
fn value_length(text: &[u8]) -> usize {
    let mut length = 0;
    for word in text.as_chunks().0 {
        let ends = controls(u64::from_le_bytes(*word));
        if ends != 0 {
            length += ends.trailing_zeros() as usize / 8;
            break;
        }
        length += word.len();
    }
    // From a control character on, which may be a tab, or the last few bytes.
    length + prefix_length(&text[length..], &IS_VALUE)
}

/// Bits of the bytes below a space or equal to DEL; the lowest is exact, and
/// behind it others may be set (Warren, Hacker's Delight, 6-1).
const fn controls(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = 0x80 * ONES;
    const DELETES: u64 = 0x7f * ONES;
    let below_space = word.wrapping_sub(0x20 * ONES) & !word;
    let to_delete = word ^ DELETES;
    let is_delete = to_delete.wrapping_sub(ONES) & !to_delete;
    (below_space | is_delete) & HIGH_BITS
}

fn prefix_length(text: &[u8], table: &[bool; 256]) -> usize {
    text.iter()
        .position(|&byte| !table[usize::from(byte)])
        .unwrap_or(text.len())
}

/// A field line: name and trimmed value, and its length with CRLF.
pub(super) struct Line<'a> {
    name: &'a [u8],
    value: &'a [u8],
    pub(super) length: usize,
}

/// Reads the field line that `lines` begins with; `lines` ends in LF.
pub(super) fn read(lines: &[u8]) -> Result<Line<'_>, Refusal> {
    let colon = token_length(lines);
    match (colon, lines.get(colon)) {
        (0, Some(b' ' | b'\t')) => return Err(Refusal::bad_request("a header line is folded")),
        (1.., Some(b':')) => {}
        (_, byte) => {
            return Err(unexpected(
                byte,
                "a header name is not a token before a colon",
            ));
        }
    }
    let value_start = colon + 1;
    let value_end = value_start + value_length(&lines[value_start..]);
    match lines.get(value_end..value_end + 2) {
        Some(b"\r\n") => Ok(Line {
            name: &lines[..colon],
            value: trim_whitespace(&lines[value_start..value_end]),
            length: value_end + 2,
        }),
        _ => Err(unexpected(
            lines.get(value_end),
            "a header value has a control character",
        )),
    }
}

/// Removes optional white space (SP, HTAB) from both ends.
fn trim_whitespace(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Http10,
    #[default]
    Http11,
}

/// What a head has said so far about its version, host and body.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) version: Version,
    /// Where the request line was cut.
    pub(super) cuts: Cuts,
    count: usize,
    /// Where the value of `Host` lies in the head.
    pub(super) host: Option<(usize, usize)>,
    content_length: Option<u64>,
    chunked: bool,
    pub(super) expects_continue: bool,
    persistence: Persistence,
}

/// Where in the head the parts of a request line end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cuts {
    pub(crate) method: usize,
    /// The target without its query.
    pub(crate) path: usize,
    pub(crate) target: usize,
}

/// What `Connection` said of the time after this message.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Persistence {
    #[default]
    Unsaid,
    KeepAlive,
    /// Wins over `keep-alive`, whatever the order.
    Close,
}

impl Fields {
    /// Checks the field line that `lines` begins with; its length with CRLF.
    ///
    /// `at` is where in the head `lines` begin.
    pub(super) fn check(
        &mut self,
        lines: &[u8],
        at: usize,
        max_headers: usize,
    ) -> Result<usize, Refusal> {
        self.count += 1;
        if self.count > max_headers {
            return Err(Refusal::limit(
                Reject::HeaderCount,
                "server.limits.headers",
                max_headers,
            ));
        }
        let Line {
            name,
            value,
            length,
        } = read(lines)?;
        // The lengths of the five names that matter differ, which spares the
        // comparison for almost every other header.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                let start = at + value.as_ptr().addr() - lines.as_ptr().addr();
                self.host(value, start)?;
            }
            10 if name.eq_ignore_ascii_case(b"connection") => self.connection(value),
            6 if name.eq_ignore_ascii_case(b"expect") => self.expect(value)?,
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                self.content_length(value)?;
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.transfer_encoding(value)?;
            }
            _ => {}
        }
        Ok(length)
    }

    /// Whether no other message follows this one (RFC 9112 §9.3).
    pub(super) const fn is_last(&self) -> bool {
        match (self.version, self.persistence) {
            (_, Persistence::Close) => true,
            (Version::Http10, Persistence::Unsaid) => true,
            (Version::Http11, Persistence::Unsaid) | (_, Persistence::KeepAlive) => false,
        }
    }

    /// Decides the framing of a complete head.
    pub(super) fn finish(&self) -> Result<Framing, Refusal> {
        if self.version == Version::Http11 && self.host.is_none() {
            return Err(Refusal::bad_request("the request has no Host header"));
        }
        match (self.content_length, self.chunked) {
            (Some(_), true) => Err(Refusal::bad_request(
                "the request has both Content-Length and Transfer-Encoding",
            )),
            (Some(length), false) => Ok(Framing::Fixed(length)),
            (None, true) => Ok(Framing::Chunked),
            (None, false) => Ok(Framing::None),
        }
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(trim_whitespace) {
            if option.eq_ignore_ascii_case(b"close") {
                self.persistence = Persistence::Close;
            } else if option.eq_ignore_ascii_case(b"keep-alive")
                && self.persistence == Persistence::Unsaid
            {
                self.persistence = Persistence::KeepAlive;
            }
        }
    }

    fn host(&mut self, value: &[u8], start: usize) -> Result<(), Refusal> {
        let place = (start, start + value.len());
        if self.host.replace(place).is_some() {
            return Err(Refusal::bad_request("the request has two Host headers"));
        }
        if !is_valid_host(value) {
            return Err(Refusal::bad_request("the Host header is not a host"));
        }
        Ok(())
    }

    fn expect(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.version == Version::Http10 {
            return Ok(());
        }
        if value.eq_ignore_ascii_case(b"100-continue") {
            self.expects_continue = true;
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::EXPECTATION_FAILED,
            Reject::Expectation,
            "the only expectation met here is 100-continue",
        ))
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let length = (!value.is_empty() && value.iter().all(u8::is_ascii_digit))
            .then(|| {
                value.iter().try_fold(0_u64, |length, digit| {
                    length.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
                })
            })
            .flatten()
            // Beyond it other parsers overflow into negative lengths.
            .filter(|&length| i64::try_from(length).is_ok())
            .ok_or(Refusal::bad_request("the Content-Length is not a number"))?;
        if self.content_length.replace(length).is_some() {
            return Err(Refusal::bad_request(
                "the request has two Content-Length headers",
            ));
        }
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.version == Version::Http10 {
            return Err(Refusal::bad_request(
                "HTTP/1.0 does not know Transfer-Encoding",
            ));
        }
        if std::mem::replace(&mut self.chunked, true) {
            return Err(Refusal::bad_request(
                "the request has two Transfer-Encoding headers",
            ));
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Refusal::bad_request(
                "the only transfer coding accepted here is chunked",
            ));
        }
        Ok(())
    }
}
