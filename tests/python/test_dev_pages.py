"""What `justapi dev` does for browsers, with settings, and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from dev import Dev, app, replace, write
from load import children
from serving import PATIENCE, PROGRAM, eventually, is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = """
from justapi.responses import HTMLResponse

@app.get("/page")
def page():
    return HTMLResponse("<html><body>" + open("templates/x.html").read() + "</body></html>")

@app.get("/coded")
def coded():
    return HTMLResponse("<p>x", headers={"content-encoding": "identity-of-mine"})
"""
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8", "sec-fetch-dest": "document"}
SCRIPT = re.compile(r'<script src="/__justapi/dev\.js\?([^"]+)" async></script>\n$')


class News:
    """The events that a page hears."""

    def __init__(self, url: str) -> None:
        self.states: list[dict[str, Any]] = []
        self._url = url
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with httpx.stream("GET", f"{self._url}/__justapi/events", timeout=None) as stream:
            try:
                for line in stream.iter_lines():
                    if line.startswith("data:"):
                        self.states.append(json.loads(line[5:]))
            except httpx.HTTPError:
                pass

    def wait_for(self, count: int) -> dict[str, Any]:
        """Waits for the state of this number."""
        eventually(f"state {count} in {self.states}", lambda: len(self.states) >= count)
        return self.states[count - 1]


def test_pages_hear_of_what_they_are_made_of(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1", after=PAGE))
    write(tmp_path / "templates" / "x.html", "one")
    write(tmp_path / "static" / "x.css", "a {}")
    with Dev(tmp_path) as dev:
        page = dev.get("/page", **BROWSER)
        found = SCRIPT.search(page.text)
        assert found is not None, page.text
        assert int(page.headers["content-length"]) == len(page.content)
        script = dev.get(f"/__justapi/dev.js?{found[1]}")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        news = News(dev.url)
        first = news.wait_for(1)
        assert (first["number"], first["failure"]) == (found[1], None)
        worker = dev.wait_for("listening")["worker"]

        # A style: no other page, no other worker.
        replace(tmp_path / "static" / "x.css", "b {}")
        state = news.wait_for(2)
        assert state["number"] == first["number"]
        assert state["styles"] == first["styles"] + 1

        # A template: another page of the same worker.
        replace(tmp_path / "templates" / "x.html", "two")
        state = news.wait_for(3)
        assert state["number"] != first["number"]
        page = dev.get("/page", **BROWSER)
        assert "two" in page.text
        assert SCRIPT.search(page.text)[1] == state["number"]  # type: ignore[index]
        assert dev.events("reload") == []
        assert is_alive(worker)

        # Code that does not work: the same page, and why.
        replace(tmp_path / "app.py", "oops(\n")
        state = news.wait_for(4)
        assert state["stale"] is True
        assert state["failure"]["file"] == "app.py"
        assert dev.get("/page", **BROWSER).headers["x-justapi-stale"] == "1"
        replace(tmp_path / "app.py", app("2", after=PAGE))
        state = news.wait_for(5)
        assert state["failure"] is None
        assert state["number"] == SCRIPT.search(dev.get("/page", **BROWSER).text)[1]  # type: ignore[index]
        # A page that listens holds no end.
        begun = time.monotonic()
        assert dev.stop() == 0
        assert time.monotonic() - begun < 15


CACHED = """
from justapi import Request, Response

CONDITIONS = {"if-none-match", "if-modified-since", "if-range", "range"}
TAG = '"of the text"'

@app.get("/cached")
def cached(request: Request):
    if request.headers.get("if-none-match") == TAG:
        return Response(status_code=304, headers={"etag": TAG})
    headers = {
        "etag": TAG,
        "last-modified": "Sun, 06 Nov 1994 08:49:37 GMT",
        "cache-control": "max-age=60",
    }
    text = "<p>" + " ".join(sorted(CONDITIONS & set(request.headers)))
    return Response(text, headers=headers, media_type="text/html")
