//! One connection from accept to close: protocol, deadlines, drain.
//!
//! Guarantee: every wait for the peer has a deadline, and a connection ends
//! with its answer delivered: after an early answer what the peer still sends
//! is read and dropped up to a bound, so that no reset overtakes the answer.
//!
//! ```text
//! accept ─▶ sniff ─▶ HTTP/1.1 ─┬▶ farewell ─▶ closed
//!              └───▶ HTTP/2 ──┘
//! ```

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use http::StatusCode;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Sleep, timeout};

use super::exchange;
use super::executor::{LaneExecutor, LaneTimer};
use super::http1::{End, Http1};
use super::lane::Lane;
use super::stream::{H2Stream, Landing, Transport};
use super::tracked_body::{StreamTracker, TrackedBody};
use crate::limits::{MAX_DRAIN_BYTES, Reject};
use crate::metrics;
use crate::pace::Pace;
use crate::problem::Problem;
use crate::request::Peer;
use crate::upgrade::Upgraded;

/// How long an idle connection stays open for one more request once the
/// server drains: a client that is about to send should not meet a reset.
const DRAIN_LINGER: Duration = Duration::from_millis(300);
/// How long to read on after an early answer, for the peer to receive it.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an HTTP/2 peer without open streams may take its last data and
/// answer the PING that ends a connection.
const H2_FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer that makes no progress is still owed to a peer that has
/// closed its sending side: it may be gone altogether.
const HALF_CLOSED_PATIENCE: Duration = Duration::from_secs(5);
/// A peer that answers no HTTP/2 PING for this long is gone.
const H2_PING: Duration = Duration::from_secs(20);

/// First bytes of an HTTP/2 connection (RFC 9113 §3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Response bytes that one HTTP/2 stream may hold for a slow peer.
const H2_SEND_BUFFER_BYTES: usize = 64 * 1024;

/// What a connection is waiting for from its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Nothing: a handler works, or the peer is to read.
    Nothing,
    /// A request, of which no byte has come.
    Request,
    /// The rest of a request head.
    HeadRest,
    /// More of a body that somebody reads.
    Body,
    /// Nothing more, because the peer has closed its sending side; an answer is
    /// being made for it.
    Departure,
}

/// State of a connection that its stream, its exchanges and its lane share.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) lane: Rc<Lane>,
    pub(super) peer: Peer,
    pub(super) is_tls: bool,
    pub(super) is_h2: Cell<bool>,
    /// Start of the wait for the first request: accept, or the TLS handshake.
    opened: Cell<Instant>,
    /// Whether a request has been admitted before.
    pub(super) used: Cell<bool>,
    pub(super) waiting: Cell<Waiting>,
    waiting_since: Cell<Instant>,
    /// Of the body that is being received, on HTTP/1.1.
    pace: Cell<Pace>,
    /// When a response short enough to be gone at once was ready.
    pub(super) answered_at: Cell<Option<Instant>>,
    write_blocked_since: Cell<Option<Instant>>,
    /// Of what the peer takes.
    write_pace: Cell<Pace>,
    /// Bytes that the transport has been given.
    num_written: Cell<u64>,
    /// How many of them the peer had taken when that was last looked at, since
    /// it is waited for; what is around them in records or in the kernel may
    /// make it less than none.
    num_taken: Cell<Option<i64>>,
    /// HTTP/2 streams whose response is not complete.
    pub(super) open_streams: Cell<u32>,
    /// HTTP/2 streams with data that the peer does not take.
    pub(super) blocked_streams: Cell<u32>,
    /// When the peer last took data or asked for some, on HTTP/2.
    h2_progress: Cell<Instant>,
    /// Whether GOAWAY has been sent, on HTTP/2.
    h2_closing: Cell<bool>,
    /// The limit that GOAWAY has named.
    pub(super) h2_fault: Cell<Option<Reject>>,
    /// HTTP/2 streams that have been taken over, and their tasks by number.
    pub(super) num_tunnels: Cell<u64>,
    pub(super) tunnel_wakers: RefCell<BTreeMap<u64, Waker>>,
    waker: RefCell<Option<Waker>>,
}

