//! A response cache for routes that ask for it (RFC 9111, as a shared cache).
//!
//! Guarantees: a response is stored only when it may be given to anybody; a
//! stampede on one key makes one response; memory stays below its limits. A
//! request that the cache has nothing to do with costs what it cost before.

mod coded;
mod control;
mod entry;
mod store;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{HOST, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use http_body::Body as _;
use smallvec::SmallVec;
use tokio::sync::watch;

use self::coded::Wish;
use self::control::{RequestControl, is_shareable, lifetime};
use self::entry::{Conditions, Entry};
use self::store::{Found, Lead, Outcome, Store};
use crate::body::Body;
use crate::handler::{FutureSlot, Handler};
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse as _, Response};

/// Entries of one cache: more than the hot set of most APIs.
pub const MAX_CACHE_ENTRIES: usize = 10_000;
/// Memory of one cache, with keys and headers.
pub const MAX_CACHE_BYTES: usize = 64 * 1024 * 1024;
/// Largest body worth keeping: one must not push out everything else.
pub const MAX_CACHE_ENTRY_BYTES: usize = 1024 * 1024;
/// Longest time that a stale entry is being replaced before another request
/// may try.
const REVALIDATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Bounds of a [`ResponseCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// See [`MAX_CACHE_ENTRIES`].
    pub max_entries: usize,
    /// See [`MAX_CACHE_BYTES`].
    pub max_bytes: usize,
    /// See [`MAX_CACHE_ENTRY_BYTES`].
    pub max_entry_bytes: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self {
            max_entries: MAX_CACHE_ENTRIES,
            max_bytes: MAX_CACHE_BYTES,
            max_entry_bytes: MAX_CACHE_ENTRY_BYTES,
        }
    }
}

/// What a cache has done, and what it holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Requests answered with a fresh entry.
    pub hits: u64,
    /// Requests answered with an entry that was being replaced.
    pub stale_hits: u64,
    /// Requests that made a response.
    pub misses: u64,
    /// Requests that waited for another one's response.
    pub collapsed: u64,
    /// Requests that the cache was not used for.
    pub passes: u64,
    /// Bodies that were compressed to be kept beside their entry.
    pub compressed: u64,
    /// Entries that made room.
    pub evictions: u64,
    /// Entries now.
    pub entries: u64,
    /// Bytes now.
    pub bytes: u64,
}

/// How the responses of one route are cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePolicy {
    ttl: Duration,
    stale_while_revalidate: Duration,
    etag: bool,
    vary: Vec<HeaderName>,
}

impl CachePolicy {
    /// Keeps responses for `ttl`, unless their `Cache-Control` says otherwise.
    pub const fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            stale_while_revalidate: Duration::ZERO,
            etag: true,
            vary: Vec::new(),
        }
    }

    /// Gives a response out for this long after its time, while one request
    /// makes a new one in the background.
    #[must_use]
    pub const fn stale_while_revalidate(mut self, time: Duration) -> Self {
        self.stale_while_revalidate = time;
        self
    }

    /// Whether a response without an entity tag gets one, made of its bytes.
    #[must_use]
    pub const fn etag(mut self, make: bool) -> Self {
        self.etag = make;
        self
    }

    /// Request headers that tell responses apart.
    ///
    /// A response whose `Vary` names any other header is not stored.
    #[must_use]
    pub fn vary(mut self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        self.vary = headers.into_iter().collect();
        self
    }
}

/// Stored responses, shared by the routes and lanes that use it.
///
/// ```
/// use std::time::Duration;
/// use justapi_core::{CacheLimits, CachePolicy, Request, ResponseCache, Router, inline};
///
/// # fn main() -> Result<(), justapi_core::Error> {
/// let cache = ResponseCache::new(CacheLimits::default());
/// let policy = CachePolicy::new(Duration::from_secs(5));
/// let slow = inline(|_: Request| "took a while");
/// let router = Router::new().get("/report", cache.route(policy, slow))?;
/// # drop(router);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ResponseCache(Arc<Store>);

impl ResponseCache {
    /// An empty cache.
    pub fn new(limits: CacheLimits) -> Self {
        Self(Arc::new(Store::new(limits)))
    }

    /// Wraps the handler of a GET route.
    ///
    /// The key is route, host, path, query and the headers of
    /// [`CachePolicy::vary`]. Not cached: other methods, requests with a body,
    /// `Range` or `Authorization`, and responses whose length is not known
    /// beforehand, which pass through as they come.
    pub fn route<H: Handler>(&self, policy: CachePolicy, handler: H) -> Cached<H> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Cached(Arc::new(CachedRoute {
            store: Arc::clone(&self.0),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            policy,
            handler,
        }))
    }

    /// Counters, and what is stored now.
    pub fn counts(&self) -> CacheCounts {
        self.0.counts()
    }

    /// Forgets every stored response.
    pub fn clear(&self) {
        self.0.clear();
    }
}

