"""The OpenAPI 3.1 document of an application."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import AnyUrl, TypeAdapter, ValidationError

from justapi._api_route import APIRoute
from justapi._fields import ModelField
from justapi.encoders import jsonable_encoder
from justapi.openapi._operations import ErrorFormat, Operations, parameter_fields
from justapi.openapi._schemas import Schemas

__all__ = ["get_openapi"]


def get_openapi(
    *,
    title: str,
    version: str,
    openapi_version: str = "3.1.0",
    summary: str | None = None,
    description: str | None = None,
    routes: Sequence[Any],
    webhooks: Sequence[Any] | None = None,
    tags: list[dict[str, Any]] | None = None,
    servers: list[dict[str, str | Any]] | None = None,
    terms_of_service: str | None = None,
    contact: dict[str, str | Any] | None = None,
    license_info: dict[str, str | Any] | None = None,
    separate_input_output_schemas: bool = True,
    external_docs: dict[str, Any] | None = None,
    error_format: ErrorFormat = "fastapi",
) -> dict[str, Any]:
    """Returns the document that describes routes.

    Args:
        title: Title of the API.
        version: Version of the API.
        openapi_version: Version of OpenAPI that the document says it follows.
        summary: One line about the API.
        description: More about it, in Markdown.
        routes: The routes; those that are no path operations are left out.
        webhooks: Routes that the API calls rather than offers.
        tags: Descriptions of the tags.
        servers: Where the API is reached.
        terms_of_service: URL of the terms.
        contact: Whom to ask.
        license_info: The licence of the API.
        separate_input_output_schemas: Whether a model may have one schema coming in and one
            going out.
        external_docs: More documentation.
        error_format: The shape of the answers to invalid input: FastAPI's, or problem documents.

    Raises:
        pydantic.errors.PydanticInvalidForJsonSchema: A type has no JSON Schema.

    Example:
        >>> document = get_openapi(title="Shop", version="1.0", routes=app.routes)
    """
    shown = [route for route in routes if isinstance(route, APIRoute)]
    hooks = [route for route in webhooks or () if isinstance(route, APIRoute)]
    schemas = Schemas(
        list(_fields([*shown, *hooks])), separate_input_output=separate_input_output_schemas
    )
    operations = Operations(schemas, error_format)
    paths = _path_items(operations, shown)
    webhook_items = _path_items(operations, hooks)
    components: dict[str, Any] = {}
    definitions = {**schemas.definitions, **operations.definitions}
    if definitions:
        components["schemas"] = {name: definitions[name] for name in sorted(definitions)}
    if operations.security_schemes:
        components["securitySchemes"] = operations.security_schemes
    document: dict[str, Any] = {
        "openapi": openapi_version,
        "info": {
            "title": title,
            "version": version,
            "summary": summary or None,
            "description": description or None,
            "termsOfService": terms_of_service or None,
            "contact": _with_url(contact),
            "license": _with_url(license_info),
        },
        "servers": servers or None,
        "paths": paths,
        "webhooks": webhook_items or None,
        "components": components or None,
        "tags": [_with_docs(tag) for tag in tags] if tags else None,
        "externalDocs": _with_url(external_docs),
    }
    encoded: dict[str, Any] = jsonable_encoder(document, by_alias=True, exclude_none=True)
    return encoded


def _fields(routes: Iterable[APIRoute]) -> Iterable[ModelField]:
    """Yields all fields that the document shows."""
    for route in routes:
        if not route.include_in_schema:
            continue
        if route.native_plan is not None:
            yield from route.response_fields.values()
            continue
        yield from _fields(item for item in route.callbacks if isinstance(item, APIRoute))
        if route.body_field is not None:
            yield route.body_field
        if route.response_field is not None:
            yield route.response_field
        yield from route.response_fields.values()
        if route.stream_item_field is not None:
            yield route.stream_item_field
        yield from parameter_fields(route.dependant)


def _path_items(operations: Operations, routes: list[APIRoute]) -> dict[str, Any]:
    items: dict[str, Any] = {}
    for route in routes:
        item = operations.path_item(route)
        if item:
            items.setdefault(route.path_format, {}).update(item)
    return items


_url = TypeAdapter(AnyUrl)


def _with_url(described: dict[str, Any] | None) -> dict[str, Any] | None:
    """Writes the URL of a contact, licence or documentation in its normal form."""
    if not described:
        return None
    if described.get("url") is None:
        return described
    try:
        return {**described, "url": str(_url.validate_python(described["url"]))}
    except ValidationError as error:
        raise ValueError(f"not a URL: {described['url']!r}") from error


def _with_docs(tag: dict[str, Any]) -> dict[str, Any]:
    docs = tag.get("externalDocs")
    return tag if docs is None else {**tag, "externalDocs": _with_url(docs)}
