"""A stop of `justapi serve` while clients of all kinds are in the middle of something."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from load import HANDLER, Load, Raw, children
from serving import PATIENCE, Server, eventually, is_alive

if TYPE_CHECKING:
    from pathlib import Path

STREAMS = (
    HANDLER
    + """
    from justapi import Request, WebSocket
    from justapi.sse import EventSourceResponse, ServerSentEvent

    @app.get("/events")
    async def events():
        async def ticks():
            try:
                while True:
                    yield ServerSentEvent(data="tick")
                    await asyncio.sleep(0.01)
            finally:
                open("events-ended", "w").close()
        return EventSourceResponse(ticks())

    @app.websocket("/ws")
    async def ws(websocket: WebSocket):
        await websocket.accept()
        try:
            while True:
                await websocket.send_text(await websocket.receive_text())
        finally:
            open("ws-ended", "w").close()

    @app.post("/upload")
    async def upload(request: Request):
        open("upload-begun", "w").close()
        return len(await request.body())
"""
)


def test_a_stop_under_load_gives_everybody_what_they_are_owed(tmp_path: Path) -> None:
    with Server(tmp_path, STREAMS, "--workers", "2") as server:
        stream = Raw(server.url)
        stream.send("/events")
        upload = Raw(server.url)
        upload.socket.sendall(
            b"POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n"
            + b"x" * 30000
        )
        received = stream.socket.recv(65536)
        while b"tick" not in received:
            received += stream.socket.recv(65536)
        eventually("the upload has begun", (tmp_path / "upload-begun").exists)
        probe = Raw(server.url)
        probe.send("/ready")
        assert probe.answer()[0] == 200
        with connect(server.url.replace("http", "ws") + "/ws") as talk:
            talk.send("hello")
            assert talk.recv() == "hello"
            with Load(server.url, tmp_path, kept=20, fresh=20, seconds=0.3) as load:
                eventually("it is under load", lambda: load.answered > 80)
                server.signal(signal.SIGTERM)
                eventually("it stops", lambda: server.event("stopping"))
                probe.send("/ready")
                status, body = probe.answer()
                # The worker may not have heard of it yet.
                while status == 200 and not probe.closes:
                    probe.send("/ready")
                    status, body = probe.answer()
                upload.socket.sendall(b"x" * 30000)
                assert upload.answer() == (200, b"60000")
                with pytest.raises(ConnectionClosed) as closed:
                    talk.recv(PATIENCE)
                while more := stream.socket.recv(65536):
                    received += more
                code = server.wait()
        assert (status, probe.closes) == (503, True), body
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code in {1001, 1012}
        assert received.endswith(b"\r\n0\r\n\r\n")
        assert load.other == []
        assert load.lost() == []
        assert code == 0, "".join(server.errors)
        assert (tmp_path / "events-ended").exists()
        assert (tmp_path / "ws-ended").exists()
        assert not any(is_alive(pid) for pid in server.workers)
        for client in (stream, upload, probe):
            client.close()


@pytest.mark.parametrize("interval", ["15", "None"])
@pytest.mark.parametrize("kind", ["async", "sync", "quiet"])
def test_streams_of_events_end_at_a_stop(tmp_path: Path, kind: str, interval: str) -> None:
    source = f"""
        import asyncio, time
        from justapi import JustAPI
        from justapi.sse import EventSourceResponse, ServerSentEvent

        app = JustAPI()

        async def ticks_async():
            try:
                while True:
                    yield ServerSentEvent(data="tick")
                    await asyncio.sleep(0.01)
            finally:
                open("ended", "w").close()

        def ticks_sync():
            try:
                while True:
                    yield ServerSentEvent(data="tick")
                    time.sleep(0.01)
            finally:
                open("ended", "w").close()

        async def ticks_quiet():
            try:
                yield ServerSentEvent(data="tick")
                await asyncio.sleep(3600)
            finally:
                open("ended", "w").close()

        @app.get("/")
        async def events():
            return EventSourceResponse(ticks_{kind}(), ping_interval={interval})
    """
    with Server(tmp_path, source, "--lanes", "2") as server:
        clients = [Raw(server.url) for _ in range(4)]
        received = [b"" for _ in clients]
        for number, client in enumerate(clients):
            client.send("/")
            while b"tick" not in received[number]:
                received[number] += client.socket.recv(65536)
        server.signal(signal.SIGTERM)
        for number, client in enumerate(clients):
            while more := client.socket.recv(65536):
                received[number] += more
            client.close()
        # Long before the grace time.
        assert server.wait() == 0
        assert (tmp_path / "ended").exists()
        for text in received:
            assert text.endswith(b": the server stops\n\n\r\n0\r\n\r\n"), text[-80:]


@pytest.mark.parametrize("interval", ["15", "None"])
def test_an_event_that_is_half_sent_at_a_stop_stays_half(tmp_path: Path, interval: str) -> None:
    source = f"""
        import asyncio
        from justapi import JustAPI
        from justapi.sse import EventSourceResponse

        app = JustAPI()

        async def passed_through():
            yield b"data: whole\\r\\n"
            yield "\\r\\n"
            yield b'data: {{"choi'
            await asyncio.sleep(3600)

        @app.get("/")
        async def events():
            return EventSourceResponse(passed_through(), ping_interval={interval})
    """
    with Server(tmp_path, source) as server:
        client = Raw(server.url)
        client.send("/")
        received = b""
        while b"choi" not in received:
            received += client.socket.recv(65536)
        server.signal(signal.SIGTERM)
        while more := client.socket.recv(65536):
            received += more
        client.close()
        assert server.wait() == 0
        assert received.endswith(b'data: {"choi\r\n0\r\n\r\n'), received[-80:]


def test_an_interrupt_finishes_what_is_in_flight(tmp_path: Path) -> None:
    with Server(tmp_path, HANDLER, "--workers", "2") as server:
        with Load(server.url, tmp_path, kept=4, fresh=2, seconds=0.2) as load:
            eventually("it is under load", lambda: load.answered > 6)
            server.signal(signal.SIGINT)
            code = server.wait()
        assert code == 0, "".join(server.errors)
        assert load.other == []
        assert load.lost() == []


def test_a_lifespan_that_does_not_end_is_ended(tmp_path: Path) -> None:
    source = """
        import asyncio
        from contextlib import asynccontextmanager
        from justapi import JustAPI

        @asynccontextmanager
        async def lifespan(app):
            yield
            open("ending", "w").close()
            await asyncio.sleep(3600)

        app = JustAPI(lifespan=lifespan)
    """
    with Server(tmp_path, source, "--graceful", "200ms") as server:
        began = time.monotonic()
        code = server.stop()
        assert time.monotonic() - began < 25
        assert code == 128 + signal.SIGTERM
        assert (tmp_path / "ending").exists()
        assert not is_alive(server.workers[0])


def test_a_server_listens_once_its_lifespans_have_started(tmp_path: Path) -> None:
    source = """
        import asyncio, os, pathlib
        from contextlib import asynccontextmanager
        from justapi import JustAPI

        @asynccontextmanager
        async def lifespan(app):
            open(f"starting-{os.getpid()}", "w").close()
            while not pathlib.Path("go").exists():
                await asyncio.sleep(0.01)
            open(f"started-{os.getpid()}", "w").close()
            yield

        app = JustAPI(lifespan=lifespan)
    """
    seen: list[int] = []

    def go() -> None:
        eventually("both start", lambda: len(list(tmp_path.glob("starting-*"))) == 2)
        seen.extend(len(list(tmp_path.glob("started-*"))) for _ in range(1))
        (tmp_path / "go").touch()

    going = threading.Thread(target=go)
    going.start()
    with Server(tmp_path, source, "--workers", "2") as server:
        assert len(list(tmp_path.glob("started-*"))) == 2
        going.join()
        assert seen == [0]
        assert server.client.get("/ready").status_code == 200
        assert server.stop() == 0


def test_a_killed_supervisor_leaves_nothing_and_workers_finish(tmp_path: Path) -> None:
    with Server(tmp_path, HANDLER, "--workers", "2") as server:
        clients = [Raw(server.url) for _ in range(4)]
        for number, client in enumerate(clients):
            client.send(f"/tasks/{number}?seconds=0.5")
        begun = tmp_path / "begun"
        eventually("all have begun", lambda: begun.exists() and begun.read_text().count("\n") == 4)
        server.signal(signal.SIGKILL)
        for client in clients:
            assert client.answer()[0] == 200
            client.close()
        eventually("they have ended", lambda: not any(is_alive(pid) for pid in server.workers))
        port = httpx.URL(server.url).port
        assert port is not None
        # The port is free at once.
        with socket.create_server(("127.0.0.1", port)):
            pass


SIGNALS = """
    import asyncio, os, signal
    from contextlib import asynccontextmanager
    from justapi import JustAPI

    heard = []

    def hear(number, frame):
        heard.append(number)
        open(f"heard-{number}", "w").close()

    signal.signal(signal.SIGUSR1, hear)

    @asynccontextmanager
    async def lifespan(app):
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR2, hear, int(signal.SIGUSR2), None)
        {more}
        yield
        open("ended", "w").close()

    app = JustAPI(lifespan=lifespan)

    @app.get("/heard")
    def get_heard(): return heard

    @app.get("/pid")
    def pid(): return os.getpid()
