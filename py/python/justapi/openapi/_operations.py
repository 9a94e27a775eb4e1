"""One path operation as the document describes it: equal in content to FastAPI's."""

from __future__ import annotations

import copy
import http.client
import inspect
import warnings
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from pydantic_core import PydanticUndefined

from justapi._api_route import APIRoute
from justapi._callables import unwrapped
from justapi._fields import ModelField, model_fields, param_model, request_names
from justapi._plan import NativePlan
from justapi._respond import allows_body
from justapi.dependencies import Dependant
from justapi.encoders import jsonable_encoder
from justapi.openapi._native import NativeOperation
from justapi.openapi._schemas import JsonSchema, Schemas
from justapi.openapi.constants import METHODS_WITH_BODY, REF_PREFIX
from justapi.responses import JSONResponse, Response
from justapi.security import SecurityBase

__all__ = ["ErrorFormat", "Operations", "deep_update", "parameter_fields"]

ErrorFormat: TypeAlias = Literal["problem", "fastapi"]

_STATUS_RANGES = {
    "1XX": "Information",
    "2XX": "Success",
    "3XX": "Redirection",
    "4XX": "Client Error",
    "5XX": "Server Error",
    "DEFAULT": "Default Response",
}

_ERROR_PROPERTIES: JsonSchema = {
    "loc": {
        "title": "Location",
        "type": "array",
        "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    },
    "msg": {"title": "Message", "type": "string"},
    "type": {"title": "Error Type", "type": "string"},
}

_FASTAPI_ERRORS: dict[str, JsonSchema] = {
    "HTTPValidationError": {
        "title": "HTTPValidationError",
        "type": "object",
        "properties": {
            "detail": {
                "title": "Detail",
                "type": "array",
                "items": {"$ref": REF_PREFIX + "ValidationError"},
            }
        },
    },
    "ValidationError": {
        "title": "ValidationError",
        "type": "object",
        "properties": {
            **_ERROR_PROPERTIES,
            "input": {"title": "Input"},
            "ctx": {"title": "Context", "type": "object"},
        },
        "required": ["loc", "msg", "type"],
    },
}

_PROBLEM_ERRORS: dict[str, JsonSchema] = {
    "ValidationProblem": {
        "title": "ValidationProblem",
        "description": "A problem document (RFC 9457) that lists what is invalid.",
        "type": "object",
        "properties": {
            "type": {"title": "Type", "type": "string", "format": "uri-reference"},
            "title": {"title": "Title", "type": "string"},
            "status": {"title": "Status", "type": "integer"},
            "detail": {"title": "Detail", "type": "string"},
            "errors": {
                "title": "Errors",
                "type": "array",
                "items": {"$ref": REF_PREFIX + "ValidationError"},
            },
        },
        "required": ["type", "title", "status", "errors"],
    },
    "ValidationError": {
        "title": "ValidationError",
        "type": "object",
        "properties": {**_ERROR_PROPERTIES, "ctx": {"title": "Context", "type": "object"}},
        "required": ["loc", "msg", "type"],
    },
}

_EVENT_SCHEMA: JsonSchema = {
    "type": "object",
    "properties": {
        "data": {"type": "string"},
        "event": {"type": "string"},
        "id": {"type": "string"},
        "retry": {"type": "integer", "minimum": 0},
    },
}
"""A server-sent event, as OpenAPI 3.2 section 4.14.4 describes the items of such a stream."""


def deep_update(target: dict[Any, Any], changes: dict[Any, Any]) -> None:
    """Merges a dict into another: dicts in depth, lists by appending, the rest by replacing.

    Args:
        target: What is changed.
        changes: What is merged into it.
    """
    for key, value in changes.items():
        present = target.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            deep_update(present, value)
        elif isinstance(present, list) and isinstance(value, list):
            target[key] = present + value
        else:
            target[key] = value


def _walk(dependant: Dependant) -> Iterator[tuple[Dependant, list[str], bool]]:
    """Yields each dependency once, with the OAuth2 scopes on the way to it."""
    seen: set[Any] = set()
    pending: list[tuple[Dependant, list[str], bool]] = [(dependant, [], True)]
    while pending:
        current, scopes, is_root = pending.pop()
        if current.cache_key in seen:
            continue
        seen.add(current.cache_key)
        scopes = list(dict.fromkeys([*scopes, *current.oauth_scopes]))
        yield current, scopes, is_root
        pending += [(below, scopes, False) for below in reversed(current.dependencies)]


_PLACES = ("path", "query", "header", "cookie")


def _parameters_of(dependant: Dependant) -> list[tuple[str, ModelField]]:
    """Returns the parameters with their places: those of the path first."""
    found: dict[str, list[ModelField]] = {place: [] for place in _PLACES}
    for current, _, _ in _walk(dependant):
        for place in _PLACES:
            found[place] += getattr(current, f"{place}_params")
    return [(place, field) for place in _PLACES for field in found[place]]


def parameter_fields(dependant: Dependant) -> list[ModelField]:
    """Returns the fields of all parameters outside of the body, models taken apart.

    Args:
        dependant: The handler.
    """
    return [field for _, parameter in _parameters_of(dependant) for field in _members(parameter)]


def _members(parameter: ModelField) -> list[ModelField]:
    model = param_model(parameter)
    return [parameter] if model is None else model_fields(model)


class Operations:
    """Describes the operations of an application.

    Args:
        schemas: The schemas of all fields.
        error_format: The shape of the answers to invalid input.

    Attributes:
        definitions: Schemas that the operations need beside those of the fields.
        security_schemes: The security schemes that the operations use.
    """

    def __init__(self, schemas: Schemas, error_format: ErrorFormat) -> None:
        self._schemas = schemas
        self._error_format = error_format
        self._operation_ids: set[str] = set()
        self.definitions: dict[str, JsonSchema] = {}
        self.security_schemes: dict[str, Any] = {}

    def path_item(self, route: APIRoute) -> dict[str, Any]:
        """Returns the operations of a route by method.

        Args:
            route: The route.
        """
        if not route.include_in_schema:
            return {}
        return {method.lower(): self._operation(route, method) for method in route.methods}

    def _operation(self, route: APIRoute, method: str) -> dict[str, Any]:
        operation = self._metadata(route)
        if route.native_plan is not None:
            self._describe_native(operation, route, route.native_plan)
            return operation
        security = self._security(route.dependant)
        if security:
            operation["security"] = security
        parameters = self._parameters(route.dependant)
        if parameters:
            operation["parameters"] = parameters
        if method in METHODS_WITH_BODY and route.body_field is not None:
            operation["requestBody"] = self._request_body(route.body_field)
        if route.callbacks:
            operation["callbacks"] = {
                callback.name: {callback.path: self.path_item(callback)}
                for callback in route.callbacks
                if isinstance(callback, APIRoute)
            }
        operation["responses"] = self._responses(route)
        if route.openapi_extra:
            deep_update(operation, copy.deepcopy(route.openapi_extra))
        return operation

    def _describe_native(
        self, operation: dict[str, Any], route: APIRoute, plan: NativePlan
    ) -> None:
        native = NativeOperation(
            plan, operation["operationId"], self.definitions, self._schemas.definitions
        )
        parameters = [*native.path_parameters(route.param_convertors), *native.parameters()]
        if parameters:
            operation["parameters"] = parameters
        body = native.request_body()
        if body is not None:
            operation["requestBody"] = body
        operation["responses"] = native.responses(route.response_description)
        for code, declared in route.responses.items():
            self._add_response(operation["responses"], route, code, declared, None)
        if route.openapi_extra:
            deep_update(operation, copy.deepcopy(route.openapi_extra))

    def _metadata(self, route: APIRoute) -> dict[str, Any]:
        operation: dict[str, Any] = {}
        if route.tags:
            operation["tags"] = list(route.tags)
        operation["summary"] = route.summary or route.name.replace("_", " ").title()
        if route.description:
            operation["description"] = route.description
        operation_id = route.operation_id or route.unique_id
        if operation_id in self._operation_ids:
            name = getattr(route.endpoint, "__name__", "<unnamed_endpoint>")
            message = f"Duplicate Operation ID {operation_id} for function {name}"
            file = getattr(route.endpoint, "__globals__", {}).get("__file__")
            warnings.warn(message + (f" at {file}" if file else ""), stacklevel=1)
        self._operation_ids.add(operation_id)
        operation["operationId"] = operation_id
        if route.deprecated:
            operation["deprecated"] = route.deprecated
        return operation

    def _security(self, dependant: Dependant) -> list[dict[str, list[str]]]:
        required: dict[str, list[str]] = {}
        for current, scopes, is_root in _walk(dependant):
            scheme: Any = unwrapped(current.call)
            if is_root or not isinstance(scheme, SecurityBase):
                continue
            self.security_schemes[scheme.scheme_name] = jsonable_encoder(
                scheme.model, by_alias=True, exclude_none=True
            )
            known = required.setdefault(scheme.scheme_name, [])
            known += [scope for scope in scopes if scope not in known]
        return [{name: scopes} for name, scopes in required.items()]

    def _parameters(self, dependant: Dependant) -> list[dict[str, Any]]:
        described: dict[tuple[str, str], dict[str, Any]] = {}
        for place, parent in _parameters_of(dependant):
            if not getattr(parent.field_info, "include_in_schema", True):
                continue
            for parameter in self._parameter(place, parent):
                key = (place, parameter["name"])
                # Of two with one name, one that is required counts.
                if key not in described or parameter["required"] or not described[key]["required"]:
                    described[key] = parameter
        return list(described.values())

    def _parameter(self, place: str, parent: ModelField) -> Iterator[dict[str, Any]]:
        model = param_model(parent)
        is_optional = (
            model is not None and parent.field_info.annotation is not model and not parent.required
        )
        for field in _members(parent):
            info: Any = field.field_info
            if not getattr(info, "include_in_schema", True):
                continue
            convert = place == "header" and getattr(
                info, "convert_underscores", getattr(parent.field_info, "convert_underscores", True)
            )
            alias, name = request_names(field, convert_underscores=convert)[0]
            parameter: dict[str, Any] = {
                "name": name,
                "in": place,
                "required": field.required and not is_optional,
                "schema": self._schemas.of(field, alias),
            }
            if info.description:
                parameter["description"] = info.description
            parameter.update(_examples(info))
            if getattr(info, "deprecated", None):
                parameter["deprecated"] = True
            yield parameter

    def _request_body(self, field: ModelField) -> dict[str, Any]:
        info: Any = field.field_info
        content = {"schema": self._schemas.of(field), **_examples(info)}
        body: dict[str, Any] = {"content": {info.media_type: content}}
        if field.required:
            body["required"] = True
        return body

    def _responses(self, route: APIRoute) -> dict[str, Any]:
        cls = route.response_class or JSONResponse
        status = str(route.status_code or _default_status(cls))
        main: dict[str, Any] = {"description": route.response_description}
        if allows_body(route.status_code):
            content = self._content(route, cls)
            if content:
                main["content"] = content
        responses: dict[str, Any] = {status: main}
        for code, declared in route.responses.items():
            self._add_response(responses, route, code, declared, cls.media_type)
        takes_input = route.body_field is not None or bool(parameter_fields(route.dependant))
        if takes_input and not {"422", "4XX", "default"} & set(responses):
            responses["422"] = self._validation_response()
        return responses

    def _content(self, route: APIRoute, cls: type[Response]) -> dict[str, Any]:
        if route.is_json_stream:
            item = route.stream_item_field
            schema = {} if item is None else self._schemas.of(item)
            return {"application/jsonl": {"itemSchema": schema}}
        if route.is_sse_stream:
            event = copy.deepcopy(_EVENT_SCHEMA)
            if route.stream_item_field is not None:
                event["required"] = ["data"]
                event["properties"]["data"] = {
                    "type": "string",
                    "contentMediaType": "application/json",
                    "contentSchema": self._schemas.of(route.stream_item_field),
                }
            return {"text/event-stream": {"itemSchema": event}}
        if cls.media_type is None:
            return {}
        schema = {"type": "string"}
        if issubclass(cls, JSONResponse):
            field = route.response_field
            schema = {} if field is None else self._schemas.of(field)
        return {cls.media_type: {"schema": schema}}

    def _add_response(
        self,
        responses: dict[str, Any],
        route: APIRoute,
        code: int | str,
        declared: dict[str, Any],
        media_type: str | None,
    ) -> None:
        added = copy.deepcopy({key: value for key, value in declared.items() if key != "model"})
        upper = str(code).upper()
        present = responses.setdefault("default" if upper == "DEFAULT" else upper, {})
        field = route.response_fields.get(code)
        if field is not None:
            content = added.setdefault("content", {})
            schema = content.setdefault(media_type or "application/json", {}).setdefault(
                "schema", {}
            )
            deep_update(schema, self._schemas.of(field))
        description = (
            added.get("description")
            or present.get("description")
            or _STATUS_RANGES.get(upper)
            or (http.client.responses.get(int(code)) if upper.isdigit() else None)
            or "Additional Response"
        )
        deep_update(present, added)
        present["description"] = description

    def _validation_response(self) -> dict[str, Any]:
        if self._error_format == "fastapi":
            media_type, name, schemas = "application/json", "HTTPValidationError", _FASTAPI_ERRORS
        else:
            media_type, name = "application/problem+json", "ValidationProblem"
            schemas = _PROBLEM_ERRORS
        self.definitions.update(copy.deepcopy(schemas))
        return {
            "description": "Validation Error",
            "content": {media_type: {"schema": {"$ref": REF_PREFIX + name}}},
        }


def _default_status(cls: type[Response]) -> int:
    """Returns the status that a response class has by itself."""
    parameter = inspect.signature(cls.__init__).parameters.get("status_code")
    if parameter is not None and isinstance(parameter.default, int):
        return parameter.default
    return 200


def _examples(info: Any) -> dict[str, Any]:
    if getattr(info, "openapi_examples", None):
        return {"examples": jsonable_encoder(info.openapi_examples)}
    example = getattr(info, "example", PydanticUndefined)
    return {} if example is PydanticUndefined else {"example": jsonable_encoder(example)}
