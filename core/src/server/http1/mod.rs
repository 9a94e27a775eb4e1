//! HTTP/1.1 on one connection: requests in, answers out, one after the other.
//!
//! Guarantees: a request is begun when its head has passed the gate and the
//! answer before it is gone; a body is read only as fast as it is wanted; an
//! answer leaves in one write where it fits; a handler is dropped when its
//! peer is gone. Sources: RFC 9112, RFC 9110 §10.1.1.
//!
//! ```text
//! request ─▶ handler ─▶ body ─▶ flush ─┬─▶ request
//!     └──────── refused ───────────────┴─▶ end
//! ```

mod head;
mod output;
mod peer;

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::{Method, Version};
use tokio::io::ReadBuf;

use self::head::Framing;
use self::output::Output;
use super::connection::{Connection, Waiting};
use super::exchange::{self, Answer, Exchange};
use super::stream::{ResetWatch, Transport};
use crate::body::Body;
use crate::error::BodyError;
use crate::feed::Feeder;
use crate::files::FileSpan;
use crate::gate::{Gate, GateLimits, Refusal};
use crate::head::Head;
use crate::limits::Reject;
use crate::request::Request;
use crate::upgrade::OnUpgrade;

/// Bytes of a file that are sent at once, so that other connections get their
/// turn.
const MAX_SENDFILE_BYTES: u64 = 1024 * 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Why a connection is over.
pub(super) enum End {
    /// All that was asked is answered.
    Complete,
    /// It goes on as something else than HTTP.
    Upgrade(OnUpgrade),
    /// The peer is gone: there is nobody to say anything to.
    Gone,
    /// An answer broke off where only a reset can tell the peer.
    Broken,
    /// A deadline was missed.
    Missed(Reject),
    /// The next request breaks a rule of the gate.
    Refused(Refusal),
}

/// An HTTP/1.1 connection as a state machine.
pub(super) struct Http1<S> {
    transport: S,
    connection: Rc<Connection>,
    gate: Gate,
    /// Received but not taken: part of a head, or what a peer sent ahead.
    input: Vec<u8>,
    /// Whether `input` has bytes that the gate has not seen.
    is_fresh: bool,
    /// Whether the peer has closed its sending side.
    is_end: bool,
    current: Option<Current>,
    /// While a body is not read, which would tell.
    reset: Option<ResetWatch>,
    output: Output,
}

/// The request that is being answered.
struct Current {
    work: Work,
    /// Of a body that is not all here.
    feeder: Option<Feeder>,
    /// Whether the peer waits for an interim answer before it sends the body.
    awaits_continue: bool,
    version: Version,
    is_head: bool,
    /// Whether the connection ends with this answer.
    is_last: bool,
}

#[expect(
    clippy::large_enum_variant,
    reason = "a connection has one of it, and a box would be an allocation a request"
)]
enum Work {
    /// The answer is being made.
    Handler(Exchange),
    /// Its head is written or in the output, its body follows.
    Body(Body, Framing),
    /// As [`Work::Body`], with a file that is sent without a copy.
    File(FileSpan),
    /// All of it is written or in the output.
    Sent,
    /// So it is, and what it agreed to begins.
    Upgrade(OnUpgrade),
    /// It has broken off in its body.
    Failed(Framing),
}

/// What a read gave.
enum Received<T> {
    Taken(T),
    End,
}

impl<S: Transport> Http1<S> {
    /// `input` has been read already.
    pub(super) fn new(transport: S, connection: Rc<Connection>, input: Vec<u8>) -> Self {
        let limits = &connection.lane.app.limits;
        Self {
            transport,
            gate: Gate::new(GateLimits::from(limits)),
            connection,
            is_fresh: !input.is_empty(),
            input,
            is_end: false,
            current: None,
            reset: None,
            output: Output::default(),
        }
    }

