"""WebSockets whose peers break the rules, vanish, read slowly, or do nothing for long."""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from typing import Any

import pytest

from justapi import JustAPI, WebSocket, WebSocketDisconnect
from lanes import Running, on_lane
from meters import read
from peers import Peer, until, vanish


def recording(codes: list[int]) -> JustAPI:
    """An application that echoes and notes how its sockets end."""
    app = JustAPI()

    @app.websocket("/")
    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            while True:
                await websocket.send_text(await websocket.receive_text())
        except WebSocketDisconnect as gone:
            codes.append(gone.code)

    return app


@pytest.mark.parametrize(
    ("frames", "answered", "told"),
    [
        ([(8, struct.pack("!H", 4001) + b"bye")], 4001, 4001),
        ([(8, b"")], None, 1005),
        ([(1, b"\xff\xfe")], 1007, None),
        ([(2, b"x" * (20 * 1024 * 1024))], 1009, None),
        ([(3, b"reserved")], 1002, None),
        ([(8, b"\x03")], 1002, None),
        ([(8, struct.pack("!H", 1005))], 1002, None),
        ([(9, b"x" * 126)], 1002, None),
    ],
)
def test_close_codes(
    frames: list[tuple[int, bytes]], answered: int | None, told: int | None
) -> None:
    codes: list[int] = []

    async def use(running: Running) -> None:
        peer = await Peer.connect(running.port)
        for opcode, payload in frames:
            peer.send(opcode, payload)
        code = await peer.close_code()
        assert code == (answered or 0)
        await until("the application is told", lambda: codes)
        assert codes == [told] or told is None
        peer.vanish()

    on_lane(recording(codes), use)


def test_a_peer_that_vanishes_is_1006() -> None:
    codes: list[int] = []

    async def use(running: Running) -> None:
        for _ in range(10):
            peer = await Peer.connect(running.port)
            peer.send(1, b"hello")
            assert await peer.receive() == (1, b"hello")
            peer.vanish()
        half = await Peer.connect(running.port)
        half.writer.write(b"\x81\xfe\x00")
        half.vanish()
        await until("all are told", lambda: len(codes) == 11)
        assert set(codes) == {1006}

    on_lane(recording(codes), use)


def test_a_slow_peer_holds_the_sender_back() -> None:
    app = JustAPI()
    num_sent = 0
    ended: list[str] = []

    @app.websocket("/")
    async def flood(websocket: WebSocket) -> None:
        nonlocal num_sent
        await websocket.accept()
        try:
            while True:
                await websocket.send_bytes(b"x" * 100_000)
                num_sent += 1
        except WebSocketDisconnect:
            ended.append("disconnect")
        finally:
            ended.append("ended")

    async def use(running: Running) -> None:
        peer = await Peer.connect(running.port)
        before = -1
        while before != num_sent:
            before = num_sent
            await asyncio.sleep(0.3)
        assert num_sent < 1000
        while num_sent == before:
            assert (await peer.receive())[0] == 2
        peer.vanish()
        await until("it ends", lambda: ended)
        assert ended[-1] == "ended" or ended == ["disconnect"]

    on_lane(app, use)


def test_a_slow_application_holds_the_peer_back() -> None:
    app = JustAPI()
    go_on = asyncio.Event()
    num_received = 0

    @app.websocket("/")
    async def slow(websocket: WebSocket) -> None:
        nonlocal num_received
        await websocket.accept()
        await go_on.wait()
        while await websocket.receive_bytes() != b"end":
            num_received += 1
        await websocket.send_text("all")

    async def use(running: Running) -> None:
        peer = await Peer.connect(running.port)
        payload = b"x" * 100_000
        num_written = 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                while num_written < 2000:
                    peer.send(2, payload)
                    num_written += 1
                    await peer.writer.drain()
        assert num_written < 500
        go_on.set()
        peer.send(2, b"end")
        assert await peer.receive() == (1, b"all")
        assert num_received == num_written
        peer.vanish()

    on_lane(app, use)


