"""Further lanes of a server, each a thread with an event loop of its own.

The first lane is on the main thread, which takes the signals and runs the lifespan. Guarantee: a
lane that is told to drain ends once what it has is finished; one that ends by itself is noticed.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from justapi import _core, _stopping
from justapi._lane import finish_background, new_event_loop

__all__ = ["CHECK_SECONDS", "LAST_SECONDS", "LaneThread", "end_loop", "num_alive", "run_to_end"]

T = TypeVar("T")

logger = logging.getLogger("justapi")

CHECK_SECONDS = 0.01
"""How often a lane that drains is asked whether it is done."""

LAST_SECONDS = 1.0
"""Time for what is cancelled because its loop ends."""


def run_to_end(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its own end.

    Raises:
        BaseException: What the coroutine raised.
    """
    task = loop.create_task(main)
    while True:
        try:
            return loop.run_until_complete(task)
        except BaseException:
            # A handler's own exit, or its stop of the loop, ends its request, not the server.
            if task.done() or loop.is_closed():
                raise
            traceback.print_exc()


class _Thread(threading.Thread):
    """The thread of a lane."""


def num_alive() -> int:
    """Number of lanes that have not ended, those of the main thread left out."""
    return sum(isinstance(thread, _Thread) for thread in threading.enumerate())


class LaneThread:
    """A lane on a thread of its own.

    Args:
        seat: The lane.
        number: Its number among the server's lanes.
        when_ended: Called on the thread when the lane has ended.
        stuck_timeout: Seconds after which a loop that does not move on is reported.
        stuck_descriptor: Where that is written to.
    """

    def __init__(
        self,
        seat: _core.Seat,
        number: int,
        when_ended: Callable[[], None],
        stuck_timeout: float | None = None,
        stuck_descriptor: int = -1,
    ) -> None:
        self._seat = seat
        self._stuck = (stuck_timeout, stuck_descriptor)
        self._deadline = 0.0
        self._when_ended = when_ended
        self._started: Future[Callable[[], object]] = Future()
        self._finished = False
        # What the application has set while it was imported is seen on each lane.
        context = contextvars.copy_context()
        # A handler that never returns must not keep the process from its end.
        self._thread = _Thread(
            target=context.run, args=(self._run,), name=f"lane-{number}", daemon=True
        )
        self._thread.start()

    def wait_until_serving(self) -> None:
        """Waits for the lane's start.

        Raises:
            BaseException: Why it does not serve.
        """
        self._started.result()

    @property
    def has_ended(self) -> bool:
        """Whether the lane's thread is over."""
        return not self._thread.is_alive()

    @property
    def finished(self) -> bool:
        """Whether the lane has ended, and finished all that it had."""
        return self.has_ended and self._finished

    def stop(self, deadline: float) -> None:
        """Has the lane end once it has drained, which its server was told to.

        Args:
            deadline: When background tasks have had their time, as a loop's clock has it.
        """
        self._deadline = deadline
        self._started.result()()

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            else:
                logger.exception("A lane has failed")
        finally:
            self._when_ended()

    def _serve(self) -> None:
        loop, selector = new_event_loop()
        asyncio.set_event_loop(loop)
        stop = asyncio.Event()

        def tell() -> None:
            # A loop that is closed has ended before it was told.
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop.set)

        async def main() -> bool:
            lane = selector.lane = self._seat.embed(loop, selector.fileno())
            timeout, descriptor = self._stuck
            if timeout is not None:
                lane.watch_progress(timeout, descriptor)
            self._started.set_result(tell)
            await stop.wait()
            _stopping.begin()
            while True:
                drained = lane.drained()
                if drained is not None:
                    break
                await asyncio.sleep(CHECK_SECONDS)
            await finish_background(max(0.0, self._deadline - loop.time()))
            return drained

        try:
            self._finished = run_to_end(loop, main())
        finally:
            # The lane has to go on the thread that it was made on.
            selector.lane = None
            end_loop(loop)


def end_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels what still runs, gives it a moment, and closes the loop.

    Args:
        loop: A loop that does not run.
    """
    try:
        loop.run_until_complete(_end_all())
    except BaseException:
        # An exit that somebody asks for by now is on its way.
        traceback.print_exc()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _end_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=LAST_SECONDS)
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.get_running_loop().shutdown_asyncgens(), LAST_SECONDS)
