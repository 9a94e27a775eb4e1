"""`justapi serve` with handlers that try to end it, and ends that come at bad times."""

from __future__ import annotations

import http.client
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx
import pytest

from serving import Server, eventually, is_alive, run

if TYPE_CHECKING:
    from pathlib import Path

APP = """
    import asyncio, os, threading, time
    from justapi import Depends, JustAPI

    app = JustAPI()

    @app.get("/pid")
    def pid(): return os.getpid()

    @app.get("/stop")
    def stop():
        asyncio.get_running_loop().stop()
        return "stopped"

    @app.get("/stop-async")
    async def stop_async():
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return "stopped"

    @app.get("/close")
    async def close():
        try:
            asyncio.get_running_loop().close()
        except RuntimeError:
            return "refused"

    @app.get("/exit-callback")
    async def exit_callback():
        asyncio.get_running_loop().call_soon(exit, 3)
        await asyncio.sleep(0.01)
        return "alive"

    @app.get("/abort")
    def abort(): os.abort()

    @app.get("/null", blocking=False)
    def null():
        import ctypes
        ctypes.string_at(0)

    @app.get("/null-thread", blocking=True)
    def null_thread(): null()

    @app.get("/overflow")
    async def overflow():
        import faulthandler
        await asyncio.sleep(0)
        # What recurses in C without end.
        faulthandler._stack_overflow()

    @app.get("/exit-now")
    def exit_now(): os._exit(7)

    @app.get("/exit-clean")
    def exit_clean(): os._exit(0)

    @app.get("/child", blocking=False)
    def child():
        child = os.fork()
        if child == 0:
            os.abort()
        os.waitpid(child, 0)
        os._exit(7)

    @app.get("/nap", blocking=False)
    def nap(): time.sleep(1e9)

    @app.get("/spin", blocking=False)
    def spin():
        while True:
            pass

    @app.get("/spin-async")
    async def spin_async():
        while True:
            pass

    @app.get("/hold", blocking=False)
    def hold():
        import re
        re.match("(a+)+b", "a" * 60)

    @app.get("/work", blocking=False)
    def work():
        end = time.monotonic() + 2
        while time.monotonic() < end:
            pass
        return "done"

    @app.get("/wait")
    async def wait():
        await asyncio.sleep(1.5)
        return "waited"

    @app.get("/sleep", blocking=True)
    def sleep():
        time.sleep(1.5)
        return "slept"

    @app.get("/stuck", blocking=True)
    def stuck():
        open("begun", "w").close()
        while True:
            time.sleep(0.0005)

    async def waits():
        await asyncio.sleep(0)

    @app.get("/stuck-call", blocking=True)
    def stuck_call(_: None = Depends(waits)):
        stuck()

    @app.get("/slow-thread", blocking=True)
    def slow_thread():
        time.sleep(0.3)
        return os.getpid()

    @app.get("/slow")
    async def slow():
        await asyncio.sleep(0.3)
        return os.getpid()
"""


@pytest.mark.parametrize("path", ["/stop", "/stop-async", "/close", "/exit-callback"])
def test_a_handler_cannot_end_the_loop(tmp_path: Path, path: str) -> None:
    with Server(tmp_path, APP) as server:
        for _ in range(2):
            assert server.client.get(path).status_code == 200
        assert server.client.get("/pid").json() == server.workers[0]
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("path", "ends", "shows"),
    [
        (
            "/abort",
            "killed by SIGABRT; the last request on its thread was for GET /abort",
            ["Fatal Python error: Aborted", "in abort"],
        ),
        (
            "/null",
            "killed by SIGSEGV; the last request on its thread was for GET /null",
            ["Fatal Python error: Segmentation fault", "in null"],
        ),
        (
            "/null-thread",
            "killed by SIGSEGV; the last request on its thread was for GET /null-thread",
            ["Segmentation fault", "in null_thread"],
        ),
        (
            "/overflow",
            "killed by SIGSEGV; the last request on its thread was for GET /overflow",
            ["Segmentation fault", "in overflow"],
        ),
        ("/exit-now", "exit status 7\n", []),
        ("/exit-clean", "exit status 0\n", []),
        # The crash of a process that it has forked is not its own.
        ("/child", "exit status 7\n", ["Fatal Python error: Aborted"]),
    ],
)
def test_a_handler_that_ends_its_worker_is_named_and_the_worker_replaced(
    tmp_path: Path, path: str, ends: str, shows: list[str]
) -> None:
    with Server(tmp_path, APP) as server:
        with pytest.raises(httpx.TransportError):
            server.client.get(path)
        with httpx.Client(base_url=server.url, timeout=30) as client:

            def is_back() -> bool:
                try:
                    return bool(client.get("/pid").json() != server.workers[0])
                except httpx.TransportError:
                    return False

            eventually("another worker answers", is_back)
        said = "".join(server.errors)
        assert f"(pid {server.workers[0]}) ended: {ends}" in said
        assert all(text in said for text in shows), said
        assert server.stop() == 0


@pytest.mark.parametrize("path", ["/stuck", "/stuck-call"])
def test_a_thread_that_never_returns_does_not_hold_the_end_up(tmp_path: Path, path: str) -> None:
    with Server(tmp_path, APP, "--graceful", "300ms") as server:

        def ask() -> None:
            with suppress(httpx.TransportError):
                httpx.get(server.url + path, timeout=20)

        asking = threading.Thread(target=ask)
        asking.start()
        eventually("the handler runs", lambda: (tmp_path / "begun").exists())
        server.stop()
        asking.join()
        said = "".join(server.errors)
        assert "a blocking handler has not returned" in said
        assert "Fatal" not in said
        assert "Rust" not in said