"""


def test_a_page_that_is_the_same_after_a_change_loads_once(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1", after=CACHED))
    with Dev(tmp_path) as dev:
        first = dev.get("/cached", **BROWSER)
        found = SCRIPT.search(first.text)
        assert found is not None, first.text
        # What a browser keeps would have the number of this code for ever.
        assert first.headers["cache-control"] == "no-store"
        assert not {"etag", "last-modified"} & set(first.headers)
        conditions = {
            "if-none-match": '"of the text"',
            "if-modified-since": "Sun, 06 Nov 1994 08:49:37 GMT",
            "if-range": '"of the text"',
            "range": "bytes=0-1",
        }
        program = dev.get("/cached", **conditions)
        assert (program.status_code, program.headers["etag"]) == (304, '"of the text"')
        replace(tmp_path / "app.py", app("2", after=CACHED))
        dev.serves("2")
        page = dev.get("/cached", **BROWSER, **conditions)
        assert page.status_code == 200
        assert page.text.startswith("<p><script"), page.text
        state = News(dev.url).wait_for(1)
        assert SCRIPT.search(page.text)[1] == state["number"] != found[1]  # type: ignore[index]


def test_pages_of_its_own_are_for_its_hosts_alone(tmp_path: Path) -> None:
    write(tmp_path / "app.py", "secret = 1\noops(\n")
    with Dev(tmp_path, "--trusted-host", "auto", "--trusted-host", "shop.example") as dev:
        # While nothing serves every path of the application's tells of its code.
        paths = {"/": 503, "/health": 503, "/__justapi/dev.js": 200, "/__justapi/events": 200}

        def status(path: str, host: str) -> int:
            with httpx.stream(
                "GET", dev.url + path, headers={"host": host}, timeout=PATIENCE
            ) as answer:
                return answer.status_code

        dev.wait_for("failed")
        for path, own in paths.items():
            for host in ("localhost", "shop.example"):
                assert status(path, host) == own, (path, host)
            # A page whose name is rebound to this machine.
            assert status(path, "evil.example") == 421, path
        refused = dev.get("/", host="evil.example", **BROWSER)
        assert "secret" not in refused.text
        write(tmp_path / "justapi.toml", '[server]\ntrusted_proxies = ["10.0.0.1"]\n')
        assert dev.wait_for("note")["settings"] == ["server.trusted_proxies"]


def test_probes_of_other_machines_are_answered_where_it_listens_for_them(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    for arguments, expected in (([], 421), (["--host", "0.0.0.0"], 200)):
        with Dev(tmp_path, *arguments) as dev:
            dev.url = dev.url.replace("0.0.0.0", "127.0.0.1")
            assert dev.get("/health").status_code == 200
            assert dev.get("/health", host="10.0.0.7").status_code == expected


SEEN = """
from justapi import Request

@app.get("/seen")
def seen(request: Request):
    return [request.client.host, request.url.scheme, request.url.netloc]
"""


def test_claims_of_a_client_are_believed_of_listed_proxies_alone(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1", after=SEEN))
    claims = {
        "host": "localhost",
        "x-forwarded-for": "203.0.113.9, 10.0.0.1",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "shop.example",
    }
    own = ["127.0.0.1", "http", "localhost"]
    claimed = ["203.0.113.9", "https", "localhost"]
    hosts = ("--trusted-host", "localhost", "--trusted-host", "shop.example")
    far, near = ("--trusted-proxy", "10.0.0.1"), ("--trusted-proxy", "127.0.0.1")
    for trusted, expected in (((), own), (far, own), ((*far, *near), claimed)):
        with Dev(tmp_path, *hosts, *trusted) as dev:
            assert dev.get("/seen", **claims).json() == expected, trusted
            # Whose host it is that has to be one of ours.
            evil = dev.get("/seen", **{**claims, "x-forwarded-host": "evil.example"})
            inner = dev.get("/seen", **{**claims, "host": "inner.example"})
            statuses = (200, 421) if expected is own else (421, 200)
            assert (evil.status_code, inner.status_code) == statuses, trusted


def test_a_host_is_kept_whatever_the_connection_is_for(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1", after=SEEN))
    with Dev(tmp_path) as dev:
        answer = dev.get("/seen", host="localhost", connection="close, host")
        assert answer.json() == ["127.0.0.1", "http", "localhost"]


def test_programs_get_what_the_application_sends(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1", after=PAGE))
    write(tmp_path / "templates" / "x.html", "one")
    whole = "<html><body>one</body></html>"
    with Dev(tmp_path) as dev:
        for headers in (
            {"accept": "*/*"},
            {"accept": "text/html", "sec-fetch-dest": "empty"},
            {"accept": "text/html", "hx-request": "true"},
        ):
            assert dev.get("/page", **headers).text == whole
        assert dev.get("/coded", **BROWSER).content == b"<p>x"
        assert "script" not in dev.get("/", **BROWSER).text
        head = httpx.head(f"{dev.url}/page", headers=BROWSER, timeout=30)
        assert head.headers["content-length"] == str(len(whole))
    with Dev(tmp_path, "--no-live-reload") as dev:
        assert dev.get("/page", **BROWSER).text == whole
        assert dev.get("/__justapi/dev.js").status_code == 404


ENVIRONMENT = """
import os

