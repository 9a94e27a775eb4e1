//! Request ids: taken from a trusted proxy, or made here.
//!
//! Guarantee: an id is 1 to 128 characters of `[A-Za-z0-9._-]`, so it can go
//! into any log or header as it is. Made ids are 128 random bits as 32 hex
//! digits; they tell requests apart and are **not secrets**: who sees some can
//! compute the next.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::head::Head;

pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that is taken over; a UUID has 36, an AWS trace id 74.
const MAX_ID_BYTES: usize = 128;
const GENERATED_BYTES: usize = 32;

/// Gives each request an id that handlers, logs and the response share.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestId {
    trust_incoming: bool,
}

impl RequestId {
    /// `trust_incoming` takes over a valid `X-Request-Id` of the sender.
    pub const fn new(trust_incoming: bool) -> Self {
        Self { trust_incoming }
    }

    /// Returns the id of the request with this head.
    pub(crate) fn assign(self, head: &Head) -> Id {
        if self.trust_incoming
            && let Some(id) = head.sole_field(&X_REQUEST_ID)
            && is_valid(id)
            && let Ok(id) = HeaderValue::from_bytes(id)
        {
            return Id::Taken(id);
        }
        Id::Made(hex(random_bits()))
    }

    /// Sets `X-Request-Id` of a response, replacing one of the handler.
    pub(crate) fn apply(id: &Id, headers: &mut HeaderMap) {
        headers.insert(X_REQUEST_ID, id.to_header());
    }

    /// What the handler or [`Self::apply`] has set.
    pub(crate) fn of(headers: &HeaderMap) -> Option<&HeaderValue> {
        headers.get(X_REQUEST_ID)
    }
}

/// The id of one request.
///
/// A made one is kept as its digits: copying them is cheaper than counting
/// references to them.
#[derive(Debug, Clone)]
pub(crate) enum Id {
    Made([u8; GENERATED_BYTES]),
    Taken(HeaderValue),
}

impl Id {
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("an id is ASCII")
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Made(digits) => digits,
            Self::Taken(value) => value.as_bytes(),
        }
    }

    /// Adds the line that tells the id to a head that is being written.
    pub(super) fn write(&self, head: &mut Vec<u8>) {
        head.extend_from_slice(b"x-request-id: ");
        match self {
            // Of a known length: copied without a call.
            Self::Made(digits) => head.extend_from_slice(digits),
            Self::Taken(value) => head.extend_from_slice(value.as_bytes()),
        }
        head.extend_from_slice(b"\r\n");
    }

    pub(crate) fn to_header(&self) -> HeaderValue {
        match self {
            Self::Made(digits) => {
                HeaderValue::from_bytes(digits).expect("hex digits are a valid header value")
            }
            Self::Taken(value) => value.clone(),
        }
    }
}

thread_local! {
    static GENERATOR: RefCell<Option<Generator>> = const { RefCell::new(None) };
}

/// 128 bits of this thread's source: for ids, not for secrets.
pub(super) fn random_bits() -> u128 {
    GENERATOR.with_borrow_mut(|generator| generator.get_or_insert_with(Generator::seeded).next())
}

/// One lane's source of ids.
struct Generator {
    high: fastrand::Rng,
    low: fastrand::Rng,
}

impl Generator {
    /// Seeds from the operating system, through the keys of [`RandomState`].
    ///
    /// fastrand's own seed is a hash of clock and thread id, which two
    /// containers that start together may share.
    fn seeded() -> Self {
        let seed = |salt: u8| RandomState::new().hash_one(salt);
        Self {
            high: fastrand::Rng::with_seed(seed(0)),
            low: fastrand::Rng::with_seed(seed(1)),
        }
    }

    fn next(&mut self) -> u128 {
        u128::from(self.high.u64(..)) << 64 | u128::from(self.low.u64(..))
    }
}

/// Both digits of each byte.
static HEX_PAIRS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    pairs
};

/// The 32 digits of a number, in lower case.
pub(super) fn hex(bits: u128) -> [u8; GENERATED_BYTES] {
    let mut digits = [0; GENERATED_BYTES];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bits.to_be_bytes()) {
        pair.copy_from_slice(&HEX_PAIRS[usize::from(byte)]);
    }
    digits
}

fn is_valid(id: &[u8]) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len())
        && id
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The id of a request that came with `ids`.
    fn assigned(trust: bool, ids: &[&[u8]]) -> String {
        let mut parts = http::Request::new(()).into_parts().0;
        for id in ids {
            let id = HeaderValue::from_bytes(id).unwrap();
            parts.headers.append(X_REQUEST_ID, id);
        }
        let id = RequestId::new(trust).assign(&Head::from(parts));
        id.as_str().to_owned()
    }

    fn assert_generated(id: &str) {
        assert_eq!(id.len(), 32, "{id}");
        assert!(
            id.bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
            "{id}"
        );
    }

    #[test]
    fn a_valid_id_is_taken_over_only_when_trusted() {
        let longest = "a".repeat(128);
        for id in ["A-Za-z0.9_", "x", &longest] {
            assert_eq!(assigned(true, &[id.as_bytes()]), id);
            assert_generated(&assigned(false, &[id.as_bytes()]));
        }
    }

    #[test]
    fn an_invalid_or_doubled_id_is_replaced() {
        let too_long = "a".repeat(129);
        let cases: [&[&[u8]]; 8] = [
            &[],
            &[b""],
            &[b"a b"],
            &[b"a\"b"],
            &[b"a\xff"],
            &[b"a/b"],
            &[too_long.as_bytes()],
            &[b"one", b"two"],
        ];
        for ids in cases {
            assert_generated(&assigned(true, ids));
        }
    }

    #[test]
    fn ids_of_all_threads_differ() {
        let make = || {
            (0..10_000)
                .map(|_| assigned(false, &[]))
                .collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(make)).collect();
        let ids: HashSet<_> = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect();
        assert_eq!(ids.len(), 40_000);
    }

    #[test]
    fn the_response_has_one_id() {
        let mut headers = HeaderMap::new();
        headers.append(X_REQUEST_ID, HeaderValue::from_static("other"));
        RequestId::apply(&Id::Taken(HeaderValue::from_static("mine")), &mut headers);
        let values: Vec<_> = headers.get_all(X_REQUEST_ID).iter().collect();
        assert_eq!(values, ["mine"]);
    }

    #[test]
    fn hex_keeps_leading_zeros() {
        assert_eq!(&hex(0xab), b"000000000000000000000000000000ab");
    }
}
