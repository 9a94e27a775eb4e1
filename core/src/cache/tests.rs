//! Cached routes driven by hand: who computes, who waits, what is kept.

use std::future::Future as _;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Waker};

use http::Uri;
use http::header::{AGE, CACHE_CONTROL, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use proptest::prelude::*;
use tokio::sync::Semaphore;

use super::*;
use crate::handler::inline;

const LONG: Duration = Duration::from_hours(1);

fn request(
    method: Method,
    target: &'static str,
    lines: &[(&'static str, &'static str)],
) -> Request {
    let mut request = Request::new(method, Uri::from_static(target), Body::empty());
    for (name, value) in lines {
        let value = HeaderValue::from_static(value);
        request.headers_mut().append(*name, value);
    }
    request
}

/// A call that has begun: answered, or with its future.
struct Call {
    response: Option<Response>,
    slot: FutureSlot,
}

impl Call {
    fn begin(handler: &impl Handler, request: Request) -> Self {
        let mut slot = FutureSlot::new();
        let response = handler.call(request, &mut slot);
        Self { response, slot }
    }

    fn poll(&mut self) -> Poll<Response> {
        if let Some(response) = self.response.take() {
            return Poll::Ready(response);
        }
        self.slot.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[track_caller]
    fn finish(mut self) -> Response {
        for _ in 0..10 {
            if let Poll::Ready(response) = self.poll() {
                return response;
            }
        }
        panic!("the call waits for something");
    }
}

#[track_caller]
fn ask(handler: &impl Handler, method: Method, lines: &[(&'static str, &'static str)]) -> Response {
    Call::begin(handler, request(method, "/", lines)).finish()
}

#[track_caller]
fn get(handler: &impl Handler) -> Response {
    ask(handler, Method::GET, &[])
}

fn text(response: Response) -> String {
    let mut future = std::pin::pin!(response.into_body().bytes());
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(bytes) => String::from_utf8(bytes.expect("a body").to_vec()).expect("text"),
        Poll::Pending => panic!("the body waits for something"),
    }
}

/// A handler that numbers its answers, and the cache it is in.
fn numbered(
    policy: CachePolicy,
    change: impl Fn(Response) -> Response + Send + Sync + 'static,
) -> (ResponseCache, impl Handler) {
    let cache = ResponseCache::new(CacheLimits::default());
    let counter = AtomicUsize::new(0);
    let handler = inline(move |_: Request| {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        change(Response::text(format!("answer {number}")))
    });
    let route = cache.route(policy, handler);
    (cache, route)
}

#[test]
fn the_second_request_is_answered_from_the_store() {
    let (cache, route) = numbered(CachePolicy::new(LONG), |response| response);
    let first = get(&route);
    assert!(!first.headers().contains_key(AGE));
    let second = get(&route);
    assert_eq!(second.headers()[AGE], "0");
    assert_eq!(first.headers()[ETAG], second.headers()[ETAG]);
    assert_eq!(
        (text(first), text(second)),
        ("answer 0".into(), "answer 0".into())
    );
    let counts = cache.counts();
    assert_eq!((counts.misses, counts.hits, counts.entries), (1, 1, 1));
    cache.clear();
    assert_eq!(text(get(&route)), "answer 1");
}

#[test]
fn the_key_tells_requests_apart() {
    let policy = CachePolicy::new(LONG).vary([http::header::ACCEPT]);
    let (_, route) = numbered(policy, |response| response);
    let requests = || {
        let get = Method::GET;
        [
            request(get.clone(), "/a", &[]),
            request(get.clone(), "/b", &[]),
            request(get.clone(), "/a?", &[]),
            request(get.clone(), "/a?x=1", &[]),
            request(get.clone(), "/a?x=2", &[]),
            request(get.clone(), "/a", &[("accept", "text/html")]),
            request(get.clone(), "/a", &[("accept", "text"), ("accept", "html")]),
            request(get.clone(), "/a", &[("host", "one")]),
            request(get.clone(), "/a", &[("host", "two")]),
        ]
    };
    for _ in 0..2 {
        for (number, request) in requests().into_iter().enumerate() {
            let answer = text(Call::begin(&route, request).finish());
            assert_eq!(answer, format!("answer {number}"));
        }
    }
    let other = request(Method::GET, "/a", &[("host", "ONE"), ("cookie", "a")]);
    assert_eq!(text(Call::begin(&route, other).finish()), "answer 7");
}

#[test]
fn routes_of_one_cache_do_not_mix() {
    let cache = ResponseCache::new(CacheLimits::default());
    let one = cache.route(CachePolicy::new(LONG), inline(|_: Request| "one"));
    let two = cache.route(CachePolicy::new(LONG), inline(|_: Request| "two"));
    for _ in 0..2 {
        assert_eq!(text(get(&one)), "one");
        assert_eq!(text(get(&two)), "two");
    }
}

#[test]
fn head_is_served_from_the_entry_of_get_and_makes_none() {
    let (cache, route) = numbered(CachePolicy::new(LONG), |response| response);
    let before = ask(&route, Method::HEAD, &[]);
    assert!(!before.headers().contains_key(AGE));
    assert_eq!(cache.counts().entries, 0);
    assert_eq!(text(get(&route)), "answer 1");
    let after = ask(&route, Method::HEAD, &[]);
    assert_eq!(after.headers()[AGE], "0");
    assert_eq!(text(after), "answer 1");
}

#[test]
fn a_condition_that_holds_is_answered_304_first_time_and_later() {
    let tagged = |response: Response| response.with_header(ETAG, HeaderValue::from_static("\"t\""));
    let (_, route) = numbered(CachePolicy::new(LONG), tagged);
    for method in [Method::GET, Method::GET, Method::HEAD] {
        let answer = ask(&route, method, &[(IF_NONE_MATCH.as_str(), "W/\"t\"")]);
        assert_eq!(answer.status(), 304);
        assert_eq!(answer.headers()[ETAG], "\"t\"");
        assert_eq!(text(answer), "");
    }
    let other = ask(&route, Method::GET, &[(IF_NONE_MATCH.as_str(), "\"u\"")]);
    assert_eq!(text(other), "answer 0");
}

#[test]
fn requests_decide_for_themselves() {
    let (cache, route) = numbered(CachePolicy::new(LONG), |response| response);
    let control = |value| ask(&route, Method::GET, &[(CACHE_CONTROL.as_str(), value)]);
    assert_eq!(control("only-if-cached").status(), 504);
    assert_eq!(text(control("no-store")), "answer 0");
    assert_eq!(cache.counts().entries, 0, "no-store leaves nothing");
    assert_eq!(text(get(&route)), "answer 1");
    assert_eq!(text(control("no-store")), "answer 2");
    assert_eq!(text(control("no-cache")), "answer 3");
    assert_eq!(text(get(&route)), "answer 3", "no-cache replaces the entry");
    assert_eq!(text(control("only-if-cached")), "answer 3");
    assert_eq!(text(control("max-age=100")), "answer 3");
    let bearer = [("authorization", "Bearer a")];
    assert_eq!(text(ask(&route, Method::GET, &bearer)), "answer 4");
    assert_eq!(text(ask(&route, Method::POST, &[])), "answer 5");
    assert_eq!(text(get(&route)), "answer 3");
}

#[test]
fn what_belongs_to_one_client_is_never_stored() {
    for (name, value) in [
        ("set-cookie", "a=b"),
        ("cache-control", "private"),
        ("cache-control", "no-store"),
        ("vary", "cookie"),
    ] {
        let (cache, route) = numbered(CachePolicy::new(LONG), move |response| {
            let name = HeaderName::from_static(name);
            response.with_header(name, HeaderValue::from_static(value))
        });
        for number in 0..3 {
            let answer = get(&route);
            assert_eq!(answer.headers()[name], value);
            assert!(!answer.headers().contains_key(AGE));
            assert_eq!(text(answer), format!("answer {number}"), "{name}");
        }
        assert_eq!((cache.counts().misses, cache.counts().passes), (1, 2));
    }
}

#[test]
fn a_body_of_unknown_length_passes_through() {
    let cache = ResponseCache::new(CacheLimits::default());
    let senders = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&senders);
    let handler = inline(move |_: Request| {
        let (sender, body) = Body::channel(1);
        kept.lock().expect("one thread").push(sender);
        Response::text(body)
    });
    let route = cache.route(CachePolicy::new(LONG), handler);
    // The producer has sent nothing and keeps its end: only the head is there.
    for _ in 0..2 {
        assert_eq!(get(&route).status(), 200);
    }
    assert_eq!(senders.lock().expect("one thread").len(), 2);
}

