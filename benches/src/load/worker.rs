//! One thread of the load engine: its poll, its connections, its counts.
//!
//! It shares nothing with other threads but the stop flag. It guarantees that
//! every measured attempt is counted once when it begins ([`Worker::claim`]) and
//! once when it ends ([`Worker::settle`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use rustls::ClientConfig;

use super::connection::{Attempt, Connection, Io, Mode, Phase, Readiness, Step};
use super::outcome::Outcome;
use super::plan::{Exchange, LoadPlan, Stop};
use super::report::{ResponseDigest, ThreadReport};
use super::share::{Share, Thread};
use super::tally::{Tally, Usage, earlier};
use super::transport::Buffers;
use super::websocket::EchoStream;
use crate::Error;

/// Longest wait for events: the delay with which the stop flag is seen.
pub(super) const MAX_WAIT: Duration = Duration::from_millis(50);

/// Shortest time between two searches for expired deadlines.
///
/// A search looks at each connection, and the poll waits in milliseconds anyway.
const MIN_SEARCH_INTERVAL: Duration = Duration::from_micros(500);

/// First and largest delay before connecting again after a failure.
const MIN_BACKOFF: Duration = Duration::from_millis(1);
const MAX_BACKOFF: Duration = Duration::from_millis(100);

/// Events taken from the poll at once.
pub(super) const EVENT_CAPACITY: usize = 1024;

/// State of one thread.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    plan: &'a LoadPlan,
    tls_config: Option<Arc<ClientConfig>>,
    poll: Poll,
    buffers: Buffers,
    connections: Vec<Connection>,
    tally: Tally,
    /// Connections that have an attempt or will have another.
    active: usize,
    /// Measured attempts that may still begin.
    budget: Option<u64>,
    next_request: usize,
    measure_from: Instant,
    stop_at: Option<Instant>,
    /// No deadline is earlier than this.
    next_expiry: Option<Instant>,
}

impl<'a> Worker<'a> {
    /// Prepares a thread; must be called on it.
    pub(super) fn new(plan: &'a LoadPlan, share: Share) -> Result<Self, Error> {
        let Thread { poll, tls_config } = Thread::prepare(plan, share)?;
        let now = Instant::now();
        let mode = |index| match &plan.exchange {
            Exchange::Echo(echo) => Mode::Echo(Box::new(EchoStream::new(echo, index))),
            Exchange::Requests | Exchange::Feed(_) => Mode::Requests,
        };
        Ok(Self {
            plan,
            tls_config,
            poll,
            buffers: Buffers::new(),
            connections: (share.first..share.first + share.connections)
                .map(|index| Connection::new(mode(index)))
                .collect(),
            tally: Tally::new(plan.request_timeout, plan.connect_timeout),
            active: share.connections,
            budget: share.attempts,
            next_request: 0,
            measure_from: now,
            stop_at: None,
            next_expiry: None,
        })
    }

