"""Turns what was raised into responses: RFC 9457 problem documents, or FastAPI's shape.

An answer to invalid input never repeats more of it than is useful, and is always something that
can be encoded, whatever bytes came in.
"""

from __future__ import annotations

import http
import json
import logging
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from justapi.encoders import jsonable_encoder
from justapi.exceptions import (
    RequestValidationError,
    StarletteHTTPException,
    WebSocketException,
    WebSocketRequestValidationError,
)
from justapi.responses import JSONResponse, PlainTextResponse, Response

__all__ = [
    "ErrorFormat",
    "ProblemResponse",
    "http_exception_handler",
    "log_exception",
    "request_validation_exception_handler",
    "server_error",
    "websocket_exception_handler",
    "websocket_request_validation_exception_handler",
]

ErrorFormat: TypeAlias = Literal["problem", "fastapi"]

logger = logging.getLogger("justapi.error")

MAX_ERRORS = 100
"""Errors that one answer lists; a client corrects them a few at a time."""

MAX_ECHO_BYTES = 64 * 1024
"""Size of an answer up to which invalid input is repeated in it, as FastAPI does."""

MAX_TEXT_CHARS = 256
"""Characters that are kept of a text when an answer would be larger than that."""

_TITLES = {413: "Payload Too Large", 416: "Range Not Satisfiable", 422: "Unprocessable Entity"}
_POLICY_VIOLATION = 1008


def title_of(status_code: int) -> str:
    """Returns the reason phrase of a status; the same on every version of Python."""
    known = _TITLES.get(status_code)
    if known is not None:
        return known
    try:
        return http.HTTPStatus(status_code).phrase
    except ValueError:
        return "Error"