"""


def test_signals_of_the_application_reach_it(tmp_path: Path) -> None:
    with Server(tmp_path, SIGNALS.replace("{more}", "")) as server:
        os.kill(server.workers[0], signal.SIGUSR1)
        os.kill(server.workers[0], signal.SIGUSR2)
        eventually(
            "both were heard",
            lambda: (
                sorted(server.client.get("/heard").json())
                == sorted([signal.SIGUSR1, signal.SIGUSR2])
            ),
        )
        assert server.client.get("/pid").json() == server.workers[0]
        assert server.stop() == 0
        assert (tmp_path / "ended").exists()


@pytest.mark.parametrize(
    "more",
    [
        "signal.signal(signal.SIGTERM, hear)",
        "loop.add_signal_handler(signal.SIGTERM, hear, int(signal.SIGTERM), None)",
    ],
)
def test_an_application_that_listens_for_the_stop_does_not_hide_it(
    tmp_path: Path, more: str
) -> None:
    with Server(tmp_path, SIGNALS.replace("{more}", more)) as server:
        assert server.stop() == 0
        assert (tmp_path / f"heard-{int(signal.SIGTERM)}").exists()
        assert (tmp_path / "ended").exists()


NOT_ADDED = """
        removed = [loop.remove_signal_handler(signal.SIGTERM)]
        loop.add_signal_handler(signal.SIGTERM, print)
        removed += [loop.remove_signal_handler(signal.SIGTERM) for _ in range(2)]
        assert removed == [False, True, False], removed

        async def hear_later(): ...
        for wrong in (hear_later, hear_later()):
            try:
                loop.add_signal_handler(signal.SIGTERM, wrong)
            except TypeError as error:
                assert "coroutines cannot be used" in str(error), error
            else:
                raise AssertionError("a coroutine was taken for a handler")
        wrong.close()
