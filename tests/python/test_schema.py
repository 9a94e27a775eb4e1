"""Schemas: what they accept is what another implementation of JSON Schema accepts."""

import datetime
import enum
import sys
import types
import uuid
from typing import Annotated, Any, ClassVar, Literal

import annotated_types
import pydantic
import pytest
from jsonschema import Draft202012Validator

from justapi import JustAPI
from justapi.schema import Field, Schema
from justapi.testclient import TestClient


class Kind(enum.Enum):
    a = "a"
    b = "b"


class Size(Schema):
    width: int = Field(ge=1, le=100)
    height: int = 1


class Item(Schema, extra="forbid"):
    """An item."""

    limit: ClassVar[int] = 3

    name: str = Field(min_length=1, max_length=5, pattern="^[a-z]*$", description="The name")
    price: Annotated[float, annotated_types.Gt(0)]
    kind: Kind = Kind.a
    mode: Literal["x", 1, None] = "x"
    tags: set[str] = set()
    pair: tuple[int, str] | None = None
    sizes: list[Size] = Field(default_factory=list, max_length=2)
    more: dict[str, bool] = {}
    id: uuid.UUID | None = None
    at: datetime.datetime | None = None
    anything: Any = None
    renamed: int = Field(0, alias="re-named")


class Node(Schema):
    value: int
    children: "list[Node]" = []


GOOD = [
    (Item, {"name": "pen", "price": 1}),
    (Item, {"name": "pen", "price": 0.5, "kind": "b", "mode": None, "tags": ["a"]}),
    (Item, {"name": "pen", "price": 1, "pair": [1, "x"], "sizes": [{"width": 3}]}),
    (Item, {"name": "pen", "price": 1, "more": {"a": True}, "anything": [{}]}),
    (Item, {"name": "pen", "price": 1, "id": "6f1f6d5e-6a34-4c8f-9f6e-0f2a3b4c5d6e"}),
    (Item, {"name": "pen", "price": 1, "at": "2030-01-02T03:04:05Z", "re-named": 5}),
    (Node, {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]}),
    (Node, {"value": 1, "unknown": True}),
]
BAD = [
    (Item, {}),
    (Item, []),
    (Item, {"name": "", "price": 1}),
    (Item, {"name": "toolong", "price": 1}),
    (Item, {"name": "A", "price": 1}),
    (Item, {"name": "pen", "price": 0}),
    (Item, {"name": "pen", "price": "x"}),
    (Item, {"name": "pen", "price": 1, "kind": "c"}),
    (Item, {"name": "pen", "price": 1, "mode": 2}),
    (Item, {"name": "pen", "price": 1, "pair": [1]}),
    (Item, {"name": "pen", "price": 1, "pair": [1, "x", 2]}),
    (Item, {"name": "pen", "price": 1, "sizes": [{"width": 0}]}),
    (Item, {"name": "pen", "price": 1, "sizes": [{"width": 1}] * 3}),
    (Item, {"name": "pen", "price": 1, "more": {"a": "maybe"}}),
    (Item, {"name": "pen", "price": 1, "unknown": 1}),
    (Node, {"value": 1, "children": [{"value": "x"}]}),
]


@pytest.mark.parametrize(("model", "value"), GOOD)
def test_a_good_document_is_good_for_both(model, value):
    schema = model.json_schema()
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(value)
    made = model.from_value(value)
    assert isinstance(made, model)
    assert model.from_json(made.to_json()) == made
    Draft202012Validator(schema).validate(made.to_value())


@pytest.mark.parametrize(("model", "value"), BAD)
def test_a_bad_document_is_bad_for_both(model, value):
    assert not Draft202012Validator(model.json_schema()).is_valid(value)
    with pytest.raises(pydantic.ValidationError):
        model.from_value(value)


def test_the_schema_stands_alone_and_is_ones_own():
    schema = Item.json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["required"] == ["name", "price"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["name"]["description"] == "The name"
    assert schema["description"] == "An item."
    assert set(schema["$defs"]) == {"Kind", "Size"}
    schema["properties"].clear()
    assert Item.json_schema()["properties"]


def test_objects_are_plain():
    one, other = Item(name="A", price=-1), Item(name="A", price=-1)
    assert one == other
    one.tags.add("x")
    assert other.tags == set()
    assert one.sizes is not other.sizes
    assert Item.limit == 3
    assert repr(Size(width=1)) == "Size(width=1, height=1)"
    with pytest.raises(TypeError):
        Item("pen", 1)
    with pytest.raises(TypeError):
        Item(price=1)


def test_inheritance_and_class_arguments():
    class Base(Schema, extra="forbid"):
        a: int

    class Derived(Base, frozen=False):
        b: str = "b"

    assert Derived.json_schema()["additionalProperties"] is False
    assert list(Derived.json_schema()["properties"]) == ["a", "b"]
    assert Derived.from_json(b'{"a": 1}') == Derived(a=1)
    assert "b" not in Base.json_schema()["properties"]

    class Frozen(Schema, frozen=True):
        a: int

    assert len({Frozen(a=1), Frozen(a=1)}) == 1
    with pytest.raises(TypeError, match="extra"):

        class Wrong(Schema, extra="allow"):
            a: int


def test_as_a_parameter_and_a_result():
    app = JustAPI(title="t", version="1", error_format="fastapi")

    @app.post("/items")
    def create(item: Item) -> Item:
        assert isinstance(item.sizes[0], Size)
        return item

    client = TestClient(app)
    response = client.post("/items", json={"name": "pen", "price": 1, "sizes": [{"width": 2}]})
    assert response.status_code == 200
    assert response.json()["sizes"] == [{"width": 2, "height": 1}]
    refused = client.post("/items", json={"name": "", "price": 0, "sizes": [{"width": 0}]})
    assert refused.status_code == 422
    assert [error["loc"] for error in refused.json()["detail"]] == [
        ["body", "name"],
        ["body", "price"],
        ["body", "sizes", 0, "width"],
    ]
    schemas = app.openapi()["components"]["schemas"]
    assert schemas["Item"]["properties"]["name"]["pattern"] == "^[a-z]*$"
    assert schemas["Size"]["required"] == ["width"]


def test_annotations_that_are_texts():
    source = """
from __future__ import annotations
from typing import ClassVar
from justapi.schema import Field, Schema

class Branch(Schema):
    count: ClassVar[int] = 0
    name: str = Field(min_length=2)
    twigs: list[Twig] = []

class Twig(Schema):
    size: int = Field(3, gt=0)
    branch: Branch | None = None
"""
    module = types.ModuleType("texts")
    sys.modules["texts"] = module
    exec(source, module.__dict__)
    made = module.Branch.from_value({"name": "ab", "twigs": [{"size": 1}, {}]})
    assert [twig.size for twig in made.twigs] == [1, 3]
    schema = module.Branch.json_schema()
    validator = Draft202012Validator(schema)
    assert validator.is_valid({"name": "ab", "twigs": [{"branch": {"name": "cd"}}]})
    assert not validator.is_valid({"name": "ab", "twigs": [{"size": 0}]})
    with pytest.raises(TypeError, match="not known yet"):
        exec(source.replace("Branch | None = None", "Later = Field()"), module.__dict__)
