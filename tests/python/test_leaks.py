"""Whatever a client does, nothing of its request stays behind."""

from __future__ import annotations

import asyncio
import gc
import random
from pathlib import Path
from time import monotonic

from justapi import JustAPI, Request, UploadFile, WebSocket
from justapi.responses import EventSourceResponse, StreamingResponse
from justapi.testclient import AsyncTestClient


def make_app(log):
    app = JustAPI()

    @app.get("/stream")
    async def stream():
        async def numbers():
            log.append(1)
            try:
                while True:
                    yield "x" * 100
                    await asyncio.sleep(0)
            finally:
                log.append(-1)

        return StreamingResponse(numbers())

    @app.get("/sync-stream")
    def sync_stream():
        def numbers():
            log.append(1)
            try:
                while True:
                    yield "x" * 100
            finally:
                log.append(-1)

        return StreamingResponse(numbers())

    @app.get("/events")
    async def events():
        async def endless():
            log.append(1)
            try:
                yield {"a": 1}
                await asyncio.Event().wait()
            finally:
                log.append(-1)

        return EventSourceResponse(endless())

    @app.post("/upload")
    async def upload(file: UploadFile):
        return len(await file.read())

    @app.post("/parts")
    async def parts(request: Request):
        return [len(await part.read(10**7)) async for part in request.stream_form()]

    @app.websocket("/ws")
    async def ws(websocket: WebSocket):
        await websocket.accept()
        log.append(1)
        try:
            async for text in websocket.iter_text():
                await websocket.send_text(text)
        finally:
            log.append(-1)

    return app


async def use(client, choice):
    if choice in ("/stream", "/sync-stream", "/events"):
        async with client.stream("GET", choice) as response:
            async for _ in response.aiter_raw():
                break
    elif choice in ("/upload", "/parts"):
        files = {"file": ("name", b"x" * SIZES.choice([10, 2_000_000]))}
        assert (await client.post(choice, files=files)).status_code == 200
    elif choice == "/bad":
        await client.post("/upload", content=b"x", headers={"content-type": "multipart/form-data"})
    else:
        async with client.websocket_connect("/ws") as websocket:
            await websocket.send_text("hello")
            assert await websocket.receive_text() == "hello"


SIZES = random.Random(1)
CHOICES = ["/stream", "/sync-stream", "/events", "/upload", "/parts", "/bad", "/ws"]


def test_a_client_that_leaves_is_not_waited_for():
    async def main():
        log: list[int] = []
        async with AsyncTestClient(make_app(log)) as client:
            started = monotonic()
            for _ in range(3):
                await use(client, "/events")
            # A second each is what an application has that does not hear of it.
            assert monotonic() - started < 1
        assert log == [1, -1] * 3

    asyncio.run(main())


def test_nothing_stays_behind():
    async def main():
        log: list[int] = []
        async with AsyncTestClient(make_app(log)) as client:

            async def rounds(count):
                for _ in range(count):
                    await asyncio.gather(*[use(client, choice) for choice in CHOICES])
                for _ in range(3):
                    await asyncio.sleep(0)
                gc.collect()
                num_files = len(list(Path("/proc/self/fd").iterdir()))
                return len(gc.get_objects()), num_files, len(asyncio.all_tasks())

            await rounds(5)
            before = await rounds(1)
            # What leaks grows each time; a cache that fills, or a thread that starts, once.
            growths = []
            for _ in range(3):
                after = await rounds(40)
                growths.append(after[0] - before[0])
                assert after[1:] == before[1:]
                before = after
            assert min(growths) < 40, growths
        assert log.count(1) == log.count(-1) == 126 * 4

    asyncio.run(main())
