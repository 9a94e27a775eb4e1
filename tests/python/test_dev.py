"""`justapi dev`: the newest code that works is served, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest

from dev import Dev, Probes, Stalls, app, overwrite, replace, write
from load import children
from serving import PATIENCE, PROGRAM, eventually, is_alive


def test_what_is_saved_is_served(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    with Dev(tmp_path) as dev:
        assert dev.wait_for("listening")["ok"] is True
        assert dev.get().text == '"1"'
        for number in range(2, 6):
            dev.save(app(str(number)))
            # At once: what is asked after the save waits for the new code.
            answer = dev.get()
            assert (answer.text, answer.status_code) == (f'"{number}"', 200)
            assert "x-justapi-stale" not in answer.headers
        events = [dev.wait_for("reload", count) for count in range(1, 5)]
        assert all(event["files"] == ["app.py"] for event in events)
        assert len({event["worker"] for event in events}) == 4
        assert dev.stop() == 0
        # The workers have gone with it, and nothing was taken for a change.
        assert len(dev.events("reload")) == 4
        assert not any(is_alive(event["worker"]) for event in events)


def test_a_hundred_reloads_refuse_reset_and_delay_nobody(tmp_path: Path) -> None:
    saved = 0
    write(tmp_path / "app.py", app("000"))
    is_idle = os.getloadavg()[0] < (os.cpu_count() or 1) / 2
    with Dev(tmp_path) as dev, Stalls() as stalls:

        def newest() -> int:
            return saved

        with (
            Probes(dev.url, 0.005, keeps=False, newest=newest) as fresh,
            Probes(dev.url, 0.005, keeps=True, newest=newest) as kept,
        ):
            # Bytecode names its source by its size and second, which these share.
            for number in range(1, 101):
                save = (overwrite, replace)[number % 2]
                save(tmp_path / "app.py", app(f"{number:03}"))
                saved = number
                dev.serves(f"{number:03}")
                # Now and then the next interpreter is ready by the next save, now and then not.
                time.sleep(0.05 * (number % 5))
        # The last one is told of once it serves.
        dev.wait_for("reload", 100)
        reloads = dev.events("reload")
        assert len(reloads) == 100
        assert dev.events("failed", "crashed", "killed") == []
        slowest = max(fresh.slowest, kept.slowest)
        late = len(fresh.late) + len(kept.late)
        found = (
            f"longest wait {slowest:.3f} s, {late} answers after the whole wait, "
            f"slowest reload {max(event['ms'] for event in reloads):.0f} ms, "
            f"longest stall {stalls.worst:.3f} s"
        )
        print(found)
        for probes in (fresh, kept):
            assert probes.failures == []
            assert probes.stale == []
            assert probes.count > 100
        # Nobody waits for anything but a start, and what the machine takes.
        explained = max(event["ms"] for event in reloads) / 1000 + 0.1 + 2 * stalls.worst
        assert slowest < explained, found
        is_fast = max(event["boot_ms"] for event in reloads) < 200
        if is_idle and is_fast and stalls.worst < 0.02:
            assert late == 0, found
            assert slowest < 0.3, found


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("def f(:\n", "SyntaxError"),
        ("undefined_name\n", "NameError: name 'undefined_name' is not defined"),
        ("import nope_there_is_none\n", "ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("import os; os.abort()\n", "killed by SIGABRT"),
        ("import os; os._exit(7)\n", "exit status 7"),
        ("x = 1\n", "has no attribute 'app'"),
    ],
)
def test_broken_code_says_so_and_the_last_good_goes_on(
    tmp_path: Path, broken: str, expected: str
) -> None:
    write(tmp_path / "app.py", app("1"))
    with Dev(tmp_path) as dev:
        dev.save(broken)
        answer = dev.get()
        failed = dev.wait_for("failed")
        assert expected in json.dumps(failed["error"]).replace('\\"', '"')
        assert failed["stale"] is True
        assert (answer.text, answer.headers["x-justapi-stale"]) == ('"1"', "1")
        assert "app.py" in dev.said
        dev.save(app("2"))
        answer = dev.get()
        assert answer.text == '"2"'
        assert "x-justapi-stale" not in answer.headers
        assert dev.stop() == 0


def test_code_that_is_broken_from_the_start_is_a_page(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1", before="import routes\n"))
    write(tmp_path / "routes.py", "def make():\n    return missing + 1\n\nmake()\n")
    with Dev(tmp_path) as dev:
        assert dev.wait_for("listening")["ok"] is False
        page = dev.get(accept="text/html,*/*;q=0.8")
        assert page.status_code == 503
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["cache-control"] == "no-store"
        for part in ("NameError", "<b>routes.py</b>:2", "return missing + 1", "/__justapi/dev.js"):
            assert part in page.text, part
        assert page.text.index("routes.py") < page.text.index("app.py")
        problem = dev.get(accept="application/json")
        assert problem.headers["content-type"] == "application/problem+json"
        assert problem.status_code == problem.json()["status"] == 503
        error = problem.json()["error"]
        assert (error["file"], error["line"]) == ("routes.py", 2)
        assert error["exception"] == "NameError: name 'missing' is not defined"
        assert [frame["function"] for frame in error["frames"]] == ["<module>", "<module>", "make"]
        text = dev.get()
        assert text.headers["content-type"] == "text/plain; charset=utf-8"
        assert "  --> routes.py:2\n" in text.text
        assert "  --> routes.py:2\n" in dev.said
        # The file that failed is none that the application could import.
        dev.save("def make():\n    return 1\n", "routes.py")
        assert dev.get().text == '"1"'


def test_a_module_that_was_missing_is_found_once_it_is_there(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1", before="from late.part import x\n"))
    with Dev(tmp_path) as dev:
        assert dev.get().status_code == 503
        write(tmp_path / "late" / "part.py", "x = 1\n")
        dev.serves("1")


def test_a_failing_lifespan_is_a_failure(tmp_path: Path) -> None:
    lifespan = """
