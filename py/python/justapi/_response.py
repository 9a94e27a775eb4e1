"""The response whose body is known when it is made."""

from __future__ import annotations

import importlib
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from justapi._cookies import render_cookie
from justapi._header_fields import encode_name, encode_value
from justapi._url import URL
from justapi.datastructures import MutableHeaders
from justapi.types import Message, Receive, Scope, Send

__all__ = [
    "HTMLResponse",
    "JSONResponse",
    "ORJSONResponse",
    "PlainTextResponse",
    "RedirectResponse",
    "Response",
    "UJSONResponse",
]

_encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


@lru_cache(maxsize=256)
def _content_type(media_type: str, charset: str) -> tuple[bytes, bytes]:
    if media_type.startswith("text/") and "charset=" not in media_type.lower():
        media_type = f"{media_type}; charset={charset}"
    return b"content-type", encode_value("content-type", media_type)


class Response:
    """A response with its whole body. It is an ASGI application, too.

    Args:
        content: The body: text, bytes, a memoryview or None.
        status_code: The status.
        headers: Headers; a content length or type that is named here replaces the usual one.
        media_type: The content type; by default that of the class.
        background: What runs after the response was sent: an object that is awaited when called.

    Attributes:
        status_code: The status.
        body: The body as bytes.
        raw_headers: The headers as pairs of bytes, names in lower case. What is added through
            `headers` is checked; whoever changes this list has to see to it.
        background: What runs after the response was sent.

    Raises:
        ValueError: A header has a control character, or one beyond latin-1.

    Example:
        >>> @app.get("/logo")
        ... def logo():
        ...     return Response(svg, media_type="image/svg+xml")
    """

    media_type: str | None = None
    charset: str = "utf-8"

    streaming: ClassVar[bool] = False
    """Whether the body is produced while it is sent, so that `body` says nothing."""

    # Set by the framework: what has to run once the response has left.
    _after: Callable[[], Awaitable[None]] | None = None

    body: bytes | memoryview

    def __init__(
        self,
        content: Any = None,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
        background: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.status_code = status_code
        if media_type is not None:
            self.media_type = media_type
        self.background = background
        self.body = self.render(content)
        self.init_headers(headers)

    def render(self, content: Any) -> bytes | memoryview:
        """Makes the body of the content. Subclasses may replace it.

        Args:
            content: What the constructor was given.

        Raises:
            TypeError: The content is neither text nor bytes.
            UnicodeEncodeError: The text cannot be encoded.
        """
        if content is None:
            return b""
        if isinstance(content, bytes):
            return content
        if isinstance(content, memoryview):
            return content.cast("B") if content.c_contiguous else content.tobytes()
        if isinstance(content, bytearray):
            return bytes(content)
        try:
            encode = content.encode
        except AttributeError:
            raise TypeError(
                f"content must be text or bytes, not {type(content).__name__}; "
                "JSONResponse takes other values"
            ) from None
        encoded: bytes = encode(self.charset)
        return encoded

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """Sets `raw_headers` from the given ones, the body and the media type.

        Args:
            headers: Headers; what they name is not added.

        Raises:
            ValueError: A header has a control character, or one beyond latin-1.
        """
        raw: list[tuple[bytes, bytes]] = []
        wants_length = wants_type = True
        if headers:
            for name, value in headers.items():
                encoded = encode_name(name)
                raw.append((encoded, encode_value(name, value)))
                if encoded == b"content-length":
                    wants_length = False
                elif encoded == b"content-type":
                    wants_type = False
        if wants_length:
            body = getattr(self, "body", None)
            status = self.status_code
            # RFC 9110 section 8.6: these have no content and say nothing of its length.
            if body is not None and status >= 200 and status not in (204, 304):
                raw.append((b"content-length", b"%d" % len(body)))
        if wants_type and self.media_type is not None:
            raw.append(_content_type(self.media_type, self.charset))
        self.raw_headers = raw

    @property
    def headers(self) -> MutableHeaders:
        """The headers, to be read and changed."""
        found: MutableHeaders | None = self.__dict__.get("_headers")
        if found is None or found._list is not self.raw_headers:
            found = self.__dict__["_headers"] = MutableHeaders(raw=self.raw_headers)
        return found

    def set_cookie(
        self,
        key: str,
        value: str = "",
        max_age: int | None = None,
        expires: datetime | str | int | None = None,
        path: str | None = "/",
        domain: str | None = None,
        secure: bool = False,
        httponly: bool = False,
        samesite: Literal["lax", "strict", "none"] | None = "lax",
        partitioned: bool = False,
    ) -> None:
        """Adds a `Set-Cookie` header.

        Args:
            key: The cookie's name.
            value: Its value.
            max_age: Seconds that it lives.
            expires: When it ends: a moment, seconds from now, or the text of the attribute.
            path: The paths that it is sent to.
            domain: The domain that it is sent to.
            secure: Whether it is sent over HTTPS only.
            httponly: Whether scripts cannot see it.
            samesite: Which requests of other sites carry it.
            partitioned: Whether it is kept apart for each top-level site.

        Raises:
            ValueError: A value cannot stand in a header, or `samesite` is none of the three.
            http.cookies.CookieError: The name cannot stand in a cookie.
        """
        rendered = render_cookie(
            key,
            value,
            max_age=max_age,
            expires=expires,
            path=path,
            domain=domain,
            secure=secure,
            httponly=httponly,
            samesite=samesite,
            partitioned=partitioned,
        )
        self.raw_headers.append((b"set-cookie", encode_value("set-cookie", rendered)))

    def delete_cookie(
        self,
        key: str,
        path: str = "/",
        domain: str | None = None,
        secure: bool = False,
        httponly: bool = False,
        samesite: Literal["lax", "strict", "none"] | None = "lax",
        partitioned: bool = False,
    ) -> None:
        """Adds a `Set-Cookie` header that makes the client forget a cookie.

        Args:
            key: The cookie's name. The other arguments have to be those that it was set with.
            path: As in `set_cookie`.
            domain: As in `set_cookie`.
            secure: As in `set_cookie`.
            httponly: As in `set_cookie`.
            samesite: As in `set_cookie`.
            partitioned: As in `set_cookie`.

        Raises:
            ValueError: As in `set_cookie`.
            http.cookies.CookieError: As in `set_cookie`.
        """
        self.set_cookie(
            key,
            max_age=0,
            expires=0,
            path=path,
            domain=domain,
            secure=secure,
            httponly=httponly,
            samesite=samesite,
            partitioned=partitioned,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response, then runs `background`.

        Args:
            scope: The ASGI scope: of a request, or of a WebSocket that is refused.
            receive: The ASGI receive callable.
            send: The ASGI send callable.
        """
        send = self._denying(scope, send)
        await send(self._start_message())
        await send({"type": "http.response.body", "body": self.body})
        if self.background is not None:
            await self.background()

    def _start_message(self) -> Message:
        return {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }

    def _denying(self, scope: Scope, send: Send) -> Send:
        """Returns a `send` that answers the handshake, if the scope is a WebSocket's."""
        if scope["type"] != "websocket":
            return send

        async def deny(message: Message) -> None:
            await send({**message, "type": "websocket." + message["type"]})

        return deny


class HTMLResponse(Response):
    """A response of HTML text.

    Example:
        >>> HTMLResponse("<h1>Hello</h1>").headers["content-type"]
        'text/html; charset=utf-8'
    """

    media_type = "text/html"


class PlainTextResponse(Response):
    """A response of plain text.

    Example:
        >>> PlainTextResponse("Hello", status_code=201).headers["content-type"]
        'text/plain; charset=utf-8'
    """

    media_type = "text/plain"


class JSONResponse(Response):
    """A response of JSON.

    Args:
        content: What `json.dumps` accepts.
        status_code: The status.
        headers: Headers.
        media_type: The content type; `application/json` by default.
        background: What runs after the response was sent.

    Raises:
        TypeError: The content has an object that JSON does not know.
        ValueError: The content has a NaN or an infinity, or refers to itself, or a header is
            invalid.

    Example:
        >>> @app.get("/teapot")
        ... def teapot():
        ...     return JSONResponse({"is": "short and stout"}, status_code=418)
        >>> client.get("/teapot").status_code
        418
    """

    media_type = "application/json"

    def __init__(
        self,
        content: Any,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
        background: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(content, status_code, headers, media_type, background)

    def render(self, content: Any) -> bytes | memoryview:
        """Encodes the content as compact JSON in UTF-8."""
        return _encode_json(content).encode("utf-8")


class ORJSONResponse(JSONResponse):
    """A response of JSON that the package `orjson` encodes.

    For applications that come with it; `JSONResponse` needs no other package.

    Raises:
        RuntimeError: The package `orjson` is not installed.
        TypeError: The content has an object that orjson does not know.

    Example:
        >>> ORJSONResponse({1: "one"}).body
        b'{"1":"one"}'
    """

    def render(self, content: Any) -> bytes | memoryview:
        """Encodes the content as compact JSON; keys need not be text, numpy's arrays are lists."""
        orjson = _installed("orjson")
        options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
        encoded: bytes = orjson.dumps(content, option=options)
        return encoded


class UJSONResponse(JSONResponse):
    """A response of JSON that the package `ujson` encodes.

    For applications that come with it; `JSONResponse` needs no other package.

    Raises:
        RuntimeError: The package `ujson` is not installed.
        TypeError: The content has an object that ujson does not know.

    Example:
        >>> UJSONResponse(["é"]).body.decode()
        '["é"]'
    """

    def render(self, content: Any) -> bytes | memoryview:
        """Encodes the content as JSON in UTF-8."""
        encoded: str = _installed("ujson").dumps(content, ensure_ascii=False)
        return encoded.encode("utf-8")


def _installed(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        raise RuntimeError(f"{package} must be installed to use this response") from None


class RedirectResponse(Response):
    """A response that sends the client to another URL.

    Args:
        url: Where to; what a URL cannot hold is percent-encoded.
        status_code: The status; 307 keeps method and body.
        headers: Headers.
        background: What runs after the response was sent.

    Raises:
        ValueError: A header is invalid.

    Example:
        >>> @app.get("/old")
        ... def old():
        ...     return RedirectResponse("/new place", status_code=308)
        >>> client.get("/old", follow_redirects=False).headers["location"]
        '/new%20place'
    """

    def __init__(
        self,
        url: str | URL,
        status_code: int = 307,
        headers: Mapping[str, str] | None = None,
        background: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(b"", status_code, headers, background=background)
        self.headers["location"] = quote(str(url), safe=":/%#?=@[]!$&'()*+,;")
