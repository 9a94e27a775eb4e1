"""Clients that read slowly or not at all, half-close, vanish, and send odd bytes in heads."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from meters import processor_seconds, read
from serving import PATIENCE, Server, eventually

if TYPE_CHECKING:
    from pathlib import Path

APPLICATION = """
    import asyncio
    import os
    import threading
    from collections import Counter

    from justapi import JustAPI, Request, Response, WebSocket
    from justapi.responses import StreamingResponse

    app = JustAPI()
    lock = threading.Lock()
    begun, ended = Counter(), Counter()
    released = asyncio.Event()


    @app.get("/release")
    async def release():
        released.set()


    @app.get("/counts")
    def counts():
        return {"pid": os.getpid(), "begun": begun, "ended": ended}


    @app.get("/stream/{kind}")
    async def stream(kind: str, size: int):
        async def parts():
            begun[kind] += 1
            try:
                for _ in range(size // 1000):
                    yield b"x" * 1000
            finally:
                ended[kind] += 1

        def sync_parts():
            with lock:
                begun[kind] += 1
            try:
                for _ in range(size // 1000):
                    yield b"x" * 1000
            finally:
                with lock:
                    ended[kind] += 1

        return StreamingResponse(sync_parts() if kind == "sync" else parts())


    @app.get("/late")
    async def late():
        await asyncio.sleep(0.3)
        return "late"


    @app.get("/waits")
    async def waits():
        begun["waits"] += 1
        try:
            await released.wait()
            return "released"
        finally:
            ended["waits"] += 1


    @app.get("/events")
    async def events():
        async def quiet():
            begun["events"] += 1
            try:
                yield b"data: 1\\n\\n"
                await released.wait()
                yield b"released"
            finally:
                ended["events"] += 1

        return StreamingResponse(quiet(), media_type="text/event-stream")


    @app.api_route("/heads", methods=["GET", "POST"])
    async def heads(request: Request):
        text = {name: value for name, value in request.headers.items()}
        return [len(text), len(request.cookies), str(request.url), request.client is not None]


    @app.get("/large-head")
    async def large_head(size: int):
        return Response(b"body", headers={"x-large": "h" * size})


    @app.websocket("/socket")
    async def accepted(socket: WebSocket):
        names = list(socket.headers.values())
        await socket.accept(subprotocol=(socket.scope["subprotocols"] or [None])[0])
        await socket.send_json([len(names), len(socket.scope["subprotocols"])])
        await socket.close()
"""


def connect(server: Server, request: bytes, *, receive_buffer: int | None = None) -> socket.socket:
    """A connection that has sent these bytes."""
    peer = socket.socket()
    if receive_buffer is not None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    peer.settimeout(PATIENCE)
    parts = urlsplit(server.url)
    peer.connect((parts.hostname, parts.port))
    peer.sendall(request)
    return peer


def get(path: str, *fields: bytes, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: localhost", *fields]
    return b"\r\n".join([*lines, b"", b""])


def whole(peer: socket.socket) -> bytes:
    """What comes until the connection ends, one way or another."""
    pieces = []
    with contextlib.suppress(ConnectionResetError):
        while piece := peer.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


def unchunked(received: bytes) -> bytes:
    _, _, rest = received.partition(b"\r\n\r\n")
    body = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return b"".join(body)


def vanish(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def test_a_client_that_reads_slowly_gets_everything(tmp_path: Path) -> None:
    with Server(tmp_path, APPLICATION) as server:
        for kind in ("async", "sync"):
            # More than the kernel's buffers take.
            request = get(f"/stream/{kind}?size=4000000", b"Connection: close")
            with connect(server, request, receive_buffer=4096) as slow:
                received = b""
                for _ in range(20):
                    received += slow.recv(1024)
                    time.sleep(0.02)
                counts = server.client.get("/counts").json()
                assert (counts["begun"][kind], counts["ended"].get(kind)) == (1, None)
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                received += whole(slow)
            assert unchunked(received) == b"x" * 4_000_000
            assert server.client.get("/counts").json()["ended"][kind] == 1
        assert server.stop() == 0


def test_streams_end_with_clients_that_read_nothing(tmp_path: Path) -> None:
    num_clients = 24
    with (
        Server(tmp_path, APPLICATION, "--timeout-write", "1s") as server,
        contextlib.ExitStack() as stack,
    ):
        [worker] = server.workers
        with connect(server, get("/stream/async?size=1000", b"Connection: close")) as peer:
            assert len(unchunked(whole(peer))) == 1000
        server.client.get("/counts")
        before = read(worker)
        requests = [get(f"/stream/{kind}?size=100000000") for kind in ("async", "sync")]
        for index in range(num_clients):
            stack.enter_context(connect(server, requests[index % 2], receive_buffer=4096))

        def counts() -> tuple[int, int]:
            told = server.client.get("/counts").json()
            return sum(told["begun"].values()) - 1, sum(told["ended"].values()) - 1

        eventually("every stream has begun", lambda: counts()[0] == num_clients)
        eventually("every stream has ended", lambda: counts() == (num_clients, num_clients))
        line = f'justapi_rejected_total{{reason="write_stall"}} {num_clients}'
        assert line in server.client.get("/metrics").text.splitlines()
        after = read(worker)
        assert after.num_files == before.num_files
        # Each may hold 64 KiB of its stream and a buffer; what they have asked for is 2.4 GB.
        assert after.rss_kib - before.rss_kib < 10_000 + 300 * num_clients
        assert server.stop() == 0


FIELDS = [
    "Accept",
    "Accept-Encoding",
    "Accept-Language",
    "Authorization",
    "Cache-Control",
    "Content-Type",
    "Cookie",
    "Forwarded",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "Origin",
    "Range",
    "Referer",
    "Traceparent",
    "User-Agent",
    "X-Anything",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Request-Id",
]
REFUSED = ["Content-Encoding", "Content-Length", "Expect", "TE", "Transfer-Encoding", "Upgrade"]
SOCKET_FIELDS = [
    "Cookie",
    "Origin",
    "Sec-WebSocket-Extensions",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Protocol",
    "Sec-WebSocket-Version",
    "X-Anything",
]
HIGH = bytes(range(0x80, 0x100))


def test_no_byte_of_a_head_hurts(tmp_path: Path) -> None:
    values = [HIGH, b"\xff\xfe", b"caf\xe9; q=\xa0", b'"\xe2\x82\xac"', b"a=\xff; b=\xfe"]
    arguments = ["--request-id", "--compression", "--cors", "https://a.example"]
    with Server(tmp_path, APPLICATION, *arguments) as server:
        [worker] = server.workers
        for value in values:
            for name in FIELDS:
                request = get("/heads", f"{name}: ".encode() + value, b"Connection: close")
                with connect(server, request) as peer:
                    assert whole(peer).startswith(b"HTTP/1.1 200"), (name, value)
            for name in REFUSED:
                request = get("/heads", f"{name}: ".encode() + value, b"Connection: close")
                with connect(server, request) as peer:
                    status = whole(peer)[9:12]
                    assert status in (b"200", b"400", b"415", b"417", b"501"), (name, value)
            for name in SOCKET_FIELDS:
                fields = {
                    "Upgrade": b"websocket",
                    "Connection": b"Upgrade",
                    "Sec-WebSocket-Key": b"dGhlIHNhbXBsZSBub25jZQ==",
                    "Sec-WebSocket-Version": b"13",
                    name: value,
                }
                lines = [f"{field}: ".encode() + text for field, text in fields.items()]
                with connect(server, get("/socket", *lines)) as peer:
                    received = peer.recv(1 << 16)
                    assert received[9:12] in (b"101", b"400", b"403", b"426"), (name, value)
                    # A name that is no token is not agreed upon, nor sent back.
                    assert b"\r\nsec-websocket-protocol: " not in received.lower()
        told = server.client.get("/counts").json()
        assert told["pid"] == worker
        assert not any("Traceback" in line for line in server.errors), server.errors
        assert server.stop() == 0


def test_a_response_header_of_a_megabyte(tmp_path: Path) -> None:
    with Server(tmp_path, APPLICATION) as server:
        [worker] = server.workers
        for size in (10_000, 1_000_000):
            with connect(server, get(f"/large-head?size={size}", b"Connection: close")) as peer:
                received = whole(peer)
            assert received.startswith(b"HTTP/1.1 200")
            assert b"x-large: " + b"h" * size + b"\r\n" in received
            assert received.endswith(b"\r\n\r\nbody")
        assert server.client.get("/counts").json()["pid"] == worker
        assert server.stop() == 0


def test_half_closed_and_vanished_clients_cost_no_time(tmp_path: Path) -> None:
    with Server(tmp_path, APPLICATION) as server:
        [worker] = server.workers
        # Who has said all still gets its answer.
        with connect(server, get("/late", b"Connection: close")) as half:
            half.shutdown(socket.SHUT_WR)
            assert whole(half).endswith(b'"late"')
        peers = [
            connect(server, get(path, b"Connection: close"))
            for path in ("/waits", "/events")
            for _ in range(10)
        ]
        half_closed, vanishing = peers[::2], peers[1::2]

        def counts(which: str) -> int:
            return sum(server.client.get("/counts").json()[which].values())

        eventually("all have begun", lambda: counts("begun") == len(peers))
        for peer in half_closed:
            peer.shutdown(socket.SHUT_WR)
        for peer in vanishing:
            vanish(peer)
        eventually("those that vanished have ended", lambda: counts("ended") >= len(vanishing))
        used = processor_seconds(worker)
        time.sleep(0.7)
        assert processor_seconds(worker) - used < 0.2
        assert server.client.get("/release").status_code == 200
        for peer in half_closed:
            assert b"released" in whole(peer)
            peer.close()
        assert counts("ended") == len(peers)
        assert server.stop() == 0
