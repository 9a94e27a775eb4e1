//! One connection's WebSocket: reads, writes, keep-alive and the two closing
//! handshakes, as a state machine that is polled.
//!
//! Guarantee: every wait for the peer has a deadline, and a connection ends
//! with its Close frame delivered, or after a bounded time without.
//!
//! ```text
//! Open ── close(), drain ──▶ Closing ── Close, end or deadline ──▶ Ending
//! Open ── Close, violation ──────────────────────────────────────▶ Ending
//! Ending ── flushed, half-closed ──▶ Lingering ── end or bound ──▶ Closed
//! any ── lost, or a write or ping without answer ────────────────▶ Closed
//! ```

use std::cell::RefCell;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::time::Sleep;

use super::decoder::{Decoder, Event};
use super::deflate::Agreement;
use super::frame::Violation;
use super::limits::{MAX_LINGER_BYTES, SCRATCH_BYTES, WebSocketLimits};
use super::message::{CloseCode, CloseFrame, Message};
use super::writer::Writer;
use crate::error::WebSocketError;
use crate::limits::Reject;
use crate::metrics::LaneMetrics;
use crate::pace::Pace;
use crate::server::{count_on_lane, count_rejected};
use crate::upgrade::{Backlog, Host, Upgraded};

thread_local! {
    /// Where every WebSocket of the thread is read into first.
    static SCRATCH: RefCell<Box<[u8]>> =
        RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Our Close frame is queued or sent; the peer's is awaited.
    Closing,
    /// All has been said; it is to be flushed, and our direction ended.
    Ending,
    /// The peer is given time to read that and to hang up.
    Lingering,
    Closed,
}

/// State of one WebSocket connection.
pub(super) struct Session {
    io: Upgraded,
    host: Rc<dyn Host>,
    limits: WebSocketLimits,
    decoder: Decoder,
    writer: Writer,
    state: State,
    /// Read and not decoded, from `num_decoded` on.
    unread: Vec<u8>,
    num_decoded: usize,
    /// Why it failed, until the application has been told.
    failure: Option<WebSocketError>,
    close_frame: Option<CloseFrame>,
    last_received: Instant,
    /// When a message came or was sent.
    last_message: Instant,
    pinged: Option<Pinged>,
    /// The wait for the peer to take more.
    write_blocked: Option<Blocked>,
    write_pace: Pace,
    /// When closing began.
    closing_since: Option<Instant>,
    num_lingered: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

/// A wait for the peer to take more, and what it had taken when that began.
struct Blocked {
    since: Instant,
    written: u64,
    taken: i64,
}

/// A wait for a pong, which can only come when the peer has taken what lies before the ping.
struct Pinged {
    since: Instant,
    /// Bytes that the peer had taken then.
    taken: i64,
    /// Bytes that it takes before the ping.
    ahead: i64,
}

/// What a passed deadline means.
#[derive(Debug, Clone, Copy)]
enum Missed {
    Ping,
    Pong,
    Idle,
    Write,
    Close,
}

impl Session {
    pub(super) fn new(io: Upgraded, limits: WebSocketLimits, agreement: Option<Agreement>) -> Self {
        count_on_lane(LaneMetrics::websocket_opened);
        let now = Instant::now();
        Self {
            host: io.host(),
            io,
            limits,
            decoder: Decoder::new(&limits, agreement),
            writer: Writer::new(agreement),
            state: State::Open,
            unread: Vec::new(),
            num_decoded: 0,
            failure: None,
            close_frame: None,
            last_received: now,
            last_message: now,
            pinged: None,
            write_blocked: None,
            write_pace: Pace::new(limits.write_timeout, limits.min_write_rate),
            closing_since: None,
            num_lingered: 0,
            timer: None,
        }
    }

    /// The server around the connection.
    pub(super) fn host(&self) -> Rc<dyn Host> {
        Rc::clone(&self.host)
    }

    /// Why the socket was closed, once it is.
    pub(super) const fn close_frame(&self) -> Option<&CloseFrame> {
        self.close_frame.as_ref()
    }

