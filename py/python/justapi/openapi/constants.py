"""Names that the parts of the document share."""

from __future__ import annotations

METHODS_WITH_BODY = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"})
"""Methods whose request body is described."""

REF_PREFIX = "#/components/schemas/"
"""What a reference to a schema begins with."""

REF_TEMPLATE = REF_PREFIX + "{model}"
"""The same for pydantic."""
