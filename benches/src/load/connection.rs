//! One connection and the exchange on it, without clocks and without counting.
//!
//! ```text
//! Closed ─► Connecting ─► Handshaking ─► Upgrading ─► Open ─► Writing ─► Reading ─► Open
//!    ▲          │              │             │                   │           │
//!    └─ Backoff ◄──────────────┴─────────────┴───────────────────┴───────────┘
//! ```
//!
//! Only a WebSocket is upgrading; a stream of events is reading for ever.
//!
//! In the steady state an exchange is one send and one receive system call: a
//! receive that did not fill its buffer drained the socket, and what arrives later,
//! the end of the stream included, is a new edge for the poll. Only where the event
//! already announced the end of the stream is the socket read until it.

use std::sync::Arc;
use std::time::Instant;

use mio::{Registry, Token};
use rustls::ClientConfig;

use super::body::BodyCheck;
use super::events::{Arrival, EventStream};
use super::outcome::Outcome;
use super::plan::Expectation;
use super::response::{Fed, ParseError, ResponseParser};
use super::target::Target;
use super::template::{RequestTemplate, Values};
use super::transport::{Buffers, Received, Transport, TransportError};
use super::websocket::EchoStream;

/// Status that opens a WebSocket.
const SWITCHING_PROTOCOLS: u16 = 101;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Closed,
    Backoff,
    Connecting,
    Handshaking,
    Upgrading,
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
    /// When sending should have begun, in an open loop.
    pub(super) intended: Option<Instant>,
    /// When sending began, at first if it was sent twice.
    pub(super) sent: Option<Instant>,
    /// When the answer began to come.
    pub(super) first_byte: Option<Instant>,
    /// Whether it was sent a second time.
    pub(super) resent: bool,
    /// Index of the request.
    pub(super) request: usize,
}

/// What is read from a connection, besides the response to a request.
#[derive(Debug)]
pub(super) enum Mode {
    Requests,
    Echo(Box<EchoStream>),
    Events(Box<EventStream>),
}

/// A slot that holds one connection after the other.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) phase: Phase,
    pub(super) attempt: Option<Attempt>,
    /// When the current phase has lasted too long.
    pub(super) deadline: Option<Instant>,
    pub(super) connect_began: Option<Instant>,
    /// When the last measured request ended, until the next is sent.
    pub(super) free_since: Option<Instant>,
    /// Failures since the last response, for the backoff.
    pub(super) failures: u32,
    mode: Mode,
    transport: Option<Transport>,
    /// Responses received on this transport.
    responses: u64,
    parser: ResponseParser,
    /// A request whose slots are filled, and which of the plan's it is.
    filled: Option<(usize, Vec<u8>)>,
    written: usize,
    body: BodyCheck,
    bytes_received: u64,
    /// The event that finished the connect also announced something to receive,
    /// or (`true`) the end of the stream.
    unreceived: Option<bool>,
}

impl Connection {
    pub(super) const fn new(mode: Mode) -> Self {
        Self {
            phase: Phase::Closed,
            attempt: None,
            deadline: None,
            connect_began: None,
            free_since: None,
            failures: 0,
            mode,
            transport: None,
            responses: 0,
            parser: ResponseParser::new(),
            filled: None,
            written: 0,
            body: BodyCheck::new(),
            bytes_received: 0,
            unreceived: None,
        }
    }

    /// Starts to connect; `request` is what opens a WebSocket.
    pub(super) fn open(
        &mut self,
        target: &Target,
        request: &RequestTemplate,
        tls_config: Option<&Arc<ClientConfig>>,
        token: Token,
        io: &mut Io<'_>,
    ) -> Step {
        if let Mode::Echo(stream) = &mut self.mode {
            stream.reset();
        }
        self.written = 0;
        self.responses = 0;
        self.unreceived = None;
        self.bytes_received = 0;
        match Transport::open(target, tls_config, io.registry, token) {
            Ok(transport) => self.transport = Some(transport),
            Err(error) => return failed(error.connect_outcome(), true),
        }
        self.phase = Phase::Connecting;
        match target.address {
            super::target::Address::Tcp(_) => Step::Pending,
            super::target::Address::Unix(_) => self.finish_connect(request, io),
        }
    }

