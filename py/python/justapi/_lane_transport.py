"""httpx and WebSockets over a lane of the same thread: real bytes, and no socket."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpcore
import httpx

from justapi._in_process import SocketMessages, WebSocketDenied
from justapi._lane_server import DISCONNECT_GRACE_SECONDS, Witness
from justapi._websocket_frames import (
    Frame,
    FrameReader,
    Opcode,
    close_payload,
    masked_frame,
    read_close,
)
from justapi.types import ASGIApp, Message, Scope
from justapi.websockets import WebSocketDisconnect

if TYPE_CHECKING:
    from justapi._asgi_transport import Target
    from justapi._lane_server import Connection, LaneServer

__all__ = ["LaneWebSocketSession", "send_over_lane"]

_OF_THE_HANDSHAKE = frozenset(
    [
        b"connection",
        b"date",
        b"sec-websocket-accept",
        b"sec-websocket-extensions",
        b"sec-websocket-protocol",
        b"upgrade",
    ]
)
_TOGETHER_BYTES = 64 * 1024
"""Bytes of a request that leave at once, as far as they are there."""
_CLOSE_TYPES = ("websocket.close", "websocket.disconnect")


class _Wire(httpcore.AsyncNetworkStream):
    """A connection, as httpcore wants it.

    A head and a body that is there at once leave together, as those of most clients do.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._head: bytes | None = None
        self._sending: asyncio.Task[None] | None = None

    async def _send_head(self) -> None:
        # By now whoever has more to send at once has added it.
        head, self._head = self._head, None
        assert head is not None
        # What ended the connection is there to be read.
        with suppress(ConnectionError):
            await self._connection.write(head)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            if self._sending is not None:
                await asyncio.wait({self._sending})
            return await self._connection.read(max_bytes)
        except ConnectionError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            if self._sending is None:
                self._head = buffer
                self._sending = asyncio.create_task(self._send_head())
            elif self._head is not None and len(self._head) < _TOGETHER_BYTES:
                self._head += buffer
            else:
                await self._sending
                await self._connection.write(buffer)
        except ConnectionError as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        self._connection.close()

    def get_extra_info(self, info: str) -> Any:
        return None


class _Exchange:
    """One request and its answer, on a connection of their own."""

    def __init__(self, server: LaneServer, request: httpx.Request) -> None:
        self.witness = Witness()
        url = request.url
        is_secure = url.scheme in ("https", "wss")
        target = httpcore.URL(
            scheme=b"https" if is_secure else b"http",
            host=url.raw_host,
            port=url.port,
            target=url.raw_path,
        )
        self._request = httpcore.Request(
            request.method, target, headers=request.headers.raw, content=request.stream
        )
        self._connection = server.connect(self.witness, is_secure=is_secure)
        self._http = httpcore.AsyncHTTP11Connection(target.origin, _Wire(self._connection))

    async def start(self) -> httpcore.Response:
        """Sends the request and waits for the head of the answer."""
        return await self._http.handle_async_request(self._request)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


def _as_httpx(error: Exception) -> Exception:
    """Returns the exception of httpx that stands for one of httpcore."""
    cls = getattr(httpx, type(error).__name__, None)
    return error if cls is None else cls(str(error))


async def send_over_lane(
    server: LaneServer, target: Target, request: httpx.Request
) -> httpx.Response:
    """Sends a request and waits for the head of the answer.

    Args:
        server: The application.
        target: What its requests have in common.
        request: The request.

    Raises:
        httpx.TransportError: The server broke the connection off.
        BaseException: What the application raised, unless its answer is wanted.
    """
    exchange = _Exchange(server, request)
    try:
        response = await exchange.start()
    except BaseException as error:
        exchange.close()
        await exchange.witness.finish()
        failure = exchange.witness.error
        if failure is not None and target.raise_server_exceptions:
            raise failure from None
        if isinstance(error, Exception):
            raise _as_httpx(error) from error
        raise
    body = _Body(target, exchange, response)
    if exchange.witness.error is not None:
        await body.aclose()
    return target.response(
        response.status,
        response.headers,
        body,
        debug=exchange.witness.debug,
        extensions={key: response.extensions[key] for key in ("http_version", "reason_phrase")},
    )


class _Body(httpx.AsyncByteStream):
    """The body of an answer; its end is that of everything that the request has begun."""

    def __init__(self, target: Target, exchange: _Exchange, response: httpcore.Response) -> None:
        self._target = target
        self._exchange = exchange
        self._response = response
        self._is_complete = False
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.aiter_stream():
                yield chunk
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            await self.aclose()
            raise _as_httpx(error) from error
        self._is_complete = True
        await self.aclose()

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        witness = self._exchange.witness
        await self._response.aclose()
        self._exchange.close()
        gave_up = not self._is_complete and witness.error is None
        if gave_up:
            await witness.finish()
        else:
            await witness.wait()
        if witness.error is not None and not gave_up and self._target.raise_server_exceptions:
            raise witness.error


