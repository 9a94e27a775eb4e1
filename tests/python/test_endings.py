"""Whatever happens to a request, what it opened is ended, once and in order."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest

from asgi import make_scope
from justapi import BackgroundTasks, Depends, HTTPException, JustAPIApp, UploadFile
from justapi.responses import PlainTextResponse, StreamingResponse

log: list[str] = []


def plain():
    log.append("plain opens")
    try:
        yield 1
    except BaseException as error:
        log.append(f"plain sees {type(error).__name__}")
        raise
    finally:
        log.append("plain ends")


async def asynchronous():
    log.append("async opens")
    try:
        yield 2
    except BaseException as error:
        log.append(f"async sees {type(error).__name__}")
        raise
    finally:
        await asyncio.sleep(0)
        log.append("async ends")


app = JustAPIApp()


@app.get("/stream")
async def stream(a: Annotated[Any, Depends(plain)], b: Annotated[Any, Depends(asynchronous)]):
    async def parts():
        try:
            for number in range(1000):
                yield str(number)
                await asyncio.sleep(0)
        finally:
            log.append("stream ends")

    return StreamingResponse(parts())


@app.get("/wait")
async def wait(a: Annotated[Any, Depends(plain)], b: Annotated[Any, Depends(asynchronous)]):
    log.append("waiting")
    await asyncio.Event().wait()


@app.get("/text")
async def text(
    tasks: BackgroundTasks,
    a: Annotated[Any, Depends(plain)],
    b: Annotated[Any, Depends(asynchronous)],
):
    tasks.add_task(log.append, "task")
    return PlainTextResponse("text")


@app.get("/failing-task")
async def failing_task(tasks: BackgroundTasks, a: Annotated[Any, Depends(plain)]):
    def fail() -> None:
        raise RuntimeError("in the task")

    tasks.add_task(fail)


@app.get("/bad-header")
async def bad_header(a: Annotated[Any, Depends(plain)]):
    return PlainTextResponse("x", headers={"x": "a\r\nb: c"})


uploads: list[Any] = []


@app.post("/upload")
async def upload(file: UploadFile, number: int):
    uploads.append(file.file)
    return number


class Client:
    """An ASGI client that may leave."""

    def __init__(self, path: str, *, leaves_after: int | None = None, **more: Any) -> None:
        self.scope = make_scope(path, **more)
        self.sent: list[Any] = []
        self._leaves_after = leaves_after
        self._left = asyncio.Event()

    async def receive(self) -> Any:
        if not self.sent and "asked" not in self.scope["state"]:
            self.scope["state"]["asked"] = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self._left.is_set():
            raise OSError("gone")
        self.sent.append(message["type"])
        if self._leaves_after is not None and len(self.sent) >= self._leaves_after:
            self._left.set()

    async def run(self) -> None:
        log.clear()
        await app(self.scope, self.receive, self.send)


def test_a_stream_keeps_its_dependencies_open() -> None:
    asyncio.run(Client("/stream").run())
    assert log == ["plain opens", "async opens", "stream ends", "async ends", "plain ends"]


@pytest.mark.parametrize("leaves_after", [1, 2, 10])
def test_a_client_that_leaves_ends_the_stream_and_its_dependencies(leaves_after: int) -> None:
    client = Client("/stream", leaves_after=leaves_after)
    asyncio.run(client.run())
    assert log[:2] == ["plain opens", "async opens"]
    assert log[-2:] == ["async ends", "plain ends"]
    assert log.count("stream ends") == (1 if leaves_after > 1 else log.count("stream ends"))
    assert len(client.sent) < 1000


def test_a_cancelled_handler_ends_its_dependencies() -> None:
    async def run() -> None:
        task = asyncio.create_task(Client("/wait").run())
        while "waiting" not in log:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert log == [
        "plain opens",
        "async opens",
        "waiting",
        "async sees CancelledError",
        "async ends",
        "plain sees CancelledError",
        "plain ends",
    ]


def test_background_tasks_run_before_the_dependencies_end() -> None:
    asyncio.run(Client("/text").run())
    assert log == ["plain opens", "async opens", "task", "async ends", "plain ends"]


def test_dependencies_end_when_nothing_could_be_sent() -> None:
    client = Client("/text", leaves_after=1)
    with pytest.raises(OSError, match="gone"):
        asyncio.run(client.run())
    assert log[-2:] == ["async ends", "plain ends"]


def test_a_failing_task_does_not_keep_dependencies_open() -> None:
    with pytest.raises(RuntimeError, match="in the task"):
        asyncio.run(Client("/failing-task").run())
    assert log == ["plain opens", "plain ends"]


def test_a_response_that_cannot_be_made_is_seen_by_dependencies() -> None:
    client = Client("/bad-header")
    with pytest.raises(ValueError, match="invalid character"):
        asyncio.run(client.run())
    assert client.sent == ["http.response.start", "http.response.body"]
    assert log == ["plain opens", "plain sees ValueError", "plain ends"]


@pytest.mark.parametrize("number", ["3", "x"])
def test_files_of_forms_are_closed(number: str) -> None:
    uploads.clear()
    boundary = "b"
    body = (
        f"--{boundary}\r\nContent-Disposition: form-data; "
        f'name="file"; filename="f"\r\n\r\n{"x" * 10}\r\n--{boundary}--\r\n'
    ).encode()
    sent: list[Any] = []
    received = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        return next(received)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = make_scope(
        "/upload",
        "POST",
        [("content-type", f"multipart/form-data; boundary={boundary}")],
        f"number={number}".encode(),
    )
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == (200 if number == "3" else 422)
    assert [file.closed for file in uploads] == [True] * len(uploads)
    assert len(uploads) == (1 if number == "3" else 0)


def test_limits_of_bodies() -> None:
    limited = JustAPIApp(max_body_size=10)

    @limited.post("/json")
    async def json_(body: dict[str, Any]): ...

    @limited.post("/upload")
    async def upload_(file: UploadFile): ...

    @limited.post("/none")
    async def none(): ...

    async def ask(path: str, content_type: str) -> int:
        sent: list[Any] = []
        chunks = (
            [b": 2\r\n\r\n", b": 1\r\nB", b"--b\r\nA"]
            if "form" in content_type
            else [b"123456"] * 3
        )

        async def receive() -> Any:
            return {"type": "http.request", "body": chunks.pop(), "more_body": bool(chunks)}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = make_scope(path, "POST", [("content-type", content_type)])
        await limited(scope, receive, send)
        return sent[0]["status"]

    assert asyncio.run(ask("/json", "application/json")) == 413
    assert asyncio.run(ask("/upload", "multipart/form-data; boundary=b")) == 413
    assert asyncio.run(ask("/none", "text/plain")) == 200


def test_an_exception_group_of_http_exceptions_is_not_an_answer() -> None:
    grouped = JustAPIApp()

    @grouped.get("/x")
    async def x():
        raise ExceptionGroup("several", [HTTPException(404), HTTPException(403)])

    client = Client("/x")

    async def run() -> None:
        await grouped(client.scope, client.receive, client.send)

    with pytest.raises(ExceptionGroup):
        asyncio.run(run())
