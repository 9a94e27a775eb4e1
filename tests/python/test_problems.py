"""Errors as problem documents (RFC 9457), the default."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from justapi import HTTPException, JustAPIApp, Query
from twins import answers, call, get, post

app = JustAPIApp()


class Item(BaseModel):
    name: str
    price: float


@app.get("/text")
def text():
    raise HTTPException(404, "no such item", headers={"X-A": "b"})


@app.get("/title")
def title():
    raise HTTPException(404)


@app.get("/data")
def data():
    raise HTTPException(400, {"code": 7})


@app.get("/list")
def list_():
    raise HTTPException(400, ["a", {"b": None}])


@app.post("/items/{n}")
def create(n: int, item: Item, q: Annotated[int, Query(ge=3)] = 3):
    return item


@app.get("/crash")
def crash():
    raise RuntimeError("secret")


def test_problem_documents() -> None:
    found = answers(
        app,
        get("/text"),
        get("/title"),
        get("/data"),
        get("/list"),
        get("/nothing"),
        call("PUT", "/text"),
        get("/crash"),
    )
    assert [answer.body for answer in found] == [
        {"type": "about:blank", "title": "Not Found", "status": 404, "detail": "no such item"},
        {"type": "about:blank", "title": "Not Found", "status": 404},
        {"type": "about:blank", "title": "Bad Request", "status": 400, "data": {"code": 7}},
        {
            "type": "about:blank",
            "title": "Bad Request",
            "status": 400,
            "errors": ["a", {"b": None}],
        },
        {"type": "about:blank", "title": "Not Found", "status": 404},
        {"type": "about:blank", "title": "Method Not Allowed", "status": 405},
        {"type": "about:blank", "title": "Internal Server Error", "status": 500},
    ]
    types = {dict(answer.headers)["content-type"] for answer in found}
    assert types == {"application/problem+json"}
    assert dict(found[0].headers)["x-a"] == "b"


def test_invalid_input_is_listed_without_its_values() -> None:
    [answer] = answers(app, post("/items/x?q=1", json={"name": 3}))
    assert answer.status == 422
    assert answer.body["title"] == "Unprocessable Entity"
    assert answer.body["detail"] == "the request is not valid: 4 errors"
    assert [(error["type"], error["loc"]) for error in answer.body["errors"]] == [
        ("int_parsing", ["path", "n"]),
        ("greater_than_equal", ["query", "q"]),
        ("string_type", ["body", "name"]),
        ("missing", ["body", "price"]),
    ]
    assert answer.body["errors"][1]["ctx"] == {"ge": 3}
    assert all("input" not in error for error in answer.body["errors"])


def test_many_errors_are_counted() -> None:
    many = JustAPIApp()

    @many.post("/x")
    def x(items: list[Item]): ...

    [answer] = answers(many, post("/x", json=[{}] * 1000))
    assert len(answer.body["errors"]) == 100
    assert answer.body["num_more_errors"] == 1900


def test_debug_shows_the_traceback_to_the_client() -> None:
    debugging = JustAPIApp(debug=True)
    debugging.get("/crash")(crash)
    [answer] = answers(debugging, get("/crash"))
    assert answer.status == 500
    assert b"RuntimeError: secret" in answer.body


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(ValueError, match="neither"):
        JustAPIApp(error_format="xml")  # type: ignore[arg-type]


def test_what_nobody_handles_is_logged_by_the_plan(caplog: pytest.LogCaptureFixture) -> None:
    plan = next(plan for plan in app.plans() if plan.path == "/crash")

    class Exchange:
        context: Any = None
        scope: Any = {"type": "http", "method": "GET", "path": "/crash"}  # noqa: RUF012
        receive = send = None

    with caplog.at_level(logging.ERROR, "justapi.error"):
        try:
            plan.target()
        except RuntimeError as error:
            response = plan.fail(Exchange(), error)  # type: ignore[arg-type]
    assert response.status_code == 500
    assert "secret" not in bytes(response.body).decode()
    assert "GET /crash raised" in caplog.text
    assert "RuntimeError: secret" in caplog.text
