"""The exceptions that applications raise and handle, under FastAPI's names."""

from __future__ import annotations

import http
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

__all__ = [
    "DependencyScopeError",
    "EndpointContext",
    "HTTPException",
    "JustAPIError",
    "PydanticV1NotSupportedError",
    "RequestValidationError",
    "ResponseValidationError",
    "StarletteHTTPException",
    "ValidationException",
    "WebSocketException",
    "WebSocketRequestValidationError",
]


class EndpointContext(TypedDict, total=False):
    """Where the function that was to answer is defined."""

    function: str
    path: str
    file: str
    line: int


class StarletteHTTPException(Exception):
    """An HTTP error: one that was raised by a handler, or by the framework.

    The framework raises this class when no route answers a request. A handler registered for
    it sees those errors as well; one for `HTTPException` sees only what applications raise.
    The name is the one under which FastAPI's users know the distinction.

    Args:
        status_code: Status of the answer.
        detail: What the client is told; any JSON value. By default the reason phrase.
        headers: More headers of the answer.
    """

    def __init__(
        self,
        status_code: int,
        detail: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if detail is None:
            detail = http.HTTPStatus(status_code).phrase
        self.status_code = status_code
        self.detail = detail
        self.headers = headers

    def __str__(self) -> str:
        return f"{self.status_code}: {self.detail}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(status_code={self.status_code!r}, detail={self.detail!r})"


class HTTPException(StarletteHTTPException):
    """An HTTP error to be answered to the client.

    Args:
        status_code: Status of the answer.
        detail: What the client is told; any JSON value. By default the reason phrase.
        headers: More headers of the answer.

    Example:
        >>> @app.get("/items/{item_id}")
        ... def read_item(item_id: int):
        ...     raise HTTPException(status_code=404, detail="Item not found")
        >>> client.get("/items/3").json()["detail"]
        'Item not found'
    """


class WebSocketException(Exception):
    """Closes the WebSocket of the handler that raises it.

    Args:
        code: A closing code (RFC 6455 §7.4.1).
        reason: Why, for the peer.

    Example:
        >>> @app.websocket("/strict")
        ... async def strict(websocket: WebSocket):
        ...     await websocket.accept()
        ...     raise WebSocketException(code=1008, reason="not today")
        >>> with client.websocket_connect("/strict") as websocket:
        ...     websocket.receive()["code"]
        1008
    """

    def __init__(self, code: int, reason: str | None = None) -> None:
        self.code = code
        self.reason = reason or ""

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(code={self.code!r}, reason={self.reason!r})"


class JustAPIError(RuntimeError):
    """An application is put together or behaves in a way that cannot work."""


class DependencyScopeError(JustAPIError):
    """A dependency needs another one that ends before it."""


class PydanticV1NotSupportedError(JustAPIError):
    """A model is one of `pydantic.v1`."""


class ValidationException(Exception):
    """Base of the errors that carry a list of what is invalid.

    Args:
        errors: One mapping for each error, as pydantic reports them.
        endpoint_ctx: Where the function that was to answer is defined.
    """

    def __init__(
        self, errors: Sequence[Any], *, endpoint_ctx: EndpointContext | None = None
    ) -> None:
        self._errors = errors
        self.endpoint_ctx = endpoint_ctx
        context = endpoint_ctx or {}
        self.endpoint_function = context.get("function")
        self.endpoint_path = context.get("path")
        self.endpoint_file = context.get("file")
        self.endpoint_line = context.get("line")

    def errors(self) -> Sequence[Any]:
        """Returns all errors."""
        return self._errors

    def __str__(self) -> str:
        count = len(self._errors)
        lines = [f"{count} validation error{'' if count == 1 else 's'}:"]
        lines += [f"  {error}" for error in self._errors]
        if self.endpoint_file and self.endpoint_function:
            lines.append(
                f'  File "{self.endpoint_file}", line {self.endpoint_line}, '
                f"in {self.endpoint_function}"
            )
        if self.endpoint_path:
            lines.append(f"    {self.endpoint_path}")
        return "\n".join(lines)


class RequestValidationError(ValidationException):
    """A request has parameters or a body that are not what the route declares: 422.

    Args:
        errors: One mapping for each error.
        body: The body as it was received, parsed when it is JSON.
        endpoint_ctx: Where the function that was to answer is defined.
    """

    def __init__(
        self,
        errors: Sequence[Any],
        *,
        body: Any = None,
        endpoint_ctx: EndpointContext | None = None,
    ) -> None:
        super().__init__(errors, endpoint_ctx=endpoint_ctx)
        self.body = body


class WebSocketRequestValidationError(ValidationException):
    """The handshake of a WebSocket has parameters that are not what the route declares."""


class ResponseValidationError(ValidationException):
    """A handler returned what its response model does not allow: 500.

    Args:
        errors: One mapping for each error.
        body: What the handler returned.
        endpoint_ctx: Where the handler is defined.
    """

    def __init__(
        self,
        errors: Sequence[Any],
        *,
        body: Any = None,
        endpoint_ctx: EndpointContext | None = None,
    ) -> None:
        super().__init__(errors, endpoint_ctx=endpoint_ctx)
        self.body = body
