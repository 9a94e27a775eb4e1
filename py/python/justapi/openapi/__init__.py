"""The OpenAPI document of an application, and the pages that show it."""

from __future__ import annotations

from justapi.openapi._application import add_documentation_routes
from justapi.openapi._application import document_of as get_openapi

__all__ = ["add_documentation_routes", "get_openapi"]
