"""`justapi serve` with Python applications: workers and their supervisor, over real sockets."""

from __future__ import annotations

import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from serving import Server, eventually, is_alive, run

APP = """
    import asyncio, os, time
    from contextlib import asynccontextmanager
    from justapi import JustAPI

    @asynccontextmanager
    async def lifespan(app):
        yield {"started_in": os.getpid()}
        open(f"ended-{os.getpid()}", "w").close()

    app = JustAPI(lifespan=lifespan)

    @app.get("/pid")
    def pid(): return os.getpid()

    @app.get("/slow")
    async def slow():
        await asyncio.sleep(0.5)
        return os.getpid()

    @app.get("/kill")
    def kill(): os.kill(os.getpid(), 9)

    @app.get("/exit")
    async def exit_(): raise SystemExit(3)

    @app.get("/exit-late")
    async def exit_late():
        await asyncio.sleep(0)
        raise SystemExit(3)

    @app.get("/interrupt")
    def interrupt(): raise KeyboardInterrupt
"""


def pids(server: Server, count: int = 20) -> set[int]:
    """Process ids of the workers that answer."""
    found = set()
    for _ in range(count):
        # A connection of its own for each, so that each worker has its turn.
        found.add(httpx.get(f"{server.url}/pid", timeout=30).json())
    return found


def test_a_stop_finishes_what_is_in_flight_and_ends_the_lifespan(tmp_path: Path) -> None:
    with Server(tmp_path, APP, "--workers", "2") as server:
        answers: list[httpx.Response] = []
        asking = [
            # To load certificates takes longer than the answer.
            threading.Thread(
                target=lambda: answers.append(httpx.get(f"{server.url}/slow", verify=False))
            )
            for _ in range(6)
        ]
        for one in asking:
            one.start()
        eventually(
            "requests are in flight",
            lambda: sum("established" in line for line in established(server.url)) >= 6,
        )
        code = server.stop()
        for one in asking:
            one.join()
    assert code == 0
    assert [answer.status_code for answer in answers] == [200] * 6
    assert sorted(tmp_path.glob("ended-*")) == sorted(
        tmp_path / f"ended-{pid}" for pid in server.workers
    )
    assert not any(is_alive(pid) for pid in server.workers)


def established(url: str) -> list[str]:
    """Connections to a server, from the kernel's table."""
    port = f"{httpx.URL(url).port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return ["established" for line in fields if line[1].endswith(f":{port}") and line[3] == "01"]


def test_a_worker_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with Server(tmp_path, APP, "--workers", "2") as server:
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url}/kill")
        eventually("two workers answer", lambda: len(pids(server)) == 2)
        gone = [pid for pid in server.workers if not is_alive(pid)]
        assert len(gone) == 1
        assert any(f"pid {gone[0]}" in line and "SIGKILL" in line for line in server.errors)
        assert server.stop() == 0


@pytest.mark.parametrize("path", ["/exit", "/exit-late", "/interrupt"])
def test_a_handler_that_exits_fails_its_request_only(tmp_path: Path, path: str) -> None:
    with Server(tmp_path, APP) as server:
        assert server.client.get(path).status_code == 500
        assert server.client.get("/pid").json() == server.workers[0]
        assert server.stop() == 0


def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with Server(tmp_path, APP, "--workers", "2") as server:
        server.signal(signal.SIGKILL)
        eventually(
            "the workers have ended", lambda: not any(is_alive(pid) for pid in server.workers)
        )