    /// Closes the connection; the slot stays usable.
    pub(super) fn close(&mut self) {
        self.transport = None;
        self.phase = Phase::Closed;
        self.deadline = None;
    }

    /// Closes the connection so that the server knows at once that nobody listens.
    pub(super) fn reset(&mut self) {
        if let Some(transport) = &self.transport {
            transport.reset_on_close();
        }
        self.close();
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Whether a response was received on this connection before.
    pub(super) const fn is_reused(&self) -> bool {
        self.responses > 0
    }

    /// Fills the slots of the request that is sent next.
    pub(super) fn prepare(&mut self, index: usize, request: &RequestTemplate, values: &mut Values) {
        if !request.has_slots() {
            self.filled = None;
            return;
        }
        let mut bytes = match self.filled.take() {
            Some((filled, bytes)) if filled == index => bytes,
            _ => request.bytes.clone(),
        };
        request.fill(&mut bytes, values);
        self.filled = Some((index, bytes));
    }

    /// Sends a request, or the next message; `digest` asks for a hash of the
    /// response body.
    pub(super) fn send(
        &mut self,
        request: &RequestTemplate,
        digest: bool,
        io: &mut Io<'_>,
    ) -> Step {
        self.parser.start(request.is_head());
        self.body.start(io.expect.body.as_ref(), digest);
        if let Mode::Echo(stream) = &mut self.mode {
            stream.begin_message(self.written);
            self.body.update(None, stream.payload());
        }
        self.written = 0;
        self.bytes_received = 0;
        self.phase = Phase::Writing;
        let step = self.flush(request, io);
        // A server that talks first does so at the edge that finished the connect.
        match self.unreceived.take() {
            Some(ended) if step == Step::Pending => self.receive(ended, request, io),
            _ => step,
        }
    }

    /// Whether a connection on which nothing was asked is still there and says nothing.
    ///
    /// Over TLS there may be records that are no data: tickets for later handshakes.
    pub(super) fn is_quiet(&mut self, ready: Readiness, io: &mut Io<'_>) -> bool {
        let Some(transport) = &mut self.transport else {
            return false;
        };
        if !ready.readable && !ready.ended {
            return true;
        }
        loop {
            match transport.receive(io.buffers) {
                Ok(Received::WouldBlock) => return !ready.ended,
                Ok(Received::Bytes {
                    bytes: [],
                    drained,
                    ended: false,
                }) => {
                    if drained && !ready.ended {
                        return true;
                    }
                }
                Ok(Received::Bytes { .. } | Received::End { .. }) | Err(_) => return false,
            }
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
                self.finish_connect(request, io)
            }
            Phase::Handshaking => self.handshake(ready.ended, request, io),
            Phase::Upgrading | Phase::Writing | Phase::Reading => {
                if ready.writable && self.is_writing(request) {
                    let step = self.flush(request, io);
                    if step != Step::Pending {
                        return step;
                    }
                }
                if ready.readable || ready.ended {
                    self.receive(ready.ended, request, io)
                } else {
                    Step::Pending
                }
            }
            Phase::Closed | Phase::Backoff | Phase::Open => Step::Pending,
        }
    }

    /// Status of the response; of a WebSocket, that of its opening.
    pub(super) const fn status(&self) -> u16 {
        match self.mode {
            Mode::Echo(_) => SWITCHING_PROTOCOLS,
            Mode::Requests | Mode::Events(_) => self.parser.status(),
        }
    }

    /// Whether a message has come back as it was sent; `None` without messages.
    pub(super) const fn echo_is_equal(&self) -> Option<bool> {
        match &self.mode {
            Mode::Echo(stream) => Some(stream.is_equal()),
            Mode::Requests | Mode::Events(_) => None,
        }
    }

