"""One path operation: what was declared, what was read from the signature, and the plan."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, TypedDict
from weakref import WeakKeyDictionary

from typing_extensions import Unpack

from justapi import _core, params
from justapi._annotations import get_return_annotation, is_subclass, stream_item_type
from justapi._asgi import RequestExchange, run_plan
from justapi._body_field import make_body_field
from justapi._callables import is_async_generator, is_generator, unwrapped
from justapi._compile import Compiled, compile_target
from justapi._fields import ModelField, make_field
from justapi._inputs import request_of
from justapi._native import NativeAnswer, make_native_plan
from justapi._paths import NoMatchFound, compile_path, fill_path, path_converters
from justapi._plan import Exchange, Input, Kind, Plan, Source
from justapi._respond import Responder, ResponseModelOptions, allows_body
from justapi._route_limits import checked_body_limit, checked_form_limits
from justapi.datastructures import URLPath
from justapi.dependencies import (
    Dependant,
    add_parameterless,
    flat_body_params,
    get_dependant,
    override,
    path_param_names,
    should_embed_body,
)
from justapi.encoders import IncEx, encode_default
from justapi.exceptions import EndpointContext
from justapi.requests import Request
from justapi.responses import EventSourceResponse, Response
from justapi.sse import ServerSentEvent

if TYPE_CHECKING:
    from justapi._plain_routes import BaseRoute

__all__ = ["APIRoute", "RouteOptions", "endpoint_context", "endpoint_name", "generate_unique_id"]


class RouteOptions(TypedDict, total=False):
    """What the decorators of path operations take; FastAPI's options, and the last four.

    Attributes:
        response_model: Type that the result is checked by, filtered and documented with. By
            default the return annotation; None for neither.
        status_code: Status of the answer.
        tags: Tags of the operation in the document.
        dependencies: Dependencies whose results nobody takes.
        summary: Title of the operation; by default made of the function's name.
        description: By default the function's docstring.
        response_description: Description of the answer.
        responses: More answers, for the document.
        deprecated: Whether the operation is marked as deprecated.
        operation_id: Its id in the document.
        response_model_include: Members of the result to include.
        response_model_exclude: Members of the result to leave out.
        response_model_by_alias: Whether members are called by their aliases.
        response_model_exclude_unset: Whether to leave out members that were not set.
        response_model_exclude_defaults: Whether to leave out members equal to their defaults.
        response_model_exclude_none: Whether to leave out members that are None.
        include_in_schema: Whether the document shows the operation.
        response_class: Class of the answer.
        name: Name for `url_for`; by default the function's.
        callbacks: Operations that the caller has to offer, for the document.
        openapi_extra: Merged into the operation in the document.
        generate_unique_id_function: Makes the operation's id.
        max_body_size: Limit of the body in bytes.
        form_limits: Arguments of `Request.form` for this route.
        blocking: True to call a sync handler always in a thread, False never, None to go by what
            is measured.
        native: True to answer in Rust, without Python; or the constant response.
        schema: JSON Schema of the body of a native route, or a type.
        query_schema: JSON Schema of the query of a native route, or a type.
    """

    response_model: Any
    status_code: int | None
    tags: Sequence[str | Enum] | None
    dependencies: Sequence[params.Depends] | None
    summary: str | None
    description: str | None
    response_description: str
    responses: Mapping[int | str, dict[str, Any]] | None
    deprecated: bool | None
    operation_id: str | None
    response_model_include: IncEx
    response_model_exclude: IncEx
    response_model_by_alias: bool
    response_model_exclude_unset: bool
    response_model_exclude_defaults: bool
    response_model_exclude_none: bool
    include_in_schema: bool
    response_class: type[Response]
    name: str | None
    callbacks: Sequence[BaseRoute] | None
    openapi_extra: dict[str, Any] | None
    generate_unique_id_function: Callable[[Any], str]
    max_body_size: int | None
    form_limits: Mapping[str, Any] | None
    strict_content_type: bool
    blocking: bool | None
    native: bool | NativeAnswer
    schema: Any
    query_schema: Any


def endpoint_name(endpoint: Any) -> str:
    """Returns the name of a function, or of an object's class."""
    name: str = getattr(endpoint, "__name__", type(endpoint).__name__)
    return name


