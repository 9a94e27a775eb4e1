"""Runs blocking calls in one bounded pool of threads.

The pool serves user code and file access: handlers that block, sync iterators, spooled files.
Context variables are carried into the thread. A call that has begun is always waited for, even
when the caller is cancelled, so that nothing it uses is taken away beneath it.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from typing import ParamSpec, TypeVar, cast

__all__ = ["contextmanager_in_threadpool", "iterate_in_threadpool", "run_in_threadpool"]

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS = 40
"""Threads of the pool: the number that FastAPI users know. Calls beyond it wait their turn."""

_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def _get_pool() -> ThreadPoolExecutor:
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="justapi-worker")
        return _pool


def close_pool(timeout: float) -> bool:
    """Ends the pool's threads.

    Args:
        timeout: Seconds for calls that have begun.

    Returns:
        Whether all have ended; the interpreter would wait for the others.
    """
    pool = _pool
    if pool is None:
        return True
    pool.shutdown(wait=False, cancel_futures=True)
    deadline = time.monotonic() + timeout
    for thread in list(pool._threads):
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in pool._threads)


def _forget_pool() -> None:
    """Drops the pool in a forked child, where its threads do not exist."""
    global _pool, _pool_lock
    _pool = None
    _pool_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_pool)


async def _call(context: contextvars.Context, func: Callable[[], T]) -> T:
    """Runs `func` in the pool and inside `context`; never leaves while it runs."""
    submitted = _get_pool().submit(context.run, func)
    try:
        return await asyncio.wrap_future(submitted)
    except asyncio.CancelledError:
        # Cancelling the wrapper took the call back unless a thread had begun it.
        while not submitted.done():
            try:
                await asyncio.wait({asyncio.wrap_future(submitted)})
            except asyncio.CancelledError:
                continue
        if not submitted.cancelled():
            submitted.exception()
        raise


async def run_in_threadpool(func: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a blocking function in the thread pool.

    Args:
        func: What to call. It sees the caller's context variables; what it sets is not seen here.
        *args: Positional arguments of the call.
        **kwargs: Keyword arguments of the call.

    Returns:
        What the function returned.

    Raises:
        asyncio.CancelledError: The caller was cancelled. A call that had begun has ended by then.
        BaseException: Whatever the function raised.

    Example:
        >>> size = await run_in_threadpool(os.path.getsize, "/etc/hostname")
    """
    return await _call(contextvars.copy_context(), functools.partial(func, *args, **kwargs))


class _End:
    """Stands for StopIteration, which cannot travel through a future."""


_END = _End()


def _next(iterator: Iterator[T]) -> T | _End:
    return next(iterator, _END)


async def iterate_in_threadpool(iterator: Iterable[T]) -> AsyncGenerator[T, None]:
    """Steps through a blocking iterator in the thread pool.

    All steps run in one copy of the caller's context. When the iteration ends early, by `aclose`
    or by cancellation, a step that has begun is waited for and the iterator's own `close` is
    called in the pool, so a generator's `finally` runs.

    Args:
        iterator: A sync iterable; a generator is typical.

    Yields:
        Its items in order.

    Raises:
        BaseException: Whatever the iterator raised.
    """
    context = contextvars.copy_context()
    steps = iter(iterator)
    try:
        while True:
            item = await _call(context, functools.partial(_next, steps))
            if item is _END:
                return
            yield cast("T", item)
    finally:
        close = getattr(steps, "close", None)
        if close is not None:
            await _call(context, close)


@asynccontextmanager
async def contextmanager_in_threadpool(
    manager: AbstractContextManager[T],
) -> AsyncGenerator[T, None]:
    """Enters and leaves a blocking context manager in the thread pool.

    Args:
        manager: A sync context manager.

    Yields:
        What its `__enter__` returned.

    Raises:
        BaseException: What the body raised, unless the manager swallows it.
    """
    context = contextvars.copy_context()
    value = await _call(context, manager.__enter__)
    try:
        yield value
    except BaseException as error:
        leave = functools.partial(manager.__exit__, type(error), error, error.__traceback__)
        if not await _call(context, leave):
            raise
    else:
        await _call(context, functools.partial(manager.__exit__, None, None, None))
