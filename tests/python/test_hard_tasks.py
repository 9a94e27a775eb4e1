"""Handlers that cancel themselves, and panics of Rust code that they call."""

from __future__ import annotations

import asyncio
from typing import Any

from justapi import BackgroundTasks, Depends, JustAPI, WebSocket
from justapi.responses import StreamingResponse
from lanes import Running, on_lane
from peers import Peer, until
from raising import PLACES, raising


def cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def test_a_handler_that_cancels_itself_fails_its_request_only() -> None:
    app = JustAPI()
    log: list[str] = []

    async def session() -> Any:
        try:
            yield 1
        finally:
            log.append("session ends")

    @app.get("/await")
    async def awaits(session: int = Depends(session)) -> str:
        cancel()
        await asyncio.sleep(0)
        return "not reached"

    @app.get("/return")
    async def returns(session: int = Depends(session)) -> str:
        cancel()
        return "made all the same"

    @app.get("/late-return")
    async def late_return() -> str:
        await asyncio.sleep(0)
        cancel()
        return "made all the same"

    @app.get("/caught")
    async def caught(session: int = Depends(session)) -> str:
        cancel()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "caught"
        return "not reached"

    @app.get("/uncancelled")
    async def uncancelled() -> str:
        cancel()
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return "cancelled all the same"
        return "went on"

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> Any:
            try:
                yield b"first"
                cancel()
                await asyncio.sleep(0)
                yield b"not reached"
            finally:
                log.append("stream ends")

        return StreamingResponse(parts())

    @app.get("/fine")
    async def fine() -> str:
        await asyncio.sleep(0)
        return "fine"

    async def use(running: Running) -> None:
        async with asyncio.timeout(20):
            # Up to Python 3.12, a task that takes its cancellation back is cancelled all the same.
            expected = await asyncio.create_task(uncancelled())
            assert expected in {"cancelled all the same", "went on"}
            for path, status in {
                "/await": 500,
                "/return": 500,
                "/late-return": 500,
                "/caught": 200,
                "/uncancelled": 200,
            }.items():
                for _ in range(2):
                    answer = await running.client.get(path)
                    assert answer.status_code == status, path
                    if path == "/uncancelled":
                        assert answer.json() == expected
                    assert (await running.client.get("/fine")).json() == "fine"
            await until("each session has ended", lambda: log.count("session ends") == 6)
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(b"GET /stream HTTP/1.1\r\nHost: t\r\n\r\n")
            received = await reader.read()
            writer.close()
            assert b"first" in received
            assert not received.endswith(b"0\r\n\r\n")
            await until("the stream has ended", lambda: "stream ends" in log)
            assert (await running.client.get("/fine")).json() == "fine"

    on_lane(app, use)


def panics() -> list[type[BaseException]]:
    """What panics of Rust extensions are raised as: one class for each extension, ours too."""
    found = [one for one in BaseException.__subclasses__() if one.__name__ == "PanicException"]
    assert found
    return found


def test_a_panic_of_rust_code_fails_its_request_only() -> None:
    log: list[str] = []

    def fail(number: int | str) -> None:
        raise panics()[int(number)]("a broken invariant")

    app = raising(fail)

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        fail(scope["path"].rpartition("/")[2])

    async def mounted_late(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        fail(scope["path"].rpartition("/")[2])

    app.mount("/mounted", mounted)
    app.mount("/mounted-late", mounted_late)

    @app.get("/stream/{number}")
    async def stream(number: int) -> StreamingResponse:
        async def parts() -> Any:
            try:
                yield b"first"
                fail(number)
            finally:
                log.append("stream ends")

        return StreamingResponse(parts())

    @app.get("/background/{number}")
    async def background(number: int, tasks: BackgroundTasks) -> str:
        tasks.add_task(fail, number)
        return "answered"

    @app.websocket("/socket/{number}")
    async def socket(socket: WebSocket, number: int) -> None:
        await socket.accept()
        fail(number)

    @app.get("/fine")
    async def fine() -> str:
        await asyncio.sleep(0)
        return "fine"

    async def use(running: Running) -> None:
        # Ours is known once an exception has passed from Python to Rust.
        await running.client.get("/inline/99")
        for number in range(len(panics())):
            for place in (*PLACES, "mounted", "mounted-late"):
                async with asyncio.timeout(10):
                    answer = await running.client.get(f"/{place}/{number}")
                assert answer.status_code == 500, (place, panics()[number])
                assert "invariant" not in answer.text
                assert (await running.client.get("/fine")).json() == "fine"
            async with asyncio.timeout(10):
                assert (await running.client.get(f"/background/{number}")).json() == "answered"
                reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(f"GET /stream/{number} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
                received = await reader.read()
                writer.close()
                assert b"first" in received
                assert not received.endswith(b"0\r\n\r\n")
                peer = await Peer.connect(running.port, f"/socket/{number}")
                assert await peer.close_code() == 1011
                peer.writer.close()
            assert (await running.client.get("/fine")).json() == "fine"
        assert log == ["stream ends"] * len(panics())

    on_lane(app, use)
