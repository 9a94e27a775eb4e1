"""Runs the program `justapi` of the wheel on an application, as users do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Self

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = str(Path(sysconfig.get_path("scripts")) / "justapi")
PATIENCE = 30.0
"""Seconds for what happens at once on an idle machine."""


def eventually(what: str, check: Callable[[], Any]) -> Any:
    """Waits until `check` gives something true, and returns it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def run(
    folder: Path, *arguments: str, before: list[str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the program to its end, by the command `before` if there is one."""
    return subprocess.run(
        [*(before or []), PROGRAM, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class Server:
    """`justapi serve` of an application.

    Args:
        folder: Where the application is written to, and the program is run.
        source: Text of the module `app`, which makes `app`.
        *arguments: Further arguments.
        **variables: Further environment variables.

    Attributes:
        url: Where it serves.
        metrics: Where its metrics are, if not there.
        client: A client of it.
        workers: Process ids of the first workers.
        errors: What it has said on standard error.
    """

    def __init__(self, folder: Path, source: str, *arguments: str, **variables: str) -> None:
        (folder / "app.py").write_text(dedent(source))
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "app:app", "--port", "0", "--json", *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.errors: list[str] = []
        self.workers: list[int] = []
        self._events: list[dict[str, Any]] = []
        self._readers = [
            threading.Thread(target=self._read_events),
            threading.Thread(target=self._read_errors),
        ]
        for reader in self._readers:
            reader.start()
        try:
            listening = eventually("the server listens", self._listening)
        except BaseException:
            self._end()
            raise
        self.url: str = listening["url"]
        self.metrics: str | None = listening["metrics"]
        self.workers = listening["workers"]
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE)

    def _listening(self) -> dict[str, Any] | None:
        if self.process.poll() is not None:
            self.wait()
            raise AssertionError("".join(self.errors))
        return self.event("listening")

    def _read_events(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self._events.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def event(self, name: str) -> dict[str, Any] | None:
        """The first event of this name, if it has come."""
        return next((one for one in self._events if one.get("event") == name), None)

    def signal(self, number: int) -> None:
        """Sends a signal to the supervisor."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Waits for the end and returns the exit code."""
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code

    def stop(self) -> int:
        """Stops the server as a service manager does."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._end()

    def _end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        if any(reader.is_alive() for reader in self._readers):
            # A failed test may leave a worker in its handler, and closing would wait for it.
            for pid in self.workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()


class Script:
    """A script that serves by itself, run by this interpreter.

    Args:
        folder: Where the script is written to.
        source: Its text.
        name: Its name.
        module: What it is called as a module, if it is run as one.
        cwd: Where it is run, if not in its folder.
        waits: Whether it shall serve.

    Attributes:
        url: Where it serves.
        errors: What it has said on standard error.
    """

    def __init__(
        self,
        folder: Path,
        source: str,
        *,
        name: str = "script.py",
        module: str | None = None,
        cwd: Path | None = None,
        waits: bool = True,
    ) -> None:
        (folder / name).write_text(dedent(source))
        self.process = subprocess.Popen(
            [sys.executable, *(["-m", module] if module else [name])],
            cwd=cwd or folder,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.errors: list[str] = []
        self._said: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self._said)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.errors)),
        ]
        for reader in self._readers:
            reader.start()
        self.url = ""
        if waits:
            try:
                self.url = eventually("the script listens", self._url)
            except BaseException:
                self.__exit__()
                raise

    @staticmethod
    def _read(stream: Any, lines: list[str]) -> None:
        lines.extend(iter(stream.readline, ""))

    def _url(self) -> str | None:
        if self.process.poll() is not None:
            raise AssertionError("".join(self.errors))
        lines = [*self._said, *self.errors]
        return next((line.split()[-1] for line in lines if "http://" in line), None)

    def wait(self) -> int:
        """Waits for the end and returns the exit code."""
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code

    def stop(self) -> int:
        """Stops it as a service manager does."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()


if __name__ == "__main__":
    sys.exit("a module of the tests")
