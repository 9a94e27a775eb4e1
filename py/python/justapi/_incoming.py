"""Takes the values of parameters out of a request, with FastAPI's rules and all errors.

This is the slow path: it runs for what the fast path refused, for forms, and for models of
parameters. Each function returns a value and the errors, with the places that FastAPI reports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, MutableMapping
from email.message import Message
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from justapi import params
from justapi._annotations import (
    holds_bytes,
    is_bytes_sequence,
    sequence_type,
)
from justapi._fields import (
    ModelField,
    missing_error,
    model_fields,
    param_model,
    request_names,
)
from justapi._form_models import (
    accepts_none,
    collect_model,
    extras,
    form_models,
    is_supplied,
    value_of,
)
from justapi.datastructures import (
    FormData,
    Headers,
    UploadFile,
)
from justapi.exceptions import HTTPException, RequestValidationError
from justapi.requests import HTTPConnection

__all__ = ["Incoming", "extract_body", "extract_param", "parse_json_body", "read_form_values"]

Errors = list[dict[str, Any]]

_INVALID_BODY = "There was an error parsing the body"


class Incoming:
    """The places of one request in which parameters are looked for.

    Args:
        scope: The ASGI scope, of type `http` or `websocket`.
        body: The body: undefined when there is none, parsed JSON, bytes when it is not JSON, or
            a form.
    """

    __slots__ = ("_connection", "body", "form_values", "scope")

    def __init__(self, scope: MutableMapping[str, Any], body: Any = PydanticUndefined) -> None:
        self.scope = scope
        self.body = body
        self.form_values: dict[ModelField, tuple[str, Any]] = {}
        self._connection: HTTPConnection[Any] = HTTPConnection(scope)

    def place(self, where: params.ParamTypes) -> Mapping[str, Any]:
        """Returns the values of one place by name."""
        if where is params.ParamTypes.query:
            return self._connection.query_params
        if where is params.ParamTypes.header:
            return self._connection.headers
        if where is params.ParamTypes.cookie:
            return self._connection.cookies
        return self._connection.path_params


def parse_json_body(raw: bytes, content_type: str | None, *, strict: bool) -> Any:
    """Parses a body that may be JSON.

    Args:
        raw: The body.
        content_type: Value of the `Content-Type` header, or None.
        strict: Whether a body without a content type is not taken for JSON.

    Returns:
        The parsed value, undefined for an empty body, the bytes for another content type.

    Raises:
        RequestValidationError: The body is malformed JSON.
        HTTPException: 400: the body is not text, or nested too deeply.
    """
    if not raw:
        return PydanticUndefined
    if not (is_json_type(content_type) if content_type else not strict):
        return raw
    try:
        return loads(raw)
    except json.JSONDecodeError as error:
        raise RequestValidationError(
            [
                {
                    "type": "json_invalid",
                    "loc": ("body", error.pos),
                    "msg": "JSON decode error",
                    "input": {},
                    "ctx": {"error": error.msg},
                }
            ],
            body=error.doc,
        ) from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, _INVALID_BODY) from error


# An escape of a surrogate; most of them come in pairs and are right.
_SURROGATE = re.compile(rb"\\\x00*u\x00*[dD]\x00*[89a-fA-F]")


def loads(raw: bytes) -> Any:
    """Parses JSON. A surrogate without its partner, which no text can hold, is malformed.

    Raises:
        ValueError: It is no JSON, or not in UTF-8, UTF-16 or UTF-32.
        RecursionError: It is nested too deeply.
    """
    value = json.loads(raw)
    found = _SURROGATE.search(raw)
    if found is not None:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise json.JSONDecodeError(
                "Unpaired surrogate", raw.decode(errors="replace"), found.start()
            ) from error
    return value


def is_json_type(content_type: str) -> bool:
    """Whether a content type is `application/json` or has the suffix `+json`."""
    if content_type == "application/json":
        return True
    message = Message()
    message["content-type"] = content_type
    subtype = message.get_content_subtype()
    return message.get_content_maintype() == "application" and (
        subtype == "json" or subtype.endswith("+json")
    )


def extract_param(field: ModelField, incoming: Incoming) -> tuple[Any, Errors]:
    """Extracts and validates a parameter outside of the body."""
    info = field.field_info
    assert isinstance(info, params.Param)
    values = incoming.place(info.in_)
    model = param_model(field)
    if model is not None:
        return _extract_model(field, model, values)
    names = request_names(field)
    name = next((on_wire for _, on_wire in names if on_wire in values), names[0][1])
    value = value_of(field, values, name)
    return field.validate_or_default(value, (info.in_.value, name))


def _extract_model(
    field: ModelField, model: type[BaseModel], values: Mapping[str, Any]
) -> tuple[Any, Errors]:
    """Extracts a model whose fields are parameters."""
    info = field.field_info
    assert isinstance(info, params.Param)
    is_header = isinstance(values, Headers)
    collected: dict[str, Any] = {}
    wire_names: dict[str, str] = {}
    known: set[str] = set()
    own: set[str] = set()
    for item in model_fields(model):
        convert = is_header and getattr(
            item.field_info, "convert_underscores", getattr(info, "convert_underscores", True)
        )
        names = request_names(item, convert_underscores=convert)
        own.update(on_wire.lower() if is_header else on_wire for _, on_wire in names)
        name, on_wire = next((pair for pair in names if pair[1] in values), names[0])
        value = value_of(item, values, on_wire)
        if value is not PydanticUndefined:
            collected[name] = value
        if is_header:
            known.add(on_wire.lower())
            known.update(alias.lower() for alias, other in names if alias != other)
            if name != on_wire:
                wire_names[item.name] = on_wire
        else:
            known.add(on_wire)
    collected.update(extras(values, known))
    found: Any = collected
    takes_extra = model.model_config.get("extra") in ("allow", "forbid")
    if info.annotation is not model and not (
        own.intersection(values) or (takes_extra and collected)
    ):
        # None of an optional model's parameters was sent.
        found = PydanticUndefined
    value, errors = field.validate_or_default(found, (info.in_.value,))
    if wire_names and model.model_config.get("loc_by_alias", True):
        for error in errors:
            loc = error["loc"]
            if len(loc) > 1 and loc[1] in wire_names:
                error["loc"] = (loc[0], wire_names[loc[1]], *loc[2:])
    return value, errors


def extract_body(field: ModelField, incoming: Incoming, *, embed: bool) -> tuple[Any, Errors]:
    """Extracts and validates a body parameter, out of JSON or a form.

    Args:
        field: The parameter.
        incoming: The request; for a form, `read_form_values` has run.
        embed: Whether the parameter is a member of the body.
    """
    body = incoming.body
    if isinstance(body, FormData):
        absent = (request_names(field)[0][0], PydanticUndefined)
        alias, value = incoming.form_values.get(field, absent)
        return field.validate_or_default(
            value, ("body",) if form_models(field) else ("body", alias)
        )
    if not embed:
        return field.validate_or_default(body, ("body",))
    names = [name for name, _ in request_names(field)]
    loc: tuple[str, ...] = ("body", names[0])
    value = PydanticUndefined
    if isinstance(body, Mapping):
        for name in names:
            if name in body:
                value = body[name]
                loc = ("body", name)
                break
    elif body is not PydanticUndefined and not isinstance(body, bytes):
        # Members need an object; neither a list, nor a scalar, nor null has any.
        return None, [missing_error(loc)]
    return field.validate_or_default(value, loc)


async def _file_bytes(file: UploadFile) -> bytes:
    # The file may be another parameter's, too.
    position = file.file.tell()
    content = await file.read()
    await file.seek(position)
    return content


async def _form_value(field: ModelField, value: Any) -> Any:
    """Reads files for parameters of type `bytes`, and makes the annotated kind of sequence."""
    if not isinstance(field.field_info, params.File):
        return value
    annotation = field.field_info.annotation
    if holds_bytes(annotation) and isinstance(value, UploadFile):
        return await _file_bytes(value)
    if is_bytes_sequence(annotation) and isinstance(value, list):
        return sequence_type(annotation)(
            [await _file_bytes(item) if isinstance(item, UploadFile) else item for item in value]
        )
    return value


async def read_form_values(fields: list[ModelField], form: FormData, incoming: Incoming) -> None:
    """Finds the values of body parameters in a form."""
    for field in fields:
        models = form_models(field)
        if models:
            if not accepts_none(field) or is_supplied(models, form):
                value = await _form_model_value(models, form)
                incoming.form_values[field] = (field.wire_name, value)
            continue
        for name, _ in request_names(field):
            value = value_of(field, form, name)
            if value is not PydanticUndefined:
                incoming.form_values[field] = (name, await _form_value(field, value))
                break


async def _form_model_value(models: tuple[type[BaseModel], ...], form: FormData) -> Any:
    """Returns what the form has for one model; for a union all of it, as its members choose."""
    if len(models) > 1:
        return dict(extras(form, set()))
    collected = collect_model(models[0], form)
    for item in model_fields(models[0]):
        for name, _ in request_names(item):
            if name in collected:
                collected[name] = await _form_value(item, collected[name])
                break
    return collected
