"""What the document says of a native route: its schemas are the contract, not its handler."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from justapi._paths import CONVERTORS, Convertor
from justapi._plan import NativePlan
from justapi.openapi._schemas import JsonSchema, component_name
from justapi.openapi.constants import REF_PREFIX

__all__ = ["NativeOperation"]

_PIECES: dict[str, JsonSchema] = {
    "str": {"type": "string", "minLength": 1},
    "path": {"type": "string"},
    "int": {"type": "integer", "minimum": 0},
    "float": {"type": "number", "minimum": 0},
    "uuid": {"type": "string", "format": "uuid"},
}

_REFUSALS = {
    "400": "The request is malformed: its framing, query or JSON",
    "413": "The body is larger than the route accepts",
    "415": "The body is not declared as JSON",
    "422": "The body or the query does not match its schema",
}

_SCHEMA_PROBLEM: JsonSchema = {
    "title": "SchemaProblem",
    "description": "A problem document (RFC 9457) that says where the request is wrong.",
    "type": "object",
    "properties": {
        "type": {"title": "Type", "type": "string", "format": "uri-reference"},
        "title": {"title": "Title", "type": "string"},
        "status": {"title": "Status", "type": "integer"},
        "detail": {"title": "Detail", "type": "string"},
        "line": {"title": "Line where the JSON breaks", "type": "integer", "minimum": 1},
        "column": {"title": "Column where the JSON breaks", "type": "integer", "minimum": 0},
        "errors": {
            "title": "Errors",
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "in": {"title": "Part of the request", "enum": ["query", "body"]},
                    "instance_path": {"title": "JSON pointer to the value", "type": "string"},
                    "schema_path": {"title": "JSON pointer to the rule", "type": "string"},
                    "message": {"title": "Message", "type": "string"},
                },
                "required": ["in", "instance_path", "schema_path", "message"],
            },
        },
        "num_more_errors": {"title": "Errors beyond those", "type": "integer", "minimum": 1},
    },
    "required": ["type", "title", "status"],
}


class NativeOperation:
    """Parameters, body and answers of a native route.

    Args:
        plan: What the route does.
        operation_id: Names what has no title of its own.
        definitions: Where schemas that are referred to are put.
        taken: Further schemas whose names are taken.
    """

    def __init__(
        self,
        plan: NativePlan,
        operation_id: str,
        definitions: dict[str, JsonSchema],
        taken: dict[str, JsonSchema],
    ) -> None:
        self._plan = plan
        self._operation_id = operation_id
        self._definitions = definitions
        self._taken = taken
        self._body = self._given(plan.schema, "body")
        self._query = self._given(plan.query_schema, "query")

    def path_parameters(self, convertors: Mapping[str, Convertor]) -> list[dict[str, Any]]:
        """Returns the parameters of the path: what its pattern says of them.

        Args:
            convertors: The convertors of the pattern by parameter.
        """
        return [
            {"name": name, "in": "path", "required": True, "schema": _PIECES[kind]}
            for name, convertor in convertors.items()
            for kind, known in CONVERTORS.items()
            if known is convertor
        ]

    def parameters(self) -> list[dict[str, Any]]:
        """Returns the parameters of the query: the properties of its schema."""
        schema = self._query if isinstance(self._query, dict) else {}
        reference = schema.get("$ref", "")
        if reference.startswith(REF_PREFIX):
            schema = self._definitions[reference.removeprefix(REF_PREFIX)]
        required = schema.get("required", ())
        return [
            {"name": name, "in": "query", "required": name in required, "schema": each}
            for name, each in schema.get("properties", {}).items()
        ]

    def request_body(self) -> dict[str, Any] | None:
        """Returns the body, None if the route takes none."""
        if self._plan.schema is None:
            return None
        return {"content": {"application/json": {"schema": self._body}}, "required": True}

    def responses(self, description: str) -> dict[str, Any]:
        """Returns the answers by status.

        Args:
            description: Of the answer to a valid request.
        """
        status = self._plan.status_code
        main: dict[str, Any] = {"description": description}
        media_type = self._media_type()
        if media_type is not None:
            main["content"] = {media_type: {"schema": self._answer(media_type)}}
        responses: dict[str, Any] = {str(status): main}
        if self._plan.schema is None and self._plan.query_schema is None:
            return responses
        self._definitions["SchemaProblem"] = _SCHEMA_PROBLEM
        refusals = ("400", "422") if self._plan.schema is None else tuple(_REFUSALS)
        for refusal in refusals:
            responses[refusal] = {
                "description": _REFUSALS[refusal],
                "content": {
                    "application/problem+json": {"schema": {"$ref": REF_PREFIX + "SchemaProblem"}}
                },
            }
        return responses

    def _media_type(self) -> str | None:
        types = [value for name, value in self._plan.raw_headers if name == b"content-type"]
        return types[0].decode("latin-1").split(";")[0] if types else None

    def _answer(self, media_type: str) -> JsonSchema | bool:
        if media_type != "application/json":
            return {"type": "string"}
        is_document = self._plan.kind in ("body", "query") and not self._plan.body
        if not is_document:
            return {}
        return self._body if self._plan.schema is not None else self._query

    def _given(self, text: str | None, role: str) -> JsonSchema | bool:
        """A schema as it can stand in the document: one with a title is referred to."""
        given = {} if text is None else json.loads(text)
        if not isinstance(given, dict):
            return bool(given)
        schema: JsonSchema = {key: value for key, value in given.items() if key != "$schema"}
        references = set(_references(schema))
        if "$id" in schema or any(one[:2] not in ("#", "#/") for one in references):
            # Its references are resolved by names of its own.
            return schema
        inner = schema.pop("$defs", {})
        title = schema.get("title")
        if not isinstance(title, str):
            title = f"{self._operation_id}_{role}"
            if not references:
                return schema
        name = self._name(title, schema)
        names = {key: self._name(key, value) for key, value in inner.items()}
        places = {f"#/$defs/{_escaped(key)}": REF_PREFIX + new for key, new in names.items()}
        places["#"] = REF_PREFIX + name
        moved = {one: _moved(one, places) for one in references}
        for key, new in names.items():
            self._definitions[new] = _with_references(inner[key], moved)
        self._definitions[name] = _with_references(schema, moved)
        return {"$ref": REF_PREFIX + name}

    def _name(self, title: str, schema: Any) -> str:
        """A component's name, which no other schema has."""
        name = component_name(title)
        if all(one.get(name, schema) == schema for one in (self._definitions, self._taken)):
            return name
        return component_name(f"{self._operation_id}_{title}")


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            elif key not in ("const", "enum", "default", "examples"):
                yield from _references(value)


def _moved(reference: str, places: dict[str, str]) -> str:
    """Where a JSON pointer leads once what stood at some places stands elsewhere."""
    place = max((one for one in places if f"{reference}/".startswith(f"{one}/")), key=len)
    return places[place] + reference[len(place) :]


def _with_references(schema: Any, moved: dict[str, str]) -> Any:
    if isinstance(schema, list):
        return [_with_references(item, moved) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: moved[value]
        if key == "$ref" and isinstance(value, str)
        else value
        if key in ("const", "enum", "default", "examples")
        else _with_references(value, moved)
        for key, value in schema.items()
    }


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
