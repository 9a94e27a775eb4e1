//! A rate limit for each client, of a server or of a route, by the generic
//! cell rate algorithm (GCRA, ITU-T I.371; the token bucket with one number a
//! client).
//!
//! Guarantees: over all lanes together a client never gets more than its burst
//! plus its rate; clients are IPv4 addresses and IPv6 networks, or what the
//! user's key makes of a request; the memory is bounded whatever the keys are,
//! and what is given up when it is full are those closest to a full bucket.
//! The fields are those of draft-ietf-httpapi-ratelimit-headers-11.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::StatusCode;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};

use crate::error::Error;
use crate::handler::{FutureSlot, Handler};
use crate::limits::Reject;
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse as _, Response};
use crate::validation::Contract;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Clients that are remembered at once; about 3 MiB.
const MAX_CLIENTS: usize = 65_536;
/// Locks, so that lanes seldom meet and a search for room stays short.
const NUM_SHARDS: usize = 64;
/// Longest time from an empty bucket to a full one: 30 days.
const MAX_RECOVERY: Duration = Duration::from_hours(30 * 24);
/// The key of clients without an address: all that use the Unix socket.
const NO_ADDRESS: u128 = u128::MAX;

/// So many requests in so much time; parsed from `100/s`, `60/m` or `1000/h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rate {
    /// Requests in each period, at least one.
    pub requests: u32,
    /// The period, more than zero.
    pub period: Duration,
}

impl FromStr for Rate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected a rate such as 100/s, 60/m or 1000/h";
        let (requests, unit) = text.split_once('/').ok_or(expected)?;
        let period = match unit {
            "s" => Duration::from_secs(1),
            "m" => Duration::from_mins(1),
            "h" => Duration::from_hours(1),
            _ => return Err(expected),
        };
        let is_number = requests.bytes().all(|byte| byte.is_ascii_digit());
        match requests.parse() {
            Ok(requests) if is_number && requests > 0 => Ok(Self { requests, period }),
            _ => Err(expected),
        }
    }
}

/// What a client may do; checked by [`RateLimit::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RateLimitConfig {
    /// Requests over time.
    pub rate: Rate,
    /// Requests that may come at once after a pause, at least one.
    pub burst: u32,
    /// Bits of an IPv6 address that make a client, 1 to 128; 64 by default,
    /// because a subscriber has at least that network to choose from.
    pub ipv6_prefix: u8,
    /// Clients that are remembered at once; 65,536 by default.
    pub max_clients: usize,
}

impl RateLimitConfig {
    /// `rate` and `burst` with the default sizes.
    pub const fn new(rate: Rate, burst: u32) -> Self {
        Self {
            rate,
            burst,
            ipv6_prefix: 64,
            max_clients: MAX_CLIENTS,
        }
    }
}

/// Makes the key of a request.
type MakeKey = Box<dyn Fn(&Request, &mut RateLimitKey) + Send + Sync>;

/// Whose request it is, for a limit whose clients are not addresses.
///
/// Only a digest of what is added is kept, made with secrets of the process:
/// a key may be as long as a request, and none can be found that meets another.
#[derive(Debug)]
pub struct RateLimitKey {
    digests: [DefaultHasher; 2],
    is_used: bool,
}

impl RateLimitKey {
    /// Adds a part; two keys are one client when all their parts are equal.
    pub fn add(&mut self, part: &[u8]) {
        for digest in &mut self.digests {
            digest.write_usize(part.len());
            digest.write(part);
        }
        self.is_used = true;
    }

    fn finish(&self) -> Option<u128> {
        let [high, low] = self.digests.each_ref().map(Hasher::finish);
        self.is_used
            .then_some(u128::from(high) << 64 | u128::from(low))
    }
}

/// Answers 429 to clients that send more than they may.
pub struct RateLimit {
    limiter: Limiter,
    hasher: RandomState,
    second_hasher: RandomState,
    make_key: Option<MakeKey>,
    ipv6_mask: u128,
    started: Instant,
    requests: u32,
    policy: HeaderValue,
}

