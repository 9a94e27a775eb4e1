//! One spare header map a thread: a request's map becomes its response's.
//!
//! Guarantee: a map handed out is empty. A response's map comes back once its
//! head is written, so that a kept-alive connection allocates no header map at
//! all. A map that one large request has blown up is not kept.

use std::cell::Cell;

use http::HeaderMap;

/// Largest capacity worth keeping: three times what browsers send.
const MAX_KEPT_HEADERS: usize = 64;

thread_local! {
    static SPARE: Cell<Option<HeaderMap>> = const { Cell::new(None) };
}

/// An empty map, with room if a request has just left one.
pub(crate) fn take() -> HeaderMap {
    SPARE.take().unwrap_or_default()
}

/// Keeps `map` for the next response, without what is in it.
pub(crate) fn put(mut map: HeaderMap) {
    if (1..=MAX_KEPT_HEADERS).contains(&map.capacity()) {
        map.clear();
        SPARE.set(Some(map));
    }
}

#[cfg(test)]
mod tests {
    use http::header::{HOST, HeaderValue};

    use super::*;

    #[test]
    fn a_kept_map_comes_back_empty_with_its_room() {
        let mut map = HeaderMap::with_capacity(10);
        map.insert(HOST, HeaderValue::from_static("a"));
        let capacity = map.capacity();
        put(map);
        let map = take();
        assert!(map.is_empty());
        assert_eq!(map.capacity(), capacity);
        assert_eq!(take().capacity(), 0);
    }

    #[test]
    fn a_blown_up_map_is_not_kept() {
        put(HeaderMap::with_capacity(1_000));
        assert_eq!(take().capacity(), 0);
    }
}
