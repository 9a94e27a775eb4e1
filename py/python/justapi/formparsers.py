"""Reads forms as they arrive: urlencoded and multipart, within named limits.

Memory is bounded by the limits of the fields and a spool for each file, never by the size of the
body. Files are temporary and without a name on disk; they are closed on every error.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast
from urllib.parse import unquote_to_bytes

from python_multipart.multipart import parse_options_header

from justapi._multipart import (
    Event,
    MultiPartException,
    PartHead,
    Tokenizer,
    decode_text,
    pieces,
)
from justapi.datastructures import FormData, Headers, UploadFile
from justapi.exceptions import StarletteHTTPException
from justapi.status import HTTP_507_INSUFFICIENT_STORAGE

__all__ = [
    "FormParser",
    "FormPart",
    "MultiPartException",
    "MultiPartParser",
    "iterate_parts",
    "parse_form",
]

logger = logging.getLogger("justapi")

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

MAX_FILES = 1000
"""Files of a form, by default."""

MAX_FIELDS = 1000
"""Fields of a form that are no files, by default."""

MAX_FIELD_BYTES = 1024 * 1024
"""Bytes of a field that is no file, by default."""

SPOOL_BYTES = 1024 * 1024
"""Bytes of a file that stay in memory; what is longer goes to disk."""


class _Counter:
    """Counts the parts of a form against their limits."""

    def __init__(self, max_files: int | float, max_fields: int | float) -> None:
        self._max_files = max_files
        self._max_fields = max_fields
        self._num_files = 0
        self._num_fields = 0

    def add_file(self) -> None:
        self._num_files += 1
        if self._num_files > self._max_files:
            raise MultiPartException(
                f"Too many files. Maximum number of files is {self._max_files}."
            )

    def add_field(self) -> None:
        self._num_fields += 1
        if self._num_fields > self._max_fields:
            raise MultiPartException(
                f"Too many fields. Maximum number of fields is {self._max_fields}."
            )


class MultiPartParser:
    """Reads a multipart form.

    Args:
        headers: The headers of the request.
        stream: The body.
        max_files: Files that are accepted.
        max_fields: Other fields that are accepted.
        max_part_size: Bytes that one field may have; files are not limited by it.

    Example:
        >>> @app.post("/files")
        ... async def names(request: Request):
        ...     form = await MultiPartParser(request.headers, request.stream()).parse()
        ...     await form.close()
        ...     return list(form)
        >>> client.post("/files", files={"photo": b"pixels"}).json()
        ['photo']
    """

    spool_max_size = SPOOL_BYTES
    """Bytes of a file that stay in memory. Subclasses may replace it."""

    def __init__(
        self,
        headers: Headers,
        stream: AsyncIterator[bytes],
        *,
        max_files: int | float = MAX_FILES,
        max_fields: int | float = MAX_FIELDS,
        max_part_size: int = MAX_FIELD_BYTES,
    ) -> None:
        self.headers = headers
        self.stream = stream
        self.max_part_size = max_part_size
        self._counter = _Counter(max_files, max_fields)
        self._items: list[tuple[str, str | UploadFile]] = []
        self._files: list[UploadFile] = []
        self._head: PartHead | None = None
        self._file: UploadFile | None = None
        self._field = bytearray()
        self._charset = "utf-8"

    async def parse(self) -> FormData:
        """Returns the form.

        Raises:
            MultiPartException: The body is malformed or over a limit. No file is left open.
            HTTPException: 507: the disk has no room for a file.
        """
        tokenizer = Tokenizer(self.headers)
        self._charset = tokenizer.charset
        try:
            async for chunk in self.stream:
                for piece in pieces(chunk):
                    await self._take(tokenizer.feed(piece))
            tokenizer.finish()
        except BaseException:
            for file in self._files:
                # What could not be written cannot be flushed either.
                with suppress(OSError):
                    file.file.close()
            raise
        return FormData(self._items)

    async def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, bytes):
                await self._add_data(event)
            elif isinstance(event, PartHead):
                self._begin_part(event)
            else:
                await self._end_part()

    def _begin_part(self, head: PartHead) -> None:
        self._head = head
        if head.filename is None:
            self._counter.add_field()
            self._field = bytearray()
            return
        self._counter.add_file()
        spool = cast("BinaryIO", SpooledTemporaryFile(max_size=self.spool_max_size))  # noqa: SIM115
        self._file = UploadFile(spool, size=0, filename=head.filename, headers=head.headers)
        self._files.append(self._file)

    async def _add_data(self, data: bytes) -> None:
        if self._file is not None:
            with _room_demanded():
                await self._file.write(data)
            return
        if len(self._field) + len(data) > self.max_part_size:
            raise MultiPartException(
                f"Part exceeded maximum size of {int(self.max_part_size / 1024)}KB."
            )
        self._field += data

    async def _end_part(self) -> None:
        if self._head is None:
            return
        if self._file is None:
            self._items.append((self._head.name, decode_text(self._field, self._charset)))
        else:
            # Writes the last of it, too.
            with _room_demanded():
                await self._file.seek(0)
            self._items.append((self._head.name, self._file))
        self._head = self._file = None


@contextmanager
def _room_demanded() -> Iterator[None]:
    """Turns what the system says of a full disk into an answer."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        logger.error("an upload cannot be kept: %s", error)
        raise StarletteHTTPException(
            HTTP_507_INSUFFICIENT_STORAGE, "There is no room for the upload."
        ) from error


