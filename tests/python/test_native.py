"""Native routes: what the plan says, and what is refused when a route is registered."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import BaseModel

from justapi import APIRouter, Depends, JustAPIApp, Request
from justapi._plan import NativePlan
from justapi.responses import FileResponse, JSONResponse, RedirectResponse

SCHEMA = {"type": "object", "required": ["name"]}


class Item(BaseModel):
    name: str


class Struct(msgspec.Struct):
    name: str


def handler() -> Any:
    return {"ok": True}


def echo(item: dict[str, Any]) -> Any:
    raise AssertionError("never called")


def native_plan(
    endpoint: Any = handler, method: str = "POST", path: str = "/x", **options: Any
) -> NativePlan:
    app = JustAPIApp(openapi_url=None)
    app.api_route(path, methods=[method], **options)(endpoint)
    [plan] = app.plans()
    assert plan.native is not None
    return plan.native


@pytest.mark.parametrize("schema", [SCHEMA, json.dumps(SCHEMA)])
def test_a_schema_of_the_body(schema: Any) -> None:
    plan = native_plan(native=True, schema=schema)
    assert plan.kind == "body"
    assert plan.schema is not None
    assert json.loads(plan.schema) == SCHEMA
    assert (plan.status_code, plan.body) == (200, b'{"ok":true}')
    assert plan.raw_headers == [(b"content-type", b"application/json")]


@pytest.mark.parametrize("schema", [Item, Struct, list[int]])
def test_types_have_schemas(schema: Any) -> None:
    plan = native_plan(native=True, schema=schema)
    assert plan.schema is not None
    assert "type" in plan.schema or "$ref" in plan.schema


def test_a_schema_of_the_query() -> None:
    plan = native_plan(native=True, query_schema=SCHEMA, method="GET", status_code=202)
    assert (plan.kind, plan.status_code) == ("query", 202)
    assert plan.query_schema is not None


def test_a_handler_with_a_parameter_stands_for_the_document() -> None:
    assert native_plan(echo, native=True, schema=SCHEMA).body == b""


def test_constants() -> None:
    assert native_plan(native={"a": 1}).body == b'{"a":1}'
    assert native_plan(native="text").body == b"text"
    response = native_plan(native=JSONResponse([1], status_code=201, headers={"x-a": "b"}))
    assert (response.kind, response.status_code, response.body) == ("constant", 201, b"[1]")
    assert (b"x-a", b"b") in response.raw_headers
    redirect = native_plan(native=RedirectResponse("/y"))
    assert (redirect.kind, redirect.status_code) == ("redirect", 307)
    file = native_plan(native=FileResponse(__file__))
    assert (file.kind, file.path) == ("file", __file__)


def needs(d: Annotated[Any, Depends(handler)]) -> Any: ...


def takes_request(request: Request) -> Any: ...


def yields() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("endpoint", "options", "reason"),
    [
        (handler, {"native": True}, "needs schema= or query_schema="),
        (handler, {"schema": SCHEMA}, "belong to native=True"),
        (needs, {"native": True, "schema": SCHEMA}, "dependencies"),
        (
            handler,
            {"native": True, "schema": SCHEMA, "dependencies": [Depends(handler)]},
            "dependencies",
        ),
        (takes_request, {"native": True, "schema": SCHEMA}, "a Request parameter"),
        (yields, {"native": True, "schema": SCHEMA}, "a generator"),
        (
            handler,
            {"native": True, "schema": SCHEMA, "response_class": JSONResponse},
            "a response class",
        ),
        (handler, {"native": True, "schema": "{"}, "not JSON"),
        (handler, {"native": True, "schema": {"type": "text"}}, "POST /x: "),
        (echo, {"native": True, "schema": {"$ref": "#/$defs/none"}}, "POST /x: "),
        (echo, {"native": True, "query_schema": {"pattern": "("}}, "POST /x: "),
        (handler, {"native": {"a": 1}, "path": "/{name}.json"}, "whole segments"),
        (handler, {"native": {"a": 1}, "path": "/{number:float}"}, "whole segments"),
        (handler, {"native": 3}, "native= takes"),
        (needs, {"native": {"a": 1}}, "dependencies"),
    ],
)
def test_what_needs_python_is_refused(endpoint: Any, options: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        native_plan(endpoint, **options)


def test_middleware_in_python_is_refused_whenever_it_comes() -> None:
    async def dispatch(request: Any, call_next: Any) -> Any: ...

    first = JustAPIApp()
    first.get("/x", native={"a": 1})(handler)
    with pytest.raises(ValueError, match="middleware"):
        first.middleware("http")(dispatch)
    second = JustAPIApp()
    second.middleware("http")(dispatch)
    with pytest.raises(ValueError, match="middleware"):
        second.get("/x", native={"a": 1})(handler)
    router = APIRouter()
    router.get("/x", native={"a": 1})(handler)
    with pytest.raises(ValueError, match="middleware"):
        second.include_router(router)
    # A route of a router that reached the application first, too.
    third = JustAPIApp()
    late = APIRouter()
    third.include_router(late)
    third.middleware("http")(dispatch)
    late.get("/x", native={"a": 1})(handler)
    with pytest.raises(ValueError, match="middleware"):
        third.build_middleware_stack()


def test_router_dependencies_are_refused() -> None:
    router = APIRouter()
    router.get("/x", native={"a": 1})(handler)
    app = JustAPIApp()
    app.include_router(router, dependencies=[Depends(handler)])
    with pytest.raises(ValueError, match="dependencies"):
        app.plans()
