"""An application under test: its lifespan, its requests, its WebSockets.

One of ours is served by a lane of the running loop, byte for byte as by the server; any other,
and in a loop that is no stock one, is called over ASGI. Nothing here knows whether the test is
async.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import httpx

from justapi._asgi_transport import DEFAULT_PORTS, Target, send_over_asgi
from justapi._in_process import LifespanSession, SocketMessages, WebSocketSession
from justapi._lane import Served
from justapi._lane_server import LaneServer, selector_of
from justapi._lane_transport import LaneWebSocketSession, send_over_lane
from justapi._portal import Portal

__all__ = ["BlockingTransport", "Tested"]


class Tested(httpx.AsyncBaseTransport):
    """Runs an application for a client in the running loop.

    Args:
        target: The application.
        base_url: Where the client takes it to be.
    """

    def __init__(self, target: Target, base_url: str) -> None:
        self._target = target
        self._base_url = httpx.URL(base_url)
        self._server: weakref.ref[LaneServer] | None = None
        self._lifespan: LifespanSession | None = None

    def server(self) -> LaneServer | None:
        """Returns what serves the application in the running loop; None where ASGI has to do."""
        from justapi.app import JustAPIApp

        app = self._target.app
        if not isinstance(app, JustAPIApp):
            return None
        loop = asyncio.get_running_loop()
        server = None if self._server is None else self._server()
        if server is not None and server.loop is loop:
            return server
        selector = selector_of(loop)
        if selector is None:
            return None
        url = self._base_url
        served = Served(
            app,
            self._target.state,
            server=(url.host, url.port or DEFAULT_PORTS.get(url.scheme)),
            client=self._target.client,
            root_path=self._target.root_path,
        )
        made = LaneServer(app, selector, served)
        self._server = weakref.ref(made)
        weakref.finalize(self, _abandon, loop, self._server).atexit = False
        return made

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request and waits for the head of the answer.

        Args:
            request: The request.

        Raises:
            BaseException: What the application raised, unless a 500 is wanted instead.
        """
        server = self.server()
        if server is None:
            return await send_over_asgi(self._target, request)
        return await send_over_lane(server, self._target, request)

    def websocket(self, request: httpx.Request) -> SocketMessages:
        """Returns a WebSocket, to be entered with `async with`.

        Args:
            request: The handshake.
        """
        scope = self._target.scope(request)
        server = self.server()
        if server is None:
            return WebSocketSession(self._target.app, scope)
        return LaneWebSocketSession(self._target.app, scope, server, request)

    async def startup(self) -> None:
        """Starts the application.

        Raises:
            BaseException: What its lifespan raised.
        """
        lifespan = LifespanSession(self._target.app, self._target.state)
        await lifespan.startup()
        self._lifespan = lifespan

    async def shutdown(self) -> None:
        """Ends what is open, and stops the application if it was started.

        Raises:
            BaseException: What its lifespan raised.
        """
        server = None if self._server is None else self._server()
        self._server = None
        if server is not None and server.loop is asyncio.get_running_loop():
            await server.close()
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            await lifespan.shutdown()


def _abandon(loop: asyncio.AbstractEventLoop, server: weakref.ref[LaneServer]) -> None:
    """Lets a server end in the thread of its loop, whichever thread this is."""

    def abandon() -> None:
        found = server()
        if found is not None:
            found.abandon()

    with suppress(RuntimeError):
        loop.call_soon_threadsafe(abandon)


class BlockingTransport(httpx.BaseTransport):
    """Gives code that is not async a transport that is.

    Args:
        inner: The transport.
        portal: Runs it.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, portal: Any) -> None:
        self._inner = inner
        self._portal = portal

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request and waits for the head of the answer.

        Args:
            request: The request.

        Raises:
            BaseException: As the transport.
        """
        request.read()
        portal: Portal = self._portal()
        response: httpx.Response = portal.call(self._inner.handle_async_request, request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _BlockingBody(portal, response.stream)
        return response


class _BlockingBody(httpx.SyncByteStream):
    def __init__(self, portal: Portal, body: httpx.AsyncByteStream) -> None:
        self._portal = portal
        self._body = body
        self._items: AsyncIterator[bytes] | None = None
        self._is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        self._items = aiter(self._body)
        yield from self._portal.iterate(self._items)
        # A body that has come to its end has closed itself.
        self._is_closed = True

    def close(self) -> None:
        # With the portal the connection has ended, too.
        if self._is_closed or self._portal.is_closed:
            return
        self._is_closed = True
        self._portal.call(self._leave)

    async def _leave(self) -> None:
        if isinstance(self._items, AsyncGenerator):
            await self._items.aclose()
        await self._body.aclose()
