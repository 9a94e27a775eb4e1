"""Measures how long it takes from a save until the new code answers.

Each server runs the same application and is asked again and again, on new connections, while the
file is saved; the clock stops at the first answer of the new code. Beside that each attempt is
counted by what became of it: answered, refused, reset, or answered by old code after the save.

Usage: reload.py [--rounds N] [--imports pydantic,sqlalchemy] [--json FILE] [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

APPLICATION = """{imports}
{framework}
VERSION = {version}

@app.get("/")
def version():
    return VERSION
"""
OURS = "from justapi import JustAPI\napp = JustAPI()"
FASTAPI = "from fastapi import FastAPI\napp = FastAPI()"
SERVERS = {
    "justapi dev": (OURS, ["justapi", "dev", "app:app", "--port", "{port}"]),
    "uvicorn --reload": (
        FASTAPI,
        ["uvicorn", "app:app", "--reload", "--port", "{port}"],
    ),
    "granian --reload": (
        FASTAPI,
        ["granian", "--interface", "asgi", "app:app", "--reload", "--port", "{port}"],
    ),
    "fastapi dev": (FASTAPI, ["fastapi", "dev", "app.py", "--port", "{port}"]),
}
PERIOD = 0.005
PATIENCE = 60.0


class Ask:
    """One request on a connection of its own."""

    def __init__(self, port: int) -> None:
        self._address = ("127.0.0.1", port)

    def __call__(self) -> tuple[str, int | None]:
        """Returns what became of it, and the version that answered."""
        request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        try:
            with socket.create_connection(self._address, PATIENCE) as connection:
                connection.sendall(request)
                answer = b""
                while more := connection.recv(65536):
                    answer += more
        except ConnectionRefusedError:
            return "refused", None
        except OSError:
            return "reset", None
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            return ("failed" if head else "reset"), None
        return "answered", int(body)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def measure(name: str, rounds: int, imports: str) -> dict[str, object] | None:
    """Measures one server; None where it is not installed."""
    framework, command = SERVERS[name]
    program = Path(sysconfig.get_path("scripts")) / command[0]
    if not program.exists():
        return None
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "app.py"

        def save(version: int) -> None:
            text = APPLICATION.format(
                imports=imports, framework=framework, version=version
            )
            file.write_text(text)

        save(0)
        arguments = [str(program), *(part.format(port=port) for part in command[1:])]
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return _measured(Ask(port), save, rounds)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _measured(ask: Ask, save, rounds: int) -> dict[str, object]:
    outcomes: dict[str, int] = {}
    times: list[float] = []
    longest = 0.0
    deadline = time.monotonic() + PATIENCE
    while ask() != ("answered", 0):
        if time.monotonic() > deadline:
            return {"error": "it does not answer"}
        time.sleep(PERIOD)
    for version in range(1, rounds + 1):
        # A tool that watches for a while after a reload would miss the next save.
        time.sleep(0.7)
        save(version)
        saved = time.monotonic()
        while True:
            asked = time.monotonic()
            outcome, answered = ask()
            now = time.monotonic()
            longest = max(longest, now - asked)
            if outcome == "answered" and answered != version:
                outcome = "stale"
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if answered == version:
                times.append(now - saved)
                break
            if now - saved > PATIENCE:
                return {
                    "error": f"version {version} is never served",
                    "outcomes": outcomes,
                }
            time.sleep(PERIOD)
    ordered = sorted(times)
    return {
        "rounds": rounds,
        "median_ms": round(statistics.median(ordered) * 1000, 1),
        "p95_ms": round(ordered[max(0, -(-len(ordered) * 95 // 100) - 1)] * 1000, 1),
        "longest_wait_ms": round(longest * 1000, 1),
        "outcomes": dict(sorted(outcomes.items())),
    }


def main() -> int:
    """Runs the program.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(SERVERS), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--imports", default="", help="modules that the application imports"
    )
    parser.add_argument("--json", type=Path, help="file for the results")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in SERVERS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(SERVERS)}")
    modules = [name for name in given.imports.split(",") if name]
    imports = "\n".join(f"import {name}" for name in modules)
    results = {}
    for name in given.names:
        result = measure(name, given.rounds, imports)
        results[name] = result
        print(f"{name:20} {'not installed' if result is None else json.dumps(result)}")
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