def test_threads_that_were_used_do_not_disturb_the_end(tmp_path: Path) -> None:
    with Server(tmp_path, APP) as server:
        asking = [
            threading.Thread(target=httpx.get, args=(f"{server.url}/slow-thread",))
            for _ in range(10)
        ]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
        assert server.stop() == 0
        assert "has not returned" not in "".join(server.errors)


def test_nothing_is_lost_by_a_stop_under_load(tmp_path: Path) -> None:
    with Server(tmp_path, APP, "--workers", "2") as server:
        lost: list[str] = []
        answered = 0
        stopping = threading.Event()
        lock = threading.Lock()
        address = httpx.URL(server.url)

        def ask(path: str) -> None:
            nonlocal answered
            while not stopping.is_set():
                connection = http.client.HTTPConnection(address.host, address.port, timeout=30)
                try:
                    connection.connect()
                except OSError:
                    return
                try:
                    connection.request("GET", path)
                    status = connection.getresponse().status
                    with lock:
                        answered += 1
                        if status != 200:
                            lost.append(str(status))
                except Exception as error:
                    lost.append(repr(error))
                finally:
                    connection.close()

        paths = ["/slow", "/slow-thread", "/pid", "/slow"] * 4
        asking = [threading.Thread(target=ask, args=(path,)) for path in paths]
        for one in asking:
            one.start()
        eventually("it is under load", lambda: answered > 30)
        code = server.stop()
        stopping.set()
        for one in asking:
            one.join()
        assert code == 0
        assert lost == []


def pids_of(server: Server) -> set[int]:
    """Workers that answer."""
    found: set[int] = set()
    for _ in range(20):
        # A connection of its own for each, so that each worker has its turn. One that a worker
        # has accepted just before it is stuck goes with it.
        with suppress(httpx.TransportError):
            found.add(httpx.get(f"{server.url}/pid", timeout=10).json())
    return found


@pytest.mark.parametrize(
    ("path", "frame"),
    [
        ("/spin", "in spin"),
        ("/spin-async", "in spin_async"),
        ("/hold", "in hold"),
        ("/nap", "in nap"),
    ],
)
def test_a_worker_that_a_handler_keeps_is_replaced(tmp_path: Path, path: str, frame: str) -> None:
    with Server(tmp_path, APP, "--workers", "2", "--stuck-timeout", "1s") as server:
        eventually("both answer", lambda: pids_of(server) == set(server.workers))

        def ask() -> None:
            with suppress(httpx.TransportError):
                httpx.get(server.url + path, timeout=60)

        asking = threading.Thread(target=ask)
        asking.start()
        # The other one answers all the while.
        eventually("it is noticed", lambda: pids_of(server) and "is stuck" in text_of(server))
        eventually("its stack is shown", lambda: frame in text_of(server))
        [stuck] = [pid for pid in server.workers if f"(pid {pid}) is stuck" in text_of(server)]
        eventually("it has ended", lambda: not is_alive(stuck))
        asking.join()
        [other] = set(server.workers) - {stuck}
        eventually("another has its place", lambda: len(pids_of(server)) == 2)
        eventually("the one that answered answers on", lambda: other in pids_of(server))
        assert "JA523" in text_of(server)
        assert server.stop() == 0


def text_of(server: Server) -> str:
    """What it has said on standard error."""
    return "".join(server.errors)


def test_a_stop_does_not_wait_for_a_stuck_worker(tmp_path: Path) -> None:
    with Server(tmp_path, APP, "--workers", "1", "--stuck-timeout", "500ms") as server:

        def ask() -> None:
            with suppress(httpx.TransportError):
                httpx.get(f"{server.url}/spin", timeout=60)

        asking = threading.Thread(target=ask)
        asking.start()
        eventually("it is noticed", lambda: "is stuck" in text_of(server))
        began = time.monotonic()
        server.stop()
        # The grace time is 30 s.
        assert time.monotonic() - began < 20
        asking.join()


def test_work_and_waits_are_not_stuck(tmp_path: Path) -> None:
    with Server(tmp_path, APP, "--workers", "1", "--stuck-timeout", "700ms") as server:
        assert server.client.get("/wait").json() == "waited"
        assert server.client.get("/sleep").json() == "slept"
        assert server.client.get("/pid").json() == server.workers[0]
        assert "stuck" not in text_of(server)
    with Server(tmp_path, APP, "--workers", "1", "--stuck-timeout", "off") as server:
        assert server.client.get("/work").json() == "done"
        assert server.client.get("/pid").json() == server.workers[0]
        assert server.stop() == 0
        assert "stuck" not in text_of(server)


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nfrom contextlib import asynccontextmanager\nfrom justapi import JustAPI\n"
        "@asynccontextmanager\nasync def life(app):\n    sys.exit('no licence')\n    yield\n"
        "app = JustAPI(lifespan=life)\n",
        "import sys\nasync def app(scope, receive, send):\n    sys.exit('no licence')\n",
    ],
)
def test_an_exit_while_it_starts_is_a_failed_start(tmp_path: Path, source: str) -> None:
    (tmp_path / "app.py").write_text(source)
    done = run(tmp_path, "serve", "app:app", "--port", "0")
    assert done.returncode == 4, done
    assert "failed to start" in done.stderr
    assert "no licence" in done.stderr
