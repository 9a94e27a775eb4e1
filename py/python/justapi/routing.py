"""Routers: path operations, WebSockets and mounted applications that belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from typing_extensions import Unpack

from justapi import params
from justapi._api_route import APIRoute, RouteOptions, endpoint_name
from justapi._decorators import Decorators
from justapi._paths import NoMatchFound
from justapi._plain_routes import (
    APIWebSocketRoute,
    BaseRoute,
    Mount,
    Route,
    WebSocketRoute,
)
from justapi._route_limits import checked_body_limit, checked_form_limits
from justapi.datastructures import URLPath
from justapi.exceptions import JustAPIError
from justapi.lifespan import LifespanContext, as_context, from_handlers, merge
from justapi.responses import Response
from justapi.types import ASGIApp

__all__ = [
    "APIRoute",
    "APIRouter",
    "APIWebSocketRoute",
    "BaseRoute",
    "Mount",
    "NoMatchFound",
    "Route",
    "RouteOptions",
    "WebSocketRoute",
]


@dataclass(frozen=True)
class _Context:
    """What routers and inclusions add to the routes below them.

    Attributes:
        prefix: Put before the path; the lists are put before the route's own.
        defaults: Options for routes that do not have them.
    """

    prefix: str
    tags: list[str | Enum]
    dependencies: list[params.Depends]
    responses: dict[int | str, dict[str, Any]]
    callbacks: list[BaseRoute]
    defaults: RouteOptions
    deprecated: bool | None
    include_in_schema: bool

    def merged(self, given: RouteOptions) -> RouteOptions:
        """Returns the options of a route with these added."""
        options: RouteOptions = {**self.defaults, **given}
        if self.tags:
            options["tags"] = [*self.tags, *(given.get("tags") or [])]
        if self.dependencies:
            options["dependencies"] = [*self.dependencies, *(given.get("dependencies") or [])]
        if self.responses:
            options["responses"] = {**self.responses, **(given.get("responses") or {})}
        if self.callbacks:
            options["callbacks"] = [*self.callbacks, *(given.get("callbacks") or [])]
        if self.deprecated:
            options["deprecated"] = True
        if not self.include_in_schema:
            options["include_in_schema"] = False
        return options

    @property
    def changes_nothing(self) -> bool:
        """Whether routes stay as they are."""
        return not (
            self.prefix
            or self.tags
            or self.dependencies
            or self.responses
            or self.callbacks
            or self.defaults
            or self.deprecated
            or not self.include_in_schema
        )

    def apply(self, route: BaseRoute) -> BaseRoute:
        """Returns a route as it is inside of this."""
        if self.changes_nothing:
            return route
        if isinstance(route, APIRoute):
            return type(route)(
                self.prefix + route.path,
                route.endpoint,
                methods=route.methods,
                **self.merged(route.given),
            )
        if isinstance(route, APIWebSocketRoute):
            return APIWebSocketRoute(
                self.prefix + route.path,
                route.endpoint,
                name=route.name,
                dependencies=[*self.dependencies, *route.dependencies],
            )
        if isinstance(route, Route):
            return Route(
                self.prefix + route.path,
                route.endpoint,
                methods=route.methods,
                name=route.name,
                include_in_schema=route.include_in_schema,
            )
        if isinstance(route, WebSocketRoute):
            return WebSocketRoute(self.prefix + route.path, route.endpoint, name=route.name)
        return Mount(self.prefix + route.path, route.app, route.name)


@dataclass(frozen=True)
class _Include:
    """A router that was included in another."""

    router: APIRouter
    context: _Context


class APIRouter(Decorators):
    """Path operations that belong together, to be included in an application.

    Args:
        prefix: Put before all paths.
        tags: Put before the tags of all operations.
        dependencies: Called before those of all operations.
        default_response_class: Class of answers that say nothing else.
        responses: More answers of all operations, for the document.
        callbacks: Callbacks of all operations, for the document.
        routes: Routes to begin with.
        redirect_slashes: Whether a path that differs by its last slash is redirected.
        default: ASGI application for what no route answers.
        dependency_overrides_provider: Kept for code that looks at routers.
        route_class: Class of the operations.
        on_startup: Called when the application starts.
        on_shutdown: Called when the application stops.
        lifespan: What runs around the application's life.
        deprecated: Marks all operations as deprecated.
        include_in_schema: Whether the document shows the operations.
        generate_unique_id_function: Makes the ids of operations.
        strict_content_type: Whether a body without content type is not taken for JSON.
        max_body_size: Limit of all bodies in bytes.
        form_limits: Arguments of `Request.form` for all operations.

    Example:
        >>> router = APIRouter(prefix="/items", tags=["items"])
        >>> @router.get("/{item_id}")
        ... def read_item(item_id: int): ...
        >>> app.include_router(router)
    """

    def __init__(
        self,
        *,
        prefix: str = "",
        tags: Sequence[str | Enum] | None = None,
        dependencies: Sequence[params.Depends] | None = None,
        default_response_class: type[Response] | None = None,
        responses: Mapping[int | str, dict[str, Any]] | None = None,
        callbacks: Sequence[BaseRoute] | None = None,
        routes: Sequence[BaseRoute] | None = None,
        redirect_slashes: bool = True,
        default: ASGIApp | None = None,
        dependency_overrides_provider: Any | None = None,
        route_class: type[APIRoute] = APIRoute,
        on_startup: Sequence[Callable[[], Any]] | None = None,
        on_shutdown: Sequence[Callable[[], Any]] | None = None,
        lifespan: Any | None = None,
        deprecated: bool | None = None,
        include_in_schema: bool = True,
        generate_unique_id_function: Callable[[Any], str] | None = None,
        strict_content_type: bool | None = None,
        max_body_size: int | None = None,
        form_limits: Mapping[str, Any] | None = None,
    ) -> None:
        if prefix:
            if not prefix.startswith("/"):
                raise AssertionError("A path prefix must start with '/'")
            if prefix.endswith("/"):
                raise AssertionError(
                    "A path prefix must not end with '/', as the routes will start with '/'"
                )
        self.prefix = prefix
        self.tags: list[str | Enum] = list(tags or [])
        self.dependencies: list[params.Depends] = list(dependencies or [])
        self.default_response_class = default_response_class
        self.responses: dict[int | str, dict[str, Any]] = dict(responses or {})
        self.callbacks: list[BaseRoute] = list(callbacks or [])
        self.redirect_slashes = redirect_slashes
        self.default = default
        self.dependency_overrides_provider = dependency_overrides_provider
        self.route_class = route_class
        self.deprecated = deprecated
        self.include_in_schema = include_in_schema
        self.generate_unique_id_function = generate_unique_id_function
        self.strict_content_type = strict_content_type
        self.max_body_size = checked_body_limit(max_body_size)
        self.form_limits = checked_form_limits(form_limits)
        self.on_startup: list[Callable[[], Any]] = list(on_startup or [])
        self.on_shutdown: list[Callable[[], Any]] = list(on_shutdown or [])
        self.lifespan_context: LifespanContext = (
            from_handlers(self.on_startup, self.on_shutdown)
            if lifespan is None
            else as_context(lifespan)
        )
        self.has_lifespan = lifespan is not None
        self._entries: list[BaseRoute | _Include] = list(routes or [])
        for route in self._entries:
            if not isinstance(route, BaseRoute):
                raise TypeError(f"{route!r} is no route of justapi")
        self._version = 0
        self._flat: tuple[int, list[BaseRoute]] | None = None

    def _defaults(self) -> RouteOptions:
        """Returns the options that this router gives to routes without them."""
        defaults: RouteOptions = {}
        if self.default_response_class is not None:
            defaults["response_class"] = self.default_response_class
        if self.generate_unique_id_function is not None:
            defaults["generate_unique_id_function"] = self.generate_unique_id_function
        if self.strict_content_type is not None:
            defaults["strict_content_type"] = self.strict_content_type
        if self.max_body_size is not None:
            defaults["max_body_size"] = self.max_body_size
        if self.form_limits:
            defaults["form_limits"] = self.form_limits
        return defaults

    @property
    def _context(self) -> _Context:
        """What this router adds to routes that are declared on it."""
        return _Context(
            prefix=self.prefix,
            tags=self.tags,
            dependencies=self.dependencies,
            responses=self.responses,
            callbacks=self.callbacks,
            defaults=self._defaults(),
            deprecated=self.deprecated,
            include_in_schema=self.include_in_schema,
        )

    def add_api_route(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        methods: Sequence[str] | None = None,
        **options: Unpack[RouteOptions],
    ) -> None:
        """Adds a path operation.

        Args:
            path: Pattern of the path.
            endpoint: The handler.
            methods: The methods; `GET` by default.
            **options: See `RouteOptions`.

        Raises:
            AssertionError: A parameter is declared in a way that cannot work.
            JustAPIError: A type cannot be validated.
            ValueError: A native route has something that needs Python.
        """
        merged = self._context.merged(options)
        self._add(self.route_class(self.prefix + path, endpoint, methods=methods, **merged))

    def add_api_websocket_route(
        self,
        path: str,
        endpoint: Callable[..., Any],
        name: str | None = None,
        *,
        dependencies: Sequence[params.Depends] | None = None,
    ) -> None:
        """Adds a WebSocket.

        Args:
            path: Pattern of the path.
            endpoint: The handler.
            name: Name for `url_for`.
            dependencies: Dependencies whose results nobody takes.
        """
        self._add(
            APIWebSocketRoute(
                self.prefix + path,
                endpoint,
                name=name,
                dependencies=[*self.dependencies, *(dependencies or [])],
            )
        )

    def add_route(
        self,
        path: str,
        endpoint: Callable[..., Any],
        methods: Sequence[str] | None = None,
        name: str | None = None,
        include_in_schema: bool = True,
    ) -> None:
        """Adds a function of the request, or an ASGI application, without the framework's help.

        Args:
            path: Pattern of the path.
            endpoint: `func(request)` that returns a response, or an ASGI application.
            methods: The methods.
            name: Name for `url_for`.
            include_in_schema: Kept for code that looks at routes.
        """
        self._add(
            Route(
                self.prefix + path,
                endpoint,
                methods=methods,
                name=name,
                include_in_schema=include_in_schema,
            )
        )

    def add_websocket_route(
        self, path: str, endpoint: Callable[..., Any], name: str | None = None
    ) -> None:
        """Adds a function of the WebSocket, or an ASGI application.

        Args:
            path: Pattern of the path.
            endpoint: `func(websocket)`, or an ASGI application.
            name: Name for `url_for`.
        """
        self._add(WebSocketRoute(self.prefix + path, endpoint, name=name))

    def mount(self, path: str, app: ASGIApp, name: str | None = None) -> None:
        """Puts an ASGI application below a path.

        Args:
            path: The path.
            app: The application.
            name: Name for `url_for`.
        """
        self._add(Mount(self.prefix + path, app, name))

    def _add(self, route: BaseRoute | _Include) -> None:
        self._entries.append(route)
        self._version += 1

    def _contains(self, router: APIRouter) -> bool:
        return any(
            entry.router is router or entry.router._contains(router)
            for entry in self._entries
            if isinstance(entry, _Include)
        )

    def include_router(
        self,
        router: APIRouter,
        *,
        prefix: str = "",
        tags: Sequence[str | Enum] | None = None,
        dependencies: Sequence[params.Depends] | None = None,
        default_response_class: type[Response] | None = None,
        responses: Mapping[int | str, dict[str, Any]] | None = None,
        callbacks: Sequence[BaseRoute] | None = None,
        deprecated: bool | None = None,
        include_in_schema: bool = True,
        generate_unique_id_function: Callable[[Any], str] | None = None,
        max_body_size: int | None = None,
        form_limits: Mapping[str, Any] | None = None,
    ) -> None:
        """Takes in the routes of another router, also those that are added to it later.

        Args:
            router: The other router.
            prefix: Put before the paths.
            tags: Put before the tags.
            dependencies: Called before those of the other router.
            default_response_class: Class of answers that say nothing else.
            responses: More answers, for the document.
            callbacks: More callbacks, for the document.
            deprecated: Marks all operations as deprecated.
            include_in_schema: Whether the document shows the operations.
            generate_unique_id_function: Makes ids of operations that have no own function.
            max_body_size: Limit of bodies without one.
            form_limits: Arguments of `Request.form` for operations without them.

        Raises:
            AssertionError: The prefix is malformed, or the routers would include each other.
            JustAPIError: A route would have neither prefix nor path.

        Example:
            >>> items, api = APIRouter(prefix="/items"), APIRouter()
            >>> @items.get("/{item_id}")
            ... def read_item(item_id: int):
            ...     return item_id
            >>> api.include_router(items, prefix="/v1", tags=["items"])
            >>> app.include_router(api)
            >>> client.get("/v1/items/3").json()
            3
        """
        if router is self or router._contains(self):
            raise AssertionError("Cannot include an APIRouter instance into itself")
        if prefix:
            if not prefix.startswith("/"):
                raise AssertionError("A path prefix must start with '/'")
            if prefix.endswith("/"):
                raise AssertionError(
                    "A path prefix must not end with '/', as the routes will start with '/'"
                )
        else:
            for route in router.routes:
                if not route.path and not isinstance(route, Mount):
                    raise JustAPIError(
                        f"Prefix and path cannot be both empty (path operation: {route.name})"
                    )
        defaults = self._defaults()
        if default_response_class is not None:
            defaults["response_class"] = default_response_class
        if generate_unique_id_function is not None:
            defaults["generate_unique_id_function"] = generate_unique_id_function
        if max_body_size is not None:
            defaults["max_body_size"] = checked_body_limit(max_body_size)
        if form_limits is not None:
            defaults["form_limits"] = checked_form_limits(form_limits)
        context = _Context(
            prefix=self.prefix + prefix,
            tags=[*self.tags, *(tags or [])],
            dependencies=[*self.dependencies, *(dependencies or [])],
            responses={**self.responses, **(responses or {})},
            callbacks=[*self.callbacks, *(callbacks or [])],
            defaults=defaults,
            deprecated=deprecated or self.deprecated,
            include_in_schema=include_in_schema and self.include_in_schema,
        )
        self._add(_Include(router, context))
        self.on_startup.extend(router.on_startup)
        self.on_shutdown.extend(router.on_shutdown)
        if router.has_lifespan:
            self.lifespan_context = merge(self.lifespan_context, router.lifespan_context)
            self.has_lifespan = True

    @property
    def routes_version(self) -> int:
        """A number that grows with every route that is added here or in an included router."""
        return self._version + sum(
            entry.router.routes_version for entry in self._entries if isinstance(entry, _Include)
        )

    @property
    def routes(self) -> list[BaseRoute]:
        """All routes, those of included routers with their whole paths and options."""
        version = self.routes_version
        flat = self._flat
        if flat is None or flat[0] != version:
            flat = self._flat = (version, list(self._flatten()))
        return flat[1]

    def _flatten(self) -> Iterator[BaseRoute]:
        for entry in self._entries:
            if isinstance(entry, _Include):
                for route in entry.router.routes:
                    yield entry.context.apply(route)
            else:
                yield entry

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        """Makes the path of a route.

        Args:
            name: Name of the route.
            **path_params: Its path parameters.

        Raises:
            NoMatchFound: No route has this name and these parameters.
        """
        for route in self.routes:
            try:
                return route.url_path_for(name, **path_params)
            except NoMatchFound:
                continue
        raise NoMatchFound(name, path_params)

    def add_event_handler(self, event_type: str, func: Callable[[], Any]) -> None:
        """Adds a function that runs at start-up or shutdown.

        Args:
            event_type: `startup` or `shutdown`.
            func: The function, async or not.

        Raises:
            AssertionError: The type is another.
        """
        if event_type not in ("startup", "shutdown"):
            raise AssertionError(f"unknown event {event_type!r}: not `startup` or `shutdown`")
        (self.on_startup if event_type == "startup" else self.on_shutdown).append(func)

    def __repr__(self) -> str:
        return f"{endpoint_name(type(self))}(prefix={self.prefix!r}, {len(self._entries)} entries)"
