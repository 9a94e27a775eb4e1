//! One thread of the load engine that sends requests on its connections.
//!
//! It guarantees that every measured attempt is counted once when it begins, or is due, and
//! once when it ends ([`Worker::settle`]).
//!
//! In a closed loop a connection begins its next attempt when the one before has ended. In an
//! open loop it takes what has waited longest, or waits in line for what becomes due.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mio::Token;
use mio::event::Event;

use super::connection::{Attempt, Connection, Io, Mode, Phase, Readiness, Step};
use super::outcome::Outcome;
use super::plan::{Exchange, LoadPlan};
use super::report::ResponseDigest;
use super::run_loop::Driver;
use super::supply::{Begun, Supply};
use super::tally::{Ended, Tally, earlier};
use super::template::Values;
use super::thread::{Share, Thread};
use super::websocket::EchoStream;
use crate::Error;

/// Shortest time between two searches for expired deadlines.
///
/// A search looks at each connection, and the poll waits in milliseconds anyway.
const MIN_SEARCH_INTERVAL: Duration = Duration::from_micros(500);

/// First and largest delay before connecting again after a failure.
const MIN_BACKOFF: Duration = Duration::from_millis(1);
const MAX_BACKOFF: Duration = Duration::from_millis(100);

/// State of one thread.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    thread: Thread<'a>,
    share: Share,
    connections: Vec<Connection>,
    /// Connections that have an attempt; in a closed loop also those that will have one.
    active: usize,
    supply: Supply,
    /// Connections of an open loop that have nothing to do, in line.
    idle: VecDeque<usize>,
    next_request: usize,
    values: Values,
    /// No deadline is earlier than this.
    next_expiry: Option<Instant>,
}

impl<'a> Worker<'a> {
    /// Prepares a thread; must be called on it.
    pub(super) fn new(plan: &'a LoadPlan, share: Share) -> Result<Self, Error> {
        let mode = |index| match &plan.exchange {
            Exchange::Echo(echo) => Mode::Echo(Box::new(EchoStream::new(echo, index))),
            Exchange::Requests | Exchange::Feed(_) => Mode::Requests,
        };
        Ok(Self {
            thread: Thread::prepare(plan, share)?,
            share,
            connections: (share.first..share.first + share.connections)
                .map(|index| Connection::new(mode(index)))
                .collect(),
            active: 0,
            supply: Supply::Closed {
                budget: share.attempts,
            },
            idle: VecDeque::with_capacity(share.connections),
            // Threads begin at different places of a long list.
            next_request: plan.requests.len() * share.index / share.threads,
            values: Values::new(plan.seed(), share),
            next_expiry: None,
        })
    }

    pub(super) const fn tally(&mut self) -> &mut Tally {
        &mut self.thread.tally
    }

    pub(super) fn into_tally(self) -> Tally {
        self.thread.tally
    }

