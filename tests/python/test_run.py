"""`app.run()` and `python -m justapi`: applications that are scripts, as real processes."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from textwrap import dedent
from typing import TYPE_CHECKING

import httpx
import pytest

from serving import Script, eventually, is_alive

if TYPE_CHECKING:
    from pathlib import Path

APP = """
    import os
    from contextlib import asynccontextmanager
    from justapi import JustAPI, Request

    @asynccontextmanager
    async def lifespan(app):
        yield
        open(f"ended-{os.getpid()}", "w").close()

    api = JustAPI(lifespan=lifespan)

    @api.get("/pid")
    def pid(): return os.getpid()

    @api.post("/length")
    async def length(request: Request): return len(await request.body())

    @api.get("/root")
    async def root(request: Request): return request.scope["root_path"]
"""


def pids(script: Script) -> set[int]:
    """Process ids that answer."""
    # A connection of its own for each, so that each worker has its turn.
    return {httpx.get(f"{script.url}/pid", timeout=30).json() for _ in range(20)}


def test_one_worker_is_the_process_itself(tmp_path: Path) -> None:
    with Script(tmp_path, APP + "    api.run(port=0, root_path='/below')") as script:
        assert pids(script) == {script.process.pid}
        assert httpx.get(f"{script.url}/root").json() == "/below"
        # As with `justapi serve`: this machine's own names only, and the builtin routes.
        assert httpx.get(f"{script.url}/pid", headers={"host": "evil.example"}).status_code == 421
        assert httpx.get(f"{script.url}/health").json() == {"status": "ok"}
        assert script.stop() == 0
    assert (tmp_path / f"ended-{script.process.pid}").exists()


def test_what_stands_after_run_has_the_signals_again(tmp_path: Path) -> None:
    source = APP + (
        "    import signal\n"
        # A shell that starts something in the background has it ignore the signal.
        "    signal.signal(2, signal.default_int_handler)\n"
        "    api.run(port=0)\n"
        "    try:\n"
        "        signal.raise_signal(2)\n"
        "    except KeyboardInterrupt:\n"
        "        open('after', 'w').close()"
    )
    with Script(tmp_path, source) as script:
        script.process.send_signal(signal.SIGINT)
        assert script.wait() == 0
    assert (tmp_path / "after").exists()


def test_workers_do_not_run_again_what_they_import(tmp_path: Path) -> None:
    with Script(tmp_path, APP + "    api.run(port=0, workers=2)") as script:
        eventually("two workers answer", lambda: len(pids(script)) == 2)
        found = pids(script)
        assert script.process.pid not in found
        assert script.stop() == 0
    assert not any(is_alive(pid) for pid in found)
    assert {int(path.name.split("-")[1]) for path in tmp_path.glob("ended-*")} == found


def test_further_settings_are_options_of_the_program(tmp_path: Path) -> None:
    source = APP + (
        "    if __name__ == '__main__':\n"
        "        api.run(port=0, limit_body='1KiB', request_id=True, graceful=0.5,\n"
        "                cors=['https://a.example', 'https://b.example'])"
    )
    with Script(tmp_path, source) as script:
        assert script.process.pid not in pids(script)
        url = f"{script.url}/length"
        assert httpx.post(url, content=b"x" * 1025).status_code == 413
        for origin in ("https://a.example", "https://b.example"):
            answer = httpx.post(url, content=b"x", headers={"origin": origin})
            assert answer.headers["access-control-allow-origin"] == origin
            assert answer.headers["x-request-id"]
        assert script.stop() == 0


def test_an_application_of_another_module_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "__init__.py").touch()
    script = "import folder.web\n\ndef main(): folder.web.api.run(port=0, workers=2)\n\nmain()"
    (folder / "web.py").write_text(dedent(APP))
    with Script(tmp_path, script, name="start.py") as running:
        assert running.process.pid not in pids(running)
        assert running.stop() == 0


def test_a_module_that_is_run_by_its_name_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "names.py").write_text("PREFIX = '/v1'")
    source = (
        "    from .names import PREFIX\n" + APP + "    api.run(port=0, workers=1, health=False)"
    )
    with Script(folder, source, name="web.py", module="package.web", cwd=tmp_path) as script:
        assert script.process.pid not in pids(script)
        assert httpx.get(f"{script.url}/health").status_code == 404
        assert script.stop() == 0


def test_workers_of_an_application_without_a_name_are_refused(tmp_path: Path) -> None:
    source = "from justapi import JustAPI\nJustAPI().run(port=0, workers=2)"
    with Script(tmp_path, source, waits=False) as script:
        assert script.wait() == 1
    assert "put it into a variable of a module" in "".join(script.errors)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_address_in_use_is_said_and_exits_with_5(tmp_path: Path, workers: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        source = APP + f"    api.run(port={port}, workers={workers})"
        with Script(tmp_path, source, waits=False) as script:
            assert script.wait() == 5
    said = "".join(script.errors)
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in said
    assert "Traceback" not in said


def test_a_name_that_nobody_knows_exits_with_5(tmp_path: Path) -> None:
    source = APP + "    api.run(host='nowhere.invalid', port=0)"
    with Script(tmp_path, source, waits=False) as script:
        assert script.wait() == 5
    assert "cannot listen on nowhere.invalid:0: " in "".join(script.errors)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_application_that_cannot_start_exits_with_4(tmp_path: Path, workers: int) -> None:
    source = f"""
        from contextlib import asynccontextmanager
        from justapi import JustAPI
        @asynccontextmanager
        async def lifespan(app):
            raise ValueError("no database")
            yield
        api = JustAPI(lifespan=lifespan)
        api.run(port=0, workers={workers})
    """
    with Script(tmp_path, source, waits=False) as script:
        assert script.wait() == 4
    said = "".join(script.errors)
    assert "failed to start" in said
    assert "ValueError: no database" in said


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("api.run(port=70000)", "port=70000 is no TCP port"),
        ("api.run(workers=0)", "workers=0 is none at all"),
        (
            "import threading\nthread = threading.Thread(target=lambda: api.run(port=0))\n"
            "thread.start()\nthread.join()",
            "call it on the main thread",
        ),
        (
            "import asyncio\nasync def main(): api.run(port=0)\nasyncio.run(main())",
            "call it outside of any other",
        ),
    ],
)
def test_a_call_that_cannot_be_is_refused(tmp_path: Path, call: str, says: str) -> None:
    source = f"from justapi import JustAPI\napi = JustAPI()\n{call}"
    with Script(tmp_path, source, waits=False) as script:
        script.wait()
    assert says in "".join(script.errors)


def module(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m justapi` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "justapi", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_package_as_a_module_is_the_program(tmp_path: Path) -> None:
    done = module(tmp_path, "--version")
    assert done.returncode == 0
    assert done.stdout.startswith("justapi ")
    assert module(tmp_path, "serve", "--no-such-flag").returncode == 2
    (tmp_path / "broken.py").write_text("import sys\nraise RuntimeError(sys.executable)")
    done = module(tmp_path, "serve", "broken:app", "--port", "0", VIRTUAL_ENV="/nowhere")
    assert done.returncode == 4
    assert f"RuntimeError: {sys.executable}" in done.stderr


def test_a_stop_loses_nothing_that_waits_to_be_accepted(tmp_path: Path) -> None:
    with Script(tmp_path, APP + "    api.run(port=0)") as script:
        address = httpx.URL(script.url)
        lost: list[str] = []
        answered = 0
        lock = threading.Lock()

        def ask() -> None:
            nonlocal answered
            while True:
                connection = http.client.HTTPConnection(address.host, address.port, timeout=30)
                try:
                    connection.connect()
                except OSError:
                    return
                try:
                    connection.request("GET", "/pid")
                    status = connection.getresponse().status
                    with lock:
                        answered += 1
                        if status != 200:
                            lost.append(str(status))
                except Exception as error:
                    lost.append(repr(error))
                finally:
                    connection.close()

        asking = [threading.Thread(target=ask) for _ in range(16)]
        for one in asking:
            one.start()
        eventually("it is under load", lambda: answered > 200)
        code = script.stop()
        for one in asking:
            one.join()
        assert code == 0
        assert lost == []


FAILING = """
    import asyncio
    from contextlib import asynccontextmanager
    from justapi import JustAPI

    async def for_ever():
        try:
            await asyncio.sleep(3600)
        finally:
            open("ended", "w").close()

    @asynccontextmanager
    async def lifespan(app):
        app.state.task = asyncio.create_task(for_ever())
        await asyncio.sleep(0)
        raise RuntimeError("no database")
        yield

    JustAPI(lifespan=lifespan).run(port=0)