def test_a_worn_out_worker_is_replaced(tmp_path: Path) -> None:
    with Server(tmp_path, APP, "--max-requests", "5") as server:
        for _ in range(6):
            server.client.get("/pid")
        eventually("another worker answers", lambda: pids(server, 1).isdisjoint(server.workers))
        assert server.stop() == 0


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    source = """
        import asyncio
        from justapi import JustAPI
        app = JustAPI()
        @app.get("/")
        async def forever():
            open("begun", "w").close()
            await asyncio.sleep(3600)
    """
    with Server(tmp_path, source) as server:
        address = (httpx.URL(server.url).host, httpx.URL(server.url).port)
        with socket.create_connection(address) as waiting:
            waiting.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            eventually("the handler runs", lambda: (tmp_path / "begun").exists())
            server.signal(signal.SIGTERM)
            eventually("the first signal is noticed", lambda: server.event("stopping"))
            begun = time.monotonic()
            server.signal(signal.SIGTERM)
            assert server.wait() != 0
            assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('broken here')", ["RuntimeError: broken here", "app.py"]),
        ("def f(:\n  pass", ["SyntaxError", "app.py"]),
        ("import not_there_at_all", ["ModuleNotFoundError", "not_there_at_all"]),
        ("app = 3", ["no application but a int"]),
        ("other = 3", ["has no attribute 'app'"]),
        (
            "from contextlib import asynccontextmanager\nfrom justapi import JustAPI\n"
            "@asynccontextmanager\nasync def life(app):\n    raise ValueError('no database')\n"
            "    yield\napp = JustAPI(lifespan=life)",
            ["failed to start", "ValueError: no database", "in life"],
        ),
        (
            "from justapi import APIRouter, JustAPI\ndef begin(): raise ValueError('no database')\n"
            "router = APIRouter(on_startup=[begin])\napp = JustAPI()\napp.include_router(router)",
            ["failed to start", "ValueError: no database", "in begin"],
        ),
        (
            "import sys\nfrom justapi import JustAPI\n"
            "async def life(app):\n    sys.exit('no licence')\n    yield\n"
            "app = JustAPI(lifespan=life)",
            ["failed to start", "SystemExit: no licence", "in life"],
        ),
    ],
)
def test_an_application_that_cannot_start_exits_with_4(
    tmp_path: Path, source: str, says: list[str]
) -> None:
    (tmp_path / "app.py").write_text(source)
    done = run(tmp_path, "serve", "app:app", "--port", "0")
    assert done.returncode == 4, done
    assert all(text in done.stderr for text in ["JA401", *says]), done.stderr
    shown = done.stderr.partition("JA401")[2]
    frames = [line for line in shown.splitlines() if line.lstrip().startswith("File ")]
    assert all("app.py" in line for line in frames[:1]), done.stderr
    assert "justapi/_worker.py" not in done.stderr


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", "nothing:app", "--port", "0")
    assert done.returncode == 4
    assert "there is no module 'nothing'" in done.stderr


def test_an_interpreter_without_the_package_is_an_error_with_its_command(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(
        '#!/bin/sh\necho \'{"executable": "x", "version": [3, 12], "package": null}\'\n'
    )
    bare.chmod(0o755)
    done = run(tmp_path, "serve", "app:app", "--python", str(bare))
    assert done.returncode == 6
    assert f"{bare} -m pip install" in done.stderr
    old = bare.read_text().replace("[3, 12]", "[3, 10]").replace("null", '"0.1.0"')
    bare.write_text(old)
    assert "3.11 is the oldest" in run(tmp_path, "serve", "app:app", "--python", str(bare)).stderr
    skewed = old.replace("[3, 10]", "[3, 12]").replace("0.1.0", "77.1.0")
    bare.write_text(skewed)
    done = run(tmp_path, "serve", "app:app", "--python", str(bare))
    assert done.returncode == 6
    assert "77.1.0" in done.stderr


def test_any_asgi_application_is_served(tmp_path: Path) -> None:
    source = """
        async def app(scope, receive, send):
            if scope["type"] == "lifespan":
                return
            body = b""
            while True:
                message = await receive()
                body += message["body"]
                if not message["more_body"]:
                    break
            await send({"type": "http.response.start", "status": 201,
                        "headers": [(b"x-a", b"1"), (b"x-a", b"2")]})
            await send({"type": "http.response.body", "body": scope["raw_path"], "more_body": True})
            await send({"type": "http.response.body", "body": body})
    """
    with Server(tmp_path, source) as server:
        answer = server.client.post("/a%2Fb?c=d", content=b"x" * 300_000)
        assert answer.status_code == 201
        assert answer.headers.get_list("x-a") == ["1", "2"]
        assert answer.content == b"/a%2Fb" + b"x" * 300_000
        assert server.stop() == 0


def test_the_settings_of_the_server_reach_its_workers(tmp_path: Path) -> None:
    arguments = ["--limit-body", "1KiB", "--cors", "https://a.example", "--request-id"]
    source = """
        from justapi import JustAPI, Request
        app = JustAPI()
        @app.post("/")
        async def length(request: Request): return len(await request.body())
    """
    with Server(tmp_path, source, *arguments) as server:
        assert server.client.post("/", content=b"x" * 1024).json() == 1024
        assert server.client.post("/", content=b"x" * 1025).status_code == 413
        answer = server.client.post("/", headers={"origin": "https://a.example"})
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        assert answer.headers["x-request-id"]
        assert server.client.get("/", headers={"host": "evil.example"}).status_code == 421
        assert server.client.get("/health").json() == {"status": "ok"}
        assert "justapi_requests_total" in server.client.get("/metrics").text
        assert server.stop() == 0
