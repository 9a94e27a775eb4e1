"""The list of open generators ends them exactly as contextlib's exit stacks do."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from justapi._exits import Exits
from justapi.exceptions import JustAPIError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

BEHAVIOURS = [
    "passes",
    "finally",
    "swallows",
    "replaces",
    "reraises",
    "raises_at_exit",
    "yields_twice",
    "raises_stop_iteration",
]


def behave(name: str, number: int, log: list[str]) -> Generator[int, None, None]:
    """A dependency that does what its name says."""
    try:
        yield number
    except GeneratorExit:
        raise
    except BaseException as error:
        log.append(f"{number} saw {type(error).__name__} {error}".replace("athrow", "throw"))
        if name == "swallows":
            return
        if name == "replaces":
            raise KeyError(number) from None
        if name == "raises_stop_iteration":
            raise StopIteration(number) from None
        if name == "yields_twice":
            yield -1
            return
        raise
    finally:
        log.append(f"{number} ends")
    if name == "raises_at_exit":
        raise LookupError(number)
    if name == "yields_twice":
        yield -1


async def behave_async(name: str, number: int, log: list[str]) -> AsyncGenerator[int, None]:
    """`behave`, step by step."""
    inner = behave(name, number, log)
    value = next(inner)
    while True:
        try:
            yield value
        except GeneratorExit:
            inner.close()
            raise
        except BaseException as error:
            try:
                value = inner.throw(error)
            except StopIteration:
                return
        else:
            try:
                value = next(inner)
            except StopIteration:
                return


class ThrownError(Exception): ...


def outcome(run: Callable[[], Any]) -> str:
    try:
        run()
    except JustAPIError:
        return "swallowed"
    except BaseException as error:
        return f"{type(error).__name__} {error}".replace("athrow()", "throw()")
    return "nothing"


@pytest.mark.parametrize("error", [None, ThrownError("x"), StopIteration(7), RuntimeError("y")])
@pytest.mark.parametrize("names", list(itertools.product(BEHAVIOURS, repeat=2)))
def test_plain_generators(names: tuple[str, ...], error: Exception | None) -> None:
    expected: list[str] = []
    found: list[str] = []

    def with_stack() -> None:
        swallowed = True
        with ExitStack() as stack:
            for number, name in enumerate(names):
                stack.enter_context(contextmanager(behave)(name, number, expected))
            if error is not None:
                raise error
            swallowed = False
        if swallowed:
            raise JustAPIError

    def with_exits() -> None:
        exits = Exits()
        for number, name in enumerate(names):
            assert exits.enter(behave(name, number, found)) == number
        if error is None:
            exits.close()
        else:
            exits.unwind_sync(error)

    assert outcome(with_exits) == outcome(with_stack)
    assert found == expected


@pytest.mark.parametrize("error", [None, ThrownError("x"), RuntimeError("y")])
@pytest.mark.parametrize("names", list(itertools.product(BEHAVIOURS[:-1], repeat=2)))
def test_asynchronous_generators(names: tuple[str, ...], error: Exception | None) -> None:
    expected: list[str] = []
    found: list[str] = []

    async def with_stack() -> None:
        swallowed = True
        async with AsyncExitStack() as stack:
            for number, name in enumerate(names):
                manager = asynccontextmanager(behave_async)(name, number, expected)
                await stack.enter_async_context(manager)
            if error is not None:
                raise error
            swallowed = False
        if swallowed:
            raise JustAPIError

    async def with_exits() -> None:
        exits = Exits()
        for number, name in enumerate(names):
            assert await exits.enter_async(behave_async(name, number, found)) == number
        if error is None:
            await exits.aclose()
        else:
            await exits.unwind(error)

    assert outcome(lambda: asyncio.run(with_exits())) == outcome(lambda: asyncio.run(with_stack()))
    assert found == expected


def test_a_generator_without_a_value_is_an_error() -> None:
    def nothing() -> Generator[int, None, None]:
        return
        yield

    async def nothing_async() -> AsyncGenerator[int, None]:
        return
        yield

    with pytest.raises(RuntimeError, match="didn't yield"):
        Exits().enter(nothing())
    with pytest.raises(RuntimeError, match="didn't yield"):
        asyncio.run(Exits().enter_async(nothing_async()))
