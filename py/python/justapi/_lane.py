"""The lane's side of the Python layer: its loop, its routes, and the coroutines that it starts.

A lane serves from inside `select()` of its asyncio loop: the selector is the lane.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import selectors
import threading
from asyncio import format_helpers
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from justapi import _core
from justapi._api_route import APIRoute
from justapi._asgi import answer as answer_over_asgi
from justapi._paths import core_pattern, lacks_slash, route_key
from justapi._plain_routes import APIWebSocketRoute, Mount, WebSocketRoute
from justapi._plan import Kind, Plan
from justapi._respond import is_response
from justapi.concurrency import run_in_threadpool
from justapi.exceptions import HTTPException
from justapi.requests import ClientDisconnect
from justapi.websockets import WebSocketDisconnect

if TYPE_CHECKING:
    from justapi._layers import Layer
    from justapi.types import ASGIApp

__all__ = ["LaneSelector", "Served", "new_event_loop", "paths_without_slash", "routes_of"]

logger = logging.getLogger("justapi")


class _Running(threading.local):
    """What still runs on the thread's loop after its answer was sent."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()


_running = _Running()


class LaneSelector(selectors.EpollSelector):
    """Waits for the loop's descriptors and serves the lane's connections meanwhile.

    Attributes:
        lane: The lane that is asked, once there is one: it serves for all that share its loop.
        servers: Kept alive as long as the loop.
    """

    # A selector that learns to be one of this class has not been through any `__init__` of it.
    lane: _core.Lane | None = None
    # The lane hears of a descriptor when it becomes ready, not that it still is.
    _may_be_ready = True

    @property
    def servers(self) -> set[Any]:
        servers: set[Any] = self.__dict__.setdefault("_servers", set())
        return servers

    @property
    def _lanes(self) -> list[_core.Lane]:
        lanes: list[_core.Lane] = self.__dict__.setdefault("_all_lanes", [])
        return lanes

    def add(self, lane: _core.Lane) -> None:
        """Takes in a lane of this loop."""
        self._lanes.append(lane)
        if self.lane is None:
            self.lane = lane
            self._may_be_ready = True

    def remove(self, lane: _core.Lane) -> None:
        """Lets a lane go; another one of the loop is asked in its place."""
        if lane in self._lanes:
            self._lanes.remove(lane)
        if self.lane is lane:
            # Somebody else may keep it alive.
            lane.put_back()
            self.lane = self._lanes[0] if self._lanes else None

    def close(self) -> None:
        """Closes the selector; lanes end on the thread that they belong to."""
        self.lane = None
        self._lanes.clear()
        self.servers.clear()
        super().close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Serves until a descriptor is ready or the loop has something else to do."""
        # The lane is in no variable here: what a handler raises holds the frames that it was
        # called from, and may be collected on another thread, which cannot let a lane go.
        if self.lane is None:
            return super().select(timeout)
        if self._may_be_ready:
            events = super().select(0)
            if events:
                self.lane.select(0.0)
                return events
            self._may_be_ready = False
        if self.lane.select(timeout):
            self._may_be_ready = True
            return super().select(0)
        return []


def new_event_loop() -> tuple[asyncio.SelectorEventLoop, LaneSelector]:
    """Makes a loop that a lane can serve in."""
    selector = LaneSelector()
    return asyncio.SelectorEventLoop(selector), selector


def is_stock(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether all that a loop does with its callbacks is what asyncio's own code does.

    Then the lane does the same without Python. Whoever has replaced a part of it, in a class or in
    the loop, has reasons to be called.
    """
    base, handle = asyncio.base_events, asyncio.Handle
    if not isinstance(loop, asyncio.SelectorEventLoop):
        return False
    methods = [getattr(type(loop), name) for name in _METHODS]
    if any(getattr(method, "__globals__", None) is not vars(base) for method in methods):
        return False
    methods = [getattr(handle, name) for name in ("__init__", "_run", "cancel")]
    if any(getattr(method, "__globals__", None) is not vars(asyncio.events) for method in methods):
        return False
    if set(handle.__slots__) != _SLOTS or handle.__base__ is not object:
        return False
    replaced = {name: vars(loop)[name] for name in _METHODS if name in vars(loop)}
    # A lane that has served in this loop before may have left one.
    own = replaced.pop("call_soon", None)
    is_ours = type(getattr(own, "__self__", None)).__module__ == _core.__name__
    return not replaced and (own is None or is_ours)


