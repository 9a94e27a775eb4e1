"""Serves an application in this process: loop, lifespan, lane, signals.

The worker of `justapi serve` and `JustAPIApp.run` end up here.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import logging
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVarTuple

from justapi import _core, _stopping
from justapi._lane import (
    LaneSelector,
    Served,
    finish_background,
    paths_without_slash,
    routes_of,
)
from justapi._lanes import CHECK_SECONDS, LAST_SECONDS, LaneThread, end_loop, run_to_end
from justapi._tracebacks import format_from_user
from justapi.types import ASGIApp, Message

if TYPE_CHECKING:
    from justapi._where import Observer

__all__ = ["Lifespan", "SettingRefused", "StartupFailed", "serve"]

logger = logging.getLogger("justapi")

_Ts = TypeVarTuple("_Ts")

LATE_SECONDS = 0.2
"""Time beyond the grace time after which it is said what the stop waits for."""
LAST_LANES_SECONDS = 1.0
"""Time beyond the grace time after which a lane is left alone that does not end."""


class StartupFailed(Exception):
    """The application's lifespan failed before it was ready."""


class SettingRefused(Exception):
    """A setting of the server does not go with the application; `hint` says what to do."""

    hint = "`justapi config show --origin` says where each value comes from"


class Lifespan:
    """Plays the server's side of the lifespan protocol.

    Args:
        app: The ASGI application.
        observer: Who says what its start waits for.

    Attributes:
        state: What the application left for its requests.
    """

    def __init__(self, app: ASGIApp, observer: Observer | None = None) -> None:
        self._app = app
        self._observer = observer
        self.state: dict[str, Any] = {}
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    @property
    def task(self) -> asyncio.Task[None] | None:
        """Where the application has its lifespan, if it has one."""
        return self._task

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
        if self._observer is not None:
            self._observer.note("startup", self._task)
        await self._to_app.put({"type": "lifespan.startup"})
        message = await self._next()
        error = self._error()
        if error is not None:
            raise StartupFailed(format_from_user(error))
        if message is None:
            # An application without lifespan support is one that has nothing to start.
            self._task = None
        elif message["type"] == "lifespan.startup.failed":
            await asyncio.wait({self._task}, timeout=LAST_SECONDS)
            raise StartupFailed(message.get("message", ""))

    async def stop(self) -> None:
        """Lets the application end; what it raises is logged."""
        if self._task is None:
            return
        await self._to_app.put({"type": "lifespan.shutdown"})
        message = await self._next()
        if message is not None and message["type"] == "lifespan.shutdown.failed":
            logger.error("The application failed to shut down: %s", message.get("message", ""))
        await asyncio.wait({self._task}, timeout=LAST_SECONDS)

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


class _ServingLoop(asyncio.SelectorEventLoop):
    """A loop on which the application's handlers of signals are added to the server's.

    A stock one has one for each signal, so that an application that wants to hear of a stop would
    keep it from the server.
    """

    def __init__(self, selector: LaneSelector) -> None:
        super().__init__(selector)
        self._kept: dict[int, Callable[[], object]] = {}
        self._added: set[int] = set()

    def keep_signal_handler(self, sig: int, callback: Callable[[], object]) -> None:
        """Has `callback` called for a signal whoever else listens for it.

        Args:
            sig: The signal.
            callback: Called in the loop.
        """
        self._kept[sig] = callback
        super().add_signal_handler(sig, callback)

    def add_signal_handler(self, sig: int, callback: Callable[[*_Ts], Any], *args: *_Ts) -> None:
        """Adds a handler; see `asyncio.loop.add_signal_handler`."""
        kept = self._kept.get(sig)
        if kept is None:
            super().add_signal_handler(sig, callback, *args)
            return
        if asyncio.iscoroutine(callback) or inspect.iscoroutinefunction(callback):
            raise TypeError("coroutines cannot be used with add_signal_handler()")
        # The application's may fail, and the stop is not to depend on that.
        call = functools.partial(callback, *args)
        super().add_signal_handler(sig, self._call_both, kept, call)
        self._added.add(sig)

    def _call_both(self, kept: Callable[[], object], callback: Callable[[], object]) -> None:
        kept()
        callback()

    def remove_signal_handler(self, sig: int) -> bool:
        """Removes a handler; see `asyncio.loop.remove_signal_handler`."""
        kept = self._kept.get(sig)
        if kept is None:
            return super().remove_signal_handler(sig)
        if sig not in self._added:
            return False
        self._added.remove(sig)
        super().add_signal_handler(sig, kept)
        return True

    def close(self) -> None:
        """Closes the loop, and listens for no signal any more."""
        self._kept.clear()
        super().close()