    /// Runs from `start` to the end of the plan, or until `stop_flag` is set.
    pub(super) fn run(
        mut self,
        start: Instant,
        stop_flag: &AtomicBool,
    ) -> Result<(Tally, ThreadReport), Error> {
        self.measure_from = start + self.plan.warm_up;
        if let Stop::Duration(duration) = self.plan.stop {
            self.stop_at = Some(self.measure_from + duration);
        }
        let mut usage = Usage::begin();
        let mut measuring = self.plan.warm_up.is_zero();
        let mut events = Events::with_capacity(EVENT_CAPACITY);
        for index in 0..self.connections.len() {
            self.begin_attempt(index);
        }
        while self.active > 0 {
            let asleep = Instant::now();
            match self.poll.poll(&mut events, Some(self.wait(asleep))) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => {
                    return Err(Error::LoadThread {
                        operation: "poll in",
                        source,
                    });
                }
            }
            let awake = Instant::now();
            usage.idle += awake - asleep;
            if !measuring && awake >= self.measure_from {
                measuring = true;
                usage = Usage::begin();
            }
            if stop_flag.load(Ordering::Relaxed) {
                self.tally.interrupted = true;
                self.stop_at = Some(self.stop_at.map_or(awake, |stop| stop.min(awake)));
            }
            if self.is_over(awake) {
                self.abort(awake);
                break;
            }
            for event in &events {
                let index = event.token().0;
                let step = self.with_connection(index, |connection, plan, io| {
                    let request = connection.attempt.map_or(0, |attempt| attempt.request);
                    connection.advance(Readiness::from(event), &plan.requests[request], io)
                });
                self.handle(index, step);
            }
            if self.next_expiry.is_some_and(|expiry| expiry <= awake) {
                self.expire(awake);
            }
        }
        if let Some(stop) = self.stop_at {
            self.tally.end = Some(stop);
        }
        Ok((self.tally, usage.end()))
    }

    /// How long the poll may wait.
    fn wait(&self, now: Instant) -> Duration {
        earlier(self.next_expiry, self.stop_at).map_or(MAX_WAIT, |instant| {
            instant.saturating_duration_since(now).min(MAX_WAIT)
        })
    }

    fn is_over(&self, now: Instant) -> bool {
        self.stop_at.is_some_and(|stop| now >= stop)
    }

    fn with_connection<T>(
        &mut self,
        index: usize,
        action: impl FnOnce(&mut Connection, &LoadPlan, &mut Io<'_>) -> T,
    ) -> T {
        let mut io = Io {
            registry: self.poll.registry(),
            buffers: &mut self.buffers,
            expect: &self.plan.expect,
        };
        action(&mut self.connections[index], self.plan, &mut io)
    }

    /// Begins the next attempt of a connection, or retires it.
    fn begin_attempt(&mut self, index: usize) {
        let now = Instant::now();
        let measured = if now < self.measure_from {
            Some(false)
        } else {
            self.claim(now)
        };
        let (Some(measured), false) = (measured, self.is_over(now)) else {
            self.retire(index);
            return;
        };
        let request = self.next_request;
        self.next_request = (request + 1) % self.plan.requests.len();
        let connection = &mut self.connections[index];
        connection.attempt = Some(Attempt {
            measured,
            sent: None,
            resent: false,
            request,
        });
        if connection.is_open() {
            self.send(index);
        } else {
            self.open(index, now);
        }
    }

    /// Counts the begin of a measured attempt; `None` if there must be no more.
    fn claim(&mut self, now: Instant) -> Option<bool> {
        if self.is_over(now) {
            return None;
        }
        if let Some(budget) = &mut self.budget {
            *budget = budget.checked_sub(1)?;
        }
        self.tally.attempts += 1;
        self.tally.first_attempt.get_or_insert(now);
        Some(true)
    }

    fn retire(&mut self, index: usize) {
        self.connections[index].attempt = None;
        self.connections[index].close();
        self.active -= 1;
    }

    fn open(&mut self, index: usize, now: Instant) {
        let tls_config = self.tls_config.clone();
        let step = self.with_connection(index, |connection, plan, io| {
            connection.connect_began = Some(now);
            let request = connection.attempt.map_or(0, |attempt| attempt.request);
            let request = &plan.requests[request];
            connection.open(&plan.target, request, tls_config.as_ref(), Token(index), io)
        });
        let connection = &self.connections[index];
        let limit = now + self.plan.connect_timeout;
        let sent = connection.attempt.and_then(|attempt| attempt.sent);
        let limit = sent.map_or(limit, |sent| limit.min(sent + self.plan.request_timeout));
        self.set_deadline(index, limit);
        self.handle(index, step);
    }

    /// Sends the request of the current attempt on an open connection.
    fn send(&mut self, index: usize) {
        let now = Instant::now();
        let Some(mut attempt) = self.connections[index].attempt else {
            return;
        };
        // An attempt that connected in the warm-up is measured if it sends after it.
        if !attempt.measured && attempt.sent.is_none() && now >= self.measure_from {
            match self.claim(now) {
                Some(measured) => attempt.measured = measured,
                None => return self.retire(index),
            }
        }
        let sent = *attempt.sent.get_or_insert(now);
        if attempt.measured {
            self.tally.first_send.get_or_insert(sent);
        }
        self.connections[index].attempt = Some(attempt);
        // One at a time: hashing a large body takes longer than anything that is measured.
        let digest = attempt.measured
            && self.tally.first_response.is_none()
            && !self.connections.iter().any(Connection::is_hashing);
        let step = self.with_connection(index, |connection, plan, io| {
            connection.send(&plan.requests[attempt.request], digest, io)
        });
        self.set_deadline(index, sent + self.plan.request_timeout);
        self.handle(index, step);
    }

    fn handle(&mut self, index: usize, step: Step) {
        match step {
            Step::Pending => {}
            Step::Ready => {
                let connection = &mut self.connections[index];
                if let Some(began) = connection.connect_began.take() {
                    self.tally.connections_opened += 1;
                    self.tally.connect.record(began.elapsed());
                }
                self.send(index);
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
                if !(reusable && self.plan.keep_alive) {
                    connection.close();
                }
                self.begin_attempt(index);
            }
            Step::Failed { outcome, untouched } => self.fail(index, outcome, untouched),
        }
    }

    /// Class of a whole response.
    fn classify(&self, index: usize) -> Outcome {
        let connection = &self.connections[index];
        let expect = &self.plan.expect;
        let status = connection.status();
        match expect.status {
            Some(expected) if expected != status => return Outcome::StatusMismatch,
            None if status >= 500 => return Outcome::Http5xx,
            None if status >= 400 => return Outcome::Http4xx,
            Some(_) | None => {}
        }
        let head = connection
            .attempt
            .is_some_and(|attempt| self.plan.requests[attempt.request].is_head());
        if let Some(is_equal) = connection.echo_is_equal() {
            return if is_equal {
                Outcome::Ok
            } else {
                Outcome::BodyMismatch
            };
        }
        match &expect.body {
            Some(expected) if !head && !connection.body().matches(expected) => {
                Outcome::BodyMismatch
            }
            _ => Outcome::Ok,
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
        let plan = self.plan;
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
            self.tally.resent += u64::from(attempt.measured);
            connection.close();
            self.open(index, now);
            return;
        }
        self.settle(index, outcome, now);
        let connection = &mut self.connections[index];
        connection.close();
        if untouched {
            // At once would be a tight loop that counts millions of attempts.
            let factor = 1_u32.checked_shl(connection.failures).unwrap_or(u32::MAX);
            let delay = MIN_BACKOFF.saturating_mul(factor).min(MAX_BACKOFF);
            connection.failures += 1;
            connection.phase = Phase::Backoff;
            self.set_deadline(index, now + delay.mul_f64(0.5 + fastrand::f64() / 2.0));
        } else {
            self.begin_attempt(index);
        }
    }

    /// Counts the end of an attempt.
    fn settle(&mut self, index: usize, outcome: Outcome, now: Instant) {
        let over = self.is_over(now);
        let connection = &mut self.connections[index];
        let bytes_received = connection.take_bytes_received();
        let Some(attempt) = connection.attempt.take() else {
            return;
        };
        if !attempt.measured {
            return;
        }
        let latency = attempt.sent.map(|sent| now - sent);
        let outcome = match latency {
            None if over => Outcome::NotSent,
            Some(_) if over => Outcome::AbortedAtDeadline,
            _ => outcome,
        };
        let tally = &mut self.tally;
        tally.outcomes.count(outcome);
        tally.bytes_read += bytes_received;
        tally.end = tally.end.max(Some(now));
        if outcome == Outcome::AbortedAtDeadline {
            tally.oldest_aborted = tally.oldest_aborted.max(latency);
        }
        if let (Some(latency), true) = (latency, outcome.is_response()) {
            if outcome == Outcome::Ok {
                tally.latency_ok.record(latency);
            } else {
                tally.latency_error.record(latency);
            }
            tally.status_counts[usize::from(connection.status())] += 1;
            if tally.first_response.is_none()
                && let Some(sha256) = connection.body().sha256()
            {
                tally.first_response = Some(ResponseDigest {
                    status: connection.status(),
                    body_len: connection.body().length(),
                    body_sha256: sha256,
                });
            }
        }
    }

    fn set_deadline(&mut self, index: usize, deadline: Instant) {
        self.connections[index].deadline = Some(deadline);
        self.next_expiry = earlier(self.next_expiry, Some(deadline));
    }

    /// Ends what has lasted too long.
    fn expire(&mut self, now: Instant) {
        // Set before the search, which may itself set earlier deadlines.
        self.next_expiry = None;
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            if connection.deadline.is_none_or(|deadline| deadline > now) {
                continue;
            }
            let sent = connection.attempt.and_then(|attempt| attempt.sent);
            match connection.phase {
                Phase::Backoff => {
                    self.connections[index].close();
                    self.begin_attempt(index);
                    continue;
                }
                Phase::Connecting | Phase::Handshaking | Phase::Upgrading
                    if sent.is_none_or(|sent| sent + self.plan.request_timeout > now) =>
                {
                    self.settle(index, Outcome::ConnectTimeout, now);
                }
                _ => self.settle(index, Outcome::RequestTimeout, now),
            }
            self.connections[index].close();
            self.begin_attempt(index);
        }
        let earliest = self
            .connections
            .iter()
            .filter_map(|connection| connection.deadline)
            .min();
        self.next_expiry = earliest.map(|earliest| earliest.max(now + MIN_SEARCH_INTERVAL));
    }

    /// Ends everything at the stop.
    fn abort(&mut self, now: Instant) {
        for index in 0..self.connections.len() {
            self.settle(index, Outcome::AbortedAtDeadline, now);
            self.connections[index].close();
        }
        self.active = 0;
    }
}
