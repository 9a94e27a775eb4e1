"""Makes the inputs of a plan: how each slot is filled on the fast path.

A fast path may be narrower than FastAPI's rules, never different: what it cannot decide raises,
and the slow path decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from annotated_types import Ge, Gt, Le, Lt

from justapi import _core, params
from justapi._annotations import NONE_TYPE, union_members
from justapi._fields import ModelField, param_model, request_names, takes_list
from justapi._incoming import Incoming, extract_param, loads
from justapi._plan import Coercion, Exchange, Input, Source
from justapi._shapes import input_codec
from justapi._tree import MISSING, Slot, Tree
from justapi.exceptions import RequestValidationError
from justapi.requests import Request
from justapi.websockets import WebSocket

__all__ = ["assign_inputs", "connection_of", "request_of"]

_PLAIN_COERCIONS: dict[Any, Coercion] = {
    str: Coercion.STR,
    int: Coercion.INT,
    float: Coercion.FLOAT,
    bool: Coercion.BOOL,
}
_SCALAR_SOURCES = {
    params.ParamTypes.path: Source.PATH,
    params.ParamTypes.query: Source.QUERY,
    params.ParamTypes.header: Source.HEADER,
    params.ParamTypes.cookie: Source.COOKIE,
}
_LIST_SOURCES = {
    params.ParamTypes.query: Source.QUERY_LIST,
    params.ParamTypes.header: Source.HEADER_LIST,
}
# What the name of a header is made of (RFC 9110 section 5.1); another one is never found.
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_IMMUTABLE = (str, int, float, bool, bytes, type(None))


def request_of(exchange: Exchange) -> Request[Any]:
    """Returns the request of an exchange, the same one for all who ask."""
    request: Request[Any] | None = exchange.context
    if request is None:
        request = exchange.context = Request.from_exchange(exchange)
    return request


def connection_of(exchange: Exchange) -> Any:
    """Returns the request or WebSocket of an exchange, the same one for all who ask."""
    if exchange.context is None and exchange.scope["type"] == "websocket":
        exchange.context = WebSocket(exchange.scope, exchange.receive, exchange.send)
    return exchange.context or request_of(exchange)


def _plain_coercion(field: ModelField) -> Coercion:
    """Tells whether the text becomes the value without asking pydantic."""
    info = field.field_info
    if _bounds(field) is not None:
        return Coercion.INT
    if info.metadata or getattr(info, "discriminator", None) or field.msgspec is not None:
        return Coercion.CALL
    annotation = info.annotation
    members = union_members(annotation)
    if members is not None:
        rest = [member for member in members if member is not NONE_TYPE]
        if len(rest) != 1:
            return Coercion.CALL
        annotation = rest[0]
    return _PLAIN_COERCIONS.get(annotation, Coercion.CALL)


def _bounds(field: ModelField) -> tuple[int | None, int | None] | None:
    """Returns the least and the greatest number, if that is all that is asked of an int."""
    info = field.field_info
    if info.annotation is not int or not info.metadata or field.config:
        return None
    least: list[int] = []
    greatest: list[int] = []
    for item in info.metadata:
        match item:
            case Ge(ge=int(number)):
                least.append(number)
            case Gt(gt=int(number)):
                least.append(number + 1)
            case Le(le=int(number)):
                greatest.append(number)
            case Lt(lt=int(number)):
                greatest.append(number - 1)
            case _:
                return None
    low = max(least, default=None)
    high = min(greatest, default=None)
    if any(number is not None and abs(number) >= 2**63 for number in (low, high)):
        return None
    return low, high


def _default(field: ModelField, slot: Slot) -> Any:
    """Returns the default for the input, or notes on the slot how to make it."""
    if _needs_value(field):
        return None
    info = field.field_info
    if info.default_factory is None and isinstance(info.default, _IMMUTABLE):
        return info.default
    slot.default = lambda: deepcopy(field.get_default())
    return MISSING


def _needs_value(field: ModelField) -> bool:
    """Whether the fast path is left when there is no value: the slow path checks defaults."""
    return field.required or bool(field.field_info.validate_default)


def _from_exchange(field: ModelField) -> Callable[[Exchange], Any]:
    def convert(exchange: Exchange) -> Any:
        value, errors = extract_param(field, Incoming(exchange.scope))
        if errors:
            raise RequestValidationError(errors)
        return value

    return convert


def _param_input(slot: Slot) -> Input:
    field = slot.field
    assert field is not None
    info = field.field_info
    assert isinstance(info, params.Param)
    where = info.in_
    names = request_names(field)
    is_list = takes_list(field)
    if (
        param_model(field) is not None
        or len(names) > 1
        or (is_list and where not in _LIST_SOURCES)
        or (where is params.ParamTypes.header and not _TOKEN.fullmatch(names[0][1]))
    ):
        return Input(Source.EXCHANGE, names[0][1], convert=_from_exchange(field))
    name = names[0][1]
    if where is params.ParamTypes.header:
        name = name.lower()
    return Input(
        _LIST_SOURCES[where] if is_list else _SCALAR_SOURCES[where],
        name,
        coercion=Coercion.CALL if is_list else _plain_coercion(field),
        convert=field.validate_text,
        required=_needs_value(field),
        default=_default(field, slot),
        bounds=_bounds(field) or (None, None),
    )


# Core schemas that mean the same for parsed JSON as for Python objects. Others, such as unions,
# bytes or anything strict, may take a text for what pydantic would not take it for in Python.
_SAME_IN_JSON = frozenset(
    {
        "any",
        "bool",
        "dataclass",
        "dataclass-args",
        "dataclass-field",
        "date",
        "datetime",
        "default",
        "definition-ref",
        "definitions",
        "dict",
        "enum",
        "float",
        "frozenset",
        "function-after",
        "int",
        "list",
        "literal",
        "model",
        "model-field",
        "model-fields",
        "none",
        "multi-host-url",
        "nullable",
        "set",
        "str",
        "tagged-union",
        "time",
        "timedelta",
        "tuple",
        "typed-dict",
        "typed-dict-field",
        "url",
        "uuid",
    }
)
_NOT_VALIDATING = frozenset(
    {
        "computed_fields",
        "config",
        "default",
        "expected",
        "function",
        "members",
        "metadata",
        "serialization",
    }
)


def _means_same_in_json(schema: Any) -> bool:
    """Whether validating JSON text gives what validating the parsed text would give."""
    # No recursion: types may be nested more deeply than calls.
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if not _same_itself(part):
                return False
            pending.extend(value for key, value in part.items() if key not in _NOT_VALIDATING)
        elif isinstance(part, list | tuple):
            pending.extend(part)
    return True


def _same_itself(schema: dict[Any, Any]) -> bool:
    """Whether a schema means the same as far as it does not depend on those within."""
    kind = schema.get("type")
    if not isinstance(kind, str):
        return True
    if kind not in _SAME_IN_JSON:
        return False
    if schema.get("strict") or (schema.get("config") or {}).get("strict"):
        return False
    return not (schema.get("root_model") or schema.get("custom_init"))


_ANY = {"type": "any"}
_OF_PLAIN_JSON = (
    (_ANY, Coercion.JSON),
    ({"type": "dict", "keys_schema": _ANY, "values_schema": _ANY}, Coercion.JSON_OBJECT),
    ({"type": "dict", "keys_schema": {"type": "str"}, "values_schema": _ANY}, Coercion.JSON_OBJECT),
    ({"type": "list", "items_schema": _ANY}, Coercion.JSON_ARRAY),
)


def _body_coercion(field: ModelField) -> Coercion:
    """Tells whether parsed JSON is the value, given that it is an object or a list."""
    if field.msgspec is None:
        schema = {**field.type_adapter.core_schema}
        schema.pop("metadata", None)
        for plain, coercion in _OF_PLAIN_JSON:
            if schema == plain:
                return coercion
    return Coercion.CALL


def _body_codec(field: ModelField, coercion: Coercion) -> _core.Codec | None:
    """Returns what decodes a body that is more than parsed JSON, if its shape is all of it."""
    if field.msgspec is not None or field.config or coercion is not Coercion.CALL:
        return None
    return input_codec(field.type_adapter)


def _body_converter(field: ModelField) -> Callable[[bytes], Any]:
    if field.msgspec is not None:
        return field.msgspec.decode
    adapter = field.type_adapter
    if _means_same_in_json(adapter.core_schema):
        return adapter.validator.validate_json
    validate = adapter.validator.validate_python
    return lambda body: validate(loads(body), from_attributes=True)


def _member_reader(slot: Slot) -> Callable[[dict[str, Any]], Any]:
    """Reads one embedded parameter out of the parsed body."""
    field = slot.field
    assert field is not None
    names = [name for name, _ in request_names(field)]
    validate = field.validate_value
    required = _needs_value(field)
    default = _default(field, slot)

    def read(body: dict[str, Any]) -> Any:
        for name in names:
            if name in body:
                return validate(body[name])
        if required:
            raise KeyError(names[0])
        return default

    return read


def _embedded_input(slots: list[Slot]) -> Input:
    readers = [_member_reader(slot) for slot in slots]

    def convert(raw: bytes) -> tuple[Any, ...]:
        body = loads(raw)
        if type(body) is not dict:
            raise TypeError
        return tuple([read(body) for read in readers])

    return Input(Source.BODY, "body", convert=convert)


def _in_order(tree: Tree) -> list[Slot]:
    """Returns the slots, those of the handler first and in the order of its signature.

    So most handlers can take the inputs as they are.
    """
    first = [origin for _, origin in tree.root.arguments if isinstance(origin, Slot)]
    return list(dict.fromkeys([*first, *tree.slots]))


def _body_input(slot: Slot) -> Input:
    field = slot.field
    assert field is not None
    coercion = _body_coercion(field)
    return Input(
        Source.BODY,
        "body",
        coercion=coercion,
        convert=_body_converter(field),
        required=_needs_value(field),
        default=_default(field, slot),
        codec=_body_codec(field, coercion),
    )


def assign_inputs(tree: Tree, *, embed: bool, websocket: bool = False) -> list[Input]:
    """Makes the inputs for a tree and tells its slots which of them are theirs.

    Args:
        tree: The tree.
        embed: Whether body parameters are members of the body.
        websocket: Whether the route is a WebSocket's.
    """
    inputs: list[Input] = []
    members: list[Slot] = []
    for slot in _in_order(tree):
        slot.leaf = len(inputs)
        if slot.kind == "param":
            inputs.append(_param_input(slot))
        elif slot.kind == "request":
            convert: Callable[[Exchange], Any] = connection_of if websocket else request_of
            inputs.append(Input(Source.EXCHANGE, "request", convert=convert))
        elif slot.kind == "form" or tree.is_form:
            # The slow path fills it.
            inputs.append(Input(Source.EXCHANGE, "form"))
        elif embed:
            members.append(slot)
        else:
            inputs.append(_body_input(slot))
    for member, slot in enumerate(members):
        slot.leaf = len(inputs)
        slot.member = member
    if members:
        inputs.append(_embedded_input(members))
    return inputs
