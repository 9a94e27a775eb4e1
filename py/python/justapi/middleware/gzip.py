"""Compresses answers with gzip, for applications that run on other servers.

`justapi serve` compresses by itself, with brotli and zstd as well.
"""

from __future__ import annotations

import zlib

from justapi.concurrency import run_in_threadpool
from justapi.datastructures import Headers, MutableHeaders
from justapi.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["GZipMiddleware"]

EXCLUDED_CONTENT_TYPES = (
    "application/grpc",
    "application/gzip",
    "application/x-gzip",
    "application/zip",
    "audio/*",
    "font/woff",
    "font/woff2",
    "image/avif",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/webp",
    "text/event-stream",
    "video/*",
)
"""What is compressed already, or has to arrive piece by piece."""

THREAD_MINIMUM_SIZE = 128 * 1024
"""Bytes of a piece from which compressing it would stop the event loop for too long."""


class GZipMiddleware:
    """Compresses answers to clients that accept gzip.

    Args:
        app: The application.
        minimum_size: Bytes of a body below which it is left as it is.
        compresslevel: 1 is fast, 9 is small.
        thread_minimum_size: Bytes of a piece from which it is compressed in a thread.
        exclude_content_types: Content types that are left as they are.

    Example:
        >>> app.add_middleware(GZipMiddleware, minimum_size=1000)
        >>> @app.get("/long")
        ... def long():
        ...     return "again " * 1000
        >>> client.get("/long", headers={"accept-encoding": "gzip"}).headers["content-encoding"]
        'gzip'
    """

    def __init__(
        self,
        app: ASGIApp,
        minimum_size: int = 500,
        compresslevel: int = 9,
        thread_minimum_size: int = THREAD_MINIMUM_SIZE,
        *,
        exclude_content_types: tuple[str, ...] = EXCLUDED_CONTENT_TYPES,
    ) -> None:
        self.app = app
        self.minimum_size = minimum_size
        self.compresslevel = compresslevel
        self.thread_minimum_size = thread_minimum_size
        self.exclude_content_types = frozenset(
            kind.partition(";")[0].strip().lower() for kind in exclude_content_types
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application with a `send` that compresses."""
        if scope["type"] == "http":
            accepts = "gzip" in Headers(scope=scope).get("accept-encoding", "")
            send = _Compression(self, send, accepts=accepts).send
        await self.app(scope, receive, send)


class _Compression:
    """The compression of one answer.

    The head waits for the first piece of the body, which decides what it says.
    """

    def __init__(self, settings: GZipMiddleware, send: Send, *, accepts: bool) -> None:
        self._settings = settings
        self._send = send
        self._accepts = accepts
        self._head: Message | None = None
        self._compressor: zlib._Compress | None = None

    async def send(self, message: Message) -> None:
        """Sends a message of the application, compressed where it is to be."""
        kind = message["type"]
        if kind == "http.response.start":
            if self._may_compress(message):
                self._head = message
            else:
                await self._send(message)
            return
        if kind == "http.response.body":
            if self._head is not None:
                await self._send_first(self._head, message)
                return
            if self._compressor is not None:
                body = await self._compress(
                    self._compressor, message.get("body", b""), message.get("more_body", False)
                )
                message = {**message, "body": body}
        elif kind == "http.response.pathsend" and self._head is not None:
            head, self._head = self._head, None
            await self._send(head)
        await self._send(message)

    def _may_compress(self, head: Message) -> bool:
        headers = Headers(raw=head.setdefault("headers", []))
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        kinds = {kind, f"{kind.partition('/')[0]}/*"}
        if kind.startswith("application/grpc+"):
            kinds.add("application/grpc")
        return not (
            "content-encoding" in headers
            or head["status"] == 206
            or kinds & self._settings.exclude_content_types
        )

    async def _send_first(self, head: Message, message: Message) -> None:
        self._head = None
        body: bytes = message.get("body", b"")
        more_body: bool = message.get("more_body", False)
        if more_body or len(body) >= self._settings.minimum_size:
            headers = MutableHeaders(raw=head["headers"])
            headers.add_vary_header("Accept-Encoding")
            if self._accepts:
                compressor = zlib.compressobj(
                    self._settings.compresslevel, zlib.DEFLATED, 16 + zlib.MAX_WBITS
                )
                self._compressor = compressor
                body = await self._compress(compressor, body, more_body)
                headers["Content-Encoding"] = "gzip"
                if more_body or head.get("trailers", False):
                    del headers["Content-Length"]
                else:
                    headers["Content-Length"] = str(len(body))
                message = {**message, "body": body}
            head["headers"] = headers.raw
        await self._send(head)
        await self._send(message)

    async def _compress(self, compressor: zlib._Compress, body: bytes, more_body: bool) -> bytes:
        def compress() -> bytes:
            mode = zlib.Z_SYNC_FLUSH if more_body else zlib.Z_FINISH
            return compressor.compress(body) + compressor.flush(mode)

        if len(body) >= self._settings.thread_minimum_size:
            return await run_in_threadpool(compress)
        return compress()
