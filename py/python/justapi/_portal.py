"""An event loop in a thread of its own, for code that is not async."""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from justapi._lane import new_event_loop

T = TypeVar("T")


class Portal:
    """Runs coroutines in an event loop that a thread of its own drives.

    What still runs when the portal is closed is cancelled and waited for. A portal that is
    forgotten closes by itself. Lanes can serve in its loop.
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
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            # The loop is closed, and nobody will run it.
            coroutine.close()
            raise

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function in the loop's thread and returns what it returns.

        Args:
            function: A function, or a coroutine function, whose result is awaited.
            *args: Its arguments.

        Raises:
            BaseException: Whatever it raised.
        """

        async def run() -> tuple[Any, BaseException | None]:
            try:
                result = function(*args)
                return (await result if inspect.isawaitable(result) else result), None
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                # An exit is for the thread that called, not for the loop.
                return None, error

        future = self.start(run())
        try:
            result, error = future.result()
        except BaseException:
            # An interrupt of this thread does not leave the call behind.
            future.cancel()
            raise
        try:
            if error is not None:
                raise error
        finally:
            # Its traceback holds this frame.
            error = None
        return result

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yields what an asynchronous iterator of the loop gives.

        Args:
            items: The iterator.
        """
        nothing: Any = object()
        while (item := self.call(_next, items, nothing)) is not nothing:
            yield item

    @property
    def is_closed(self) -> bool:
        """Whether its loop has ended."""
        return self._loop.is_closed()

    def close(self) -> None:
        """Ends the loop and its thread."""
        self._finish()


async def _next(items: AsyncIterator[T], default: T) -> T:
    return await anext(items, default)


def _run(started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    async def main() -> None:
        stop = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()
        for server in list(selector.servers):
            await server.close()

    loop, selector = new_event_loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop()
        main_task = loop.create_task(main())
        while not main_task.done():
            try:
                loop.run_until_complete(main_task)
            except BaseException:
                # A handler's own exit ends its request, and the test hears of it there.
                if main_task.done() or loop.is_closed():
                    raise


def _stop(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, thread: threading.Thread) -> None:
    if thread.is_alive():
        loop.call_soon_threadsafe(stop.set)
        if thread is not threading.current_thread():
            thread.join()