@app.get("/env/{name}")
def env(name: str):
    return os.environ.get(name)
"""


def test_variables_and_settings_are_read_anew(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1", after=ENVIRONMENT))
    write(tmp_path / ".env", "A=1\nPATH=/nowhere\n# B=0\nC='x y'\n")
    with Dev(tmp_path) as dev:
        names = {name: dev.get(f"/env/{name}").json() for name in "ABC"}
        assert names == {"A": "1", "B": None, "C": "x y"}
        assert dev.get("/env/PATH").json() == os.environ["PATH"]
        write(tmp_path / ".env", "A=2\nB=3\n")
        assert dev.get("/env/A").json() == "2"
        assert [dev.get(f"/env/{name}").json() for name in "BC"] == ["3", None]
        write(tmp_path / ".env", "A=3\nnonsense\n")
        assert dev.get("/env/A").json() == "2"
        error = dev.wait_for("failed")["error"]
        assert (error["file"], error["line"]) == (".env", 2)
        write(tmp_path / ".env", "A=4\n")
        assert dev.get("/env/A").json() == "4"
        write(tmp_path / "justapi.toml", "[server]\nport = 1\n[server.limits]\nmax_body = 3\n")
        # The address was given as a flag, which still holds.
        dev.wait_for("reload", 3)
        write(tmp_path / "justapi.toml", "[server]\nprt = [\n")
        failed = dev.wait_for("failed", 2)
        assert failed["error"]["file"] == "justapi.toml"
        write(tmp_path / "justapi.toml", "")
        dev.wait_for("reload", 4)
        assert dev.get().text == '"1"'


SIZE = """
from justapi import Request

@app.post("/size")
async def size(request: Request):
    return len(await request.body())