impl Connection {
    pub(super) fn new(lane: Rc<Lane>, peer: Peer, is_tls: bool, accepted: Instant) -> Rc<Self> {
        let pace = Pace::of_body(&lane.app.limits);
        let write_pace = Pace::of_writes(&lane.app.limits);
        Rc::new(Self {
            lane,
            peer,
            is_tls,
            is_h2: Cell::new(false),
            opened: Cell::new(accepted),
            used: Cell::new(false),
            waiting: Cell::new(Waiting::Request),
            waiting_since: Cell::new(accepted),
            pace: Cell::new(pace),
            answered_at: Cell::new(None),
            write_blocked_since: Cell::new(None),
            write_pace: Cell::new(write_pace),
            num_written: Cell::new(0),
            num_taken: Cell::new(None),
            open_streams: Cell::new(0),
            blocked_streams: Cell::new(0),
            h2_progress: Cell::new(accepted),
            h2_closing: Cell::new(false),
            h2_fault: Cell::new(None),
            num_tunnels: Cell::new(0),
            tunnel_wakers: RefCell::new(BTreeMap::new()),
            waker: RefCell::new(None),
        })
    }

    pub(super) fn wait_for(&self, waiting: Waiting, now: Instant) {
        self.waiting.set(waiting);
        self.waiting_since.set(now);
    }

    /// Begins to receive a body.
    pub(super) fn begin_body(&self) {
        self.pace.set(Pace::of_body(&self.lane.app.limits));
    }

    /// Ends a wait for a body, if there was one: so many bytes have come.
    pub(super) fn note_body(&self, num_bytes: usize) {
        let mut pace = self.pace.get();
        let waited = match self.waiting.replace(Waiting::Nothing) {
            Waiting::Body => self.waiting_since.get().elapsed(),
            _ => Duration::ZERO,
        };
        pace.note(waited, num_bytes as u64);
        self.pace.set(pace);
    }

    /// Starts the wait for the first request, after a handshake.
    pub(super) fn open(&self) {
        let now = Instant::now();
        self.opened.set(now);
        self.wait_for(Waiting::Request, now);
    }

    /// Notes what a write came to, and since when the peer takes no bytes.
    pub(super) fn note_write<S: Transport>(&self, result: &Poll<io::Result<usize>>, transport: &S) {
        if let Poll::Ready(Ok(length)) = result {
            let num_written = self.num_written.get() + *length as u64;
            self.num_written.set(num_written);
        }
        self.note_flush(result, transport);
    }

    /// Notes since when the peer takes no bytes.
    pub(super) fn note_flush<T, S: Transport>(&self, result: &Poll<io::Result<T>>, transport: &S) {
        let blocked = &self.write_blocked_since;
        match result {
            Poll::Pending if blocked.get().is_none() => {
                blocked.set(Some(Instant::now()));
                self.num_taken.set(Some(self.taken(transport)));
            }
            Poll::Ready(Ok(_)) => {
                if blocked.get().is_some() {
                    // There is room again, of which a kernel tells only when
                    // it is a good part of its buffer.
                    blocked.set(None);
                    self.num_taken.set(None);
                    let pace = Pace::of_writes(&self.lane.app.limits);
                    self.write_pace.set(pace);
                }
                // The peer that has closed its sending side still reads.
                if self.waiting.get() == Waiting::Departure {
                    self.waiting_since.set(Instant::now());
                }
            }
            _ => {}
        }
    }

    /// Notes that a peer of HTTP/2 has taken or asked for something.
    pub(super) fn note_h2_progress(&self) {
        self.h2_progress.set(Instant::now());
        if self.write_blocked_since.get().is_none() {
            self.num_taken.set(None);
        }
    }

    /// Notes a write on HTTP/2 that can have held data.
    pub(super) fn note_h2_data(&self, length: usize) {
        if self.blocked_streams.get() > 0 {
            self.note_taken(
                self.h2_progress.get().elapsed(),
                (length as u64).cast_signed(),
            );
        }
        self.note_h2_progress();
    }

    fn note_taken(&self, waited: Duration, num_bytes: i64) {
        let mut pace = self.write_pace.get();
        pace.note(waited, u64::try_from(num_bytes).unwrap_or(0));
        self.write_pace.set(pace);
    }

    /// Bytes that the peer has taken, as far as that can be told.
    fn taken<S: Transport>(&self, transport: &S) -> i64 {
        let unsent = transport.num_unsent().unwrap_or(0);
        self.num_written.get().cast_signed() - unsent.cast_signed()
    }