import contextlib

@contextlib.asynccontextmanager
async def lifespan(app):
    raise RuntimeError("no database")
    yield

app.router.lifespan_context = lifespan
"""
    write(tmp_path / "app.py", app("1"))
    with Dev(tmp_path) as dev:
        dev.save(app("2", after=lifespan))
        assert dev.get().text == '"1"'
        error = dev.wait_for("failed")["error"]
        assert error["exception"] == "RuntimeError: no database"
        assert error["file"] == "app.py"
        dev.save(app("3"))
        assert dev.get().text == '"3"'


def test_the_last_save_wins_while_code_starts(tmp_path: Path) -> None:
    slow = "import time\ntime.sleep(0.7)\n"
    write(tmp_path / "app.py", app("1"))
    with Dev(tmp_path) as dev:
        dev.save(app("2", before=slow))
        time.sleep(0.3)
        dev.save(app("3", before=slow))
        assert dev.get().text == '"3"'
        # One, unless the machine stalls between the two.
        assert len(dev.events("reload")) <= 2


def test_saves_without_end_keep_no_code_from_serving(tmp_path: Path) -> None:
    slow = "import time\ntime.sleep(0.3)\n"
    path = tmp_path / "app.py"
    saved = 0
    write(path, app("000", before=slow))
    with Dev(tmp_path) as dev:

        def newest() -> int:
            return saved

        with (
            Probes(dev.url, 0.01, keeps=False, newest=newest) as fresh,
            Probes(dev.url, 0.01, keeps=True, newest=newest) as kept,
        ):
            deadline = time.monotonic() + PATIENCE
            while len(dev.events("reload")) < 5:
                assert time.monotonic() < deadline, dev.events("reload")
                # Sooner than any of it starts.
                time.sleep(0.1)
                overwrite(path, app(f"{saved + 1:03}", before=slow))
                saved += 1
            dev.serves(f"{saved:03}")
        # Also to those who ask meanwhile nothing is answered that is older than their question.
        for probes in (fresh, kept):
            assert probes.failures == []
            assert probes.stale == []
        eventually("the last one is told of", lambda: not dev.events("reload")[-1]["superseded"])
        reloads = dev.events("reload")
        assert len(reloads) < saved
        assert any(event["superseded"] for event in reloads)
        assert dev.events("failed", "crashed") == []


def test_saves_without_end_where_there_can_be_one_at_a_time(tmp_path: Path) -> None:
    slow = "import time\ntime.sleep(0.3)\n"
    path = tmp_path / "app.py"
    write(path, app("000", before=slow))
    with Dev(tmp_path, "--reload-strategy", "stop-first") as dev:
        answers: set[str] = set()
        is_over = threading.Event()

        def ask() -> None:
            while not is_over.is_set():
                answer = dev.get()
                if answer.status_code == 200:
                    answers.add(answer.json())

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            deadline = time.monotonic() + PATIENCE
            number = 0
            # Whoever waits for it meets it before the next one takes its place.
            while len(answers) < 4:
                assert time.monotonic() < deadline, answers
                time.sleep(0.1)
                number += 1
                overwrite(path, app(f"{number:03}", before=slow))
            dev.serves(f"{number:03}")
        finally:
            is_over.set()
            asking.join(PATIENCE)


def test_code_that_never_starts_keeps_nobody_waiting(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    with Dev(tmp_path, "--start-timeout", "6s") as dev:
        dev.save("while True:\n    pass\n")
        begun = time.monotonic()
        answer = dev.get()
        # The last good code answers once the request has waited for as long as is good.
        assert time.monotonic() - begun < 5.5
        assert (answer.text, answer.headers["x-justapi-stale"]) == ('"1"', "1")
        failed = dev.wait_for("failed")
        assert failed["error"]["what"] == "the application did not start in time"
        assert 'File "' in dev.said and "app.py" in dev.said
        dev.save(app("2"))
        assert dev.get().text == '"2"'


def test_a_start_that_hangs_is_given_up_for_newer_code(tmp_path: Path) -> None:
    write(tmp_path / "app.py", "while True:\n    pass\n")
    with Dev(tmp_path, waits=False) as dev:
        eventually("a worker starts", lambda: len(children(dev.process.pid)) == 1)
        dev.wait_for("watching")
        dev.save(app("1"))
        dev.url = dev.wait_for("listening")["url"]
        assert dev.get().text == '"1"'


WAITING = """
import os, time
while not os.path.exists("go"):
    time.sleep(0.01)
