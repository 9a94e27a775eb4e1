"""The response that is a file: validators, conditional requests and ranges of RFC 9110.

Whole files are handed to the server by name where it can send them itself. A header that asks
for ranges and cannot be understood is ignored, as RFC 9110 section 14.2 wants it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from email.utils import formatdate, parsedate_to_datetime
from mimetypes import guess_type
from secrets import token_hex
from typing import BinaryIO, ClassVar
from urllib.parse import quote

from justapi._disconnect import run_until_disconnect
from justapi._response import Response
from justapi.concurrency import open_in_threadpool, run_in_threadpool
from justapi.datastructures import Headers, MutableHeaders
from justapi.types import Receive, Scope, Send

__all__ = ["FileResponse", "is_not_modified"]

_RANGE = re.compile(r"(?P<first>[0-9]*)-(?P<last>[0-9]*)", re.ASCII)
_MAX_DIGITS = 19
"""Digits of a position in a file: more than any file has, and cheap to turn into a number."""


class FileResponse(Response):
    """A response with the content of a file.

    Args:
        path: The file. It is opened when the response is sent.
        status_code: The status. Conditions and ranges count only with 200.
        headers: Headers.
        media_type: The content type; guessed from the name by default.
        background: What runs after the response was sent.
        filename: The name that the client shall save the file under.
        stat_result: What `os.stat` said of the file, if it was asked already.
        content_disposition_type: `attachment`, or `inline` to show the file.

    Raises:
        ValueError: A header is invalid.

    Example:
        >>> @app.get("/report")
        ... def report():
        ...     return FileResponse("report.pdf", filename="report.pdf")
    """

    streaming: ClassVar[bool] = True

    chunk_size = 64 * 1024
    """Bytes that are read and sent at a time."""

    max_ranges = 16
    """Ranges of one request; with more of them the whole file is sent."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
        background: Callable[[], Awaitable[None]] | None = None,
        filename: str | None = None,
        stat_result: os.stat_result | None = None,
        content_disposition_type: str = "attachment",
    ) -> None:
        self.path = path
        self.status_code = status_code
        self.filename = filename
        if media_type is None:
            media_type = guess_type(filename or os.fspath(path))[0] or "application/octet-stream"
        self.media_type = media_type
        self.background = background
        self.init_headers(headers)
        self.headers.setdefault("accept-ranges", "bytes")
        if filename is not None:
            self.headers.setdefault(
                "content-disposition", _disposition(content_disposition_type, filename)
            )
        self.stat_result = stat_result
        if stat_result is not None:
            self.set_stat_headers(stat_result)

    def set_stat_headers(self, stat_result: os.stat_result) -> None:
        """Sets content length and validators, unless they are set.

        Args:
            stat_result: What `os.stat` said of the file.
        """
        base = f"{stat_result.st_mtime}-{stat_result.st_size}".encode()
        etag = hashlib.md5(base, usedforsecurity=False).hexdigest()
        self.headers.setdefault("content-length", str(stat_result.st_size))
        self.headers.setdefault("last-modified", formatdate(stat_result.st_mtime, usegmt=True))
        self.headers.setdefault("etag", f'"{etag}"')

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the file, or what the request's conditions and ranges leave of it.

        Args:
            scope: The ASGI scope: of a request, or of a WebSocket that is refused.
            receive: The ASGI receive callable.
            send: The ASGI send callable.

        Raises:
            RuntimeError: There is no such file, or it got shorter while it was sent.
            OSError: The file cannot be read.
        """
        stat_result = self.stat_result
        if stat_result is None:
            stat_result = await self._stat()
            self.set_stat_headers(stat_result)
        send = self._denying(scope, send)
        await self._send(scope, receive, send, stat_result.st_size)
        if self.background is not None:
            await self.background()

    async def _stat(self) -> os.stat_result:
        try:
            found = await run_in_threadpool(os.stat, self.path)
        except FileNotFoundError:
            raise RuntimeError(f"File at path {self.path} does not exist.") from None
        if not stat.S_ISREG(found.st_mode):
            raise RuntimeError(f"File at path {self.path} is not a file.")
        return found

    async def _send(self, scope: Scope, receive: Receive, send: Send, size: int) -> None:
        method = scope["method"] if scope["type"] == "http" else ""
        ranges: list[tuple[int, int]] | None = None
        if self.status_code == 200 and method in ("GET", "HEAD"):
            request = Headers(scope=scope)
            if _is_failed(self.headers, request):
                await self._send_head(send, 412, ("content-length", "0"))
                return
            if is_not_modified(self.headers, request):
                kept = [pair for pair in self.raw_headers if pair[0] in NOT_MODIFIED_HEADERS]
                await send({"type": "http.response.start", "status": 304, "headers": kept})
                await send({"type": "http.response.body", "body": b""})
                return
            ranges = self._ranges(request, size)
            if ranges == []:
                await self._send_head(
                    send, 416, ("content-length", "0"), ("content-range", f"bytes */{size}")
                )
                return
        status, headers, chunks = self._message(ranges, size)
        await send({"type": "http.response.start", "status": status, "headers": headers.raw})
        if method == "HEAD":
            await send({"type": "http.response.body", "body": b""})
        elif ranges is None and "http.response.pathsend" in (scope.get("extensions") or {}):
            await send({"type": "http.response.pathsend", "path": os.fspath(self.path)})
        else:
            await self._send_chunks(scope, receive, send, chunks)

    async def _send_head(self, send: Send, status: int, *changes: tuple[str, str]) -> None:
        headers = MutableHeaders(raw=list(self.raw_headers))
        del headers["content-type"]
        for name, value in changes:
            headers[name] = value
        await send({"type": "http.response.start", "status": status, "headers": headers.raw})
        await send({"type": "http.response.body", "body": b""})

    async def _send_chunks(
        self, scope: Scope, receive: Receive, send: Send, pieces: list[bytes | tuple[int, int]]
    ) -> None:
        async def write() -> None:
            file = await open_in_threadpool(self.path)
            try:
                async for chunk in self._read(file, pieces):
                    try:
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    except OSError:
                        return
            finally:
                file.close()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        if scope["type"] == "http":
            await run_until_disconnect(write(), scope, receive)
        else:
            await write()

    async def _read(
        self, file: BinaryIO, pieces: list[bytes | tuple[int, int]]
    ) -> AsyncIterator[bytes]:
        for piece in pieces:
            if isinstance(piece, bytes):
                yield piece
                continue
            position, end = piece
            if position:
                await run_in_threadpool(file.seek, position)
            else:
                file.seek(0)
            while position < end:
                chunk = await run_in_threadpool(file.read, min(self.chunk_size, end - position))
                if not chunk:
                    raise RuntimeError(f"File at path {self.path} got shorter while it was sent.")
                position += len(chunk)
                yield chunk

    def _message(
        self, ranges: list[tuple[int, int]] | None, size: int
    ) -> tuple[int, MutableHeaders, list[bytes | tuple[int, int]]]:
        """Returns status, headers, and the body as ready bytes and stretches of the file."""
        if ranges is None:
            return self.status_code, self.headers, [(0, size)]
        headers = MutableHeaders(raw=list(self.raw_headers))
        if len(ranges) == 1:
            start, end = ranges[0]
            headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
            headers["content-length"] = str(end - start)
            return 206, headers, [(start, end)]
        boundary = token_hex(13)
        content_type = self.headers.get("content-type", "application/octet-stream")
        pieces: list[bytes | tuple[int, int]] = []
        for start, end in ranges:
            part = (
                f"--{boundary}\r\nContent-Type: {content_type}\r\n"
                f"Content-Range: bytes {start}-{end - 1}/{size}\r\n\r\n"
            )
            pieces += [part.encode("latin-1"), (start, end), b"\r\n"]
        pieces.append(f"--{boundary}--".encode())
        length = sum(
            len(piece) if isinstance(piece, bytes) else piece[1] - piece[0] for piece in pieces
        )
        headers["content-type"] = f"multipart/byteranges; boundary={boundary}"
        headers["content-length"] = str(length)
        return 206, headers, pieces

    def _ranges(self, request: Headers, size: int) -> list[tuple[int, int]] | None:
        """Returns the stretches that are wanted; none if none can be had; None for the whole."""
        asked = request.get("range")
        if asked is None:
            return None
        condition = request.get("if-range")
        # A weak validator never matches here (RFC 9110 section 13.1.5).
        if condition is not None and condition not in (
            self.headers["etag"],
            self.headers["last-modified"],
        ):
            return None
        return parse_ranges(asked, size, self.max_ranges)


def parse_ranges(header: str, size: int, max_ranges: int) -> list[tuple[int, int]] | None:
    """Reads a `Range` header.

    Args:
        header: The value of the header.
        size: Bytes of the content.
        max_ranges: Ranges above which the header is ignored.

    Returns:
        Stretches `[start, end)` in order, none overlapping another; an empty list if none can be
        satisfied; None if the header has to be ignored.
    """
    unit, equals, specs = header.partition("=")
    if not equals or unit.strip().lower() != "bytes" or specs.count(",") >= max_ranges:
        return None
    found: list[tuple[int, int]] = []
    num_specs = 0
    for spec in specs.split(","):
        spec = spec.strip()
        if not spec:
            continue
        match = _RANGE.fullmatch(spec)
        if match is None or spec == "-" or len(spec) > 2 * _MAX_DIGITS + 1:
            return None
        num_specs += 1
        first, last = match["first"], match["last"]
        if not first:
            start, end = max(size - int(last), 0), size
        else:
            start = int(first)
            end = min(int(last) + 1, size) if last else size
            if last and int(last) < start:
                return None
        if start < end:
            found.append((start, end))
    if not num_specs:
        return None
    found.sort()
    merged: list[tuple[int, int]] = []
    for start, end in found:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


NOT_MODIFIED_HEADERS = frozenset(
    {b"cache-control", b"content-location", b"date", b"etag", b"expires", b"vary", b"set-cookie"}
)


def _tags(header: str) -> list[str]:
    return [tag.strip().removeprefix("W/") for tag in header.split(",")]


def _is_after(header: str | None, moment: str | None) -> bool | None:
    """Tells whether the moment is after the one that a header names; None if that is no date."""
    if header is None or moment is None:
        return None
    try:
        return parsedate_to_datetime(moment) > parsedate_to_datetime(header)
    except (TypeError, ValueError):
        return None


def is_not_modified(response: Headers, request: Headers) -> bool:
    """Tells whether a client has the content already (RFC 9110 section 13.2.2, steps 3 and 4).

    Args:
        response: The headers with the validators.
        request: The headers with the conditions.
    """
    none_match = request.get("if-none-match")
    if none_match is not None:
        if none_match.strip() == "*":
            return True
        etag = response.get("etag")
        return etag is not None and etag.removeprefix("W/") in _tags(none_match)
    return _is_after(request.get("if-modified-since"), response.get("last-modified")) is False


def _is_failed(response: Headers, request: Headers) -> bool:
    """Tells whether a precondition forbids the answer (RFC 9110 section 13.2.2, steps 1 and 2)."""
    match = request.get("if-match")
    if match is not None:
        # Only strong validators count.
        tags = [tag.strip() for tag in match.split(",")]
        return match.strip() != "*" and response.get("etag") not in tags
    return _is_after(request.get("if-unmodified-since"), response.get("last-modified")) is True


def _disposition(kind: str, filename: str) -> str:
    quoted = quote(filename)
    if quoted != filename:
        return f"{kind}; filename*=utf-8''{quoted}"
    return f'{kind}; filename="{filename}"'
