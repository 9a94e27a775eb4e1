"""Finds the handler of an exception and makes its response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from justapi._from_thread import explain
from justapi._inputs import connection_of
from justapi._plan import Exchange
from justapi.errors import (
    ErrorFormat,
    http_exception_handler,
    log_exception,
    problem_http_exception_handler,
    problem_validation_exception_handler,
    request_validation_exception_handler,
    server_error,
    websocket_exception_handler,
    websocket_request_validation_exception_handler,
)
from justapi.exceptions import (
    RequestValidationError,
    StarletteHTTPException,
    WebSocketException,
    WebSocketRequestValidationError,
)

__all__ = ["OUTSIDE", "ExceptionHandler", "Failures"]

ExceptionHandler: TypeAlias = Callable[[Any, Any], Any]

OUTSIDE = "justapi.outside"
"""Key of a start message that says: no middleware has to do with this answer.

As in Starlette, what nobody expected is answered around the middleware.
"""


class Failures:
    """The exception handlers of an application.

    Args:
        handlers: Handlers by exception class or status.
        error_format: The shape of the built-in answers.
        debug: Whether unhandled exceptions are shown to the client.
    """

    def __init__(
        self,
        handlers: Mapping[Any, ExceptionHandler],
        *,
        error_format: ErrorFormat,
        debug: bool,
    ) -> None:
        is_problem = error_format == "problem"
        self._by_class: dict[type[BaseException], ExceptionHandler] = {
            StarletteHTTPException: problem_http_exception_handler
            if is_problem
            else http_exception_handler,
            RequestValidationError: problem_validation_exception_handler
            if is_problem
            else request_validation_exception_handler,
            WebSocketRequestValidationError: websocket_request_validation_exception_handler,
            WebSocketException: websocket_exception_handler,
        }
        self._by_status: dict[int, ExceptionHandler] = {}
        self._server_error: ExceptionHandler | None = None
        self._error_format: ErrorFormat = error_format
        self._debug = debug
        self.is_default = not handlers
        for key, handler in handlers.items():
            if key in (500, Exception):
                self._server_error = handler
            elif isinstance(key, int):
                self._by_status[key] = handler
            elif _is_foreign_http_exception_class(key):
                self._by_class[key] = self._by_class[StarletteHTTPException] = handler
            else:
                self._by_class[key] = handler

    def find(self, exc: BaseException) -> ExceptionHandler | None:
        """Returns the handler of an exception, or None when it is a server error."""
        if not isinstance(exc, Exception):
            return None
        is_http = isinstance(exc, StarletteHTTPException) or _is_foreign_http_exception(exc)
        if is_http:
            handler = self._by_status.get(exc.status_code)  # type: ignore[attr-defined]
            if handler is not None:
                return handler
        for cls in type(exc).__mro__:
            handler = self._by_class.get(cls)
            if handler is not None:
                return handler
        return self._by_class[StarletteHTTPException] if is_http else None

    def respond_to_server_error(self, connection: Any, exc: BaseException) -> Any:
        """Makes the 500; an awaitable when the user's handler is async."""
        if self._debug or self._server_error is None:
            return server_error(exc, error_format=self._error_format, debug=self._debug)
        return self._server_error(connection, exc)

    def fail(self, exchange: Exchange, exc: BaseException) -> Any | Awaitable[Any]:
        """Makes the response of what was raised; what nobody expected is logged.

        Raises:
            Exception: Whatever the user's handler raised.
        """
        handler = self.find(exc)
        if handler is not None:
            return handler(connection_of(exchange), exc)
        explain(exc)
        witness = getattr(exchange, "witness", None)
        if witness is not None:
            witness.failed(exc)
        log_exception(exc, exchange.scope)
        exchange.is_outside = True
        return self.respond_to_server_error(connection_of(exchange), exc)


def _is_foreign_http_exception_class(cls: type[Any]) -> bool:
    """Whether it is Starlette's, named or raised by a library that knows only that one."""
    return cls.__name__ == "HTTPException" and cls.__module__ == "starlette.exceptions"


def _is_foreign_http_exception(exc: BaseException) -> bool:
    return any(_is_foreign_http_exception_class(cls) for cls in type(exc).__mro__)