"""


def test_a_slow_import_is_told_of(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "site-packages"
    write(packages / "slow_package.py", WAITING)
    write(tmp_path / "app.py", app("1", before="import json\nimport slow_package\n"))
    with Dev(tmp_path, waits=False, PYTHONPATH=str(packages)) as dev:
        dev.url = dev.wait_for("starting")["url"]

        def seen() -> list[dict[str, object]]:
            return [event for event in dev.events("waiting") if event["module"]]

        waiting = eventually("where it is", seen)[0]
        place = (waiting["for"], waiting["file"], waiting["line"], waiting["module"])
        assert place == ("import", "app.py", 2, "slow_package")
        assert waiting["ms"] >= 1000
        eventually("it is said", lambda: "app.py:2 imports slow_package" in dev.said)
        assert dev.events("listening", "failed") == []
        (tmp_path / "go").touch()
        listening = dev.wait_for("listening")
        assert (listening["ok"], listening["url"]) == (True, dev.url)
        assert dev.get().text == '"1"'


LIFESPAN = """
import asyncio, contextlib, os, time

def inner():
    while not os.path.exists("go"):
        time.sleep(0.01)

async def outer():
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)

@contextlib.asynccontextmanager
async def lifespan(app):
    BEFORE
    yield
    AFTER

