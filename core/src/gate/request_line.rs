//! Request line: `method SP request-target SP HTTP-version` (RFC 9112 §3).

use http::StatusCode;
use memchr::memchr;

use super::Refusal;
use super::field::{Fields, Version, is_target, is_token};
use super::host::is_valid_host;
use crate::limits::Reject;

/// Longest method; the registered ones end at 17 bytes.
const MAX_METHOD_BYTES: usize = 32;

/// Checks a request line without its CRLF and notes version and authority.
pub(super) fn check(line: &[u8], fields: &mut Fields) -> Result<(), Refusal> {
    let (method, rest) = split_space(line)?;
    let (target, version) = split_space(rest)?;
    if method.len() > MAX_METHOD_BYTES || !is_token(method) {
        return Err(Refusal::bad_request("the method is not a token"));
    }
    fields.version = match version {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Err(Refusal::new(
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                Reject::BadRequest,
                "only HTTP/1.0 and HTTP/1.1 are spoken here in clear requests",
            ));
        }
        _ => {
            return Err(Refusal::bad_request(
                "the request line does not end in an HTTP version",
            ));
        }
    };
    check_target(method, target)
}

fn split_space(line: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    memchr(b' ', line)
        .map(|index| (&line[..index], &line[index + 1..]))
        .ok_or(Refusal::bad_request(
            "the request line has fewer than three parts",
        ))
}

fn check_target(method: &[u8], target: &[u8]) -> Result<(), Refusal> {
    if !is_target(target) {
        return Err(Refusal::bad_request(
            "the request target has a byte that is not allowed in a URI",
        ));
    }
    match target {
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
    if authority.is_empty() || !is_valid_host(authority) {
        return Err(ERROR);
    }
    Ok(())
}

fn strip_prefix_ignore_case<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}
