"""Checks the limits that routes, routers and applications are declared with.

A limit that cannot be meant is an error where it stands, not with the first request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["checked_body_limit", "checked_form_limits"]

FORM_LIMITS: Final = frozenset({"max_fields", "max_files", "max_part_size"})
"""Names of the limits of forms, as `Request.form` has them."""


def checked_body_limit(limit: Any) -> int | None:
    """Returns a limit of bodies in bytes, or None for none.

    Raises:
        ValueError: It is no count of bytes.
    """
    if limit is not None and not _is_count(limit):
        raise ValueError("max_body_size must be a non-negative integer or None")
    return limit  # type: ignore[no-any-return]


def checked_form_limits(limits: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns a copy of the limits of forms.

    Raises:
        ValueError: One of them does not exist, or is neither a count nor infinite.
    """
    checked = dict(limits or {})
    for name, limit in checked.items():
        if name not in FORM_LIMITS:
            known = ", ".join(sorted(FORM_LIMITS))
            raise ValueError(f"form_limits has no {name!r}; there are {known}")
        if not (_is_count(limit) or limit == math.inf):
            raise ValueError(f"{name} of form_limits must be a non-negative integer, or infinite")
    return checked


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
