"""Refuses requests for hosts that are not the application's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from justapi.datastructures import URL, Headers
from justapi.responses import PlainTextResponse, RedirectResponse, Response
from justapi.types import ASGIApp, Receive, Scope, Send

__all__ = ["TrustedHostMiddleware"]

# A name or an address, an IPv6 one in brackets, and a port (RFC 9110 section 7.2).
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s/?#@:\[\]]+)(:[0-9]*)?")


class TrustedHostMiddleware:
    """Answers 400 to requests whose `Host` is not listed.

    Args:
        app: The application.
        allowed_hosts: Host names; `*.example.com` for all below, `*` for any.
        www_redirect: Whether to redirect to `www.` of the host, if that one is listed.

    Example:
        >>> app.add_middleware(TrustedHostMiddleware, allowed_hosts=["test", "*.example.com"])
        >>> client.get("/", headers={"host": "evil.example"}).status_code
        400
    """

    def __init__(
        self,
        app: ASGIApp,
        allowed_hosts: Sequence[str] | None = None,
        www_redirect: bool = True,
    ) -> None:
        patterns = ["*"] if allowed_hosts is None else list(allowed_hosts)
        for pattern in patterns:
            if "*" in pattern[1:] or (
                pattern.startswith("*") and pattern != "*" and not pattern.startswith("*.")
            ):
                raise AssertionError("Domain wildcard patterns must be like '*.example.com'.")
        self.app = app
        self.allowed_hosts = [pattern.lower() for pattern in patterns]
        self.allow_any = "*" in patterns
        self.www_redirect = www_redirect

    def _is_allowed(self, host: str) -> bool:
        return any(
            host == pattern or (pattern.startswith("*") and host.endswith(pattern[1:]))
            for pattern in self.allowed_hosts
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets requests for listed hosts through."""
        if self.allow_any or scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        host = _host_of(scope)
        if host and self._is_allowed(host):
            await self.app(scope, receive, send)
            return
        await self.refusal_of(scope)(scope, receive, send)

    def refusal_of(self, scope: Scope) -> Response:
        """Makes the answer to a request for a host that is not listed."""
        host = _host_of(scope)
        if host and self.www_redirect and f"www.{host}" in self.allowed_hosts:
            url = URL(scope=scope)
            return RedirectResponse(url.replace(netloc=f"www.{url.netloc}"))
        return PlainTextResponse("Invalid host header", status_code=400)


def _host_of(scope: Scope) -> str:
    """Returns the host that is asked for, in lower case; nothing if it is none."""
    found = _HOST.fullmatch(Headers(scope=scope).get("host", ""))
    return "" if found is None else found[1].lower()
