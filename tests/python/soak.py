"""A mixed load on `justapi serve`, whose clients misbehave at random: what leaks, grows.

Answers, uploads, WebSockets, streams, errors and departures in every stage, from a seed. After each
part of the load the worker is let come to rest and looked at: what was begun has ended, descriptors
are as many as before, and memory does not grow with requests once it is warm.

Usage: python soak.py [NUM_REQUESTS] [SEED]   (24,000 requests unless given; a minute or two)
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from meters import Reading, read, slope
from peers import Peer, vanish
from serving import PATIENCE, Server, eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NUM_CLIENTS = 12
NUM_PARTS = 12
"""Looks at the worker; the first third of them warms it up."""

APPLICATION = """
    import asyncio
    import contextlib
    import gc
    import threading
    import time
    from collections import Counter
    from typing import Annotated

    from pydantic import BaseModel

    from justapi import BackgroundTasks, Depends, HTTPException, JustAPI, Request
    from justapi import UploadFile, WebSocket
    from justapi.responses import EventSourceResponse, FileResponse, StreamingResponse

    app = JustAPI()
    lock = threading.Lock()
    begun, ended = Counter(), Counter()


    @contextlib.contextmanager
    def seen(kind):
        with lock:
            begun[kind] += 1
        try:
            yield
        finally:
            with lock:
                ended[kind] += 1


    @app.get("/counts")
    async def counts():
        gc.collect()
        return {
            "begun": begun,
            "ended": ended,
            "tasks": len(asyncio.all_tasks()),
            "objects": len(gc.get_objects()),
        }


    @app.get("/inline/{number}")
    def inline(number: int):
        with seen("inline"):
            return {"number": number, "text": "x" * (number % 50)}


    @app.get("/late/{number}")
    async def late(number: int, q: str = ""):
        with seen("late"):
            await asyncio.sleep(0)
            return [number, q]


    @app.get("/thread", blocking=True)
    def thread():
        with seen("thread"):
            time.sleep(0.001)
            return "thread"


    class Order(BaseModel):
        name: str
        sizes: list[int]


    @app.post("/order")
    async def order(order: Order) -> Order:
        with seen("order"):
            return order


    async def session():
        with seen("session"):
            yield 1


    @app.get("/dependency")
    async def dependency(tasks: BackgroundTasks, session: Annotated[int, Depends(session)]):
        async def work():
            with seen("background"):
                await asyncio.sleep(0)

        tasks.add_task(work)
        return session


    @app.get("/refused")
    async def refused(session: Annotated[int, Depends(session)]):
        raise HTTPException(409, "no")


    @app.get("/fails")
    async def fails(session: Annotated[int, Depends(session)]):
        raise ValueError("as it should")


    @app.get("/waits")
    async def waits(session: Annotated[int, Depends(session)]):
        with seen("waits"):
            await asyncio.sleep(3600)


    def parts():
        with seen("sync stream"):
            for _ in range(400):
                yield b"s" * 1000


    async def async_parts():
        with seen("async stream"):
            for _ in range(400):
                yield b"a" * 1000
                await asyncio.sleep(0)


    @app.get("/sync-stream")
    def sync_stream():
        return StreamingResponse(parts())


    @app.get("/async-stream")
    async def async_stream():
        return StreamingResponse(async_parts())


    @app.get("/broken-stream")
    async def broken_stream():
        async def broken():
            with seen("broken stream"):
                yield b"first"
                raise ValueError("as it should")

        return StreamingResponse(broken())


    @app.get("/events")
    async def events():
        async def endless():
            with seen("events"):
                while True:
                    yield {"a": 1}
                    await asyncio.sleep(0.005)

        return EventSourceResponse(endless())


    @app.get("/file")
    async def file():
        return FileResponse(__file__)


    @app.post("/upload")
    async def upload(file: UploadFile):
        with seen("upload"):
            return len(await file.read())


    @app.post("/pieces")
    async def pieces(request: Request):
        with seen("pieces"):
            return sum([len(piece) async for piece in request.stream()])


    @app.websocket("/socket")
    async def socket(socket: WebSocket):
        with seen("socket"):
            await socket.accept()
            async for text in socket.iter_text():
                if text == "fail":
                    raise ValueError("as it should")
                await socket.send_text(text)


    async def mounted(scope, receive, send):
        with seen("mounted"):
            await send({"type": "http.response.start", "status": 202, "headers": []})
            await send({"type": "http.response.body", "body": b"mounted"})


    app.mount("/mounted", mounted)