#[test]
fn a_body_above_the_limit_is_not_kept() {
    let limits = CacheLimits {
        max_entry_bytes: 8,
        ..CacheLimits::default()
    };
    let cache = ResponseCache::new(limits);
    let route =
        |body: &'static str| cache.route(CachePolicy::new(LONG), inline(move |_: Request| body));
    assert_eq!(text(get(&route("123456789"))), "123456789");
    let kept = route("12345678");
    get(&kept);
    assert_eq!(get(&kept).headers()[AGE], "0");
}

/// A handler that waits for a permit, then numbers its answers.
fn gated(
    status: StatusCode,
) -> (
    ResponseCache,
    Arc<Semaphore>,
    Arc<AtomicUsize>,
    impl Handler,
) {
    let cache = ResponseCache::new(CacheLimits::default());
    let gate = Arc::new(Semaphore::new(0));
    let counter = Arc::new(AtomicUsize::new(0));
    let (opened, counted) = (Arc::clone(&gate), Arc::clone(&counter));
    let handler = move |_: Request| {
        let gate = Arc::clone(&opened);
        let number = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            gate.acquire().await.expect("an open semaphore").forget();
            Response::text(format!("answer {number}")).with_status(status)
        }
    };
    let route = cache.route(CachePolicy::new(LONG), handler);
    (cache, gate, counter, route)
}

