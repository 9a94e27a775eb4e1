"""Finds the route of an ASGI connection and answers it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, unquote

from justapi._api_route import APIRoute
from justapi._asgi import AsgiExchange, answer, run_plan
from justapi._callables import is_async_callable
from justapi._compile import Compiled
from justapi._inputs import connection_of, request_of
from justapi._native import answer_over_asgi
from justapi._paths import lacks_slash, path_converters
from justapi._plain_routes import (
    APIWebSocketRoute,
    BaseRoute,
    Mount,
    Route,
    WebSocketRoute,
)
from justapi._routes import RouteTable
from justapi.concurrency import run_in_threadpool
from justapi.exceptions import StarletteHTTPException
from justapi.responses import RedirectResponse, Response
from justapi.types import ASGIApp, Message, Receive, Scope, Send
from justapi.websockets import WebSocket, WebSocketClose

if TYPE_CHECKING:
    from justapi.app import JustAPIApp

__all__ = ["Dispatcher"]

HTTPHandler: TypeAlias = Callable[[AsgiExchange], Awaitable[None]]

_RAW_ROOT = "justapi.raw_root"
"""Key of the scope: the root path of a mounted application, and the part of the raw path that
it stands for."""

_UNQUOTED = "/~:@!$&'()*+,;="


class Dispatcher:
    """The innermost ASGI application: routing, handlers, and handlers of exceptions.

    Args:
        app: The application whose routes are served, as they are now.
        routes: The routes.
    """

    def __init__(self, app: JustAPIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._http = RouteTable()
        self._websocket = RouteTable()
        self._compiled: dict[APIWebSocketRoute, Compiled] = {}
        for route in routes:
            if isinstance(route, Mount):
                self._http.add(None, f"{route.path}/{{path:path}}", route)
                self._websocket.add(None, f"{route.path}/{{path:path}}", route)
            elif lacks_slash(route.path):
                # As with FastAPI: no request has such a path.
                continue
            elif isinstance(route, WebSocketRoute | APIWebSocketRoute):
                self._websocket.add(None, route.path, route)
            else:
                self._http.add(route.methods, route.path, route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers an HTTP request or a WebSocket."""
        scope.setdefault("router", self._app.router)
        if scope["type"] == "websocket":
            await self._answer_websocket(scope, receive, send)
            return
        exchange = AsgiExchange(scope, receive, send)
        started = _Started(send)
        exchange.send = started.send
        try:
            await self._answer_http(exchange)
        except Exception as exc:
            handler = self._app.failures.find(exc)
            if handler is None:
                raise
            if started.is_started:
                raise RuntimeError(
                    "Caught handled exception, but response already started."
                ) from exc
            response = handler(request_of(exchange), exc)
            if inspect.isawaitable(response):
                response = await response
            if response is None:
                raise RuntimeError(f"The handler of {type(exc).__name__} gave no response") from exc
            await answer(response, scope, exchange.receive, started.send)
            # An exception that is raised again and again would collect tracebacks.
            exc.__traceback__ = None

    async def _answer_http(self, exchange: AsgiExchange) -> None:
        scope = exchange.scope
        method: str = scope["method"]
        path = _split_path(scope)[1]
        outcome = self._http.find(method, path)
        kind = outcome[0]
        if kind == "found":
            await self._run(outcome[1], outcome[2], exchange)
        elif kind == "redirect" and self._app.router.redirect_slashes:
            await self._redirect(outcome[1], exchange)
        elif kind == "method_not_allowed":
            raise StarletteHTTPException(405, headers={"Allow": ", ".join(outcome[1])})
        elif kind == "options":
            response = Response(status_code=204, headers={"Allow": ", ".join(outcome[1])})
            await response(scope, exchange.receive, exchange.send)
        elif kind == "bad_path":
            raise StarletteHTTPException(400, "the path is not percent-encoded UTF-8")
        elif self._app.router.default is not None:
            await self._app.router.default(scope, exchange.receive, exchange.send)
        else:
            raise StarletteHTTPException(404)

    async def _run(self, route: BaseRoute, params: dict[str, str], exchange: AsgiExchange) -> None:
        scope = exchange.scope
        if isinstance(route, Mount):
            _enter_mount(route, scope, params)
            await route.app(scope, exchange.receive, exchange.send)
            return
        if isinstance(route, WebSocketRoute | APIWebSocketRoute):
            raise AssertionError(f"{route!r} does not answer HTTP")
        _set_route(scope, route, params)
        if scope["method"] == "HEAD" and "HEAD" not in (route.methods or ()):
            exchange.send = _without_body(exchange.send)
        if isinstance(route, Route):
            await _run_plain_route(route, exchange)
            return
        plan = self._app.plan_of(route)
        if plan.native is not None:
            await answer_over_asgi(plan, exchange)
            return
        response = await run_plan(plan, exchange)
        await answer(response, scope, exchange.receive, exchange.send)

    async def _redirect(self, path: str, exchange: AsgiExchange) -> None:
        scope = exchange.scope
        location = quote(scope.get("root_path", ""), safe="/%") + path
        query = scope.get("query_string", b"").decode("latin-1")
        if query:
            location = f"{location}?{query}"
        response = RedirectResponse(location)
        await response(scope, exchange.receive, exchange.send)

    async def _answer_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _split_path(scope)[1]
        outcome = self._websocket.find("GET", path)
        if outcome[0] != "found":
            await WebSocketClose()(scope, receive, send)
            return
        route: BaseRoute = outcome[1]
        if isinstance(route, Mount):
            _enter_mount(route, scope, outcome[2])
            await route.app(scope, receive, send)
            return
        exchange = AsgiExchange(scope, receive, send)
        _set_route(scope, route, outcome[2])
        try:
            if isinstance(route, APIWebSocketRoute):
                await self._run_websocket(route, exchange)
            elif isinstance(route, WebSocketRoute):
                await _run_plain_websocket(route, exchange)
        except Exception as exc:
            handler = self._app.failures.find(exc)
            if handler is None:
                raise
            response = handler(connection_of(exchange), exc)
            if inspect.isawaitable(response):
                response = await response
            if response is not None:
                await response(scope, receive, send)

    async def _run_websocket(self, route: APIWebSocketRoute, exchange: AsgiExchange) -> None:
        compiled = self._compiled.get(route)
        if compiled is None:
            compiled = route.compile(self._app.dependency_overrides)
            self._compiled[route] = compiled
        bound: Any = compiled.binder.bind(exchange, b"")
        if compiled.binder.is_async:
            bound = await bound
        result = compiled.target(*bound)
        if inspect.isawaitable(result):
            await result


