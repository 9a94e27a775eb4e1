"""`justapi profile` of Python applications: what it starts, sees and leaves behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from serving import PROGRAM, eventually, is_alive, run

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORT = ("-z", "800ms", "--warmup", "200ms", "-c", "4", "--threads", "1")

APP = """
import subprocess
import sys
import time

from justapi import JustAPI

app = JustAPI()
print("hello from the module")


@app.get("/items/{item_id}")
def item(item_id: int):
    return {"item": item_id}


@app.get("/slow")
async def slow():
    import asyncio
    await asyncio.sleep(0.02)
    return {}


@app.get("/broken")
def broken():
    raise RuntimeError("no")


@app.get("/stuck")
def stuck():
    time.sleep(600)


@app.get("/spawn")
def spawn():
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    return {"pid": child.pid}
"""


def report(folder: Path, *arguments: str) -> dict[str, Any]:
    """Profiles with `--json` and returns the report."""
    (folder / "main.py").write_text(APP)
    done = run(folder, "profile", "--json", *SHORT, *arguments)
    assert done.returncode == 0, done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def below(pid: int) -> list[int]:
    """The processes below this one."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # It has ended meanwhile.
        for child in children:
            found += [int(child), *below(int(child))]
    return found


def test_each_route_of_an_application_is_seen_from_three_sides(tmp_path: Path) -> None:
    found = report(tmp_path, "main.py", "--path", "/items/5", "--path", "/slow")
    assert found["application"]["name"] == "main.py"
    assert not is_alive(found["application"]["pid"])
    item, slow = found["routes"]
    assert [one["server"]["routes"][0]["route"] for one in (item, slow)] == [
        "/items/{item_id}",
        "/slow",
    ]
    for one in (item, slow):
        ok = one["load"]["outcomes"]["ok"]
        counted = one["server"]["routes"][0]["requests"]
        assert ok > 0
        assert ok <= counted <= ok + 4
        # The supervisor and one worker.
        assert one["process"]["num_processes"] == 2
        assert one["process"]["cpu_ns_per_response"] > 0
        assert one["notes"] == []
    # How Python was run: inline, or as a coroutine that was suspended.
    assert item["server"]["counters"]["justapi_python_inline_total"] > 0
    assert slow["server"]["counters"]["justapi_python_suspended_total"] > 0
    # A coroutine that sleeps is 20 ms in the server, and costs next to nothing.
    assert slow["in_server_mean_ns"] >= 20e6
    assert slow["process"]["busy_cpus"] < 0.5
    assert 3 <= slow["server"]["in_flight"]["max"] <= 4


def test_an_application_is_named_as_serve_names_it(tmp_path: Path) -> None:
    found = report(tmp_path, "main:app", "--path", "/items/1")
    assert found["application"]["name"] == "main:app"


def test_what_the_application_prints_is_no_part_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(APP)
    done = run(tmp_path, "profile", "main.py", "--path", "/items/1", "--json", *SHORT)
    assert "hello from the module" in done.stderr
    json.loads(done.stdout)


def test_a_broken_route_is_refused(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(APP)
    done = run(tmp_path, "profile", "main.py", "--path", "/broken", *SHORT)
    assert done.returncode == 5
    assert "probe      /broken  status 500" in done.stdout
    assert "error[JA808]" in done.stderr


@pytest.mark.parametrize(
    ("source", "target", "code", "said"),
    [
        ("def f(:\n", "main.py", "JA401", "SyntaxError"),
        ("app = 5\n", "main.py", "JA401", "main.py:NAME"),
        ("", "other.py", "JA401", "other.py"),
        ("", "nothing:app", "JA401", "nothing"),
    ],
)
def test_an_application_that_cannot_start_says_so_as_serve_does(
    tmp_path: Path, source: str, target: str, code: str, said: str
) -> None:
    (tmp_path / "main.py").write_text(source)
    done = run(tmp_path, "profile", target, *SHORT)
    assert done.returncode == 5, done
    assert "error[JA810]" in done.stderr
    assert code in done.stderr
    assert said in done.stderr


def test_several_workers_are_said_to_be_several(tmp_path: Path) -> None:
    found = report(tmp_path, "main.py", "--path", "/items/1", "--", "--workers", "2")
    route = found["routes"][0]
    assert route["process"]["num_processes"] == 3
    ok = route["load"]["outcomes"]["ok"]
    counted = route["server"]["routes"][0]["requests"] if route["server"]["routes"] else 0
    if counted < 0.99 * ok:
        assert "one of several processes" in "".join(route["notes"])


def test_any_asgi_application_has_the_counters_of_its_server(tmp_path: Path) -> None:
    (tmp_path / "asgi.py").write_text(
        "async def app(scope, receive, send):\n"
        "    if scope['type'] != 'http':\n"
        "        raise NotImplementedError\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': b'hi'})\n"
    )
    done = run(tmp_path, "profile", "asgi:app", "--json", *SHORT)
    assert done.returncode == 0, done
    route = json.loads(done.stdout)["routes"][0]
    assert route["server"]["routes"][0]["requests"] >= route["load"]["outcomes"]["ok"] > 0


@pytest.fixture
def long_profile(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A profile of a minute whose load has begun; every process of it is ended."""
    (tmp_path / "main.py").write_text(APP)
    process = subprocess.Popen(
        [PROGRAM, "profile", "main.py", "--path", "/spawn", "-z", "60", "-c", "1", "--rate", "5"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually("the worker starts children", lambda: len(below(process.pid)) >= 4)
        yield process
    finally:
        for pid in below(process.pid):
            subprocess.run(["kill", "-9", str(pid)], check=False, stderr=subprocess.DEVNULL)
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_of_an_application_is_left(
    long_profile: subprocess.Popen[str], number: signal.Signals
) -> None:
    long_profile.send_signal(number)
    # The report comes first, and then the end of everything, sessions of their own included.
    seen = set(below(long_profile.pid))
    assert long_profile.wait(30) == 130
    assert long_profile.stdout is not None
    assert "/spawn" in long_profile.stdout.read()
    assert [pid for pid in seen if is_alive(pid)] == []


def test_a_supervisor_that_is_killed_leaves_nothing_either(
    long_profile: subprocess.Popen[str],
) -> None:
    seen = below(long_profile.pid)
    subprocess.run(["kill", "-9", str(seen[0])], check=True)
    eventually("its worker has ended", lambda: not is_alive(seen[1]))
    long_profile.send_signal(signal.SIGINT)
    seen += below(long_profile.pid)
    assert long_profile.wait(30) == 130
    assert [pid for pid in seen if is_alive(pid)] == []


def test_nothing_is_left_when_the_command_itself_is_killed(
    long_profile: subprocess.Popen[str],
) -> None:
    seen = below(long_profile.pid)
    long_profile.kill()
    for pid in seen:
        eventually("all of it has ended", lambda pid=pid: not is_alive(pid))


def test_a_handler_that_never_ends_holds_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(APP)
    done = run(tmp_path, "profile", "main.py", "--path", "/stuck", "--timeout", "1", *SHORT)
    assert done.returncode == 5, done
    assert "request_timeout" in done.stderr


def test_the_interpreter_can_be_chosen(tmp_path: Path) -> None:
    found = report(tmp_path, "main.py", "--path", "/items/1", "--", "--python", sys.executable)
    assert found["routes"][0]["load"]["outcomes"]["ok"] > 0
