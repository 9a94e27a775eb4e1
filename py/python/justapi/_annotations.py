"""Questions about type annotations: scalar, sequence, file, stream, or none of these.

The answers decide where a parameter without an explicit marker comes from, and whether repeated
names make a list. They are FastAPI's answers, so that the same signature means the same.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import is_dataclass
from functools import partial
from typing import Annotated, Any, ForwardRef, Union, get_args, get_origin
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from justapi.datastructures import UploadFile

__all__ = [
    "NONE_TYPE",
    "get_return_annotation",
    "get_typed_signature",
    "holds_bytes",
    "is_bytes_sequence",
    "is_scalar",
    "is_scalar_sequence",
    "is_sequence",
    "is_subclass",
    "is_uploadfile",
    "is_uploadfile_sequence",
    "model_of",
    "sequence_type",
    "stream_item_type",
    "union_members",
    "without_alias",
]

NONE_TYPE = type(None)

_SEQUENCE_FACTORIES: dict[Any, Callable[[list[Any]], Any]] = {
    Sequence: list,
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    deque: deque,
}
_SEQUENCES = tuple(_SEQUENCE_FACTORIES)


def is_subclass(annotation: Any, classes: type[Any] | tuple[type[Any], ...]) -> bool:
    """`issubclass` that says False for what is no class."""
    try:
        return isinstance(annotation, type) and issubclass(annotation, classes)
    except TypeError:
        return False


def without_alias(annotation: Any) -> Any:
    """Returns what a `type X = ...` statement stands for."""
    value = getattr(annotation, "__value__", None)
    if value is not None and type(annotation).__name__ == "TypeAliasType":
        return value
    return annotation


def union_members(annotation: Any) -> tuple[Any, ...] | None:
    """Returns the members of a union, or None for anything else."""
    origin = get_origin(annotation)
    if origin is Union or origin is types.UnionType:
        return get_args(annotation)
    return None


def _is_sequence_class(annotation: Any) -> bool:
    return is_subclass(annotation, _SEQUENCES) and not is_subclass(annotation, (str, bytes))


def is_sequence(annotation: Any) -> bool:
    """Whether the annotation, or a member of its union, is a list, tuple, set or the like."""
    if get_origin(annotation) is Annotated:
        return is_sequence(get_args(annotation)[0])
    members = union_members(annotation)
    if members is not None:
        return any(is_sequence(member) for member in members)
    return _is_sequence_class(annotation) or _is_sequence_class(get_origin(annotation))


def _is_complex(annotation: Any) -> bool:
    return (
        is_subclass(annotation, (BaseModel, Mapping, UploadFile))
        or _is_sequence_class(annotation)
        or is_dataclass(annotation)
        or hasattr(annotation, "__struct_fields__")
    )


def is_scalar(annotation: Any) -> bool:
    """Whether one text can be its value: no model, mapping, sequence or file."""
    if annotation is Ellipsis:
        return True
    if get_origin(annotation) is Annotated:
        return is_scalar(get_args(annotation)[0])
    members = union_members(annotation)
    if members is not None:
        return all(is_scalar(member) for member in members)
    origin = get_origin(annotation)
    return not (
        _is_complex(annotation)
        or _is_complex(origin)
        or hasattr(origin, "__pydantic_core_schema__")
        or hasattr(origin, "__get_pydantic_core_schema__")
    )


def is_scalar_sequence(annotation: Any) -> bool:
    """Whether it is a sequence of scalars, or a union with one."""
    if get_origin(annotation) is Annotated:
        return is_scalar_sequence(get_args(annotation)[0])
    members = union_members(annotation)
    if members is not None:
        return any(is_scalar_sequence(member) for member in members) and all(
            is_scalar_sequence(member) or is_scalar(member) for member in members
        )
    return is_sequence(annotation) and all(is_scalar(item) for item in get_args(annotation))


def sequence_type(annotation: Any) -> Callable[[list[Any]], Any]:
    """Returns what makes the annotated kind of sequence of a list."""
    members = union_members(annotation)
    if members is not None:
        annotation = next(member for member in members if is_sequence(member))
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    origin = get_origin(annotation) or annotation
    return next(
        (make for kind, make in _SEQUENCE_FACTORIES.items() if is_subclass(origin, kind)), list
    )


def _is_or_holds(annotation: Any, kind: type[Any]) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_or_holds(get_args(annotation)[0], kind)
    if is_subclass(annotation, kind):
        return True
    return any(is_subclass(member, kind) for member in union_members(annotation) or ())


def _is_sequence_of(annotation: Any, kind: type[Any]) -> bool:
    members = union_members(annotation)
    if members is not None:
        return any(_is_sequence_of(member, kind) for member in members)
    items = get_args(annotation)
    return is_sequence(annotation) and all(_is_or_holds(item, kind) for item in items)


def holds_bytes(annotation: Any) -> bool:
    """Whether it is `bytes`, or a union with it."""
    return _is_or_holds(annotation, bytes)


def is_bytes_sequence(annotation: Any) -> bool:
    """Whether it is a sequence of `bytes`, or a union with one."""
    return _is_sequence_of(annotation, bytes)


def is_uploadfile(annotation: Any) -> bool:
    """Whether it is `UploadFile`, or a union with it."""
    return _is_or_holds(annotation, UploadFile)


def is_uploadfile_sequence(annotation: Any) -> bool:
    """Whether it is a sequence of `UploadFile`, or a union with one."""
    return _is_sequence_of(annotation, UploadFile)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """Returns the pydantic model that it is, or is the optional form of."""
    members = union_members(annotation)
    if members is not None and len(members) == 2 and NONE_TYPE in members:
        annotation = members[0] if members[1] is NONE_TYPE else members[1]
    if is_subclass(annotation, BaseModel):
        model: type[BaseModel] = annotation
        return model
    return None


_STREAMS = frozenset({AsyncIterable, AsyncIterator, AsyncGenerator, Iterable, Iterator, Generator})


def stream_item_type(annotation: Any) -> Any | None:
    """Returns the type of a generator's items, `Any` when it is not said, None for no generator."""
    if get_origin(annotation) in _STREAMS:
        arguments = get_args(annotation)
        return arguments[0] if arguments else Any
    return None


