"""The lane itself: tasks, contexts, threads, streams and clients that leave."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import resource
import socket
import time
from typing import Annotated, Any

import httpx
import pytest

import justapi
from justapi import BackgroundTasks, Depends, JustAPI, Request, WebSocket
from justapi.responses import StreamingResponse
from lanes import Running, on_lane


def test_coroutines_run_in_real_tasks_from_their_first_step() -> None:
    app = JustAPI()

    @app.get("/")
    async def tasks() -> list[bool]:
        first = asyncio.current_task()
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        return [first is not None, first is asyncio.current_task(), first in asyncio.all_tasks()]

    @app.get("/eager")
    async def eager() -> bool:
        return asyncio.current_task() is not None

    async def use(running: Running) -> None:
        assert (await running.client.get("/")).json() == [True, True, True]
        assert (await running.client.get("/eager")).json() is True
        assert running.counters["suspended"] == 1
        assert running.counters["eager"] == 1

    on_lane(app, use)


def test_the_ways_of_requests_are_counted_among_the_metrics() -> None:
    app = JustAPI()

    @app.get("/inline")
    def inline() -> None: ...

    @app.get("/eager")
    async def eager() -> None: ...

    @app.get("/suspended")
    async def suspended() -> None:
        await asyncio.sleep(0)

    @app.post("/native", native=True, schema={"type": "object"})
    def native() -> None: ...

    async def use(running: Running) -> None:
        client = running.client
        for path in ("/inline", "/eager", "/suspended"):
            assert (await client.get(path)).status_code == 200
        assert (await client.post("/native", json={})).status_code == 200
        assert (await client.post("/native", json=[])).status_code == 422
        lines = (await client.get("/metrics")).text.splitlines()
        expected = {"inline": 1, "eager": 1, "suspended": 1, "native": 2, "threaded": 0, "asgi": 0}
        for way, count in expected.items():
            assert f"justapi_python_{way}_total {count}" in lines
            assert running.counters[way] == count
        # Native routes are no work of Python.
        assert running.lane.num_requests() == 3

    on_lane(app, use, metrics={"Path": "/metrics"})


def test_handlers_have_a_context_of_their_own() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    app = JustAPI()

    @app.get("/sync")
    def sync() -> int:
        before = variable.get()
        variable.set(before + 1)
        return before

    @app.get("/async")
    async def coroutine() -> int:
        before = variable.get()
        variable.set(before + 1)
        await asyncio.sleep(0)
        return before

    async def use(running: Running) -> None:
        for path in ("/sync", "/async") * 3:
            assert (await running.client.get(path)).json() == 0

    on_lane(app, use)


def test_timers_and_callbacks_of_handlers_are_kept() -> None:
    app = JustAPI()
    seen: list[str] = []

    @app.get("/sync")
    def sync() -> str:
        loop = asyncio.get_running_loop()
        loop.call_soon(seen.append, "soon")
        loop.call_later(0.01, seen.append, "later")
        return "ok"

    async def use(running: Running) -> None:
        # A client of another kind, so that nothing but the handler moves the loop.
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"GET /sync HTTP/1.1\r\nHost: test\r\n\r\n")
        await reader.readuntil(b'"ok"')
        await asyncio.sleep(0.2)
        assert seen == ["soon", "later"]
        writer.close()

    on_lane(app, use)


def test_a_client_that_leaves_cancels_its_handler() -> None:
    app = JustAPI()
    ended: list[str] = []

    @app.get("/")
    async def forever() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        finally:
            ended.append("finally")

    async def use(running: Running) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
        await asyncio.sleep(0.05)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.close()
        await until(lambda: len(ended) == 2)
        assert ended == ["cancelled", "finally"]

    on_lane(app, use)


async def until(check: Any) -> None:
    """Waits until `check` holds."""
    deadline = time.monotonic() + 10
    while not check():
        assert time.monotonic() < deadline, "never"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_stream_ends_when_its_client_leaves(is_async: bool) -> None:
    app = JustAPI()
    ended: list[int] = []

    def chunks() -> Any:
        try:
            while True:
                yield b"x" * 1000
                time.sleep(0.001)
        finally:
            ended.append(1)

    async def async_chunks() -> Any:
        try:
            while True:
                yield b"x" * 1000
                await asyncio.sleep(0.001)
        finally:
            ended.append(1)

    @app.get("/")
    async def stream() -> StreamingResponse:
        return StreamingResponse(async_chunks() if is_async else chunks())

    async def use(running: Running) -> None:
        for number in range(20):
            async with running.client.stream("GET", "/") as answer:
                async for _ in answer.aiter_raw():
                    break
            await until(lambda expected=number + 1: len(ended) == expected)

    on_lane(app, use)


def test_a_slow_reader_holds_its_producer_back() -> None:
    app = JustAPI()
    produced = 0

    async def chunks() -> Any:
        nonlocal produced
        for _ in range(10_000):
            produced += 10_000
            yield b"x" * 10_000

    @app.get("/")
    async def stream() -> StreamingResponse:
        return StreamingResponse(chunks())

    async def use(running: Running) -> None:
        with socket.create_connection(("127.0.0.1", running.port)) as slow:
            slow.setblocking(False)
            slow.send(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
            await asyncio.sleep(0.5)
            held = produced
            await asyncio.sleep(0.2)
            # What the sockets' buffers take, and no more.
            assert produced == held < 50_000_000

    on_lane(app, use)


def test_uploads_are_received_piece_by_piece() -> None:
    app = JustAPI()

    @app.post("/")
    async def length(request: Request) -> list[int]:
        total = pieces = 0
        async for piece in request.stream():
            total += len(piece)
            pieces += 1
        return [total, pieces]

    async def use(running: Running) -> None:
        async def body() -> Any:
            for _ in range(10):
                yield b"y" * 50_000
                await asyncio.sleep(0.001)

        total, pieces = (await running.client.post("/", content=body())).json()
        assert total == 500_000
        assert pieces > 1

    on_lane(app, use)


def test_a_body_above_the_limit_is_413() -> None:
    app = JustAPI()

    @app.post("/whole")
    async def whole(data: dict[str, Any]) -> int:
        return len(data)

    @app.post("/stream")
    async def stream(request: Request) -> int:
        return len(await request.body())

    async def use(running: Running) -> None:
        for path in ("/whole", "/stream"):
            answer = await running.client.post(path, json={"a": "x" * 3_000_000})
            assert answer.status_code == 413

    on_lane(app, use)


def test_background_tasks_run_after_the_answer() -> None:
    app = JustAPI()
    order: list[str] = []

    async def late() -> None:
        await asyncio.sleep(0.05)
        order.append("background")

    async def session() -> Any:
        yield 1
        order.append("exit")

    @app.get("/")
    async def answer(tasks: BackgroundTasks, _: Annotated[int, Depends(session)]) -> str:
        tasks.add_task(late)
        return "ok"

    async def use(running: Running) -> None:
        assert (await running.client.get("/")).json() == "ok"
        order.append("answered")
        # The same connection is not held up.
        assert (await running.client.get("/nothing")).status_code == 404
        await until(lambda: len(order) == 3)
        assert order == ["answered", "background", "exit"]

    on_lane(app, use)


def test_a_handler_that_blocks_moves_to_threads() -> None:
    app = JustAPI()

    @app.get("/block")
    def block() -> str:
        time.sleep(0.005)
        return "ok"

    @app.get("/compute")
    def compute() -> int:
        end = time.thread_time() + 0.003
        number = 0
        while time.thread_time() < end:
            number += 1
        return number

    @app.get("/quick")
    async def quick() -> str:
        return "ok"

    async def use(running: Running) -> None:
        for _ in range(10):
            assert (await running.client.get("/compute")).status_code == 200
        assert running.counters["threaded"] == 0
        for _ in range(10):
            assert (await running.client.get("/block")).json() == "ok"
        assert running.counters["threaded"] >= 5
        begun = time.monotonic()
        answers = await asyncio.gather(*(running.client.get("/block") for _ in range(40)))
        assert all(answer.json() == "ok" for answer in answers)
        assert time.monotonic() - begun < 40 * 0.005 * 20

    on_lane(app, use)


def test_websockets_echo_and_close() -> None:
    app = JustAPI()
    closed: list[int] = []

    @app.websocket("/ws/{name}")
    async def echo(socket: WebSocket, name: str) -> None:
        await socket.accept(subprotocol="chat")
        try:
            async for text in socket.iter_text():
                if text == "fail":
                    raise RuntimeError("on purpose")
                await socket.send_json({"name": name, "text": text})
        finally:
            closed.append(1)

    @app.websocket("/refused")
    async def refused(socket: WebSocket) -> None:
        await socket.close()

    @app.get("/ws/{name}")
    async def page(name: str) -> str:
        return name

    async def use(running: Running) -> None:
        from websockets.asyncio.client import connect
        from websockets.exceptions import ConnectionClosed, InvalidStatus

        url = f"ws://127.0.0.1:{running.port}"
        async with connect(f"{url}/ws/a", subprotocols=["chat"]) as client:
            assert client.subprotocol == "chat"
            for number in range(50):
                await client.send(str(number))
                assert json.loads(await client.recv()) == {"name": "a", "text": str(number)}
            await client.send("x" * 200_000)
            assert len(await client.recv()) > 200_000
        await until(lambda: closed == [1])
        async with connect(f"{url}/ws/a") as client:
            await client.send("fail")
            with pytest.raises(ConnectionClosed) as failed:
                await client.recv()
            assert failed.value.rcvd is not None
            assert failed.value.rcvd.code == 1011
        for path, status in (("/refused", 403), ("/nowhere", 404)):
            with pytest.raises(InvalidStatus) as refusal:
                await connect(f"{url}{path}")
            assert refusal.value.response.status_code == status
        assert (await running.client.get("/ws/b")).json() == "b"

    on_lane(app, use)


def test_headers_that_http_does_not_allow_are_a_500() -> None:
    app = JustAPI()

    class Raw(justapi.Response):
        def __init__(self, name: bytes, value: bytes) -> None:
            super().__init__(b"body")
            self.raw_headers.append((name, value))

    bad = {
        "space": (b"x bad", b"1"),
        "newline": (b"x-a", b"a\r\nx-b: c"),
        "nul": (b"x-a", b"a\0b"),
        "empty": (b"", b"1"),
    }

    @app.get("/{name}")
    async def raw(name: str) -> justapi.Response:
        return Raw(*bad[name])

    async def use(running: Running) -> None:
        for name in bad:
            answer = await running.client.get(f"/{name}")
            assert answer.status_code == 500
            assert "x-b" not in answer.headers
        assert (await running.client.get("/space")).status_code == 500

    on_lane(app, use)


def test_nothing_grows_over_many_requests_and_departures() -> None:
    app = JustAPI()
    ended = 0

    @app.get("/{number}")
    async def value(number: int) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"number": number}

    @app.post("/upload")
    async def upload(request: Request) -> int:
        nonlocal ended
        try:
            return len(await request.body())
        finally:
            ended += 1

    async def round_of(running: Running, count: int) -> None:
        for number in range(count):
            await running.client.get(f"/{number}")
            with socket.create_connection(("127.0.0.1", running.port)) as leaving:
                leaving.sendall(
                    b"POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\nabc"
                )
            if number % 10 == 0:
                await running.client.get("/not-a-number")

    async def use(running: Running) -> None:
        await round_of(running, 200)
        gc.collect()
        objects = len(gc.get_objects())
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await round_of(running, 600)
        await until(lambda: ended == 800)
        gc.collect()
        assert len(gc.get_objects()) - objects < 500
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun < 8_000

    on_lane(app, use)


def test_a_lane_serves_while_the_loop_does_other_work() -> None:
    app = JustAPI()

    @app.get("/")
    async def hello() -> str:
        return "ok"

    async def use(running: Running) -> None:
        process = await asyncio.create_subprocess_exec("true")
        busy = asyncio.create_task(spin())
        answers = await asyncio.gather(*(running.client.get("/") for _ in range(50)))
        assert {answer.json() for answer in answers} == {"ok"}
        assert await process.wait() == 0
        busy.cancel()
        assert await asyncio.to_thread(lambda: 5) == 5

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    on_lane(app, use)


def test_other_servers_get_the_same_answers() -> None:
    app = JustAPI()

    @app.get("/{number}")
    def number(number: int, q: str = "x") -> dict[str, Any]:
        return {"number": number, "q": q}

    urls = ["/1", "/2?q=%20a", "/x", "/1/2", "/"]

    async def use(running: Running) -> list[tuple[int, bytes]]:
        return [(a.status_code, a.content) for a in [await running.client.get(u) for u in urls]]

    async def over_asgi() -> list[tuple[int, bytes]]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return [(a.status_code, a.content) for a in [await client.get(u) for u in urls]]

    assert on_lane(app, use) == asyncio.run(over_asgi())


@pytest.mark.parametrize("has_middleware", [False, True])
def test_routes_of_the_application_go_before_those_of_the_server(has_middleware: bool) -> None:
    app = JustAPI()

    @app.get("/metrics")
    async def metrics() -> str:
        return "mine"

    @app.get("/health")
    async def health() -> str:
        return "mine"

    if has_middleware:

        @app.middleware("http")
        async def pass_on(request: Request, call_next: Any) -> Any:
            return await call_next(request)

    async def use(running: Running) -> None:
        for path in ("/metrics", "/health"):
            assert (await running.client.get(path)).json() == "mine"
        assert (await running.client.get("/live")).json() == {"status": "ok"}

    on_lane(app, use, metrics={"Path": "/metrics"}, health=True)
