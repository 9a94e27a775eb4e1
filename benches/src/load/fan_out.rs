//! One thread that posts events and listens to them on every connection.
//!
//! ```text
//! subscribing ── every stream has its head ──► post ──► delivering ──┐
//!                                               ▲────── all have it ─┘
//! ```
//!
//! It guarantees that each event has one attempt on each stream, counted when it is posted and
//! once more when it ends; and that the run ends at the first stream that ends, is late or says
//! anything but what was posted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use rustls::ClientConfig;
use sha2::{Digest as _, Sha256};

use super::connection::{Connection, Io, Mode, Readiness, Step};
use super::events::{Arrival, EventFeed, EventStream, Post};
use super::outcome::Outcome;
use super::plan::{LoadPlan, Stop};
use super::report::{ResponseDigest, ThreadReport};
use super::share::{Share, Thread};
use super::tally::{Tally, Usage, earlier};
use super::transport::Buffers;
use super::worker::{EVENT_CAPACITY, MAX_WAIT};
use crate::Error;

/// Streams being opened at once: far below what servers let wait for `accept`.
const MAX_OPENING: usize = 64;

/// Status of a stream, unless another is expected.
const OK: u16 = 200;

/// One stream.
#[derive(Debug)]
struct Subscriber {
    connection: Connection,
    is_listening: bool,
    /// Whether it waits for the event, and whether that is measured.
    awaits: Option<bool>,
}

/// State of the thread.
#[derive(Debug)]
pub(super) struct FanOut<'a> {
    plan: &'a LoadPlan,
    tls_config: Option<Arc<ClientConfig>>,
    poll: Poll,
    buffers: Buffers,
    subscribers: Vec<Subscriber>,
    publisher: Connection,
    post: Post,
    /// Streams that were begun to be opened, and those that are there.
    num_begun: usize,
    num_listening: usize,
    /// Streams that do not have the event yet.
    num_awaiting: usize,
    /// Whether the post has its answer.
    is_posted: bool,
    posted_at: Instant,
    /// When the phase has lasted too long.
    deadline: Instant,
    budget: Option<u64>,
    measure_from: Instant,
    stop_at: Option<Instant>,
    is_over: bool,
    tally: Tally,
}

