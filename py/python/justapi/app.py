"""The application."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MethodType
from typing import Any, TypeAlias, TypeVar

from typing_extensions import Unpack

from justapi import params
from justapi._api_route import APIRoute, RouteOptions, generate_unique_id
from justapi._decorators import Decorators
from justapi._dispatch import Dispatcher
from justapi._failures import OUTSIDE, ExceptionHandler, Failures
from justapi._layers import Layer, layers_of, run_python
from justapi._overrides import DependencyOverrides, OverridesKey
from justapi._plan import Exchange, Plan
from justapi._run import Runnable
from justapi.datastructures import State, URLPath
from justapi.errors import ErrorFormat
from justapi.exceptions import StarletteHTTPException
from justapi.lifespan import run_lifespan
from justapi.middleware import Middleware
from justapi.middleware.base import BaseHTTPMiddleware
from justapi.requests import Request
from justapi.responses import Response
from justapi.routing import APIRouter, BaseRoute
from justapi.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["JustAPI", "JustAPIApp"]

F = TypeVar("F", bound=Callable[..., Any])
HandlerKey: TypeAlias = int | type[Exception]


class JustAPIApp(Decorators, Runnable):
    """An application: routes, and all that belongs to them.

    It is an ASGI 3 application, too, and can be mounted in another or run by another server.

    Args:
        debug: Whether unhandled exceptions are shown to the client.
        routes: Routes to begin with.
        title: Title of the API, for the document; likewise the others that are not named here.
        openapi_url: Path of the document; None for none, and then no pages either.
        dependencies: Called before those of all operations.
        default_response_class: Class of answers that say nothing else.
        redirect_slashes: Whether a path that differs by its last slash is redirected.
        docs_url: Path of the Swagger UI page; likewise for the two after it.
        middleware: Middleware, outermost first.
        exception_handlers: Handlers of exceptions by class or status.
        on_startup: Called when the application starts.
        on_shutdown: Called when the application stops.
        lifespan: What runs around the application's life.
        root_path: Where a proxy puts the application.
        responses: More answers of all operations, for the document.
        callbacks: Callbacks of all operations, for the document.
        webhooks: Webhooks, for the document.
        deprecated: Marks all operations as deprecated.
        include_in_schema: Whether the document shows the operations.
        generate_unique_id_function: Makes the ids of operations.
        strict_content_type: Whether a body without content type is not taken for JSON.
        max_body_size: Limit of all bodies in bytes.
        form_limits: Arguments of `Request.form` for all operations.
        error_format: `"problem"` answers errors with problem documents (RFC 9457), `"fastapi"`
            with FastAPI's `{"detail": ...}`.
        **extra: Kept in `extra`.

    Attributes:
        state: Free for the application.
        router: The router of the application's own routes.

    Example:
        >>> app = JustAPIApp()
        >>> @app.get("/")
        ... async def hello():
        ...     return {"message": "Hello"}
    """

    def __init__(
        self,
        *,
        debug: bool = False,
        routes: Sequence[BaseRoute] | None = None,
        title: str = "JustAPI",
        summary: str | None = None,
        description: str = "",
        version: str = "0.1.0",
        openapi_url: str | None = "/openapi.json",
        openapi_tags: list[dict[str, Any]] | None = None,
        servers: list[dict[str, Any]] | None = None,
        dependencies: Sequence[params.Depends] | None = None,
        default_response_class: type[Response] | None = None,
        redirect_slashes: bool = True,
        docs_url: str | None = "/docs",
        redoc_url: str | None = "/redoc",
        scalar_url: str | None = "/scalar",
        swagger_ui_oauth2_redirect_url: str | None = "/docs/oauth2-redirect",
        swagger_ui_init_oauth: dict[str, Any] | None = None,
        middleware: Sequence[Middleware] | None = None,
        exception_handlers: Mapping[Any, ExceptionHandler] | None = None,
        on_startup: Sequence[Callable[[], Any]] | None = None,
        on_shutdown: Sequence[Callable[[], Any]] | None = None,
        lifespan: Any | None = None,
        terms_of_service: str | None = None,
        contact: dict[str, Any] | None = None,
        license_info: dict[str, Any] | None = None,
        root_path: str = "",
        root_path_in_servers: bool = True,
        responses: Mapping[int | str, dict[str, Any]] | None = None,
        callbacks: Sequence[BaseRoute] | None = None,
        webhooks: APIRouter | None = None,
        deprecated: bool | None = None,
        include_in_schema: bool = True,
        swagger_ui_parameters: dict[str, Any] | None = None,
        generate_unique_id_function: Callable[[Any], str] = generate_unique_id,
        separate_input_output_schemas: bool = True,
        openapi_external_docs: dict[str, Any] | None = None,
        strict_content_type: bool = True,
        max_body_size: int | None = None,
        form_limits: Mapping[str, Any] | None = None,
        error_format: ErrorFormat = "problem",
        **extra: Any,
    ) -> None:
        if error_format not in ("problem", "fastapi"):
            raise ValueError(f"error_format={error_format!r} is neither 'problem' nor 'fastapi'")
        self.debug = debug
        self.title = title
        self.summary = summary
        self.description = description
        self.version = version
        self.terms_of_service = terms_of_service
        self.contact = contact
        self.license_info = license_info
        self.openapi_url = openapi_url
        self.openapi_tags = openapi_tags
        self.root_path_in_servers = root_path_in_servers
        self.docs_url = docs_url
        self.redoc_url = redoc_url
        self.scalar_url = scalar_url
        self.swagger_ui_oauth2_redirect_url = swagger_ui_oauth2_redirect_url
        self.swagger_ui_init_oauth = swagger_ui_init_oauth
        self.swagger_ui_parameters = swagger_ui_parameters
        self.servers = servers or []
        self.separate_input_output_schemas = separate_input_output_schemas
        self.openapi_external_docs = openapi_external_docs
        self.openapi_version = "3.1.0"
        self.openapi_schema: dict[str, Any] | None = None
        self._openapi_version: int | None = None
        self.extra = extra
        if openapi_url and not (title and version):
            raise AssertionError("OpenAPI needs a title and a version")
        self.webhooks = webhooks if webhooks is not None else APIRouter()
        self.root_path = root_path
        self.state = State()
        self.error_format: ErrorFormat = error_format
        self.router = APIRouter(
            routes=routes,
            redirect_slashes=redirect_slashes,
            dependency_overrides_provider=self,
            on_startup=on_startup,
            on_shutdown=on_shutdown,
            lifespan=lifespan,
            default_response_class=default_response_class,
            dependencies=dependencies,
            callbacks=callbacks,
            deprecated=deprecated,
            include_in_schema=include_in_schema,
            responses=responses,
            generate_unique_id_function=(
                None
                if generate_unique_id_function is generate_unique_id
                else generate_unique_id_function
            ),
            # The defaults of routes say the same.
            strict_content_type=None if strict_content_type else False,
            max_body_size=max_body_size,
            form_limits=form_limits,
        )
        self.exception_handlers: dict[Any, ExceptionHandler] = dict(exception_handlers or {})
        self.user_middleware: list[Middleware] = list(middleware or [])
        self.middleware_stack: ASGIApp | None = None
        self._failures: Failures | None = None
        self._overrides = DependencyOverrides(self._changed)
        self._plans: dict[tuple[APIRoute, OverridesKey], Plan] = {}
        self._dispatcher: tuple[int, Dispatcher] | None = None
        self._listeners: list[Callable[[], None]] = []
        self._num_changes = 0
        self.setup()

    def setup(self) -> None:
        """Adds the document and its pages."""
        if self.openapi_url:
            from justapi.openapi import add_documentation_routes

            add_documentation_routes(self)

    def openapi(self) -> dict[str, Any]:
        """Returns the OpenAPI document; made once for the routes that there are."""
        version = self.router.routes_version
        if self.openapi_schema is None or self._openapi_version not in (None, version):
            from justapi.openapi import get_openapi

            self.openapi_schema = get_openapi(self)
            self._openapi_version = version
        return self.openapi_schema

    @property
    def routes(self) -> list[BaseRoute]:
        """All routes, those of included routers with their whole paths."""
        return self.router.routes

    @property
    def dependency_overrides(self) -> dict[Callable[..., Any], Callable[..., Any]]:
        """Dependencies and what is called in their place, for tests."""
        return self._overrides

    @dependency_overrides.setter
    def dependency_overrides(
        self, overrides: Mapping[Callable[..., Any], Callable[..., Any]]
    ) -> None:
        self._overrides = DependencyOverrides(self._changed, dict(overrides))
        self._changed()

    @property
    def routes_key(self) -> Any:
        """Something else after routes, overrides, middleware or handlers have changed."""
        router = self.router
        return (self._num_changes, router.routes_version, router.redirect_slashes)

    def _changed(self) -> None:
        self._num_changes += 1
        self._dispatcher = None
        # Plans for overrides that are gone would pile up in a long run of tests.
        wanted: tuple[OverridesKey, ...] = (frozenset(), self._overrides.key)
        self._plans = {key: plan for key, plan in self._plans.items() if key[1] in wanted}
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Registers what has to hear that `plans` gives something else than before.

        Args:
            listener: Called after routes, overrides, middleware or handlers have changed.
        """
        self._listeners.append(listener)

    @property
    def failures(self) -> Failures:
        """The exception handlers, as they are now."""
        if self._failures is None:
            self._failures = Failures(
                self.exception_handlers, error_format=self.error_format, debug=self.debug
            )
        return self._failures

    def _fail(self, exchange: Exchange, exc: BaseException) -> Any:
        return self.failures.fail(exchange, exc)

    def plan_of(self, route: APIRoute) -> Plan:
        """Returns the compiled form of a route under the present overrides."""
        key = (route, self._overrides.key)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = route.make_plan(self._fail, self._overrides)
        return plan

    def plans(self) -> list[Plan]:
        """Compiles all path operations under the present overrides.

        The other routes are answered by the application itself, over ASGI.
        """
        return [self.plan_of(route) for route in self.routes if isinstance(route, APIRoute)]

    @property
    def has_python_middleware(self) -> bool:
        """Whether requests have to take the ASGI path through middleware."""
        return self.layers is None

    @property
    def layers(self) -> list[Layer] | None:
        """The middleware as a lane does it, outermost first; None if it takes Python."""
        if self.build_middleware_stack != MethodType(JustAPIApp.build_middleware_stack, self):
            # Whoever replaced it puts something around the application that is not in the list.
            return None
        return layers_of(self.user_middleware)

    def refuse(
        self, exchange: Exchange, status_code: int, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Answers a request that no route answers, with the application's handlers.

        Args:
            exchange: The request.
            status_code: 404, 405 or 400.
            headers: Headers of the answer, such as `Allow`.

        Returns:
            The response, or an awaitable of it.
        """
        return self._fail(exchange, StarletteHTTPException(status_code, headers=headers))

    @property
    def refuses_by_itself(self) -> bool:
        """Whether `refuse` answers otherwise than with a plain problem document."""
        return self.error_format != "problem" or not self.failures.is_default

    def add_api_route(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        methods: Sequence[str] | None = None,
        **options: Unpack[RouteOptions],
    ) -> None:
        """Adds a path operation; see `APIRouter.add_api_route`."""
        self._check_native(options)
        self.router.add_api_route(path, endpoint, methods=methods, **options)
        self._changed()

    def _check_native(self, options: RouteOptions) -> None:
        if options.get("native") and _need_python(self.user_middleware):
            raise ValueError("a native route cannot be behind middleware in Python")

    def add_api_websocket_route(
        self,
        path: str,
        endpoint: Callable[..., Any],
        name: str | None = None,
        *,
        dependencies: Sequence[params.Depends] | None = None,
    ) -> None:
        """Adds a WebSocket; see `APIRouter.add_api_websocket_route`."""
        self.router.add_api_websocket_route(path, endpoint, name, dependencies=dependencies)
        self._changed()

    def add_route(
        self,
        path: str,
        endpoint: Callable[..., Any],
        methods: Sequence[str] | None = None,
        name: str | None = None,
        include_in_schema: bool = True,
    ) -> None:
        """Adds a function of the request; see `APIRouter.add_route`."""
        self.router.add_route(path, endpoint, methods, name, include_in_schema)
        self._changed()

    def add_websocket_route(
        self, path: str, endpoint: Callable[..., Any], name: str | None = None
    ) -> None:
        """Adds a function of the WebSocket; see `APIRouter.add_websocket_route`."""
        self.router.add_websocket_route(path, endpoint, name)
        self._changed()

    def mount(self, path: str, app: ASGIApp, name: str | None = None) -> None:
        """Puts an ASGI application below a path.

        Args:
            path: The path.
            app: The application.
            name: Name for `url_for`.

        Example:
            >>> app.mount("/static", StaticFiles(directory="static"), name="static")
        """
        self.router.mount(path, app, name)
        self._changed()

    def include_router(
        self,
        router: APIRouter,
        *,
        prefix: str = "",
        tags: Sequence[str | Enum] | None = None,
        dependencies: Sequence[params.Depends] | None = None,
        responses: Mapping[int | str, dict[str, Any]] | None = None,
        deprecated: bool | None = None,
        include_in_schema: bool = True,
        default_response_class: type[Response] | None = None,
        callbacks: Sequence[BaseRoute] | None = None,
        generate_unique_id_function: Callable[[Any], str] | None = None,
        max_body_size: int | None = None,
        form_limits: Mapping[str, Any] | None = None,
    ) -> None:
        """Takes in the routes of a router; see `APIRouter.include_router`.

        Example:
            >>> router = APIRouter(tags=["greetings"])
            >>> @router.get("/hello")
            ... def hello():
            ...     return "Hello"
            >>> app.include_router(router, prefix="/v1")
            >>> client.get("/v1/hello").json()
            'Hello'
        """
        if _need_python(self.user_middleware):
            _refuse_native(router.routes)
        self.router.include_router(
            router,
            prefix=prefix,
            tags=tags,
            dependencies=dependencies,
            default_response_class=default_response_class,
            responses=responses,
            callbacks=callbacks,
            deprecated=deprecated,
            include_in_schema=include_in_schema,
            generate_unique_id_function=generate_unique_id_function,
            max_body_size=max_body_size,
            form_limits=form_limits,
        )
        self._changed()

    def add_event_handler(self, event_type: str, func: Callable[[], Any]) -> None:
        """Adds a function that runs at start-up or shutdown; see `APIRouter`."""
        self.router.add_event_handler(event_type, func)

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        """Makes the path of a route.

        Args:
            name: Name of the route.
            **path_params: Its path parameters.

        Raises:
            NoMatchFound: No route has this name and these parameters.
        """
        return self.router.url_path_for(name, **path_params)

    def add_middleware(
        self, middleware_class: Callable[..., ASGIApp], *args: Any, **kwargs: Any
    ) -> None:
        """Puts a middleware around the application and those that were added before.

        Args:
            middleware_class: Called with the application and the arguments.
            *args: Positional arguments.
            **kwargs: Keyword arguments.

        Raises:
            RuntimeError: The application has started.
            ValueError: A route is native, and this takes Python for its requests.
        """
        if self.middleware_stack is not None:
            raise RuntimeError("Cannot add middleware after an application has started")
        added = Middleware(middleware_class, *args, **kwargs)
        if _need_python([added]):
            _refuse_native(self.routes)
        self.user_middleware.insert(0, added)
        self._changed()

    def middleware(self, middleware_type: str) -> Callable[[F], F]:
        """Declares a function that runs around each request.

        Args:
            middleware_type: `"http"`.

        Example:
            >>> @app.middleware("http")
            ... async def timing(request, call_next):
            ...     response = await call_next(request)
            ...     response.headers["x-served-by"] = "justapi"
            ...     return response
        """
        if middleware_type != "http":
            raise AssertionError('Currently only middleware("http") is supported.')

        def decorator(func: F) -> F:
            self.add_middleware(BaseHTTPMiddleware, dispatch=func)
            return func

        return decorator

    def add_exception_handler(
        self, exc_class_or_status_code: HandlerKey, handler: ExceptionHandler
    ) -> None:
        """Adds a handler for an exception class or a status.

        Args:
            exc_class_or_status_code: `Exception` and 500 stand for all that nobody handles.
            handler: `handler(request, exc)` that returns a response; it may be async.
        """
        self.exception_handlers[exc_class_or_status_code] = handler
        self._failures = None
        self._changed()

    def exception_handler(self, exc_class_or_status_code: HandlerKey) -> Callable[[F], F]:
        """Declares a handler for an exception class or a status; see `add_exception_handler`.

        Example:
            >>> @app.exception_handler(OutOfStock)
            ... async def out_of_stock(request, exc):
            ...     return JSONResponse({"missing": exc.name}, status_code=409)
        """

        def decorator(func: F) -> F:
            self.add_exception_handler(exc_class_or_status_code, func)
            return func

        return decorator

    def build_middleware_stack(self) -> ASGIApp:
        """Applies the middleware, the first one outermost."""
        _refuse_native(self.routes if _need_python(self.user_middleware) else [])
        stack: ASGIApp = self._dispatch
        for cls, args, kwargs in reversed(self.user_middleware):
            stack = cls(stack, *args, **kwargs)
        return stack

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await run_lifespan(self.router.lifespan_context, self, scope, receive, send)
            return
        version = self.router.routes_version
        # Another lane may replace it at any time.
        dispatcher = self._dispatcher
        if dispatcher is None or dispatcher[0] != version:
            dispatcher = self._dispatcher = (version, Dispatcher(self, self.routes))
        await dispatcher[1](scope, receive, send)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers an ASGI connection.

        Raises:
            Exception: What nobody handled, after the client was told 500, so that the server
                can log it.
        """
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        await self._run(self.middleware_stack, scope, receive, send)

    async def inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers what has passed the middleware already, on a lane that does it.

        Raises:
            Exception: As `__call__`.
        """
        await self._run(self._dispatch, scope, receive, send, marks_outside=True)

    async def _run(
        self,
        stack: ASGIApp,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        marks_outside: bool = False,
    ) -> None:
        scope["app"] = self
        if self.root_path:
            scope["root_path"] = self.root_path
        if scope["type"] != "http":
            await stack(scope, receive, send)
            return
        is_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
            await send(message)

        async def send_from_outside(message: Message) -> None:
            if marks_outside and message["type"] == "http.response.start":
                message = {**message, OUTSIDE: True}
            await send(message)

        try:
            await stack(scope, receive, send_and_note)
        except Exception as exc:
            if not is_started:
                response = self.failures.respond_to_server_error(Request(scope, receive, send), exc)
                if inspect.isawaitable(response):
                    response = await response
                await response(scope, receive, send_from_outside)
            raise


def _need_python(middleware: Sequence[Middleware]) -> bool:
    """Whether requests behind this middleware may need Python, which native routes do not."""
    layers = layers_of(middleware)
    return layers is None or run_python(layers)


def _refuse_native(routes: Sequence[BaseRoute]) -> None:
    for route in routes:
        if isinstance(route, APIRoute) and route.native:
            raise ValueError(
                f"the native route {'|'.join(route.methods)} {route.path} cannot be behind "
                "middleware in Python"
            )


JustAPI = JustAPIApp
