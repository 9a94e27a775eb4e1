"""The whole body of an operation as one field, for the OpenAPI document only."""

from __future__ import annotations

from typing import Any

from pydantic import create_model

from justapi import params
from justapi._fields import ModelField, make_field

__all__ = ["make_body_field"]


def make_body_field(fields: list[ModelField], *, name: str, embed: bool) -> ModelField | None:
    """Joins body parameters into one field.

    Args:
        fields: The body parameters of the handler and its dependencies.
        name: Id of the operation; the joined model is called after it.
        embed: Whether the parameters are members of the body.

    Returns:
        The parameter itself when it is the body, a model of all of them when they are members,
        None without a body. Its `field_info` is a `File`, a `Form` or a `Body`.
    """
    if not fields:
        return None
    first = fields[0]
    if not embed:
        return first
    members: dict[str, Any] = {}
    for field in fields:
        annotation: Any = field.field_info.annotation
        members.setdefault(field.name, (annotation, field.field_info))
    model = create_model(f"Body_{name}", **members)
    options: dict[str, Any] = {"annotation": model, "alias": "body"}
    default: Any = ... if any(field.required for field in fields) else None
    info: params.Body
    if any(isinstance(field.field_info, params.File) for field in fields):
        info = params.File(default, **options)
    else:
        kind = (
            params.Form
            if any(isinstance(field.field_info, params.Form) for field in fields)
            else params.Body
        )
        media_types = {
            field.field_info.media_type for field in fields if isinstance(field.field_info, kind)
        }
        if "multipart/form-data" in media_types and kind is params.Form:
            options["media_type"] = "multipart/form-data"
        elif len(media_types) == 1:
            options["media_type"] = media_types.pop()
        info = kind(default, **options)
    return make_field("body", model, field_info=info, alias="body")
