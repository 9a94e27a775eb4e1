//! The request gate: the byte-level rules of HTTP/1.1 framing, before hyper.
//!
//! Guarantee: no byte of a message that breaks a rule reaches the parser, and
//! nothing after such a message is ever read as a request, so that no two
//! parsers can disagree about where a message ends. Works on lines as they
//! arrive, in time linear in the bytes. Sources: RFC 9112 §2–§7, RFC 9110 §5.5,
//! §7.2; stricter where the RFC leaves a choice (bare LF, folding, CL with TE).
//!
//! ```text
//! Head ──▶ Fixed(n) ──▶ Head        Head ──▶ Chunked ──▶ Head
//!   any ──▶ Refused
//! ```

mod chunked;
mod field;
mod host;
mod request_line;

use http::StatusCode;
use memchr::memchr;

use self::chunked::Chunked;
use self::field::Fields;
pub(crate) use self::host::is_valid_host;
use crate::limits::{Limits, Reject};
use crate::problem::Problem;

/// Empty lines tolerated before a request line (RFC 9112 §2.2).
const MAX_LEADING_EMPTY_LINES: u8 = 2;

/// A broken rule: what to answer, what to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) reject: Reject,
    pub(crate) detail: &'static str,
    /// Whether the head had been admitted, so that a handler answers.
    pub(crate) in_body: bool,
}

impl Refusal {
    const fn bad_request(detail: &'static str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            reject: Reject::BadRequest,
            detail,
            in_body: false,
        }
    }

    const fn new(status: StatusCode, reject: Reject, detail: &'static str) -> Self {
        Self {
            status,
            reject,
            detail,
            in_body: false,
        }
    }

    pub(crate) fn problem(self) -> Problem {
        Problem::new(self.status).with_detail(self.detail)
    }
}

/// Bounds that the gate enforces, copied once per connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GateLimits {
    request_line_bytes: usize,
    header_bytes: usize,
    headers: usize,
}

impl From<&Limits> for GateLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            request_line_bytes: limits.max_request_line_bytes,
            header_bytes: limits.max_header_bytes,
            headers: limits.max_headers,
        }
    }
}

/// Where in a message the gate stands.
#[derive(Debug)]
enum State {
    Head(Head),
    Fixed(u64),
    Chunked(Chunked),
    Refused(Refusal),
}

#[derive(Debug, Default)]
struct Head {
    /// Bytes of complete, valid lines at the front of the input.
    checked: usize,
    /// Bytes after `checked` that hold no LF.
    scanned: usize,
    empty_lines: u8,
    saw_request_line: bool,
    fields: Fields,
}

/// How the body of an admitted head is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    None,
    Fixed(u64),
    Chunked,
}

/// Checks the byte stream of one connection.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: GateLimits,
    state: State,
}

/// What the gate is waiting for, which decides the deadline that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expecting {
    /// The first byte of a request.
    Request,
    /// The rest of a head.
    HeadRest,
    /// More of a body.
    Body,
    /// Nothing: a rule was broken.
    Nothing,
}

impl Gate {
    pub(crate) fn new(limits: GateLimits) -> Self {
        Self {
            limits,
            state: State::Head(Head::default()),
        }
    }

    /// Checks `input` and returns how many of its first bytes are admitted.
    ///
    /// `input` starts with the bytes that the last call did not admit. Bytes
    /// of an incomplete head stay unadmitted until its last line is there.
    pub(crate) fn admit(&mut self, input: &[u8]) -> usize {
        let mut admitted = 0;
        while admitted < input.len() {
            let rest = &input[admitted..];
            let step = match &mut self.state {
                State::Head(head) => match head.advance(rest, self.limits) {
                    Ok(Some((length, framing))) => {
                        self.state = match framing {
                            Framing::None | Framing::Fixed(0) => State::Head(Head::default()),
                            Framing::Fixed(length) => State::Fixed(length),
                            Framing::Chunked => State::Chunked(Chunked::default()),
                        };
                        Ok(length)
                    }
                    Ok(None) => return admitted,
                    Err(refusal) => Err(refusal),
                },
                State::Fixed(remaining) => {
                    let taken = (*remaining).min(rest.len() as u64);
                    *remaining -= taken;
                    if *remaining == 0 {
                        self.state = State::Head(Head::default());
                    }
                    Ok(taken as usize)
                }
                State::Chunked(chunked) => match chunked.advance(rest, self.limits) {
                    Ok(step) => {
                        if step.finished {
                            self.state = State::Head(Head::default());
                        }
                        Ok(step.length)
                    }
                    Err(refusal) => Err(Refusal {
                        in_body: true,
                        ..refusal
                    }),
                },
                State::Refused(_) => return admitted,
            };
            match step {
                Ok(length) => admitted += length,
                Err(refusal) => {
                    self.state = State::Refused(refusal);
                    return admitted;
                }
            }
        }
        admitted
    }

    /// The rule that was broken, if one was.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self.state {
            State::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether the last admitted byte is inside a body.
    pub(crate) fn is_in_body(&self) -> bool {
        matches!(self.state, State::Fixed(_) | State::Chunked(_))
    }

    /// What the next byte would belong to, given the unadmitted bytes.
    pub(crate) fn expecting(&self, unadmitted: usize) -> Expecting {
        match &self.state {
            State::Head(head) if unadmitted == 0 && head.checked == 0 => Expecting::Request,
            State::Head(_) => Expecting::HeadRest,
            State::Fixed(_) | State::Chunked(_) => Expecting::Body,
            State::Refused(_) => Expecting::Nothing,
        }
    }
}

impl Head {
    /// Reads the complete lines of `input`; the head's length once it ends.
    fn advance(
        &mut self,
        input: &[u8],
        limits: GateLimits,
    ) -> Result<Option<(usize, Framing)>, Refusal> {
        loop {
            let rest = &input[self.checked..];
            let Some(index) = memchr(b'\n', &rest[self.scanned..]) else {
                self.scanned = rest.len();
                self.check_sizes(self.checked + rest.len(), rest.len(), limits)?;
                return Ok(None);
            };
            let end = self.scanned + index;
            self.check_sizes(self.checked + end + 1, end, limits)?;
            let Some(line) = rest[..end].strip_suffix(b"\r") else {
                return Err(Refusal::bad_request("a line ends in LF without CR"));
            };
            self.checked += end + 1;
            self.scanned = 0;
            if !self.saw_request_line {
                if line.is_empty() && self.empty_lines < MAX_LEADING_EMPTY_LINES {
                    self.empty_lines += 1;
                    continue;
                }
                request_line::check(line, &mut self.fields)?;
                self.saw_request_line = true;
            } else if line.is_empty() {
                return Ok(Some((self.checked, self.fields.finish()?)));
            } else {
                self.fields.check(line, limits.headers)?;
            }
        }
    }

    fn check_sizes(&self, total: usize, line: usize, limits: GateLimits) -> Result<(), Refusal> {
        if !self.saw_request_line && line > limits.request_line_bytes {
            return Err(Refusal::new(
                StatusCode::URI_TOO_LONG,
                Reject::RequestLine,
                "the request line is longer than server.limits.request_line",
            ));
        }
        if total > limits.header_bytes {
            return Err(Refusal::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                Reject::HeaderBytes,
                "the request head is larger than server.limits.header",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
