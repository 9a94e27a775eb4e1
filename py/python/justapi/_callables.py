"""Tells what happens when a callable is called: a value, a coroutine, a generator."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

if sys.version_info >= (3, 13):
    from inspect import iscoroutinefunction
else:
    # Knows the marker of functions that only return a coroutine, too.
    from asyncio import iscoroutinefunction

__all__ = ["is_async_callable", "is_async_generator", "is_generator", "unwrapped"]


def _without_partial(call: Any) -> Any:
    while isinstance(call, partial):
        call = call.func
    return call


def unwrapped(call: Any) -> Any:
    """Returns what `functools.partial` and `functools.wraps` were applied to."""
    return inspect.unwrap(_without_partial(call))


def _candidates(call: Any) -> list[Any]:
    """The functions whose kind decides: the callable, what it wraps, and their `__call__`."""
    outer = _without_partial(call)
    inner = unwrapped(call)
    found = [outer, inner]
    if not inspect.isclass(inner):
        for one in (outer, inner):
            method = getattr(one, "__call__", None)  # noqa: B004
            if method is not None:
                found += [_without_partial(method), unwrapped(method)]
    return found


def is_generator(call: Callable[..., Any]) -> bool:
    """Whether calling it gives a generator."""
    return any(inspect.isgeneratorfunction(one) for one in _candidates(call))


def is_async_generator(call: Callable[..., Any]) -> bool:
    """Whether calling it gives an asynchronous generator."""
    return any(inspect.isasyncgenfunction(one) for one in _candidates(call))


def is_async_callable(call: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    return any(inspect.isroutine(one) and iscoroutinefunction(one) for one in _candidates(call))