app.router.lifespan_context = lifespan
"""


@pytest.mark.parametrize(
    ("call", "place"), [("inner()", "time.sleep(0.01)"), ("await outer()", "await asyncio.sleep")]
)
def test_a_slow_startup_is_told_of(tmp_path: Path, call: str, place: str) -> None:
    slow = LIFESPAN.replace("BEFORE", call).replace("AFTER", "pass")
    text = app("2", after=slow)
    write(tmp_path / "app.py", app("1"))
    with Dev(tmp_path) as dev:
        dev.save(text)

        def seen() -> list[dict[str, object]]:
            return [event for event in dev.events("waiting") if event["line"]]

        waiting = eventually("where it is", seen)[0]
        lines = [number for number, line in enumerate(text.splitlines(), 1) if place in line]
        loop = {*lines, *(number - 1 for number in lines)}
        assert (waiting["for"], waiting["file"]) == ("startup", "app.py")
        assert waiting["line"] in loop
        eventually("it is said", lambda: "still starting up app:app" in dev.said)
        (tmp_path / "go").touch()
        dev.serves("2")


@pytest.mark.parametrize("call", ["inner()", "await outer()"])
def test_a_shutdown_that_does_not_end_is_named(tmp_path: Path, call: str) -> None:
    slow = LIFESPAN.replace("BEFORE", "pass").replace("AFTER", call)
    write(tmp_path / "app.py", app("1", after=slow))
    with Dev(tmp_path, "--graceful", "2s") as dev:
        first = dev.wait_for("listening")["worker"]
        dev.save(app("2", after=slow))
        dev.serves("2")
        killed = dev.wait_for("killed")
        assert (killed["worker"], killed["for"], killed["file"]) == (first, "lifespan", "app.py")
        assert killed["ms"] == 3000
        named = f"the shutdown of its lifespan had not ended, at app.py:{killed['line']}"
        eventually("it is said", lambda: named in dev.said)
        assert dev.stop() == 130
        # Once for each worker.
        last = dev.wait_for("reload")["worker"]
        assert [event["worker"] for event in dev.events("killed")] == [first, last]
        assert "every request finished, but not the application" in dev.said
        eventually("both have gone", lambda: not is_alive(first) and not is_alive(last))


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    with Dev(tmp_path) as dev:
        worker = dev.wait_for("listening")["worker"]
        os.kill(worker, signal.SIGKILL)
        assert dev.wait_for("crashed")["how"] == "killed by SIGKILL"
        dev.serves("1")
        assert dev.wait_for("reload")["worker"] != worker


def test_code_that_ends_its_worker_again_and_again_is_said_to(tmp_path: Path) -> None:
    crash = """
import os, threading
# It has told of its start long before.
app.add_event_handler("startup", threading.Timer(0.5, os._exit, [9]).start)
"""
    write(tmp_path / "app.py", app("1", after=crash))
    with Dev(tmp_path) as dev:
        failed = dev.wait_for("failed")
        assert "has ended 4 times in a row: exit status 9" in failed["error"]["what"]
        assert len(dev.events("crashed")) == 4
        assert dev.get().status_code == 503
        dev.save(app("2"))
        assert dev.get().text == '"2"'


STREAM = """
import asyncio
from justapi import WebSocket
from justapi.responses import StreamingResponse

@app.get("/stream")
async def stream():
    async def numbers():
        while True:
            yield f"data: {VERSION}\\n\\n"
            await asyncio.sleep(0.02)
    return StreamingResponse(numbers(), media_type="text/event-stream")

@app.websocket("/socket")
async def socket(websocket: WebSocket):
    await websocket.accept()
    while True:
        await websocket.receive_text()
"""


def test_streams_hold_no_reload_and_no_end(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1", after=STREAM))
    with Dev(tmp_path) as dev, httpx.stream("GET", f"{dev.url}/stream", timeout=30) as stream:
        chunks = stream.iter_raw()
        assert next(chunks) == b"data: 1\n\n"
        host, port = dev.url.removeprefix("http://").split(":")
        upgrade = socket.create_connection((host, int(port)), 30)
        upgrade.sendall(
            b"GET /socket HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n"
            b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
            b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert upgrade.recv(1024).startswith(b"HTTP/1.1 101 ")
        begun = time.monotonic()
        dev.save(app("2", after=STREAM))
        assert dev.get().text == '"2"'
        # Both end by themselves, so that their clients come back to the new code.
        while upgrade.recv(1024):
            pass
        upgrade.close()
        try:
            for _ in chunks:
                pass
        except httpx.RemoteProtocolError:
            pass
        assert time.monotonic() - begun < 20
        with httpx.stream("GET", f"{dev.url}/stream", timeout=30) as again:
            assert next(again.iter_raw()) == b"data: 2\n\n"
            begun = time.monotonic()
            dev.stop()
            assert time.monotonic() - begun < 20


def test_requests_in_flight_are_finished_by_the_code_that_began(tmp_path: Path) -> None:
    slow = """
