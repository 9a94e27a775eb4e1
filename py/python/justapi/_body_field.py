"""The whole body of an operation as one field, for the OpenAPI document only."""

from __future__ import annotations

from copy import copy
from typing import Any

from pydantic import BaseModel, create_model

from justapi import params
from justapi._fields import ModelField, make_field, model_fields, request_names
from justapi._form_models import accepts_none, form_models

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
    info: Any
    if not embed:
        if not (form_models(first) and accepts_none(first)):
            return first
        # Absent as a whole is a form without its fields, not a null.
        info = copy(first.field_info)
        model = info.annotation = _composed_form(f"Body_{name}", fields)
        info.metadata = []
        info.discriminator = None
        return make_field(first.name, model, field_info=info)
    if any(form_models(field) for field in fields):
        model = _composed_form(f"Body_{name}", fields)
    else:
        members: dict[str, Any] = {}
        for field in fields:
            annotation: Any = field.field_info.annotation
            members.setdefault(field.name, (annotation, field.field_info))
        model = create_model(f"Body_{name}", **members)
    options: dict[str, Any] = {"annotation": model, "alias": "body"}
    default: Any = ... if any(field.required for field in fields) else None
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


def _composed_form(name: str, fields: list[ModelField]) -> type[BaseModel]:
    """A form of which several parameters take their parts: all of them hold for the whole."""
    unique = list({(field.name, form_models(field)): field for field in fields}.values())
    members: dict[str, Any] = {}
    for index, field in enumerate(unique):
        info = copy(field.field_info)
        info.title = info.title or field.name.replace("_", " ").title()
        info.alias = info.validation_alias = info.serialization_alias = None
        members[f"part_{index}"] = (info.annotation, info)

    def compose(schema: dict[str, Any]) -> None:
        parts = schema.pop("properties")
        schema.pop("required", None)
        properties: dict[str, Any] = {}
        required: list[str] = []
        conditions: list[dict[str, Any]] = []
        for index, field in enumerate(unique):
            part = parts[f"part_{index}"]
            if form_models(field):
                conditions += _conditions(field, part)
                continue
            wire_name = request_names(field)[0][0]
            properties[wire_name] = part
            if field.required and wire_name not in required:
                required.append(wire_name)
        if properties:
            schema["properties"] = properties
        if required:
            schema["required"] = required
        schema["allOf"] = conditions

    return create_model(name, __config__={"json_schema_extra": compose}, **members)


def _conditions(field: ModelField, part: dict[str, Any]) -> list[dict[str, Any]]:
    """What a model or union of models asks of the form."""
    part.pop("default", None)
    if not accepts_none(field):
        return [part]
    part["anyOf"] = [member for member in part["anyOf"] if member.get("type") != "null"]
    models = form_models(field)
    names = sorted(
        {n for model in models for one in model_fields(model) for n, _ in request_names(one)}
    )
    if any(model.model_config.get("extra") in ("allow", "forbid") for model in models):
        absent: dict[str, Any] = {"maxProperties": 0}
    else:
        absent = {"not": {"anyOf": [{"required": [one]} for one in names]}} if names else {}
    if field.required:
        return [{"not": absent}, part]
    return [{"anyOf": [absent, part]}]
