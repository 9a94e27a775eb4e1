//! The stored responses of all routes, and who is making one right now.
//!
//! Guarantees: entries and bytes stay below their limits, the least recently
//! used goes first; for one key at most one request makes a response while
//! the others wait, and a maker that goes away lets the next one begin.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use tokio::sync::watch;

use super::coded::Form;
use super::control::RequestControl;
use super::entry::Entry;
use super::{CacheCounts, CacheLimits};
use crate::compression::Coding;

/// How long a key whose response could not be stored is not waited for: until
/// then every request makes its own, as without a cache.
const PASS_TIME: Duration = Duration::from_secs(10);

/// Bytes that an entry takes besides key and response.
const SLOT_BYTES: usize = 128;

type Key = Box<[u8]>;

/// Stored responses with their limits and counters.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) limits: CacheLimits,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    slots: LruCache<Key, Slot>,
    num_bytes: usize,
    flights: HashMap<Key, watch::Receiver<Outcome>>,
    counts: CacheCounts,
}

#[derive(Debug)]
enum Slot {
    Entry(Arc<Entry>),
    /// The last response could not be stored.
    Pass {
        until: Instant,
    },
}

impl Slot {
    fn num_bytes(&self, key: &[u8]) -> usize {
        let entry = match self {
            Self::Entry(entry) => entry.num_bytes(),
            Self::Pass { .. } => 0,
        };
        // The list and the table each hold the key's place.
        SLOT_BYTES + key.len() + entry
    }
}

/// What became of a response that others waited for.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    Pending,
    /// Here it is.
    Made(Arc<Entry>),
    /// It cannot be shared: make your own.
    Private,
}

/// What a look-up found.
#[derive(Debug)]
pub(super) enum Found {
    /// A response that is still fresh.
    Fresh(Arc<Entry>),
    /// One that may be given out while the holder of the lead makes another.
    Stale(Arc<Entry>, Option<Lead>),
    /// Nothing, and the caller is the one to make it.
    Nothing(Lead),
    /// Nothing yet, but somebody is making it.
    Soon(watch::Receiver<Outcome>),
    /// Nothing, and it is not worth waiting for.
    Pass,
}