"""


def test_handlers_of_the_stop_are_added_and_removed_as_asyncio_does_it(tmp_path: Path) -> None:
    with Server(tmp_path, SIGNALS.replace("{more}", NOT_ADDED.strip())) as server:
        assert server.stop() == 0
        assert (tmp_path / "ended").exists()


def test_a_quit_shows_what_all_workers_do_and_they_go_on(tmp_path: Path) -> None:
    source = SIGNALS.replace("{more}", "") + (
        """
    @app.get("/wait", blocking=False)
    def wait_here():
        import time
        open("waiting", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.01)
        return "done"
"""
    )
    with Server(tmp_path, source, "--workers", "2") as server:
        waiting = Raw(server.url)
        waiting.send("/wait")
        eventually("it waits", (tmp_path / "waiting").exists)
        server.signal(signal.SIGQUIT)
        eventually("its stack is shown", lambda: "in wait_here" in "".join(server.errors))
        eventually(
            "those of both are",
            lambda: "".join(server.errors).count("(most recent call first)") >= 2,
        )
        (tmp_path / "go").touch()
        assert waiting.answer() == (200, b'"done"')
        waiting.close()
        assert sorted(children(server.process.pid)) == sorted(server.workers)
        assert server.stop() == 0


def test_workers_serve_a_unix_socket(tmp_path: Path) -> None:
    place = tmp_path / "s"
    with Server(tmp_path, HANDLER, "--workers", "2", "--uds", str(place)) as server:
        listening = server.event("listening")
        assert listening is not None
        assert any(str(place) in url for url in listening["urls"])
        transport = httpx.HTTPTransport(uds=str(place))
        with httpx.Client(transport=transport, base_url="http://localhost") as client:
            assert client.get("/tasks/1").json() in server.workers
            server.signal(signal.SIGHUP)
            eventually(
                "all were replaced", lambda: not any(is_alive(pid) for pid in server.workers)
            )
            with suppress(httpx.TransportError):
                client.get("/tasks/2")
            assert client.get("/tasks/3").status_code == 200
        assert server.stop() == 0
    assert not place.exists()
