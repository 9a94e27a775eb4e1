"""What dependencies that check rights are built of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["SecurityBase", "SecurityScopes"]


class SecurityBase:
    """Base of dependencies that OpenAPI shall list as security schemes.

    Attributes:
        model: The scheme as OpenAPI describes it: a pydantic model or a mapping.
        scheme_name: Its name in the document.
    """

    model: Any
    scheme_name: str


class SecurityScopes:
    """The OAuth2 scopes that a dependency and those who need it asked for.

    Args:
        scopes: The scopes, outermost first.
    """

    def __init__(self, scopes: Sequence[str] | None = None) -> None:
        self.scopes: list[str] = list(scopes or [])
        self.scope_str: str = " ".join(self.scopes)
