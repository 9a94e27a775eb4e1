"""Plays the server for an ASGI application in the same event loop: requests, WebSockets, lifespan.

The clients of `justapi.testclient` stand on it; it knows nothing of them.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Literal, Self, cast

from justapi.types import ASGIApp, Message, Scope
from justapi.websockets import WebSocketDisconnect

__all__ = ["Call", "LifespanSession", "SocketMessages", "WebSocketDenied", "WebSocketSession"]

DISCONNECT_GRACE_SECONDS = 1.0
"""Time that an application has to end by itself once its client has left."""


class _Receive:
    """The request's body, then the disconnect."""

    def __init__(self, body: bytes, has_left: asyncio.Event) -> None:
        self._body: bytes | None = body
        self._has_left = has_left

    async def __call__(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._has_left.wait()
        return {"type": "http.disconnect"}

    async def wait_disconnect(self) -> None:
        await self._has_left.wait()


class Call:
    """One request to an application.

    The application is held back while the client has not taken what it sent.

    Attributes:
        status: The status, once the head is there.
        headers: The headers, once the head is there.
        trailers: The trailers that were sent.
        debug: What a template engine left for tests, if any.
    """

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.trailers: list[tuple[bytes, bytes]] = []
        self.debug: dict[str, Any] | None = None
        # Guards what follows: the application and the client wait for each other on it.
        self._turn = asyncio.Condition()
        self._chunk: bytes | None = None
        self._body_has_ended = False
        self._expects_trailers = False
        self._is_complete = False
        self._app_has_ended = False
        # Once an answer is out, `receive` tells of the end, as a server's does.
        self._has_left = asyncio.Event()
        self._task = asyncio.create_task(self._run(app, scope, _Receive(body, self._has_left)))

    async def _run(self, app: ASGIApp, scope: Scope, receive: _Receive) -> None:
        try:
            await app(scope, receive, self._send)
        finally:
            async with self._turn:
                self._app_has_ended = True
                self._turn.notify_all()

    async def _send(self, message: Message) -> None:
        async with self._turn:
            if self._has_left.is_set() and not self._is_complete:
                raise ConnectionResetError("the client has left")
            await self._take(message)
            self._turn.notify_all()

    async def _take(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            _require(self.status is None, 'Received multiple "http.response.start" messages.')
            self.headers = [(bytes(k), bytes(v)) for k, v in message.get("headers", ())]
            self._expects_trailers = message.get("trailers", False)
            self.status = message["status"]
        elif kind == "http.response.body":
            _require(
                self.status is not None,
                'Received "http.response.body" without "http.response.start".',
            )
            _require(
                not self._body_has_ended,
                'Received "http.response.body" after response completed.',
            )
            if body := bytes(message.get("body", b"")):
                await self._put(body)
            if not message.get("more_body", False):
                self._body_has_ended = True
                if not self._expects_trailers:
                    self._complete()
        elif kind == "http.response.trailers":
            _require(
                self._expects_trailers and self._body_has_ended and not self._is_complete,
                'Received "http.response.trailers" out of turn.',
            )
            self.trailers.extend(message.get("headers", ()))
            if not message.get("more_trailers", False):
                self._complete()
        elif kind == "http.response.debug":
            self.debug = message["info"]

    async def _put(self, chunk: bytes) -> None:
        await self._turn.wait_for(lambda: self._chunk is None or self._has_left.is_set())
        if self._has_left.is_set():
            raise ConnectionResetError("the client has left")
        self._chunk = chunk

    def _complete(self) -> None:
        self._is_complete = True
        self._has_left.set()

    async def head(self) -> bool:
        """Waits for the head.

        Returns:
            Whether there is one; if not, the application has ended without.
        """
        async with self._turn:
            await self._turn.wait_for(lambda: self.status is not None or self._app_has_ended)
        return self.status is not None

    async def next_chunk(self) -> bytes | None:
        """Returns the next chunk of the body, or None after the last."""
        async with self._turn:
            await self._turn.wait_for(
                lambda: self._chunk is not None or self._is_complete or self._app_has_ended
            )
            chunk, self._chunk = self._chunk, None
            self._turn.notify_all()
            return chunk

    async def close(self) -> BaseException | None:
        """Leaves, and waits for the application to end.

        Returns:
            What the application raised, if the response was not given up before its end.
        """
        async with self._turn:
            gave_up = not self._is_complete and not self._app_has_ended
            self._has_left.set()
            self._turn.notify_all()
        if gave_up:
            await asyncio.wait({self._task}, timeout=DISCONNECT_GRACE_SECONDS)
            self._task.cancel()
        return await _outcome(self._task, quiet=gave_up)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


async def _outcome(task: asyncio.Task[None], *, quiet: bool) -> BaseException | None:
    await asyncio.wait({task})
    if task.cancelled():
        return None
    error = task.exception()
    return None if quiet else error


class WebSocketDenied(Exception):
    """The handshake was answered with a response.

    Args:
        status: The status.
        headers: The headers.
        body: The body.
    """

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body


class SocketMessages(ABC):
    """What is sent and received over a WebSocket, message by message."""

    @abstractmethod
    async def send(self, message: Message) -> None:
        """Sends an ASGI message to the application."""

    @abstractmethod
    async def receive(self) -> Message:
        """Returns the next ASGI message of the application."""

    async def send_text(self, data: str) -> None:
        """Sends a message of text."""
        await self.send({"type": "websocket.receive", "text": data})

    async def send_bytes(self, data: bytes) -> None:
        """Sends a binary message."""
        await self.send({"type": "websocket.receive", "bytes": data})

    async def send_json(self, data: Any, mode: Literal["text", "binary"] = "text") -> None:
        """Sends a value as JSON.

        Args:
            data: What `json.dumps` accepts.
            mode: The kind of message.
        """
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
        if mode == "text":
            await self.send_text(text)
        else:
            await self.send_bytes(text.encode("utf-8"))

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        """Closes the WebSocket.

        Args:
            code: The closing code.
            reason: Why.
        """
        await self.send({"type": "websocket.disconnect", "code": code, "reason": reason})

    async def receive_text(self) -> str:
        """Returns the next message, which has to be text.

        Raises:
            WebSocketDisconnect: The application has closed.
        """
        return cast("str", (await self._receive_data())["text"])

    async def receive_bytes(self) -> bytes:
        """Returns the next message, which has to be binary.

        Raises:
            WebSocketDisconnect: The application has closed.
        """
        return cast("bytes", (await self._receive_data())["bytes"])

    async def receive_json(self, mode: Literal["text", "binary"] = "text") -> Any:
        """Returns the next message parsed as JSON.

        Args:
            mode: The kind of message that is expected.

        Raises:
            WebSocketDisconnect: The application has closed.
        """
        message = await self._receive_data()
        return json.loads(message["text" if mode == "text" else "bytes"])

    async def _receive_data(self) -> Message:
        message = await self.receive()
        _raise_on_close(message)
        return message


class WebSocketSession(SocketMessages):
    """A WebSocket to an application, seen from the client.

    Args:
        app: The application.
        scope: The ASGI scope of the handshake.

    Attributes:
        accepted_subprotocol: The subprotocol that the application chose.
        extra_headers: The headers that it added to the handshake's answer.
    """

    def __init__(self, app: ASGIApp, scope: Scope) -> None:
        self.app = app
        self.scope = scope
        self.accepted_subprotocol: str | None = None
        self.extra_headers: list[tuple[bytes, bytes]] | None = None
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message | None] = asyncio.Queue()
        self._error: BaseException | None = None

    async def _run(self) -> None:
        try:
            await self.app(self.scope, self._to_app.get, self._from_app.put)
        except Exception as error:
            self._error = error
        finally:
            # Wakes whoever waits for a message that will not come.
            self._from_app.put_nowait(None)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        try:
            await self.send({"type": "websocket.connect"})
            message = await self.receive()
            if message["type"] == "websocket.http.response.start":
                raise await self._denied(message)
            _raise_on_close(message)
        except BaseException:
            await self._end()
            raise
        self.accepted_subprotocol = message.get("subprotocol")
        self.extra_headers = message.get("headers")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(1000)
        await self._end()
        if error is None and self._error is not None:
            raise self._error

    async def _end(self) -> None:
        await asyncio.wait({self._task}, timeout=DISCONNECT_GRACE_SECONDS)
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _denied(self, start: Message) -> WebSocketDenied:
        body = bytearray()
        while True:
            message = await self.receive()
            _require(message["type"] == "websocket.http.response.body", "Expected a body.")
            body += message.get("body", b"")
            if not message.get("more_body", False):
                return WebSocketDenied(start["status"], list(start["headers"]), bytes(body))

    async def send(self, message: Message) -> None:
        """Sends an ASGI message to the application."""
        await self._to_app.put(message)

    async def receive(self) -> Message:
        """Returns the next ASGI message of the application.

        Raises:
            WebSocketDisconnect: The application has ended without closing.
            BaseException: What the application raised.
        """
        message = await self._from_app.get()
        if message is not None:
            return message
        self._from_app.put_nowait(None)
        error, self._error = self._error, None
        raise error or WebSocketDisconnect(1006)


def _raise_on_close(message: Message) -> None:
    if message["type"] == "websocket.close":
        raise WebSocketDisconnect(message.get("code", 1000), message.get("reason", ""))


class LifespanSession:
    """The lifespan of an application: starts it up, and shuts it down.

    Args:
        app: The application.
        state: What the lifespan fills and every request begins with.
    """

    def __init__(self, app: ASGIApp, state: dict[str, Any]) -> None:
        self._app = app
        self._scope: Scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": state,
        }
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message | None] = asyncio.Queue()

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._to_app.get, self._from_app.put)
        finally:
            self._from_app.put_nowait(None)

    async def startup(self) -> None:
        """Starts the application up.

        Raises:
            RuntimeError: The application says that it failed, and nothing more.
            BaseException: What the application raised.
        """
        self._task = asyncio.create_task(self._run())
        await self._exchange("startup")

    async def shutdown(self) -> None:
        """Shuts the application down.

        Raises:
            RuntimeError: The application says that it failed, and nothing more.
            BaseException: What the application raised.
        """
        if not self._task.done():
            await self._exchange("shutdown")
        await self._task

    async def _exchange(self, phase: str) -> None:
        await self._to_app.put({"type": f"lifespan.{phase}"})
        message = await self._from_app.get()
        if message is None:
            # It ended, well or with an error, without a word.
            await self._task
        elif message["type"] == f"lifespan.{phase}.failed":
            await self._task
            raise RuntimeError(message.get("message") or f"the application failed at {phase}")