impl Store {
    pub(super) fn new(limits: CacheLimits) -> Self {
        Self {
            limits,
            state: Mutex::new(State {
                slots: LruCache::unbounded(),
                num_bytes: 0,
                flights: HashMap::new(),
                counts: CacheCounts::default(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks a GET up, and counts what was found.
    pub(super) fn look_up(
        self: &Arc<Self>,
        key: &[u8],
        control: RequestControl,
        now: Instant,
    ) -> Found {
        let mut state = self.state();
        let found = match state.slots.get(key) {
            Some(Slot::Entry(entry)) if is_wanted(entry, control, now) => Some(Arc::clone(entry)),
            Some(Slot::Pass { until }) if now < *until => {
                state.counts.passes += 1;
                return Found::Pass;
            }
            _ => None,
        };
        if let Some(entry) = found {
            if entry.is_fresh(now) {
                state.counts.hits += 1;
                return Found::Fresh(entry);
            }
            state.counts.stale_hits += 1;
            let is_led = state.flights.contains_key(key);
            let lead = (!is_led).then(|| self.lead(&mut state, key));
            return Found::Stale(entry, lead);
        }
        if let Some(flight) = state.flights.get(key) {
            let flight = flight.clone();
            state.counts.collapsed += 1;
            return Found::Soon(flight);
        }
        state.counts.misses += 1;
        Found::Nothing(self.lead(&mut state, key))
    }

    /// Looks up for a request that cannot make an entry; only what is stored.
    pub(super) fn peek(
        &self,
        key: &[u8],
        control: RequestControl,
        now: Instant,
    ) -> Option<Arc<Entry>> {
        let mut state = self.state();
        let found = match state.slots.get(key) {
            Some(Slot::Entry(entry)) if is_wanted(entry, control, now) => Some(Arc::clone(entry)),
            _ => None,
        };
        match &found {
            Some(entry) if entry.is_fresh(now) => state.counts.hits += 1,
            Some(_) => state.counts.stale_hits += 1,
            None => state.counts.misses += 1,
        }
        found
    }

    /// Keeps a compressed form of an entry, if that is still what is stored.
    pub(super) fn keep_form(&self, key: &[u8], entry: &Arc<Entry>, coding: Coding, form: Form) {
        let mut state = self.state();
        let Some(slot) = state.slots.peek(key) else {
            return;
        };
        let size = form.num_bytes();
        let is_stored = matches!(slot, Slot::Entry(stored) if Arc::ptr_eq(stored, entry));
        // One that has no room for itself must not push out its own entry.
        let has_room = slot.num_bytes(key) + size <= self.limits.max_bytes;
        // Under the lock, so that the sum counts it exactly while it is there.
        if is_stored && has_room && entry.forms().keep(coding, form) {
            state.num_bytes += size;
            state.counts.compressed += 1;
            // Most recently used, so that it is the last to go.
            state.slots.promote(key);
            state.make_room(&self.limits);
        }
    }

    /// Counts a request that the cache was not used for.
    pub(super) fn count_bypass(&self) {
        self.state().counts.passes += 1;
    }

    /// Counters, and what is stored now.
    pub(super) fn counts(&self) -> CacheCounts {
        let state = self.state();
        CacheCounts {
            entries: state.slots.len() as u64,
            bytes: state.num_bytes as u64,
            ..state.counts
        }
    }

    /// Forgets every stored response.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        state.slots.clear();
        state.num_bytes = 0;
    }

    fn lead(self: &Arc<Self>, state: &mut State, key: &[u8]) -> Lead {
        let (sender, receiver) = watch::channel(Outcome::Pending);
        state.flights.insert(key.into(), receiver);
        Lead {
            store: Arc::clone(self),
            key: key.into(),
            sender,
        }
    }
}

fn is_wanted(entry: &Entry, control: RequestControl, now: Instant) -> bool {
    !control.no_cache
        && entry.is_servable(now)
        && control.max_age.is_none_or(|most| entry.age(now) <= most)
}

impl State {
    fn insert(&mut self, limits: &CacheLimits, key: Key, slot: Slot) {
        let size = slot.num_bytes(&key);
        self.remove(&key);
        if size > limits.max_bytes {
            return;
        }
        self.num_bytes += size;
        self.slots.put(key, slot);
        self.make_room(limits);
    }

    fn make_room(&mut self, limits: &CacheLimits) {
        while self.slots.len() > limits.max_entries || self.num_bytes > limits.max_bytes {
            let Some((key, slot)) = self.slots.pop_lru() else {
                break;
            };
            self.num_bytes -= slot.num_bytes(&key);
            self.counts.evictions += 1;
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some((key, slot)) = self.slots.pop_entry(key) {
            self.num_bytes -= slot.num_bytes(&key);
        }
    }
}

/// The duty to make the response of one key.
///
/// Dropped without an outcome, it lets one of those who wait take over.
#[derive(Debug)]
pub(super) struct Lead {
    store: Arc<Store>,
    key: Key,
    sender: watch::Sender<Outcome>,
}

impl Lead {
    /// Most body bytes that are worth keeping.
    pub(super) fn max_entry_bytes(&self) -> usize {
        self.store.limits.max_entry_bytes
    }

    /// The key whose response it makes.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Stores the response and gives it to all who wait.
    pub(super) fn store(self, entry: &Arc<Entry>) {
        let slot = Slot::Entry(Arc::clone(entry));
        let key = self.key.clone();
        self.store.state().insert(&self.store.limits, key, slot);
        self.end(Outcome::Made(Arc::clone(entry)));
    }

    /// Gives the response to all who wait, and keeps what was stored.
    pub(super) fn share(self, entry: &Arc<Entry>) {
        self.end(Outcome::Made(Arc::clone(entry)));
    }

    /// Tells all who wait, and who will come, to make their own.
    pub(super) fn pass(self, now: Instant) {
        let until = now + PASS_TIME;
        let key = self.key.clone();
        let slot = Slot::Pass { until };
        self.store.state().insert(&self.store.limits, key, slot);
        self.end(Outcome::Private);
    }

    fn end(self, outcome: Outcome) {
        // Before the flight is taken from the list by the drop below: who
        // comes in between still finds the outcome.
        self.sender.send_replace(outcome);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.store.state().flights.remove(&self.key);
    }
}
