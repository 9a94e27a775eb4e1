"""A short run of `soak.py`, whose own command makes the long one."""

from __future__ import annotations

from itertools import pairwise

from meters import Reading, slope
from soak import NUM_CLIENTS, NUM_PARTS, soak

KINDS = {
    "async stream",
    "background",
    "broken stream",
    "events",
    "inline",
    "late",
    "mounted",
    "order",
    "pieces",
    "session",
    "socket",
    "sync stream",
    "thread",
    "upload",
    "waits",
}


def test_nothing_stays_of_mixed_requests() -> None:
    looks, done = soak(840, 7)
    assert done.total() == 840
    # It rests only when each `finally` has run as often as it was reached.
    assert set(looks[-1].ended) == KINDS
    warm = looks[NUM_PARTS // 3 :]
    # Of 70 requests between two looks half are such as could leave something each time.
    assert min(b.num_objects - a.num_objects for a, b in pairwise(warm)) < 25
    readings = [look.reading for look in warm]
    assert max(one.num_files for one in readings) <= min(one.num_files for one in readings) + 1
    # Both pools grow with what happens to be at once.
    assert readings[-1].num_threads <= readings[0].num_threads + 2 * NUM_CLIENTS
    # Threads that are new bring an arena each; 40 uploads of 1.5 MB come in this time.
    assert readings[-1].rss_kib - readings[0].rss_kib < 40_000, readings


def test_growth_is_seen() -> None:
    noise = [0, 300, -200, 100, 0, -100, 200, 0]
    readings = [
        Reading(100 * index, 50_000 + 100 * index + noise[index], 10, 3) for index in range(8)
    ]
    assert 700 < slope(readings) < 1300
    level = [Reading(100 * index, 50_000 + noise[index], 10, 3) for index in range(8)]
    assert abs(slope(level)) < 300
