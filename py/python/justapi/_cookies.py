"""Reads `Cookie` and writes `Set-Cookie`, byte for byte as Starlette does.

Reading is lenient as browsers are: RFC 6265 is disregarded often enough that a strict reader
loses cookies.
"""

from __future__ import annotations

import http.cookies
import re
import sys
from datetime import datetime
from email.utils import format_datetime
from typing import Any, Literal

# `\ooo` or an escaped character, inside a quoted value.
_ESCAPED = re.compile(r"\\(?:([0-3][0-7][0-7])|(.))", re.DOTALL)

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _unquote(value: str) -> str:
    if len(value) < 2 or value[0] != '"' or value[-1] != '"':
        return value
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)) if match[1] else match[2], value[1:-1])


def parse_cookies(header: str) -> dict[str, str]:
    """Returns the cookies of a `Cookie` header by name; a pair without `=` has an empty name.

    Args:
        header: The value of the header.
    """
    cookies: dict[str, str] = {}
    for pair in header.split(";"):
        name, equals, value = pair.partition("=")
        if not equals:
            name, value = "", pair
        name, value = name.strip(), value.strip()
        if name or value:
            cookies[name] = _unquote(value)
    return cookies


def render_cookie(
    key: str,
    value: str,
    *,
    max_age: int | None,
    expires: datetime | str | int | None,
    path: str | None,
    domain: str | None,
    secure: bool,
    httponly: bool,
    samesite: Literal["lax", "strict", "none"] | None,
    partitioned: bool,
) -> str:
    """Returns the value of a `Set-Cookie` header.

    Raises:
        ValueError: An attribute cannot stand in a cookie, or `samesite` is none of the three.
        http.cookies.CookieError: The name cannot stand in a cookie.
    """
    for name, attribute in (("expires", expires), ("path", path), ("domain", domain)):
        # Newer interpreters refuse these themselves, with an error of their own.
        if isinstance(attribute, str) and _CONTROL.search(attribute):
            raise ValueError(f"cookie attribute {name!r} has a control character: {attribute!r}")
    # The quoted value stands for both: newer interpreters refuse control characters in a value,
    # although they are escaped in what is sent.
    _, quoted = http.cookies.SimpleCookie().value_encode(value)
    morsel: Any = http.cookies.Morsel()
    morsel.set(key, quoted, quoted)
    if max_age is not None:
        morsel["max-age"] = max_age
    if expires is not None:
        if isinstance(expires, datetime):
            expires = format_datetime(expires, usegmt=True)
        morsel["expires"] = expires
    if path is not None:
        morsel["path"] = path
    if domain is not None:
        morsel["domain"] = domain
    if secure:
        morsel["secure"] = True
    if httponly:
        morsel["httponly"] = True
    if samesite is not None:
        if samesite.lower() not in ("strict", "lax", "none"):
            raise ValueError("samesite must be either 'strict', 'lax' or 'none'")
        morsel["samesite"] = samesite
    if partitioned and sys.version_info >= (3, 14):
        morsel["partitioned"] = True
    rendered: str = morsel.OutputString().strip()
    if partitioned and sys.version_info < (3, 14):
        # http.cookies does not know the attribute yet.
        rendered += "; Partitioned"
    return rendered