/// A handler behind a cache, made by [`ResponseCache::route`].
pub struct Cached<H>(Arc<CachedRoute<H>>);

struct CachedRoute<H> {
    store: Arc<Store>,
    /// Tells the routes of a cache apart.
    number: u32,
    policy: CachePolicy,
    handler: H,
}

impl<H> fmt::Debug for Cached<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached")
            .field("policy", &self.0.policy)
            .finish_non_exhaustive()
    }
}

impl<H: Handler> Handler for Cached<H> {
    fn call(&self, mut request: Request, slot: &mut FutureSlot) -> Option<Response> {
        let route = &*self.0;
        let Some(control) = RequestControl::of(&mut request, &route.policy) else {
            route.store.count_bypass();
            return route.handler.call(request, slot);
        };
        let key = route.key(&request);
        let now = Instant::now();
        let wish = Wish::of(&request);
        if request.method() == Method::HEAD || control.only_if_cached {
            return match route.store.peek(&key, control, now) {
                Some(entry) => Some(route.stored(&key, &entry, &request, wish, now)),
                None if control.only_if_cached => {
                    let problem = Problem::new(StatusCode::GATEWAY_TIMEOUT);
                    Some(problem.with_detail("nothing is cached").into_response())
                }
                None => route.handler.call(request, slot),
            };
        }
        match route.store.look_up(&key, control, now) {
            Found::Fresh(entry) => Some(route.stored(&key, &entry, &request, wish, now)),
            Found::Stale(entry, lead) => {
                let response = route.stored(&key, &entry, &request, wish, now);
                if let Some(lead) = lead {
                    self.revalidate(request, lead);
                }
                Some(response)
            }
            Found::Pass => route.handler.call(request, slot),
            Found::Nothing(lead) => self.0.make(request, lead, wish, slot),
            Found::Soon(flight) => {
                slot.set(follow(Arc::clone(&self.0), request, key, control, flight));
                None
            }
        }
    }
}

impl<H: Handler> Cached<H> {
    /// Makes a new entry on this lane while the client has the old one.
    fn revalidate(&self, request: Request, lead: Lead) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let route = Arc::clone(&self.0);
        drop(runtime.spawn(async move {
            let wish = Wish::of(&request);
            let made = route.make_later(request, lead, wish);
            // Nobody waits for it: what counts is in the store.
            drop(tokio::time::timeout(REVALIDATION_TIMEOUT, made).await);
        }));
    }
}

type KeyBuffer = SmallVec<[u8; 256]>;

impl<H: Handler> CachedRoute<H> {
    /// The parts of the key, each ended by a byte that none of them can hold.
    fn key(&self, request: &Request) -> KeyBuffer {
        let mut key = KeyBuffer::new();
        key.extend_from_slice(&self.number.to_le_bytes());
        let authority = request
            .uri()
            .authority()
            .map(|name| name.as_str().as_bytes());
        let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
        let host = authority.or(host).unwrap_or_default();
        key.extend(host.iter().map(u8::to_ascii_lowercase));
        key.push(0);
        key.extend_from_slice(request.path().as_bytes());
        if let Some(query) = request.query() {
            key.push(b'?');
            key.extend_from_slice(query.as_bytes());
        }
        for name in &self.policy.vary {
            key.push(0);
            for value in request.headers().get_all(name) {
                key.extend_from_slice(value.as_bytes());
                key.push(b'\n');
            }
        }
        key
    }

    /// Makes the response of a key, at once where the handler does.
    fn make(
        self: &Arc<Self>,
        mut request: Request,
        lead: Lead,
        wish: Wish,
        slot: &mut FutureSlot,
    ) -> Option<Response> {
        let conditions = Conditions::take(request.headers_mut());
        let mut work = FutureSlot::new();
        match self.handler.call(request, &mut work) {
            Some(response) if response.body().as_full().is_some() => {
                let (response, body) = take_body(response);
                let bytes = body.as_full().cloned().unwrap_or_default();
                Some(self.settle(response, bytes, lead, &conditions, wish))
            }
            at_once => {
                let route = Arc::clone(self);
                slot.set(async move {
                    let response = match at_once {
                        Some(response) => response,
                        None => poll_fn(|cx| work.poll(cx)).await,
                    };
                    route.collect(response, lead, &conditions, wish).await
                });
                None
            }
        }
    }