    /// Since when the peer is waited for to take something.
    fn taking_since(&self) -> Option<Instant> {
        let flow = (self.blocked_streams.get() > 0).then(|| self.h2_progress.get());
        let socket = self.write_blocked_since.get();
        flow.into_iter().chain(socket).min()
    }

    /// Whether the transport takes no bytes.
    pub(super) const fn is_write_blocked(&self) -> bool {
        self.write_blocked_since.get().is_some()
    }

    /// Looks, once the peer has been waited for as long as it may be, whether it
    /// takes what the kernel holds for it, and waits on if it does.
    ///
    /// A socket is writable only when a good part of its buffer is free, which a
    /// slow reader needs minutes for.
    pub(super) fn look<S: Transport>(&self, transport: &S) {
        let Some(since) = self.taking_since() else {
            return;
        };
        let now = Instant::now();
        let left = self.write_pace.get().left();
        if now < since + left {
            return;
        }
        let Some(num_unsent) = transport.num_unsent() else {
            return;
        };
        let taken = self.num_written.get().cast_signed() - num_unsent.cast_signed();
        let since = match self.num_taken.replace(Some(taken)) {
            Some(before) if taken > before => {
                self.note_taken(now - since, taken - before);
                now
            }
            // It waits for the peer's window alone, so there was no look yet.
            None if num_unsent > 0 => now.checked_sub(left * 3 / 4).unwrap_or(now),
            _ => return,
        };
        if self.write_blocked_since.get().is_some() {
            self.write_blocked_since.set(Some(since));
        }
        self.h2_progress.set(since);
    }

    /// Makes the connection notice that the server drains.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
        for waker in self.tunnel_wakers.take().into_values() {
            waker.wake();
        }
    }

    /// Ready once the server drains; else wakes the task when it begins to.
    pub(super) fn poll_draining(&self, cx: &Context<'_>) -> Poll<()> {
        if self.lane.draining_since.get().is_some() {
            return Poll::Ready(());
        }
        self.remember(cx);
        Poll::Pending
    }

    /// Keeps the waker for [`Self::wake`]; whether it is the one that was kept.
    fn remember(&self, cx: &Context<'_>) -> bool {
        let mut waker = self.waker.borrow_mut();
        let is_known = waker
            .as_ref()
            .is_some_and(|known| known.will_wake(cx.waker()));
        if !is_known {
            *waker = Some(cx.waker().clone());
        }
        is_known
    }

    /// The earliest deadline that now applies, and what missing it means.
    fn deadline(&self) -> Option<(Instant, Reject)> {
        let limits = &self.lane.app.limits;
        let since = self.waiting_since.get();
        if self.h2_closing.get() {
            // hyper ends the connection once its streams have ended; only a
            // peer that takes nothing is not waited for.
            let patience = match self.open_streams.get() {
                0 if self.used.get() => H2_FAREWELL_TIMEOUT.min(limits.write_stall_timeout),
                0 => DRAIN_LINGER,
                _ => limits.write_stall_timeout,
            };
            return Some((self.h2_progress.get() + patience, Reject::WriteStall));
        }
        let read = match self.waiting.get() {
            Waiting::Nothing => None,
            Waiting::Request | Waiting::HeadRest if !self.used.get() => {
                let opened = self.opened.get();
                Some((opened + limits.header_timeout, Reject::HeaderTimeout))
            }
            Waiting::Request => Some((since + limits.idle_timeout, Reject::IdleTimeout)),
            Waiting::HeadRest => Some((since + limits.header_timeout, Reject::HeaderTimeout)),
            Waiting::Body => {
                let pace = self.pace.get();
                let missed = if pace.is_slow() {
                    Reject::BodyRate
                } else {
                    Reject::BodyStall
                };
                Some((since + pace.left(), missed))
            }
            // Where there is something to write, that tells.
            Waiting::Departure if self.write_blocked_since.get().is_some() => None,
            Waiting::Departure => Some((since + HALF_CLOSED_PATIENCE, Reject::IdleTimeout)),
        };
        let mut earliest = read;
        let mut apply = |deadline: Instant, missed: Reject| {
            if earliest.is_none_or(|(known, _)| deadline < known) {
                earliest = Some((deadline, missed));
            }
        };
        if let Some(since) = self.taking_since() {
            let pace = self.write_pace.get();
            let missed = if pace.is_slow() {
                Reject::WriteRate
            } else {
                Reject::WriteStall
            };
            apply(since + pace.left(), missed);
        }
        if let Some(drain) = self.lane.draining_since.get()
            && self.waiting.get() == Waiting::Request
        {
            apply(drain.max(since) + DRAIN_LINGER, Reject::IdleTimeout);
        }
        earliest
    }

    /// Counts a missed deadline, except the end of a drained idle connection.
    pub(super) fn count(&self, missed: Reject) {
        if missed != Reject::IdleTimeout || self.lane.draining_since.get().is_none() {
            self.lane.metrics().rejected(missed);
        }
    }
}

