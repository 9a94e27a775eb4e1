"""Serves an application in this process: loop, lifespan, lane, signals.

The worker of `justapi serve` and `JustAPIApp.run` end up here.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from justapi import _core
from justapi._lane import Served, finish_background, new_event_loop, routes_of
from justapi.types import ASGIApp, Message

__all__ = ["Lifespan", "StartupFailed", "serve"]

logger = logging.getLogger("justapi")


class StartupFailed(Exception):
    """The application's lifespan failed before it was ready."""


class Lifespan:
    """Plays the server's side of the lifespan protocol.

    Args:
        app: The ASGI application.

    Attributes:
        state: What the application left for its requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.state: dict[str, Any] = {}
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the application.

        Raises:
            StartupFailed: It said that it cannot start.
        """
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self.state,
        }
        self._task = asyncio.create_task(self._run(scope))
        await self._to_app.put({"type": "lifespan.startup"})
        message = await self._next()
        error = self._error()
        if error is not None:
            raise StartupFailed("".join(traceback.format_exception(error)))
        if message is None:
            # An application without lifespan support is one that has nothing to start.
            self._task = None
        elif message["type"] == "lifespan.startup.failed":
            raise StartupFailed(message.get("message", ""))

    async def stop(self) -> None:
        """Lets the application end; what it raises is logged."""
        if self._task is None:
            return
        await self._to_app.put({"type": "lifespan.shutdown"})
        message = await self._next()
        if message is not None and message["type"] == "lifespan.shutdown.failed":
            logger.error("The application failed to shut down: %s", message.get("message", ""))

    async def _run(self, scope: dict[str, Any]) -> None:
        try:
            await self._app(scope, self._to_app.get, self._from_app.put)
        except Exception:
            logger.debug("The lifespan ended with an exception", exc_info=True)

    def _error(self) -> BaseException | None:
        """Returns the exit that the application has asked for."""
        assert self._task is not None
        if not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    async def _next(self) -> Message | None:
        assert self._task is not None
        getter = asyncio.ensure_future(self._from_app.get())
        await asyncio.wait({getter, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if getter.done():
            return getter.result()
        getter.cancel()
        return None if self._from_app.empty() else self._from_app.get_nowait()


def serve(
    app: ASGIApp,
    sockets: list[socket.socket],
    *,
    root_path: str = "",
    grace: float = 30.0,
    when_ready: Callable[[list[str]], None] | None = None,
    config: str = "{}",
    max_requests: int | None = None,
    when_worn_out: Callable[[], None] | None = None,
) -> int:
    """Serves until SIGINT or SIGTERM, then drains.

    Args:
        app: The ASGI application; one of ours is served natively.
        sockets: Listening sockets.
        root_path: Where a proxy puts the application.
        grace: Seconds for what is in flight after the signal.
        when_ready: Called with the addresses once requests are answered.
        config: Settings of the server, a `ServerConfig` of the Rust library as JSON.
        max_requests: Number of requests after which the worker is worn out.
        when_worn_out: Called then, once; whoever is told stops this process.

    Returns:
        The exit code.

    Raises:
        StartupFailed: The application's lifespan failed.
    """
    loop, selector = new_event_loop()
    asyncio.set_event_loop(loop)
    stop = asyncio.Event()
    signals_received: list[int] = []

    def on_signal(number: int) -> None:
        signals_received.append(number)
        stop.set()
        if len(signals_received) > 1:
            lane = selector.lane
            if lane is not None:
                lane.kill()

    async def main() -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
        lifespan = Lifespan(app)
        await lifespan.start()
        name = sockets[0].getsockname() if sockets else None
        served = Served(
            app,
            lifespan.state,
            server=(str(name[0]), int(name[1])) if isinstance(name, tuple) else None,
            root_path=root_path,
        )
        redirects = bool(getattr(getattr(app, "router", None), "redirect_slashes", False))
        lane = _core.Lane(
            loop,
            selector.fileno(),
            [one.detach() for one in sockets],
            served,
            routes_of(app),
            redirects,
            config,
        )
        selector.lane = lane
        # What start-up made lives as long as the process.
        gc.collect()
        gc.freeze()
        if when_ready is not None:
            when_ready(lane.addresses())
        if max_requests is not None and when_worn_out is not None:
            while not stop.is_set() and lane.num_requests() < max_requests:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 0.1)
            if not stop.is_set():
                when_worn_out()
        await stop.wait()
        lane.drain()
        deadline = loop.time() + grace
        while lane.drained() is None:
            if loop.time() > deadline:
                lane.kill()
            await asyncio.sleep(0.01)
        finished = lane.drained()
        await finish_background(max(0.0, deadline - loop.time()))
        await lifespan.stop()
        return 0 if finished else 1

    main_task = loop.create_task(main())
    while True:
        try:
            code = loop.run_until_complete(main_task)
            break
        except BaseException:
            # A handler's own exit, or its stop of the loop, ends its request, not the server.
            if main_task.done() or loop.is_closed():
                raise
            traceback.print_exc()
    selector.lane = None
    return code