"""


def head(method: str, path: str, *fields: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode()


def multipart(size: int) -> tuple[bytes, bytes]:
    """Head and body of an upload."""
    body = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        + b"u" * size
        + b"\r\n--b--\r\n"
    )
    fields = (f"Content-Length: {len(body)}", "Content-Type: multipart/form-data; boundary=b")
    return head("POST", "/upload", *fields, "Connection: close"), body


@dataclass
class Load:
    """Clients of one server.

    Attributes:
        port: Where it serves.
        chance: Chooses what the clients do.
        is_long: Whether they may do what takes seconds.
        done: How often each kind of request was made.
    """

    port: int
    chance: random.Random
    is_long: bool = False
    done: Counter[str] = field(default_factory=Counter)

    async def run(self, num_requests: int) -> None:
        """Makes requests, several at a time."""
        kinds: list[tuple[str, Callable[[], Awaitable[None]], int]] = [
            ("kept connection", self.kept, 5),
            ("order", self.order, 5),
            ("whole stream", self.whole_stream, 2),
            ("left stream", self.left_stream, 6),
            ("left handler", self.left_handler, 4),
            ("broken stream", self.broken_stream, 2),
            ("upload", self.upload, 3),
            ("left upload", self.left_upload, 4),
            ("socket", self.socket, 3),
            ("left socket", self.left_socket, 3),
            ("malformed", self.malformed, 2),
        ]
        names = self.chance.choices(
            [name for name, _, _ in kinds], [weight for *_, weight in kinds], k=num_requests
        )
        calls = {name: call for name, call, _ in kinds}
        left = iter(names)

        async def client() -> None:
            for name in left:
                async with asyncio.timeout(PATIENCE):
                    await calls[name]()
                self.done[name] += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(NUM_CLIENTS):
                group.create_task(client())

    async def ask(self, *parts: bytes) -> tuple[int, bytes]:
        """Sends a request that ends its connection; the status and the body as it came."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for part in parts:
                writer.write(part)
            received = await reader.read()
        finally:
            writer.close()
        start, _, body = received.partition(b"\r\n\r\n")
        return int(start[9:12]), body

    async def leave(self, *parts: bytes, after: int = 0, resets: bool = False) -> None:
        """Sends, reads some, and ends the connection one way or another, or by a reset."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for part in parts:
            writer.write(part)
        if after:
            await reader.readexactly(after)
        await asyncio.sleep(self.chance.choice([0, 0, 0.002]))
        if resets or self.chance.random() < 0.5:
            vanish(writer)
        else:
            writer.close()

    async def kept(self) -> None:
        """Several requests on one connection, errors among them."""
        paths = {
            "/inline/7": 200,
            "/inline/x": 422,
            "/late/3?q=%20": 200,
            "/thread": 200,
            "/dependency": 200,
            "/refused": 409,
            "/fails": 500,
            "/nowhere": 404,
            "/mounted/x": 202,
            "/file": 200,
            "/openapi.json": 200,
        }
        chosen = self.chance.sample(sorted(paths), 4)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for path in chosen:
            writer.write(head("GET", path))
            start = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            assert int(start[9:12]) == paths[path], (path, start)
            length = next(
                int(line.partition(":")[2])
                for line in start.splitlines()
                if line.startswith("content-length:")
            )
            await reader.readexactly(length)
        writer.close()

    async def order(self) -> None:
        """A body that is right, wrong, or no JSON."""
        bodies = [
            (b'{"name": "a", "sizes": [1, 2, 3]}', 200),
            (b'{"name": 3, "sizes": ["x"]}', 422),
            (b'{"name": ', 422),
        ]
        body, status = self.chance.choice(bodies)
        fields = (f"Content-Length: {len(body)}", "Content-Type: application/json")
        answered, _ = await self.ask(head("POST", "/order", *fields, "Connection: close"), body)
        assert answered == status

    async def whole_stream(self) -> None:
        path = self.chance.choice(["/sync-stream", "/async-stream"])
        status, body = await self.ask(head("GET", path, "Connection: close"))
        assert status == 200
        assert body.endswith(b"0\r\n\r\n")
        assert len(body) > 400_000

    async def left_stream(self) -> None:
        path = self.chance.choice(["/sync-stream", "/async-stream", "/events", "/file"])
        await self.leave(head("GET", path), after=self.chance.choice([0, 1, 200]))

    async def left_handler(self) -> None:
        path = self.chance.choice(["/waits", "/thread", "/late/1"])
        # Who only closes might still read: the server gives such a client five seconds.
        await self.leave(head("GET", path), resets=path == "/waits" and not self.is_long)

    async def broken_stream(self) -> None:
        status, body = await self.ask(head("GET", "/broken-stream"))
        assert status == 200
        assert not body.endswith(b"0\r\n\r\n")

    async def upload(self) -> None:
        """A file that stays in memory, or goes to the disk."""
        size = self.chance.choice([10, 10, 1_500_000])
        status, body = await self.ask(*multipart(size))
        assert status == 200
        assert int(body) == size

    async def left_upload(self) -> None:
        start, body = multipart(1_500_000)
        cut = self.chance.choice([0, 30, 100_000, 1_200_000])
        if self.chance.random() < 0.5:
            start = head("POST", "/pieces", "Content-Length: 2000000")
        await self.leave(start, body[:cut])

    async def socket(self) -> None:
        peer = await Peer.connect(self.port, "/socket", "localhost")
        peer.send(1, b"hello")
        assert await peer.receive() == (1, b"hello")
        if self.chance.random() < 0.5:
            peer.send(1, b"fail")
            assert await peer.close_code() == 1011
        else:
            peer.send(8, (1000).to_bytes(2))
            assert await peer.close_code() == 1000
        peer.writer.close()

    async def left_socket(self) -> None:
        peer = await Peer.connect(self.port, "/socket", "localhost")
        if self.chance.random() < 0.5:
            peer.send(1, b"hello", final=self.chance.random() < 0.5)
        peer.vanish()

    async def malformed(self) -> None:
        """Bytes that are no request, and forms that are none."""
        if self.chance.random() < 0.5:
            status, _ = await self.ask(b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n")
        else:
            fields = ("Content-Length: 3", "Content-Type: multipart/form-data; boundary=b")
            status, _ = await self.ask(
                head("POST", "/upload", *fields, "Connection: close"), b"???"
            )
        assert status in (400, 422)


@dataclass(frozen=True)
class Look:
    """The worker at rest: what the kernel says of it, and what it says itself."""

    reading: Reading
    num_objects: int
    ended: dict[str, int]


def at_rest(server: Server, num_tasks: int) -> dict[str, Any]:
    """Waits until everything that was begun has ended, and its tasks have."""

    def look() -> dict[str, Any] | None:
        counts: dict[str, Any] = server.client.get("/counts").json()
        has_ended = counts["begun"] == counts["ended"]
        return counts if has_ended and counts["tasks"] <= num_tasks else None

    return eventually("everything that was begun has ended", look)


def soak(num_requests: int, seed: int, *, is_long: bool = False) -> tuple[list[Look], Counter[str]]:
    """Serves that many requests; how the worker was between them, and what was done."""
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder), APPLICATION) as server:
        [worker] = server.workers
        port = urlsplit(server.url).port
        assert port
        load = Load(port, random.Random(seed), is_long)
        num_tasks = server.client.get("/counts").json()["tasks"]
        looks = []
        for _ in range(NUM_PARTS):
            asyncio.run(load.run(num_requests // NUM_PARTS))
            counts = at_rest(server, num_tasks)
            reading = read(worker, load.done.total())
            looks.append(Look(reading, counts["objects"], counts["ended"]))
        assert server.client.get("/inline/1").json()["number"] == 1
        assert server.stop() == 0
    return looks, load.done


def main(num_requests: int = 24_000, seed: int = 1) -> None:
    looks, done = soak(num_requests, seed, is_long=True)
    for look in looks:
        print(look.reading, look.num_objects)
    print("requests:", json.dumps(done))
    print("begun and ended:", json.dumps(looks[-1].ended))
    warm = [look.reading for look in looks[NUM_PARTS // 3 :]]
    print(f"memory: {slope(warm):+.1f} bytes a request once warm")


if __name__ == "__main__":
    main(*(int(one) for one in sys.argv[1:]))
