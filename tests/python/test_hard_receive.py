"""`receive` that is cancelled, asked again, or asked by an application that knows ASGI well."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import weakref
from typing import Any

import pytest

from justapi import JustAPI, Request, WebSocket
from lanes import Running, on_lane
from peers import Peer, until, vanish


def head(*fields: str) -> bytes:
    return "\r\n".join(["POST / HTTP/1.1", "Host: t", *fields, "", ""]).encode()


def test_a_cancelled_receive_loses_nothing_of_the_body() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP")
        body = b""
        num_cancelled = 0
        while True:
            try:
                async with asyncio.timeout(0.001):
                    message = await receive()
            except TimeoutError:
                num_cancelled += 1
                continue
            body += message["body"]
            if not message["more_body"]:
                break
        answer = json.dumps([body.decode(), num_cancelled > 0]).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answer})

    async def use(running: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(head("Content-Length: 30"))
        for number in range(10):
            await asyncio.sleep(0.01)
            writer.write(b"%03d" % number)
        answer = await reader.readuntil(b"true]")
        assert b"000001002003004005006007008009" in answer
        writer.close()

    on_lane(app, use)


def test_a_receive_that_is_cancelled_when_a_piece_has_come_loses_nothing() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP")
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0.1)
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def use(running: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(head("Content-Length: 6"))
        await asyncio.sleep(0.02)
        writer.write(b"abc")
        await asyncio.sleep(0.2)
        writer.write(b"def")
        assert b"abcdef" in await reader.readuntil(b"def")
        writer.close()

    on_lane(app, use)


def test_two_receives_at_once_are_refused() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP")
        first = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another receive"):
            await receive()
        body = (await first)["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def use(running: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(head("Content-Length: 3"))
        await asyncio.sleep(0.05)
        writer.write(b"abc")
        assert b"abc" in await reader.readuntil(b"abc")
        writer.close()

    on_lane(app, use)


def test_asking_often_whether_the_client_has_left_keeps_nothing() -> None:
    futures: weakref.WeakSet[Any] = weakref.WeakSet()
    num_left: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP")
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            waiting = receive()
            futures.add(waiting)
            waiting.cancel()
        del waiting
        gc.collect()
        num_left.append(len(futures))
        await send({"type": "http.response.body", "body": b"done"})

    async def use(running: Running) -> None:
        assert (await running.client.get("/")).text == "done"
        assert num_left[0] < 100

    on_lane(app, use)


def test_a_cancelled_receive_of_a_socket_can_be_repeated() -> None:
    app = JustAPI()

    @app.websocket("/")
    async def patient(websocket: WebSocket) -> None:
        await websocket.accept()
        num_timeouts = 0
        while True:
            try:
                text = await asyncio.wait_for(websocket.receive_text(), 0.01)
            except TimeoutError:
                num_timeouts += 1
                if num_timeouts == 3:
                    await websocket.send_text("still here")
                continue
            await websocket.send_text(text)

    async def use(running: Running) -> None:
        peer = await Peer.connect(running.port)
        assert await peer.receive() == (1, b"still here")
        for number in range(20):
            peer.send(1, b"%d" % number)
            assert await peer.receive() == (1, b"%d" % number)
        peer.vanish()

    on_lane(app, use)


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_requests_whose_clients_left_are_freed(kind: str) -> None:
    app = JustAPI()
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Marker:
        pass

    @app.get("/async")
    async def forever(request: Request) -> None:
        request.scope["marker"] = marker = Marker()
        request.scope["request"] = request
        alive.add(marker)
        await asyncio.sleep(3600)

    @app.get("/thread", blocking=True)
    def slow(request: Request) -> None:
        request.scope["marker"] = marker = Marker()
        request.scope["request"] = request
        alive.add(marker)
        time.sleep(0.05)
        raise ValueError("too late")

    async def use(running: Running) -> None:
        for number in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(f"GET /{kind} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
            before = number
            await until("the handler runs", lambda before=before: len(alive) >= 1 or before < 0)
            vanish(writer)

        def is_free() -> bool:
            gc.collect()
            return not alive

        await until("nothing is left", is_free)

    on_lane(app, use)


def test_a_socket_that_its_own_scope_holds_is_freed() -> None:
    app = JustAPI()
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Marker:
        pass

    @app.websocket("/")
    async def keeps(websocket: WebSocket) -> None:
        websocket.scope["websocket"] = websocket
        websocket.scope["marker"] = marker = Marker()
        alive.add(marker)
        await websocket.accept()
        await websocket.receive()

    async def use(running: Running) -> None:
        for _ in range(5):
            peer = await Peer.connect(running.port)
            peer.send(1, b"x")
            assert await peer.close_code() == 1000
            peer.vanish()

        def is_free() -> bool:
            gc.collect()
            return not alive

        await until("nothing is left", is_free)

    on_lane(app, use)


def test_a_job_whose_client_left_in_the_queue_is_not_begun() -> None:
    app = JustAPI()
    go_on = threading.Event()
    begun: list[str] = []

    @app.get("/{name}", blocking=True)
    def hold(name: str) -> str:
        begun.append(name)
        go_on.wait(20)
        return name

    async def use(running: Running) -> None:
        async def ask(name: str) -> asyncio.StreamWriter:
            _, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(f"GET /{name} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
            return writer

        holding = [await ask("holds") for _ in range(40)]
        await until("all threads are taken", lambda: len(begun) == 40)
        late = await ask("late")
        await until("it waits", lambda: running.counters["threaded"] == 41)
        vanish(late)
        last = await ask("last")
        await until("it waits too", lambda: running.counters["threaded"] == 42)
        await asyncio.sleep(0.1)
        go_on.set()
        await until("the last has begun", lambda: "last" in begun)
        assert "late" not in begun
        for writer in (*holding, last):
            writer.close()

    on_lane(app, use)
