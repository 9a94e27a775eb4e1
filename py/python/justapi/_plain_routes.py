"""Routes beside path operations: plain functions, WebSockets and mounted applications."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from justapi import params
from justapi._api_route import APIRoute, endpoint_context, endpoint_name
from justapi._compile import Compiled, compile_target
from justapi._paths import NoMatchFound, compile_path, fill_path, path_converters
from justapi.datastructures import URLPath
from justapi.dependencies import (
    add_parameterless,
    flat_body_params,
    get_dependant,
    override,
    should_embed_body,
)
from justapi.types import ASGIApp

__all__ = ["APIWebSocketRoute", "BaseRoute", "Mount", "Route", "WebSocketRoute"]

Overrides: TypeAlias = Mapping[Callable[..., Any], Callable[..., Any]]


class _Named:
    """A route with a pattern and a name."""

    _protocol: Any = "http"

    def __init__(self, path: str, name: str) -> None:
        if not path.startswith("/"):
            raise AssertionError("Routed paths must start with '/'")
        self.path = path
        self.name = name
        self.path_format, self.param_convertors = compile_path(path)

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        """Makes the path of this route.

        Raises:
            NoMatchFound: The name or the parameters are another route's.
        """
        if name != self.name or set(path_params) != set(self.param_convertors):
            raise NoMatchFound(name, path_params)
        path, _ = fill_path(self.path_format, self.param_convertors, path_params)
        return URLPath(path=path, protocol=self._protocol)


class Route(_Named):
    """A function of the request, or an ASGI application, at a path; not in the document.

    Args:
        path: Pattern of the path.
        endpoint: `func(request)` that returns a response, or an ASGI application.
        methods: Methods; `GET` for functions and all of them for applications by default.
        name: Name for `url_for`.
        include_in_schema: Kept for code that looks at routes.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        methods: Sequence[str] | None = None,
        name: str | None = None,
        include_in_schema: bool = True,
    ) -> None:
        super().__init__(path, endpoint_name(endpoint) if name is None else name)
        self.endpoint = endpoint
        self.include_in_schema = include_in_schema
        self.is_function = inspect.isfunction(endpoint) or inspect.ismethod(endpoint)
        if methods is None and self.is_function:
            methods = ["GET"]
        self.methods: list[str] | None = (
            None if methods is None else [method.upper() for method in methods]
        )


class WebSocketRoute(_Named):
    """A function of the WebSocket, or an ASGI application, at a path.

    Args:
        path: Pattern of the path.
        endpoint: `func(websocket)`, or an ASGI application.
        name: Name for `url_for`.
    """

    _protocol = "websocket"

    def __init__(self, path: str, endpoint: Callable[..., Any], *, name: str | None = None) -> None:
        super().__init__(path, endpoint_name(endpoint) if name is None else name)
        self.endpoint = endpoint
        self.is_function = inspect.isfunction(endpoint) or inspect.ismethod(endpoint)


class APIWebSocketRoute(_Named):
    """A WebSocket handler with parameters and dependencies.

    Args:
        path: Pattern of the path.
        endpoint: The handler.
        name: Name for `url_for`.
        dependencies: Dependencies whose results nobody takes.
    """

    _protocol = "websocket"

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        name: str | None = None,
        dependencies: Sequence[params.Depends] | None = None,
    ) -> None:
        super().__init__(path, endpoint_name(endpoint) if name is None else name)
        self.endpoint = endpoint
        self.dependencies = list(dependencies or [])
        self.dependant = get_dependant(path=self.path_format, call=endpoint, scope="function")
        add_parameterless(self.dependant, self.dependencies, self.path_format)

    def compile(self, overrides: Overrides | None = None) -> Compiled:
        """Compiles the handler.

        Args:
            overrides: The dependencies to exchange.
        """
        dependant = override(self.dependant, overrides) if overrides else self.dependant
        return compile_target(
            dependant,
            responder=None,
            embed=should_embed_body(flat_body_params(dependant)),
            blocking=None,
            strict_content_type=True,
            path_converters=path_converters(self.param_convertors),
            form_limits={},
            context=endpoint_context(self.endpoint, f"WS {self.path}"),
            is_websocket=True,
        )


class Mount:
    """An ASGI application below a path.

    Args:
        path: The path, without a slash at its end.
        app: The application.
        name: Name for `url_for`; routes of the application are `name:route`.
        routes: Routes to make an application of, when there is no `app`.
    """

    def __init__(
        self,
        path: str,
        app: ASGIApp | None = None,
        name: str | None = None,
        routes: Sequence[BaseRoute] | None = None,
    ) -> None:
        if path != "" and not path.startswith("/"):
            raise AssertionError("Routed paths must start with '/'")
        if app is None:
            if routes is None:
                raise AssertionError("Either 'app=...', or 'routes=' must be specified")
            from justapi.app import JustAPIApp

            app = JustAPIApp(routes=list(routes), openapi_url=None)
        self.path = path.rstrip("/")
        self.app: ASGIApp = app
        self.name = name
        self.path_format, self.param_convertors = compile_path(self.path + "/{path:path}")

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes of the application, if it has any."""
        return list(getattr(self.app, "routes", None) or [])

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        """Makes the path of the mounted application, or of one of its routes.

        Raises:
            NoMatchFound: Neither has this name and these parameters.
        """
        if self.name is not None and name == self.name and "path" in path_params:
            path_params["path"] = str(path_params["path"]).lstrip("/")
            path, rest = fill_path(self.path_format, self.param_convertors, path_params)
            if not rest:
                return URLPath(path=path)
        elif self.name is None or name.startswith(self.name + ":"):
            inner_name = name if self.name is None else name[len(self.name) + 1 :]
            own = {**path_params, "path": ""}
            prefix, rest = fill_path(self.path_format, self.param_convertors, own)
            if "path" in path_params:
                rest["path"] = path_params["path"]
            for route in self.routes:
                try:
                    url = route.url_path_for(inner_name, **rest)
                except Exception as error:
                    # A mounted application of another framework has its own class.
                    if type(error).__name__ != NoMatchFound.__name__:
                        raise
                    continue
                return URLPath(path=prefix.rstrip("/") + str(url), protocol=url.protocol)
        raise NoMatchFound(name, path_params)


BaseRoute: TypeAlias = APIRoute | Route | WebSocketRoute | APIWebSocketRoute | Mount
