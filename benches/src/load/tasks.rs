//! Load by a client library: one task for each request that may be on its way.
//!
//! Attempts, outcomes and counts are those of the raw engine. Sleeps are those of the runtime,
//! to the millisecond; the lateness that comes of it is in the report.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, Notify};
use tokio::time::{sleep, timeout, timeout_at};

use super::body::BodyCheck;
use super::client::{
    Http2, Message, Received, exchange_http2, exchange_reqwest, message, messages, reqwest_client,
};
use super::connection::Attempt;
use super::outcome::Outcome;
use super::plan::{Client, LoadPlan};
use super::progress::Publisher;
use super::raw::Recorder;
use super::report::{ResponseDigest, ThreadReport};
use super::supply::{Begun, Supply, Window};
use super::tally::{Ended, Tally, Usage};
use super::template::Values;
use super::thread::{MAX_WAIT, Share, pin};
use super::worker::backoff;
use crate::Error;

/// A thread that runs tasks.
#[derive(Debug)]
pub(super) struct Tasks<'a> {
    plan: &'a LoadPlan,
    share: Share,
    runtime: Runtime,
    library: Library,
    messages: Vec<Option<Message>>,
    /// Where each attempt gets a line.
    pub(super) raw: Option<Recorder>,
}

/// What sends requests, and what a task needs to have before it does.
#[derive(Debug)]
enum Library {
    /// One sender for each connection, shared by its streams.
    Http2(Http2, Vec<Mutex<Option<SendRequest<Full<Bytes>>>>>),
    Reqwest(reqwest::Client),
}

/// A way to send a request now.
enum Sender<'a> {
    Http2(SendRequest<Full<Bytes>>),
    Reqwest(&'a reqwest::Client),
}

impl<'a> Tasks<'a> {
    /// Prepares a thread; must be called on it.
    pub(super) fn new(plan: &'a LoadPlan, share: Share) -> Result<Self, Error> {
        if let Some(cpu) = share.cpu {
            pin(cpu)?;
        }
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| Error::LoadThread {
                operation: "create a runtime for",
                source,
            })?;
        let library = match plan.client {
            Client::Http2 { .. } => {
                let senders = (0..share.connections).map(|_| Mutex::default()).collect();
                Library::Http2(Http2::new(&plan.target), senders)
            }
            Client::Reqwest | Client::Raw => Library::Reqwest(reqwest_client(plan)?),
        };
        Ok(Self {
            plan,
            share,
            runtime,
            library,
            messages: messages(plan)?,
            raw: None,
        })
    }

    /// Runs from `start` to the end of the plan, or until `stop_flag` is set.
    pub(super) fn run(
        self,
        start: Instant,
        stop_flag: &AtomicBool,
        publisher: Option<Publisher<'_>>,
    ) -> (Tally, ThreadReport) {
        let plan = self.plan;
        let slots = self.share.connections * plan.client.streams();
        let mut tally = Tally::new(plan);
        tally.raw = self.raw;
        tally.begin_raw(start);
        let load = Load {
            plan,
            library: &self.library,
            messages: &self.messages,
            due: Notify::new(),
            state: RefCell::new(State {
                window: Window::new(plan, start),
                supply: Supply::new(plan, self.share, start, &mut tally),
                tally,
                values: Values::new(plan.seed(), self.share),
                next_request: plan.requests.len() * self.share.index / self.share.threads,
                attempts: vec![None; slots],
                is_led: false,
                is_hashing: false,
                request_timeout: plan.request_timeout,
            }),
        };
        let report = self
            .runtime
            .block_on(load.drive(slots, stop_flag, publisher));
        let mut state = load.state.into_inner();
        state.supply.finish(&mut state.tally);
        if let Some(stop) = state.window.stop_at {
            state.tally.end = Some(stop);
        }
        (state.tally, report)
    }
}

/// What all tasks of a thread share.
struct Load<'a> {
    plan: &'a LoadPlan,
    library: &'a Library,
    messages: &'a [Option<Message>],
    /// Wakes a task that waits for something to send.
    due: Notify,
    state: RefCell<State>,
}

struct State {
    window: Window,
    tally: Tally,
    supply: Supply,
    values: Values,
    next_request: usize,
    /// What each task is trying.
    attempts: Vec<Option<Attempt>>,
    /// Whether one of the tasks that wait watches the clock for all.
    is_led: bool,
    is_hashing: bool,
    request_timeout: Duration,
}

