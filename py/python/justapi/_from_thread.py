"""Lets functions in threads of ours call back into their event loop with `anyio.from_thread`.

The worker threads of anyio know the loop that they work for by a variable of the thread. Ours are
given the same one for each call, once the application has imported anyio; nothing here imports it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

__all__ = ["call_for", "explain", "with_loop"]

_MODULE: Final = "anyio._core._eventloop"
"""Where anyio keeps its variables of threads."""


def call_for(loop: asyncio.AbstractEventLoop, func: Callable[..., Any], *args: Any) -> Any:
    """Calls a function in this thread, which works for `loop` meanwhile."""
    anyio = sys.modules.get(_MODULE)
    # Another thread may be importing it at this moment.
    claim = getattr(anyio, "claim_worker_thread", None)
    backend = getattr(anyio, "get_async_backend", None)
    if anyio is None or claim is None or backend is None:
        return func(*args)
    with claim(backend("asyncio"), loop):
        # A call that has begun is never given up, so it is never told to.
        anyio.threadlocals.current_cancel_scope = None
        try:
            return func(*args)
        finally:
            del anyio.threadlocals.current_cancel_scope


def with_loop(func: Callable[..., Any]) -> tuple[Any, ...]:
    """Returns what to call in a thread, and its first arguments, to call `func` there.

    Called in the running loop.
    """
    if _MODULE in sys.modules:
        return (call_for, asyncio.get_running_loop(), func)
    return (func,)


def explain(error: BaseException) -> None:
    """Says of the error of `anyio.from_thread` on the loop's own thread what would help."""
    if isinstance(error, RuntimeError) and "AnyIO worker thread" in str(error):
        error.add_note(
            "The function was called on the thread of the event loop, which cannot wait for "
            "itself; with blocking=True its route calls it in a thread, where anyio.from_thread "
            "works."
        )
