"""Sends clients of plain HTTP to HTTPS."""

from __future__ import annotations

from justapi.datastructures import URL
from justapi.responses import PlainTextResponse, RedirectResponse, Response
from justapi.types import ASGIApp, Receive, Scope, Send

__all__ = ["HTTPSRedirectMiddleware"]

_SECURE = {"http": "https", "ws": "wss"}


class HTTPSRedirectMiddleware:
    """Redirects `http` and `ws` to `https` and `wss` (307).

    Args:
        app: The application.

    Example:
        >>> app.add_middleware(HTTPSRedirectMiddleware)
        >>> client.get("/", follow_redirects=False).headers["location"]
        'https://test/'
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Redirects, or lets through what is secure already."""
        if scope["type"] not in ("http", "websocket") or scope["scheme"] not in _SECURE:
            await self.app(scope, receive, send)
            return
        await self.redirect_of(scope)(scope, receive, send)

    def redirect_of(self, scope: Scope) -> Response:
        """Makes the answer to a request that is not secure."""
        url = URL(scope=scope)
        if not url.netloc:
            return PlainTextResponse("Invalid host header", status_code=400)
        host = url.netloc
        if url.port in (80, 443):
            host = url.hostname or ""
            # `hostname` is an IPv6 address without its brackets.
            host = f"[{host}]" if ":" in host else host
        return RedirectResponse(url.replace(scheme=_SECURE[scope["scheme"]], netloc=host))
