//! The request gate: the byte-level rules of HTTP/1.1 framing.
//!
//! Guarantee: a head that breaks a rule is never parsed, of a body nothing is
//! passed on from the byte that breaks one, and nothing after such a message is
//! read as a request: no two parsers can disagree about where a message ends.
//! Linear in the bytes. Sources: RFC 9112 §2–§7, RFC 9110 §5.5, §7.2; stricter where the
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
pub(crate) use self::field::is_token_byte;
use self::field::{Cuts, Fields};
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
}

impl Refusal {
    const fn bad_request(detail: &'static str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            reject: Reject::BadRequest,
            detail,
            limit: None,
        }
    }

    const fn new(status: StatusCode, reject: Reject, detail: &'static str) -> Self {
        Self {
            status,
            reject,
            detail,
            limit: None,
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
    Refused,
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
pub(crate) enum Framing {
    None,
    Fixed(u64),
    Chunked,
}

/// A head that keeps all rules, and what it says of its message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdmittedHead {
    /// Bytes of empty lines in front of it.
    pub(crate) start: usize,
    /// Bytes up to and with the empty line that ends it.
    pub(crate) end: usize,
    pub(crate) is_http10: bool,
    /// Where the request line was cut.
    pub(crate) cuts: Cuts,
    /// Where the value of `Host` lies.
    pub(crate) host: Option<(usize, usize)>,
    pub(crate) framing: Framing,
    /// Whether the connection ends with this message.
    pub(crate) is_last: bool,
    /// Whether the peer waits for an interim answer before it sends the body.
    pub(crate) expects_continue: bool,
}

/// Checks the byte stream of one connection.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: GateLimits,
    state: State,
    /// Whether the message being read is the connection's last.
    is_last: bool,
}

impl Gate {
    pub(crate) fn new(limits: GateLimits) -> Self {
        Self {
            limits,
            state: State::Head(Head::default()),
            is_last: false,
        }
    }

    /// Ends a message.
    fn complete(&mut self) {
        self.state = if self.is_last {
            State::Ended
        } else {
            State::Head(Head::default())
        };
    }

    /// Reads the head that `input` begins with; `None` while it is incomplete.
    ///
    /// Of an incomplete head the same bytes come again, with more behind them.
    pub(crate) fn read_head(&mut self, input: &[u8]) -> Result<Option<AdmittedHead>, Refusal> {
        let State::Head(head) = &mut self.state else {
            return Ok(None);
        };
        match head.advance(input, self.limits) {
            Ok(None) => Ok(None),
            Ok(Some(admitted)) => {
                self.is_last = admitted.is_last;
                match admitted.framing {
                    Framing::None | Framing::Fixed(0) => self.complete(),
                    Framing::Fixed(length) => self.state = State::Fixed(length),
                    Framing::Chunked => self.state = State::Chunked(Chunked::default()),
                }
                Ok(Some(admitted))
            }
            Err(refusal) => Err(self.refuse(refusal)),
        }
    }

    /// Reads body bytes up to the end of the message; how many were taken.
    ///
    /// `data` gets the content, without chunk sizes and trailers.
    pub(crate) fn read_body(
        &mut self,
        input: &[u8],
        data: &mut impl FnMut(&[u8]),
    ) -> Result<usize, Refusal> {
        match &mut self.state {
            State::Fixed(remaining) => {
                let taken = (*remaining).min(input.len() as u64);
                *remaining -= taken;
                if *remaining == 0 {
                    self.complete();
                }
                data(&input[..taken as usize]);
                Ok(taken as usize)
            }
            State::Chunked(chunked) => match chunked.advance(input, self.limits, data) {
                Ok(step) => {
                    if step.finished {
                        self.complete();
                    }
                    Ok(step.length)
                }
                Err(refusal) => Err(self.refuse(refusal)),
            },
            State::Head(_) | State::Refused | State::Ended => Ok(0),
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Refusal {
        self.state = State::Refused;
        refusal
    }

    /// Whether more of a body is to come.
    pub(crate) const fn is_in_body(&self) -> bool {
        matches!(self.state, State::Fixed(_) | State::Chunked(_))
    }

    /// Whether the next byte would be the first of a message.
    pub(crate) const fn is_between_messages(&self) -> bool {
        matches!(&self.state, State::Head(head) if head.checked == 0 && head.scanned == 0)
    }

    /// Whether `pending` bytes, not taken yet, are all that came of a head: it
    /// has begun unless they are empty lines.
    pub(crate) fn is_in_head(&self, pending: usize) -> bool {
        match &self.state {
            State::Head(head) => head.saw_request_line || pending != head.checked,
            _ => false,
        }
    }
}

impl Head {
    /// Reads the complete lines of `input`.
    fn advance(
        &mut self,
        input: &[u8],
        limits: GateLimits,
    ) -> Result<Option<AdmittedHead>, Refusal> {
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
                self.fields.check(lines, self.checked, limits.headers)?
            } else {
                request_line::check(lines, self.checked, &mut self.fields)?
            };
            self.check_sizes(self.checked + length, length - 2, limits)?;
            self.checked += length;
            self.scanned = 0;
            match (ends_here, self.saw_request_line) {
                (true, true) => return self.finish().map(Some),
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

    fn finish(&self) -> Result<AdmittedHead, Refusal> {
        Ok(AdmittedHead {
            start: 2 * usize::from(self.empty_lines),
            end: self.checked,
            is_http10: self.fields.version == field::Version::Http10,
            cuts: self.fields.cuts,
            host: self.fields.host,
            framing: self.fields.finish()?,
            is_last: self.fields.is_last(),
            expects_continue: self.fields.expects_continue,
        })
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
