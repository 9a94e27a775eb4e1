"""Turns header names and values into bytes, and refuses what could break a message apart.

RFC 9110 section 5.5: a value has no control characters but the tab. Names are tokens. What is
refused here can never reach the wire, whichever server sends the response.
"""

from __future__ import annotations

import re
from functools import lru_cache

_NOT_IN_NAME = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9a-z]")
_NOT_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]")


@lru_cache(maxsize=512)
def encode_name(name: str) -> bytes:
    """Lower-cases and encodes a header name.

    Raises:
        ValueError: The name is empty or has a character that a token cannot have.
    """
    try:
        encoded = name.lower().encode("ascii")
    except UnicodeEncodeError:
        raise ValueError(f"invalid header name {name!r}") from None
    if not encoded or _NOT_IN_NAME.search(encoded):
        raise ValueError(f"invalid header name {name!r}")
    return encoded


def encode_value(name: str, value: str) -> bytes:
    """Encodes a header value as latin-1.

    Args:
        name: The header's name, for the message.
        value: The value.

    Raises:
        ValueError: The value has a control character or one beyond latin-1.
    """
    if _NOT_IN_VALUE.search(value):
        raise ValueError(f"header {name!r} has a value with an invalid character: {value[:200]!r}")
    return value.encode("latin-1")
