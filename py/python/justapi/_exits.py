"""Dependencies with `yield` that are open, and how they are ended.

What `contextlib`'s exit stacks do for context managers, done for generators directly: they are
ended in reverse order, an exception is thrown into each, and what comes out of one goes into the
next. There is nothing to allocate for a dependency but its place in a list.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from types import GeneratorType
from typing import Any, NoReturn

from justapi.exceptions import JustAPIError

__all__ = ["SWALLOWED", "Exits", "raise_swallowed"]

SWALLOWED = (
    "No response: a dependency with `yield` has caught the exception of the request and has not "
    "raised it again"
)


class Exits(list[Any]):
    """Generators that have yielded their value, in the order in which they were entered."""

    __slots__ = ()

    def enter(self, generator: Generator[Any, None, None]) -> Any:
        """Runs a generator up to its `yield` and returns the value.

        Raises:
            RuntimeError: It has ended without one.
        """
        try:
            value = next(generator)
        except StopIteration:
            raise RuntimeError("generator didn't yield") from None
        self.append(generator)
        return value

    async def enter_async(self, generator: AsyncGenerator[Any, None]) -> Any:
        """Runs an asynchronous generator up to its `yield` and returns the value.

        Raises:
            RuntimeError: It has ended without one.
        """
        try:
            value = await anext(generator)
        except StopAsyncIteration:
            raise RuntimeError("generator didn't yield") from None
        self.append(generator)
        return value

    async def aclose(self) -> None:
        """Ends all, after the response was sent.

        Raises:
            BaseException: Whatever the last of them raised.
        """
        error: BaseException | None = None
        while self:
            generator = self.pop()
            if isinstance(generator, GeneratorType):
                error = _end(generator, error)
            else:
                error = await _end_async(generator, error)
        if error is not None:
            raise error

    def close(self) -> None:
        """`aclose`, when all are plain generators."""
        error: BaseException | None = None
        while self:
            error = _end(self.pop(), error)
        if error is not None:
            raise error

    async def unwind(self, error: BaseException) -> NoReturn:
        """Throws an exception into all, from the last to the first, and raises what comes out.

        Raises:
            JustAPIError: Nothing came out.
        """
        left: BaseException | None = error
        while self:
            generator = self.pop()
            if isinstance(generator, GeneratorType):
                left = _end(generator, left)
            else:
                left = await _end_async(generator, left)
        if left is None:
            raise_swallowed()
        raise left

    def unwind_sync(self, error: BaseException) -> NoReturn:
        """`unwind`, when all are plain generators."""
        left: BaseException | None = error
        while self:
            left = _end(self.pop(), left)
        if left is None:
            raise_swallowed()
        raise left


def raise_swallowed() -> NoReturn:
    """Says that a request has neither response nor exception left."""
    raise JustAPIError(SWALLOWED)


def _end(
    generator: Generator[Any, None, None], error: BaseException | None
) -> BaseException | None:
    """Ends one generator and returns the exception that is on its way then."""
    try:
        if error is None:
            next(generator)
        else:
            generator.throw(error)
    except StopIteration as stop:
        return error if stop is error else None
    except BaseException as raised:
        return _unchanged(raised, error)
    generator.close()
    return _not_stopped(error)


async def _end_async(
    generator: AsyncGenerator[Any, None], error: BaseException | None
) -> BaseException | None:
    """Ends one asynchronous generator and returns the exception that is on its way then."""
    try:
        if error is None:
            await anext(generator)
        else:
            await generator.athrow(error)
    except StopAsyncIteration as stop:
        return error if stop is error else None
    except BaseException as raised:
        return _unchanged(raised, error)
    await generator.aclose()
    return _not_stopped(error)


def _not_stopped(error: BaseException | None) -> RuntimeError:
    return RuntimeError("generator didn't stop" + ("" if error is None else " after throw()"))


def _unchanged(raised: BaseException, thrown: BaseException | None) -> BaseException:
    """Sees through the RuntimeError that a generator makes of a StopIteration."""
    if (
        isinstance(raised, RuntimeError)
        and isinstance(thrown, StopIteration | StopAsyncIteration)
        and raised.__cause__ is thrown
    ):
        return thrown
    return raised