class LaneWebSocketSession(SocketMessages):
    """A WebSocket to an application, seen from the client.

    Args:
        app: The application.
        scope: The ASGI scope of the handshake, as a client would make it.
        server: Where the application is served.
        request: The handshake.

    Attributes:
        accepted_subprotocol: The subprotocol that the application chose.
        extra_headers: The headers that it added to the handshake's answer.
    """

    def __init__(
        self, app: ASGIApp, scope: Scope, server: LaneServer, request: httpx.Request
    ) -> None:
        self.app = app
        self.scope = scope
        self._server: LaneServer | None = server
        self._request = request
        self.accepted_subprotocol: str | None = None
        self.extra_headers: list[tuple[bytes, bytes]] | None = None
        self._received: asyncio.Queue[Message | None] = asyncio.Queue()
        self._has_closed = False
        self._has_raised = False

    async def __aenter__(self) -> Self:
        request = self._request
        request.headers["upgrade"] = "websocket"
        request.headers["sec-websocket-key"] = base64.b64encode(os.urandom(16)).decode()
        assert self._server is not None
        self._exchange = exchange = _Exchange(self._server, request)
        # It belongs to the thread of its loop, and this may outlive that.
        self._server = None
        try:
            response = await exchange.start()
            if response.status != 101:
                body = await response.aread()
                exchange.close()
                await exchange.witness.finish()
                raise self._refusal(response, body)
        except BaseException as error:
            exchange.close()
            await exchange.witness.finish()
            if isinstance(error, httpcore.NetworkError | httpcore.ProtocolError):
                raise exchange.witness.error or _as_httpx(error) from error
            raise
        headers = [(name.lower(), value) for name, value in response.headers]
        protocol = dict(headers).get(b"sec-websocket-protocol")
        self.accepted_subprotocol = None if protocol is None else protocol.decode("latin-1")
        self.extra_headers = [one for one in headers if one[0] not in _OF_THE_HANDSHAKE]
        self._stream: httpcore.AsyncNetworkStream = response.extensions["network_stream"]
        self._reader = asyncio.create_task(self._read())
        return self

    def _refusal(self, response: httpcore.Response, body: bytes) -> BaseException:
        witness = self._exchange.witness
        if witness.error is not None:
            return witness.error
        if witness.refusal is not None:
            return WebSocketDisconnect(*witness.refusal)
        return WebSocketDenied(response.status, list(response.headers), body)

    async def _read(self) -> None:
        frames = FrameReader()
        try:
            while data := await self._stream.read(64 * 1024):
                for frame in frames.feed(data):
                    await self._take(frame)
        except httpcore.NetworkError:
            pass
        finally:
            # Wakes whoever waits for a message that will not come.
            self._received.put_nowait(None)

    async def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PING:
            await self._write(Opcode.PONG, frame.payload)
        elif frame.opcode is Opcode.TEXT:
            text = frame.payload.decode()
            self._received.put_nowait({"type": "websocket.send", "text": text})
        elif frame.opcode is Opcode.BINARY:
            self._received.put_nowait({"type": "websocket.send", "bytes": frame.payload})
        elif frame.opcode is Opcode.CLOSE:
            code, reason = read_close(frame.payload)
            await self._close(code, "")
            self._received.put_nowait({"type": "websocket.close", "code": code, "reason": reason})

    async def _write(self, opcode: Opcode, payload: bytes) -> None:
        # What ended it is there to be received.
        with suppress(httpcore.WriteError):
            await self._stream.write(masked_frame(opcode, payload))

    async def _close(self, code: int, reason: str) -> None:
        if not self._has_closed:
            self._has_closed = True
            await self._write(Opcode.CLOSE, close_payload(code, reason))

    async def send(self, message: Message) -> None:
        """Sends what an ASGI message to the application stands for."""
        if message["type"] in _CLOSE_TYPES:
            await self._close(message.get("code", 1000), message.get("reason") or "")
        elif message["type"] == "websocket.receive" and not self._has_closed:
            text = message.get("text")
            if text is not None:
                await self._write(Opcode.TEXT, text.encode())
            else:
                await self._write(Opcode.BINARY, bytes(message["bytes"]))

    async def receive(self) -> Message:
        """Returns the next ASGI message of the application.

        Raises:
            WebSocketDisconnect: The connection has ended without a close.
            BaseException: What the application raised.
        """
        message = await self._received.get()
        if message is None:
            self._received.put_nowait(None)
        elif message["type"] != "websocket.close" or message["code"] != 1011:
            return message
        witness = self._exchange.witness
        # The close that tells of a failure may come before the failure itself.
        await witness.wait(DISCONNECT_GRACE_SECONDS)
        if witness.error is not None and not self._has_raised:
            self._has_raised = True
            raise witness.error
        if message is None:
            raise WebSocketDisconnect(1006)
        return message

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        witness = self._exchange.witness
        try:
            await self._close(1000, "")
            await asyncio.wait({self._reader}, timeout=DISCONNECT_GRACE_SECONDS)
        finally:
            self._reader.cancel()
            self._exchange.close()
            await witness.finish()
        if error is None and witness.error is not None and not self._has_raised:
            raise witness.error
