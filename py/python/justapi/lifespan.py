"""What runs when an application starts and when it stops."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
)
from inspect import isasyncgenfunction, isgeneratorfunction
from typing import Any, TypeAlias

from justapi._callables import is_async_callable
from justapi._tracebacks import format_from_user
from justapi.types import Receive, Scope, Send

__all__ = ["LifespanContext", "as_context", "merge", "run_lifespan"]

LifespanContext: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]


def as_context(lifespan: Any) -> LifespanContext:
    """Makes a context manager of a lifespan function.

    Args:
        lifespan: A context manager function, or a generator function, async or not.
    """
    if isasyncgenfunction(lifespan):
        return asynccontextmanager(lifespan)
    if isgeneratorfunction(lifespan):
        enter = contextmanager(lifespan)

        @asynccontextmanager
        async def context(app: Any) -> AsyncIterator[Any]:
            with enter(app) as state:
                yield state

        return context
    made: LifespanContext = lifespan
    return made


def merge(outer: LifespanContext, inner: LifespanContext) -> LifespanContext:
    """Makes one lifespan of two; the inner one starts last and stops first."""

    @asynccontextmanager
    async def merged(app: Any) -> AsyncIterator[Mapping[str, Any] | None]:
        async with outer(app) as outer_state, inner(app) as inner_state:
            if outer_state is None and inner_state is None:
                yield None
            else:
                yield {**(inner_state or {}), **(outer_state or {})}

    return merged


async def _call_all(handlers: list[Callable[[], Any]]) -> None:
    for handler in handlers:
        result = handler()
        if is_async_callable(handler):
            await result


def from_handlers(
    on_startup: list[Callable[[], Any]], on_shutdown: list[Callable[[], Any]]
) -> LifespanContext:
    """Makes a lifespan of handlers for start-up and shutdown; the lists may still grow."""

    @asynccontextmanager
    async def context(_app: Any) -> AsyncIterator[None]:
        await _call_all(on_startup)
        yield
        await _call_all(on_shutdown)

    return context


async def run_lifespan(
    context: LifespanContext, app: Any, scope: Scope, receive: Receive, send: Send
) -> None:
    """Speaks the lifespan protocol of ASGI.

    Raises:
        BaseException: Whatever start-up or shutdown raised, after the server was told.
    """
    started = False
    await receive()
    try:
        async with context(app) as state:
            if state is not None:
                if "state" not in scope:
                    raise RuntimeError('The server does not support "state" in the lifespan scope.')
                scope["state"].update(state)
            await send({"type": "lifespan.startup.complete"})
            started = True
            await receive()
    except BaseException as error:
        kind = "lifespan.shutdown.failed" if started else "lifespan.startup.failed"
        await send({"type": kind, "message": format_from_user(error)})
        raise
    await send({"type": "lifespan.shutdown.complete"})
