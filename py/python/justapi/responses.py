"""The responses that a handler may return."""

from __future__ import annotations

from justapi._file_response import FileResponse
from justapi._response import (
    HTMLResponse,
    JSONResponse,
    ORJSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    UJSONResponse,
)
from justapi._streaming_response import Content, ContentStream, StreamingResponse
from justapi.sse import EventSourceResponse

__all__ = [
    "Content",
    "ContentStream",
    "EventSourceResponse",
    "FileResponse",
    "HTMLResponse",
    "JSONResponse",
    "ORJSONResponse",
    "PlainTextResponse",
    "RedirectResponse",
    "Response",
    "StreamingResponse",
    "UJSONResponse",
]