import asyncio

@app.get("/slow")
async def slow():
    await asyncio.sleep(0.5)
    return VERSION
"""
    write(tmp_path / "app.py", app("1", after=slow))
    with Dev(tmp_path) as dev, httpx.Client(base_url=dev.url, timeout=30) as client:
        host, port = dev.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 30) as begun:
            begun.sendall(b"GET /slow HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            client.get("/")
            dev.save(app("2", after=slow))
            assert client.get("/").text == '"2"'
            answer = b""
            while more := begun.recv(4096):
                answer += more
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b'"1"')


def test_a_second_signal_ends_everything_at_once(tmp_path: Path) -> None:
    stubborn = """
import time

@app.get("/stuck")
def stuck():
    open("begun", "w").close()
    time.sleep(600)
"""
    write(tmp_path / "app.py", app("1", after=stubborn))
    with Dev(tmp_path, "--graceful", "10m") as dev:
        worker = dev.wait_for("listening")["worker"]
        host, port = dev.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 30) as client:
            client.sendall(b"GET /stuck HTTP/1.1\r\nhost: localhost\r\n\r\n")
            eventually("the handler runs", (tmp_path / "begun").exists)
            dev.signal(signal.SIGINT)
            dev.wait_for("stopping")
            dev.signal(signal.SIGINT)
            assert dev.wait() == 130
        eventually("the worker has gone", lambda: not is_alive(worker))


def test_nothing_is_left_when_it_is_killed(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    with Dev(tmp_path) as dev:
        dev.save(app("2"))
        assert dev.get().text == '"2"'
        # The one that serves, and the one that was started ahead.
        eventually("both are there", lambda: len(children(dev.process.pid)) == 2)
        workers = list(children(dev.process.pid))
        dev.process.kill()
        dev.wait()
        eventually("all have gone", lambda: not any(is_alive(worker) for worker in workers))


def test_what_a_worker_has_started_goes_with_it(tmp_path: Path) -> None:
    spawn = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

@app.get("/child")
def pid():
    return child.pid
"""
    write(tmp_path / "app.py", app("1", after=spawn))
    with Dev(tmp_path) as dev:
        first = dev.get("/child").json()
        dev.save(app("2", after=spawn))
        assert dev.get().text == '"2"'
        eventually("the child of the old one has gone", lambda: not is_alive(first))
        second = dev.get("/child").json()
        assert is_alive(second)
        dev.stop()
        assert not is_alive(second)


def test_what_has_a_session_of_its_own_goes_with_its_worker(tmp_path: Path) -> None:
    spawn = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
)
subprocess.run(["sh", "-c", "sleep 0 &"], start_new_session=True)

@app.get("/child")
def pid():
    return child.pid
"""
    write(tmp_path / "app.py", app("1", after=spawn))
    with Dev(tmp_path) as dev:
        first = dev.get("/child").json()
        for number in range(2, 5):
            dev.save(app(str(number), after=spawn))
            dev.serves(str(number))
        eventually("the child has gone", lambda: not Path(f"/proc/{first}").exists())
        last = dev.get("/child").json()
        assert is_alive(last)

        def zombies() -> list[int]:
            return [pid for pid, state in children(dev.process.pid).items() if state == "Z"]

        # Those of the last workers that have gone may still be on their way.
        eventually("few zombies", lambda: len(zombies()) <= 2)
        dev.stop()
        assert not is_alive(last)


def test_a_variable_of_the_users_makes_no_other_worker(tmp_path: Path) -> None:
    write(tmp_path / ".env", "JUSTAPI_WORKER={}\nJUSTAPI_DEV_WORKER=1\n")
    write(tmp_path / "app.py", app("1"))
    with Dev(tmp_path) as dev:
        assert dev.wait_for("listening")["ok"] is True
        assert dev.get().text == '"1"'


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = subprocess.run(
            [PROGRAM, "dev", "--port", str(port)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert run.returncode == 5
    assert f"error[JA501]: cannot listen on 127.0.0.1:{port}: address already in use" in run.stderr
    assert "held by" in run.stderr and "hint" in run.stderr
    assert "Traceback" not in run.stderr


def test_there_is_no_application_to_serve(tmp_path: Path) -> None:
    run = subprocess.run(
        [PROGRAM, "dev", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 4
    assert "error[JA401]: there is no application in this folder" in run.stderr
    assert "main.py, app.py" in run.stderr


def test_one_at_a_time_where_that_is_asked_for(tmp_path: Path) -> None:
    lock = """
