//! One connection and the exchange on it, without clocks and without counting.
//!
//! ```text
//! Closed ─► Connecting ─► Handshaking ─► Open ─► Writing ─► Reading ─► Open
//!    ▲          │              │                    │           │
//!    └─ Backoff ◄──────────────┴────────────────────┴───────────┘
//! ```
//!
//! In the steady state an exchange is one send and one receive system call: a
//! receive that did not fill its buffer drained the socket, and what arrives later,
//! the end of the stream included, is a new edge for the poll. Only where the event
//! already announced the end of the stream is the socket read until it.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use mio::{Registry, Token};
use rustix::io::Errno;
use rustls::ClientConfig;
use sha2::{Digest as _, Sha256};

use super::outcome::Outcome;
use super::plan::{Expectation, ExpectedBody, RequestTemplate};
use super::response::{Fed, ParseError, ResponseParser};
use super::target::Target;
use super::transport::{Buffers, Received, Transport, TransportError};

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Closed,
    Backoff,
    Connecting,
    Handshaking,
    Open,
    Writing,
    Reading,
}

/// What an event says about a socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Readiness {
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The end of the stream has arrived: no further edge will come.
    pub(super) ended: bool,
}

impl From<&mio::event::Event> for Readiness {
    fn from(event: &mio::event::Event) -> Self {
        Self {
            readable: event.is_readable() || event.is_error(),
            writable: event.is_writable() || event.is_error(),
            ended: event.is_read_closed() || event.is_error(),
        }
    }
}

/// What the caller has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait for the next event.
    Pending,
    /// Send a request: the connection is open.
    Ready,
    /// Account for a whole response.
    Complete {
        /// Bytes followed the response.
        extra: bool,
        /// Another request may be sent on this connection.
        reusable: bool,
    },
    /// Account for a failure.
    Failed {
        outcome: Outcome,
        /// No byte of the response had arrived.
        untouched: bool,
    },
}

/// What a connection needs of its thread.
#[derive(Debug)]
pub(super) struct Io<'a> {
    pub(super) registry: &'a Registry,
    pub(super) buffers: &'a mut Buffers,
    pub(super) expect: &'a Expectation,
}

/// One try to get one answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    /// Whether it began after the warm-up.
    pub(super) measured: bool,
    /// When sending began, at first if it was sent twice.
    pub(super) sent: Option<Instant>,
    /// Whether it was sent a second time.
    pub(super) resent: bool,
    /// Index of the request.
    pub(super) request: usize,
}

/// A slot that holds one connection after the other.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) phase: Phase,
    pub(super) attempt: Option<Attempt>,
    /// When the current phase has lasted too long.
    pub(super) deadline: Option<Instant>,
    pub(super) connect_began: Option<Instant>,
    /// Failures since the last response, for the backoff.
    pub(super) failures: u32,
    transport: Option<Transport>,
    /// Responses received on this transport.
    responses: u64,
    parser: ResponseParser,
    written: usize,
    body: BodyCheck,
    bytes_received: u64,
    /// The event that finished the connect also announced something to receive,
    /// or (`true`) the end of the stream.
    unreceived: Option<bool>,
}

impl Connection {
    pub(super) const fn new() -> Self {
        Self {
            phase: Phase::Closed,
            attempt: None,
            deadline: None,
            connect_began: None,
            failures: 0,
            transport: None,
            responses: 0,
            parser: ResponseParser::new(),
            written: 0,
            body: BodyCheck {
                length: 0,
                equal: true,
                hasher: None,
            },
            bytes_received: 0,
            unreceived: None,
        }
    }

    /// Starts to connect.
    pub(super) fn open(
        &mut self,
        target: &Target,
        tls_config: Option<&Arc<ClientConfig>>,
        token: Token,
        io: &mut Io<'_>,
    ) -> Step {
        self.responses = 0;
        self.unreceived = None;
        self.bytes_received = 0;
        match Transport::open(target, tls_config, io.registry, token) {
            Ok(transport) => self.transport = Some(transport),
            Err(error) => return failed(connect_outcome(&error), true),
        }
        self.phase = Phase::Connecting;
        match target.address {
            super::target::Address::Tcp(_) => Step::Pending,
            super::target::Address::Unix(_) => self.finish_connect(io),
        }
    }