    /// Whether the peer cannot be in the middle of sending something.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_end
            || self.current.is_none() && self.input.is_empty() && self.gate.is_between_messages()
    }

    /// Whether an answer has begun whose end only that of the connection tells.
    pub(super) fn is_open_ended(&self) -> bool {
        let work = self.current.as_ref().map(|current| &current.work);
        matches!(work, Some(Work::Body(_, Framing::UntilClose)))
    }

    pub(super) const fn transport(&self) -> &S {
        &self.transport
    }

    /// The transport, and what was read of it but not taken.
    pub(super) fn into_parts(self) -> (S, Vec<u8>) {
        (self.transport, self.input)
    }

    /// Ends the body that is being read: no more of it came in time.
    pub(super) fn fail_body(&mut self) {
        if let Some(current) = &mut self.current
            && let Some(feeder) = current.feeder.take()
        {
            current.is_last = true;
            feeder.end(Err(BodyError::Stalled));
        }
    }

    /// Serves until the connection is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let step = match self.current {
                None => self.poll_request(cx),
                Some(_) => self.poll_answer(cx),
            };
            match step {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(end)) => return Poll::Ready(end),
            }
        }
    }

    /// Reads until a request's head is complete, and begins to answer it.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        // It stays here until its handler takes it: each move copies it.
        let mut arrived = None;
        loop {
            if std::mem::take(&mut self.is_fresh) {
                let input = std::mem::take(&mut self.input);
                match self.take_request(&input, &mut arrived, cx) {
                    Ok(true) => {
                        self.begin(&mut arrived, cx);
                        return Poll::Ready(Ok(()));
                    }
                    Ok(false) => self.input = input,
                    Err(refusal) => return Poll::Ready(Err(End::Refused(refusal))),
                }
            }
            if self.is_end {
                return Poll::Ready(Err(End::Complete));
            }
            let is_new = self.input.is_empty();
            let received = self.poll_receive(cx, |this, cx, bytes| {
                if is_new {
                    let has_arrived = this.take_request(bytes, &mut arrived, cx)?;
                    if !has_arrived {
                        this.input = bytes.to_vec();
                    }
                    Ok(has_arrived)
                } else {
                    this.input.extend_from_slice(bytes);
                    this.is_fresh = true;
                    Ok(false)
                }
            });
            match received {
                Poll::Pending => {
                    self.note_waiting();
                    return Poll::Pending;
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Err(End::Gone)),
                Poll::Ready(Ok(Received::End)) => self.is_end = true,
                Poll::Ready(Ok(Received::Taken(Ok(true)))) => {
                    self.begin(&mut arrived, cx);
                    return Poll::Ready(Ok(()));
                }
                // Part of a head: its deadline counts from its first byte.
                Poll::Ready(Ok(Received::Taken(Ok(false)))) => self.note_waiting(),
                Poll::Ready(Ok(Received::Taken(Err(refusal)))) => {
                    return Poll::Ready(Err(End::Refused(refusal)));
                }
            }
        }
    }

    /// Reads once, through the lane's scratch buffer.
    fn poll_receive<T>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut Self, &mut Context<'_>, &[u8]) -> T,
    ) -> Poll<io::Result<Received<T>>> {
        let lane = Rc::clone(&self.connection.lane);
        let mut scratch = lane.scratch.borrow_mut();
        let mut buffer = ReadBuf::new(&mut scratch);
        match Pin::new(&mut self.transport).poll_read(cx, &mut buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => Poll::Ready(Ok(Received::End)),
            Poll::Ready(Ok(())) => {
                lane.metrics().received(buffer.filled().len());
                let taken = take(self, cx, buffer.filled());
                Poll::Ready(Ok(Received::Taken(taken)))
            }
        }
    }

    /// Takes the head that `bytes` begin with and what is there of its body into
    /// `arrived`, to be answered; `false` while the head is incomplete.
    ///
    /// What lies behind them becomes the input.
    fn take_request(
        &mut self,
        bytes: &[u8],
        arrived: &mut Option<Request>,
        cx: &Context<'_>,
    ) -> Result<bool, Refusal> {
        let Some(admitted) = self.gate.read_head(bytes)? else {
            return Ok(false);
        };
        let head = Head::admitted(bytes, &admitted);
        let mut rest = &bytes[admitted.end..];
        self.current = Some(Current {
            work: Work::Sent,
            feeder: None,
            awaits_continue: admitted.expects_continue && rest.is_empty(),
            version: head.version(),
            is_head: head.method() == Method::HEAD,
            is_last: admitted.is_last,
        });
        let mut body = Body::empty();
        if self.gate.is_in_body() {
            let taken;
            (body, taken) = self.take_first_of_body(rest, &admitted, cx);
            rest = &rest[taken..];
        }
        if !rest.is_empty() {
            self.input = rest.to_vec();
            self.is_fresh = true;
        }
        let now = Instant::now();
        *arrived = Some(Request::from_head(head, body, self.connection.peer, now));
        Ok(true)
    }

    /// Calls the handler.
    fn begin(&mut self, arrived: &mut Option<Request>, cx: &mut Context<'_>) {
        // The deadline of the head has ended with it.
        self.connection.waiting.set(Waiting::Nothing);
        let exchange = exchange::begin(&self.connection, arrived);
        // Tells the connection that nobody wants its body.
        *arrived = None;
        match exchange {
            // Written at once: it is large, and each move copies it.
            Exchange::Ready(Some(answer)) => self.answer(answer, cx),
            exchange => self.current().work = Work::Handler(exchange),
        }
    }

    /// Drives handler, request body and response until the answer is gone.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        loop {
            let current = self.current.as_mut().expect("a request is being answered");
            if let Work::Handler(exchange) = &mut current.work
                && let Poll::Ready(answer) = Pin::new(exchange).poll(cx)
            {
                self.answer(answer, cx);
            }
            if let Poll::Ready(result) = self.poll_send(cx) {
                if result.is_err() {
                    return Poll::Ready(Err(End::Gone));
                }
                let work = &mut self.current().work;
                if let Work::Upgrade(_) = work
                    && let Work::Upgrade(upgrade) = std::mem::replace(work, Work::Sent)
                {
                    return Poll::Ready(Err(End::Upgrade(upgrade)));
                }
                match work {
                    Work::Sent => return Poll::Ready(self.finish()),
                    Work::Failed(Framing::UntilClose) => {
                        return Poll::Ready(Err(End::Broken));
                    }
                    Work::Failed(_) => return Poll::Ready(Err(End::Complete)),
                    Work::Handler(_) | Work::Body(..) | Work::File(_) | Work::Upgrade(_) => {}
                }
            }
            match self.poll_peer(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(End::Gone)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn current(&mut self) -> &mut Current {
        self.current.as_mut().expect("a request is being answered")
    }

    /// Writes the head of an answer into the output, now that nobody reads the
    /// request's body.
    fn answer(&mut self, mut answer: Answer, cx: &mut Context<'_>) {
        self.skip_body(cx);
        let upgrade = OnUpgrade::take(answer.response.extensions_mut());
        let is_in_body = self.gate.is_in_body();
        let lane = &self.connection.lane;
        let current = self.current.as_mut().expect("a request is being answered");
        // An answer that overtakes its request's body ends the connection: what
        // is left of the body cannot be waited for. What follows an upgrade is
        // not of HTTP.
        current.is_last |= is_in_body || upgrade.is_none() && lane.draining_since.get().is_some();
        let buffer = self.output.start(|| lane.output.take());
        let context = head::Context {
            builtins: &lane.app.builtins,
            date: &lane.date,
            is_http10: current.version == Version::HTTP_10,
            is_head: current.is_head,
            is_last: &mut current.is_last,
        };
        let (body, framing) = head::write(buffer, answer, context);
        if let Some(upgrade) = upgrade {
            current.work = Work::Upgrade(upgrade);
            return;
        }
        current.work = match body.into_whole() {
            Ok(bytes) => {
                self.output.push(bytes, b"");
                Work::Sent
            }
            Err(body) if self.transport.sends_files() => match body.into_file() {
                Ok(span) => Work::File(span),
                Err(body) => Work::Body(body, framing),
            },
            Err(body) => Work::Body(body, framing),
        };
    }

    /// Writes the output, and what of the response body can follow.
    ///
    /// Ready when nothing is left to write now and the answer is complete or
    /// still being made.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let current = self.current.as_mut().expect("a request is being answered");
            let mut is_waiting = false;
            while self.output.has_room()
                && let Work::Body(body, framing) = &mut current.work
            {
                match exchange::poll_body(body, &self.connection.lane, cx) {
                    Poll::Pending => {
                        is_waiting = true;
                        break;
                    }
                    Poll::Ready(Some(Ok(frame))) => {
                        // Trailers may be dropped (RFC 9110 §6.5.1).
                        if let Ok(data) = frame.into_data()
                            && !framing.push(data, &mut self.output)
                        {
                            current.work = Work::Failed(*framing);
                        }
                    }
                    Poll::Ready(None) => {
                        current.work = if framing.finish(&mut self.output) {
                            Work::Sent
                        } else {
                            Work::Failed(*framing)
                        };
                    }
                    Poll::Ready(Some(Err(_))) => current.work = Work::Failed(*framing),
                }
            }
            let is_before_file = matches!(current.work, Work::File(_));
            if self.output.is_empty() {
                if is_before_file {
                    ready!(self.poll_send_file(cx))?;
                    continue;
                }
                if is_waiting {
                    return Poll::Pending;
                }
                return Poll::Ready(Ok(()));
            }
            let (transport, connection) = (&mut self.transport, &*self.connection);
            match self
                .output
                .poll_write(is_before_file, transport, connection, cx)
            {
                Poll::Ready(Ok(())) => self.connection.lane.output.set(self.output.release()),
                other => return other,
            }
        }
    }

    /// Sends the file that is the response body.
    fn poll_send_file(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let current = self.current.as_mut().expect("a request is being answered");
        let Work::File(span) = &mut current.work else {
            return Poll::Ready(Ok(()));
        };
        let (file, offset, remaining) = span.position();
        if remaining == 0 {
            self.connection.lane.metrics().sendfile_completed();
            current.work = Work::Sent;
            return Poll::Ready(Ok(()));
        }
        let length = remaining.min(MAX_SENDFILE_BYTES) as usize;
        let result = self.transport.poll_send_file(cx, file, offset, length);
        self.connection.note_write(&result, &self.transport);
        match ready!(result) {
            // The file has become shorter than its announced length.
            Ok(0) => current.work = Work::Failed(Framing::Length(remaining)),
            Ok(length) => {
                self.connection.lane.metrics().sent(length);
                span.advance(length as u64);
            }
            Err(error) if is_unsupported(&error) => {
                let body = Body::file(Arc::clone(file), offset..offset + remaining);
                current.work = Work::Body(body, Framing::Length(remaining));
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(Ok(()))
    }

    /// Ends an exchange whose answer is written.
    fn finish(&mut self) -> Result<(), End> {
        let is_last = self.current().is_last;
        self.current = None;
        self.reset = None;
        self.connection.waiting.set(Waiting::Nothing);
        if is_last {
            return Err(End::Complete);
        }
        self.is_fresh = !self.input.is_empty();
        Ok(())
    }

    /// Notes what the connection waits for, now that no byte is there.
    fn note_waiting(&self) {
        let waiting = if self.gate.is_in_head(self.input.len()) {
            Waiting::HeadRest
        } else {
            Waiting::Request
        };
        // A wait that goes on keeps its start: a head that drips in one byte
        // at a time has one deadline.
        if self.connection.waiting.get() != waiting {
            let now = match waiting {
                // It begins right after a short answer, whose time is known.
                Waiting::Request => self.connection.answered_at.take(),
                _ => None,
            };
            let now = now.unwrap_or_else(Instant::now);
            self.connection.wait_for(waiting, now);
        }
    }
}

/// Whether the file's file system has no way to send without a copy.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP)
    )
}

#[cfg(test)]
mod tests;