impl RateLimit {
    /// Checks a configuration.
    ///
    /// # Errors
    /// [`Error::Config`] for zeros, and for a burst that takes more than 30
    /// days to recover.
    pub fn new(config: RateLimitConfig) -> Result<Self, Error> {
        let invalid = |key, reason: &str| {
            Err(Error::Config {
                key,
                reason: reason.to_owned(),
            })
        };
        let Rate { requests, period } = config.rate;
        if requests == 0 || period.is_zero() {
            return invalid("server.rate_limit", "a rate has requests and a period");
        }
        if config.burst == 0 {
            return invalid("server.rate_limit_burst", "at least one request must pass");
        }
        if !(1..=128).contains(&config.ipv6_prefix) || config.max_clients == 0 {
            return invalid(
                "server.rate_limit",
                "a prefix has 1 to 128 bits, and clients",
            );
        }
        // Upwards: a client gets no more than its rate, never a little more.
        let interval_ns = period.as_nanos().div_ceil(requests.into());
        let recovery_ns = interval_ns * u128::from(config.burst);
        if recovery_ns > MAX_RECOVERY.as_nanos() {
            return invalid(
                "server.rate_limit_burst",
                "at this rate the burst takes more than 30 days to recover",
            );
        }
        let window = recovery_ns.div_ceil(1_000_000_000);
        let policy = format!("\"client\";q={};w={window}", config.burst);
        Ok(Self {
            limiter: Limiter::new(
                interval_ns as u64,
                config.burst,
                NUM_SHARDS,
                config.max_clients.div_ceil(NUM_SHARDS),
            ),
            hasher: RandomState::new(),
            second_hasher: RandomState::new(),
            make_key: None,
            ipv6_mask: u128::MAX << (128 - u32::from(config.ipv6_prefix)),
            started: Instant::now(),
            requests,
            policy: text_value(policy),
        })
    }

    /// Counts by what `key` makes of a request instead of by its address.
    ///
    /// A request that adds nothing counts for its address. What a client may
    /// choose freely is no limit by itself: who sends another key each time is
    /// another client each time, in the same bounded memory. So it should be
    /// something that was checked, or that a proxy sets.
    ///
    /// ```
    /// use justapi_core::{Rate, RateLimit, RateLimitConfig};
    ///
    /// # fn main() -> Result<(), justapi_core::Error> {
    /// let rate: Rate = "100/m".parse().expect("a rate");
    /// let limit = RateLimit::new(RateLimitConfig::new(rate, 100))?.by(|request, key| {
    ///     if let Some(token) = request.headers().get("x-api-key") {
    ///         key.add(token.as_bytes());
    ///     }
    /// });
    /// # drop(limit);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by(mut self, key: impl Fn(&Request, &mut RateLimitKey) + Send + Sync + 'static) -> Self {
        self.make_key = Some(Box::new(key));
        self
    }

    /// Counts by the value of one header; requests without it, with an empty
    /// one, or with several, by their address.
    ///
    /// Of several an application reads one, and whatever stands beside a good
    /// key would make another client each time.
    #[must_use]
    pub fn by_header(self, name: HeaderName) -> Self {
        self.by(move |request, key| {
            let mut values = request.headers().get_all(&name).iter();
            if let (Some(value), None) = (values.next(), values.next())
                && !value.is_empty()
            {
                key.add(value.as_bytes());
            }
        })
    }

    /// Puts the limit before one handler; those that share it count together.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use justapi_core::{Rate, RateLimit, RateLimitConfig, Request, Router};
    ///
    /// # fn main() -> Result<(), justapi_core::Error> {
    /// let rate: Rate = "5/m".parse().expect("a rate");
    /// let limit = Arc::new(RateLimit::new(RateLimitConfig::new(rate, 5))?);
    /// let sign_in = limit.before(async |_: Request| "welcome");
    /// let router = Router::new().post("/sign-in", sign_in)?;
    /// # drop(router);
    /// # Ok(())
    /// # }
    /// ```
    pub fn before<H: Handler>(self: Arc<Self>, handler: H) -> impl Handler {
        Limited {
            limit: self,
            handler,
        }
    }

    /// The refusal, if the request's client sends too much for the server.
    pub(crate) fn check(&self, request: &Request) -> Option<Response> {
        let detail = "this client sends more requests than server.rate_limit allows";
        self.refuse(request, "server.rate_limit", detail)
    }

    /// The refusal, by the name of the limit.
    fn refuse(
        &self,
        request: &Request,
        name: &'static str,
        detail: &'static str,
    ) -> Option<Response> {
        let key = self.key_of(request);
        let now_ns = self.started.elapsed().as_nanos() as u64;
        let wait_ns = self.limiter.take(key, self.hasher.hash_one(key), now_ns)?;
        let wait = wait_ns.div_ceil(1_000_000_000).max(1);
        let state = format!("\"client\";r=0;t={wait}");
        let mut response = Problem::new(StatusCode::TOO_MANY_REQUESTS)
            .with_detail(detail)
            .with_limit(name, self.requests.into())
            .into_response();
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, wait.into());
        headers.insert(RATE_LIMIT, text_value(state));
        headers.insert(RATE_LIMIT_POLICY, self.policy.clone());
        Some(response)
    }

    /// Clients that were forgotten before their bucket was full; that of a
    /// server is shown in its metrics.
    pub fn num_evicted(&self) -> &Arc<AtomicU64> {
        &self.limiter.num_evicted
    }

    fn key_of(&self, request: &Request) -> u128 {
        let made = self.make_key.as_ref().and_then(|make_key| {
            let mut key = RateLimitKey {
                digests: [&self.hasher, &self.second_hasher].map(BuildHasher::build_hasher),
                is_used: false,
            };
            make_key(request, &mut key);
            key.finish()
        });
        made.unwrap_or_else(|| self.key(request.client()))
    }

    fn key(&self, client: Option<IpAddr>) -> u128 {
        match client {
            // In IPv6 form, so that it cannot equal a masked network.
            Some(IpAddr::V4(address)) => address.to_ipv6_mapped().to_bits(),
            Some(IpAddr::V6(address)) => address.to_bits() & self.ipv6_mask,
            None => NO_ADDRESS,
        }
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("limiter", &self.limiter)
            .field("has_key", &self.make_key.is_some())
            .finish_non_exhaustive()
    }
}