    /// Next message; `None` once the closing handshake is over.
    pub(super) fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Message, WebSocketError>>> {
        loop {
            if self.state == State::Open && self.host.poll_draining(cx).is_ready() {
                self.close(CloseCode::GOING_AWAY, "the server goes down");
            }
            // Pongs, and what an unfinished `send` left.
            let flushed = self.poll_flush(cx);
            match self.state {
                State::Open | State::Closing => {}
                State::Ending => {
                    if flushed.is_ready() && self.poll_half_close(cx).is_ready() {
                        continue;
                    }
                    ready!(self.poll_deadline(cx, true));
                    continue;
                }
                State::Lingering | State::Closed => {
                    return Poll::Ready(self.failure.take().map(Err));
                }
            }
            match self.poll_event(cx) {
                Poll::Ready(Ok(event)) => {
                    if let Some(message) = self.take_event(event) {
                        return Poll::Ready(Some(Ok(message)));
                    }
                }
                Poll::Ready(Err(Broken::Rule(violation))) => self.fail(violation),
                Poll::Ready(Err(Broken::Connection(error))) => self.lose(error),
                Poll::Pending => ready!(self.poll_deadline(cx, true)),
            }
        }
    }

    /// Ready once the message before has been taken by the connection.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WebSocketError>> {
        loop {
            if self.state != State::Open {
                return Poll::Ready(Err(self.failure.take().unwrap_or(WebSocketError::Closed)));
            }
            if self.poll_flush(cx).is_ready() {
                if self.state == State::Open {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            ready!(self.poll_deadline(cx, false));
        }
    }

    /// Queues a message; [`Self::poll_ready`] was ready.
    ///
    /// # Errors
    /// [`WebSocketError::TooLarge`] for one that may not be buffered,
    /// [`WebSocketError::Closed`] where nothing may follow any more.
    pub(super) fn queue(&mut self, message: Message) -> Result<(), WebSocketError> {
        if self.state != State::Open {
            return Err(WebSocketError::Closed);
        }
        let (size, limit) = (message.len(), self.limits.max_buffer_bytes);
        if size > limit {
            count_rejected(Reject::WsBuffer);
            return Err(WebSocketError::TooLarge { size, limit });
        }
        self.last_message = Instant::now();
        count_on_lane(|lane| lane.websocket_message(true));
        self.writer.queue_message(message);
        Ok(())
    }

    /// Begins the closing handshake, unless it has begun.
    pub(super) fn close(&mut self, code: CloseCode, reason: &str) {
        if self.state == State::Open {
            self.writer.queue_close(&CloseFrame::payload(code, reason));
            self.enter(State::Closing);
        }
    }

    /// Ready when the connection has nothing left to do.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.state != State::Closed {
            if self.state == State::Lingering {
                if self.poll_linger(cx).is_ready() {
                    self.state = State::Closed;
                } else {
                    ready!(self.poll_deadline(cx, true));
                }
            } else {
                // Messages that still come are of no use to anybody.
                drop(ready!(self.poll_recv(cx)));
            }
        }
        Poll::Ready(())
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.closing_since.get_or_insert_with(Instant::now);
    }

    /// The peer broke a rule: says so and ends.
    fn fail(&mut self, violation: Violation) {
        self.unread = Vec::new();
        if self.state == State::Open {
            let Violation {
                code,
                reason,
                reject,
            } = violation;
            count_rejected(reject);
            self.writer.queue_close(&CloseFrame::payload(code, reason));
            self.failure = Some(WebSocketError::Violation {
                code: code.as_u16(),
                reason,
            });
            self.close_frame = Some(CloseFrame {
                code,
                reason: reason.to_owned(),
            });
        }
        self.enter(State::Ending);
    }

    /// The connection is gone.
    fn lose(&mut self, source: io::Error) {
        if self.state == State::Open {
            self.failure = Some(WebSocketError::Lost { source });
        }
        self.abandon();
    }

    fn abandon(&mut self) {
        if self.close_frame.is_none() {
            self.close_frame = Some(CloseFrame {
                code: CloseCode::ABNORMAL,
                reason: String::new(),
            });
        }
        self.enter(State::Closed);
    }

    /// Handles what the peer said; a message is for the application.
    fn take_event(&mut self, event: Event) -> Option<Message> {
        let is_open = self.state == State::Open;
        match event {
            Event::Message(message) => {
                self.last_message = self.last_received;
                count_on_lane(|lane| lane.websocket_message(false));
                return is_open.then_some(message);
            }
            Event::Ping(payload) => self.writer.queue_pong(payload),
            Event::Pong => {}
            Event::Close(frame) => {
                if is_open {
                    // The answer has the peer's code (RFC 6455 §5.5.1).
                    let payload = frame
                        .as_ref()
                        .map(|frame| CloseFrame::payload(frame.code, ""));
                    self.writer.queue_close(&payload.unwrap_or_default());
                }
                self.close_frame = Some(frame.unwrap_or(CloseFrame {
                    code: CloseCode::NO_STATUS,
                    reason: String::new(),
                }));
                self.enter(State::Ending);
            }
        }
        None
    }