class FormParser:
    """Reads an urlencoded form.

    Args:
        headers: The headers of the request.
        stream: The body.
        max_fields: Fields that are accepted.
        max_part_size: Bytes that one field may have, its name included.

    Example:
        >>> @app.post("/fields")
        ... async def fields(request: Request):
        ...     return dict(await FormParser(request.headers, request.stream()).parse())
        >>> client.post("/fields", data={"name": "ada"}).json()
        {'name': 'ada'}
    """

    def __init__(
        self,
        headers: Headers,
        stream: AsyncIterator[bytes],
        *,
        max_fields: int | float = MAX_FIELDS,
        max_part_size: int = MAX_FIELD_BYTES,
    ) -> None:
        self.headers = headers
        self.stream = stream
        self.max_part_size = max_part_size
        self._counter = _Counter(0, max_fields)
        self._items: list[tuple[str, str | UploadFile]] = []

    async def parse(self) -> FormData:
        """Returns the form.

        Raises:
            MultiPartException: The body is over a limit.
        """
        field = bytearray()
        async for chunk in self.stream:
            for piece in pieces(chunk):
                first, *others = piece.split(b"&")
                self._check_size(len(field) + len(first))
                field += first
                for other in others:
                    self._add(field)
                    self._check_size(len(other))
                    field = bytearray(other)
        self._add(field)
        return FormData(self._items)

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > self.max_part_size:
            raise MultiPartException(
                f"Field exceeded maximum size of {int(self.max_part_size / 1024)}KB."
            )

    def _add(self, field: bytearray) -> None:
        if not field:
            return
        self._counter.add_field()
        name, _, value = bytes(field).replace(b"+", b" ").partition(b"=")
        self._items.append((_unquote(name), _unquote(value)))


def _unquote(text: bytes) -> str:
    return unquote_to_bytes(text).decode("utf-8", "replace")