    /// Compares the next event that has come with `data`.
    pub(super) fn next_arrival(&mut self, data: &[u8]) -> Option<Arrival> {
        match &mut self.mode {
            Mode::Events(stream) => stream.next_arrival(data),
            Mode::Requests | Mode::Echo(_) => None,
        }
    }

    /// Whether something is left to write.
    const fn is_writing(&self, request: &RequestTemplate) -> bool {
        match self.phase {
            Phase::Upgrading => self.written < request.bytes.len(),
            _ => matches!(self.phase, Phase::Writing),
        }
    }

    /// Whether something has come for the request.
    pub(super) const fn has_received(&self) -> bool {
        self.bytes_received > 0
    }

    /// Remembers that what has come for the request was there at `at`, unless something was before.
    pub(super) fn mark_first_byte(&mut self, at: Instant) {
        if let Some(attempt) = &mut self.attempt
            && attempt.first_byte.is_none()
            && self.bytes_received > 0
        {
            // Not before the send, when one event has led to both.
            attempt.first_byte = Some(attempt.sent.map_or(at, |sent| sent.max(at)));
        }
    }

    /// Takes the number of bytes received for the request.
    pub(super) const fn take_bytes_received(&mut self) -> u64 {
        std::mem::replace(&mut self.bytes_received, 0)
    }

    /// Whether the body of the current answer is being hashed.
    pub(super) const fn is_hashing(&self) -> bool {
        matches!(self.phase, Phase::Writing | Phase::Reading) && self.body.is_hashing()
    }

    pub(super) const fn body(&self) -> &BodyCheck {
        &self.body
    }

    fn finish_connect(&mut self, request: &RequestTemplate, io: &mut Io<'_>) -> Step {
        let Some(transport) = &self.transport else {
            return Step::Pending;
        };
        match transport.finish_connect() {
            Ok(false) => Step::Pending,
            Ok(true) if transport.is_handshaking() => {
                self.phase = Phase::Handshaking;
                let ended = self.unreceived.take() == Some(true);
                self.handshake(ended, request, io)
            }
            Ok(true) => self.connected(request, io),
            Err(error) => failed(TransportError::Io(error).connect_outcome(), true),
        }
    }

    /// The byte stream is there.
    fn connected(&mut self, request: &RequestTemplate, io: &mut Io<'_>) -> Step {
        match self.mode {
            Mode::Requests | Mode::Events(_) => {
                self.phase = Phase::Open;
                Step::Ready
            }
            Mode::Echo(_) => {
                self.phase = Phase::Upgrading;
                self.flush(request, io)
            }
        }
    }

