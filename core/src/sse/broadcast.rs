//! One producer, many clients: each event is encoded once.
//!
//! Guarantees: memory does not depend on the number of clients nor on how far
//! they are behind: all read from one ring of events, and one that falls out
//! of it is cut off or skips. Sending never waits, and wakes each waiting
//! client once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::event::EncodedEvent;
use super::stream::Sse;

/// What becomes of a client for whom events are gone before it took them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lag {
    /// Its stream breaks off: it reconnects, and says what it has seen.
    #[default]
    Close,
    /// It goes on with the oldest event that is kept.
    Skip,
}

/// Sends the same events to many clients.
///
/// Cloning gives another handle to the same clients. When the last one is
/// gone, their streams end.
///
/// ```
/// use justapi_core::{Event, EventBroadcast, Request, Router, inline};
///
/// let prices = EventBroadcast::new(256);
/// let feed = prices.clone();
/// let router = Router::new().get(
///     "/prices",
///     inline(move |request: Request| feed.subscribe(request.last_event_id())),
/// )?;
/// prices.send(Event::new().with_id("1").expect("no line break").with_data("4.50"));
/// # drop(router);
/// # Ok::<(), justapi_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct EventBroadcast {
    owner: Arc<Owner>,
    lag: Lag,
}

impl EventBroadcast {
    /// A broadcast that keeps the last `capacity` events, at least one.
    ///
    /// So far may a client be behind, and so far back may one resume.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let ring = Ring {
            events: VecDeque::with_capacity(capacity),
            capacity,
            next: 0,
            is_closed: false,
            waiting: Vec::new(),
            free: Vec::new(),
        };
        Self {
            owner: Arc::new(Owner(Arc::new(Mutex::new(ring)))),
            lag: Lag::default(),
        }
    }

    /// Replaces what becomes of clients that are too slow; [`Lag::Close`] first.
    #[must_use]
    pub const fn on_lag(mut self, lag: Lag) -> Self {
        self.lag = lag;
        self
    }

    /// Sends to every client; the number of clients that were waiting for it.
    ///
    /// Callable from any thread. An [`Event`](super::Event) is encoded here.
    pub fn send(&self, event: impl Into<EncodedEvent>) -> usize {
        let event = event.into();
        let mut ring = lock(&self.owner.0);
        if ring.events.len() == ring.capacity {
            ring.events.pop_front();
        }
        ring.events.push_back(event);
        ring.next += 1;
        wake(ring)
    }

    /// Number of clients.
    pub fn num_clients(&self) -> usize {
        let ring = lock(&self.owner.0);
        ring.waiting.len() - ring.free.len()
    }

    /// A response with the events from now on.
    ///
    /// With the `Last-Event-ID` of a request it begins behind the event of
    /// that id, if that is still kept; else with the next one.
    pub fn subscribe(&self, last_event_id: Option<&str>) -> Sse {
        Sse::from(self.subscription(last_event_id))
    }

    pub(super) fn subscription(&self, last_event_id: Option<&str>) -> Subscription {
        let shared = Arc::clone(&self.owner.0);
        let mut ring = lock(&shared);
        let num_missed = last_event_id.and_then(|id| {
            let events = ring.events.iter().rev();
            events
                .map(EncodedEvent::id)
                .position(|known| known == Some(id))
        });
        let position = ring.next - num_missed.unwrap_or(0) as u64;
        let index = ring.free.pop().unwrap_or_else(|| {
            ring.waiting.push(None);
            ring.waiting.len() - 1
        });
        drop(ring);
        Subscription {
            ring: shared,
            index,
            position,
            end: None,
            lag: self.lag,
        }
    }

    /// Ends every client's stream once it has taken what was sent.
    pub fn close(&self) {
        close(&self.owner.0);
    }
}

/// Ends the streams when no handle is left.
#[derive(Debug)]
struct Owner(Arc<Mutex<Ring>>);

impl Drop for Owner {
    fn drop(&mut self) {
        close(&self.0);
    }
}

#[derive(Debug)]
struct Ring {
    events: VecDeque<EncodedEvent>,
    capacity: usize,
    /// Number of the next event, from 0; the newest kept is one before.
    next: u64,
    is_closed: bool,
    /// One place for each client: its waker while it waits.
    waiting: Vec<Option<Waker>>,
    /// Places without a client.
    free: Vec<usize>,
}

fn lock(ring: &Mutex<Ring>) -> MutexGuard<'_, Ring> {
    // Nothing below panics half-way: a ring is whole at every moment.
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

fn close(ring: &Mutex<Ring>) {
    let mut ring = lock(ring);
    ring.is_closed = true;
    wake(ring);
}

/// Wakes who waits, after the lock is free again for them.
fn wake(mut ring: MutexGuard<'_, Ring>) -> usize {
    let mut wakers = Vec::with_capacity(ring.waiting.len());
    wakers.extend(ring.waiting.iter_mut().filter_map(Option::take));
    drop(ring);
    let num_woken = wakers.len();
    wakers.into_iter().for_each(Waker::wake);
    num_woken
}

/// The client has fallen out of the ring.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lagged;

/// One client's place in the ring.
#[derive(Debug)]
pub(super) struct Subscription {
    ring: Arc<Mutex<Ring>>,
    /// Its place among those that wait.
    index: usize,
    /// Number of the event that it gets next.
    position: u64,
    /// Number of the first event that it does not get.
    end: Option<u64>,
    lag: Lag,
}

impl Subscription {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Lagged>>> {
        let mut ring = lock(&self.ring);
        let oldest = ring.next - ring.events.len() as u64;
        if self.position < oldest {
            match self.lag {
                Lag::Close => return Poll::Ready(Some(Err(Lagged))),
                Lag::Skip => self.position = oldest,
            }
        }
        if self.end.is_some_and(|end| self.position >= end) {
            return Poll::Ready(None);
        }
        if self.position < ring.next {
            let event = &ring.events[(self.position - oldest) as usize];
            self.position += 1;
            return Poll::Ready(Some(Ok(event.bytes().clone())));
        }
        if ring.is_closed {
            return Poll::Ready(None);
        }
        let place = &mut ring.waiting[self.index];
        match place {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *place = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Ends it behind what has been sent until now.
    pub(super) fn finish(&mut self) {
        self.end = Some(lock(&self.ring).next);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut ring = lock(&self.ring);
        let waker = ring.waiting[self.index].take();
        ring.free.push(self.index);
        drop(ring);
        drop(waker);
    }
}