def serve(
    app: ASGIApp,
    sockets: list[socket.socket],
    *,
    root_path: str = "",
    grace: float = 30.0,
    when_ready: Callable[[list[str]], None] | None = None,
    config: str = "{}",
    num_lanes: int = 1,
    max_requests: int | None = None,
    when_worn_out: Callable[[], None] | None = None,
    stuck_timeout: float | None = None,
    stuck_descriptor: int = -1,
    owns_sockets: bool = False,
    is_supervised: bool = False,
    public_address: list[Any] | None = None,
    observer: Observer | None = None,
) -> int:
    """Serves until SIGINT or SIGTERM, then drains; a second signal ends what is in flight.

    The first lane is on this thread, with the signals and the lifespan; each other has a thread.

    Args:
        app: The ASGI application; one of ours is served natively.
        sockets: Listening sockets.
        root_path: Where a proxy puts the application.
        grace: Seconds for what is in flight after the signal.
        when_ready: Called with the addresses once requests are answered.
        config: Settings of the server, a `ServerConfig` of the Rust library as JSON.
        num_lanes: Number of lanes.
        max_requests: Number of requests after which the worker is worn out.
        when_worn_out: Called then, once; whoever is told stops this process.
        stuck_timeout: Seconds after which a loop that does not move on is reported.
        stuck_descriptor: Where that is written to, without help of Python: a line of JSON.
        owns_sockets: Whether nobody else listens on them: then what waits to be accepted at the
            end is answered.
        is_supervised: Whether a second signal says no more than the first. The kernel sends one
            for each thread of a supervisor that is killed; one that lives ends us by force.
        public_address: Host and port that clients know, where the sockets are behind another
            server's.
        observer: Who says what a start or a stop waits for.

    Returns:
        The exit code.

    Raises:
        StartupFailed: The application's lifespan failed.
        SettingRefused: A setting does not go with the application.
    """
    selector = LaneSelector()
    loop = _ServingLoop(selector)
    asyncio.set_event_loop(loop)
    stop = asyncio.Event()
    signals_received: list[int] = []

    def on_signal(number: int) -> None:
        signals_received.append(number)
        stop.set()
        if len(signals_received) > 1 and not is_supervised:
            lane = selector.lane
            if lane is not None:
                lane.kill()

    def when_lane_ended() -> None:
        # Before the stop it has failed, and the process with it.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)

    async def main() -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.keep_signal_handler(number, functools.partial(on_signal, number))
        for path in paths_without_slash(app):
            logger.warning("no request reaches the route %r: write its path as '/%s'", path, path)
        lifespan = Lifespan(app, observer)
        await lifespan.start()
        name = sockets[0].getsockname() if sockets else None
        if public_address is not None:
            name = tuple(public_address)
        served = Served(
            app,
            lifespan.state,
            server=(str(name[0]), int(name[1])) if isinstance(name, tuple) else None,
            root_path=root_path,
        )
        redirects = bool(getattr(getattr(app, "router", None), "redirect_slashes", False))
        try:
            lane = _core.Lane(
                loop,
                selector.fileno(),
                [one.detach() for one in sockets],
                served,
                routes_of(app),
                redirects,
                config,
                owns=owns_sockets,
                num_lanes=num_lanes,
            )
        except ValueError as error:
            await lifespan.stop()
            raise SettingRefused(str(error)) from None
        selector.lane = lane
        others = [
            LaneThread(seat, number, when_lane_ended, stuck_timeout, stuck_descriptor)
            for number, seat in enumerate(lane.others(), 1)
        ]
        for other in others:
            other.wait_until_serving()
        # What start-up made lives as long as the process.
        gc.collect()
        gc.freeze()
        if when_ready is not None:
            when_ready(lane.addresses())
        if stuck_timeout is not None:
            lane.watch_progress(stuck_timeout, stuck_descriptor)
        if max_requests is not None and when_worn_out is not None:
            while not stop.is_set() and lane.num_requests() < max_requests:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 0.1)
            if not stop.is_set():
                when_worn_out()
        await stop.wait()

        def observe(during: str, task: asyncio.Task[None] | None = None) -> None:
            if observer is not None:
                observer.stopping(during, task, grace + LATE_SECONDS)

        observe("requests")
        _stopping.begin()
        lane.drain()
        deadline = loop.time() + grace
        for other in others:
            other.stop(deadline)
        while lane.drained() is None:
            if loop.time() > deadline:
                lane.kill()
            await asyncio.sleep(CHECK_SECONDS)
        finished = lane.drained()
        observe("background tasks")
        await finish_background(max(0.0, deadline - loop.time()))
        while not all(other.has_ended for other in others):
            if loop.time() > deadline:
                lane.kill()
            if loop.time() > deadline + LAST_LANES_SECONDS:
                break
            await asyncio.sleep(CHECK_SECONDS)
        finished = finished and all(other.finished for other in others)
        observe("lifespan", lifespan.task)
        await lifespan.stop()
        return 0 if finished else 1

    try:
        return run_to_end(loop, main())
    finally:
        selector.lane = None
        if not loop.is_closed():
            end_loop(loop)
