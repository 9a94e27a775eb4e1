"""Functions in threads of the server call back into its event loop by means of anyio."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import anyio.from_thread
import pytest

from justapi import BackgroundTasks, Depends, JustAPI
from justapi.concurrency import run_in_threadpool
from justapi.responses import StreamingResponse
from justapi.testclient import TestClient
from lanes import Running, on_lane
from peers import until
from serving import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

variable = contextvars.ContextVar("variable", default="unset")


async def where() -> list[Any]:
    """What a coroutine sees that a thread has the loop run."""
    await asyncio.sleep(0)
    assert asyncio.current_task() is not None
    return [threading.get_ident(), id(asyncio.get_running_loop()), variable.get()]


def ask() -> list[Any]:
    """Asks the loop from a thread, in both ways, and says what it said."""
    here = threading.get_ident()
    variable.set("of the thread")
    thread, loop, value = anyio.from_thread.run(where)
    assert thread != here
    assert anyio.from_thread.run_sync(threading.get_ident) == thread
    anyio.from_thread.check_cancelled()
    return [thread, loop, value]


def expected() -> list[Any]:
    return [threading.get_ident(), id(asyncio.get_running_loop()), "of the thread"]


def test_a_handler_in_a_thread() -> None:
    app = JustAPI()

    @app.get("/", blocking=True)
    def handler() -> list[Any]:
        return ask()

    @app.get("/fails", blocking=True)
    def fails() -> str:
        async def fail() -> None:
            raise LookupError("in the loop")

        try:
            anyio.from_thread.run(fail)
        except LookupError as error:
            return str(error)
        return "nothing"

    async def use(running: Running) -> None:
        for _ in range(3):
            assert (await running.client.get("/")).json() == expected()
        assert (await running.client.get("/fails")).json() == "in the loop"

    on_lane(app, use)


def test_a_handler_that_was_moved_to_a_thread() -> None:
    app = JustAPI()
    is_on_loop = True

    @app.get("/")
    def handler() -> list[Any] | None:
        nonlocal is_on_loop
        is_on_loop = threading.current_thread() is threading.main_thread()
        if is_on_loop:
            time.sleep(0.01)
            return None
        return ask()

    async def use(running: Running) -> None:
        async with asyncio.timeout(30):
            while is_on_loop:
                answer = (await running.client.get("/")).json()
        assert answer == expected()

    on_lane(app, use)


def test_dependencies_streams_and_what_comes_after_the_answer() -> None:
    app = JustAPI()
    seen: dict[str, list[Any]] = {}

    def plain() -> None:
        seen["plain"] = ask()

    def session() -> Iterator[None]:
        seen["before yield"] = ask()
        yield
        seen["after yield"] = ask()

    def later() -> None:
        seen["background"] = ask()

    @app.get("/", blocking=True, dependencies=[Depends(plain), Depends(session)])
    async def handler(tasks: BackgroundTasks) -> str:
        tasks.add_task(later)
        seen["called"] = await run_in_threadpool(ask)
        return "ok"

    @app.get("/sync", blocking=True, dependencies=[Depends(plain), Depends(session)])
    def handler_sync(tasks: BackgroundTasks) -> str:
        tasks.add_task(later)
        seen["called"] = ask()
        return "ok"

    @app.get("/stream")
    def stream() -> StreamingResponse:
        def parts() -> Iterator[bytes]:
            seen["stream"] = ask()
            yield b"part"

        return StreamingResponse(parts())

    async def use(running: Running) -> None:
        for path in ("/", "/sync"):
            seen.clear()
            assert (await running.client.get(path)).json() == "ok"
            names = {"plain", "before yield", "called", "background", "after yield"}
            if path == "/sync":
                # What ends after the answer does so on the loop's thread or in one of ours.
                names.discard("after yield")
            await until(f"all of {path} has run", lambda names=names: names <= seen.keys())
            assert {name: seen[name] for name in names} == dict.fromkeys(names, expected())
        assert (await running.client.get("/stream")).content == b"part"
        assert seen["stream"] == expected()

    on_lane(app, use)


def test_a_handler_behind_middleware_and_under_a_test_client() -> None:
    app = JustAPI()

    @app.middleware("http")
    async def around(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    @app.get("/", blocking=True)
    def handler() -> str:
        return ask()[2]

    async def use(running: Running) -> None:
        assert (await running.client.get("/")).json() == "of the thread"

    on_lane(app, use)
    with TestClient(app) as client:
        assert client.get("/").json() == "of the thread"


@pytest.mark.parametrize("is_dependency", [False, True])
def test_on_the_thread_of_the_loop_it_is_an_error_that_says_what_helps(
    is_dependency: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = JustAPI()

    if is_dependency:

        @app.get("/")
        async def with_dependency(found: Annotated[Any, Depends(ask)]) -> Any:
            return found
    else:

        @app.get("/")
        def handler() -> Any:
            return ask()

    async def use(running: Running) -> None:
        async with asyncio.timeout(20):
            assert (await running.client.get("/")).status_code == 500
        assert "Not running inside an AnyIO worker thread" in caplog.text
        assert "with blocking=True its route calls it in a thread" in caplog.text

    with caplog.at_level(logging.ERROR):
        on_lane(app, use)


def test_threads_work_for_nobody_between_their_calls() -> None:
    async def main() -> None:
        await run_in_threadpool(ask)
        pool = run_in_threadpool
        # Another loop's calls may come to the same thread next.
        assert await pool(lambda: anyio.from_thread.run(where)) == [
            threading.get_ident(),
            id(asyncio.get_running_loop()),
            "unset",
        ]

    for _ in range(2):
        asyncio.run(main())


APP = """
    import sys

    from justapi import JustAPI

    app = JustAPI()


    @app.get("/", blocking=True)
    def handler() -> bool:
        return any(name.partition(".")[0] == "anyio" for name in sys.modules)


    @app.get("/imports", blocking=True)
    def imports() -> int:
        import anyio.from_thread

        async def four() -> int:
            return 4

        try:
            return anyio.from_thread.run(four)
        except RuntimeError:
            return 0
"""


def test_nothing_imports_anyio_for_an_application_that_does_not(tmp_path: Path) -> None:
    with Server(tmp_path, APP) as server:
        assert server.client.get("/").json() is False
        # Known from the first call on that begins after the import.
        server.client.get("/imports")
        assert server.client.get("/imports").json() == 4
        assert server.client.get("/").json() is True