    fn with_connection<T>(
        &mut self,
        index: usize,
        action: impl FnOnce(&mut Connection, &LoadPlan, &mut Io<'_>) -> T,
    ) -> T {
        let plan = self.thread.plan;
        action(&mut self.connections[index], plan, &mut self.thread.io())
    }

    /// Begins the next attempt of a connection, or lets it rest.
    fn begin_attempt(&mut self, index: usize, now: Instant) {
        let Thread { window, tally, .. } = &mut self.thread;
        let Some(Begun { measured, intended }) = self.supply.next(now, window, tally) else {
            return self.rest(index, now);
        };
        // Several may be due at once, and each send takes time: the clock is read anew.
        let now = intended.map_or(now, |_| Instant::now());
        let plan = self.thread.plan;
        let request = self.next_request;
        self.next_request = (request + 1) % plan.requests.len();
        let connection = &mut self.connections[index];
        connection.prepare(request, &plan.requests[request], &mut self.values);
        connection.attempt = Some(Attempt {
            measured,
            intended,
            sent: None,
            first_byte: None,
            resent: false,
            request,
        });
        if intended.is_some() {
            self.active += 1;
        }
        if connection.is_open() {
            self.send(index, now);
        } else {
            self.open(index, now);
        }
    }

    /// A connection has nothing to do: until something is due, or for ever.
    fn rest(&mut self, index: usize, now: Instant) {
        if matches!(self.supply, Supply::Closed { .. }) {
            self.count_free(index, now);
        }
        let connection = &mut self.connections[index];
        connection.attempt = None;
        match self.supply {
            Supply::Closed { .. } => {
                connection.close();
                self.active -= 1;
            }
            Supply::Open(_) => {
                connection.deadline = None;
                self.idle.push_back(index);
            }
        }
    }

    fn open(&mut self, index: usize, now: Instant) {
        let tls_config = self.thread.tls_config.clone();
        let step = self.with_connection(index, |connection, plan, io| {
            connection.connect_began = Some(now);
            let request = connection.attempt.map_or(0, |attempt| attempt.request);
            let request = &plan.requests[request];
            connection.open(&plan.target, request, tls_config.as_ref(), Token(index), io)
        });
        let plan = self.thread.plan;
        let limit = now + plan.connect_timeout;
        let sent = self.connections[index]
            .attempt
            .and_then(|attempt| attempt.sent);
        let limit = sent.map_or(limit, |sent| limit.min(sent + plan.request_timeout));
        self.set_deadline(index, limit);
        self.handle(index, step);
    }

    /// Sends the request of the current attempt on an open connection.
    fn send(&mut self, index: usize, now: Instant) {
        let Some(mut attempt) = self.connections[index].attempt else {
            // It was opened before there was something to send.
            return self.begin_attempt(index, now);
        };
        // An attempt that connected in the warm-up is measured if it sends after it.
        if !attempt.measured
            && attempt.intended.is_none()
            && attempt.sent.is_none()
            && now >= self.thread.window.measure_from
        {
            let Thread { window, tally, .. } = &mut self.thread;
            if !self.supply.claim(now, window, tally) {
                return self.rest(index, now);
            }
            attempt.measured = true;
        }
        let sent = attempt.sent.unwrap_or(now);
        if attempt.measured && attempt.sent.is_none() {
            self.count_free(index, now);
            self.thread.tally.sent(now, attempt.intended);
        }
        attempt.sent = Some(sent);
        self.connections[index].attempt = Some(attempt);
        // One at a time: hashing a large body takes longer than anything that is measured.
        let digest = attempt.measured
            && self.thread.tally.first_response.is_none()
            && !self.connections.iter().any(Connection::is_hashing);
        let step = self.with_connection(index, |connection, plan, io| {
            connection.send(&plan.requests[attempt.request], digest, io)
        });
        // Only a server that talked first has been heard by now.
        if self.connections[index].has_received() {
            self.connections[index].mark_first_byte(Instant::now());
        }
        self.set_deadline(index, sent + self.thread.plan.request_timeout);
        self.handle(index, step);
    }

    fn handle(&mut self, index: usize, step: Step) {
        match step {
            Step::Pending => {}
            Step::Ready => {
                let connection = &mut self.connections[index];
                if let Some(began) = connection.connect_began.take() {
                    self.thread.tally.connected(began);
                }
                self.send(index, Instant::now());
            }
            Step::Complete { extra, reusable } => {
                let now = Instant::now();
                let late = self.connections[index]
                    .deadline
                    .is_some_and(|limit| now > limit);
                let outcome = if late {
                    Outcome::RequestTimeout
                } else if extra {
                    Outcome::ExtraBytes
                } else {
                    self.classify(index)
                };
                self.settle(index, outcome, now);
                let connection = &mut self.connections[index];
                connection.failures = 0;
                if !(reusable && self.thread.plan.keep_alive) {
                    connection.close();
                }
                self.begin_attempt(index, now);
            }
            Step::Failed { outcome, untouched } => self.fail(index, outcome, untouched),
        }
    }

    /// Class of a whole response.
    fn classify(&self, index: usize) -> Outcome {
        let plan = self.thread.plan;
        let connection = &self.connections[index];
        let is_head = connection
            .attempt
            .is_some_and(|attempt| plan.requests[attempt.request].is_head());
        let status = plan.expect.judge_status(connection.status());
        match connection.echo_is_equal() {
            _ if status != Outcome::Ok => status,
            Some(true) => Outcome::Ok,
            Some(false) => Outcome::BodyMismatch,
            None if is_head => Outcome::Ok,
            None => connection.body().judge(plan.expect.body.as_ref()),
        }
    }

    /// Sends again on a new connection, or ends the attempt.
    ///
    /// A server may close a kept connection at any time (RFC 9112 §9.5), and the
    /// client learns it only after it has sent. Where that is the likely story (the
    /// connection had served before, no byte of the answer came, the method is
    /// idempotent) the request is sent once more. It stays one attempt: its latency
    /// and its timeout run from the first send, and its class is how the second
    /// ends.
    fn fail(&mut self, index: usize, outcome: Outcome, untouched: bool) {
        let now = Instant::now();
        let plan = self.thread.plan;
        let connection = &mut self.connections[index];
        // No WebSocket may be closed between two messages.
        let stale = untouched
            && plan.exchange == Exchange::Requests
            && connection.is_reused()
            && matches!(outcome, Outcome::EofEarly | Outcome::Reset);
        if let Some(attempt) = &mut connection.attempt
            && stale
            && !attempt.resent
            && plan.requests[attempt.request].is_idempotent()
        {
            attempt.resent = true;
            self.thread.tally.resent += u64::from(attempt.measured);
            connection.close();
            self.open(index, now);
            return;
        }
        self.settle(index, outcome, now);
        let connection = &mut self.connections[index];
        connection.close();
        if untouched {
            let delay = backoff(connection.failures);
            connection.failures += 1;
            connection.phase = Phase::Backoff;
            self.set_deadline(index, now + delay);
        } else {
            self.begin_attempt(index, now);
        }
    }

    /// Counts the end of an attempt.
    fn settle(&mut self, index: usize, outcome: Outcome, now: Instant) {
        let over = self.thread.window.is_over(now);
        let connection = &mut self.connections[index];
        let bytes_received = connection.take_bytes_received();
        let Some(attempt) = connection.attempt.take() else {
            return;
        };
        if attempt.intended.is_some() {
            self.active -= 1;
        }
        if !attempt.measured {
            return;
        }
        if attempt.sent.is_some() {
            connection.free_since = Some(now);
        }
        let outcome = match attempt.sent {
            None if over => Outcome::NotSent,
            Some(_) if over => Outcome::AbortedAtDeadline,
            _ => outcome,
        };
        let is_first = self.thread.tally.first_response.is_none();
        let body = connection.body();
        let digest = if is_first { body.sha256() } else { None };
        let response = digest.map(|body_sha256| ResponseDigest {
            status: connection.status(),
            body_len: body.length(),
            body_sha256,
        });
        self.thread.tally.settle(&Ended {
            outcome,
            at: now,
            sent: attempt.sent,
            intended: attempt.intended,
            first_byte: attempt.first_byte,
            bytes_received,
            status: connection.status(),
            sampled: body.is_sampled(),
            response,
        });
    }

    /// Counts the time in which a connection had no measured request under way.
    fn count_free(&mut self, index: usize, now: Instant) {
        let since = self.connections[index].free_since.take();
        let since = since.unwrap_or(self.thread.window.measure_from);
        self.thread.tally.connection_time += now.saturating_duration_since(since);
    }

    fn set_deadline(&mut self, index: usize, deadline: Instant) {
        self.connections[index].deadline = Some(deadline);
        self.next_expiry = earlier(self.next_expiry, Some(deadline));
    }

    /// Ends what has lasted too long.
    fn expire(&mut self, now: Instant) {
        let request_timeout = self.thread.plan.request_timeout;
        // Set before the search, which may itself set earlier deadlines.
        self.next_expiry = None;
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            if connection.deadline.is_none_or(|deadline| deadline > now) {
                continue;
            }
            let sent = connection.attempt.and_then(|attempt| attempt.sent);
            match connection.phase {
                Phase::Backoff => {}
                Phase::Connecting | Phase::Handshaking | Phase::Upgrading
                    if sent.is_none_or(|sent| sent + request_timeout > now) =>
                {
                    self.settle(index, Outcome::ConnectTimeout, now);
                }
                _ => self.settle(index, Outcome::RequestTimeout, now),
            }
            self.connections[index].close();
            self.begin_attempt(index, now);
        }
        let earliest = self
            .connections
            .iter()
            .filter_map(|connection| connection.deadline)
            .min();
        self.next_expiry = earliest.map(|earliest| earliest.max(now + MIN_SEARCH_INTERVAL));
    }