def test_idle_sockets_cost_nothing_and_all_end() -> None:
    codes: list[int] = []

    async def use(running: Running) -> None:
        peers = await asyncio.gather(*(Peer.connect(running.port) for _ in range(300)))
        peers[150].send(1, b"still quick")
        assert await peers[150].receive() == (1, b"still quick")
        for number, peer in enumerate(peers):
            if number % 2:
                peer.vanish()
            else:
                peer.send(8, struct.pack("!H", 1000))
        await until("all have ended", lambda: len(codes) == 300)
        assert sorted(set(codes)) == [1000, 1006]
        for peer in peers:
            peer.writer.close()
        await asyncio.gather(*(peer.writer.wait_closed() for peer in peers), return_exceptions=True)

    on_lane(recording(codes), use)


def test_idle_sockets_hold_no_compression_context() -> None:
    codes: list[int] = []
    num_sockets = 300
    text = b"says the same again and again, " * 200
    compressor = zlib.compressobj(wbits=-15)
    sent = compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH)

    async def use(running: Running) -> None:
        offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n"

        async def connect() -> Peer:
            peer = await Peer.connect(running.port, fields=offer)
            # With the bit that says so.
            peer.send(0x41, sent[:-4])
            opcode, payload = await peer.receive()
            assert opcode == 1
            assert len(payload) < 1000
            assert zlib.decompressobj(-15).decompress(payload + b"\0\0\xff\xff") == text
            return peer

        peers = [await connect() for _ in range(50)]
        before = read(os.getpid()).rss_kib
        peers += await asyncio.gather(*(connect() for _ in range(num_sockets)))
        grown = read(os.getpid()).rss_kib - before
        # A deflate context alone is 256 KiB; these clients are in this process, too.
        assert grown < 64 * num_sockets, grown
        for peer in peers:
            peer.vanish()
        await until("all have ended", lambda: len(codes) == len(peers))
        assert set(codes) == {1006}

    on_lane(recording(codes), use)


@pytest.mark.parametrize("has_middleware", [False, True])
def test_a_plain_request_to_a_socket_is_refused(has_middleware: bool) -> None:
    codes: list[int] = []
    app = recording(codes)

    if has_middleware:

        @app.middleware("http")
        async def pass_on(request: Any, call_next: Any) -> Any:
            return await call_next(request)

    async def use(running: Running) -> None:
        for method in ("GET", "POST", "HEAD"):
            assert (await running.client.request(method, "/")).status_code == 404
        # An upgrade that is none of a WebSocket's is a plain request.
        answer = await running.client.get("/", headers={"upgrade": "other"})
        assert answer.status_code == 404
        peer = await Peer.connect(running.port)
        peer.send(1, b"hello")
        assert await peer.receive() == (1, b"hello")
        peer.vanish()
        await until("it has ended", lambda: codes == [1006])

    on_lane(app, use)


def test_a_socket_is_closed_when_the_server_drains() -> None:
    codes: list[int] = []

    async def use(running: Running) -> None:
        peer = await Peer.connect(running.port)
        running.lane.drain()
        assert await peer.close_code() in (1001, 1012)
        peer.send(8, struct.pack("!H", 1001))
        await until("the application is told", lambda: codes)
        peer.vanish()

    on_lane(recording(codes), use)


def test_what_an_application_raises_before_its_accept_is_a_500_and_logged(caplog: Any) -> None:
    app = JustAPI()

    @app.websocket("/{kind}")
    async def fails(websocket: WebSocket, kind: str) -> None:
        if kind == "late":
            await asyncio.sleep(0)
        if kind == "header":
            await websocket.accept(headers=[(b"x bad", b"1")])
        raise ValueError(f"in {kind}")

    async def use(running: Running) -> None:
        for kind in ("early", "late", "header"):
            with pytest.raises(AssertionError, match=r"HTTP/1\.1 500"):
                await Peer.connect(running.port, f"/{kind}")
        assert (await running.client.get("/openapi.json")).status_code == 200

    on_lane(app, use)
    logged = [record.getMessage() for record in caplog.records]
    assert not any("never retrieved" in text for text in logged)