impl<'a> FanOut<'a> {
    /// Prepares a thread; must be called on it.
    pub(super) fn new(plan: &'a LoadPlan, feed: &EventFeed, share: Share) -> Result<Self, Error> {
        let Thread { poll, tls_config } = Thread::prepare(plan, share)?;
        let now = Instant::now();
        let subscriber = |_| Subscriber {
            connection: Connection::new(Mode::Events(Box::new(EventStream::new()))),
            is_listening: false,
            awaits: None,
        };
        Ok(Self {
            plan,
            tls_config,
            poll,
            buffers: Buffers::new(),
            subscribers: (0..share.connections).map(subscriber).collect(),
            publisher: Connection::new(Mode::Requests),
            post: Post::new(feed),
            num_begun: 0,
            num_listening: 0,
            num_awaiting: 0,
            is_posted: false,
            posted_at: now,
            deadline: now,
            budget: share.attempts,
            measure_from: now,
            stop_at: None,
            is_over: false,
            tally: Tally::new(plan.request_timeout, plan.connect_timeout),
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
        self.deadline = start + self.plan.connect_timeout;
        let mut usage = Usage::begin();
        let mut measuring = self.plan.warm_up.is_zero();
        let mut events = Events::with_capacity(EVENT_CAPACITY);
        self.open(self.subscribers.len());
        self.open_more();
        while !self.is_over {
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
            if self.stop_at.is_some_and(|stop| awake >= stop) {
                self.abort(awake);
                break;
            }
            for event in &events {
                let index = event.token().0;
                let step = self.with_connection(index, |connection, request, io| {
                    connection.advance(Readiness::from(event), request, io)
                });
                self.handle(index, step);
                if self.is_over {
                    break;
                }
            }
            if !self.is_over && awake >= self.deadline {
                self.expire(awake);
            }
        }
        if let Some(stop) = self.stop_at {
            self.tally.end = Some(stop);
        }
        // A stream has no end of its own. Closed in the common way it would go on until a write
        // fails, and the server would be busy with it while the next run is measured.
        for subscriber in &mut self.subscribers {
            subscriber.connection.reset();
        }
        Ok((self.tally, usage.end()))
    }

    fn wait(&self, now: Instant) -> Duration {
        earlier(Some(self.deadline), self.stop_at).map_or(MAX_WAIT, |instant| {
            instant.saturating_duration_since(now).min(MAX_WAIT)
        })
    }

    /// The index behind the last subscriber is the publisher's.
    fn with_connection<T>(
        &mut self,
        index: usize,
        action: impl FnOnce(&mut Connection, &super::RequestTemplate, &mut Io<'_>) -> T,
    ) -> T {
        let mut io = Io {
            registry: self.poll.registry(),
            buffers: &mut self.buffers,
            expect: &self.plan.expect,
        };
        match self.subscribers.get_mut(index) {
            Some(subscriber) => action(&mut subscriber.connection, &self.plan.requests[0], &mut io),
            None => action(&mut self.publisher, self.post.request(), &mut io),
        }
    }

    fn open_more(&mut self) {
        while !self.is_over
            && self.num_begun < self.subscribers.len()
            && self.num_begun - self.num_listening < MAX_OPENING
        {
            let index = self.num_begun;
            self.num_begun += 1;
            self.open(index);
        }
    }

    fn open(&mut self, index: usize) {
        let tls_config = self.tls_config.clone();
        let target = &self.plan.target;
        let step = self.with_connection(index, |connection, request, io| {
            connection.connect_began = Some(Instant::now());
            connection.open(target, request, tls_config.as_ref(), Token(index), io)
        });
        self.handle(index, step);
    }

    fn handle(&mut self, index: usize, step: Step) {
        let is_publisher = index == self.subscribers.len();
        match step {
            Step::Ready => self.connected(index),
            Step::Pending if is_publisher => {}
            Step::Pending => self.listen(index),
            Step::Complete { extra, reusable } if is_publisher => {
                let is_taken = matches!(self.publisher.status(), 200..300);
                self.is_posted = true;
                if !is_taken || extra || !reusable {
                    self.fail(Outcome::ExchangeRefused);
                } else {
                    self.post_next();
                }
            }
            // A stream that ends; what came before its end still counts.
            Step::Complete { .. } => {
                self.listen(index);
                self.fail(Outcome::EofEarly);
            }
            Step::Failed { outcome, .. } => {
                if !is_publisher {
                    self.listen(index);
                }
                self.fail(outcome);
            }
        }
    }

    /// A byte stream is there.
    fn connected(&mut self, index: usize) {
        let is_publisher = index == self.subscribers.len();
        let connection = match self.subscribers.get_mut(index) {
            Some(subscriber) => &mut subscriber.connection,
            None => &mut self.publisher,
        };
        if let Some(began) = connection.connect_began.take() {
            self.tally.connections_opened += 1;
            self.tally.connect.record(began.elapsed());
        }
        if is_publisher {
            self.is_posted = true;
            self.post_next();
            return;
        }
        let step = self.with_connection(index, |connection, request, io| {
            connection.send(request, false, io)
        });
        self.handle(index, step);
    }

    /// Looks at what a stream has brought.
    fn listen(&mut self, index: usize) {
        let expected = self.plan.expect.status.unwrap_or(OK);
        let subscriber = &mut self.subscribers[index];
        let status = subscriber.connection.status();
        if status == 0 || self.is_over {
            return;
        }
        if status != expected {
            return self.fail(Outcome::ExchangeRefused);
        }
        if !subscriber.is_listening {
            subscriber.is_listening = true;
            self.num_listening += 1;
            self.open_more();
            self.post_next();
        }
        while !self.is_over {
            let data = self.post.data();
            let subscriber = &mut self.subscribers[index];
            let Some(arrival) = subscriber.connection.next_arrival(data) else {
                return;
            };
            match (arrival, subscriber.awaits.take()) {
                (Arrival::Right, Some(measured)) => {
                    self.num_awaiting -= 1;
                    if measured {
                        self.settle(index, Outcome::Ok);
                    }
                    self.post_next();
                }
                (Arrival::Wrong, awaits @ Some(_)) => {
                    self.subscribers[index].awaits = awaits;
                    self.fail(Outcome::BodyMismatch);
                }
                (_, None) => self.fail(Outcome::ExtraBytes),
            }
        }
    }

    /// Posts the next event if every stream has the one before.
    fn post_next(&mut self) {
        let is_due = !self.is_over
            && self.is_posted
            && self.num_listening == self.subscribers.len()
            && self.num_awaiting == 0;
        if !is_due {
            return;
        }
        let now = Instant::now();
        if self.stop_at.is_some_and(|stop| now >= stop) || self.budget == Some(0) {
            self.is_over = true;
            return;
        }
        let is_measured = now >= self.measure_from;
        for subscriber in &mut self.subscribers {
            let in_budget = self.budget.is_none_or(|budget| budget > 0);
            let measured = is_measured && in_budget;
            subscriber.awaits = Some(measured);
            if measured {
                self.tally.attempts += 1;
                self.budget = self.budget.map(|budget| budget - 1);
            }
        }
        if is_measured {
            self.tally.first_attempt.get_or_insert(now);
            self.tally.first_send.get_or_insert(now);
        }
        self.num_awaiting = self.subscribers.len();
        self.is_posted = false;
        self.posted_at = now;
        self.deadline = now + self.plan.request_timeout;
        self.post.advance();
        let publisher = self.subscribers.len();
        let step = self.with_connection(publisher, |connection, request, io| {
            connection.send(request, false, io)
        });
        self.handle(publisher, step);
    }

    /// Counts the end of a measured attempt.
    fn settle(&mut self, index: usize, outcome: Outcome) {
        let now = Instant::now();
        let connection = &mut self.subscribers[index].connection;
        let latency = now - self.posted_at;
        let outcome = match outcome {
            Outcome::Ok if self.stop_at.is_some_and(|stop| now >= stop) => {
                Outcome::AbortedAtDeadline
            }
            Outcome::Ok if now > self.deadline => Outcome::RequestTimeout,
            outcome => outcome,
        };
        let tally = &mut self.tally;
        tally.outcomes.count(outcome);
        tally.bytes_read += connection.take_bytes_received();
        tally.end = tally.end.max(Some(now));
        if outcome == Outcome::AbortedAtDeadline {
            tally.oldest_aborted = tally.oldest_aborted.max(Some(latency));
        }
        if outcome.is_response() {
            let times = match outcome {
                Outcome::Ok => &mut tally.latency_ok,
                _ => &mut tally.latency_error,
            };
            times.record(latency);
            tally.status_counts[usize::from(connection.status())] += 1;
            if tally.first_response.is_none() && outcome == Outcome::Ok {
                tally.first_response = Some(ResponseDigest {
                    status: connection.status(),
                    body_len: self.post.data().len() as u64,
                    body_sha256: Sha256::digest(self.post.data()).into(),
                });
            }
        }
    }

    /// Ends the run with one attempt of this class; the others in flight are aborted.
    fn fail(&mut self, outcome: Outcome) {
        if self.is_over {
            return;
        }
        let now = Instant::now();
        let pending = |subscriber: &Subscriber| subscriber.awaits == Some(true);
        match self.subscribers.iter().position(pending) {
            Some(index) => {
                self.subscribers[index].awaits = None;
                self.settle(index, outcome);
            }
            // Nothing was in flight: the error is an attempt of its own.
            None => {
                self.posted_at = now;
                self.tally.attempts += 1;
                self.tally.first_attempt.get_or_insert(now);
                self.settle(0, outcome);
            }
        }
        self.abort(now);
    }

    /// Ends the run because its phase has lasted too long.
    fn expire(&mut self, now: Instant) {
        if self.num_awaiting > 0 {
            return self.end_pending(Outcome::RequestTimeout, now);
        }
        // Not all streams could be opened, or the post was not answered.
        self.fail(if self.num_listening < self.subscribers.len() {
            Outcome::ConnectTimeout
        } else {
            Outcome::RequestTimeout
        });
    }

    /// Ends everything at the stop.
    fn abort(&mut self, now: Instant) {
        self.end_pending(Outcome::AbortedAtDeadline, now);
    }

    fn end_pending(&mut self, outcome: Outcome, now: Instant) {
        self.is_over = true;
        for index in 0..self.subscribers.len() {
            if self.subscribers[index].awaits.take() == Some(true) {
                self.settle(index, outcome);
            }
        }
        self.tally.end = self.tally.end.max(Some(now));
    }
}
