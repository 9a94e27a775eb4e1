"""`justapi bench` of Python applications: what it starts, measures and leaves behind."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

from serving import eventually, is_alive, run

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

APP = """
import os
import signal

from justapi import JustAPI, Request

app = JustAPI()
# What it is now: a process that is left behind gets another.
SUPERVISOR = os.getppid()
print("hello from the module")


@app.get("/items/{item_id}")
def item(item_id: int):
    return {"item": item_id}


@app.post("/echo")
async def echo(request: Request):
    return {"length": len(await request.body())}


@app.get("/end")
def end():
    os.kill(SUPERVISOR, signal.SIGKILL)
    return {}
"""


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Loads with `--json` and a number of requests."""
    (folder / "main.py").write_text(APP)
    return run(folder, "bench", "--json", "-n", "50", "-c", "2", *arguments)


def started(done: subprocess.CompletedProcess[str]) -> int:
    """The process that was started."""
    found = re.search(r"started +\S+ at http://127\.0\.0\.1:\d+/?, pid (\d+)\n", done.stderr)
    assert found, done
    return int(found[1])


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The report; behind it there may be the document of an error."""
    found: dict[str, Any] = json.JSONDecoder().raw_decode(done.stdout)[0]
    return found


def test_an_application_is_started_measured_and_ended(tmp_path: Path) -> None:
    for target in ("main.py", "main:app"):
        done = bench(tmp_path, target, "--path", "/items/5")
        assert done.returncode == 0, done
        report = json.loads(done.stdout)
        assert report["outcomes"]["ok"] == 50
        assert report["first_response"]["body_len"] == len('{"item":5}')
        assert "hello from the module" in done.stderr
        assert not is_alive(started(done))


def test_request_and_serve_arguments_reach_their_places(tmp_path: Path) -> None:
    body = ("--path", "/echo", "--body", "12345", "--expect-json", "/length=5")
    done = bench(
        tmp_path, "main.py", *body, "--", "--python", sys.executable, "--access-log", "json"
    )
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["outcomes"]["ok"] == 50


def test_an_application_on_a_unix_socket_is_measured(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    done = bench(tmp_path, "main.py", "--path", "/items/5", "--", "--uds", str(socket))
    assert document(done)["outcomes"]["ok"] > 0


def test_a_path_that_is_none_is_no_success(tmp_path: Path) -> None:
    done = bench(tmp_path, "main.py")
    assert done.returncode == 5, done
    assert document(done)["outcomes"]["http_4xx"] == 50
    assert "error[JA802]" in done.stderr


def test_an_application_that_ends_meanwhile_is_an_invalid_run(tmp_path: Path) -> None:
    done = bench(tmp_path, "main.py", "--path", "/end")
    assert done.returncode == 4, done
    assert "error[JA809]" in done.stderr
    assert "it ended with signal 9" in done.stderr
    pid = started(done)
    eventually("all of it has ended", lambda: not is_alive(pid))


def test_one_that_does_not_start_is_told_as_serve_tells_it(tmp_path: Path) -> None:
    done = bench(tmp_path, "main:nothing")
    assert done.returncode == 5, done
    assert "error[JA810]" in done.stderr
    assert done.stdout.count("outcomes") == 0