def test_a_peer_that_leaves_before_the_accept_is_told_of() -> None:
    app = JustAPI()
    seen: list[Any] = []

    @app.websocket("/")
    async def late(websocket: WebSocket) -> None:
        assert (await websocket.receive())["type"] == "websocket.connect"
        seen.append("connected")
        seen.append(await websocket.receive())

    async def use(running: Running) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(
            b"GET / HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        await until("the application waits", lambda: seen)
        vanish(writer)
        await until("it is told", lambda: len(seen) == 2)
        assert seen[1]["type"] == "websocket.disconnect"
        assert seen[1]["code"] == 1006

    on_lane(app, use)


def test_a_message_that_is_too_large_is_an_error_of_its_sender() -> None:
    app = JustAPI()

    @app.websocket("/")
    async def large(websocket: WebSocket) -> None:
        await websocket.accept()
        with pytest.raises(ValueError, match="20971520"):
            await websocket.send_bytes(b"x" * 20_971_520)
        await websocket.send_text("goes on")

    async def use(running: Running) -> None:
        peer = await Peer.connect(running.port)
        assert await peer.receive() == (1, b"goes on")
        assert await peer.close_code() == 1000
        peer.vanish()

    on_lane(app, use)


def test_a_flood_does_not_hide_what_the_peer_says() -> None:
    app = JustAPI()
    heard: list[str] = []

    @app.websocket("/")
    async def flood(websocket: WebSocket) -> None:
        await websocket.accept()

        async def send() -> None:
            while not heard:
                await websocket.send_bytes(b"x" * 10_000)

        sending = asyncio.ensure_future(send())
        heard.append(await websocket.receive_text())
        await sending

    async def use(running: Running) -> None:
        peer = await Peer.connect(running.port)
        for _ in range(20):
            await peer.receive()
        peer.send(9, b"are you there")
        peer.send(1, b"stop")
        num_frames = 0
        while (await peer.receive())[0] != 10:
            num_frames += 1
            assert num_frames < 3000
        assert await peer.close_code() == 1000
        assert heard == ["stop"]
        peer.vanish()

    on_lane(app, use)


def test_a_peer_that_does_not_read_is_heard() -> None:
    app = JustAPI()
    heard: list[object] = []
    num_sent = 0

    @app.websocket("/")
    async def flood(websocket: WebSocket) -> None:
        await websocket.accept()

        async def send() -> None:
            nonlocal num_sent
            while True:
                await websocket.send_bytes(b"x" * 100_000)
                num_sent += 1

        sending = asyncio.ensure_future(send())
        try:
            while True:
                heard.append(await websocket.receive_text())
        except WebSocketDisconnect as gone:
            heard.append(gone.code)
        finally:
            sending.cancel()

    async def use(running: Running) -> None:
        peer = await Peer.connect(running.port)
        before = -1
        while before != num_sent:
            before = num_sent
            await asyncio.sleep(0.3)
        # The peer has read nothing, and the server is in the middle of a message to it.
        peer.send(1, b"hello")
        await until("it is heard", lambda: heard == ["hello"])
        peer.send(9, b"ping")
        peer.send(1, b"again")
        await until("it is heard", lambda: heard == ["hello", "again"])
        assert num_sent == before
        while (frame := await peer.receive())[0] != 10:
            assert frame[0] == 2
        assert frame == (10, b"ping")
        peer.send(8, struct.pack("!H", 4001))
        await until("it is told", lambda: heard == ["hello", "again", 4001])
        peer.vanish()

    on_lane(app, use)
