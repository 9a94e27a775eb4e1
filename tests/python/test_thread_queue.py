"""Blocking handlers and the routes beside them: the queue for threads, and who waits for whom."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

from load import Raw
from serving import Server, eventually

if TYPE_CHECKING:
    from pathlib import Path

NUM_THREADS = 40
"""Threads for blocking handlers in each worker."""

APP = """
    import os, time
    from justapi import JustAPI

    app = JustAPI()

    @app.get("/hold", blocking=True)
    def hold():
        with open("held", "a") as held:
            held.write("x")
        while not os.path.exists("go"):
            time.sleep(0.01)
        return "held"

    @app.get("/block")
    def block():
        time.sleep(0.005)
        return "blocked"

    @app.get("/nap")
    def nap():
        time.sleep(0.1)
        return "napped"

    @app.get("/ping")
    async def ping(): return "pong"

    @app.get("/constant", native="constant")
    def constant(): ...
"""


def metric(server: Server, name: str) -> float:
    """The value of one series."""
    lines = server.client.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[-1])


def test_what_waits_for_a_thread_is_limited(tmp_path: Path) -> None:
    held = tmp_path / "held"

    def wait_for_held(count: int) -> None:
        eventually("it is held", lambda: held.exists() and held.stat().st_size == count)

    with Server(tmp_path, APP, "--thread-queue", "3") as server:
        clients = []
        for number in range(NUM_THREADS + 3 + 2):
            client = Raw(server.url)
            client.send("/hold")
            clients.append(client)
            if number < NUM_THREADS:
                # All threads are there before anybody waits for one.
                wait_for_held(number + 1)
        for client in clients[-2:]:
            status, head, body = client.whole_answer()
            assert status == 503
            assert head[b"retry-after"] == b"1"
            assert head[b"content-type"] == b"application/problem+json"
            document = json.loads(body)
            assert document["limit"] == "python.thread_queue"
            assert document["limit_value"] == 3
        assert held.stat().st_size == NUM_THREADS
        # Others have nothing to do with it.
        assert server.client.get("/ping").json() == "pong"
        assert metric(server, 'justapi_rejected_total{reason="thread_queue"}') == 2
        assert metric(server, "justapi_python_threaded_total") == NUM_THREADS + 3
        (tmp_path / "go").touch()
        for client in clients[:-2]:
            assert client.answer() == (200, b'"held"')
        assert server.client.get("/hold").json() == "held"
        for client in clients:
            client.close()
        assert server.stop() == 0


def test_calls_of_clients_that_have_left_keep_nobody_out(tmp_path: Path) -> None:
    held = tmp_path / "held"
    with Server(tmp_path, APP, "--thread-queue", "3") as server:

        def wait_for_held(count: int) -> None:
            eventually("it is held", lambda: held.exists() and held.stat().st_size == count)

        def counts() -> tuple[float, float]:
            return (
                metric(server, "justapi_python_threaded_total"),
                metric(server, 'justapi_rejected_total{reason="thread_queue"}'),
            )

        def ask() -> tuple[Raw, bool]:
            """Asks, and tells whether the call was taken."""
            before = counts()
            client = Raw(server.url)
            client.send("/hold")
            eventually("it is taken or refused", lambda: counts() != before)
            return client, counts()[0] > before[0]

        def ask_until_taken() -> Raw | None:
            client, is_taken = ask()
            if not is_taken:
                client.close()
            return client if is_taken else None

        # Before that the threads are busy, nobody waits.
        clients = []
        for number in range(NUM_THREADS):
            clients.append(Raw(server.url))
            clients[-1].send("/hold")
            wait_for_held(number + 1)
        waiting = [ask() for _ in range(4)]
        assert [is_taken for _, is_taken in waiting] == [True, True, True, False]
        for client, _ in waiting:
            # With a reset: whoever only says no more may still read.
            linger = struct.pack("ii", 1, 0)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            client.close()
        # The server learns in its own time that they have left.
        clients += [eventually("there is room", ask_until_taken) for _ in range(3)]
        assert not ask_until_taken()
        (tmp_path / "go").touch()
        for client in clients:
            assert client.answer() == (200, b'"held"')
            client.close()
        # None was begun for nobody.
        assert held.stat().st_size == NUM_THREADS + 3
        assert server.stop() == 0


def ask_all(url: str, path: str, num_clients: int, num_requests: int) -> list[threading.Thread]:
    """Starts clients that ask one after the other, each on its connection."""

    def ask() -> None:
        client = Raw(url)
        for _ in range(num_requests):
            client.send(path)
            assert client.answer()[0] == 200
        client.close()

    asking = [threading.Thread(target=ask) for _ in range(num_clients)]
    for one in asking:
        one.start()
    return asking


def slowest_pings(url: str, paths: list[str], asking: list[threading.Thread]) -> list[float]:
    """Seconds of each answer for as long as the others ask."""
    client = Raw(url)
    times = []
    while any(one.is_alive() for one in asking):
        for path in paths:
            began = time.perf_counter()
            client.send(path)
            assert client.answer()[0] == 200
            times.append(time.perf_counter() - began)
    client.close()
    return sorted(times)


def test_other_routes_answer_while_demoted_handlers_block(tmp_path: Path) -> None:
    with Server(tmp_path, APP) as server:
        for _ in range(20):
            server.client.get("/block")
        eventually("it is said", lambda: "GET /block blocks its thread" in "".join(server.errors))
        before = metric(server, "justapi_python_threaded_total")
        inline = metric(server, "justapi_python_inline_total")
        num_requests = 20
        asking = ask_all(server.url, "/block", 64, num_requests)
        times = slowest_pings(server.url, ["/ping", "/constant"], asking)
        assert metric(server, "justapi_python_threaded_total") - before == 64 * num_requests
        assert metric(server, "justapi_python_inline_total") == inline
        # Behind all of the others' calls, each would take as long as 64 of them, 0.32 s.
        assert times[len(times) // 2] < 0.1, times
        assert server.stop() == 0


def test_fifty_naps_do_not_hold_a_ping_up(tmp_path: Path) -> None:
    with Server(tmp_path, APP) as server:
        for _ in range(6):
            server.client.get("/nap")
        began = time.monotonic()
        asking = ask_all(server.url, "/nap", 50, 1)
        times = slowest_pings(server.url, ["/ping"], asking)
        # One after the other they would take 5 s; in 40 threads it is 0.2 s.
        assert time.monotonic() - began < 4
        assert times[len(times) // 2] < 0.1, times
        assert metric(server, "justapi_python_threaded_total") >= 50
        assert server.stop() == 0