/// Watches a connection's deadline with one lazily moved timer.
///
/// The timer is only ever moved earlier; a deadline that moved later is found
/// when it fires. So the usual request never touches the timer wheel.
struct Deadline {
    connection: Rc<Connection>,
    armed: Instant,
    timer: Pin<Box<Sleep>>,
    /// Whether the timer will wake the task as it is armed.
    is_polled: bool,
}

impl Deadline {
    fn new(connection: Rc<Connection>) -> Self {
        let armed = connection.opened.get() + connection.lane.app.limits.header_timeout;
        Self {
            connection,
            armed,
            timer: Box::pin(tokio::time::sleep_until(armed.into())),
            is_polled: false,
        }
    }

    /// The limit that has been missed, if one has; else arranges a wake-up.
    fn poll(&mut self, cx: &mut Context<'_>) -> Option<Reject> {
        let is_known_waker = self.connection.remember(cx);
        loop {
            let (deadline, missed) = self.connection.deadline()?;
            if deadline < self.armed {
                self.arm(deadline);
            } else if is_known_waker && self.is_polled && !self.timer.is_elapsed() {
                return None;
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                self.is_polled = true;
                return None;
            }
            if Instant::now() >= deadline {
                return Some(missed);
            }
            self.arm(deadline);
        }
    }

    fn arm(&mut self, deadline: Instant) {
        self.armed = deadline;
        self.is_polled = false;
        self.timer.as_mut().reset(deadline.into());
    }
}

/// Which protocol a connection speaks, where TLS has settled it already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Told by the first bytes.
    Sniffed,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only.
    Http2,
}

/// Serves one connection until it is closed.
pub(super) async fn serve<S: Transport>(
    mut transport: S,
    connection: Rc<Connection>,
    protocol: Protocol,
) {
    let mut deadline = Deadline::new(Rc::clone(&connection));
    let mut sniffed = Vec::new();
    let is_h2 = match protocol {
        Protocol::Http1 => false,
        Protocol::Http2 => true,
        Protocol::Sniffed => {
            match sniff(&mut transport, &connection, &mut sniffed, &mut deadline).await {
                Ok(is_h2) => is_h2,
                Err(Some(missed)) => {
                    connection.count(missed);
                    let began = !sniffed.is_empty();
                    farewell(transport, began.then(head_timeout), began).await;
                    return;
                }
                Err(None) => return,
            }
        }
    };
    connection.is_h2.set(is_h2);
    connection
        .lane
        .metrics()
        .connection_identified(match (is_h2, connection.is_tls) {
            (false, false) => metrics::Protocol::Http1,
            (false, true) => metrics::Protocol::TlsHttp1,
            (true, false) => metrics::Protocol::Http2,
            (true, true) => metrics::Protocol::TlsHttp2,
        });
    if is_h2 {
        connection.wait_for(Waiting::Request, Instant::now());
        let landing = Landing::default();
        let shared = Rc::clone(&connection);
        let stream = H2Stream::new(transport, shared, &sniffed, Rc::clone(&landing));
        let end = Box::pin(serve_h2(stream, &connection, deadline)).await;
        if let Err(missed) = end {
            connection.count(missed);
        }
        // A peer that takes nothing would not take a farewell either.
        if let Some(transport) = landing.take()
            && !matches!(end, Err(Reject::WriteStall | Reject::WriteRate))
        {
            farewell(transport, None, end.is_err()).await;
        }
    } else {
        serve_h1(transport, &connection, sniffed, deadline).await;
    }
}

