//! The counters of the response cache as Prometheus text.

use super::exposition::{Exposition, Kind};
use crate::cache::CacheCounts;

pub(super) fn render(text: &mut Exposition, counts: &CacheCounts) {
    let name = "justapi_cache_requests_total";
    text.family(name, "Requests of cached routes.", Kind::Counter);
    for (result, count) in [
        ("hit", counts.hits),
        ("stale", counts.stale_hits),
        ("miss", counts.misses),
        ("collapsed", counts.collapsed),
        ("pass", counts.passes),
    ] {
        text.sample(name, &[("result", result)], count);
    }
    text.counter(
        "justapi_cache_compressed_total",
        "Bodies that were compressed to be kept.",
        counts.compressed,
    );
    text.counter(
        "justapi_cache_evictions_total",
        "Cached responses that made room.",
        counts.evictions,
    );
    text.gauge(
        "justapi_cache_entries",
        "Responses in the cache.",
        counts.entries,
    );
    text.gauge(
        "justapi_cache_bytes",
        "Memory of the cache, about.",
        counts.bytes,
    );
}
