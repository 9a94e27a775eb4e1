//! Request line: `method SP request-target SP HTTP-version` (RFC 9112 §3).

use http::StatusCode;

use super::field::{Cuts, Fields, Version, target_length, token_length};
use super::host::is_valid_host;
use super::{Refusal, unexpected};
use crate::limits::Reject;

/// Longest method; the registered ones end at 17 bytes.
const MAX_METHOD_BYTES: usize = 32;
/// `HTTP/1.1`
const VERSION_BYTES: usize = 8;

/// Checks the request line that `lines` begins with; its length with CRLF.
///
/// Notes version and cuts. `lines` ends in LF, and begins at `at` in the head.
pub(super) fn check(lines: &[u8], at: usize, fields: &mut Fields) -> Result<usize, Refusal> {
    let method = token_length(lines);
    if method == 0 || method > MAX_METHOD_BYTES || lines.get(method) != Some(&b' ') {
        return Err(unexpected(lines.get(method), "the method is not a token"));
    }
    let target_start = method + 1;
    let (path_length, target_length) = target_length(&lines[target_start..]);
    let target_end = target_start + target_length;
    if lines.get(target_end) != Some(&b' ') {
        return Err(unexpected(
            lines.get(target_end),
            "the request target has a byte that is not allowed in a URI",
        ));
    }
    fields.version = version(&lines[target_end + 1..])?;
    check_target(&lines[..method], &lines[target_start..target_end])?;
    fields.cuts = Cuts {
        method: at + method,
        path: at + target_start + path_length,
        target: at + target_end,
    };
    Ok(target_end + 1 + VERSION_BYTES + 2)
}

/// The version that `text` begins with, with the end of the line behind it.
fn version(text: &[u8]) -> Result<Version, Refusal> {
    match text.strip_prefix(b"HTTP/").unwrap_or_default() {
        [b'1', b'.', b'1', b'\r', b'\n', ..] => Ok(Version::Http11),
        [b'1', b'.', b'0', b'\r', b'\n', ..] => Ok(Version::Http10),
        [major, b'.', minor, b'\r', b'\n', ..]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(Refusal::new(
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                Reject::BadRequest,
                "only HTTP/1.0 and HTTP/1.1 are spoken here in clear requests",
            ))
        }
        _ => Err(unexpected(
            text.get(VERSION_BYTES),
            "the request line does not end in an HTTP version",
        )),
    }
}

fn check_target(method: &[u8], target: &[u8]) -> Result<(), Refusal> {
    match target {
        _ if method == b"CONNECT" => Err(Refusal::bad_request("this server is no proxy")),
        [b'/', ..] => Ok(()),
        b"*" if method == b"OPTIONS" => Ok(()),
        _ => check_absolute_form(target),
    }
}

fn check_absolute_form(target: &[u8]) -> Result<(), Refusal> {
    const ERROR: Refusal =
        Refusal::bad_request("the request target is neither a path nor an http URL");
    let after_scheme = strip_prefix_ignore_case(target, b"http://")
        .or_else(|| strip_prefix_ignore_case(target, b"https://"))
        .ok_or(ERROR)?;
    let end = after_scheme
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'))
        .unwrap_or(after_scheme.len());
    let authority = &after_scheme[..end];
    // A host may be percent-encoded, but the `http` crate does not take it.
    if authority.is_empty() || authority.contains(&b'%') || !is_valid_host(authority) {
        return Err(ERROR);
    }
    Ok(())
}

fn strip_prefix_ignore_case<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}
