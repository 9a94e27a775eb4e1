//! The head of a response as bytes, and how its body is framed.
//!
//! Guarantee: a message ends where its head says (RFC 9112 §6.3), or the peer
//! can tell that it does not: a body that is too short or too long breaks the
//! connection.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderValue, TRANSFER_ENCODING};
use http_body::Body as _;

use super::super::date::Date;
use super::super::exchange::Answer;
use super::output::Output;
use crate::body::Body;
use crate::header_map_pool;
use crate::middleware::{Builtins, write_field};

/// How the end of a response body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// By its length; so many bytes are to come.
    Length(u64),
    Chunked,
    UntilClose,
}

impl Framing {
    /// Adds a piece of the body; `false` when it is more than was announced.
    pub(super) fn push(&mut self, mut data: Bytes, output: &mut Output) -> bool {
        if data.is_empty() {
            return true;
        }
        match self {
            Self::Length(remaining) => {
                let is_within = data.len() as u64 <= *remaining;
                data.truncate((*remaining).min(data.len() as u64) as usize);
                *remaining -= data.len() as u64;
                output.push(data, b"");
                is_within
            }
            Self::Chunked => {
                output.push_small(format!("{:x}\r\n", data.len()).as_bytes());
                output.push(data, b"\r\n");
                true
            }
            Self::UntilClose => {
                output.push(data, b"");
                true
            }
        }
    }

    /// Ends the body; `false` when it is less than was announced.
    pub(super) fn finish(self, output: &mut Output) -> bool {
        match self {
            Self::Length(remaining) => remaining == 0,
            Self::Chunked => {
                output.push_small(b"0\r\n\r\n");
                true
            }
            Self::UntilClose => true,
        }
    }
}

/// What a head depends on besides its answer.
pub(super) struct Context<'a> {
    pub(super) builtins: &'a Builtins,
    pub(super) date: &'a Date,
    pub(super) is_http10: bool,
    pub(super) is_head: bool,
    /// Whether the connection ends; becomes true where the answer says so.
    pub(super) is_last: &'a mut bool,
}

/// Writes the head of `answer`; the body that is to follow it.
pub(super) fn write(out: &mut Vec<u8>, answer: Answer, context: Context<'_>) -> (Body, Framing) {
    let Context {
        builtins,
        date,
        is_http10,
        is_head,
        is_last,
    } = context;
    let mut response = answer.response;
    let status = response.status();
    write_status_line(out, status, is_http10);
    builtins.write(&answer.decoration, &mut response, out);
    let (parts, shared, body) = response.into_parts();
    let headers = parts.headers;
    if let Some(shared) = shared {
        out.extend_from_slice(shared.lines());
    }
    let mut announced = None;
    let mut has_date = false;
    let mut options: Option<Vec<u8>> = None;
    for (name, value) in &headers {
        if name == CONTENT_LENGTH {
            announced = to_length(value);
        } else if name == CONNECTION {
            let rest = options.get_or_insert_default();
            *is_last |= read_options(value, rest);
        } else if name != TRANSFER_ENCODING {
            has_date |= name == DATE;
            write_field(out, name.as_str().as_bytes(), value.as_bytes());
        }
    }
    header_map_pool::put(headers);
    let has_body = !(status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
        || status.is_informational());
    let framing = match body.size_hint().exact().or(announced) {
        Some(length) => Framing::Length(length),
        None if is_http10 => Framing::UntilClose,
        None => Framing::Chunked,
    };
    match framing {
        _ if !has_body => {}
        Framing::Length(length) => {
            let mut digits = itoa::Buffer::new();
            let digits = digits.format(length).as_bytes();
            write_field(out, b"content-length", digits);
        }
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Framing::UntilClose => *is_last = true,
    }
    write_connection(out, *is_last, is_http10, options.as_deref());
    if !has_date {
        date.write(out, answer.ready_at);
    }
    out.extend_from_slice(b"\r\n");
    if is_head || !has_body {
        return (Body::empty(), framing);
    }
    (body, framing)
}

fn write_status_line(out: &mut Vec<u8>, status: StatusCode, is_http10: bool) {
    if status == StatusCode::OK && !is_http10 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(if is_http10 {
        b"HTTP/1.0 "
    } else {
        b"HTTP/1.1 "
    });
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    let reason = status.canonical_reason().unwrap_or_default();
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn to_length(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

/// Adds the options of a `Connection` field to `rest`, but for those on
/// persistence; whether it says `close`.
fn read_options(value: &HeaderValue, rest: &mut Vec<u8>) -> bool {
    let mut says_close = false;
    for option in value.as_bytes().split(|&byte| byte == b',') {
        let option = option.trim_ascii();
        if option.eq_ignore_ascii_case(b"close") {
            says_close = true;
        } else if !option.is_empty() && !option.eq_ignore_ascii_case(b"keep-alive") {
            if !rest.is_empty() {
                rest.extend_from_slice(b", ");
            }
            rest.extend_from_slice(option);
        }
    }
    says_close
}

/// Writes the `Connection` field, where there is something to say.
fn write_connection(out: &mut Vec<u8>, is_last: bool, is_http10: bool, options: Option<&[u8]>) {
    let persistence: &[u8] = match (is_last, is_http10) {
        (true, _) => b"close",
        (false, true) => b"keep-alive",
        (false, false) => b"",
    };
    match (persistence, options.unwrap_or_default()) {
        (b"", b"") => {}
        (only, b"") | (b"", only) => write_field(out, b"connection", only),
        (persistence, options) => {
            let both = [persistence, b", ", options].concat();
            write_field(out, b"connection", &both);
        }
    }
}
