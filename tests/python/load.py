"""Clients that know what became of each of their requests while a server changes under them."""

from __future__ import annotations

import itertools
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import httpx

from serving import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

HANDLER = """
    import asyncio, os
    from justapi import JustAPI

    app = JustAPI()

    @app.get("/tasks/{number}")
    async def work(number: int, seconds: float = 0.0):
        with open("begun", "a") as begun:
            begun.write(f"{number} {os.getpid()}\\n")
        await asyncio.sleep(seconds)
        return os.getpid()
"""
"""An application whose handler notes which requests it was called for."""


class Raw:
    """One HTTP/1.1 connection, as bytes.

    Args:
        url: The server.

    Attributes:
        num_answers: How many answers have come on it.
        closes: Whether the last answer said that the connection ends.
    """

    def __init__(self, url: str) -> None:
        address = httpx.URL(url)
        self.socket = socket.create_connection((address.host, address.port), timeout=PATIENCE)
        self._received = b""
        self.num_answers = 0
        self.closes = False

    def send(self, path: str) -> None:
        """Sends a request without a body."""
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def has_begun(self) -> bool:
        """Whether a part of an answer has come."""
        return bool(self._received)

    def answer(self) -> tuple[int, bytes]:
        """Waits for an answer; returns its status and body.

        Raises:
            ConnectionError: The connection has ended before that.
        """
        status, _, body = self.whole_answer()
        return status, body

    def whole_answer(self) -> tuple[int, dict[bytes, bytes], bytes]:
        """Waits for an answer; returns its status, fields and body.

        Raises:
            ConnectionError: The connection has ended before that.
        """
        while b"\r\n\r\n" not in self._received:
            self._receive()
        head, _, rest = self._received.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        fields = dict(line.split(b": ", 1) for line in lines[1:])
        self._received = rest
        length = int(fields[b"content-length"])
        while len(self._received) < length:
            self._receive()
        body, self._received = self._received[:length], self._received[length:]
        self.num_answers += 1
        self.closes = fields.get(b"connection") == b"close"
        return int(lines[0].split(b" ")[1]), fields, body

    def _receive(self) -> None:
        more = self.socket.recv(65536)
        if not more:
            raise ConnectionError("the connection has ended")
        self._received += more

    def close(self) -> None:
        self.socket.close()


@dataclass
class Failure:
    """A request that was sent and not answered.

    Attributes:
        number: Of the request.
        pid: The worker that has answered on the connection before, if one has.
        has_begun: Whether a part of the answer has come.
        reason: What was seen.
    """

    number: int
    pid: int | None
    has_begun: bool
    reason: str


@dataclass
class Load:
    """Clients that ask `HANDLER` all the time.

    Attributes:
        url: The server.
        folder: Where the application runs.
        kept: How many clients keep their connections.
        fresh: How many connect for each request.
        seconds: How long a handler takes.
        failures: Requests that were not answered.
        refused: Connections that were not made.
        other: Answers other than 200.
        answered: How many requests were answered.
        seen: The workers that have answered, the last one last.
    """

    url: str
    folder: Path
    kept: int = 4
    fresh: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    other: list[int] = field(default_factory=list)
    answered: int = 0
    seen: list[int] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        targets: list[Callable[[], None]] = [self._keep] * self.kept + [self._connect] * self.fresh
        self._threads = [threading.Thread(target=target) for target in targets]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the clients, each after the answer that it waits for."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def workers(self, newest: int = 40) -> set[int]:
        """The workers of the newest answers."""
        return set(self.seen[-newest:])

    def begun(self) -> dict[int, int]:
        """The worker of each request that a handler was called for."""
        lines = (self.folder / "begun").read_text().splitlines()
        return {int(number): int(pid) for number, pid in (line.split() for line in lines)}

    def lost(self) -> list[Failure]:
        """Failures that no client could make good by asking again on another connection.

        A server may close a connection that nothing is asked on. That may cross a request, which
        then was not answered in any part, nor was a handler called for it.
        """
        begun = self.begun()
        return [
            one for one in self.failures if one.has_begun or one.pid is None or one.number in begun
        ]

    def _open(self) -> Raw | None:
        try:
            return Raw(self.url)
        except OSError as error:
            self.refused.append(repr(error))
            self._stop.set()
            return None

    def _ask(self, client: Raw, pid: int | None) -> int | None:
        number = next(self._numbers)
        try:
            client.send(f"/tasks/{number}?seconds={self.seconds}")
            status, body = client.answer()
        except OSError as error:
            self.failures.append(Failure(number, pid, client.has_begun(), repr(error)))
            return None
        with self._lock:
            self.answered += 1
        if status != 200:
            self.other.append(status)
            return None
        self.seen.append(int(body))
        return int(body)

    def _keep(self) -> None:
        client: Raw | None = None
        pid: int | None = None
        while not self._stop.is_set():
            if client is None:
                client, pid = self._open(), None
                if client is None:
                    return
            pid = self._ask(client, pid)
            if pid is None or client.closes:
                client.close()
                client = None
        if client is not None:
            client.close()

    def _connect(self) -> None:
        while not self._stop.is_set():
            client = self._open()
            if client is None:
                return
            self._ask(client, None)
            client.close()


def children(pid: int) -> dict[int, str]:
    """The processes whose parent `pid` is, with their states."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == pid:
                found[int(entry.name)] = fields[0]
    return found


def descriptors(pid: int) -> int:
    """How many descriptors a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