/// Tells HTTP/2 from HTTP/1.1 by what is read into `sniffed`.
///
/// `Err(Some(_))` at the deadline, `Err(None)` when the peer leaves.
async fn sniff<S: Transport>(
    transport: &mut S,
    connection: &Connection,
    sniffed: &mut Vec<u8>,
    deadline: &mut Deadline,
) -> Result<bool, Option<Reject>> {
    poll_fn(|cx| {
        loop {
            let seen = sniffed.len().min(H2_PREFACE.len());
            if sniffed[..seen] != H2_PREFACE[..seen] {
                return Poll::Ready(Ok(false));
            }
            if seen == H2_PREFACE.len() {
                return Poll::Ready(Ok(true));
            }
            let mut scratch = connection.lane.scratch.borrow_mut();
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut *transport).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    if sniffed.is_empty() {
                        connection.wait_for(Waiting::HeadRest, Instant::now());
                    }
                    connection.lane.metrics().received(buffer.filled().len());
                    sniffed.extend_from_slice(buffer.filled());
                }
                Poll::Ready(_) => return Poll::Ready(Err(None)),
                Poll::Pending => {
                    return match deadline.poll(cx) {
                        Some(missed) => Poll::Ready(Err(Some(missed))),
                        None => Poll::Pending,
                    };
                }
            }
        }
    })
    .await
}

async fn serve_h1<S: Transport>(
    transport: S,
    connection: &Rc<Connection>,
    input: Vec<u8>,
    mut deadline: Deadline,
) {
    let server = Http1::new(transport, Rc::clone(connection), input);
    let mut guarded = Guarded(Some(server));
    let end = poll_fn(|cx| {
        let server = guarded.0.as_mut().expect("it is taken when it has ended");
        loop {
            if let Poll::Ready(end) = server.poll(cx) {
                return Poll::Ready(end);
            }
            connection.look(server.transport());
            match deadline.poll(cx) {
                None => return Poll::Pending,
                Some(missed @ (Reject::BodyStall | Reject::BodyRate)) => {
                    // Whoever reads the body now gets its end, and answers.
                    connection.count(missed);
                    connection.waiting.set(Waiting::Nothing);
                    server.fail_body();
                }
                Some(missed) => return Poll::Ready(End::Missed(missed)),
            }
        }
    })
    .await;

    let server = guarded.0.take().expect("nobody else takes it");
    let (is_quiet, is_open_ended) = (server.is_quiet(), server.is_open_ended());
    let (transport, unread) = server.into_parts();
    match end {
        End::Upgrade(on_upgrade) => {
            let host = Rc::clone(connection);
            let upgraded = Upgraded::new(transport, unread.into(), host);
            if let Some(work) = on_upgrade.begin(upgraded) {
                work.await;
            }
        }
        End::Gone => {}
        End::Broken => transport.discard_unsent(),
        End::Missed(missed @ (Reject::WriteStall | Reject::WriteRate)) => {
            connection.count(missed);
            transport.discard_unsent();
        }
        End::Missed(missed) => {
            let waiting = connection.waiting.get();
            if waiting != Waiting::Departure {
                connection.count(missed);
            }
            if is_open_ended {
                return transport.discard_unsent();
            }
            let problem = (waiting == Waiting::HeadRest).then(head_timeout);
            farewell(transport, problem, !is_quiet).await;
        }
        End::Refused(refusal) => {
            connection.count(refusal.reject);
            farewell(transport, Some(refusal.problem()), true).await;
        }
        End::Complete => farewell(transport, None, !is_quiet).await,
    }
}

/// A connection that is reset when it is dropped in an answer whose end is that
/// of the connection: the peer must not take what it has for all of it.
struct Guarded<S: Transport>(Option<Http1<S>>);

impl<S: Transport> Drop for Guarded<S> {
    fn drop(&mut self) {
        if let Some(server) = &self.0
            && server.is_open_ended()
        {
            server.transport().discard_unsent();
        }
    }
}