"""


def test_settings_that_do_not_hold_are_told_of(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1", after=SIZE))
    settings = tmp_path / "justapi.toml"
    write(settings, "[server.limits]\nbody = '1KiB'\n")
    with Dev(tmp_path) as dev:
        assert dev.post("/size", b"x" * 2048).status_code == 413
        # A port and a backlog need another start, the limit does not.
        elsewhere = "[server]\nbacklog = 7\nhost = '127.0.0.2'\n"
        write(settings, f"{elsewhere}[server.limits]\nbody = '9KiB'\n")
        assert dev.post("/size", b"x" * 2048).json() == 2048
        note = dev.wait_for("note")
        assert note["settings"] == ["server.host", "server.backlog"]
        assert "counts after a restart of justapi dev" in note["text"]
        eventually("it is said", lambda: note["text"] in dev.said)
        # Said once as long as it is the same.
        write(settings, elsewhere)
        dev.wait_for("reload", 2)
        # An address of its own for metrics is none that new code could listen on.
        write(settings, "[metrics]\naddr = '127.0.0.1:0'\n")
        assert dev.wait_for("note", 2)["settings"] == ["metrics.addr"]
        dev.wait_for("reload", 3)
        assert dev.get().text == '"1"'
        assert len(dev.events("note")) == 2
        assert dev.events("failed") == []


def test_settings_that_are_wrong_are_failures(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    settings = tmp_path / "justapi.toml"
    with Dev(tmp_path) as dev:
        # A value that is none.
        write(settings, "[server]\n\ngraceful = 30\n")
        answer = dev.get()
        assert (answer.text, answer.headers["x-justapi-stale"]) == ('"1"', "1")
        failed = dev.wait_for("failed")
        assert (failed["error"]["file"], failed["error"]["line"]) == ("justapi.toml", 3)
        assert "server.graceful" in failed["error"]["what"]
        assert failed["stale"] is True
        eventually("it is said", lambda: "justapi.toml:3" in dev.said)
        # One that goes with no other.
        write(settings, "[server]\ndocs = true\n")
        failed = dev.wait_for("failed", 2)
        assert "server.docs" in failed["error"]["what"]
        # A name that is none stops nothing.
        write(settings, "[server]\nprot = 9000\n")
        dev.wait_for("reload")
        eventually("the name is told of", lambda: "`server.prot`" in dev.said)
        answer = dev.get()
        assert answer.text == '"1"'
        assert "x-justapi-stale" not in answer.headers


def test_a_package_that_is_installed_is_found(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    packages = next((environment / "lib").glob("python*")) / "site-packages"
    # What this interpreter has is there, too.
    (packages / "all.pth").write_text("\n".join(path for path in sys.path if path))
    project = tmp_path / "project"
    write(project / "app.py", app("1", before="import late_package\n"))
    with Dev(project, "--python", str(environment / "bin" / "python")) as dev:
        assert dev.get().status_code == 503
        write(packages / "late_package.py", "V = 1\n")
        dev.serves("1")
        # One that replaces another is not taken from an interpreter that has loaded that.
        dev.save(app("2", before="import late_package\n", after="\nVERSION = late_package.V\n"))
        assert dev.get().json() == 1
        time.sleep(0.2)
        (packages / "late_package.py").unlink()
        write(packages / "late_package" / "__init__.py", "V = 2\n")
        dev.save(app("3", before="import late_package\n", after="\nVERSION = late_package.V\n"))
        assert dev.get().json() == 2


_OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """`justapi dev`, or a shell, on a pseudo-terminal."""

    def __init__(self, folder: Path, *arguments: str, shell: list[str] | None = None) -> None:
        self.descriptor, other = pty.openpty()
        command = shell or [PROGRAM, "dev", "--port", "0", *arguments]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL, *command],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)
        self.shown = ""

    def read(self, seconds: float = 0.05) -> None:
        """Takes what is shown within so many seconds."""
        ready, _, _ = select.select([self.descriptor], [], [], seconds)
        if ready:
            try:
                self.shown += os.read(self.descriptor, 65536).decode(errors="replace")
            except OSError:
                time.sleep(seconds)

    def wait_for(self, text: str, after: int = 0) -> int:
        """Waits until `text` is shown behind a place; returns where it ends."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown[after:]:
            assert time.monotonic() < deadline, f"no {text!r} in {self.shown}"
            self.read()
        return self.shown.index(text, after) + len(text)

    def type(self, text: str) -> None:
        """Presses keys."""
        os.write(self.descriptor, text.encode())

    def url(self) -> str:
        """Where it serves, once it does."""
        self.wait_for("ready in")
        found = re.search(r"http://[\d.]+:\d+", self.shown)
        assert found is not None, self.shown
        return found[0]

    def wait(self) -> int:
        """Waits for its end, and returns how it ended."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown
            self.read()
        return self.process.wait()


@contextmanager
def terminal(folder: Path, *arguments: str, shell: list[str] | None = None) -> Iterator[Terminal]:
    one = Terminal(folder, *arguments, shell=shell)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(PATIENCE)
        os.close(one.descriptor)


def local_modes(descriptor: int) -> int:
    import termios

    return int(termios.tcgetattr(descriptor)[3])


def test_keys_do_what_the_help_says(tmp_path: Path) -> None:
    import termios

    write(tmp_path / "app.py", app("1"))
    with terminal(tmp_path) as shown:
        before = local_modes(shown.descriptor)
        assert before & termios.ECHO
        url = shown.url()
        eventually("no echo", lambda: not local_modes(shown.descriptor) & termios.ECHO)
        place = shown.wait_for("help")
        shown.type("h")
        place = shown.wait_for("q  quit", place)
        shown.type("r")
        place = shown.wait_for("served in", place)
        (tmp_path / "app.py").write_text(app("2"))
        assert httpx.get(url, timeout=30).text == '"2"'
        place = shown.wait_for("app.py", place)
        shown.type("c")
        shown.wait_for("\x1b[2J", place)
        shown.type("q")
        assert shown.wait() == 0
        assert local_modes(shown.descriptor) == before


def test_ctrl_c_ends_it_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    with terminal(tmp_path) as shown:
        before = local_modes(shown.descriptor)
        shown.url()
        shown.type("\x03")
        assert shown.wait() == 0
        assert "stopped by SIGINT" in shown.shown
        assert local_modes(shown.descriptor) == before


WAITING = """
import os, time
open("booting", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    "shell", [["dash", "-i"], ["bash", "--norc", "--noprofile", "-i"]], ids=["dash", "bash"]
)
def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again(
    tmp_path: Path, shell: list[str]
) -> None:
    import termios

    write(tmp_path / "app.py", app("1"))
    with terminal(tmp_path, shell=shell) as shown:

        def has_single_keys() -> bool:
            return not local_modes(shown.descriptor) & (termios.ECHO | termios.ICANON)

        shown.type(f"'{PROGRAM}' dev --port 0\n")
        url = shown.url()
        eventually("single keys", has_single_keys)
        for number in range(2):
            place = len(shown.shown)
            shown.type("\x1a")
            place = shown.wait_for("Stopped", place)
            shown.type(f"stty -a; echo it-is-$((40 + {number}))\n")
            end = shown.wait_for(f"it-is-{40 + number}", place)
            modes = set(re.split(r"[\s;]+", shown.shown[place:end]))
            assert {"icanon", "echo", "isig"} <= modes
            assert not {"-icanon", "-echo"} & modes
            place = len(shown.shown)
            shown.type("fg\n")
            eventually("single keys again", has_single_keys)
            shown.type("h")
            place = shown.wait_for("q  quit", place)
            shown.type("r")
            shown.wait_for("served in", place)
            assert httpx.get(url, timeout=30).text == '"1"'
        place = len(shown.shown)
        shown.type("q")
        shown.wait_for("stopped by SIGINT", place)
        shown.type("exit\n")
        shown.wait()