def _set_route(
    scope: Scope,
    route: APIRoute | Route | WebSocketRoute | APIWebSocketRoute,
    params: dict[str, str],
) -> None:
    """Notes in the scope which route was found, and the values of its path parameters."""
    values: dict[str, Any] = {**scope.get("path_params", {}), **params}
    for name, convert in path_converters(route.param_convertors).items():
        values[name] = convert(params[name])
    scope["path_params"] = values
    scope["route"] = route
    scope["endpoint"] = route.endpoint


class _Started:
    """Notes whether a response has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_started = True
        await self._send(message)


def _without_body(send: Send) -> Send:
    """Sends the head of the response to a GET as the response to a HEAD."""

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            if message.get("more_body", False):
                return
            message = {**message, "body": b""}
        elif message["type"] == "http.response.pathsend":
            message = {"type": "http.response.body", "body": b""}
        await send(message)

    return send_head


async def _run_plain_route(route: Route, exchange: AsgiExchange) -> None:
    if not route.is_function:
        app: ASGIApp = route.endpoint
        await app(exchange.scope, exchange.receive, exchange.send)
        return
    request = request_of(exchange)
    if is_async_callable(route.endpoint):
        response = await route.endpoint(request)
    else:
        response = await run_in_threadpool(route.endpoint, request)
    await answer(response, exchange.scope, exchange.receive, exchange.send)


async def _run_plain_websocket(route: WebSocketRoute, exchange: AsgiExchange) -> None:
    if not route.is_function:
        app: ASGIApp = route.endpoint
        await app(exchange.scope, exchange.receive, exchange.send)
        return
    exchange.context = WebSocket(exchange.scope, exchange.receive, exchange.send)
    await route.endpoint(exchange.context)


def _split_path(scope: Scope) -> tuple[bytes, bytes]:
    """Splits the percent-encoded path at the application's root."""
    raw: bytes | None = scope.get("raw_path")
    encoded = quote(scope["path"], safe=_UNQUOTED).encode() if raw is None else raw.split(b"?")[0]
    root_path: str = scope.get("root_path", "")
    if not root_path:
        return b"", encoded
    known, raw_root = scope.get(_RAW_ROOT, (None, b""))
    root = raw_root if known == root_path else quote(root_path, safe=_UNQUOTED).encode()
    # A proxy may have taken the root off already.
    if encoded == root or (encoded.startswith(root) and encoded[len(root) :].startswith(b"/")):
        return root, encoded[len(root) :]
    return b"", encoded


def _enter_mount(mount: Mount, scope: Scope, params: dict[str, str]) -> None:
    """Moves the root of the scope down to a mounted application."""
    root, rest = _split_path(scope)
    # The pattern matches segment by segment, whatever their lengths.
    num_segments = mount.path.count("/")
    matched = b"/".join(rest.split(b"/")[: num_segments + 1])
    params.pop("path", None)
    scope["path_params"] = {**scope.get("path_params", {}), **params}
    root_path: str = scope.get("root_path", "")
    scope.setdefault("app_root_path", root_path)
    scope["root_path"] = root_path + unquote(matched.decode("latin-1"))
    scope[_RAW_ROOT] = (scope["root_path"], root + matched)
    scope["endpoint"] = mount.app