def generate_unique_id(route: Any) -> str:
    """Makes the id of an operation, as FastAPI does."""
    text = re.sub(r"\W", "_", f"{route.name}{route.path_format}")
    return f"{text}_{next(iter(route.methods)).lower()}"


# A handler is read again for each router that its own is included in; what it says depends on
# the names of the path's parameters alone.
_READ: WeakKeyDictionary[Callable[..., Any], dict[frozenset[str], Dependant]] = WeakKeyDictionary()


def _read_endpoint(endpoint: Callable[..., Any], path: str) -> Dependant:
    """Reads the signature of a handler, or copies what was read before."""
    if not inspect.isfunction(endpoint):
        return get_dependant(path=path, call=endpoint, scope="function")
    names = frozenset(path_param_names(path))
    known = _READ.setdefault(endpoint, {})
    if names not in known:
        known[names] = get_dependant(path=path, call=endpoint, scope="function")
    dependant = copy(known[names])
    dependant.path = path
    dependant.dependencies = list(dependant.dependencies)
    return dependant


def endpoint_context(endpoint: Any, path: str) -> EndpointContext:
    """Says where a function is defined, for error messages."""
    context = EndpointContext(path=path)
    code = getattr(unwrapped(endpoint), "__code__", None)
    if code is not None:
        context["function"] = endpoint_name(endpoint)
        context["file"] = code.co_filename
        context["line"] = code.co_firstlineno
    return context