async def parse_form(
    headers: Headers,
    stream: AsyncIterator[bytes],
    *,
    max_files: int | float = MAX_FILES,
    max_fields: int | float = MAX_FIELDS,
    max_part_size: int = MAX_FIELD_BYTES,
) -> FormData:
    """Reads the form that a body holds; another content type has an empty one.

    Args:
        headers: The headers of the request.
        stream: The body.
        max_files: Files that are accepted.
        max_fields: Other fields that are accepted.
        max_part_size: Bytes that one field may have; files are not limited by it.

    Raises:
        MultiPartException: The body is malformed or over a limit.
    """
    content_type, _ = parse_options_header(headers.get("content-type"))
    if content_type == b"multipart/form-data":
        return await MultiPartParser(
            headers,
            stream,
            max_files=max_files,
            max_fields=max_fields,
            max_part_size=max_part_size,
        ).parse()
    if content_type == b"application/x-www-form-urlencoded":
        return await FormParser(
            headers, stream, max_fields=max_fields, max_part_size=max_part_size
        ).parse()
    return FormData()


class _Parts:
    """The events of a body that is read on demand."""

    def __init__(self, headers: Headers, stream: AsyncIterator[bytes]) -> None:
        self._tokenizer = Tokenizer(headers)
        self._stream = stream
        self._pieces: Iterator[bytes] = iter(())
        self._events: deque[Event] = deque()

    async def next(self) -> Event | None:
        while not self._events:
            piece = next(self._pieces, None)
            if piece is not None:
                self._events.extend(self._tokenizer.feed(piece))
                continue
            try:
                self._pieces = pieces(await anext(self._stream))
            except StopAsyncIteration:
                self._tokenizer.finish()
                return None
        return self._events.popleft()


class FormPart:
    """A part of a multipart body that is being received.

    Iterating over it yields its data as it arrives.

    Attributes:
        name: The name of the field.
        filename: The name of the file as the client gave it, or None. Never use it as a path.
        headers: The headers of the part.
    """

    def __init__(self, head: PartHead, parts: _Parts, max_size: int | float) -> None:
        self.name = head.name
        self.filename = head.filename
        self.headers = head.headers
        self._parts = parts
        self._max_size = max_size
        self._size = 0
        self._has_ended = False

    @property
    def content_type(self) -> str | None:
        """The media type that the client gave for this part."""
        return self.headers.get("content-type")

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """Yields the data that was not read before.

        Raises:
            MultiPartException: The body is malformed, or the part over its limit.
        """
        while not self._has_ended:
            event = await self._parts.next()
            if not isinstance(event, bytes):
                self._has_ended = True
                return
            self._size += len(event)
            if self._size > self._max_size:
                raise MultiPartException(
                    f"Part exceeded maximum size of {int(self._max_size / 1024)}KB."
                )
            yield event

    async def read(self, max_size: int = MAX_FIELD_BYTES) -> bytes:
        """Returns the rest of the part.

        Args:
            max_size: Bytes that it may have.

        Raises:
            MultiPartException: The body is malformed, or the part over a limit.
        """
        data = bytearray()
        async for chunk in self:
            data += chunk
            if len(data) > max_size:
                raise MultiPartException(f"Part exceeded maximum size of {int(max_size / 1024)}KB.")
        return bytes(data)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, filename={self.filename!r})"


async def iterate_parts(
    headers: Headers,
    stream: AsyncIterator[bytes],
    *,
    max_parts: int | float = MAX_FIELDS,
    max_part_size: int | float = float("inf"),
) -> AsyncGenerator[FormPart, None]:
    """Yields the parts of a multipart body while they arrive; what is left unread is skipped.

    Args:
        headers: The headers of the request.
        stream: The body.
        max_parts: Parts that are accepted.
        max_part_size: Bytes that one part may have.

    Raises:
        MultiPartException: The body is not multipart, malformed or over a limit.
    """
    content_type, _ = parse_options_header(headers.get("content-type"))
    if content_type != b"multipart/form-data":
        raise MultiPartException("The body is not multipart/form-data.")
    parts = _Parts(headers, stream)
    num_parts = 0
    while (event := await parts.next()) is not None:
        if not isinstance(event, PartHead):
            continue
        num_parts += 1
        if num_parts > max_parts:
            raise MultiPartException(f"Too many parts. Maximum number of parts is {max_parts}.")
        part = FormPart(event, parts, max_part_size)
        yield part
        async for _ in part:
            pass
