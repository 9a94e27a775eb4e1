"""Makes the inputs of a plan: how each slot is filled on the fast path.

A fast path may be narrower than FastAPI's rules, never different: what it cannot decide raises,
and the slow path decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pydantic_core import PydanticUndefined

from justapi import params
from justapi._annotations import NONE_TYPE, union_members
from justapi._fields import ModelField, param_model, request_names, takes_list
from justapi._incoming import Incoming, extract_param, loads
from justapi._plan import Coercion, Exchange, Input, Source
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


def _default(field: ModelField, slot: Slot) -> Any:
    """Returns the default for the input, or notes on the slot how to make it."""
    if field.required:
        return None
    info = field.field_info
    if info.default_factory is None and not info.validate_default:
        value = info.default
        if isinstance(value, _IMMUTABLE):
            return value

    def make() -> Any:
        value, errors = field.validate_or_default(PydanticUndefined, ())
        if errors:
            raise RequestValidationError(errors)
        return value

    slot.default = make
    return MISSING


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
        convert=field.validate_value,
        required=field.required,
        default=_default(field, slot),
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
    if isinstance(schema, dict):
        kind = schema.get("type")
        if isinstance(kind, str):
            if kind not in _SAME_IN_JSON:
                return False
            if schema.get("strict") or (schema.get("config") or {}).get("strict"):
                return False
            if schema.get("root_model") or schema.get("custom_init"):
                return False
        return all(
            _means_same_in_json(value)
            for key, value in schema.items()
            if key not in _NOT_VALIDATING
        )
    if isinstance(schema, list | tuple):
        return all(_means_same_in_json(item) for item in schema)
    return True


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
    required = field.required
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
    return Input(
        Source.BODY,
        "body",
        convert=_body_converter(field),
        required=field.required,
        default=_default(field, slot),
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