def test_ctrl_z_is_nothing_where_nobody_could_continue_it(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    with terminal(tmp_path) as shown:
        url = shown.url()
        place = len(shown.shown)
        shown.type("\x1ah")
        shown.wait_for("q  quit", place)
        assert httpx.get(url, timeout=30).text == '"1"'
        shown.type("q")
        assert shown.wait() == 0


def test_ctrl_z_takes_no_prompt_away(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    with terminal(tmp_path) as shown:
        url = shown.url()
        (tmp_path / "app.py").write_text(app("2", before="breakpoint()\n"))
        place = shown.wait_for("(Pdb) ")
        shown.type("\x1ap 41 + 1001\n")
        place = shown.wait_for("1042", place)
        shown.type("c\n")
        shown.wait_for("served in", place)
        assert httpx.get(url, timeout=30).text == '"2"'


def test_the_first_lines_wait_for_no_code(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1", before=WAITING))
    with terminal(tmp_path) as shown:
        place = shown.wait_for("  dev   app:app")
        shown.wait_for("http://127.0.0.1:")
        shown.wait_for("keys: r reload")
        place = shown.wait_for("still importing app:app (", place)
        place = shown.wait_for(": it is at app.py:", place)
        assert "ready" not in shown.shown
        (tmp_path / "go").touch()
        shown.wait_for("ready in", place)
        shown.type("q")
        assert shown.wait() == 0


def test_breakpoints_have_the_terminal(tmp_path: Path) -> None:
    stop = """
@app.get("/debug")
def debug():
    secret = 6 * 7
    breakpoint()
    return secret
"""
    write(tmp_path / "app.py", app("1", after=stop))
    with terminal(tmp_path) as shown:
        url = shown.url()
        answers: list[str] = []
        asking = threading.Thread(
            target=lambda: answers.append(httpx.get(f"{url}/debug", timeout=60).text)
        )
        asking.start()
        place = shown.wait_for("(Pdb) ")
        shown.type("p secret + 1000\n")
        place = shown.wait_for("1042", place)
        # What is saved meanwhile waits: nobody takes the prompt away.
        (tmp_path / "app.py").write_text(app("2"))
        time.sleep(0.5)
        place = shown.wait_for("(Pdb) ", place)
        shown.type("c\n")
        asking.join(PATIENCE)
        assert answers == ["42"]
        shown.wait_for("served in", place)
        assert httpx.get(url, timeout=30).text == '"2"'
        # The keys are back.
        shown.type("q")
        assert shown.wait() == 0


def test_a_prompt_is_no_start_that_takes_too_long(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    with terminal(tmp_path, "--start-timeout", "6s") as shown:
        url = shown.url()
        (tmp_path / "app.py").write_text(app("2", before="breakpoint()\n"))
        place = shown.wait_for("(Pdb) ")
        # Longer than the start may take.
        time.sleep(8)
        shown.type("p 41 + 1001\n")
        place = shown.wait_for("1042", place)
        shown.type("c\n")
        shown.wait_for("served in", place)
        assert httpx.get(url, timeout=30).text == '"2"'
        shown.type("q")
        assert shown.wait() == 0


def test_new_code_takes_nobodys_prompt_away(tmp_path: Path) -> None:
    stop = """
@app.get("/debug")
def debug():
    breakpoint()
    return 42
"""
    write(tmp_path / "app.py", app("1", after=stop))
    with terminal(tmp_path) as shown:
        url = shown.url()
        (tmp_path / "app.py").write_text(app("2", before=WAITING))
        eventually("the new code starts", (tmp_path / "booting").exists)
        answers: list[str] = []
        asking = threading.Thread(
            target=lambda: answers.append(httpx.get(f"{url}/debug", timeout=60).text)
        )
        asking.start()
        place = shown.wait_for("(Pdb) ")
        (tmp_path / "go").touch()
        eventually("it serves", lambda: httpx.get(url, timeout=30).text == '"2"')
        # Longer than what is in flight has.
        time.sleep(5)
        shown.type("p 41 + 1001\n")
        shown.wait_for("1042", place)
        shown.type("c\n")
        asking.join(PATIENCE)
        assert answers == ["42"]


def test_what_was_saved_at_a_prompt_is_waited_for_after_it(tmp_path: Path) -> None:
    stop = """
@app.get("/debug")
def debug():
    breakpoint()
    return 42
"""
    write(tmp_path / "app.py", app("1", after=stop))
    with terminal(tmp_path) as shown:
        url = shown.url()
        asking = threading.Thread(target=lambda: httpx.get(f"{url}/debug", timeout=60))
        asking.start()
        shown.wait_for("(Pdb) ")
        (tmp_path / "app.py").write_text(app("2", before=WAITING))
        # It is put off, and answered by the old code.
        time.sleep(0.5)
        assert not (tmp_path / "booting").exists()
        shown.type("c\n")
        asking.join(PATIENCE)
        eventually("the new code starts", (tmp_path / "booting").exists)
        answers: list[str] = []
        asking = threading.Thread(target=lambda: answers.append(httpx.get(url, timeout=60).text))
        asking.start()
        time.sleep(0.2)
        (tmp_path / "go").touch()
        asking.join(PATIENCE)
        assert answers == ['"2"']


def test_a_worker_that_dies_at_its_prompt_gives_the_terminal_back(tmp_path: Path) -> None:
    stop = """
import os

@app.get("/debug")
def debug():
    breakpoint()

@app.get("/pid")
def pid():
    return os.getpid()
"""
    write(tmp_path / "app.py", app("1", after=stop))
    with terminal(tmp_path) as shown:
        url = shown.url()
        worker = httpx.get(f"{url}/pid", timeout=30).json()
        asking = threading.Thread(target=lambda: httpx.get(f"{url}/debug", timeout=60))
        asking.start()
        shown.wait_for("(Pdb) ")
        os.kill(worker, signal.SIGKILL)
        asking.join(PATIENCE)
        place = shown.wait_for("has ended by itself")
        shown.wait_for("served in", place)
        place = len(shown.shown)
        eventually_shown = time.monotonic() + PATIENCE
        while "q  quit" not in shown.shown[place:]:
            assert time.monotonic() < eventually_shown, shown.shown
            shown.type("h")
            shown.read(0.2)
        shown.type("q")
        assert shown.wait() == 0


def test_colours_and_modes_are_for_terminals_alone(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    with Dev(tmp_path) as dev:
        dev.save("oops(\n")
        dev.wait_for("failed")
        dev.stop()
        assert "\x1b" not in dev.said
        assert "keys:" not in dev.said
    with terminal(tmp_path, "--color", "never") as shown:
        shown.wait_for("keys: r reload")
        shown.type("\x03")
        shown.wait()
        assert "\x1b" not in shown.shown


def test_it_ends_with_its_terminal(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    with terminal(tmp_path) as shown:
        shown.url()
        others = list(children(shown.process.pid))
        os.kill(shown.process.pid, signal.SIGHUP)
        assert shown.wait() == 0
        eventually("all have gone", lambda: not any(is_alive(pid) for pid in others))
