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

use std::time::Instant;

use mio::Token;
use mio::event::Event;
use sha2::{Digest as _, Sha256};

use super::connection::{Connection, Io, Mode, Readiness, Step};
use super::events::{Arrival, EventFeed, EventStream, Post};
use super::outcome::Outcome;
use super::plan::LoadPlan;
use super::report::ResponseDigest;
use super::run_loop::Driver;
use super::tally::{Ended, Tally};
use super::template::RequestTemplate;
use super::thread::{Share, Thread};
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
    thread: Thread<'a>,
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
    is_over: bool,
}

impl<'a> FanOut<'a> {
    /// Prepares a thread; must be called on it.
    pub(super) fn new(plan: &'a LoadPlan, feed: &EventFeed, share: Share) -> Result<Self, Error> {
        let thread = Thread::prepare(plan, share)?;
        let now = Instant::now();
        let subscriber = |_| Subscriber {
            connection: Connection::new(Mode::Events(Box::new(EventStream::new()))),
            is_listening: false,
            awaits: None,
        };
        Ok(Self {
            thread,
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
            is_over: false,
        })
    }

    pub(super) const fn tally(&mut self) -> &mut Tally {
        &mut self.thread.tally
    }

    pub(super) fn into_tally(self) -> Tally {
        self.thread.tally
    }

    /// The index behind the last subscriber is the publisher's.
    fn with_connection<T>(
        &mut self,
        index: usize,
        action: impl FnOnce(&mut Connection, &RequestTemplate, &mut Io<'_>) -> T,
    ) -> T {
        let request = &self.thread.plan.requests[0];
        let mut io = self.thread.io();
        match self.subscribers.get_mut(index) {
            Some(subscriber) => action(&mut subscriber.connection, request, &mut io),
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
        let tls_config = self.thread.tls_config.clone();
        let target = &self.thread.plan.target;
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
            self.thread.tally.connected(began);
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
        let expected = self.thread.plan.expect.status.unwrap_or(OK);
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
        if self.thread.window.is_over(now) || self.budget == Some(0) {
            self.is_over = true;
            return;
        }
        let is_measured = now >= self.thread.window.measure_from;
        for subscriber in &mut self.subscribers {
            let in_budget = self.budget.is_none_or(|budget| budget > 0);
            let measured = is_measured && in_budget;
            subscriber.awaits = Some(measured);
            if measured {
                self.thread.tally.attempts += 1;
                self.budget = self.budget.map(|budget| budget - 1);
            }
        }
        if is_measured {
            self.thread.tally.first_attempt.get_or_insert(now);
            self.thread.tally.first_send.get_or_insert(now);
        }
        self.num_awaiting = self.subscribers.len();
        self.is_posted = false;
        self.posted_at = now;
        self.deadline = now + self.thread.plan.request_timeout;
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
        let outcome = match outcome {
            Outcome::Ok if self.thread.window.is_over(now) => Outcome::AbortedAtDeadline,
            Outcome::Ok if now > self.deadline => Outcome::RequestTimeout,
            outcome => outcome,
        };
        let data = self.post.data();
        let is_first = self.thread.tally.first_response.is_none() && outcome == Outcome::Ok;
        let response = is_first.then(|| ResponseDigest {
            status: connection.status(),
            body_len: data.len() as u64,
            body_sha256: Sha256::digest(data).into(),
        });
        self.thread.tally.settle(&Ended {
            outcome,
            at: now,
            sent: Some(self.posted_at),
            intended: None,
            first_byte: None,
            bytes_received: connection.take_bytes_received(),
            status: connection.status(),
            sampled: false,
            response,
        });
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
                self.thread.tally.attempts += 1;
                self.thread.tally.first_attempt.get_or_insert(now);
                self.settle(0, outcome);
            }
        }
        self.end_pending(Outcome::AbortedAtDeadline, now);
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

    fn end_pending(&mut self, outcome: Outcome, now: Instant) {
        self.is_over = true;
        for index in 0..self.subscribers.len() {
            if self.subscribers[index].awaits.take() == Some(true) {
                self.settle(index, outcome);
            }
        }
        self.thread.tally.end = self.thread.tally.end.max(Some(now));
    }
}

impl<'a> Driver<'a> for FanOut<'a> {
    fn thread(&mut self) -> &mut Thread<'a> {
        &mut self.thread
    }

    fn begin(&mut self) {
        self.deadline = Instant::now() + self.thread.plan.connect_timeout;
        self.open(self.subscribers.len());
        self.open_more();
    }

    fn is_done(&self) -> bool {
        self.is_over
    }

    fn next_expiry(&self) -> Option<Instant> {
        Some(self.deadline)
    }

    fn next_due(&self) -> Option<Instant> {
        None
    }

    fn event(&mut self, event: &Event, _awake: Instant) {
        let index = event.token().0;
        let step = self.with_connection(index, |connection, request, io| {
            connection.advance(Readiness::from(event), request, io)
        });
        self.handle(index, step);
    }

    fn tick(&mut self, now: Instant) {
        if !self.is_over && now >= self.deadline {
            self.expire(now);
        }
    }

    fn abort(&mut self, now: Instant) {
        self.end_pending(Outcome::AbortedAtDeadline, now);
    }

    fn finish(&mut self) {
        // A stream has no end of its own. Closed in the common way it would go on until a write
        // fails, and the server would be busy with it while the next run is measured.
        for subscriber in &mut self.subscribers {
            subscriber.connection.reset();
        }
    }
}
