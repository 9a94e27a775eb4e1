"""The built-in handlers of exceptions, to be called from one's own.

They answer in the shape that the application was asked for by `error_format`.
"""

from __future__ import annotations

from typing import Any

from justapi import errors
from justapi.exceptions import (
    RequestValidationError,
    StarletteHTTPException,
    WebSocketRequestValidationError,
)
from justapi.responses import Response

__all__ = [
    "http_exception_handler",
    "request_validation_exception_handler",
    "websocket_request_validation_exception_handler",
]


def _is_fastapi(connection: Any) -> bool:
    return getattr(connection.scope.get("app"), "error_format", None) == "fastapi"


async def http_exception_handler(request: Any, exc: StarletteHTTPException) -> Response:
    """Answers an `HTTPException`.

    Args:
        request: The request.
        exc: What was raised.

    Example:
        >>> @app.exception_handler(HTTPException)
        ... async def note(request, exc):
        ...     print(repr(exc))
        ...     return await http_exception_handler(request, exc)
    """
    if _is_fastapi(request):
        return errors.http_exception_handler(request, exc)
    return errors.problem_http_exception_handler(request, exc)


async def request_validation_exception_handler(
    request: Any, exc: RequestValidationError
) -> Response:
    """Answers invalid input.

    Args:
        request: The request.
        exc: What was raised.
    """
    if _is_fastapi(request):
        return errors.request_validation_exception_handler(request, exc)
    return errors.problem_validation_exception_handler(request, exc)


async def websocket_request_validation_exception_handler(
    websocket: Any, exc: WebSocketRequestValidationError
) -> None:
    """Refuses a WebSocket whose handshake is invalid.

    Args:
        websocket: The WebSocket.
        exc: What was raised.
    """
    await errors.websocket_request_validation_exception_handler(websocket, exc)
