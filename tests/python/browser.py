"""Drives Chromium by its DevTools protocol, as far as the tests need it."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import httpx
from websockets.sync.client import connect

from serving import PATIENCE, eventually

if TYPE_CHECKING:
    from pathlib import Path

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1000,700",
]


class Browser:
    """One page of a browser of its own.

    Args:
        profile: Folder for what the browser keeps.

    Attributes:
        said: What scripts and the browser itself have complained of.
    """

    def __init__(self, profile: Path) -> None:
        self.said: list[str] = []
        self._numbers = itertools.count(1)
        self._open = ExitStack()
        self._process = subprocess.Popen(
            [
                "chromium",
                *FLAGS,
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            port = eventually("the browser listens", lambda: self._port(profile))
            address = self._page(port)
            connected = connect(address, max_size=None, open_timeout=PATIENCE)
            self._socket = self._open.enter_context(connected)
            self.call("Page.enable")
            self.call("Runtime.enable")
            self.call("Log.enable")
        except BaseException:
            self._end()
            raise

    def _port(self, profile: Path) -> int | None:
        assert self._process.poll() is None, "the browser has ended"
        file = profile / "DevToolsActivePort"
        lines = file.read_text().splitlines() if file.exists() else []
        return int(lines[0]) if len(lines) == 2 else None

    def _page(self, port: int) -> str:
        def find() -> str | None:
            targets = httpx.get(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE).json()
            urls = [one["webSocketDebuggerUrl"] for one in targets if one["type"] == "page"]
            return urls[0] if urls else None

        url: str = eventually("the browser has a page", find)
        return url

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=PATIENCE))
            if answer.get("id") == number:
                break
            self._hear(answer)
        if "error" in answer:
            raise LookupError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _hear(self, event: dict[str, Any]) -> None:
        given = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.said.append(json.dumps(given["exceptionDetails"]))
            case "Log.entryAdded" if given["entry"]["level"] == "error":
                entry = given["entry"]
                # The browser asks for it by itself.
                if not entry.get("url", "").endswith("/favicon.ico"):
                    self.said.append(f"{entry['text']} {entry.get('url')}")
            case "Runtime.consoleAPICalled" if given["type"] in ("error", "warning"):
                self.said.append(json.dumps(given["args"]))

    def goto(self, url: str) -> None:
        """Loads a page, and waits until it is there with all that it names."""
        self.call("Page.navigate", url=url)
        self.wait_for(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def js(self, expression: str) -> Any:
        """Returns the value of an expression; None while the page changes."""
        try:
            result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        except LookupError:
            return None
        if "exceptionDetails" in result:
            return None
        return result["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Waits until an expression is true, and returns its value."""
        try:
            return eventually(expression, lambda: self.js(expression))
        except AssertionError:
            page = self.js("document.documentElement.outerHTML")
            raise AssertionError(f"never: {expression} in {page}") from None

    def screenshot(self, file: Path) -> None:
        """Writes a picture of the page."""
        picture = self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(picture["data"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._open.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