_METHODS: Final = ("call_soon", "_call_soon", "_check_closed", "_run_once", "run_forever", "stop")
_SLOTS: Final = {
    "_callback",
    "_args",
    "_cancelled",
    "_loop",
    "_source_traceback",
    "_repr",
    "__weakref__",
    "_context",
}


def callback_failed(handle: Any, error: BaseException) -> None:
    """Tells a loop what one of its callbacks raised, in the words of `asyncio.Handle`."""
    called = format_helpers._format_callback_source(handle._callback, handle._args)
    context = {
        "message": f"Exception in callback {called}",
        "exception": error,
        "handle": handle,
    }
    handle._loop.call_exception_handler(context)


class Served:
    """What the lane needs to know of an application, and which of its middleware the lane does.

    Args:
        app: The application.
        state: What its lifespan left for requests.
        server: Address of the server.
        client: Address of clients that have none, in memory.
        root_path: Where a proxy puts the application.
        cancels: Whether a handler is cancelled when its client leaves.
    """

    def __init__(
        self,
        app: ASGIApp,
        state: dict[str, Any],
        *,
        server: tuple[str, int | None] | None = None,
        client: tuple[str, int] | None = None,
        root_path: str = "",
        cancels: bool = True,
    ) -> None:
        from justapi.app import JustAPIApp

        layers = app.layers if isinstance(app, JustAPIApp) else None
        self.app: Final = app
        self.layers: Final[list[Layer]] = layers or []
        self.called: Final[ASGIApp] = app.inside if layers and isinstance(app, JustAPIApp) else app
        self.is_coroutine_function: Final = _only_makes_coroutine(self.called)
        self.state: Final = state
        self.client: Final = client
        self.cancels: Final = cancels
        self.scope: Final[dict[str, Any]] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/",
            "raw_path": b"/",
            "query_string": b"",
            "root_path": root_path or getattr(app, "root_path", ""),
            "headers": [],
            "client": None,
            "server": server,
            "state": state,
            "extensions": {},
        }
        self.extensions: Final[dict[str, Any]] = {"http.response.pathsend": {}}


def _only_makes_coroutine(app: Any) -> bool:
    """Whether none of the application's code runs before the coroutine that a call gives does."""
    call = app if isinstance(app, FunctionType | MethodType) else type(app).__call__
    if isinstance(call, MethodType):
        call = call.__func__
    return isinstance(call, FunctionType) and bool(call.__code__.co_flags & inspect.CO_COROUTINE)


_EVERYTHING: Final = ((None, "/", None, True), (None, "/{path:path}", None, True))

_OF_THE_SERVER: Final = frozenset({"/health", "/live", "/metrics", "/ready"})
"""What the server answers itself unless the application has it."""

LaneRoute = tuple[list[str] | None, str, Plan | None, bool]
"""Methods or None for all, pattern, plan or None for ASGI, and whether there is a WebSocket."""


def paths_without_slash(app: Any) -> list[str]:
    """Returns the paths of an application of ours that no request can have."""
    from justapi.app import JustAPIApp

    if not isinstance(app, JustAPIApp):
        return []
    routes = [route for route in app.routes if not isinstance(route, Mount)]
    return [route.path for route in routes if lacks_slash(route.path)]


