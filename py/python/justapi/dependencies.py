"""Reads signatures: which parameters a callable has and where each value comes from.

The result, a tree of `Dependant`, has FastAPI's shape and names. It is made at registration and
feeds the compiler (`justapi._compile`), the slow path (`justapi._bind`) and the OpenAPI document.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from justapi import params
from justapi._annotations import (
    get_typed_signature,
    is_scalar,
    is_scalar_sequence,
    is_subclass,
    is_uploadfile,
    is_uploadfile_sequence,
    model_of,
    without_alias,
)
from justapi._callables import is_async_generator, is_generator, unwrapped
from justapi._concurrency_limit import ConcurrencyLimit
from justapi._fields import (
    ModelField,
    copy_field_info,
    make_field,
)
from justapi._form_models import form_models, with_form_members
from justapi.background import BackgroundTasks
from justapi.exceptions import DependencyScopeError
from justapi.requests import HTTPConnection, Request
from justapi.responses import Response
from justapi.security import SecurityBase, SecurityScopes
from justapi.websockets import WebSocket

__all__ = [
    "CacheKey",
    "Dependant",
    "flat_body_params",
    "get_dependant",
    "iter_dependants",
    "override",
    "path_param_names",
    "should_embed_body",
]

CacheKey: TypeAlias = tuple[Any, tuple[str, ...], str]
LifeScope: TypeAlias = Literal["function", "request"]


@dataclass(slots=True, eq=False)
class Dependant:
    """A callable with what it needs.

    Attributes:
        path_params: Parameters out of the path; likewise the next four.
        dependencies: The dependencies, in the order in which they are called.
        name: Name of the parameter that takes the result, or None when nobody does.
        call: The callable.
        request_param_name: Name of the parameter that takes the `Request`; likewise the next.
        own_oauth_scopes: The scopes that this use of the dependency declares.
        parent_oauth_scopes: The scopes that its dependants declare.
        use_cache: Whether one call serves all uses in a request.
        path: Pattern of the route.
        scope: When a dependency with `yield` ends, as declared.
        limit: How many calls may run at once, or None.
        parameter_names: Names of all parameters in the order of the signature.
        positional: Names of positional-only parameters.
        replaces: The dependency that this one overrides, or None.
    """

    path_params: list[ModelField] = field(default_factory=list)
    query_params: list[ModelField] = field(default_factory=list)
    header_params: list[ModelField] = field(default_factory=list)
    cookie_params: list[ModelField] = field(default_factory=list)
    body_params: list[ModelField] = field(default_factory=list)
    dependencies: list[Dependant] = field(default_factory=list)
    name: str | None = None
    call: Callable[..., Any] | None = None
    request_param_name: str | None = None
    websocket_param_name: str | None = None
    http_connection_param_name: str | None = None
    response_param_name: str | None = None
    background_tasks_param_name: str | None = None
    security_scopes_param_name: str | None = None
    own_oauth_scopes: list[str] | None = None
    parent_oauth_scopes: list[str] | None = None
    use_cache: bool = True
    path: str | None = None
    scope: LifeScope | None = None
    limit: ConcurrencyLimit | None = None
    parameter_names: list[str] = field(default_factory=list)
    positional: list[str] = field(default_factory=list)
    replaces: Dependant | None = None

    @property
    def oauth_scopes(self) -> list[str]:
        """The scopes of its dependants and its own, without repetition."""
        return list(
            dict.fromkeys([*(self.parent_oauth_scopes or []), *(self.own_oauth_scopes or [])])
        )

    @property
    def uses_scopes(self) -> bool:
        """Whether its result may depend on the scopes."""
        return bool(
            self.own_oauth_scopes
            or self.security_scopes_param_name is not None
            or isinstance(unwrapped(self.call), SecurityBase)
            or any(dependency.uses_scopes for dependency in self.dependencies)
        )

    @property
    def is_generator(self) -> bool:
        """Whether the callable yields its value."""
        return self.call is not None and (is_generator(self.call) or is_async_generator(self.call))

    @property
    def life_scope(self) -> LifeScope | None:
        """When it ends; None when there is nothing to end."""
        if self.scope:
            return self.scope
        return "request" if self.is_generator else None

    @property
    def cache_key(self) -> CacheKey:
        """Equal for two uses of a dependency that may share one call."""
        if self.replaces is not None:
            return self.replaces.cache_key
        scopes = tuple(sorted(set(self.oauth_scopes))) if self.uses_scopes else ()
        call: Any = self.call
        try:
            hash(call)
        except TypeError:
            call = id(call)
        return call, scopes, self.life_scope or ""


def path_param_names(path: str) -> set[str]:
    """Returns the names of the parameters of a pattern, converters left out."""
    names = set()
    rest = path
    while "{" in rest and "}" in rest:
        name, _, rest = rest[rest.index("{") + 1 :].partition("}")
        names.add(name.partition(":")[0])
    return names


def get_dependant(
    *,
    path: str,
    call: Callable[..., Any],
    name: str | None = None,
    own_oauth_scopes: list[str] | None = None,
    parent_oauth_scopes: list[str] | None = None,
    use_cache: bool = True,
    scope: LifeScope | None = None,
    limit: ConcurrencyLimit | None = None,
) -> Dependant:
    """Reads the signature of a callable and, recursively, of its dependencies.

    Raises:
        AssertionError: A parameter is declared in a way that cannot work.
        JustAPIError: An annotation is no type that can be validated.
    """
    dependant = Dependant(
        call=call,
        name=name,
        path=path,
        use_cache=use_cache,
        scope=scope,
        limit=limit,
        own_oauth_scopes=own_oauth_scopes,
        parent_oauth_scopes=parent_oauth_scopes,
    )
    names = path_param_names(path)
    for parameter in get_typed_signature(call).parameters.values():
        dependant.parameter_names.append(parameter.name)
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            dependant.positional.append(parameter.name)
        _add_parameter(dependant, parameter, names)
    return dependant


def _add_parameter(
    dependant: Dependant, parameter: inspect.Parameter, path_names: set[str]
) -> None:
    declared = _read_parameter(parameter, path_names)
    if declared.depends is not None:
        dependant.dependencies.append(_sub_dependant(dependant, parameter.name, declared.depends))
        return
    if _add_special(dependant, parameter.name, declared.annotation):
        return
    field_ = declared.field
    if field_ is None:
        raise AssertionError(f"parameter {parameter.name!r} cannot be filled")
    info = field_.field_info
    if isinstance(info, params.Body):
        dependant.body_params.append(field_)
    elif isinstance(info, params.Param):
        {
            params.ParamTypes.path: dependant.path_params,
            params.ParamTypes.query: dependant.query_params,
            params.ParamTypes.header: dependant.header_params,
            params.ParamTypes.cookie: dependant.cookie_params,
        }[info.in_].append(field_)


def _sub_dependant(dependant: Dependant, name: str, depends: params.Depends) -> Dependant:
    assert depends.dependency is not None
    if depends.scope == "function" and dependant.is_generator and dependant.life_scope == "request":
        call_name = getattr(dependant.call, "__name__", "<unnamed_callable>")
        raise DependencyScopeError(
            f'The dependency "{call_name}" has a scope of "request", it cannot depend on '
            'dependencies with scope "function".'
        )
    own: list[str] = []
    if isinstance(depends, params.Security) and depends.scopes:
        own = list(depends.scopes)
    return get_dependant(
        path=dependant.path or "",
        call=depends.dependency,
        name=name,
        own_oauth_scopes=own,
        parent_oauth_scopes=[
            *(dependant.parent_oauth_scopes or []),
            *(dependant.own_oauth_scopes or []),
        ],
        use_cache=depends.use_cache,
        scope=depends.scope,
        limit=depends.limit,
    )


def add_parameterless(
    dependant: Dependant, dependencies: Sequence[params.Depends], path: str
) -> None:
    """Puts the dependencies of decorator, router and app before those of the signature."""
    added = []
    for depends in dependencies:
        if not callable(depends.dependency):
            raise AssertionError("A parameter-less dependency must have a callable dependency")
        own: list[str] = []
        if isinstance(depends, params.Security) and depends.scopes:
            own = list(depends.scopes)
        added.append(
            get_dependant(
                path=path,
                call=depends.dependency,
                scope=depends.scope,
                limit=depends.limit,
                own_oauth_scopes=own,
            )
        )
    dependant.dependencies[:0] = added


_SPECIAL: tuple[type[Any], ...] = (
    Request,
    WebSocket,
    HTTPConnection,
    Response,
    BackgroundTasks,
    SecurityScopes,
)


def _add_special(dependant: Dependant, name: str, annotation: Any) -> bool:
    """Notes a parameter whose type alone says what it takes."""
    if is_subclass(annotation, Request):
        dependant.request_param_name = name
    elif is_subclass(annotation, WebSocket):
        dependant.websocket_param_name = name
    elif is_subclass(annotation, HTTPConnection):
        dependant.http_connection_param_name = name
    elif is_subclass(annotation, Response):
        dependant.response_param_name = name
    elif is_subclass(annotation, BackgroundTasks):
        dependant.background_tasks_param_name = name
    elif is_subclass(annotation, SecurityScopes):
        dependant.security_scopes_param_name = name
    else:
        return False
    return True


@dataclass(slots=True)
class _Declared:
    annotation: Any
    depends: params.Depends | None = None
    field: ModelField | None = None


def _read_parameter(parameter: inspect.Parameter, path_names: set[str]) -> _Declared:
    name = parameter.name
    is_path = name in path_names
    annotation = without_alias(parameter.annotation)
    whole: Any = Any if annotation is inspect.Parameter.empty else annotation
    bare: Any = get_args(whole)[0] if get_origin(whole) is Annotated else whole
    default = parameter.default
    info, depends = _from_annotated(parameter, whole, is_path=is_path)
    if isinstance(default, params.Depends):
        if depends is not None:
            raise AssertionError(
                f"Cannot specify `Depends` in `Annotated` and default value together for {name!r}"
            )
        if info is not None:
            raise AssertionError(
                "Cannot specify an annotation in `Annotated` and `Depends` as a default value "
                f"together for {name!r}"
            )
        depends = default
    elif isinstance(default, FieldInfo):
        if info is not None:
            raise AssertionError(
                f"Cannot specify annotations in `Annotated` and default value together for {name!r}"
            )
        info = default
        info.annotation = bare
    if depends is not None:
        if depends.dependency is None:
            depends = dataclasses.replace(depends, dependency=bare)
        return _Declared(bare, depends=depends)
    if is_subclass(bare, _SPECIAL):
        if info is not None:
            raise AssertionError(f"Cannot specify an annotation for type {bare!r}")
        return _Declared(bare)
    if info is None:
        info = _infer(whole, bare, default, is_path=is_path)
    return _Declared(bare, field=_make_param_field(name, whole, info, path_names, is_path=is_path))


def _from_annotated(
    parameter: inspect.Parameter, annotation: Any, *, is_path: bool
) -> tuple[FieldInfo | None, params.Depends | None]:
    """Returns the last marker in `Annotated`, with its default filled in."""
    if get_origin(annotation) is not Annotated:
        return None, None
    markers = [
        item
        for item in get_args(annotation)[1:]
        if isinstance(item, params.Param | params.Body | params.Depends)
    ]
    if not markers:
        return None, None
    marker = markers[-1]
    if isinstance(marker, params.Depends):
        return None, marker
    info = copy_field_info(marker, annotation)
    if info.default is not PydanticUndefined and info.default is not ...:
        raise AssertionError(
            f"`{type(info).__name__}` default value cannot be set in `Annotated` for "
            f"{parameter.name!r}. Set the default value with `=` instead."
        )
    if parameter.default is inspect.Parameter.empty:
        info.default = PydanticUndefined
    else:
        if is_path:
            raise AssertionError("Path parameters cannot have default values")
        info.default = parameter.default
    return info, None


def _infer(whole: Any, bare: Any, default: Any, *, is_path: bool) -> FieldInfo:
    """Decides by the type where a parameter without a marker comes from."""
    value = PydanticUndefined if default is inspect.Parameter.empty else default
    info: FieldInfo
    if is_path:
        # The default counts where the same function stands on a path without the parameter.
        value = ...
        info = params.Path(annotation=whole)
    elif is_uploadfile(bare) or is_uploadfile_sequence(bare):
        info = params.File(annotation=whole, default=value)
    elif is_scalar(bare):
        info = params.Query(annotation=whole, default=value)
    else:
        info = params.Body(annotation=whole, default=value)
    if get_origin(whole) is Annotated:
        default_ = info.default
        info = copy_field_info(info, whole)
        info.default = default_
        if is_path:
            info.default_factory = None
    return info


def _make_param_field(
    name: str, annotation: Any, info: FieldInfo, path_names: set[str], *, is_path: bool
) -> ModelField:
    if is_path and not isinstance(info, params.Path):
        raise AssertionError(f"Cannot use `{type(info).__name__}` for path param {name!r}")
    alias = info.validation_alias
    if isinstance(info, params.Path) and isinstance(alias, AliasChoices):
        for choice in alias.choices:
            if isinstance(choice, str) and choice in path_names:
                info = copy(info)
                info.validation_alias = choice
                break
    if not info.alias and getattr(info, "convert_underscores", False):
        info.alias = name.replace("_", "-")
    else:
        info.alias = info.alias or name
    info.annotation = with_form_members(info)
    made = make_field(name, annotation, field_info=info)
    if is_path and not (is_scalar(info.annotation) and not isinstance(info, params.Body)):
        raise AssertionError("Path params must be of one of the supported types")
    if isinstance(info, params.Query) and not (
        is_scalar(info.annotation)
        or is_scalar_sequence(info.annotation)
        or model_of(info.annotation) is not None
    ):
        raise AssertionError(f"Query parameter {name!r} must be one of the supported types")
    return made


def iter_dependants(dependant: Dependant) -> Iterator[Dependant]:
    """Yields the dependant and then all below it."""
    yield dependant
    for dependency in dependant.dependencies:
        yield from iter_dependants(dependency)


def flat_body_params(dependant: Dependant) -> list[ModelField]:
    """Returns the body parameters of a handler and all its dependencies."""
    return [item for one in iter_dependants(dependant) for item in one.body_params]


def should_embed_body(fields: list[ModelField]) -> bool:
    """Whether body parameters are members of the body rather than the body itself."""
    if not fields:
        return False
    if len({item.name for item in fields}) > 1:
        return True
    first = fields[0]
    info = first.field_info
    if isinstance(info, params.Body) and info.embed:
        return True
    if form_models(first):
        # Dependencies may use one name for different models.
        return any(form_models(item) != form_models(first) for item in fields)
    return isinstance(info, params.Form)


def override(
    dependant: Dependant, overrides: Mapping[Callable[..., Any], Callable[..., Any]]
) -> Dependant:
    """Returns the tree with the overridden dependencies exchanged."""
    replaced = copy(dependant)
    replaced.dependencies = []
    for dependency in dependant.dependencies:
        call = overrides.get(dependency.call) if dependency.call is not None else None
        if call is None:
            replaced.dependencies.append(override(dependency, overrides))
            continue
        other = get_dependant(
            path=dependency.path or "",
            call=call,
            name=dependency.name,
            parent_oauth_scopes=dependency.oauth_scopes,
            use_cache=dependency.use_cache,
            scope=dependency.scope,
            limit=dependency.limit,
        )
        other.replaces = dependency
        replaced.dependencies.append(override(other, overrides))
    return replaced
