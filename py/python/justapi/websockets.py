r"""The WebSocket as a handler sees it, over an ASGI scope.

```text
client       CONNECTING -> CONNECTED -> DISCONNECTED
application  CONNECTING -> CONNECTED -> DISCONNECTED
                       \-> RESPONSE  -/   (the handshake is refused with a response)
```
"""

from __future__ import annotations

import enum
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

from justapi._response import Response
from justapi.requests import HTTPConnection, StateT
from justapi.types import Message, Receive, Scope, Send

__all__ = [
    "WebSocket",
    "WebSocketClose",
    "WebSocketDisconnect",
    "WebSocketDisconnected",
    "WebSocketState",
]


class WebSocketState(enum.Enum):
    """How far one side of a WebSocket is."""

    CONNECTING = 0
    CONNECTED = 1
    DISCONNECTED = 2
    RESPONSE = 3


class WebSocketDisconnect(Exception):
    """The peer has closed the WebSocket.

    Args:
        code: The closing code; 1005 if the peer gave none, 1006 if it vanished.
        reason: What the peer gave as the reason.
    """

    def __init__(self, code: int = 1000, reason: str | None = None) -> None:
        super().__init__(code, reason or "")
        self.code = code
        self.reason = reason or ""


class WebSocketDisconnected(RuntimeError):
    """A WebSocket was used before it was accepted or after it was closed."""


_APPLICATION_MESSAGES = {
    WebSocketState.CONNECTING: (
        "websocket.accept",
        "websocket.close",
        "websocket.http.response.start",
    ),
    WebSocketState.CONNECTED: ("websocket.send", "websocket.close"),
    WebSocketState.RESPONSE: ("websocket.http.response.body",),
}
_CLIENT_MESSAGES = {
    WebSocketState.CONNECTING: ("websocket.connect",),
    WebSocketState.CONNECTED: ("websocket.receive", "websocket.disconnect"),
}


def _expect(message: Message, expected: tuple[str, ...]) -> str:
    found: str = message["type"]
    if found not in expected:
        *most, last = (f'"{name}"' for name in expected)
        names = f"{', '.join(most)} or {last}" if most else last
        raise RuntimeError(f"Expected ASGI message {names}, but got {found!r}")
    return found


