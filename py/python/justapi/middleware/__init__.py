"""Middleware: ASGI applications around the application, and functions around its handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ParamSpec

from justapi.types import ASGIApp

__all__ = ["Middleware"]

P = ParamSpec("P")


class Middleware:
    """A middleware class with its arguments, to be applied when the application starts.

    Args:
        cls: The class or function; called with the application and the arguments.
        *args: Positional arguments.
        **kwargs: Keyword arguments.

    Example:
        >>> app = JustAPIApp(middleware=[Middleware(GZipMiddleware, minimum_size=500)])
    """

    def __init__(self, cls: Callable[..., ASGIApp], *args: Any, **kwargs: Any) -> None:
        self.cls = cls
        self.args = args
        self.kwargs = kwargs

    def __iter__(self) -> Iterator[Any]:
        return iter((self.cls, self.args, self.kwargs))

    def __repr__(self) -> str:
        name = getattr(self.cls, "__name__", type(self.cls).__name__)
        arguments = [repr(value) for value in self.args]
        arguments += [f"{name_}={value!r}" for name_, value in self.kwargs.items()]
        return f"{type(self).__name__}({', '.join([name, *arguments])})"