    /// Next thing that the peer says.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, Broken>> {
        if self.num_decoded < self.unread.len() {
            let (used, event) = self.decoder.decode(&mut self.unread[self.num_decoded..])?;
            self.num_decoded += used;
            if let Some(event) = event {
                return Poll::Ready(Ok(event));
            }
        }
        if !self.unread.is_empty() {
            self.unread = Vec::new();
            self.num_decoded = 0;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            loop {
                let mut buffer = ReadBuf::new(scratch);
                ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
                let input = buffer.filled_mut();
                if input.is_empty() {
                    let end = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Poll::Ready(Err(end.into()));
                }
                self.last_received = Instant::now();
                self.pinged = None;
                let (used, event) = self.decoder.decode(input)?;
                if let Some(event) = event {
                    self.unread.extend_from_slice(&input[used..]);
                    return Poll::Ready(Ok(event));
                }
            }
        })
    }

    /// Writes what is queued; ready when nothing is left or can be done.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.state == State::Closed {
            return Poll::Ready(());
        }
        match self.writer.poll_flush(Pin::new(&mut self.io), cx) {
            Poll::Ready(Ok(())) => {
                self.end_blocked();
                Poll::Ready(())
            }
            Poll::Ready(Err(error)) => {
                self.lose(error);
                Poll::Ready(())
            }
            Poll::Pending => {
                let written = self.writer.num_written();
                let is_known = |blocked: &Blocked| blocked.written == written;
                if !self.write_blocked.as_ref().is_some_and(is_known) {
                    self.end_blocked();
                    self.write_blocked = Some(Blocked {
                        since: Instant::now(),
                        written,
                        taken: self.taken(),
                    });
                }
                Poll::Pending
            }
        }
    }

    /// Bytes that the peer has taken, as far as that can be told.
    ///
    /// What is around them in records or in the kernel may make it less than
    /// none.
    fn taken(&self) -> i64 {
        let written = self.writer.num_written().cast_signed();
        match self.io.backlog() {
            Backlog::Bytes(unsent) => written - unsent.cast_signed(),
            Backlog::Unknown | Backlog::Watched => written,
        }
    }

    /// Ends the wait for the peer to take more: there was room again.
    fn end_blocked(&mut self) {
        if self.write_blocked.take().is_some() {
            let limits = &self.limits;
            self.write_pace = Pace::new(limits.write_timeout, limits.min_write_rate);
        }
    }

    /// Whether the peer takes what is below the write that it holds up: then it
    /// is waited for on.
    fn goes_on_waiting(&mut self, now: Instant) -> bool {
        let is_watched = self.io.backlog() == Backlog::Watched;
        let taken = self.taken();
        let Some(blocked) = &mut self.write_blocked else {
            return false;
        };
        if !is_watched {
            match u64::try_from(taken - blocked.taken) {
                Ok(0) | Err(_) => return false,
                Ok(more) => self.write_pace.note(now - blocked.since, more),
            }
        }
        blocked.since = now;
        blocked.taken = taken;
        true
    }

    /// Whether the peer takes what lies before the ping, no slower than the lowest rate, or has
    /// come to it since the last look: then it is alive, and its pong is waited for on.
    fn is_on_the_way_to_the_ping(&mut self, now: Instant) -> bool {
        if !matches!(self.io.backlog(), Backlog::Bytes(_)) {
            return false;
        }
        let taken = self.taken();
        let Some(pinged) = &mut self.pinged else {
            return false;
        };
        let due = (now - pinged.since).as_secs_f64() * f64::from(self.limits.min_write_rate);
        let more = taken - pinged.taken;
        let is_fast_enough = more > 0 && more as f64 >= due;
        if pinged.taken >= pinged.ahead || !(is_fast_enough || taken > pinged.ahead) {
            return false;
        }
        pinged.since = now;
        pinged.taken = taken;
        true
    }

    fn poll_half_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match ready!(Pin::new(&mut self.io).poll_shutdown(cx)) {
            Ok(()) => self.enter(State::Lingering),
            Err(error) => self.lose(error),
        }
        Poll::Ready(())
    }

    /// Reads and drops until the peer hangs up or has sent too much.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        SCRATCH.with_borrow_mut(|scratch| {
            while self.num_lingered < MAX_LINGER_BYTES {
                let mut buffer = ReadBuf::new(scratch);
                let result = ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer));
                if result.is_err() || buffer.filled().is_empty() {
                    break;
                }
                self.num_lingered += buffer.filled().len() as u64;
            }
            Poll::Ready(())
        })
    }

    /// The earliest deadline; `is_reading` says whether a pong would be seen.
    fn deadline(&self, is_reading: bool) -> Option<(Instant, Missed)> {
        if self.state != State::Open {
            let since = self.closing_since?;
            return Some((since + self.limits.close_timeout, Missed::Close));
        }
        let write = self
            .write_blocked
            .as_ref()
            .map(|blocked| (blocked.since + self.write_pace.left(), Missed::Write));
        if !is_reading {
            return write;
        }
        let ping = match (&self.pinged, self.limits.ping_interval) {
            (Some(pinged), _) => Some((pinged.since + self.limits.pong_timeout, Missed::Pong)),
            (None, interval) => {
                interval.map(|interval| (self.last_received + interval, Missed::Ping))
            }
        };
        let idle = self
            .limits
            .idle_timeout
            .map(|timeout| (self.last_message + timeout, Missed::Idle));
        let earliest = |deadline: &(Instant, Missed)| deadline.0;
        [write, ping, idle]
            .into_iter()
            .flatten()
            .min_by_key(earliest)
    }

    /// Ready when a deadline has passed, and was acted upon.
    ///
    /// The timer only ever moves earlier, or when it fires: a deadline that
    /// moves later with each message costs nothing.
    fn poll_deadline(&mut self, cx: &mut Context<'_>, is_reading: bool) -> Poll<()> {
        loop {
            let Some((deadline, missed)) = self.deadline(is_reading) else {
                return Poll::Pending;
            };
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline.into())));
            if deadline < timer.deadline().into_std() {
                timer.as_mut().reset(deadline.into());
            }
            ready!(timer.as_mut().poll(cx));
            let now = Instant::now();
            timer.as_mut().reset(deadline.max(now).into());
            if now >= deadline {
                self.miss(missed, now);
                return Poll::Ready(());
            }
        }
    }

    fn miss(&mut self, missed: Missed, now: Instant) {
        match missed {
            Missed::Ping => {
                let ahead = self.writer.num_queued().cast_signed();
                if self.writer.queue_ping() {
                    self.pinged = Some(Pinged {
                        since: now,
                        taken: self.taken(),
                        ahead,
                    });
                } else {
                    // The write that is in its way has a deadline of its own.
                    self.last_received = now;
                }
            }
            Missed::Idle => {
                count_rejected(Reject::WsIdle);
                self.failure = Some(WebSocketError::TimedOut { what: "message" });
                self.close(CloseCode::GOING_AWAY, "no message came for too long");
            }
            Missed::Pong if self.is_on_the_way_to_the_ping(now) => {}
            Missed::Pong => {
                count_rejected(Reject::WsPong);
                self.failure = Some(WebSocketError::TimedOut { what: "pong" });
                let payload = CloseFrame::payload(CloseCode::INTERNAL_ERROR, "no pong came");
                self.writer.queue_close(&payload);
                self.enter(State::Ending);
                self.close_frame = Some(CloseFrame {
                    code: CloseCode::ABNORMAL,
                    reason: String::new(),
                });
            }
            Missed::Write if self.goes_on_waiting(now) => {}
            Missed::Write => {
                count_rejected(if self.write_pace.is_slow() {
                    Reject::WriteRate
                } else {
                    Reject::WriteStall
                });
                self.failure = Some(WebSocketError::TimedOut { what: "write" });
                self.abandon();
            }
            Missed::Close => self.abandon(),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        count_on_lane(LaneMetrics::websocket_closed);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("state", &self.state)
            .field("amid_message", &self.decoder.is_amid_message())
            .finish_non_exhaustive()
    }
}

/// Why nothing more can be read.
#[derive(Debug)]
enum Broken {
    Rule(Violation),
    Connection(io::Error),
}

impl From<Violation> for Broken {
    fn from(violation: Violation) -> Self {
        Self::Rule(violation)
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}
