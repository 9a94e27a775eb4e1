"""Lanes as threads of one worker: `justapi serve --lanes N`.

They need no free-threaded interpreter, which only lets them run at the same time.
"""

from __future__ import annotations

import http.client
import json
import signal
import sysconfig
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx

from justapi import _core
from serving import Server, eventually, is_alive

if TYPE_CHECKING:
    from pathlib import Path

NUM_LANES = 3
IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

APP = """
    import asyncio, os, threading, time
    from contextlib import asynccontextmanager
    from justapi import BackgroundTasks, JustAPI, WebSocket

    def note(text):
        with open("notes", "a") as file:
            file.write(text + "\\n")

    @asynccontextmanager
    async def lifespan(app):
        note("start")
        yield {"lock": asyncio.Lock()}
        note("stop")

    app = JustAPI(lifespan=lifespan)
    seen = []
    total = 0
    guard = threading.Lock()

    @app.get("/lane", blocking=False)
    def lane():
        # Long enough for the other lanes to take the other connections.
        time.sleep(0.02)
        return threading.get_ident()

    @app.get("/add", blocking=False)
    def add():
        global total
        with guard:
            total += 1
        seen.append(None)
        return {}

    @app.get("/add-later")
    async def add_later():
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is loop and asyncio.current_task() is not None
        return add()

    @app.get("/total")
    def get_total(): return [total, len(seen)]

    @app.get("/blocks")
    def blocks():
        time.sleep(0.01)
        return threading.get_ident()

    @app.get("/slow")
    async def slow():
        note(f"slow-{threading.get_ident()}")
        time.sleep(0.02)
        await asyncio.sleep(2)
        return threading.get_ident()

    @app.get("/background")
    async def background(tasks: BackgroundTasks):
        async def later():
            await asyncio.sleep(0.5)
            note("background")
        tasks.add_task(later)
        time.sleep(0.02)
        return threading.get_ident()

    @app.get("/exit")
    async def exit_():
        time.sleep(0.02)
        raise SystemExit(3)

    @app.get("/hang", blocking=False)
    def hang():
        # The first lane takes the signals.
        if threading.current_thread() is threading.main_thread():
            return time.sleep(0.02)
        note("hang")
        time.sleep(3600)

    @app.websocket("/echo")
    async def echo(socket: WebSocket):
        await socket.accept()
        async for text in socket.iter_text():
            await socket.send_text(text)
"""


def serve(folder: Path, *arguments: str, num_lanes: int = NUM_LANES) -> Server:
    return Server(folder, APP, "--lanes", str(num_lanes), *arguments)


def ask(server: Server, path: str, timeout: float = 30) -> tuple[int, Any]:
    """Asks on a connection of its own; status and document of the answer."""
    url = httpx.URL(server.url)
    connection = http.client.HTTPConnection(url.host, url.port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def ask_at_once(server: Server, path: str, count: int = 12) -> list[tuple[int, Any]]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: ask(server, path), range(count)))


def threads_of(server: Server, path: str, count: int = 12) -> set[int]:
    """Threads that answer, by what they say."""
    return {thread for _, thread in ask_at_once(server, path, count)}


def lanes_of(server: Server) -> set[int]:
    """Threads of all lanes."""
    found: set[int] = set()

    def has_all() -> bool:
        found.update(threads_of(server, "/lane"))
        return len(found) == NUM_LANES

    eventually("each lane answers", has_all)
    return found


def metric(server: Server, name: str) -> int:
    lines = server.client.get("/metrics").text.splitlines()
    found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(int(line.rsplit(" ", 1)[1]) for line in found)


def notes(folder: Path) -> list[str]:
    path = folder / "notes"
    return path.read_text().split() if path.exists() else []