"""

FAILING_OVER_ASGI = """
    import asyncio
    from justapi._run import Runnable

    class App(Runnable):
        async def __call__(self, scope, receive, send):
            try:
                await send({"type": "lifespan.startup.failed", "message": "no database"})
                await asyncio.sleep(3600)
            finally:
                open("ended", "w").close()

    App().run(port=0)
"""


@pytest.mark.parametrize("source", [FAILING, FAILING_OVER_ASGI])
def test_a_failed_start_ends_what_it_has_begun(tmp_path: Path, source: str) -> None:
    with Script(tmp_path, source, waits=False) as script:
        assert script.wait() == 4
        errors = "".join(script.errors)
    assert "no database" in errors
    assert "destroyed" not in errors
    assert (tmp_path / "ended").exists()


def test_what_still_runs_at_the_end_is_cancelled(tmp_path: Path) -> None:
    source = """
        import asyncio
        from justapi import JustAPI

        api = JustAPI()
        tasks = []

        async def for_ever():
            try:
                await asyncio.sleep(3600)
            finally:
                open("ended", "w").close()

        @api.get("/begin")
        async def begin():
            tasks.append(asyncio.create_task(for_ever()))
            await asyncio.sleep(0)

        api.run(port=0)
    """
    with Script(tmp_path, source) as script:
        assert httpx.get(f"{script.url}/begin").status_code == 200
        assert script.stop() == 0
        assert "destroyed" not in "".join(script.errors)
    assert (tmp_path / "ended").exists()
