"""Cuts multipart bodies into heads, data and ends of parts, within limits.

The tokenizer is that of the `python-multipart` package; the meaning of a part's head (RFC 7578)
and what is refused are decided here.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote_to_bytes

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from justapi.datastructures import Headers
from justapi.exceptions import HTTPException

MAX_PART_HEADERS = 16
"""Header lines of a part; browsers send two."""

MAX_PART_HEADER_BYTES = 8 * 1024
"""Bytes of a header line of a part: room for a long file name."""

MAX_BOUNDARY_BYTES = 200
"""Bytes of a boundary; RFC 2046 section 5.1.1 allows 70, some clients take more."""

PIECE_BYTES = 64 * 1024
"""Bytes that are parsed between two looks at the limits, however much arrives at once."""

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_EXTENDED_FILENAME = re.compile(r";\s*filename\*\s*=\s*([^;]*)", re.IGNORECASE)


class MultiPartException(HTTPException):
    """A form is malformed or over a limit: 400.

    Args:
        message: What is wrong, for the client.
    """

    def __init__(self, message: str) -> None:
        super().__init__(status_code=400, detail=message)
        self.message = message


def decode_text(raw: bytes | bytearray, charset: str) -> str:
    try:
        return raw.decode(charset)
    except (UnicodeDecodeError, LookupError):
        return raw.decode("latin-1")


def pieces(chunk: bytes) -> Iterator[bytes]:
    if len(chunk) <= PIECE_BYTES:
        yield chunk
        return
    for start in range(0, len(chunk), PIECE_BYTES):
        yield chunk[start : start + PIECE_BYTES]


@dataclass(slots=True)
class PartHead:
    name: str
    filename: str | None
    headers: Headers


class PartEnd:
    pass


PART_END = PartEnd()
Event: TypeAlias = PartHead | bytes | PartEnd


class Tokenizer:
    """Turns chunks of a multipart body into heads, data and ends of parts."""

    def __init__(self, headers: Headers) -> None:
        _, options = parse_options_header(headers.get("content-type"))
        boundary = options.get(b"boundary")
        if not boundary:
            raise MultiPartException("Missing boundary in multipart.")
        if len(boundary) > MAX_BOUNDARY_BYTES:
            raise MultiPartException("The boundary of the multipart is too long.")
        charset = options.get(b"charset", b"utf-8").decode("latin-1")
        try:
            self.charset = codecs.lookup(charset).name
        except LookupError:
            self.charset = "latin-1"
        self._events: list[Event] = []
        self._headers: list[tuple[bytes, bytes]] = []
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._has_begun = False
        self._has_ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_end": self._on_end,
            },
            max_header_count=MAX_PART_HEADERS,
            max_header_size=MAX_PART_HEADER_BYTES,
        )

    def feed(self, chunk: bytes) -> list[Event]:
        """Returns what a chunk completes.

        Raises:
            MultiPartException: The body is malformed.
        """
        self._has_begun |= bool(chunk)
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise MultiPartException("Invalid multipart data.") from error
        events, self._events = self._events, []
        return events

    def finish(self) -> None:
        """Has to be called at the end of the body; one without a byte has no parts.

        Raises:
            MultiPartException: The last boundary has not come.
        """
        if self._has_begun and not self._has_ended:
            raise MultiPartException("The multipart has no final boundary.")

    def _on_part_begin(self) -> None:
        self._headers = []

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers.append((bytes(self._header_name).lower(), bytes(self._header_value)))
        self._header_name.clear()
        self._header_value.clear()

    def _on_headers_finished(self) -> None:
        headers = Headers(raw=self._headers)
        disposition = headers.get("content-disposition", "")
        _, options = parse_options_header(disposition)
        if b"name" not in options:
            raise MultiPartException(
                'The Content-Disposition header field "name" must be provided.'
            )
        filename = options.get(b"filename")
        self._events.append(
            PartHead(
                decode_text(options[b"name"], self.charset),
                _extended_filename(disposition)
                if filename is None
                else decode_text(filename, self.charset),
                headers,
            )
        )

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._events.append(data[start:end])

    def _on_part_end(self) -> None:
        self._events.append(PART_END)

    def _on_end(self) -> None:
        self._has_ended = True


def _extended_filename(disposition: str) -> str | None:
    """Reads `filename*` of RFC 8187, which RFC 7578 forbids and some clients send all the same."""
    found = _EXTENDED_FILENAME.findall(_QUOTED.sub('""', disposition))
    if not found:
        return None
    charset, _, rest = found[0].strip().partition("'")
    _, quote, encoded = rest.partition("'")
    if len(found) > 1 or not quote or charset.lower() not in ("utf-8", "iso-8859-1"):
        raise MultiPartException('The "filename*" of a part is malformed.')
    try:
        return unquote_to_bytes(encoded).decode(charset)
    except UnicodeDecodeError:
        raise MultiPartException('The "filename*" of a part is malformed.') from None
