"""Work that is done after the response has been sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

from justapi._callables import is_async_callable
from justapi.concurrency import run_in_threadpool

__all__ = ["BackgroundTask", "BackgroundTasks"]

P = ParamSpec("P")


class BackgroundTask:
    """One call to be made after the response has been sent.

    Args:
        func: What to call; a plain function is called in a thread.
        *args: Its positional arguments.
        **kwargs: Its keyword arguments.
    """

    def __init__(self, func: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> None:
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.is_async = is_async_callable(func)

    async def __call__(self) -> None:
        """Makes the call."""
        if self.is_async:
            await self.func(*self.args, **self.kwargs)
        else:
            await run_in_threadpool(self.func, *self.args, **self.kwargs)


class BackgroundTasks(BackgroundTask):
    """Calls to be made one after the other after the response has been sent.

    A handler or dependency with a parameter of this type gets the request's own.

    Args:
        tasks: Calls to begin with.

    Example:
        >>> @app.post("/send")
        ... def send(email: str, tasks: BackgroundTasks):
        ...     tasks.add_task(write_log, f"mail to {email}")
    """

    def __init__(self, tasks: Sequence[BackgroundTask] | None = None) -> None:
        self.tasks: list[BackgroundTask] = list(tasks) if tasks else []

    def add_task(self, func: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> None:
        """Adds a call.

        Args:
            func: What to call; a plain function is called in a thread.
            *args: Its positional arguments.
            **kwargs: Its keyword arguments.
        """
        self.tasks.append(BackgroundTask(func, *args, **kwargs))

    async def __call__(self) -> None:
        """Makes all calls in order; one that raises ends them."""
        for task in self.tasks:
            await task()