    /// Gives what is due to the connections in line.
    fn dispatch(&mut self, now: Instant) {
        let Thread { window, tally, .. } = &mut self.thread;
        self.supply.count_due(now, window, tally);
        while self.supply.next_due(now).is_some_and(|due| due < now) {
            let Some(index) = self.idle.pop_front() else {
                return;
            };
            self.begin_attempt(index, now);
        }
    }
}

/// How long to wait after so many failures in a row before connecting again.
///
/// At once would be a tight loop that counts millions of attempts.
pub(super) fn backoff(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
    let delay = MIN_BACKOFF.saturating_mul(factor).min(MAX_BACKOFF);
    delay.mul_f64(0.5 + fastrand::f64() / 2.0)
}

impl<'a> Driver<'a> for Worker<'a> {
    fn thread(&mut self) -> &mut Thread<'a> {
        &mut self.thread
    }

    fn begin(&mut self) {
        let plan = self.thread.plan;
        let now = Instant::now();
        let start = self.thread.window.start;
        self.supply = Supply::new(plan, self.share, start, &mut self.thread.tally);
        if !plan.is_open_loop() {
            self.active = self.connections.len();
            for index in 0..self.connections.len() {
                self.begin_attempt(index, now);
            }
            return;
        }
        for index in 0..self.connections.len() {
            if plan.keep_alive {
                // No request has to wait for a connection but the very first.
                self.open(index, now);
            } else {
                self.rest(index, now);
            }
        }
    }

    fn is_done(&self) -> bool {
        self.active == 0 && self.supply.is_exhausted()
    }

    fn next_expiry(&self) -> Option<Instant> {
        self.next_expiry
    }

    fn next_due(&self) -> Option<Instant> {
        if self.idle.is_empty() {
            return None;
        }
        self.supply.next_due(Instant::now())
    }

    fn event(&mut self, event: &Event, awake: Instant) {
        let index = event.token().0;
        let readiness = Readiness::from(event);
        let connection = &self.connections[index];
        if connection.is_open() && connection.attempt.is_none() {
            // A server that says something unasked, or leaves: no request may go there.
            let is_quiet = self.with_connection(index, |connection, _, io| {
                connection.is_quiet(readiness, io)
            });
            if !is_quiet {
                self.connections[index].close();
            }
            return;
        }
        let step = self.with_connection(index, |connection, plan, io| {
            let request = connection.attempt.map_or(0, |attempt| attempt.request);
            connection.advance(readiness, &plan.requests[request], io)
        });
        // What was read lay there before: no clock has to be looked at for it.
        self.connections[index].mark_first_byte(awake);
        self.handle(index, step);
    }

    fn tick(&mut self, now: Instant) {
        if self.next_expiry.is_some_and(|expiry| expiry <= now) {
            self.expire(now);
        }
        self.dispatch(now);
    }

    fn abort(&mut self, now: Instant) {
        let Thread { window, tally, .. } = &mut self.thread;
        self.supply.stop(now, window, tally);
        // The thread may have been woken late; nothing ended after the stop.
        let now = window.stop_at.map_or(now, |stop| stop.min(now));
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            // One that has nothing to wait for was forgotten, and its time stays uncounted.
            let is_between = match connection.attempt {
                Some(attempt) => !(attempt.measured && attempt.sent.is_some()),
                None => connection.phase == Phase::Backoff,
            };
            if is_between {
                self.count_free(index, now);
            }
            self.settle(index, Outcome::AbortedAtDeadline, now);
            self.connections[index].close();
        }
        self.active = 0;
    }

    fn finish(&mut self) {
        self.supply.finish(&mut self.thread.tally);
    }
}