class APIRoute:
    """A path operation.

    Its attributes are FastAPI's, for code that looks at routes.

    Args:
        path: Pattern of the path.
        endpoint: The handler.
        methods: Methods; `GET` by default.
        **given: See `RouteOptions`.

    Raises:
        AssertionError: A parameter is declared in a way that cannot work.
        JustAPIError: A type cannot be validated.
        ValueError: A native route has something that needs Python.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        methods: Sequence[str] | None = None,
        **given: Unpack[RouteOptions],
    ) -> None:
        if not callable(endpoint):
            raise AssertionError("An endpoint must be a callable")
        self.given = given
        self.path = path
        self.endpoint = endpoint
        self.name = given.get("name") or endpoint_name(endpoint)
        self.path_format, self.param_convertors = compile_path(path)
        self.methods: list[str] = list(
            dict.fromkeys(method.upper() for method in methods or ["GET"])
        )
        self.summary = given.get("summary")
        self.response_description = given.get("response_description", "Successful Response")
        self.deprecated = given.get("deprecated")
        self.operation_id = given.get("operation_id")
        self.response_model_include = given.get("response_model_include")
        self.response_model_exclude = given.get("response_model_exclude")
        self.response_model_by_alias = given.get("response_model_by_alias", True)
        self.response_model_exclude_unset = given.get("response_model_exclude_unset", False)
        self.response_model_exclude_defaults = given.get("response_model_exclude_defaults", False)
        self.response_model_exclude_none = given.get("response_model_exclude_none", False)
        self.include_in_schema = given.get("include_in_schema", True)
        self.callbacks: list[BaseRoute] = list(given.get("callbacks") or [])
        self.openapi_extra = given.get("openapi_extra")
        self.generate_unique_id_function = given.get(
            "generate_unique_id_function", generate_unique_id
        )
        self.strict_content_type = given.get("strict_content_type", True)
        self.max_body_size = checked_body_limit(given.get("max_body_size"))
        self.form_limits = checked_form_limits(given.get("form_limits"))
        self.blocking = given.get("blocking")
        self.native = given.get("native", False)
        self.tags: list[str | Enum] = list(given.get("tags") or [])
        self.responses: dict[int | str, dict[str, Any]] = dict(given.get("responses") or {})
        self.dependencies: list[params.Depends] = list(given.get("dependencies") or [])
        self.response_class: type[Response] | None = given.get("response_class")
        status_code = given.get("status_code")
        self.status_code = int(status_code) if isinstance(status_code, IntEnum) else status_code
        self.unique_id = self.operation_id or self.generate_unique_id_function(self)
        description = given.get("description") or inspect.cleandoc(endpoint.__doc__ or "")
        self.description = description.split("\f")[0].strip()
        self.context = endpoint_context(endpoint, f"{'|'.join(self.methods)} {path}")
        self._read_signature()
        self._read_responses(given)
        self._body_field: ModelField | None = None
        self._has_body_field = False
        self._responder: Responder | None = None
        self.native_plan = make_native_plan(self, given)
        self.native_core: _core.NativeRoute | None = None
        # What `get_route_handler` runs; set while a subclass wraps it.
        self._handling = Plan()

    def _read_signature(self) -> None:
        self.dependant: Dependant = _read_endpoint(self.endpoint, self.path_format)
        add_parameterless(self.dependant, self.dependencies, self.path_format)
        self.body_params = flat_body_params(self.dependant)
        self.embed_body_fields = should_embed_body(self.body_params)

    def _read_responses(self, given: RouteOptions) -> None:
        is_stream = is_generator(self.endpoint) or is_async_generator(self.endpoint)
        cls = self.response_class
        self.is_sse_stream = is_stream and is_subclass(cls, EventSourceResponse)
        self.is_json_stream = is_stream and cls is None
        self.stream_item_type: Any = None
        model = given.get("response_model", ...)
        if model is ...:
            model = get_return_annotation(self.endpoint)
            if is_subclass(model, Response):
                model = None
            item = stream_item_type(model) if is_stream else None
            if item is not None:
                model = None
                if (cls is None or self.is_sse_stream) and not is_subclass(item, ServerSentEvent):
                    self.stream_item_type = item
        self.response_model = model
        self.response_field: ModelField | None = None
        if model:
            if not allows_body(self.status_code):
                raise AssertionError(
                    f"Status code {self.status_code} must not have a response body"
                )
            self.response_field = make_field(
                f"Response_{self.unique_id}", model, mode="serialization"
            )
        self.stream_item_field: ModelField | None = None
        if self.stream_item_type:
            self.stream_item_field = make_field(
                f"StreamItem_{self.unique_id}", self.stream_item_type, mode="serialization"
            )
        self.response_fields: dict[int | str, ModelField] = {}
        for status, response in self.responses.items():
            if not isinstance(response, dict):
                raise AssertionError("An additional response must be a dict")
            if response.get("model"):
                if not allows_body(status):
                    raise AssertionError(f"Status code {status} must not have a response body")
                self.response_fields[status] = make_field(
                    f"Response_{status}_{self.unique_id}", response["model"], mode="serialization"
                )

    @property
    def body_field(self) -> ModelField | None:
        """The whole body as one field, for the document; None without a body."""
        if not self._has_body_field:
            self._body_field = make_body_field(
                self.body_params, name=self.unique_id, embed=self.embed_body_fields
            )
            self._has_body_field = True
        return self._body_field

    @property
    def responder(self) -> Responder:
        """What makes responses of the handler's results."""
        if self._responder is None:
            self._responder = Responder(
                field=self.response_field,
                options=ResponseModelOptions(
                    include=self.response_model_include,
                    exclude=self.response_model_exclude,
                    by_alias=self.response_model_by_alias,
                    exclude_unset=self.response_model_exclude_unset,
                    exclude_defaults=self.response_model_exclude_defaults,
                    exclude_none=self.response_model_exclude_none,
                ),
                response_class=self.response_class,
                status_code=self.status_code,
                context=self.context,
                stream_field=self.stream_item_field,
            )
        return self._responder

    def make_plan(
        self,
        fail: Callable[[Exchange, BaseException], Any],
        overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
    ) -> Plan:
        """Compiles the route.

        Args:
            fail: What makes responses of exceptions.
            overrides: The dependencies to exchange.
        """
        dependant = override(self.dependant, overrides) if overrides else self.dependant
        embed = (
            should_embed_body(flat_body_params(dependant)) if overrides else self.embed_body_fields
        )
        converters = path_converters(self.param_convertors)
        compiled = compile_target(
            dependant,
            responder=self.responder,
            embed=embed,
            blocking=self.blocking,
            strict_content_type=self.strict_content_type,
            path_converters=converters,
            form_limits=self.form_limits,
            context=self.context,
        )
        plan = self._fill_plan(Plan(), compiled, fail, converters)
        if type(self).get_route_handler is not APIRoute.get_route_handler:
            self._handling = plan
            _call_handler(plan, self.get_route_handler())
        return plan

    def get_route_handler(self) -> Callable[[Request[Any]], Awaitable[Response]]:
        """Returns a function that answers a request.

        A subclass, given to a router as `route_class`, may wrap it.

        Example:
            >>> class Timed(APIRoute):
            ...     def get_route_handler(self):
            ...         handler = super().get_route_handler()
            ...         async def timed(request):
            ...             start = time.perf_counter()
            ...             response = await handler(request)
            ...             response.headers["x-seconds"] = str(time.perf_counter() - start)
            ...             return response
            ...         return timed
        """
        plan = copy(self._handling)

        async def handle(request: Request[Any]) -> Response:
            response: Response = await run_plan(plan, RequestExchange(request))
            return response

        return handle

    def _fill_plan(
        self,
        plan: Plan,
        compiled: Compiled,
        fail: Callable[[Exchange, BaseException], Any],
        converters: dict[str, Callable[[str], Any]],
    ) -> Plan:
        responder = self.responder
        taken = {slot.field.wire_name for slot in compiled.tree.slots if slot.field is not None}
        plan.methods = list(self.methods)
        plan.path = self.path
        plan.name = self.name
        plan.kind = compiled.kind
        plan.target = compiled.target
        plan.inputs = compiled.inputs
        plan.json_body = bool(compiled.tree.body_slots) and not compiled.tree.is_form
        plan.encode = responder.encode
        plan.encode_default = encode_default
        plan.known = responder.known
        plan.status_code = responder.status_code
        plan.media_type = responder.media_type
        plan.bind = compiled.binder.bind
        plan.bind_is_async = compiled.binder.is_async
        # A converter decides whether the path matches, also for a parameter that nobody takes.
        plan.always_bind = compiled.tree.is_form or not taken.issuperset(converters)
        plan.streams_body = compiled.tree.is_form
        plan.fail = fail
        plan.native = self.native_plan
        plan.path_converters = converters
        plan.max_body_bytes = self.max_body_size
        plan.blocking = self.blocking
        plan.endpoint = self.endpoint
        plan.route = self
        plan.is_direct = compiled.is_direct
        return plan

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        """Makes the path of this route.

        Raises:
            NoMatchFound: The name or the parameters are another route's.
        """
        if name != self.name or set(path_params) != set(self.param_convertors):
            raise NoMatchFound(name, path_params)
        path, _ = fill_path(self.path_format, self.param_convertors, path_params)
        return URLPath(path=path, protocol="http")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'|'.join(self.methods)} {self.path}, name={self.name!r})"


def _call_handler(plan: Plan, handler: Callable[[Request[Any]], Awaitable[Response]]) -> None:
    """Lets a plan do nothing but call a function of the request."""
    plan.target = handler
    plan.kind = Kind.ASYNC
    plan.inputs = [Input(Source.EXCHANGE, "request", convert=request_of)]
    plan.json_body = plan.bind_is_async = plan.always_bind = False
    plan.streams_body = True
    plan.bind = _bind_request
    plan.is_direct = False
    plan.known = None


def _bind_request(exchange: Exchange, _body: bytes) -> tuple[Any, ...]:
    return (request_of(exchange),)
