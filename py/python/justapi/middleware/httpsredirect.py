"""Sends clients of plain HTTP to HTTPS."""

from __future__ import annotations

from justapi.datastructures import URL
from justapi.responses import PlainTextResponse, RedirectResponse
from justapi.types import ASGIApp, Receive, Scope, Send

__all__ = ["HTTPSRedirectMiddleware"]

_SECURE = {"http": "https", "ws": "wss"}


class HTTPSRedirectMiddleware:
    """Redirects `http` and `ws` to `https` and `wss` (307).

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Redirects, or lets through what is secure already."""
        if scope["type"] not in ("http", "websocket") or scope["scheme"] not in _SECURE:
            await self.app(scope, receive, send)
            return
        url = URL(scope=scope)
        if not url.netloc:
            await PlainTextResponse("Invalid host header", status_code=400)(scope, receive, send)
            return
        host = url.hostname if url.port in (80, 443) else url.netloc
        target = url.replace(scheme=_SECURE[scope["scheme"]], netloc=host)
        await RedirectResponse(target)(scope, receive, send)