import fcntl
lock = open("lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""
    write(tmp_path / "app.py", app("1", before=lock))
    with Dev(tmp_path, "--reload-strategy", "stop-first") as dev:
        dev.save(app("2", before=lock))
        assert dev.get().text == '"2"'
        dev.save("broken(\n")
        assert dev.get().status_code == 503
        dev.save(app("3", before=lock))
        assert dev.get().text == '"3"'


def test_one_at_a_time_also_when_the_old_one_takes_long_to_go(tmp_path: Path) -> None:
    lock = """
import fcntl
lock = open("lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""
    slow = """
import asyncio, contextlib

@contextlib.asynccontextmanager
async def lifespan(app):
    yield
    open("ending", "w").close()
    await asyncio.sleep(1.5)

app.router.lifespan_context = lifespan
"""
    write(tmp_path / "app.py", app("1", before=lock, after=slow))
    with Dev(tmp_path, "--reload-strategy", "stop-first", "--graceful", "20s") as dev:
        dev.save(app("2", before=lock, after=slow))
        eventually("the old one is about to go", (tmp_path / "ending").exists)
        dev.save(app("3", before=lock))
        dev.serves("3")
        assert dev.events("failed") == []


def test_an_address_that_the_application_needs_is_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listen = f"""
import socket
other = socket.create_server(("127.0.0.1", {port}))
"""
    write(tmp_path / "app.py", app("1", before=listen))
    with Dev(tmp_path) as dev:
        dev.save(app("2", before=listen))
        dev.serves("2")
        assert "wants an address that the running code has" in dev.wait_for("note")["text"]
        assert dev.events("failed") == []


def test_clients_see_what_they_would_without_it(tmp_path: Path) -> None:
    echo = """
from justapi import Request

@app.post("/echo/{rest:path}")
async def echo(request: Request):
    return {
        "client": request.client.host,
        "url": str(request.url),
        "raw": request.scope["raw_path"].decode(),
        "server": list(request.scope["server"]),
        "headers": request.headers.items(),
        "length": len(await request.body()),
    }
"""
    write(tmp_path / "app.py", app("1", after=echo))
    with Dev(tmp_path, "--trusted-host", "shop.example") as dev:
        host, _, port = dev.url.removeprefix("http://").partition(":")
        large = b"x" * 1_500_000
        answer = httpx.post(
            f"{dev.url}/echo/a%2Fb/c?q=1",
            content=large,
            headers={"host": "shop.example", "x-forwarded-for": "203.0.113.9", "x-two": "2"},
            timeout=30,
        )
        assert answer.status_code == 200, answer.text
        seen = answer.json()
        headers = dict(seen["headers"])
        assert seen["client"] == "127.0.0.1"
        assert seen["raw"] == "/echo/a%2Fb/c"
        assert seen["url"].startswith("http://shop.example/echo/")
        assert seen["server"] == [host, int(port)]
        assert seen["length"] == len(large)
        assert headers["host"] == "shop.example"
        assert headers["x-two"] == "2"
        assert "via" not in headers and "forwarded" not in headers
        assert "via" not in answer.headers
        # The limits are the application's own.
        refused = httpx.post(
            f"{dev.url}/echo/x",
            content=b"x" * 3_000_000,
            headers={"host": "shop.example"},
            timeout=30,
        )
        assert refused.status_code == 413
