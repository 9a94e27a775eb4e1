"""Models whose fields are the fields of a form, and their unions.

Each takes what it knows out of the whole form, so that several can stand beside each other and
beside single fields. A member of a union looks at the form for itself: whether a repeated name is
a list or its last value is the member's question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, Json, Tag
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from justapi import params
from justapi._annotations import NONE_TYPE, is_sequence, is_subclass, model_of, union_members
from justapi._fields import ModelField, model_fields, request_names, takes_list
from justapi.datastructures import FormData, Headers, ImmutableMultiDict, UploadFile

__all__ = [
    "accepts_none",
    "collect_model",
    "extras",
    "form_models",
    "is_supplied",
    "value_of",
    "with_form_members",
]


def form_models(field: ModelField) -> tuple[type[BaseModel], ...]:
    """Returns the model whose fields are the fields of the form, those of a union, or none."""
    return _models_of(field.field_info)


def accepts_none(field: ModelField) -> bool:
    """Whether the field may be absent as a whole."""
    return NONE_TYPE in (union_members(field.field_info.annotation) or ())


def _models_of(info: FieldInfo) -> tuple[type[BaseModel], ...]:
    if not isinstance(info, params.Form) or info.embed:
        return ()
    if any(type(item) is Json for item in info.metadata):
        return ()
    model = model_of(info.annotation)
    if model is not None:
        return (model,)
    members = [
        get_args(member)[0] if get_origin(member) is Annotated else member
        for member in union_members(info.annotation) or ()
        if member is not NONE_TYPE
    ]
    return tuple(members) if all(is_subclass(one, BaseModel) for one in members) else ()


def with_form_members(info: FieldInfo) -> Any:
    """Returns the annotation; the members of a union of models read the form for themselves."""
    models = _models_of(info)
    if len(models) < 2:
        return info.annotation
    members: list[Any] = []
    for member in union_members(info.annotation) or ():
        if member is NONE_TYPE:
            members.append(member)
            continue
        is_annotated = get_origin(member) is Annotated
        model, *metadata = get_args(member) if is_annotated else (member,)
        # Errors name the member as they would without its validator.
        tags = [item for item in metadata if isinstance(item, Tag)]
        tag = tags[-1] if tags else Tag(model.__name__)
        members.append(Annotated[member, BeforeValidator(partial(_read_member, model)), tag])
    return Union[tuple(members)]  # noqa: UP007 - there is no other way with a list


def _read_member(model: type[BaseModel], value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    pairs = [
        (name, item)
        for name, items in value.items()
        for item in (items if isinstance(items, list) else [items])
    ]
    return collect_model(model, FormData(pairs))


def is_supplied(models: tuple[type[BaseModel], ...], form: FormData) -> bool:
    """Whether the form has anything for one of the models."""
    for model in models:
        if form and model.model_config.get("extra") in ("allow", "forbid"):
            return True
        if any(name in form for item in model_fields(model) for name, _ in request_names(item)):
            return True
    return False


def collect_model(model: type[BaseModel], form: FormData) -> dict[str, Any]:
    """Returns the model's fields and what has none of their names."""
    collected: dict[str, Any] = {}
    known: set[str] = set()
    for item in model_fields(model):
        for name, _ in request_names(item):
            known.add(name)
            value = value_of(item, form, name)
            if value is not PydanticUndefined:
                collected[name] = value
                break
    collected.update(extras(form, known))
    return collected


def _is_empty_file(value: Any) -> bool:
    # Browsers send these when no file was chosen.
    return isinstance(value, UploadFile) and value.filename == "" and value.size == 0


def value_of(field: ModelField, values: Mapping[str, Any], name: str) -> Any:
    """Returns the value or list of values of a name; undefined when there is none."""
    value: Any
    if takes_list(field) and isinstance(values, ImmutableMultiDict | Headers):
        value = values.getlist(name)
        if isinstance(values, FormData):
            value = [item for item in value if not _is_empty_file(item)]
    else:
        value = values.get(name)
    if value is None:
        return PydanticUndefined
    if isinstance(values, FormData) and (value == "" or _is_empty_file(value)):
        return PydanticUndefined
    if is_sequence(field.field_info.annotation) and len(value) == 0:
        return PydanticUndefined
    return value


def extras(values: Mapping[str, Any], known: set[str]) -> Iterator[tuple[str, Any]]:
    """Yields what has none of the known names; repeated ones as a list."""
    items: Any = values.multi_items() if isinstance(values, ImmutableMultiDict) else values.items()
    grouped: dict[str, list[Any]] = {}
    for key, value in items:
        if key not in known:
            grouped.setdefault(key, []).append(value)
    for key, found in grouped.items():
        yield key, found[0] if len(found) == 1 else found
