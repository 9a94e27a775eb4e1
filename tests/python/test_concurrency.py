"""Calls in the pool of threads: what a cancelled caller leaves behind, which is nothing."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from justapi import concurrency
from justapi.concurrency import (
    clean_up_in_threadpool,
    contextmanager_in_threadpool,
    iterate_in_threadpool,
    open_in_threadpool,
    run_in_threadpool,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@asynccontextmanager
async def full_pool() -> AsyncIterator[None]:
    """Every thread of the pool is taken, so that a call waits before it begins."""
    let_go = threading.Event()
    begun = threading.Semaphore(0)

    def wait() -> None:
        begun.release()
        let_go.wait()

    waiting = [asyncio.create_task(run_in_threadpool(wait)) for _ in range(concurrency.MAX_THREADS)]
    await asyncio.to_thread(lambda: [begun.acquire() for _ in waiting])
    asyncio.get_running_loop().call_later(0.05, let_go.set)
    try:
        yield
    finally:
        let_go.set()
        await asyncio.gather(*waiting)


async def cancel_soon(work: Any) -> None:
    """Starts work, lets it come to its first wait, cancels it and sees it cancelled."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_call_that_waits_is_taken_back() -> None:
    called: list[int] = []

    async def main() -> None:
        async with full_pool():
            await cancel_soon(run_in_threadpool(called.append, 1))
        await run_in_threadpool(called.append, 2)

    asyncio.run(main())
    assert called == [2]


def test_what_cleans_up_is_never_taken_back() -> None:
    called: list[int] = []

    async def main() -> None:
        async with full_pool():
            await cancel_soon(clean_up_in_threadpool(lambda: called.append(1)))
            assert called == [1]

    asyncio.run(main())


def test_an_error_of_what_cleans_up_is_raised_once() -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await clean_up_in_threadpool(lambda: 1 / 0)
        async with full_pool():
            # The caller has gone: that is what it is told.
            await cancel_soon(clean_up_in_threadpool(lambda: 1 / 0))

    complaints: list[dict[str, Any]] = []

    async def watched() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: complaints.append(context))
        await main()

    asyncio.run(watched())
    assert complaints == []


def test_an_iterator_is_closed_though_its_reader_is_cancelled_twice() -> None:
    ended: list[str] = []

    def numbers() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            ended.append("numbers")

    async def main() -> None:
        steps = iterate_in_threadpool(numbers())
        assert await anext(steps) == 1
        async with full_pool():
            await cancel_soon(steps.aclose())
            assert ended == ["numbers"]

    asyncio.run(main())


@pytest.mark.parametrize("fails", [False, True])
def test_a_context_is_left_though_who_was_in_it_is_cancelled(fails: bool) -> None:
    log: list[str] = []

    @contextmanager
    def place() -> Iterator[None]:
        log.append("enter")
        try:
            yield
        finally:
            log.append("leave")

    async def work(entered: asyncio.Event, leaves: asyncio.Event) -> None:
        async with contextmanager_in_threadpool(place()):
            entered.set()
            await leaves.wait()
            if fails:
                raise LookupError

    async def main() -> None:
        entered, leaves = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(work(entered, leaves))
        await entered.wait()
        async with full_pool():
            leaves.set()
            await cancel_soon(task)
            assert log == ["enter", "leave"]

    asyncio.run(main())


def test_a_context_that_was_entered_for_nobody_is_left() -> None:
    log: list[str] = []
    is_entering, may_enter = threading.Event(), threading.Event()

    class Place:
        def __enter__(self) -> None:
            is_entering.set()
            may_enter.wait()
            log.append("enter")

        def __exit__(self, kind: Any, *_: object) -> bool:
            log.append(kind.__name__)
            return True  # Which cannot undo that the caller was cancelled.

    async def main() -> None:
        async def work() -> None:
            async with contextmanager_in_threadpool(Place()):
                log.append("inside")

        task = asyncio.create_task(work())
        await asyncio.to_thread(is_entering.wait)
        task.cancel()
        await asyncio.sleep(0)
        may_enter.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert log == ["enter", "CancelledError"]


def test_a_file_that_was_opened_for_nobody_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    is_opening, may_open = threading.Event(), threading.Event()
    opened: list[Any] = []
    fast_open = concurrency._open

    def slow_open(path: Path) -> Any:
        is_opening.set()
        may_open.wait()
        opened.append(fast_open(path))
        return opened[-1]

    async def main() -> None:
        monkeypatch.setattr(concurrency, "_open", slow_open)
        task = asyncio.create_task(open_in_threadpool(tmp_path / "file"))
        await asyncio.to_thread(is_opening.wait)
        task.cancel()
        await asyncio.sleep(0)
        may_open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [file.closed for file in opened] == [True]
        monkeypatch.undo()
        with await open_in_threadpool(tmp_path / "file") as file:
            assert file.read() == b"content"
        with pytest.raises(FileNotFoundError):
            await open_in_threadpool(tmp_path / "none")

    asyncio.run(main())