    /// Closes the connection; the slot stays usable.
    pub(super) fn close(&mut self) {
        self.transport = None;
        self.phase = Phase::Closed;
        self.deadline = None;
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Whether a response was received on this connection before.
    pub(super) const fn is_reused(&self) -> bool {
        self.responses > 0
    }

    /// Sends a request; `digest` asks for a hash of the response body.
    pub(super) fn send(
        &mut self,
        request: &RequestTemplate,
        digest: bool,
        io: &mut Io<'_>,
    ) -> Step {
        self.parser.start(request.is_head());
        self.body
            .start(digest || matches!(io.expect.body, Some(ExpectedBody::Sha256(_))));
        self.written = 0;
        self.bytes_received = 0;
        self.phase = Phase::Writing;
        let step = self.flush(request, io);
        // A server that talks first does so at the edge that finished the connect.
        match self.unreceived.take() {
            Some(ended) if step == Step::Pending => self.receive(ended, io),
            _ => step,
        }
    }

    /// Does what an event makes possible.
    pub(super) fn advance(
        &mut self,
        ready: Readiness,
        request: &RequestTemplate,
        io: &mut Io<'_>,
    ) -> Step {
        match self.phase {
            Phase::Connecting => {
                if ready.readable || ready.ended {
                    self.unreceived = Some(ready.ended);
                }
                self.finish_connect(io)
            }
            Phase::Handshaking => self.handshake(ready.ended, io),
            Phase::Writing | Phase::Reading => {
                if self.phase == Phase::Writing && ready.writable {
                    let step = self.flush(request, io);
                    if step != Step::Pending {
                        return step;
                    }
                }
                if ready.readable || ready.ended {
                    self.receive(ready.ended, io)
                } else {
                    Step::Pending
                }
            }
            Phase::Closed | Phase::Backoff | Phase::Open => Step::Pending,
        }
    }

    /// Status of the response.
    pub(super) const fn status(&self) -> u16 {
        self.parser.status()
    }

    /// Takes the number of bytes received for the request.
    pub(super) const fn take_bytes_received(&mut self) -> u64 {
        std::mem::replace(&mut self.bytes_received, 0)
    }

    /// Whether the body of the current answer is being hashed.
    pub(super) const fn is_hashing(&self) -> bool {
        matches!(self.phase, Phase::Writing | Phase::Reading) && self.body.hasher.is_some()
    }

    pub(super) const fn body(&self) -> &BodyCheck {
        &self.body
    }

    fn finish_connect(&mut self, io: &mut Io<'_>) -> Step {
        let Some(transport) = &self.transport else {
            return Step::Pending;
        };
        match transport.finish_connect() {
            Ok(false) => Step::Pending,
            Ok(true) if transport.is_handshaking() => {
                self.phase = Phase::Handshaking;
                let ended = self.unreceived.take() == Some(true);
                self.handshake(ended, io)
            }
            Ok(true) => {
                self.phase = Phase::Open;
                Step::Ready
            }
            Err(error) => failed(connect_outcome(&TransportError::Io(error)), true),
        }
    }

    fn handshake(&mut self, ended: bool, io: &mut Io<'_>) -> Step {
        let Some(transport) = &mut self.transport else {
            return Step::Pending;
        };
        loop {
            match transport.receive(io.buffers) {
                Ok(Received::Bytes { bytes, .. }) if !bytes.is_empty() => {
                    return failed(Outcome::ExtraBytes, false);
                }
                Ok(Received::Bytes { drained, .. }) if !drained || ended => {}
                Ok(Received::Bytes { .. } | Received::WouldBlock) => break,
                Ok(Received::End { .. }) => return failed(Outcome::TlsError, true),
                Err(error) => return failed(request_outcome(&error), true),
            }
        }
        let result = transport
            .send(&[])
            .and_then(|(_, flushed)| transport.want_write(io.registry, !flushed));
        if let Err(error) = result {
            return failed(request_outcome(&error.into()), true);
        }
        if transport.is_handshaking() {
            return Step::Pending;
        }
        self.phase = Phase::Open;
        Step::Ready
    }

    fn flush(&mut self, request: &RequestTemplate, io: &mut Io<'_>) -> Step {
        let Some(transport) = &mut self.transport else {
            return Step::Pending;
        };
        let result = transport
            .send(&request.bytes[self.written..])
            .and_then(|(taken, flushed)| {
                self.written += taken;
                let done = flushed && self.written == request.bytes.len();
                if done {
                    self.phase = Phase::Reading;
                }
                transport.want_write(io.registry, !done)
            });
        match result {
            Ok(()) => Step::Pending,
            // A server may answer and close without having read everything.
            Err(_) => match self.receive(true, io) {
                Step::Complete { extra, .. } => Step::Complete {
                    extra,
                    reusable: false,
                },
                Step::Failed { outcome, untouched } => Step::Failed { outcome, untouched },
                Step::Pending | Step::Ready => failed(Outcome::Reset, self.parser.is_untouched()),
            },
        }
    }

    /// Receives until the response ends or the socket is empty.
    ///
    /// `ended` says that the end of the stream has arrived already.
    fn receive(&mut self, ended: bool, io: &mut Io<'_>) -> Step {
        let Some(transport) = &mut self.transport else {
            return Step::Pending;
        };
        loop {
            let (bytes, drained, tls_ended) = match transport.receive(io.buffers) {
                Ok(Received::WouldBlock) => return Step::Pending,
                Ok(Received::Bytes {
                    bytes,
                    drained,
                    ended,
                }) => (bytes, drained, ended),
                Ok(Received::End { clean }) => return self.end_of_stream(clean),
                Err(error) => return failed(request_outcome(&error), self.parser.is_untouched()),
            };
            self.bytes_received += bytes.len() as u64;
            let body = &mut self.body;
            let expected = io.expect.body.as_ref();
            match self
                .parser
                .feed(bytes, &mut |part: &[u8]| body.update(expected, part))
            {
                Ok(Fed::NeedMore) if tls_ended => return self.end_of_stream(true),
                Ok(Fed::NeedMore) if drained && !ended => return Step::Pending,
                Ok(Fed::NeedMore) => {}
                Ok(Fed::Complete { consumed }) => {
                    let mut extra = consumed < bytes.len();
                    let mut open = !ended && !tls_ended;
                    // The buffer was filled: more may lie in the socket, and no edge
                    // will tell.
                    if !drained && open && !extra {
                        match transport.receive(io.buffers) {
                            Ok(Received::WouldBlock) => {}
                            Ok(Received::Bytes { bytes, .. }) => extra = !bytes.is_empty(),
                            Ok(Received::End { .. }) | Err(_) => open = false,
                        }
                    }
                    let reusable = open && self.parser.keep_alive() && self.phase == Phase::Reading;
                    return self.complete(extra, reusable && !extra);
                }
                // Where a status line should be, bytes that cannot begin one belong
                // to the response before.
                Err(ParseError::NotHttp) if self.responses > 0 => {
                    return failed(Outcome::ExtraBytes, false);
                }
                Err(_) => return failed(Outcome::ParseError, false),
            }
        }
    }

    fn end_of_stream(&mut self, clean: bool) -> Step {
        let untouched = self.parser.is_untouched();
        if self.parser.end_of_stream() && clean {
            self.complete(false, false)
        } else {
            failed(Outcome::EofEarly, untouched)
        }
    }

    const fn complete(&mut self, extra: bool, reusable: bool) -> Step {
        self.responses += 1;
        self.phase = Phase::Open;
        Step::Complete { extra, reusable }
    }
}

/// What is known of a response body without keeping it.
#[derive(Debug)]
pub(super) struct BodyCheck {
    length: u64,
    /// Whether the body so far is a prefix of the expected bytes.
    equal: bool,
    hasher: Option<Sha256>,
}

impl BodyCheck {
    fn start(&mut self, digest: bool) {
        self.length = 0;
        self.equal = true;
        self.hasher = digest.then(Sha256::new);
    }

