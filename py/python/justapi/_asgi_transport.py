"""httpx transports that call an ASGI application instead of opening a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import unquote

import httpx

from justapi._in_process import Call
from justapi._portal import Portal
from justapi.types import ASGIApp, Scope

__all__ = ["AsgiTransport", "AsyncAsgiTransport", "Target"]

_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class Target:
    """An application, and what its requests have in common.

    Attributes:
        app: The application.
        state: What every request's state begins with.
        raise_server_exceptions: Whether what the application raises is raised in the test.
        root_path: Where the application is mounted.
        client: Host and port that the requests come from.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        raise_server_exceptions: bool,
        root_path: str,
        client: tuple[str, int],
    ) -> None:
        self.app = app
        self.state: dict[str, Any] = {}
        self.raise_server_exceptions = raise_server_exceptions
        self.root_path = root_path
        self.client = client

    def scope(self, request: httpx.Request) -> Scope:
        """Returns the ASGI scope of a request.

        Args:
            request: The request; one of `ws` or `wss` is a handshake.
        """
        url = request.url
        raw_path, _, query = url.raw_path.partition(b"?")
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        if b"host" not in (name for name, _ in headers):
            headers.insert(0, (b"host", url.netloc))
        scope: Scope = {
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "path": unquote(raw_path.decode("ascii")),
            "raw_path": raw_path,
            "root_path": self.root_path,
            "scheme": url.scheme,
            "query_string": query,
            "headers": headers,
            "client": self.client,
            "server": (url.host, url.port or _DEFAULT_PORTS[url.scheme]),
            "state": self.state.copy(),
        }
        if url.scheme in ("ws", "wss"):
            offered = request.headers.get("sec-websocket-protocol", "")
            return {
                **scope,
                "type": "websocket",
                "subprotocols": [name.strip() for name in offered.split(",") if name.strip()],
                "extensions": {"websocket.http.response": {}},
            }
        return {
            **scope,
            "type": "http",
            "method": request.method,
            "extensions": {"http.response.debug": {}, "http.response.trailers": {}},
        }

    def response(
        self, call: Call, stream: httpx.SyncByteStream | httpx.AsyncByteStream
    ) -> httpx.Response:
        """Returns the response of a call that has its head.

        Args:
            call: The call.
            stream: Its body.
        """
        extensions: dict[str, Any] = {}
        if call.debug is not None:
            extensions["http.response.debug"] = call.debug
        if call.trailers or call._expects_trailers:
            extensions["http.response.trailers"] = call.trailers
        response = httpx.Response(
            call.status or 500, headers=call.headers, stream=stream, extensions=extensions
        )
        for name in ("template", "context"):
            if call.debug is not None and name in call.debug:
                setattr(response, name, call.debug[name])
        return response

    def no_response(self, error: BaseException | None) -> httpx.Response:
        """Returns or raises what an application without an answer deserves.

        Args:
            error: What it raised.

        Raises:
            AssertionError: It raised nothing.
            BaseException: What it raised.
        """
        if self.raise_server_exceptions:
            raise error or AssertionError("TestClient did not receive any response.")
        return httpx.Response(500, stream=httpx.ByteStream(b""))


class _SyncBody(httpx.SyncByteStream):
    def __init__(self, target: Target, portal: Portal, call: Call, is_head: bool) -> None:
        self._target = target
        self._portal = portal
        self._call = call
        self._is_head = is_head
        self._is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        while (chunk := self._portal.call(self._call.next_chunk)) is not None:
            if not self._is_head:
                yield chunk
        self.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        error = self._portal.call(self._call.close)
        if error is not None and self._target.raise_server_exceptions:
            raise error


class AsgiTransport(httpx.BaseTransport):
    """Calls an application in the loop of a portal.

    Args:
        target: The application.
        portal: Returns where it runs.
    """

    def __init__(self, target: Target, portal: Callable[[], Portal]) -> None:
        self._target = target
        self._portal = portal

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request and waits for the head of the answer.

        Args:
            request: The request.

        Raises:
            BaseException: What the application raised, unless a 500 is wanted instead.
        """
        body = request.read()
        scope = self._target.scope(request)

        async def start() -> Call:
            return Call(self._target.app, scope, body)

        portal = self._portal()
        call: Call = portal.call(start)
        if not portal.call(call.head):
            return self._target.no_response(portal.call(call.close))
        stream = _SyncBody(self._target, portal, call, request.method == "HEAD")
        return self._target.response(call, stream)


class _AsyncBody(httpx.AsyncByteStream):
    def __init__(self, target: Target, call: Call, is_head: bool) -> None:
        self._target = target
        self._call = call
        self._is_head = is_head
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._call.next_chunk()) is not None:
            if not self._is_head:
                yield chunk
        await self.aclose()

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        error = await self._call.close()
        if error is not None and self._target.raise_server_exceptions:
            raise error


class AsyncAsgiTransport(httpx.AsyncBaseTransport):
    """Calls an application in the running loop.

    Args:
        target: The application.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request and waits for the head of the answer.

        Args:
            request: The request.

        Raises:
            BaseException: What the application raised, unless a 500 is wanted instead.
        """
        call = Call(self._target.app, self._target.scope(request), await request.aread())
        if not await call.head():
            return self._target.no_response(await call.close())
        stream = _AsyncBody(self._target, call, request.method == "HEAD")
        return self._target.response(call, stream)