fn stampede(route: &impl Handler) -> Vec<Call> {
    let mut calls: Vec<_> = (0..10)
        .map(|_| Call::begin(route, request(Method::GET, "/", &[])))
        .collect();
    for call in &mut calls {
        assert!(call.poll().is_pending());
    }
    calls
}

#[test]
fn a_stampede_computes_once() {
    let (cache, gate, counter, route) = gated(StatusCode::OK);
    let calls = stampede(&route);
    gate.add_permits(1);
    for call in calls {
        assert_eq!(text(call.finish()), "answer 0");
    }
    assert_eq!(counter.load(Ordering::Relaxed), 1);
    let counts = cache.counts();
    assert_eq!((counts.misses, counts.collapsed), (1, 9));
}

#[test]
fn a_failure_is_shared_and_not_kept() {
    let (cache, gate, counter, route) = gated(StatusCode::SERVICE_UNAVAILABLE);
    let calls = stampede(&route);
    gate.add_permits(1);
    for call in calls {
        assert_eq!(call.finish().status(), 503);
    }
    assert_eq!(
        (counter.load(Ordering::Relaxed), cache.counts().entries),
        (1, 0)
    );
    gate.add_permits(1);
    assert_eq!(text(get(&route)), "answer 1");
}

#[test]
fn the_next_takes_over_from_one_that_leaves() {
    let (_, gate, counter, route) = gated(StatusCode::OK);
    let mut calls = stampede(&route);
    for leader in 0..3 {
        assert_eq!(counter.load(Ordering::Relaxed), leader + 1);
        drop(calls.remove(0));
        for call in &mut calls {
            assert!(call.poll().is_pending());
        }
    }
    gate.add_permits(1);
    for call in calls {
        assert_eq!(text(call.finish()), "answer 3");
    }
    assert_eq!(counter.load(Ordering::Relaxed), 4);
}

#[test]
fn a_panic_of_the_maker_leaves_no_duty_behind() {
    let cache = ResponseCache::new(CacheLimits::default());
    let fails = std::sync::atomic::AtomicBool::new(true);
    let handler = inline(move |_: Request| {
        assert!(!fails.swap(false, Ordering::Relaxed), "the first fails");
        "well"
    });
    let route = cache.route(CachePolicy::new(LONG), handler);
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| get(&route)));
    assert!(panics.is_err());
    assert_eq!(text(get(&route)), "well");
}

