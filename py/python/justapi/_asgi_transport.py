"""Calls an ASGI application of others instead of opening a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote

import httpx

from justapi._in_process import Call
from justapi.types import ASGIApp, Scope

__all__ = ["DEFAULT_PORTS", "Target", "send_over_asgi"]

DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


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
            "server": (url.host, url.port or DEFAULT_PORTS[url.scheme]),
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
        self,
        status: int,
        headers: list[tuple[bytes, bytes]],
        stream: httpx.AsyncByteStream,
        *,
        debug: dict[str, Any] | None,
        extensions: dict[str, Any],
    ) -> httpx.Response:
        """Returns the response that a head and a body make.

        Args:
            status: The status.
            headers: The header lines.
            stream: The body.
            debug: What a template engine left for tests, if any.
            extensions: What httpx has in its extensions.
        """
        if debug is not None:
            extensions["http.response.debug"] = debug
        response = httpx.Response(status, headers=headers, stream=stream, extensions=extensions)
        for name in ("template", "context"):
            if debug is not None and name in debug:
                setattr(response, name, debug[name])
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


class _Body(httpx.AsyncByteStream):
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


async def send_over_asgi(target: Target, request: httpx.Request) -> httpx.Response:
    """Sends a request and waits for the head of the answer.

    Args:
        target: The application.
        request: The request.

    Raises:
        BaseException: What the application raised, unless a 500 is wanted instead.
    """
    call = Call(target.app, target.scope(request), await request.aread())
    if not await call.head():
        return target.no_response(await call.close())
    extensions: dict[str, Any] = {}
    if call.trailers or call._expects_trailers:
        extensions["http.response.trailers"] = call.trailers
    body = _Body(target, call, request.method == "HEAD")
    status = call.status or 500
    return target.response(status, call.headers, body, debug=call.debug, extensions=extensions)
