//! The request gate: the byte-level rules of HTTP/1.1 framing, before hyper.
//!
//! Guarantee: no byte of a head that breaks a rule reaches the parser, of a body
//! none from the piece that breaks one, and nothing after such a message is read
//! as a request: no two parsers can disagree about where a message ends. Linear
//! in the bytes. Sources: RFC 9112 §2–§7, RFC 9110 §5.5, §7.2; stricter where the
//! RFC leaves a choice (bare LF, folding, CL with TE).
//!
//! ```text
//! Head ──▶ Fixed(n) ──▶ Head        Head ──▶ Chunked ──▶ Head
//!   any ──▶ Refused    (a rule was broken)
//!   any ──▶ Ended      (the last message of the connection is complete)
//! ```

mod chunked;
mod field;
mod host;
mod request_line;

use http::StatusCode;
use memchr::memrchr;

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
    /// The limit that was exceeded: configuration key and value.
    limit: Option<(&'static str, u64)>,
    /// Whether the head had been admitted, so that a handler answers.
    pub(crate) in_body: bool,
}

impl Refusal {
    const fn bad_request(detail: &'static str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            reject: Reject::BadRequest,
            detail,
            limit: None,
            in_body: false,
        }
    }

    const fn new(status: StatusCode, reject: Reject, detail: &'static str) -> Self {
        Self {
            status,
            reject,
            detail,
            limit: None,
            in_body: false,
        }
    }

    /// Too many bytes or lines: 431, except for the request line.
    const fn limit(reject: Reject, key: &'static str, value: usize) -> Self {
        let (status, detail) = match reject {
            Reject::RequestLine => (StatusCode::URI_TOO_LONG, "the request line is too long"),
            Reject::HeaderCount => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "there are too many header or trailer lines",
            ),
            _ => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "the request head or the trailers are too large",
            ),
        };
        Self {
            status,
            reject,
            detail,
            limit: Some((key, value as u64)),
            in_body: false,
        }
    }

    pub(crate) fn problem(self) -> Problem {
        let problem = Problem::new(self.status).with_detail(self.detail);
        match self.limit {
            Some((key, value)) => problem.with_limit(key, value),
            None => problem,
        }
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
    Ended,
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

/// The refusal of a line that stopped being valid at `byte`.
const fn unexpected(byte: Option<&u8>, detail: &'static str) -> Refusal {
    match byte {
        Some(b'\n') => Refusal::bad_request("a line ends in LF without CR"),
        _ => Refusal::bad_request(detail),
    }
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
    /// Whether the message being read is the connection's last.
    is_last: bool,
    num_complete: u64,
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
    /// Nothing: a rule was broken, or the last message is complete.
    Nothing,
}

impl Gate {
    pub(crate) fn new(limits: GateLimits) -> Self {
        Self {
            limits,
            state: State::Head(Head::default()),
            is_last: false,
            num_complete: 0,
        }
    }

    /// Ends a message.
    fn complete(&mut self) {
        self.num_complete += 1;
        self.state = if self.is_last {
            State::Ended
        } else {
            State::Head(Head::default())
        };
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
                        self.is_last = head.fields.is_last();
                        match framing {
                            Framing::None | Framing::Fixed(0) => self.complete(),
                            Framing::Fixed(length) => self.state = State::Fixed(length),
                            Framing::Chunked => self.state = State::Chunked(Chunked::default()),
                        }
                        Ok(length)
                    }
                    Ok(None) => return admitted,
                    Err(refusal) => Err(refusal),
                },
                State::Fixed(remaining) => {
                    let taken = (*remaining).min(rest.len() as u64);
                    *remaining -= taken;
                    if *remaining == 0 {
                        self.complete();
                    }
                    Ok(taken as usize)
                }
                State::Chunked(chunked) => match chunked.advance(rest, self.limits) {
                    Ok(step) => {
                        if step.finished {
                            self.complete();
                        }
                        Ok(step.length)
                    }
                    Err(refusal) => Err(Refusal {
                        in_body: true,
                        ..refusal
                    }),
                },
                State::Refused(_) | State::Ended => return admitted,
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

    /// Number of messages that have been admitted to their last byte.
    pub(crate) const fn num_complete(&self) -> u64 {
        self.num_complete
    }

    /// Whether nothing more will be admitted.
    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.state, State::Refused(_) | State::Ended)
    }

    /// What the next byte would belong to, given the unadmitted bytes.
    pub(crate) fn expecting(&self, unadmitted: usize) -> Expecting {
        match &self.state {
            // Empty lines before a request line are no part of a request.
            State::Head(head) if !head.saw_request_line && unadmitted == head.checked => {
                Expecting::Request
            }
            State::Head(_) => Expecting::HeadRest,
            State::Fixed(_) | State::Chunked(_) => Expecting::Body,
            State::Refused(_) | State::Ended => Expecting::Nothing,
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
        // Up to the last LF all lines are complete; so each is read in one pass
        // that stops by itself, and no byte of a line that drips in is read twice.
        let complete = match memrchr(b'\n', &input[self.checked + self.scanned..]) {
            Some(index) => self.checked + self.scanned + index + 1,
            None => self.checked,
        };
        while self.checked < complete {
            let lines = &input[self.checked..complete];
            let ends_here = lines.starts_with(b"\r\n");
            let length = if ends_here {
                2
            } else if self.saw_request_line {
                self.fields.check(lines, limits.headers)?
            } else {
                request_line::check(lines, &mut self.fields)?
            };
            self.check_sizes(self.checked + length, length - 2, limits)?;
            self.checked += length;
            self.scanned = 0;
            match (ends_here, self.saw_request_line) {
                (true, true) => return Ok(Some((self.checked, self.fields.finish()?))),
                (true, false) if self.empty_lines == MAX_LEADING_EMPTY_LINES => {
                    return Err(Refusal::bad_request("the request line is empty"));
                }
                (true, false) => self.empty_lines += 1,
                (false, _) => self.saw_request_line = true,
            }
        }
        self.scanned = input.len() - self.checked;
        // The last byte may be the CR of the line's end.
        self.check_sizes(input.len(), self.scanned.saturating_sub(1), limits)?;
        Ok(None)
    }

    fn check_sizes(&self, total: usize, line: usize, limits: GateLimits) -> Result<(), Refusal> {
        if !self.saw_request_line && line > limits.request_line_bytes {
            return Err(Refusal::limit(
                Reject::RequestLine,
                "server.limits.request_line",
                limits.request_line_bytes,
            ));
        }
        if total > limits.header_bytes {
            return Err(Refusal::limit(
                Reject::HeaderBytes,
                "server.limits.header",
                limits.header_bytes,
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