    fn handshake(&mut self, ended: bool, request: &RequestTemplate, io: &mut Io<'_>) -> Step {
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
                Err(error) => return failed(error.request_outcome(), true),
            }
        }
        let result = transport
            .send(&[])
            .and_then(|(_, flushed)| transport.want_write(io.registry, !flushed));
        if let Err(error) = result {
            return failed(TransportError::Io(error).request_outcome(), true);
        }
        if transport.is_handshaking() {
            return Step::Pending;
        }
        self.connected(request, io)
    }

    fn flush(&mut self, request: &RequestTemplate, io: &mut Io<'_>) -> Step {
        let Some(transport) = &mut self.transport else {
            return Step::Pending;
        };
        let bytes = match &self.mode {
            Mode::Echo(stream) if self.phase != Phase::Upgrading => stream.outgoing(),
            _ => match &self.filled {
                Some((_, bytes)) => bytes,
                None => &request.bytes[..],
            },
        };
        let result = transport
            .send(&bytes[self.written..])
            .and_then(|(taken, flushed)| {
                self.written += taken;
                let done = flushed && self.written == bytes.len();
                if done && self.phase == Phase::Writing {
                    self.phase = Phase::Reading;
                }
                transport.want_write(io.registry, !done)
            });
        match result {
            Ok(()) => Step::Pending,
            // A server may answer and close without having read everything.
            Err(_) => match self.receive_all(true, io) {
                Step::Complete { extra, .. } => Step::Complete {
                    extra,
                    reusable: false,
                },
                Step::Failed { outcome, untouched } => Step::Failed { outcome, untouched },
                Step::Pending | Step::Ready => failed(Outcome::Reset, self.parser.is_untouched()),
            },
        }
    }

    /// Receives, and sends what that makes due: the answer to a ping.
    fn receive(&mut self, ended: bool, request: &RequestTemplate, io: &mut Io<'_>) -> Step {
        let step = self.receive_all(ended, io);
        if let (Mode::Echo(stream), Step::Pending, Phase::Reading) = (&self.mode, step, self.phase)
            && self.written < stream.outgoing().len()
        {
            self.phase = Phase::Writing;
            return self.flush(request, io);
        }
        step
    }

    /// Receives until the response ends or the socket is empty.
    ///
    /// `ended` says that the end of the stream has arrived already.
    fn receive_all(&mut self, ended: bool, io: &mut Io<'_>) -> Step {
        let Some(transport) = &mut self.transport else {
            return Step::Pending;
        };
        loop {
            let unread = match self.mode {
                Mode::Requests if !self.body.is_looked_at(io.expect.body.as_ref()) => {
                    self.parser.remaining()
                }
                _ => None,
            };
            let received = match unread {
                Some(limit) if transport.can_discard() => transport.discard(limit, io.buffers),
                _ => transport.receive(io.buffers),
            };
            let (bytes, drained, tls_ended) = match received {
                Ok(Received::WouldBlock) => return Step::Pending,
                Ok(Received::Bytes {
                    bytes,
                    drained,
                    ended,
                }) => (bytes, drained, ended),
                Ok(Received::End { clean }) => return self.end_of_stream(clean),
                Err(error) => return failed(error.request_outcome(), self.parser.is_untouched()),
            };
            self.bytes_received += bytes.len() as u64;
            let fed = match &mut self.mode {
                Mode::Echo(stream) => stream.feed(bytes),
                Mode::Events(stream) => (self.parser)
                    .feed(bytes, &mut |part: &[u8]| stream.feed(part))
                    .map_err(|_| Outcome::ParseError),
                Mode::Requests => {
                    let body = &mut self.body;
                    let expected = io.expect.body.as_ref();
                    let sink = &mut |part: &[u8]| body.update(expected, part);
                    self.parser.feed(bytes, sink).map_err(|error| match error {
                        // Where a status line should be, bytes that cannot begin one
                        // belong to the response before.
                        ParseError::NotHttp if self.responses > 0 => Outcome::ExtraBytes,
                        _ => Outcome::ParseError,
                    })
                }
            };
            match fed {
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
                    return self.completed(extra, open);
                }
                Err(outcome) => return failed(outcome, false),
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

    /// A response, an opening handshake or an echo is whole.
    fn completed(&mut self, extra: bool, open: bool) -> Step {
        match (&self.mode, self.phase) {
            (Mode::Echo(_), Phase::Upgrading) if extra || !open => {
                failed(Outcome::ExtraBytes, false)
            }
            (Mode::Echo(_), Phase::Upgrading) => {
                self.phase = Phase::Open;
                // Of the request; messages have a buffer of their own.
                self.written = 0;
                Step::Ready
            }
            // An end that nobody asked for is no better than bytes.
            (Mode::Echo(_), phase) => {
                let reusable = open && !extra && phase == Phase::Reading;
                self.complete(!reusable, reusable)
            }
            (Mode::Requests | Mode::Events(_), phase) => {
                let reusable = open && self.parser.keep_alive() && phase == Phase::Reading;
                self.complete(extra, reusable && !extra)
            }
        }
    }

    const fn complete(&mut self, extra: bool, reusable: bool) -> Step {
        self.responses += 1;
        self.phase = Phase::Open;
        Step::Complete { extra, reusable }
    }
}

const fn failed(outcome: Outcome, untouched: bool) -> Step {
    Step::Failed { outcome, untouched }
}
