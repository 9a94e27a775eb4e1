"""A thousand clients that leave, over sockets: everything they held comes back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from meters import num_threads_named, read
from peers import vanish
from serving import Server, eventually

if TYPE_CHECKING:
    from pathlib import Path

APPLICATION = """
    import asyncio
    import threading
    import time
    from collections import Counter

    from justapi import Depends, JustAPI
    from justapi.responses import StreamingResponse

    app = JustAPI()
    lock = threading.Lock()
    begun, ended = Counter(), Counter()


    class Seen:
        def __init__(self, kind):
            self.kind = kind

        def __enter__(self):
            with lock:
                begun[self.kind] += 1

        def __exit__(self, *_):
            with lock:
                ended[self.kind] += 1


    async def session():
        with Seen("session"):
            yield


    @app.get("/counts")
    async def counts():
        return {"begun": begun, "ended": ended}


    @app.get("/async", dependencies=[Depends(session)])
    async def waits():
        with Seen("async"):
            await asyncio.sleep(3600)


    @app.get("/sync", blocking=True)
    def blocks():
        with Seen("sync"):
            time.sleep(0.005)


    @app.get("/async-stream")
    async def async_stream():
        async def parts():
            with Seen("async-stream"):
                while True:
                    yield b"x" * 1000
                    await asyncio.sleep(0.001)

        return StreamingResponse(parts())


    @app.get("/sync-stream")
    def sync_stream():
        def parts():
            with Seen("sync-stream"):
                while True:
                    yield b"x" * 1000
                    time.sleep(0.001)

        return StreamingResponse(parts())


    @app.get("/fails")
    async def fails():
        async def parts():
            yield b"first"
            raise ValueError("the source is dry")

        return StreamingResponse(parts())


    @app.get("/sync-fails")
    def sync_fails():
        def parts():
            yield b"first"
            raise ValueError("the well is dry")

        return StreamingResponse(parts())
"""
KINDS = ["async", "sync", "async-stream", "sync-stream"]
NUM_CLIENTS = 20
# `MAX_THREADS` of py/src/pool.rs.
MAX_POOL_THREADS = 40


async def leave(port: int, num_times: int) -> None:
    """Has clients of each kind leave, once their handlers have begun where that can be seen."""

    async def client(kind: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /{kind} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        if kind.endswith("stream"):
            await reader.readuntil(b"x" * 1000)
        else:
            await asyncio.sleep(0.002)
        vanish(writer)

    left = iter(KINDS * (num_times // len(KINDS)))

    async def clients() -> None:
        for kind in left:
            async with asyncio.timeout(30):
                await client(kind)

    await asyncio.gather(*(clients() for _ in range(NUM_CLIENTS)))


def test_a_thousand_clients_leave_and_everything_comes_back(tmp_path: Path) -> None:
    with Server(tmp_path, APPLICATION) as server:
        [worker] = server.workers
        port = urlsplit(server.url).port
        assert port

        def has_ended() -> dict[str, int] | None:
            counts = server.client.get("/counts").json()
            return counts["ended"] if counts["begun"] == counts["ended"] else None

        asyncio.run(leave(port, 200))
        eventually("everything that was begun has ended", has_ended)
        before = read(worker)
        num_handlers = num_threads_named(worker, "handlers")
        assert 0 < num_handlers <= MAX_POOL_THREADS
        asyncio.run(leave(port, 1000))
        ended = eventually("everything that was begun has ended", has_ended)
        eventually("descriptors are as before", lambda: read(worker).num_files <= before.num_files)
        after = read(worker)
        assert ended["async-stream"] == ended["sync-stream"] == 300
        # Who left before the request was read has begun nothing.
        assert ended["async"] == ended["session"] > 100
        assert ended["sync"] > 100
        # How many of the pool's threads were started depends on how slow the machine was.
        assert after.num_threads <= before.num_threads - num_handlers + MAX_POOL_THREADS
        # A buffer of 64 KiB kept for each would be 64 MB.
        assert after.rss_kib - before.rss_kib < 20_000, (before, after)
        assert not any("Traceback" in line for line in server.errors), server.errors
        assert server.stop() == 0


def test_an_error_in_the_middle_of_a_stream_is_logged(tmp_path: Path) -> None:
    async def ask(port: int, path: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        received = await reader.read()
        writer.close()
        return received

    with Server(tmp_path, APPLICATION) as server:
        port = urlsplit(server.url).port
        assert port
        for path, text in {"/fails": "the source is dry", "/sync-fails": "the well is dry"}.items():
            received = asyncio.run(ask(port, path))
            assert b"first" in received
            assert not received.endswith(b"0\r\n\r\n")
            eventually("it is logged", lambda text=text: f"ValueError: {text}\n" in server.errors)
            # Once, and from the line that raised it.
            assert server.errors.count(f"ValueError: {text}\n") == 1
            assert any('app.py"' in line and "in parts" in line for line in server.errors)
        assert server.stop() == 0
