"""Runs blocking calls in one bounded pool of threads.

The pool serves user code and file access: handlers that block, sync iterators, spooled files.
Context variables are carried into the thread. A call that has begun is always waited for, even
when the caller is cancelled, so that nothing it uses is taken away beneath it. What cleans up runs
even then when it had not begun, and what was opened for a caller that has gone is closed again.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar, cast

from justapi._from_thread import with_loop

__all__ = ["contextmanager_in_threadpool", "iterate_in_threadpool", "run_in_threadpool"]

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS = 40
"""Threads of the pool: the number that FastAPI users know. Calls beyond it wait their turn.

Each of these has a task that waits for it, of a request most often, so there are no more than the
server has let in; the pool for handlers that are called without a task has a limit of its own.
"""

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


def _submit(context: contextvars.Context, func: Callable[[], T]) -> Future[T]:
    """Has a thread call `func` inside `context`, for the running loop."""
    run: Callable[..., T] = context.run
    return _get_pool().submit(run, *with_loop(func))


async def _call(context: contextvars.Context, func: Callable[[], T]) -> T:
    """Runs `func` in the pool and inside `context`; never leaves while it runs."""
    submitted = _submit(context, func)
    try:
        return await asyncio.wrap_future(submitted)
    except asyncio.CancelledError:
        # Cancelling the wrapper took the call back unless a thread had begun it.
        if not submitted.cancelled():
            await _ended(submitted)
        raise


async def _call_always(context: contextvars.Context, func: Callable[[], T]) -> T:
    """`_call` of what cleans up: a caller that is cancelled waits for it, begun or not."""
    submitted = _submit(context, func)
    cancellation = await _ended(submitted)
    if cancellation is not None:
        raise cancellation
    return submitted.result()


async def _ended(submitted: Future[T]) -> asyncio.CancelledError | None:
    """Waits until a call has ended; returns the last cancellation that came meanwhile."""
    cancellation: asyncio.CancelledError | None = None
    work = asyncio.wrap_future(submitted)
    while not work.done():
        try:
            # Cancelling `wait` leaves alone what it waits for.
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            cancellation = error
    if not work.cancelled():
        work.exception()
    return cancellation


async def clean_up_in_threadpool(func: Callable[[], T]) -> T:
    """Calls in the pool what must run even when the caller is cancelled.

    Args:
        func: What to call. It sees the caller's context variables.

    Returns:
        What the function returned.

    Raises:
        asyncio.CancelledError: The caller was cancelled; the call has ended.
        BaseException: Whatever the function raised.
    """
    return await _call_always(contextvars.copy_context(), func)


def _open(path: str | os.PathLike[str]) -> BinaryIO:
    return Path(path).open("rb")


async def open_in_threadpool(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a file to read, in the pool; one that nobody waits for any more is closed again.

    Args:
        path: The file.

    Returns:
        The file.

    Raises:
        asyncio.CancelledError: The caller was cancelled; no file is open.
        OSError: The file cannot be opened.
    """
    opened: list[BinaryIO] = []

    try:
        await run_in_threadpool(lambda: opened.append(_open(path)))
    except BaseException:
        for file in opened:
            file.close()
        raise
    return opened[0]


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
        >>> await run_in_threadpool(os.path.getsize, "report.pdf")
        4
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
            await _call_always(context, close)


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
    entered: list[T] = []

    async def leave(error: BaseException) -> bool | None:
        call = functools.partial(manager.__exit__, type(error), error, error.__traceback__)
        return await _call_always(context, call)

    try:
        await _call(context, lambda: entered.append(manager.__enter__()))
    except BaseException as error:
        if entered:  # The caller was cancelled while a thread entered.
            await leave(error)
        raise
    try:
        yield entered[0]
    except BaseException as error:
        if not await leave(error):
            raise
    else:
        await _call_always(context, functools.partial(manager.__exit__, None, None, None))
