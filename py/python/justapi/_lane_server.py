"""Serves an application to clients of the same thread, without a socket.

The lane, its router and its connections are those of the server; only the socket is not there.
"""

from __future__ import annotations

import asyncio
import selectors
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from justapi import _core
from justapi._lane import LaneSelector, Served, routes_of

if TYPE_CHECKING:
    from justapi.app import JustAPIApp

__all__ = ["LaneServer", "Witness", "selector_of"]

DISCONNECT_GRACE_SECONDS = 1.0
"""Time that an application has to end by itself once its client has left."""
_DRAIN_SECONDS = 1.0
"""Time for connections that a test has left open."""


class Witness:
    """Learns what becomes of one request; the lane calls it.

    Attributes:
        error: What nobody handled, the first of it.
        refusal: Code and reason of the close that a WebSocket was refused with.
        debug: What a template engine left for tests, if any.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.refusal: tuple[int, str] | None = None
        self.debug: dict[str, Any] | None = None
        self._running: dict[int, Any] = {}
        self._has_ended = asyncio.Event()
        self._has_ended.set()

    def begin(self, what: Any) -> None:
        """Notes that something goes on: a task, or what follows a response."""
        self._running[id(what)] = what
        self._has_ended.clear()

    def end(self, what: Any) -> None:
        """Notes that it has ended."""
        self._running.pop(id(what), None)
        if not self._running:
            self._has_ended.set()

    def failed(self, error: BaseException) -> None:
        """Notes what nobody handled."""
        if self.error is None and not isinstance(error, asyncio.CancelledError):
            self.error = error

    def refused(self, code: int, reason: str) -> None:
        """Notes the close that answered a handshake."""
        self.refusal = (code, reason)

    async def wait(self, timeout: float | None = None) -> bool:
        """Waits until nothing goes on any more.

        Returns:
            Whether that was in time.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_ended.wait(), timeout)
        return self._has_ended.is_set()

    async def finish(self) -> None:
        """Has what goes on end, after the client has left."""
        if await self.wait(DISCONNECT_GRACE_SECONDS):
            return
        for one in list(self._running.values()):
            if isinstance(one, asyncio.Future):
                one.cancel()
        await self.wait()


def selector_of(loop: asyncio.AbstractEventLoop) -> LaneSelector | None:
    """Returns the selector of a loop that lanes can serve in; None where it is of another kind.

    A stock loop's selector learns to ask lanes, too.
    """
    selector = getattr(loop, "_selector", None)
    if isinstance(selector, LaneSelector):
        return selector
    if not isinstance(loop, asyncio.SelectorEventLoop):
        return None
    if type(selector) is not selectors.EpollSelector:
        return None
    selector.__class__ = LaneSelector
    assert isinstance(selector, LaneSelector)
    return selector


class _Generation:
    """A lane, made of the routes as they were at one time."""

    def __init__(self, lane: _core.Lane, key: Any) -> None:
        self.lane = lane
        self.key = key
        self.num_open = 0


class Connection:
    """A connection to the server, which outlives it: a test may keep its response for ever.

    Args:
        server: The server, which has the client's end.
        number: The server's number for it.
    """

    def __init__(self, server: LaneServer, number: int) -> None:
        self._server = weakref.ref(server)
        self._number = number

    def _pipe(self) -> _core.Pipe:
        server = self._server()
        pipe = None if server is None else server.pipe(self._number)
        if pipe is None:
            raise ConnectionError("the connection is closed")
        return pipe

    async def read(self, max_bytes: int) -> bytes:
        """Reads some bytes; none at the end.

        Raises:
            ConnectionError: The server has broken off.
        """
        return await self._pipe().read(max_bytes)

    async def write(self, data: bytes) -> None:
        """Writes bytes; waits while the server is slower.

        Raises:
            ConnectionError: The server has closed.
        """
        await self._pipe().write(data)

    def close(self) -> None:
        """Leaves; the server notices at once."""
        server = self._server()
        if server is not None:
            server.disconnect(self._number)


class LaneServer:
    """One application in one event loop.

    It belongs to the loop's thread, as its lanes do: whoever else needs it keeps a weak reference.

    Args:
        app: The application. What it has at the time of a request counts: routes, overrides and
            handlers may change between two.
        selector: Selector of the running loop.
        served: The application, as the lane needs to know it.
    """

    def __init__(self, app: JustAPIApp, selector: LaneSelector, served: Served) -> None:
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._selector = selector
        self._served = served
        self._generations: list[_Generation] = []
        self._open: dict[int, tuple[_Generation, _core.Pipe]] = {}
        self._num_connected = 0
        selector.servers.add(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it serves in."""
        return self._loop

    @property
    def counters(self) -> dict[str, int]:
        """Which ways requests have taken, by name."""
        total: dict[str, int] = {}
        for generation in self._generations:
            for name, count in generation.lane.counters():
                total[name] = total.get(name, 0) + count
        return total

    def connect(self, witness: Witness, *, is_secure: bool) -> Connection:
        """Makes a connection.

        Args:
            witness: Learns what becomes of its request.
            is_secure: Whether it counts as one over TLS.

        Raises:
            ValueError: The lane cannot have the application's routes.
        """
        key = self._app.routes_key
        if not self._generations or self._generations[-1].key != key:
            self._generations.append(_Generation(self._make_lane(), key))
        generation = self._generations[-1]
        number = self._num_connected = self._num_connected + 1
        self._open[number] = (generation, generation.lane.connect(witness, is_secure))
        generation.num_open += 1
        return Connection(self, number)

    def pipe(self, number: int) -> _core.Pipe | None:
        """Returns the client's end of a connection, if it is open."""
        return self._open[number][1] if number in self._open else None

    def disconnect(self, number: int) -> None:
        """Closes a connection, if it is open."""
        if number in self._open:
            generation, pipe = self._open.pop(number)
            pipe.close()
            generation.num_open -= 1
            self._sweep()

    def _make_lane(self) -> _core.Lane:
        lane = _core.Lane(
            self._loop,
            self._selector.fileno(),
            [],
            self._served,
            routes_of(self._app),
            self._app.router.redirect_slashes,
            "{}",
            beside=self._selector.lane,
        )
        self._selector.add(lane)
        self._sweep()
        return lane

    def _sweep(self) -> None:
        # Lanes that nobody is connected to and whose routes have changed.
        old = self._generations[:-1]
        self._generations[:-1] = [one for one in old if one.num_open]
        for one in old:
            if not one.num_open:
                self._selector.remove(one.lane)

    async def close(self) -> None:
        """Ends the connections that are still open, and the lanes."""
        for number in list(self._open):
            self.disconnect(number)
        self._selector.servers.discard(self)
        generations, self._generations = self._generations, []
        for one in generations:
            one.lane.drain()
        deadline = self._loop.time() + _DRAIN_SECONDS
        for one in generations:
            while one.lane.drained() is None:
                if self._loop.time() > deadline:
                    one.lane.kill()
                await asyncio.sleep(0.001)
            self._selector.remove(one.lane)

    def abandon(self) -> None:
        """Lets the lanes go at once, when nobody is left to wait for them."""
        for number in list(self._open):
            self.disconnect(number)
        self._selector.servers.discard(self)
        generations, self._generations = self._generations, []
        for one in generations:
            self._selector.remove(one.lane)