# Evaluated once: the names that annotations stand for may be gone later.
_SIGNATURES: WeakKeyDictionary[Callable[..., Any], inspect.Signature] = WeakKeyDictionary()


def _enclosing_names(call: Callable[..., Any]) -> dict[str, Any]:
    """Returns the local names of the function in which a function is being defined.

    Annotations are texts where `from __future__ import annotations` stands; those of a nested
    function may name what only the function around it knows. That one is still running when a
    decorator is applied.
    """
    outer, is_nested, _ = getattr(call, "__qualname__", "").rpartition(".<locals>.")
    frame = inspect.currentframe() if is_nested else None
    while frame is not None:
        if frame.f_code.co_qualname == outer:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _signature(call: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(call, eval_str=True)
    except NameError:
        # Names that exist for type checkers only, such as those of a return annotation, or that
        # are local to a function.
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            return inspect.signature(call, annotation_format=Format.FORWARDREF)
        return inspect.signature(call)


def _evaluate(annotation: Any, names: dict[str, Any], local_names: dict[str, Any]) -> Any:
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, names, local_names)
        except NameError:
            return ForwardRef(annotation)
        if annotation is NONE_TYPE:
            return None
    return annotation


def _evaluated_signature(call: Callable[..., Any]) -> inspect.Signature:
    signature = _signature(call)
    function = inspect.unwrap(call)
    while isinstance(function, partial):
        function = function.func
    if inspect.isclass(function):
        function = function.__init__
    names = getattr(function, "__globals__", None)
    if names is None:
        names = getattr(getattr(function, "__call__", None), "__globals__", {})  # noqa: B004
    annotations = [parameter.annotation for parameter in signature.parameters.values()]
    annotations.append(signature.return_annotation)
    if not any(isinstance(annotation, str | ForwardRef) for annotation in annotations):
        return signature
    local_names = _enclosing_names(function)
    return signature.replace(
        parameters=[
            parameter.replace(annotation=_evaluate(parameter.annotation, names, local_names))
            for parameter in signature.parameters.values()
        ],
        return_annotation=_evaluate(signature.return_annotation, names, local_names),
    )


def get_typed_signature(call: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature of a callable with its annotations evaluated."""
    if not inspect.isfunction(call):
        return _evaluated_signature(call)
    known = _SIGNATURES.get(call)
    if known is None:
        known = _SIGNATURES[call] = _evaluated_signature(call)
    return known


def get_return_annotation(call: Callable[..., Any]) -> Any:
    """Returns the evaluated return annotation, or None when there is none."""
    annotation = get_typed_signature(call).return_annotation
    return None if annotation is inspect.Signature.empty else annotation