class ProblemResponse(JSONResponse):
    """A problem document (RFC 9457).

    Args:
        status_code: The status.
        detail: What was wrong with this request, in words for its sender.
        headers: More headers.
        **members: Extension members.
    """

    media_type = "application/problem+json"

    def __init__(
        self,
        status_code: int,
        detail: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        document: dict[str, Any] = {
            "type": "about:blank",
            "title": title_of(status_code),
            "status": status_code,
        }
        if detail is not None:
            document["detail"] = detail
        super().__init__({**document, **members}, status_code=status_code, headers=headers)


def _is_bodyless(status_code: int) -> bool:
    return status_code < 200 or status_code in (204, 205, 304)


def http_exception_handler(_request: Any, exc: StarletteHTTPException) -> Response:
    """Answers an `HTTPException` in FastAPI's shape."""
    headers = getattr(exc, "headers", None)
    if _is_bodyless(exc.status_code):
        return Response(status_code=exc.status_code, headers=headers)
    return JSONResponse({"detail": exc.detail}, status_code=exc.status_code, headers=headers)


def problem_http_exception_handler(_request: Any, exc: StarletteHTTPException) -> Response:
    """Answers an `HTTPException` with a problem document.

    A detail that is no text is a member of its own, `errors` for a list and `data` otherwise.
    """
    headers = getattr(exc, "headers", None)
    if _is_bodyless(exc.status_code):
        return Response(status_code=exc.status_code, headers=headers)
    detail = exc.detail
    if isinstance(detail, str):
        # The reason phrase is the title already.
        text = None if detail == http.HTTPStatus(exc.status_code).phrase else detail
        return ProblemResponse(exc.status_code, text, headers=headers)
    name = "errors" if isinstance(detail, list) else "data"
    return ProblemResponse(exc.status_code, headers=headers, **{name: jsonable_encoder(detail)})


def request_validation_exception_handler(_request: Any, exc: RequestValidationError) -> Response:
    """Answers invalid input in FastAPI's shape: 422 with all errors."""
    return _validation_response(exc.errors())


def _validation_response(errors: Sequence[Any]) -> Response:
    shown = list(errors[:MAX_ERRORS])
    num_more = len(errors) - len(shown)
    if num_more:
        shown.append(
            {
                "type": "too_many_errors",
                "loc": ["body"],
                "msg": f"{num_more} more errors",
                "input": None,
            }
        )
    try:
        body = json.dumps(
            {"detail": jsonable_encoder(shown)},
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        ).encode()
    except (ValueError, RecursionError):
        # Bytes that are no text, lone surrogates, NaN, endless nesting, unknown objects.
        body = None
    if body is None or len(body) > MAX_ECHO_BYTES:
        return JSONResponse({"detail": [_tame(error) for error in shown]}, status_code=422)
    return Response(body, status_code=422, media_type="application/json")


def _tame(value: Any, depth: int = 0) -> Any:
    """Makes of any value something short that can be encoded."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        text = repr(value)
        return value if len(text) <= 32 and text not in ("nan", "inf", "-inf") else _short(text)
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, bytes | bytearray):
        return _short(bytes(value[: MAX_TEXT_CHARS + 1]).decode("utf-8", "backslashreplace"))
    if depth < 3 and isinstance(value, dict):
        members = list(value.items())[:16]
        return {_short(str(name)): _tame(member, depth + 1) for name, member in members}
    if depth < 3 and isinstance(value, list | tuple):
        return [_tame(item, depth + 1) for item in value[:16]]
    if isinstance(value, dict | list | tuple):
        return f"<{type(value).__name__} of {len(value)}>"
    return _short(str(value))


def _short(text: str) -> str:
    if len(text) > MAX_TEXT_CHARS:
        text = text[:MAX_TEXT_CHARS] + "…"
    return text.encode("utf-8", "backslashreplace").decode()


def problem_validation_exception_handler(_request: Any, exc: RequestValidationError) -> Response:
    """Answers invalid input with a problem document: 422 with all errors, without the input."""
    errors = exc.errors()
    shown = [_problem_entry(error) for error in errors[:MAX_ERRORS]]
    members: dict[str, Any] = {"errors": shown}
    if len(errors) > len(shown):
        members["num_more_errors"] = len(errors) - len(shown)
    count = f"{len(errors)} errors" if len(errors) != 1 else "1 error"
    return ProblemResponse(422, f"the request is not valid: {count}", **members)


def _problem_entry(error: Mapping[str, Any]) -> dict[str, Any]:
    entry = {
        "type": str(error.get("type", "value_error")),
        "loc": [part if isinstance(part, int) else _short(str(part)) for part in error["loc"]],
        "msg": _short(str(error.get("msg", ""))),
    }
    if error.get("ctx"):
        entry["ctx"] = _tame(error["ctx"])
    return entry


async def websocket_request_validation_exception_handler(
    websocket: Any, exc: WebSocketRequestValidationError
) -> None:
    """Refuses a WebSocket whose handshake is invalid."""
    # A close frame has room for 123 bytes.
    reason = f"{len(exc.errors())} invalid parameters"
    await websocket.close(code=_POLICY_VIOLATION, reason=reason)


async def websocket_exception_handler(websocket: Any, exc: WebSocketException) -> None:
    """Closes a WebSocket as its handler asked."""
    await websocket.close(code=exc.code, reason=exc.reason)


def server_error(exc: BaseException, *, error_format: ErrorFormat, debug: bool) -> Response:
    """Answers an exception that nobody handles: 500, and no word about its cause.

    Args:
        exc: What was raised.
        error_format: The shape of the answer.
        debug: Whether the answer is the traceback instead.
    """
    if debug:
        return PlainTextResponse(_render(exc), status_code=500)
    if error_format == "fastapi":
        return PlainTextResponse("Internal Server Error", status_code=500)
    return ProblemResponse(500)


def _is_generated(filename: str) -> bool:
    from justapi._compile import GENERATED

    return filename.startswith(GENERATED)


def _render(exc: BaseException) -> str:
    """Renders a traceback without the frames of generated functions."""
    rendered = traceback.TracebackException.from_exception(exc)
    pending: list[Any] = [rendered]
    while pending:
        one = pending.pop()
        one.stack = traceback.StackSummary.from_list(
            [frame for frame in one.stack if not _is_generated(frame.filename)]
        )
        pending += [other for other in (one.__cause__, one.__context__) if other is not None]
        pending += one.exceptions or []
    return "".join(rendered.format())


def log_exception(exc: BaseException, scope: Mapping[str, Any]) -> None:
    """Logs an exception that nobody handled; that a client has left is none."""
    from justapi.requests import ClientDisconnect

    if isinstance(exc, ClientDisconnect):
        return
    method = scope.get("method", "WEBSOCKET")
    text = f"{method} {scope.get('path', '')} raised\n{_render(exc)}"
    if logger.hasHandlers():
        logger.error("%s", text)
    else:
        sys.stderr.write(text)
