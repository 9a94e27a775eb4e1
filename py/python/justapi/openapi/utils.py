"""The maker of documents, where FastAPI's users import it from."""

from __future__ import annotations

from justapi.openapi._document import get_openapi

__all__ = ["get_openapi"]
