"""The limit that `Depends(max_concurrency=...)` puts on calls of a dependency."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["ConcurrencyLimit", "limited"]


class ConcurrencyLimit:
    """Calls that may run at once, in each event loop.

    One declaration has one limit, however many parameters use it.

    Args:
        max_concurrency: How many calls.

    Raises:
        ValueError: It is no positive integer.
    """

    def __init__(self, max_concurrency: int) -> None:
        if type(max_concurrency) is not int or max_concurrency < 1:
            raise ValueError("max_concurrency must be a positive integer or None")
        self.max_concurrency = max_concurrency
        self._semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )

    def semaphore(self) -> asyncio.Semaphore:
        """Returns what a call has to hold while it runs."""
        loop = asyncio.get_running_loop()
        semaphore = self._semaphores.get(loop)
        if semaphore is None:
            semaphore = self._semaphores[loop] = asyncio.Semaphore(self.max_concurrency)
        return semaphore


@asynccontextmanager
async def limited(
    manager: AbstractAsyncContextManager[Any] | AbstractContextManager[Any],
    limit: ConcurrencyLimit,
) -> AsyncIterator[Any]:
    """Holds the limit for as long as a dependency with `yield` is open."""
    async with limit.semaphore():
        if isinstance(manager, AbstractAsyncContextManager):
            async with manager as value:
                yield value
        else:
            with manager as value:
                yield value