    async fn make_later(self: Arc<Self>, request: Request, lead: Lead, wish: Wish) -> Response {
        let mut slot = FutureSlot::new();
        match self.make(request, lead, wish, &mut slot) {
            Some(response) => response,
            None => poll_fn(|cx| slot.poll(cx)).await,
        }
    }

    /// Reads the body, if it is one that can be kept.
    async fn collect(
        &self,
        response: Response,
        lead: Lead,
        conditions: &Conditions,
        wish: Wish,
    ) -> Response {
        let size = response.body().size_hint().exact();
        if size.is_none_or(|size| size > lead.max_entry_bytes() as u64) {
            lead.pass(Instant::now());
            return response;
        }
        let (response, body) = take_body(response);
        match body.bytes().await {
            Ok(bytes) => self.settle(response, bytes, lead, conditions, wish),
            Err(error) => error.into_response(),
        }
    }

    /// Stores or shares what was made, and answers the request that made it.
    fn settle(
        &self,
        response: Response,
        body: Bytes,
        lead: Lead,
        conditions: &Conditions,
        wish: Wish,
    ) -> Response {
        let now = Instant::now();
        let status = response.status();
        let life = lifetime(status, response.headers(), &self.policy)
            .filter(|_| body.len() <= lead.max_entry_bytes());
        // A failure is not kept, but those who waited for it need not repeat it.
        let is_failure = status.is_server_error() && is_shareable(response.headers(), &self.policy);
        if life.is_none() && !is_failure {
            lead.pass(now);
            return response.with_body(body);
        }
        let headers = response.headers().clone();
        let keep = life.unwrap_or(control::Lifetime {
            age: Duration::ZERO,
            fresh_for: Duration::ZERO,
            stale_for: Duration::ZERO,
        });
        let entry = Entry::new(status, headers, body, keep, self.policy.etag, now);
        let entry = Arc::new(entry);
        let answer = entry.answer(conditions, None);
        if life.is_none() {
            lead.share(&entry);
            return answer;
        }
        let key = KeyBuffer::from_slice(lead.key());
        lead.store(&entry);
        wish.grant(&self.store, &key, &entry, answer)
    }

    fn stored(
        &self,
        key: &[u8],
        entry: &Arc<Entry>,
        request: &Request,
        wish: Wish,
        now: Instant,
    ) -> Response {
        let (conditions, age) = (Conditions::of(request.headers()), Some(entry.age(now)));
        match wish.form_of(entry) {
            Some(form) => entry.answer_in(Some(form), &conditions, age),
            None => {
                let answer = entry.answer(&conditions, age);
                wish.grant(&self.store, key, entry, answer)
            }
        }
    }
}

/// Waits for the one who makes the response, and takes over if it goes away.
async fn follow<H: Handler>(
    route: Arc<CachedRoute<H>>,
    request: Request,
    key: KeyBuffer,
    control: RequestControl,
    mut flight: watch::Receiver<Outcome>,
) -> Response {
    let wish = Wish::of(&request);
    loop {
        let outcome = flight
            .wait_for(|outcome| !matches!(outcome, Outcome::Pending))
            .await
            .map(|outcome| outcome.clone());
        match outcome {
            Ok(Outcome::Made(entry)) => {
                return route.stored(&key, &entry, &request, wish, Instant::now());
            }
            Ok(Outcome::Private | Outcome::Pending) => break,
            // The maker is gone: whoever comes first is the next.
            Err(_) => match route.store.look_up(&key, control, Instant::now()) {
                Found::Soon(next) => flight = next,
                Found::Nothing(lead) | Found::Stale(_, Some(lead)) => {
                    return route.make_later(request, lead, wish).await;
                }
                Found::Fresh(entry) | Found::Stale(entry, None) => {
                    return route.stored(&key, &entry, &request, wish, Instant::now());
                }
                Found::Pass => break,
            },
        }
    }
    let mut slot = FutureSlot::new();
    match route.handler.call(request, &mut slot) {
        Some(response) => response,
        None => poll_fn(|cx| slot.poll(cx)).await,
    }
}

fn take_body(response: Response) -> (Response, Body) {
    let (head, body) = response.into_http().into_parts();
    let head = http::Response::from_parts(head, Body::empty());
    (head.into(), body)
}

#[cfg(test)]
mod tests;
