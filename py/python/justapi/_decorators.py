"""The decorators that applications and routers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from typing_extensions import Unpack, deprecated

from justapi import params
from justapi._api_route import RouteOptions

__all__ = ["Decorators"]

F = TypeVar("F", bound=Callable[..., Any])


class Decorators(ABC):
    """Decorators that declare routes."""

    @abstractmethod
    def add_api_route(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        methods: Sequence[str] | None = None,
        **options: Unpack[RouteOptions],
    ) -> None:
        """Adds a path operation; see `APIRouter.add_api_route`."""

    @abstractmethod
    def add_api_websocket_route(
        self,
        path: str,
        endpoint: Callable[..., Any],
        name: str | None = None,
        *,
        dependencies: Sequence[params.Depends] | None = None,
    ) -> None:
        """Adds a WebSocket; see `APIRouter.add_api_websocket_route`."""

    @abstractmethod
    def add_route(
        self,
        path: str,
        endpoint: Callable[..., Any],
        methods: Sequence[str] | None = None,
        name: str | None = None,
        include_in_schema: bool = True,
    ) -> None:
        """Adds a function of the request; see `APIRouter.add_route`."""

    @abstractmethod
    def add_websocket_route(
        self, path: str, endpoint: Callable[..., Any], name: str | None = None
    ) -> None:
        """Adds a function of the WebSocket; see `APIRouter.add_websocket_route`."""

    @abstractmethod
    def add_event_handler(self, event_type: str, func: Callable[[], Any]) -> None:
        """Adds a function for start-up or shutdown; see `APIRouter.add_event_handler`."""

    def api_route(
        self,
        path: str,
        *,
        methods: Sequence[str] | None = None,
        **options: Unpack[RouteOptions],
    ) -> Callable[[F], F]:
        """Declares a path operation for several methods.

        Args:
            path: Pattern of the path.
            methods: The methods; `GET` by default.
            **options: See `RouteOptions`.

        Raises:
            AssertionError: A parameter is declared in a way that cannot work.
            JustAPIError: A type cannot be validated.
            ValueError: A native route has something that needs Python.

        Example:
            >>> @app.api_route("/echo", methods=["GET", "POST"])
            ... def echo(request: Request):
            ...     return request.method
            >>> client.post("/echo").json()
            'POST'
        """

        def decorator(func: F) -> F:
            self.add_api_route(path, func, methods=methods, **options)
            return func

        return decorator

    def get(self, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declares a path operation for `GET`, which answers `HEAD`, too.

        Args:
            path: Pattern of the path.
            **options: See `RouteOptions`.

        Raises:
            AssertionError: A parameter is declared in a way that cannot work.
            JustAPIError: A type cannot be validated.
            ValueError: A native route has something that needs Python.

        Example:
            >>> @app.get("/items/{item_id}")
            ... async def read_item(item_id: int, q: str | None = None):
            ...     return {"item_id": item_id, "q": q}
        """
        return self.api_route(path, methods=["GET"], **options)

    def put(self, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declares a path operation for `PUT`; see `get`."""
        return self.api_route(path, methods=["PUT"], **options)

    def post(self, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declares a path operation for `POST`; see `get`."""
        return self.api_route(path, methods=["POST"], **options)

    def delete(self, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declares a path operation for `DELETE`; see `get`."""
        return self.api_route(path, methods=["DELETE"], **options)

    def options(self, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declares a path operation for `OPTIONS`; see `get`."""
        return self.api_route(path, methods=["OPTIONS"], **options)

    def head(self, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declares a path operation for `HEAD`; see `get`."""
        return self.api_route(path, methods=["HEAD"], **options)

    def patch(self, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declares a path operation for `PATCH`; see `get`."""
        return self.api_route(path, methods=["PATCH"], **options)

    def trace(self, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
        """Declares a path operation for `TRACE`; see `get`."""
        return self.api_route(path, methods=["TRACE"], **options)

    def websocket(
        self,
        path: str,
        name: str | None = None,
        *,
        dependencies: Sequence[params.Depends] | None = None,
    ) -> Callable[[F], F]:
        """Declares a WebSocket.

        Args:
            path: Pattern of the path.
            name: Name for `url_for`.
            dependencies: Dependencies whose results nobody takes.

        Example:
            >>> @app.websocket("/ws")
            ... async def echo(websocket: WebSocket):
            ...     await websocket.accept()
            ...     async for text in websocket.iter_text():
            ...         await websocket.send_text(text)
        """

        def decorator(func: F) -> F:
            self.add_api_websocket_route(path, func, name, dependencies=dependencies)
            return func

        return decorator

    def route(
        self,
        path: str,
        methods: Sequence[str] | None = None,
        name: str | None = None,
        include_in_schema: bool = True,
    ) -> Callable[[F], F]:
        """Declares a function of the request.

        Args:
            path: Pattern of the path.
            methods: The methods; `GET` by default.
            name: Name for `url_for`.
            include_in_schema: Kept for code that looks at routes.
        """

        def decorator(func: F) -> F:
            self.add_route(path, func, methods, name, include_in_schema)
            return func

        return decorator

    def websocket_route(self, path: str, name: str | None = None) -> Callable[[F], F]:
        """Declares a function of the WebSocket.

        Args:
            path: Pattern of the path.
            name: Name for `url_for`.
        """

        def decorator(func: F) -> F:
            self.add_websocket_route(path, func, name)
            return func

        return decorator

    @deprecated("on_event is deprecated, use lifespan instead")
    def on_event(self, event_type: str) -> Callable[[F], F]:
        """Declares a function that runs at start-up or shutdown.

        Args:
            event_type: `startup` or `shutdown`.
        """

        def decorator(func: F) -> F:
            self.add_event_handler(event_type, func)
            return func

        return decorator