/// A handler behind a limit of its own.
struct Limited<H> {
    limit: Arc<RateLimit>,
    handler: H,
}

impl<H: Handler> Handler for Limited<H> {
    fn call(&self, request: Request, slot: &mut FutureSlot) -> Option<Response> {
        let detail = "this client sends more requests than this route allows";
        if let Some(mut refusal) = self.limit.refuse(&request, "rate_limit", detail) {
            refusal.extensions_mut().insert(Reject::RateLimit);
            return Some(refusal);
        }
        self.handler.call(request, slot)
    }

    fn contract(&self) -> Contract<'_> {
        self.handler.contract()
    }
}

/// `text` is letters, digits and quotes.
fn text_value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("letters, digits and quotes are a valid value")
}

/// The buckets; time is passed in.
#[derive(Debug)]
struct Limiter {
    /// Nanoseconds that one request costs.
    interval_ns: u64,
    /// How far ahead of the clock a client may be before its next request.
    tolerance_ns: u64,
    shards: Box<[Mutex<Shard>]>,
    max_per_shard: usize,
    num_evicted: Arc<AtomicU64>,
}

/// For each client the time at which its bucket is full again.
type Shard = HashMap<u128, u64>;

impl Limiter {
    fn new(interval_ns: u64, burst: u32, num_shards: usize, max_per_shard: usize) -> Self {
        Self {
            interval_ns,
            tolerance_ns: interval_ns * u64::from(burst - 1),
            shards: (0..num_shards).map(|_| Mutex::default()).collect(),
            max_per_shard,
            num_evicted: Arc::default(),
        }
    }

    /// Takes one request out of a bucket; the time to wait when it is empty.
    ///
    /// A refused request costs nothing.
    fn take(&self, key: u128, hash: u64, now_ns: u64) -> Option<u64> {
        let index = hash as usize % self.shards.len();
        let mut shard = self.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = shard.get_mut(&key);
        let full_at = known
            .as_deref()
            .map_or(now_ns, |full_at| *full_at)
            .max(now_ns);
        let ahead_ns = full_at - now_ns;
        if ahead_ns > self.tolerance_ns {
            return Some(ahead_ns - self.tolerance_ns);
        }
        let full_at = full_at + self.interval_ns;
        match known {
            Some(known) => *known = full_at,
            None => {
                if shard.len() >= self.max_per_shard {
                    self.make_room(&mut shard, now_ns);
                }
                shard.insert(key, full_at);
            }
        }
        None
    }