def test_each_lane_is_a_thread_of_one_worker(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        assert len(server.workers) == 1
        assert server.event("listening")["lanes"] == NUM_LANES
        assert len(lanes_of(server)) == NUM_LANES
        assert notes(tmp_path) == ["start"]
        assert server.stop() == 0
    assert notes(tmp_path) == ["start", "stop"]


def test_what_lanes_count_is_summed(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        lanes_of(server)
        before = metric(server, "justapi_python_inline_total")
        stop = threading.Event()
        counts: list[int] = []

        def ask() -> None:
            count = 0
            with httpx.Client(base_url=server.url, timeout=30) as client:
                while not stop.is_set():
                    assert client.get("/add").status_code == 200
                    assert client.get("/add-later").status_code == 200
                    count += 1
            counts.append(count)

        asking = [threading.Thread(target=ask) for _ in range(8)]
        for one in asking:
            one.start()
        time.sleep(2)
        stop.set()
        for one in asking:
            one.join()
        count = sum(counts)
        assert len(counts) == 8
        assert count > 100
        assert server.client.get("/total").json() == [2 * count, 2 * count]
        assert metric(server, "justapi_lanes") == NUM_LANES
        # The question for the total is one more.
        assert metric(server, "justapi_python_inline_total") - before == count + 1
        assert metric(server, "justapi_python_suspended_total") == count
        answered = server.client.get("/metrics").text.splitlines()
        assert (
            f'justapi_requests_total{{method="GET",route="/add",status="200"}} {count}' in answered
        )
        assert server.stop() == 0
    assert "Traceback" not in "".join(server.errors)


def test_a_route_that_blocks_is_demoted_on_every_lane_and_that_is_said_once(
    tmp_path: Path,
) -> None:
    with serve(tmp_path) as server:
        lanes = lanes_of(server)
        eventually(
            "the route is demoted",
            lambda: lanes.isdisjoint(threads_of(server, "/blocks")),
        )
        assert lanes.isdisjoint(threads_of(server, "/blocks", 24))
        assert server.stop() == 0
    assert sum("/blocks blocks its thread" in line for line in server.errors) == 1


def test_a_stop_finishes_what_every_lane_has(tmp_path: Path) -> None:
    with serve(tmp_path) as server, ThreadPoolExecutor(64) as pool:
        asked: list[Future[tuple[int, Any]]] = []

        def has_begun() -> bool:
            return sum(note.startswith("slow") for note in notes(tmp_path)) == len(asked)

        while len(set(notes(tmp_path))) < 1 + NUM_LANES:
            asked.extend(pool.submit(ask, server, "/slow") for _ in range(8))
            eventually("the requests have begun", has_begun)
        server.signal(signal.SIGTERM)
        answers = [one.result() for one in asked]
        assert server.wait() == 0
    assert {status for status, _ in answers} == {200}
    assert len({thread for _, thread in answers}) == NUM_LANES
    assert notes(tmp_path)[-1] == "stop"


def test_background_tasks_of_every_lane_end_before_the_lifespan(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        lanes: set[int] = set()
        count = 0
        while len(lanes) < NUM_LANES:
            lanes |= threads_of(server, "/background")
            count += 12
        assert server.stop() == 0
    assert notes(tmp_path) == ["start", *["background"] * count, "stop"]


def test_sighup_replaces_all_lanes_without_losing_a_request(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        failed: list[Exception] = []
        stop = threading.Event()

        def ask() -> None:
            with httpx.Client(base_url=server.url, timeout=30) as client:
                while not stop.is_set():
                    try:
                        assert client.get("/add").status_code == 200
                    except httpx.HTTPError as error:
                        failed.append(error)

        asking = [threading.Thread(target=ask) for _ in range(6)]
        for one in asking:
            one.start()
        try:
            lanes = lanes_of(server)
            server.signal(signal.SIGHUP)
            eventually("the first worker has ended", lambda: not is_alive(server.workers[0]))
            assert lanes.isdisjoint(lanes_of(server))
        finally:
            stop.set()
            for one in asking:
                one.join()
        # A kept-alive connection may be closed between two requests of its client.
        assert all(isinstance(error, httpx.RemoteProtocolError) for error in failed), failed
        assert len(failed) <= 6
        assert server.stop() == 0


def test_requests_of_all_lanes_wear_the_worker_out(tmp_path: Path) -> None:
    with serve(tmp_path, "--max-requests", "60") as server:
        lanes_of(server)
        eventually(
            "another worker serves",
            lambda: ask_at_once(server, "/add") and not is_alive(server.workers[0]),
        )
        assert len(lanes_of(server)) == NUM_LANES
        assert server.stop() == 0


def test_a_handler_that_exits_ends_no_lane(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        assert {status for status, _ in ask_at_once(server, "/exit", 24)} == {500}
        assert len(lanes_of(server)) == NUM_LANES
        assert server.stop() == 0


def test_a_handler_that_never_returns_holds_a_stop_for_the_grace_time_only(tmp_path: Path) -> None:
    with serve(tmp_path, "--graceful", "1s") as server:

        def hang() -> bool:
            with suppress(TimeoutError):
                ask(server, "/hang", 0.3)
            return "hang" in notes(tmp_path)

        eventually("a handler hangs", hang)
        begun = time.monotonic()
        assert server.stop() != 0
        assert time.monotonic() - begun < 20
    assert not any(is_alive(pid) for pid in server.workers)


def test_websockets_work_on_every_lane(tmp_path: Path) -> None:
    from websockets.sync.client import connect

    def talk(number: int) -> list[Any]:
        with connect(f"ws{server.url.removeprefix('http')}/echo") as socket:
            heard = []
            for index in range(50):
                socket.send(f"{number} {index}")
                heard.append(socket.recv(timeout=30))
            return heard

    with serve(tmp_path) as server:
        with ThreadPoolExecutor(12) as pool:
            heard = list(pool.map(talk, range(12)))
        assert heard == [[f"{number} {index}" for index in range(50)] for number in range(12)]
        assert server.stop() == 0


def test_lanes_that_take_turns_say_so(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        assert server.stop() == 0
    assert any("global lock" in line for line in server.errors) is not IS_FREE_THREADED
    with serve(tmp_path, num_lanes=1) as server:
        assert server.stop() == 0
    assert not any("global lock" in line for line in server.errors)


def test_a_dictionary_that_other_threads_change_is_encoded() -> None:
    shared: dict[str, Any] = {f"{number}": [number] for number in range(100)}
    stop = threading.Event()

    def change() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            shared[f"{number % 150}"] = [number]
            shared.pop(f"{(number + 75) % 150}", None)

    changing = [threading.Thread(target=change) for _ in range(2)]
    for one in changing:
        one.start()
    try:
        for _ in range(2000):
            assert _core.encode_json(shared).startswith(b"{")
    finally:
        stop.set()
        for one in changing:
            one.join()
