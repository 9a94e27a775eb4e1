"""Runs an application on a lane, with real sockets, and asks it from within the same loop."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx

from justapi import _core
from justapi._lane import Served, finish_background, new_event_loop, routes_of
from justapi._serve import Lifespan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

HOST = "test"
"""Name that clients know the server by."""


class _ToSocket(httpx.AsyncBaseTransport):
    """Sends requests for any host to one port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._inner = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(scheme="http", host="127.0.0.1", port=self._port)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


class Running:
    """A lane that serves.

    Attributes:
        lane: The lane.
        port: Its TCP port.
        client: A client of it.
    """

    client: httpx.AsyncClient

    def __init__(self, lane: _core.Lane, port: int) -> None:
        self.lane = lane
        self.port = port

    @property
    def counters(self) -> dict[str, int]:
        return dict(self.lane.counters())


@asynccontextmanager
async def _serving(app: Any, selector: Any, config: dict[str, Any]) -> AsyncIterator[Running]:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    lifespan = Lifespan(app)
    await lifespan.start()
    lane = _core.Lane(
        asyncio.get_running_loop(),
        selector.fileno(),
        [listener.detach()],
        Served(app, lifespan.state, server=(HOST, 80)),
        routes_of(app),
        bool(getattr(getattr(app, "router", None), "redirect_slashes", False)),
        json.dumps({"metrics": "Off", "health": False, **config}),
    )
    selector.lane = lane
    running = Running(lane, port)
    transport = _ToSocket(port)
    try:
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
            running.client = client
            yield running
        lane.drain()
        while lane.drained() is None:
            await asyncio.sleep(0.001)
        await finish_background(5)
        await lifespan.stop()
    finally:
        # A collector on another thread could not let it go.
        del lane, running.lane
        selector.lane = None


def on_lane(app: Any, use: Callable[[Running], Awaitable[Any]], **config: Any) -> Any:
    """Serves `app` on a lane while `use` runs.

    Args:
        app: The application.
        use: Called with the running lane.
        **config: Settings of the server.
    """

    async def main() -> Any:
        async with _serving(app, selector, config) as running:
            return await asyncio.wait_for(use(running), 60)

    loop, selector = new_event_loop()
    try:
        return loop.run_until_complete(main())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
