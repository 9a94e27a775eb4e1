"""`msgspec.Struct` as body, parameter of a dependency and response, with all errors reported."""

from __future__ import annotations

from typing import Annotated

import msgspec

from justapi import Body, Depends, JustAPIApp
from twins import answers, get, post

app = JustAPIApp(error_format="fastapi")


class Tag(msgspec.Struct):
    label: str


class Item(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=2)]
    price: float = 1.0
    tags: list[Tag] = []
    maybe: Tag | None = None


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    first_name: str


class Out(msgspec.Struct):
    name: str


class Orm:
    def __init__(self) -> None:
        self.name = "from attributes"
        self.secret = 1


@app.post("/item")
def item(item: Item) -> Item:
    return item


@app.post("/async")
async def item_async(item: Item):
    return {"item": item, "type": type(item).__name__}


@app.post("/list")
def items(items: list[Item]):
    return len(items)


@app.post("/two")
def two(item: Item, strict: Annotated[Strict, Body()]):
    return [item, strict]


def dependency(item: Item) -> str:
    return item.name


@app.post("/dependency")
def with_dependency(name: Annotated[str, Depends(dependency)]):
    return name


@app.post("/strict")
def strict(s: Strict) -> Strict:
    return s


@app.get("/out")
def out() -> Out:
    return Orm()  # type: ignore[return-value]


@app.get("/out-list")
def out_list() -> list[Out]:
    return [{"name": "a", "more": 1}, Out("b")]  # type: ignore[list-item]


@app.get("/invalid")
def invalid() -> Out:
    return {"name": 3}  # type: ignore[return-value]


def test_structs() -> None:
    good = {"name": "ab", "tags": [{"label": "x"}], "more": 1}
    whole = {"name": "ab", "price": 1.0, "tags": [{"label": "x"}], "maybe": None}
    found = answers(
        app,
        post("/item", json=good),
        post("/async", json=good),
        post("/list", json=[good, good]),
        post("/two", json={"item": good, "strict": {"firstName": "me"}}),
        post("/dependency", json=good),
        post("/strict", json={"firstName": "me"}),
        get("/out"),
        get("/out-list"),
        get("/invalid"),
    )
    assert [answer.body for answer in found] == [
        whole,
        {"item": whole, "type": "Item"},
        2,
        [whole, {"firstName": "me"}],
        "ab",
        {"firstName": "me"},
        {"name": "from attributes"},
        [{"name": "a"}, {"name": "b"}],
        b"Internal Server Error",
    ]


def test_all_errors_are_reported_with_their_places() -> None:
    body = {
        "name": "a",
        "price": "x",
        "tags": [{"label": 1}, 3, {}],
        "maybe": {"label": None},
    }
    [answer] = answers(app, post("/item", json=body))
    assert answer.status == 422
    assert [error["loc"] for error in answer.body["detail"]] == [
        ["body", "name"],
        ["body", "price"],
        ["body", "tags", 0, "label"],
        ["body", "tags", 1],
        ["body", "tags", 2, "label"],
        ["body", "maybe", "label"],
    ]
    assert answer.body["detail"][0]["msg"] == "Expected str of length >= 2"


def test_members_and_unknown_fields() -> None:
    [two_errors, unknown] = answers(
        app,
        post("/two", json={"item": {}, "strict": {}}),
        post("/strict", json={"firstName": "a", "other": 1}),
    )
    assert [error["loc"] for error in two_errors.body["detail"]] == [
        ["body", "item", "name"],
        ["body", "strict", "firstName"],
    ]
    assert unknown.body["detail"][0]["type"] == "extra_forbidden"


def test_malformed_bodies_are_never_500() -> None:
    json_type = {"content-type": "application/json"}
    contents = [b"{", b'{"name": "\xff\xfe"}', rb'{"name": "\ud800"}', b"[" * 100_000, b"", b"null"]
    found = answers(app, *[post("/item", content=body, headers=json_type) for body in contents])
    assert [answer.status for answer in found] == [422, 400, 422, 400, 422, 422]


def test_a_struct_that_looks_like_a_response() -> None:
    class Record(msgspec.Struct):
        raw_headers: list[str]
        status_code: int

        def __call__(self, *_: object) -> None:
            raise AssertionError("data is called")

    class Wider(Record):
        more: int = 1

    app = JustAPIApp()

    def declared():
        return Wider(["a"], 201)

    declared.__annotations__ = {"return": Record}
    app.get("/declared")(declared)
    app.get("/undeclared")(lambda: Record(["a"], 201))
    found = answers(app, get("/declared"), get("/undeclared"))
    assert [answer.body["status_code"] for answer in found] == [201, 201]
