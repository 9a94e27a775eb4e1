"""An event loop in a thread of its own, for code that is not async."""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Portal:
    """Runs coroutines in an event loop that a thread of its own drives.

    What still runs when the portal is closed is cancelled and waited for. A portal that is
    forgotten closes by itself.
    """

    def __init__(self) -> None:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(
            target=_run, args=(started,), name="justapi-portal", daemon=True
        )
        self._thread.start()
        self._loop, stop = started.result()
        self._finish = weakref.finalize(self, _stop, self._loop, stop, self._thread)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts a coroutine in the loop, in a copy of the caller's context.

        Args:
            coroutine: What to run.
        """
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function in the loop's thread and returns what it returns.

        Args:
            function: A function, or a coroutine function, whose result is awaited.
            *args: Its arguments.

        Raises:
            BaseException: Whatever it raised.
        """

        async def run() -> Any:
            result = function(*args)
            return await result if inspect.isawaitable(result) else result

        future = self.start(run())
        try:
            return future.result()
        except BaseException:
            # An interrupt of this thread does not leave the call behind.
            future.cancel()
            raise

    def close(self) -> None:
        """Ends the loop and its thread."""
        self._finish()


def _run(started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    async def main() -> None:
        stop = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()

    asyncio.run(main())


def _stop(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, thread: threading.Thread) -> None:
    if thread.is_alive():
        loop.call_soon_threadsafe(stop.set)
        if thread is not threading.current_thread():
            thread.join()