    /// Forgets all clients whose bucket is full, or else the one that has it
    /// full first.
    fn make_room(&self, shard: &mut Shard, now_ns: u64) {
        shard.retain(|_, full_at| *full_at > now_ns);
        if shard.len() < self.max_per_shard {
            return;
        }
        let first = shard.iter().min_by_key(|(_, full_at)| **full_at);
        if let Some((&key, _)) = first {
            shard.remove(&key);
            self.num_evicted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_passes_then_the_rate() {
        let limiter = Limiter::new(SECOND, 3, 1, 10);
        let take = |now| limiter.take(1, 1, now);
        assert_eq!(
            [take(0), take(0), take(0), take(0)],
            [None, None, None, Some(SECOND)]
        );
        assert_eq!(take(SECOND - 1), Some(1));
        assert_eq!(take(SECOND), None);
        assert_eq!(take(SECOND), Some(SECOND));
        assert_eq!(
            [take(9 * SECOND), take(9 * SECOND), take(9 * SECOND)],
            [None; 3]
        );
        assert_eq!(take(9 * SECOND), Some(SECOND));
        assert_eq!(limiter.take(2, 2, 9 * SECOND), None, "another client");
    }

    /// The model: a bucket of tokens that fills with time.
    struct Bucket {
        level_ns: u64,
        at_ns: u64,
    }

    impl Bucket {
        fn take(&mut self, interval_ns: u64, burst: u32, now_ns: u64) -> Option<u64> {
            let full = interval_ns * u64::from(burst);
            self.level_ns = full.min(self.level_ns + (now_ns - self.at_ns));
            self.at_ns = now_ns;
            if self.level_ns < interval_ns {
                return Some(interval_ns - self.level_ns);
            }
            self.level_ns -= interval_ns;
            None
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_token_bucket_for_each_client(
            interval_ns in 1..50_u64,
            burst in 1..6_u32,
            steps in prop::collection::vec((0..4_u128, 0..60_u64), 1..200),
        ) {
            let limiter = Limiter::new(interval_ns, burst, 2, 4);
            let mut buckets: HashMap<u128, Bucket> = HashMap::new();
            let mut now = 0;
            for (key, pause) in steps {
                now += pause;
                let full = Bucket { level_ns: interval_ns * u64::from(burst), at_ns: now };
                let bucket = buckets.entry(key).or_insert(full);
                let expected = bucket.take(interval_ns, burst, now);
                prop_assert_eq!(limiter.take(key, key as u64, now), expected);
            }
        }

        /// A flood of addresses costs no more than its memory, and a client
        /// that is new is never refused for others' sake.
        #[test]
        fn a_flood_of_clients_is_bounded_and_harms_nobody(
            keys in prop::collection::vec(0..1000_u128, 1..300),
        ) {
            let limiter = Limiter::new(SECOND, 2, 2, 8);
            for (now, key) in keys.into_iter().enumerate() {
                let fresh = 1_000_000 + key * 1000 + now as u128;
                prop_assert_eq!(limiter.take(fresh, fresh as u64, now as u64), None);
                limiter.take(key, key as u64, now as u64);
                for shard in &limiter.shards {
                    prop_assert!(shard.lock().unwrap().len() <= 8);
                }
            }
        }
    }

    #[test]
    fn recovered_clients_make_room_before_others_are_forgotten() {
        let limiter = Limiter::new(SECOND, 1, 1, 2);
        assert_eq!(limiter.take(1, 0, 0), None);
        assert_eq!(limiter.take(2, 0, SECOND), None);
        assert_eq!(limiter.take(3, 0, SECOND), None);
        assert_eq!(limiter.num_evicted.load(Ordering::Relaxed), 0);
        assert!(limiter.take(2, 0, SECOND).is_some());
        assert_eq!(limiter.take(4, 0, SECOND), None);
        assert_eq!(limiter.num_evicted.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn lanes_together_get_no_more_than_the_burst() {
        let limiter = Limiter::new(SECOND, 100, NUM_SHARDS, 10);
        let num_passed: usize = std::thread::scope(|scope| {
            let lane = || (0..100).filter(|_| limiter.take(7, 7, 0).is_none()).count();
            let lanes: Vec<_> = (0..4).map(|_| scope.spawn(lane)).collect();
            lanes.into_iter().map(|lane| lane.join().unwrap()).sum()
        });
        assert_eq!(num_passed, 100);
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let rate = "1/s".parse().unwrap();
        let limit = RateLimit::new(RateLimitConfig::new(rate, 1)).unwrap();
        let key = |text: &str| limit.key(Some(text.parse().unwrap()));
        assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff::9"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_ne!(key("192.0.2.1"), key("::1"));
        assert_ne!(key("192.0.2.1"), limit.key(None));
    }

    /// A request with these lines.
    fn request(lines: &[(&'static str, &str)]) -> Request {
        let mut request = Request::new(http::Method::GET, "/".parse().unwrap(), "");
        for (name, value) in lines {
            let value = HeaderValue::from_str(value).unwrap();
            request.headers_mut().append(*name, value);
        }
        request
    }

    #[test]
    fn a_key_is_the_client_and_its_absence_the_address() {
        let rate = "1/h".parse().unwrap();
        let limit = || RateLimit::new(RateLimitConfig::new(rate, 1)).unwrap();
        let by_header = limit().by_header(HeaderName::from_static("x-key"));
        let passes = |lines: &[(&'static str, &str)]| by_header.check(&request(lines)).is_none();
        assert!(passes(&[("x-key", "one")]) && !passes(&[("x-key", "one")]));
        assert!(passes(&[("x-key", "two")]) && passes(&[("x-key", &"k".repeat(10_000))]));
        assert!(passes(&[]) && !passes(&[]) && !passes(&[("x-key", "")]));
        let parts = limit().by(|request, key| {
            key.add(request.method().as_str().as_bytes());
            key.add(request.path().as_bytes());
        });
        assert!(parts.check(&request(&[])).is_none());
        assert!(parts.check(&request(&[("x-key", "new")])).is_some());
    }

    /// The address counts, whatever stands before or behind the good key.
    #[test]
    fn a_repeated_header_makes_no_new_client() {
        let limit = RateLimit::new(RateLimitConfig::new("1/h".parse().unwrap(), 1)).unwrap();
        let limit = limit.by_header(HeaderName::from_static("x-key"));
        let passes = |lines: &[(&'static str, &str)]| limit.check(&request(lines)).is_none();
        assert!(passes(&[("x-key", "good")]));
        assert!(passes(&[("x-key", "good"), ("x-key", "other")]));
        for index in 0..10 {
            let junk = format!("junk{index}");
            for lines in [
                [("x-key", "good"), ("x-key", junk.as_str())],
                [("x-key", junk.as_str()), ("x-key", "good")],
                [("x-key", junk.as_str()), ("x-key", "")],
                [("x-key", ""), ("x-key", junk.as_str())],
            ] {
                assert!(!passes(&lines), "{lines:?}");
            }
        }
        assert!(!passes(&[]), "all of them are the address");
        assert!(passes(&[("x-key", "new")]));
    }

    /// Whoever sends another key each time fills no memory.
    #[test]
    fn a_flood_of_keys_is_bounded() {
        let config = RateLimitConfig {
            max_clients: 128,
            ..RateLimitConfig::new("1/h".parse().unwrap(), 1)
        };
        let limit = RateLimit::new(config).unwrap();
        let limit = limit.by_header(HeaderName::from_static("x-key"));
        for index in 0..10_000 {
            let key = format!("{index}-{}", "k".repeat(100));
            assert!(limit.check(&request(&[("x-key", &key)])).is_none());
        }
        let shards = limit.limiter.shards.iter();
        let num_kept: usize = shards.map(|shard| shard.lock().unwrap().len()).sum();
        assert!(num_kept <= 128, "{num_kept} are kept");
        let num_evicted = limit.num_evicted().load(Ordering::Relaxed);
        assert_eq!(num_evicted as usize, 10_000 - num_kept);
    }

    #[test]
    fn rates_are_read() {
        for (text, expected) in [
            ("100/s", Some((100, 1))),
            ("60/m", Some((60, 60))),
            ("1/h", Some((1, 3600))),
            ("0/s", None),
            ("/s", None),
            ("1", None),
            ("1/d", None),
            ("+1/s", None),
            ("-1/s", None),
            ("1.5/s", None),
            ("4294967296/s", None),
        ] {
            let found = text.parse::<Rate>().ok();
            let found = found.map(|rate| (rate.requests, rate.period.as_secs()));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let rate = |text: &str| text.parse().unwrap();
        let good = RateLimitConfig::new(rate("1/s"), 1);
        assert!(RateLimit::new(good).is_ok());
        for bad in [
            RateLimitConfig { burst: 0, ..good },
            RateLimitConfig {
                ipv6_prefix: 0,
                ..good
            },
            RateLimitConfig {
                ipv6_prefix: 129,
                ..good
            },
            RateLimitConfig {
                max_clients: 0,
                ..good
            },
            RateLimitConfig::new(rate("1/h"), 721),
        ] {
            assert!(RateLimit::new(bad).is_err(), "{bad:?}");
        }
        assert!(RateLimit::new(RateLimitConfig::new(rate("1/h"), 720)).is_ok());
        assert!(RateLimit::new(RateLimitConfig::new(rate("4294967295/s"), u32::MAX)).is_ok());
    }
}