def routes_of(app: Any) -> list[LaneRoute]:
    """Lists the routes of an application for its lane.

    What the lane cannot answer from a plan it hands to the application over ASGI: everything,
    when there is middleware that takes Python; else mounted applications, plain routes,
    WebSockets, and what no route answers where the application has its own words for that.
    """
    from justapi.app import JustAPIApp

    if not isinstance(app, JustAPIApp):
        return list(_EVERYTHING)
    if app.has_python_middleware:
        own = sorted(_OF_THE_SERVER.intersection(route.path for route in app.routes))
        return [*_EVERYTHING, *((None, path, None, False) for path in own)]
    http: dict[str, list[tuple[list[str] | None, str, Plan | None]]] = {}
    taken: dict[str, set[str]] = {}
    sockets: dict[str, str] = {}
    needs_rest = app.refuses_by_itself or app.router.default is not None
    for route in app.routes:
        if isinstance(route, Mount):
            # It may overlap with anything, so it is left to the application's own order.
            needs_rest = True
            continue
        pattern = core_pattern(route.path)
        if pattern is None:
            needs_rest = True
            continue
        key = route_key(route.path)
        if isinstance(route, WebSocketRoute | APIWebSocketRoute):
            sockets.setdefault(key, pattern)
            continue
        methods = route.methods
        if methods is None:
            needs_rest = True
            continue
        used = taken.setdefault(key, set())
        free = [method for method in methods if method not in used]
        used.update(free)
        if free:
            plan = app.plan_of(route) if isinstance(route, APIRoute) else None
            http.setdefault(key, []).append((free, pattern, plan))
    routes: list[LaneRoute] = []
    for key, entries in http.items():
        has_socket = sockets.pop(key, None) is not None
        for methods, path, plan in entries:
            routes.append((methods, path, plan, has_socket and "GET" in (methods or ())))
        if has_socket and not any("GET" in (methods or ()) for methods, _, _ in entries):
            routes.append((["GET"], entries[0][1], None, True))
    # A request that asks for no socket finds nothing there, whatever its method; what takes
    # everything would also take what belongs to the server.
    routes.extend(
        (["GET"] if path == _EVERYTHING[1][1] else None, path, None, True)
        for path in sockets.values()
    )
    for methods, path, _, _ in list(routes):
        if path.endswith(":path}"):
            # The parameter may be empty, which core's router does not know.
            bare = path[: path.rindex("{")]
            if all(route_key(known) != route_key(bare) for _, known, _, _ in routes):
                routes.append((methods, bare, None, False))
    if needs_rest:
        routes.extend(_rest(routes))
    return routes


def _rest(routes: list[LaneRoute]) -> list[LaneRoute]:
    """Routes for everything that is left, other methods of known paths among it."""
    known = {route_key(path) for methods, path, _, _ in routes if methods is None}
    return [entry for entry in _EVERYTHING if route_key(entry[1]) not in known]


async def answer(response: Any, exchange: _core.Exchange) -> None:
    """Has a response send itself, then runs what comes after it."""
    await answer_over_asgi(response, exchange.scope, exchange.receive, exchange.send)


async def bind_and_call(
    bind: Callable[..., Any],
    target: Callable[..., Any],
    kind: int,
    exchange: _core.Exchange,
    body: bytes,
) -> Any:
    """Binds the arguments of a route whose binding waits, and calls its target."""
    bound = await bind(exchange, body)
    if is_response(bound):
        return bound
    if kind == Kind.THREAD:
        return await run_in_threadpool(target, *bound)
    result = target(*bound)
    return await result if kind == Kind.ASYNC else result


async def wait_for(awaitable: Any) -> Any:
    """Waits for any awaitable."""
    return await awaitable


async def run_app(app: ASGIApp, exchange: _core.Exchange) -> None:
    """Calls an ASGI application for a request."""
    await app(exchange.scope, exchange.receive, exchange.send)


async def run_socket(app: ASGIApp, socket: _core.Socket) -> None:
    """Calls an ASGI application for a WebSocket, and closes it in the end."""
    has_failed = True
    try:
        await app(socket.scope, socket.receive, socket.send)
        has_failed = False
    finally:
        socket.finish(has_failed)


def log(error: BaseException) -> None:
    """Shows an exception that nobody handled."""
    if isinstance(error, ClientDisconnect | WebSocketDisconnect | asyncio.CancelledError):
        return
    logger.error("Exception in an application", exc_info=error)


def say_demoted(route: Any) -> None:
    """Says, once for each route, that its handler is called in threads from now on."""
    logger.warning(
        "%s %s blocks its thread and is called in the thread pool from now on; "
        "blocking=True says so at once, blocking=False keeps it where it is",
        "|".join(route.methods),
        route.path,
    )


def start_after(response: Any, witness: Any) -> None:
    """Starts what follows an answer that was sent; a witness hears of its end."""
    task = asyncio.get_running_loop().create_task(_follow(response, witness))
    _running.tasks.add(task)
    task.add_done_callback(_running.tasks.discard)


async def _follow(response: Any, witness: Any) -> None:
    try:
        try:
            if response.background is not None:
                await response.background()
        finally:
            if response._after is not None:
                await response._after()
    except Exception as error:
        if witness is not None:
            witness.failed(error)
        log(error)
    finally:
        if witness is not None:
            witness.end(response)


async def finish_background(timeout: float) -> None:
    """Waits for what runs on this loop after its answer, then cancels it."""
    if _running.tasks:
        _, late = await asyncio.wait(set(_running.tasks), timeout=timeout)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1)


def body_error(status: int, detail: str) -> Exception:
    """Makes the exception of a body that breaks a limit."""
    return HTTPException(status, detail)
