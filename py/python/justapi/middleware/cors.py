"""Cross-origin resource sharing (Fetch standard, section 3.2), with Starlette's settings."""

from __future__ import annotations

import re
from collections.abc import Collection

from justapi.datastructures import Headers, MutableHeaders
from justapi.responses import PlainTextResponse, Response
from justapi.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["CORSMiddleware"]

ALL_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY")
ALWAYS_ALLOWED_HEADERS = ("Accept", "Accept-Language", "Content-Language", "Content-Type")

_PREFLIGHT_VARY = (
    "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, "
    "Access-Control-Request-Private-Network"
)


class CORSMiddleware:
    """Lets pages of other origins use the application.

    Args:
        app: The application.
        allow_origins: Origins that are allowed; `"*"` for all.
        allow_methods: Methods that are allowed; `"*"` for the usual ones.
        allow_headers: Request headers that are allowed; `"*"` for all.
        allow_credentials: Whether cookies and the like may be sent. Then the origin is named in
            the answer, never `*`.
        allow_origin_regex: Expression that whole origins may match.
        allow_private_network: Whether public pages may reach a private network.
        expose_headers: Response headers that the page may read.
        max_age: Seconds that a browser may keep the answer to a preflight.

    Example:
        >>> app.add_middleware(CORSMiddleware, allow_origins=["https://example.com"])
    """

    def __init__(
        self,
        app: ASGIApp,
        allow_origins: Collection[str] = (),
        allow_methods: Collection[str] = ("GET",),
        allow_headers: Collection[str] = (),
        allow_credentials: bool = False,
        allow_origin_regex: str | None = None,
        allow_private_network: bool = False,
        expose_headers: Collection[str] = (),
        max_age: int = 600,
    ) -> None:
        self.app = app
        self.allow_origins = allow_origins
        self.allow_methods = ALL_METHODS if "*" in allow_methods else allow_methods
        self.allow_all_origins = "*" in allow_origins
        self.allow_all_headers = "*" in allow_headers
        self.allow_credentials = allow_credentials
        self.allow_private_network = allow_private_network
        self.allow_origin_regex = (
            None if allow_origin_regex is None else re.compile(allow_origin_regex)
        )
        headers = sorted({*ALWAYS_ALLOWED_HEADERS, *allow_headers})
        self.allow_headers = [name.lower() for name in headers]
        self._names_origin = not self.allow_all_origins or allow_credentials
        self._simple: dict[str, str] = {}
        self._preflight: dict[str, str] = {"Vary": _PREFLIGHT_VARY}
        if self.allow_all_origins:
            self._simple["Access-Control-Allow-Origin"] = "*"
        if not self._names_origin:
            self._preflight["Access-Control-Allow-Origin"] = "*"
        self._preflight["Access-Control-Allow-Methods"] = ", ".join(self.allow_methods)
        self._preflight["Access-Control-Max-Age"] = str(max_age)
        if not self.allow_all_headers:
            self._preflight["Access-Control-Allow-Headers"] = ", ".join(headers)
        if allow_credentials:
            self._simple["Access-Control-Allow-Credentials"] = "true"
            self._preflight["Access-Control-Allow-Credentials"] = "true"
        if expose_headers:
            self._simple["Access-Control-Expose-Headers"] = ", ".join(expose_headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers preflights and adds headers to other answers."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if (
            origin is not None
            and scope["method"] == "OPTIONS"
            and "access-control-request-method" in headers
        ):
            await self.preflight_response(headers)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message.setdefault("headers", [])
                self._add_headers(MutableHeaders(scope=message), origin)
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def is_allowed_origin(self, origin: str) -> bool:
        """Whether pages of an origin are let in."""
        return (
            self.allow_all_origins
            or origin in self.allow_origins
            or (
                self.allow_origin_regex is not None
                and self.allow_origin_regex.fullmatch(origin) is not None
            )
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answers a preflight: 200 if all is allowed, 400 with what is not otherwise."""
        origin = request_headers["origin"]
        asked = request_headers.get("access-control-request-headers")
        headers = dict(self._preflight)
        refused: list[str] = []
        if not self.is_allowed_origin(origin):
            refused.append("origin")
        elif self._names_origin:
            headers["Access-Control-Allow-Origin"] = origin
        if request_headers["access-control-request-method"] not in self.allow_methods:
            refused.append("method")
        if asked is not None:
            names = [name.strip().lower() for name in asked.split(",")]
            if self.allow_all_headers:
                headers["Access-Control-Allow-Headers"] = asked
            elif not all(name in self.allow_headers for name in names):
                refused.append("headers")
        if "access-control-request-private-network" in request_headers:
            if self.allow_private_network:
                headers["Access-Control-Allow-Private-Network"] = "true"
            else:
                refused.append("private-network")
        if refused:
            return PlainTextResponse(
                f"Disallowed CORS {', '.join(refused)}", status_code=400, headers=headers
            )
        return PlainTextResponse("OK", headers=headers)

    def _add_headers(self, headers: MutableHeaders, origin: str | None) -> None:
        if origin is not None:
            headers.update(self._simple)
            if self._names_origin and self.is_allowed_origin(origin):
                headers["Access-Control-Allow-Origin"] = origin
        headers["Vary"] = ", ".join([*headers.getlist("Vary"), "Origin"])