/// How an exchange ended.
struct Answer {
    outcome: Outcome,
    status: u16,
    bytes: u64,
    /// Whether its body was in the sample that is compared.
    sampled: bool,
    /// When the head of the answer was there.
    head_at: Option<Instant>,
    digest: Option<ResponseDigest>,
}

impl Load<'_> {
    async fn drive(
        &self,
        slots: usize,
        stop_flag: &AtomicBool,
        mut publisher: Option<Publisher<'_>>,
    ) -> ThreadReport {
        let mut usage = Usage::begin();
        let mut measuring = self.plan.warm_up.is_zero();
        let mut tasks: FuturesUnordered<_> = (0..slots).map(|slot| self.work(slot)).collect();
        loop {
            let now = Instant::now();
            let window = self.state.borrow().window;
            let wait = (window.stop_at).map_or(MAX_WAIT, |stop| {
                stop.saturating_duration_since(now).min(MAX_WAIT)
            });
            if let Ok(None) = timeout(wait, tasks.next()).await {
                break;
            }
            let now = Instant::now();
            let state = &mut *self.state.borrow_mut();
            if !measuring && now >= state.window.measure_from {
                measuring = true;
                usage = Usage::begin();
            }
            if stop_flag.load(Ordering::Relaxed) {
                state.tally.interrupted = true;
                state.window.cut(now);
            }
            if state.window.is_over(now) {
                break;
            }
            if let Some(publisher) = &mut publisher {
                publisher.publish(now, &state.tally);
            }
        }
        let now = Instant::now();
        let state = &mut *self.state.borrow_mut();
        if state.window.is_over(now) {
            state.supply.stop(now, &state.window, &mut state.tally);
            for slot in 0..slots {
                state.settle(slot, now, &Answer::failed(Outcome::AbortedAtDeadline));
            }
        }
        usage.end_of_tasks()
    }

    /// One attempt after the other, until there are no more.
    async fn work(&self, slot: usize) {
        let mut failures = 0;
        while self.next(slot).await {
            // An attempt that cannot connect is over; its time limit has not begun.
            let sender = match timeout(self.plan.connect_timeout, self.sender(slot)).await {
                Ok(Ok(sender)) => sender,
                Ok(Err(outcome)) => {
                    self.settle(slot, &Answer::failed(outcome));
                    sleep(backoff(failures)).await;
                    failures += 1;
                    continue;
                }
                Err(_) => {
                    self.settle(slot, &Answer::failed(Outcome::ConnectTimeout));
                    continue;
                }
            };
            let Some((deadline, request, digest)) = self.begin(slot) else {
                return;
            };
            let answer = timeout_at(deadline.into(), self.exchange(sender, request, digest)).await;
            let answer = answer.unwrap_or_else(|_| Answer::failed(Outcome::RequestTimeout));
            if digest {
                self.state.borrow_mut().is_hashing = false;
            }
            let is_response = answer.outcome.is_response();
            self.settle(slot, &answer);
            if is_response {
                failures = 0;
            } else if answer.outcome != Outcome::RequestTimeout {
                sleep(backoff(failures)).await;
                failures += 1;
            }
        }
    }

    /// Waits for the next attempt; false if there is none.
    async fn next(&self, slot: usize) -> bool {
        let mut leads = false;
        loop {
            let now = Instant::now();
            let until = {
                let state = &mut *self.state.borrow_mut();
                state.is_led &= !leads;
                state.supply.count_due(now, &state.window, &mut state.tally);
                if let Some(Begun { measured, intended }) =
                    state.supply.next(now, &state.window, &mut state.tally)
                {
                    let request = state.next_request;
                    state.next_request = (request + 1) % self.plan.requests.len();
                    state.attempts[slot] = Some(Attempt {
                        measured,
                        intended,
                        sent: None,
                        first_byte: None,
                        resent: false,
                        request,
                    });
                    // More may be due, and somebody else has to watch the clock.
                    self.due.notify_one();
                    return true;
                }
                let Some(due) = state.supply.next_due(now) else {
                    self.due.notify_one();
                    return false;
                };
                leads = !state.is_led;
                state.is_led = true;
                leads.then_some(due)
            };
            match until {
                Some(due) => drop(timeout_at(due.into(), self.due.notified()).await),
                None => self.due.notified().await,
            }
        }
    }

    /// A connection that can take a request.
    async fn sender(&self, slot: usize) -> Result<Sender<'_>, Outcome> {
        let (http2, senders) = match self.library {
            Library::Http2(http2, senders) => (http2, senders),
            Library::Reqwest(client) => return Ok(Sender::Reqwest(client)),
        };
        let shared = &senders[slot / self.plan.client.streams()];
        let mut shared = shared.lock().await;
        if let Some(sender) = &mut *shared
            && sender.ready().await.is_ok()
        {
            return Ok(Sender::Http2(sender.clone()));
        }
        let began = Instant::now();
        let sender = http2.connect(&self.plan.target).await?;
        self.state.borrow_mut().tally.connected(began);
        Ok(Sender::Http2(shared.insert(sender).clone()))
    }

    /// Counts the send; its deadline, the request, and whether to hash the answer.
    fn begin(&self, slot: usize) -> Option<(Instant, Message, bool)> {
        let now = Instant::now();
        let state = &mut *self.state.borrow_mut();
        let mut attempt = state.attempts[slot]?;
        // An attempt that connected in the warm-up is measured if it sends after it.
        if !attempt.measured && attempt.intended.is_none() && now >= state.window.measure_from {
            if !state.supply.claim(now, &state.window, &mut state.tally) {
                state.attempts[slot] = None;
                return None;
            }
            attempt.measured = true;
        }
        attempt.sent = Some(now);
        if attempt.measured {
            state.tally.sent(now, attempt.intended);
        }
        state.attempts[slot] = Some(attempt);
        let request = match &self.messages[attempt.request] {
            Some(message) => message.clone(),
            None => {
                let template = &self.plan.requests[attempt.request];
                let mut bytes = template.bytes.clone();
                template.fill(&mut bytes, &mut state.values);
                message(&self.plan.target, &bytes).expect("slots hold digits only")
            }
        };
        // One at a time: hashing a large body takes longer than anything that is measured.
        let digest = attempt.measured && state.tally.first_response.is_none() && !state.is_hashing;
        state.is_hashing |= digest;
        Some((now + self.plan.request_timeout, request, digest))
    }

    async fn exchange(&self, sender: Sender<'_>, request: Message, digest: bool) -> Answer {
        let plan = self.plan;
        let is_head = request.method() == http::Method::HEAD;
        let mut check = BodyCheck::new();
        check.start(plan.expect.body.as_ref(), digest);
        let result = match sender {
            Sender::Http2(mut sender) => {
                exchange_http2(&mut sender, request, plan, &mut check).await
            }
            Sender::Reqwest(client) => exchange_reqwest(client, request, plan, &mut check).await,
        };
        let Received { status, head_at } = match result {
            Ok(found) => found,
            Err(outcome) => {
                return Answer {
                    bytes: check.length(),
                    ..Answer::failed(outcome)
                };
            }
        };
        let outcome = match plan.expect.judge_status(status) {
            Outcome::Ok if !is_head => check.judge(plan.expect.body.as_ref()),
            outcome => outcome,
        };
        Answer {
            outcome,
            status,
            bytes: check.length(),
            sampled: check.is_sampled(),
            head_at: Some(head_at),
            digest: check.sha256().map(|body_sha256| ResponseDigest {
                status,
                body_len: check.length(),
                body_sha256,
            }),
        }
    }

    fn settle(&self, slot: usize, answer: &Answer) {
        self.state.borrow_mut().settle(slot, Instant::now(), answer);
    }
}

impl State {
    /// Counts the end of an attempt.
    fn settle(&mut self, slot: usize, now: Instant, answer: &Answer) {
        let Some(attempt) = self.attempts[slot]
            .take()
            .filter(|attempt| attempt.measured)
        else {
            return;
        };
        let over = self.window.is_over(now);
        let outcome = match attempt.sent {
            None if over => Outcome::NotSent,
            Some(_) if over => Outcome::AbortedAtDeadline,
            // It may have become whole just before the timer was looked at.
            Some(sent) if answer.outcome.is_response() && now > sent + self.request_timeout => {
                Outcome::RequestTimeout
            }
            _ => answer.outcome,
        };
        self.tally.settle(&Ended {
            outcome,
            at: now,
            sent: attempt.sent,
            intended: attempt.intended,
            first_byte: answer.head_at,
            bytes_received: answer.bytes,
            status: answer.status,
            sampled: answer.sampled,
            response: answer.digest,
        });
    }
}

impl Answer {
    const fn failed(outcome: Outcome) -> Self {
        Self {
            outcome,
            status: 0,
            bytes: 0,
            sampled: false,
            head_at: None,
            digest: None,
        }
    }
}