#[test]
fn a_stale_entry_is_given_out_while_one_request_replaces_it() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        // Stale a nanosecond after it was made.
        let policy = CachePolicy::new(Duration::from_nanos(1)).stale_while_revalidate(LONG);
        let (cache, route) = numbered(policy, |response| response);
        assert_eq!(text(get(&route)), "answer 0");
        for _ in 0..5 {
            assert_eq!(text(get(&route)), "answer 0");
        }
        tokio::task::yield_now().await;
        assert_eq!(text(get(&route)), "answer 1", "one request replaced it");
        let counts = cache.counts();
        assert_eq!((counts.stale_hits, counts.misses), (6, 1));
    });
}

fn stored(store: &Arc<Store>, key: &[u8], length: usize, now: Instant) {
    let control = RequestControl {
        no_cache: true,
        ..RequestControl::default()
    };
    let Found::Nothing(lead) = store.look_up(key, control, now) else {
        panic!("nobody else is making it");
    };
    let life = control::Lifetime {
        age: Duration::ZERO,
        fresh_for: LONG,
        stale_for: Duration::ZERO,
    };
    let body = Bytes::from(vec![0; length]);
    let entry = Entry::new(StatusCode::OK, HeaderMap::new(), body, life, false, now);
    lead.store(&Arc::new(entry));
}

proptest! {
    #[test]
    fn entries_and_bytes_stay_below_their_limits(
        operations in prop::collection::vec((any::<u8>(), 0_usize..3000, any::<bool>()), 1..200),
    ) {
        let limits = CacheLimits {
            max_entries: 5,
            max_bytes: 6000,
            max_entry_bytes: 3000,
        };
        let store = Arc::new(Store::new(limits));
        let now = Instant::now();
        // The model: keys from the least to the most recently used.
        let mut used: Vec<u8> = Vec::new();
        for (key, length, writes) in operations {
            let key = key % 12;
            if writes {
                stored(&store, &[key], length, now);
                used.retain(|other| *other != key);
                used.push(key);
            } else if store.peek(&[key], RequestControl::default(), now).is_some() {
                prop_assert!(used.contains(&key));
                used.retain(|other| *other != key);
                used.push(key);
            } else {
                prop_assert!(!used.contains(&key));
            }
            let counts = store.counts();
            prop_assert!(counts.entries <= 5 && counts.bytes <= 6000);
            // What was dropped is what was used longest ago.
            used.drain(..used.len() - counts.entries as usize);
        }
        store.clear();
        prop_assert_eq!(store.counts().bytes, 0);
    }
}

#[test]
fn memory_that_was_counted_is_given_back() {
    let store = Arc::new(Store::new(CacheLimits::default()));
    let now = Instant::now();
    stored(&store, b"key", 100, now);
    let once = store.counts().bytes;
    stored(&store, b"key", 100, now);
    assert_eq!(store.counts().bytes, once, "replaced, not added");
    let (entry, found) = match store.look_up(b"key", RequestControl::default(), now) {
        Found::Fresh(entry) => (entry, true),
        _ => panic!("it was stored"),
    };
    assert!(found && entry.is_fresh(now));
    let later = now + 2 * LONG;
    let found = store.look_up(b"key", RequestControl::default(), later);
    assert!(matches!(found, Found::Nothing(_)), "it is too old");
}

#[test]
fn a_pass_ends_after_its_time() {
    let store = Arc::new(Store::new(CacheLimits::default()));
    let now = Instant::now();
    let control = RequestControl::default();
    let Found::Nothing(lead) = store.look_up(b"key", control, now) else {
        panic!("an empty store");
    };
    lead.pass(now);
    assert!(matches!(store.look_up(b"key", control, now), Found::Pass));
    let later = now + Duration::from_secs(11);
    assert!(matches!(
        store.look_up(b"key", control, later),
        Found::Nothing(_)
    ));
}
