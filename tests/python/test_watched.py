"""Coverage, debuggers and profilers see handlers, wherever these are run."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from justapi import JustAPI
from justapi.responses import StreamingResponse
from lanes import Running, on_lane

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

TOOL = 4


@contextmanager
def tracing(seen: set[str]) -> Iterator[None]:
    """Notes what is called, as coverage does on every version."""

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename == __file__:
            seen.add(frame.f_code.co_name)

    before, before_in_threads = sys.gettrace(), threading.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before_in_threads)  # type: ignore[arg-type]


@contextmanager
def profiling(seen: set[str]) -> Iterator[None]:
    """Notes what is called, as profilers do on every version."""

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename == __file__:
            seen.add(frame.f_code.co_name)

    before, before_in_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(before_in_threads)


@contextmanager
def monitoring(seen: set[str]) -> Iterator[None]:
    """Notes what is called, as coverage does from Python 3.12 on."""
    monitor = sys.monitoring

    def begins(code: CodeType, offset: int) -> None:
        if code.co_filename == __file__:
            seen.add(code.co_name)

    monitor.use_tool_id(TOOL, "test")
    try:
        monitor.register_callback(TOOL, monitor.events.PY_START, begins)
        monitor.set_events(TOOL, monitor.events.PY_START)
        yield
    finally:
        monitor.set_events(TOOL, 0)
        monitor.free_tool_id(TOOL)


def test_what_watches_code_sees_handlers_on_every_path() -> None:
    app = JustAPI()

    @app.get("/at-once", blocking=False)
    def at_once() -> str:
        return "answer"

    @app.get("/in-a-thread", blocking=True)
    def in_a_thread() -> str:
        return "answer"

    @app.get("/eager")
    async def eager() -> str:
        return "answer"

    @app.get("/waits")
    async def waits() -> str:
        await asyncio.sleep(0)
        return "answer"

    @app.get("/raises")
    async def raises() -> str:
        raise ValueError("seen all the same")

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> Any:
            yield b"ans"
            await asyncio.sleep(0)
            yield b"wer"

        return StreamingResponse(parts())

    async def use(running: Running) -> None:
        for path in ("at-once", "in-a-thread", "eager", "waits", "stream"):
            answer = await running.client.get(f"/{path}")
            assert answer.status_code == 200, path
            assert "answer" in answer.text
        assert (await running.client.get("/raises")).status_code == 500

    handlers = {"at_once", "in_a_thread", "eager", "waits", "raises", "stream", "parts"}
    watches = [tracing, profiling]
    if sys.version_info >= (3, 12):
        watches.append(monitoring)
    for watch in watches:
        seen: set[str] = set()
        with watch(seen):
            on_lane(app, use)
        assert handlers <= seen, (watch.__name__, handlers - seen)