/// Serves HTTP/2 until the connection is to end; its transport is at the
/// landing then.
async fn serve_h2<S: Transport>(
    stream: H2Stream<S>,
    connection: &Rc<Connection>,
    mut deadline: Deadline,
) -> Result<(), Reject> {
    let limits = &connection.lane.app.limits;
    let shared = Rc::clone(connection);
    let service = service_fn(move |request| {
        let connection = Rc::clone(&shared);
        async move {
            let tracker = StreamTracker::new(Rc::clone(&connection));
            let answer = exchange::begin_h2(&connection, request).await;
            let mut response = answer.response.into_http();
            let builtins = &connection.lane.app.builtins;
            builtins.apply(&answer.decoration, response.headers_mut());
            Ok::<_, Infallible>(response.map(|body| TrackedBody::new(body, tracker)))
        }
    });
    let mut server = pin!(
        http2::Builder::new(LaneExecutor)
            .timer(LaneTimer)
            .keep_alive_interval(H2_PING)
            .keep_alive_timeout(H2_PING)
            .enable_connect_protocol()
            .max_concurrent_streams(limits.h2_max_streams)
            .max_header_list_size(limits.h2_max_header_list_bytes)
            .initial_stream_window_size(limits.h2_stream_window_bytes)
            .initial_connection_window_size(limits.h2_connection_window_bytes)
            .max_pending_accept_reset_streams(limits.h2_max_pending_resets)
            .max_local_error_reset_streams(limits.h2_max_local_resets)
            .max_send_buf_size(H2_SEND_BUFFER_BYTES)
            .serve_connection(stream, service)
    );
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(result) = server.as_mut().poll(cx) {
                let fault = connection.h2_fault.get();
                return Poll::Ready(result.map_err(|_| fault.unwrap_or(Reject::H2Protocol)));
            }
            let is_draining = connection.lane.draining_since.get().is_some();
            match deadline.poll(cx) {
                // A peer that never asked for anything is owed nothing more.
                Some(_) if connection.h2_closing.get() && connection.open_streams.get() == 0 => {
                    return Poll::Ready(Ok(()));
                }
                Some(missed @ (Reject::WriteStall | Reject::WriteRate | Reject::HeaderTimeout)) => {
                    return Poll::Ready(Err(missed));
                }
                Some(_) if !connection.used.get() => return Poll::Ready(Ok(())),
                Some(missed) => connection.count(missed),
                None if connection.h2_closing.get() || !is_draining => return Poll::Pending,
                None => {}
            }
            // GOAWAY; open streams are finished, then the connection ends.
            connection.h2_closing.set(true);
            connection.note_h2_progress();
            server.as_mut().graceful_shutdown();
        }
    })
    .await
}

fn head_timeout() -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT)
        .with_detail("the request head was not complete within server.limits.timeout_header")
}

/// Sends a last answer, if there is one, and closes so that it arrives.
///
/// `linger` when the peer may still be sending.
async fn farewell<S: Transport>(mut transport: S, problem: Option<Problem>, linger: bool) {
    let close = async {
        if let Some(problem) = problem {
            transport.write_all(&close_with(&problem)).await?;
        }
        transport.shutdown().await?;
        if linger {
            discard(&mut transport).await?;
        }
        io::Result::Ok(())
    };
    // A peer that is gone, or does not leave in time, needs no more care.
    drop(timeout(FAREWELL_TIMEOUT, close).await);
}

/// Reads and drops what the peer still sends, up to a bound.
///
/// Closing with unread bytes makes the kernel send a reset, which may destroy
/// the answer before the peer has read it.
pub(super) async fn discard<S: AsyncRead + Unpin>(transport: &mut S) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let mut left = MAX_DRAIN_BYTES;
    loop {
        let length = transport.read(&mut buffer).await?;
        left = left.saturating_sub(length as u64);
        if length == 0 || left == 0 {
            return Ok(());
        }
    }
}

/// An HTTP/1.1 response that ends its connection, as bytes.
pub(super) fn close_with(problem: &Problem) -> Vec<u8> {
    let body = problem.to_json();
    let status = problem.status();
    let retry = match status {
        StatusCode::SERVICE_UNAVAILABLE => "retry-after: 1\r\n",
        _ => "",
    };
    let mut bytes = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/problem+json\r\n\
         content-length: {}\r\n{retry}connection: close\r\n\r\n",
        status.as_str(),
        status.canonical_reason().unwrap_or("Error"),
        body.len(),
    )
    .into_bytes();
    bytes.extend_from_slice(&body);
    bytes
}
