"""What follows an answer: background tasks and the ends of dependencies, whoever is still there."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from justapi import BackgroundTasks, Depends, JustAPI
from justapi.responses import JSONResponse, StreamingResponse
from lanes import Running, on_lane
from peers import until, vanish


async def ask_and_leave(port: int, path: str) -> None:
    """Goes away as soon as the answer begins."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
    await reader.readexactly(1)
    vanish(writer)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_background_task_ends_though_its_client_has_left(is_async: bool) -> None:
    app = JustAPI()
    log: list[str] = []
    go_on = asyncio.Event()

    async def work(name: str) -> None:
        log.append(f"{name} begins")
        await go_on.wait()
        log.append(f"{name} ends")

    if is_async:

        @app.get("/tasks")
        async def with_tasks(tasks: BackgroundTasks) -> str:
            tasks.add_task(work, "task")
            return "answer"

    else:

        @app.get("/tasks")
        def with_tasks_sync(tasks: BackgroundTasks) -> str:
            tasks.add_task(work, "task")
            return "answer"

    @app.get("/response")
    async def of_response(tasks: BackgroundTasks) -> JSONResponse:
        tasks.add_task(work, "of response")
        return JSONResponse("answer", background=tasks)

    async def use(running: Running) -> None:
        for path in ("/tasks", "/response"):
            await ask_and_leave(running.port, path)
        await until("both have begun", lambda: len(log) == 2)
        # The departures are seen before they go on.
        for _ in range(5):
            assert (await running.client.get("/nowhere")).status_code == 404
        go_on.set()
        await until("both have ended", lambda: len(log) == 4)

    on_lane(app, use)


def test_an_exception_after_the_answer_is_logged_and_seen_by_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = JustAPI()

    async def session() -> Any:
        yield 1
        raise ValueError("the session cannot be closed")

    def sync_session() -> Any:
        yield 1
        raise ValueError("the session cannot be closed")

    @app.get("/async")
    async def value(one: int = Depends(session)) -> int:
        return one

    @app.get("/sync")
    def sync_value(one: int = Depends(sync_session)) -> int:
        return one

    @app.get("/stream")
    async def stream(one: int = Depends(session)) -> StreamingResponse:
        return StreamingResponse(iter(["1"]))

    @app.get("/task")
    async def task(tasks: BackgroundTasks) -> int:
        def fail() -> None:
            raise ValueError("the session cannot be closed")

        tasks.add_task(fail)
        return 1

    @app.get("/stream-task")
    async def stream_task(tasks: BackgroundTasks) -> StreamingResponse:
        def fail() -> None:
            raise ValueError("the session cannot be closed")

        tasks.add_task(fail)
        return StreamingResponse(iter(["1"]), background=tasks)

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"1"})
        await asyncio.sleep(0)
        raise ValueError("the session cannot be closed")

    app.mount("/mounted", mounted)

    def num_logged() -> int:
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        texts = [record.exc_text or str(record.exc_info) for record in errors]
        return sum("the session cannot be closed" in text for text in texts)

    paths = ["/async", "/sync", "/stream", "/task", "/stream-task", "/mounted/"]

    async def use(running: Running) -> None:
        for number, path in enumerate(paths, 1):
            answer = await running.client.get(path)
            assert (answer.status_code, answer.text) == (200, "1"), path
            await until(f"{path} is logged", lambda number=number: num_logged() == number)
        assert (await running.client.get("/async")).text == "1"

    on_lane(app, use)