class WebSocket(HTTPConnection[StateT]):
    """A WebSocket.

    Args:
        scope: The ASGI scope, of type `websocket`.
        receive: The ASGI receive callable.
        send: The ASGI send callable.

    Attributes:
        client_state: How far the client is.
        application_state: How far the application is.

    Raises:
        ValueError: The scope has another type.

    Example:
        >>> @app.websocket("/echo")
        ... async def echo(websocket: WebSocket):
        ...     await websocket.accept()
        ...     async for text in websocket.iter_text():
        ...         await websocket.send_text(text)
        >>> with client.websocket_connect("/echo") as websocket:
        ...     websocket.send_text("hello")
        ...     websocket.receive_text()
        'hello'
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            raise ValueError(f"expected a scope of websocket, not {scope['type']!r}")
        super().__init__(scope)
        self._receive = receive
        self._send = send
        self.client_state = WebSocketState.CONNECTING
        self.application_state = WebSocketState.CONNECTING

    async def receive(self) -> Message:
        """Receives an ASGI message.

        Raises:
            WebSocketDisconnected: The disconnect was received before.
            RuntimeError: The server sent what does not fit the state.
        """
        expected = _CLIENT_MESSAGES.get(self.client_state)
        if expected is None:
            raise WebSocketDisconnected(
                'Cannot call "receive" once a disconnect message has been received.'
            )
        message = await self._receive()
        kind = _expect(message, expected)
        if kind == "websocket.connect":
            self.client_state = WebSocketState.CONNECTED
        elif kind == "websocket.disconnect":
            self.client_state = WebSocketState.DISCONNECTED
        return message

    async def send(self, message: Message) -> None:
        """Sends an ASGI message.

        Args:
            message: The message.

        Raises:
            WebSocketDisconnected: The WebSocket was closed before.
            WebSocketDisconnect: The peer has vanished; the code is 1006.
            RuntimeError: The message does not fit the state.
        """
        state = self.application_state
        expected = _APPLICATION_MESSAGES.get(state)
        if expected is None:
            raise WebSocketDisconnected('Cannot call "send" once a close message has been sent.')
        kind = _expect(message, expected)
        if kind == "websocket.accept":
            self.application_state = WebSocketState.CONNECTED
        elif kind == "websocket.http.response.start":
            self.application_state = WebSocketState.RESPONSE
        elif kind == "websocket.close" or (
            state is WebSocketState.RESPONSE and not message.get("more_body", False)
        ):
            self.application_state = WebSocketState.DISCONNECTED
        try:
            await self._send(message)
        except OSError as error:
            if state is not WebSocketState.CONNECTED:
                raise
            self.application_state = WebSocketState.DISCONNECTED
            raise WebSocketDisconnect(code=1006) from error

    async def accept(
        self,
        subprotocol: str | None = None,
        headers: Iterable[tuple[bytes, bytes]] | None = None,
    ) -> None:
        """Accepts the handshake.

        Args:
            subprotocol: One of those that the client offered.
            headers: More headers of the answer.

        Raises:
            RuntimeError: The WebSocket was accepted or closed before.
        """
        if self.client_state is WebSocketState.CONNECTING:
            await self.receive()
        await self.send(
            {
                "type": "websocket.accept",
                "subprotocol": subprotocol,
                "headers": list(headers or ()),
            }
        )

    async def _receive_message(self) -> Message:
        if self.application_state is not WebSocketState.CONNECTED:
            raise WebSocketDisconnected('WebSocket is not connected. Need to call "accept" first.')
        message = await self.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005), message.get("reason"))
        return message

    async def receive_text(self) -> str:
        """Returns the next message, which has to be text.

        Raises:
            WebSocketDisconnect: The peer has closed.
            WebSocketDisconnected: The WebSocket is not open.
            KeyError: The message is binary.
        """
        return cast("str", _payload(await self._receive_message(), "text"))

    async def receive_bytes(self) -> bytes:
        """Returns the next message, which has to be binary.

        Raises:
            WebSocketDisconnect: The peer has closed.
            WebSocketDisconnected: The WebSocket is not open.
            KeyError: The message is text.
        """
        return cast("bytes", _payload(await self._receive_message(), "bytes"))

    async def receive_json(self, mode: str = "text") -> Any:
        """Returns the next message parsed as JSON.

        Args:
            mode: `text` or `binary`: the kind of message that is expected.

        Raises:
            WebSocketDisconnect: The peer has closed.
            WebSocketDisconnected: The WebSocket is not open.
            KeyError: The message is of the other kind.
            ValueError: The message is not JSON.
            RuntimeError: The mode is unknown.
        """
        _check_mode(mode)
        message = await self._receive_message()
        return json.loads(_payload(message, "text" if mode == "text" else "bytes"))

    async def iter_text(self) -> AsyncIterator[str]:
        """Yields messages of text until the peer closes."""
        try:
            while True:
                yield await self.receive_text()
        except WebSocketDisconnect:
            pass

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        """Yields binary messages until the peer closes."""
        try:
            while True:
                yield await self.receive_bytes()
        except WebSocketDisconnect:
            pass

    async def iter_json(self) -> AsyncIterator[Any]:
        """Yields messages of text, parsed as JSON, until the peer closes."""
        try:
            while True:
                yield await self.receive_json()
        except WebSocketDisconnect:
            pass

    async def send_text(self, data: str) -> None:
        """Sends a message of text.

        Args:
            data: The text.

        Raises:
            WebSocketDisconnected: The WebSocket was closed before.
            WebSocketDisconnect: The peer has vanished.
        """
        await self.send({"type": "websocket.send", "text": data})

    async def send_bytes(self, data: bytes) -> None:
        """Sends a binary message.

        Args:
            data: The bytes.

        Raises:
            WebSocketDisconnected: The WebSocket was closed before.
            WebSocketDisconnect: The peer has vanished.
        """
        await self.send({"type": "websocket.send", "bytes": data})

    async def send_json(self, data: Any, mode: str = "text") -> None:
        """Sends a value as JSON.

        Args:
            data: What `json.dumps` accepts.
            mode: `text` or `binary`: the kind of message.

        Raises:
            WebSocketDisconnected: The WebSocket was closed before.
            WebSocketDisconnect: The peer has vanished.
            TypeError: The value is not one of JSON.
            RuntimeError: The mode is unknown.
        """
        _check_mode(mode)
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
        if mode == "text":
            await self.send_text(text)
        else:
            await self.send_bytes(text.encode("utf-8"))

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        """Closes the WebSocket, or refuses the handshake with 403.

        Args:
            code: The closing code.
            reason: Why, for the peer.

        Raises:
            WebSocketDisconnected: The WebSocket was closed before.
        """
        await self.send({"type": "websocket.close", "code": code, "reason": reason or ""})

    async def send_denial_response(self, response: Response) -> None:
        """Refuses the handshake with a response of one's own.

        Args:
            response: The response.

        Raises:
            RuntimeError: The server does not have this extension, or the WebSocket is accepted.
        """
        if "websocket.http.response" not in self.scope.get("extensions", {}):
            raise RuntimeError(
                "The server doesn't support the Websocket Denial Response extension."
            )
        await response(self.scope, self.receive, self.send)


def _payload(message: Message, kind: str) -> Any:
    # Servers may send both keys, with None for the one that is not meant.
    payload = message.get(kind)
    if payload is None:
        raise KeyError(kind)
    return payload


def _check_mode(mode: str) -> None:
    if mode not in ("text", "binary"):
        raise RuntimeError('The "mode" argument should be "text" or "binary".')


class WebSocketClose:
    """An ASGI application that refuses a WebSocket.

    Args:
        code: The closing code.
        reason: Why, for the peer.
    """

    def __init__(self, code: int = 1000, reason: str | None = None) -> None:
        self.code = code
        self.reason = reason or ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the close."""
        await send({"type": "websocket.close", "code": self.code, "reason": self.reason})
