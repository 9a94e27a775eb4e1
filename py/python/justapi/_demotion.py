"""Finds plain functions that block the event loop, and moves them into threads.

The lane watches handlers that are plain all the way. A plain function among coroutines is called
by the generated wrapper, on the loop's thread; what it waits for, every other request waits for,
too. So the wrapper looks at the clock, and a function that gives the processor away for long is
called in a thread from then on, and that is said once. One that works, or whose thread is made
to wait by a busy machine, stays where it is, and is not measured for ever.
"""

from __future__ import annotations

import logging
import resource
from time import perf_counter, thread_time
from typing import Any, Final

__all__ = ["MAX_BLOCKED_SECONDS", "Watch"]

logger = logging.getLogger("justapi")

MAX_BLOCKED_SECONDS: Final = 0.001
"""A call that waits longer costs the other requests more than a thread would."""

NUM_BLOCKED_CALLS: Final = 2
"""Calls that are seen to wait before the function is moved; one may have been bad luck."""

MAX_MEASURED_CALLS: Final = 500
"""Quick calls in a row after which a slow one was bad luck."""

# Linux tells it for a thread; elsewhere the process has to do.
_WHO: Final[int] = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class Watch:
    """What is known of one function in one route.

    Attributes:
        in_thread: Whether it is called in a thread.
        is_suspected: Whether it has kept the thread for long; then its use of the processor is
            measured, to tell one that waits from one that works.
    """

    __slots__ = ("_call", "_num_blocked", "_num_quick", "in_thread", "is_suspected")

    def __init__(self, call: Any) -> None:
        self._call = call
        self._num_blocked = 0
        self._num_quick = 0
        self.in_thread = False
        self.is_suspected = False

    @staticmethod
    def measure() -> tuple[float, int]:
        """Returns the seconds of processor time, and how often the processor was given away."""
        # The times of `getrusage` may be as old as a timer tick.
        return thread_time(), resource.getrusage(_WHO).ru_nvcsw

    def saw_quick_call(self) -> None:
        """Notes a call that was measured and took less than `MAX_BLOCKED_SECONDS`."""
        self._num_quick += 1
        if self._num_quick >= MAX_MEASURED_CALLS:
            self.is_suspected = False
            self._num_blocked = 0

    def saw_long_call(self, started: float, before: tuple[float, int] | None) -> None:
        """Judges a call that took longer than `MAX_BLOCKED_SECONDS`.

        Args:
            started: `perf_counter` before it.
            before: `measure` before it, if it was suspected.
        """
        self._num_quick = 0
        if before is None:
            self.is_suspected = True
            return
        duration = perf_counter() - started
        cpu, num_given_away = self.measure()
        waited = duration - (cpu - before[0])
        if waited < MAX_BLOCKED_SECONDS or num_given_away == before[1]:
            return
        self._num_blocked += 1
        if self._num_blocked >= NUM_BLOCKED_CALLS:
            self.in_thread = True
            logger.warning(
                "%s blocks the event loop (%.1f ms) and is called in the thread pool from now on; "
                "blocking=True says so at once, blocking=False keeps it where it is",
                getattr(self._call, "__qualname__", repr(self._call)),
                waited * 1000,
            )