    fn update(&mut self, expected: Option<&ExpectedBody>, part: &[u8]) {
        if let (Some(ExpectedBody::Bytes(expected)), true) = (expected, self.equal) {
            let start = usize::try_from(self.length).unwrap_or(usize::MAX);
            let window = start
                .checked_add(part.len())
                .and_then(|end| expected.get(start..end));
            self.equal = window == Some(part);
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(part);
        }
        self.length += part.len() as u64;
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// SHA-256 of the body, if it was asked for.
    pub(super) fn sha256(&self) -> Option<[u8; 32]> {
        self.hasher.clone().map(|hasher| hasher.finalize().into())
    }

    pub(super) fn matches(&self, expected: &ExpectedBody) -> bool {
        match expected {
            ExpectedBody::Bytes(bytes) => self.equal && self.length == bytes.len() as u64,
            ExpectedBody::Sha256(digest) => self.sha256() == Some(*digest),
        }
    }
}

const fn failed(outcome: Outcome, untouched: bool) -> Step {
    Step::Failed { outcome, untouched }
}

/// Class of a failure after the connection was there.
fn request_outcome(error: &TransportError) -> Outcome {
    match error {
        TransportError::Tls => Outcome::TlsError,
        TransportError::Io(_) => Outcome::Reset,
    }
}

/// Class of a failure to connect.
fn connect_outcome(error: &TransportError) -> Outcome {
    let error: &io::Error = match error {
        TransportError::Tls => return Outcome::TlsError,
        TransportError::Io(error) => error,
    };
    match Errno::from_io_error(error) {
        // This machine ran out of ports, descriptors or memory: no server failed.
        Some(Errno::ADDRNOTAVAIL | Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
            Outcome::NotSent
        }
        Some(Errno::TIMEDOUT) => Outcome::ConnectTimeout,
        Some(Errno::CONNRESET | Errno::CONNABORTED | Errno::PIPE) => Outcome::Reset,
        // Refused, unreachable, no such socket, a Unix backlog that is full.
        _ => Outcome::ConnectRefused,
    }
}
