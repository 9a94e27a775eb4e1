"""Tells what would never end by itself that the server is about to stop.

Every event loop has its own word of it, since the lanes of a server have a loop each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

__all__ = ["begin", "when_stopping"]


class _Word:
    """Who is to be told on one loop, and whether they were."""

    def __init__(self) -> None:
        self.has_begun = False
        self.listeners: dict[object, Callable[[], None]] = {}


_words: WeakKeyDictionary[asyncio.AbstractEventLoop, _Word] = WeakKeyDictionary()


def _word() -> _Word:
    return _words.setdefault(asyncio.get_running_loop(), _Word())


def begin() -> None:
    """Says on the running loop that its server stops."""
    word = _word()
    word.has_begun = True
    listeners, word.listeners = word.listeners, {}
    for tell in listeners.values():
        tell()


@contextmanager
def when_stopping(tell: Callable[[], None]) -> Iterator[None]:
    """Has the block's owner told once when the server of the running loop stops.

    Args:
        tell: Called on the loop, and soon if the stop has begun already.
    """
    word = _word()
    key = object()
    if word.has_begun:
        handle = asyncio.get_running_loop().call_soon(tell)
    else:
        handle = None
        word.listeners[key] = tell
    try:
        yield
    finally:
        word.listeners.pop(key, None)
        if handle is not None:
            handle.cancel()
