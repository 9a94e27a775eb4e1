"""Runs `justapi dev` of the wheel on an application, as a developer does."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Self

import httpx

from serving import PATIENCE, PROGRAM, eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

APP = """
from justapi import JustAPI

app = JustAPI()
VERSION = "{version}"

@app.get("/")
def version():
    return VERSION
"""


def app(version: str, before: str = "", after: str = "") -> str:
    """The text of an application that says its version on `/`."""
    return before + APP.replace("{version}", version) + dedent(after)


def write(path: Path, text: str) -> None:
    """Saves a file in place, as most editors do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def overwrite(path: Path, text: str) -> None:
    """Saves a file in place by one write of the same length: it is never half of it."""
    content = text.encode()
    assert path.stat().st_size == len(content)
    with path.open("r+b", buffering=0) as file:
        file.write(content)


def replace(path: Path, text: str) -> None:
    """Saves a file by a rename over it."""
    beside = path.with_name(f"{path.name}.new~")
    beside.write_text(text)
    beside.rename(path)


class Dev:
    """`justapi dev` in a folder.

    Args:
        folder: Where it runs.
        *arguments: Further arguments; `app:app` is served if none names an application.
        waits: Whether it shall listen first.
        port: Where it listens; a free port unless told.
        **variables: Further environment variables.

    Attributes:
        url: Where it serves.
        errors: What it has said on standard error.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        waits: bool = True,
        port: int = 0,
        **variables: str,
    ) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [PROGRAM, "dev", "--json", "--port", str(port), *arguments],
            cwd=folder,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.errors: list[str] = []
        self._events: list[dict[str, Any]] = []
        self._readers = [
            threading.Thread(target=self._read_events),
            threading.Thread(target=self._read_errors),
        ]
        for reader in self._readers:
            reader.start()
        self.url = ""
        if waits:
            try:
                self.url = self.wait_for("listening")["url"]
                self.wait_for("watching")
            except BaseException:
                self._end()
                raise

    def _read_events(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line)

    @property
    def said(self) -> str:
        """What it has said on standard error."""
        return "".join(self.errors)

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Its events of these names."""
        return [one for one in list(self._events) if one["event"] in names]

    def wait_for(self, name: str, count: int = 1) -> dict[str, Any]:
        """Waits for the event of this name and number, and returns it."""

        def find() -> dict[str, Any] | None:
            found = self.events(name)
            if len(found) >= count:
                return found[count - 1]
            if self.process.poll() is not None:
                raise AssertionError(f"no {name}: {self.said}\n{self._events}")
            return None

        found: dict[str, Any] = eventually(f"{name} number {count} in {self._events}", find)
        return found

    def get(self, path: str = "/", **headers: str) -> httpx.Response:
        """`GET path` on a connection of its own."""
        return httpx.get(self.url + path, headers=headers, timeout=PATIENCE)

    def post(self, path: str, content: bytes) -> httpx.Response:
        """`POST path` on a connection of its own."""
        return httpx.post(self.url + path, content=content, timeout=PATIENCE)

    def serves(self, version: str) -> None:
        """Waits until the application answers with this version."""
        eventually(f"{version} is served", lambda: self.get().text == json.dumps(version))

    def save(self, text: str, name: str = "app.py") -> None:
        """Saves a file of the application."""
        write(self.folder / name, text)

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Waits for the end and returns the exit code."""
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code

    def stop(self) -> int:
        """Ends it as Ctrl-C does."""
        self.signal(signal.SIGINT)
        return self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.wait()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()


PROMISED_WAIT = 2.0
"""Seconds that a request waits for new code before older code may answer, and say so."""


class Stalls:
    """Notes how long this machine runs nothing although somebody could.

    Attributes:
        worst: Seconds of the longest time.
    """

    _PERIOD = 0.005

    def __init__(self) -> None:
        self.worst = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._is_over.is_set():
            begun = time.monotonic()
            time.sleep(self._PERIOD)
            self.worst = max(self.worst, time.monotonic() - begun - self._PERIOD)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE)


class Probes:
    """Asks for `/` again and again, and notes what became of each request.

    Args:
        url: Where to ask.
        period: Seconds between two requests.
        keeps: Whether a connection is used for more than one.
        expected: Called before a request: what an answer may be from then on.

    Attributes:
        failures: Requests that had no whole answer, and why.
        stale: Answers that were older than what had been saved before the request.
        late: The same after the whole wait that is promised, and with the word that they are.
        slowest: Seconds of the slowest request.
    """

    def __init__(self, url: str, period: float, *, keeps: bool, newest: Callable[[], int]) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._address = (host, int(port))
        self._period = period
        self._keeps = keeps
        self._newest = newest
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failures: list[str] = []
        self.stale: list[str] = []
        self.late: list[str] = []
        self.count = 0
        self.slowest = 0.0

    def _run(self) -> None:
        connection: socket.socket | None = None
        while not self._is_over.wait(self._period):
            begun = time.monotonic()
            newest = self._newest()
            try:
                if connection is None:
                    connection = socket.create_connection(self._address, PATIENCE)
                status, says_so, body = self._ask(connection)
            except OSError as error:
                self.failures.append(repr(error))
                connection = None
                continue
            if not self._keeps:
                connection.close()
                connection = None
            self.count += 1
            elapsed = time.monotonic() - begun
            self.slowest = max(self.slowest, elapsed)
            if status != 200:
                self.failures.append(f"{status} {body[:80]}")
                continue
            is_old = int(json.loads(body)) < newest
            if is_old or says_so:
                is_promised = says_so and elapsed >= PROMISED_WAIT
                found = self.late if is_promised else self.stale
                found.append(f"{body} after {newest} was saved and {elapsed:.3f} s")
        if connection is not None:
            connection.close()

    def _ask(self, connection: socket.socket) -> tuple[int, bool, str]:
        keep = "keep-alive" if self._keeps else "close"
        request = f"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: {keep}\r\n\r\n"
        connection.sendall(request.encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._receive(connection)
        head, _, body = received.partition(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith("content-length:"))
        while len(body) < length:
            body += self._receive(connection)
        return int(lines[0].split()[1]), "x-justapi-stale: 1" in lines, body.decode()

    def _receive(self, connection: socket.socket) -> bytes:
        more = connection.recv(65536)
        if not more:
            raise ConnectionError("the connection ended before the answer")
        return more

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE)


if __name__ == "__main__":
    sys.exit("a module of the tests")
