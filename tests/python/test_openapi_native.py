"""The document of native routes says what the server answers: their schemas are the contract."""

import pydantic
import pytest
from openapi_spec_validator import validate

from justapi import JustAPI
from justapi.responses import FileResponse, RedirectResponse
from justapi.schema import Field, Schema


class Part(Schema):
    name: str


class Order(Schema):
    count: int = Field(ge=1)
    parts: list[Part] = Field(default_factory=list)


def take(document): ...


def operation(app: JustAPI, method: str = "post", path: str = "/x"):
    document = app.openapi()
    validate(document)
    return document["paths"][path][method], document.get("components", {}).get("schemas", {})


def body_schema(described):
    assert described["requestBody"]["required"] is True
    return described["requestBody"]["content"]["application/json"]["schema"]


def test_body_answer_and_refusals_are_those_of_the_schema():
    app = JustAPI()
    app.post("/x", native=True, schema=Order, status_code=202)(take)
    described, components = operation(app)
    assert body_schema(described) == {"$ref": "#/components/schemas/Order"}
    order = components["Order"]
    assert order["properties"]["count"] == {"type": "integer", "minimum": 1, "title": "Count"}
    assert order["properties"]["parts"]["items"] == {"$ref": "#/components/schemas/Part"}
    assert components["Part"]["required"] == ["name"]
    assert list(described["responses"]) == ["202", "400", "413", "415", "422"]
    answer = described["responses"]["202"]["content"]["application/json"]["schema"]
    assert answer == {"$ref": "#/components/schemas/Order"}
    refusal = described["responses"]["422"]["content"]["application/problem+json"]["schema"]
    assert refusal == {"$ref": "#/components/schemas/SchemaProblem"}
    errors = components["SchemaProblem"]["properties"]["errors"]
    assert errors["items"]["required"] == ["in", "instance_path", "schema_path", "message"]


def test_a_query_schema_is_parameters_and_so_is_the_path():
    app = JustAPI()
    schema = {
        "type": "object",
        "properties": {"q": {"type": "string"}, "n": {"type": "integer", "default": 3}},
        "required": ["q"],
    }
    app.get("/x/{item}/{number:int}", native=True, query_schema=schema)(take)
    described, _ = operation(app, "get", "/x/{item}/{number}")
    assert "requestBody" not in described
    parameters = [
        (each["in"], each["name"], each["required"], each["schema"]["type"])
        for each in described["parameters"]
    ]
    assert parameters == [
        ("path", "item", True, "string"),
        ("path", "number", True, "integer"),
        ("query", "q", True, "string"),
        ("query", "n", False, "integer"),
    ]
    assert list(described["responses"]) == ["200", "400", "422"]


def test_constant_answers_have_their_own_media_type_and_nothing_to_refuse():
    app = JustAPI()
    answers = {"/json": {"a": 1}, "/text": "hi", "/file": FileResponse(__file__)}
    for path, answer in answers.items():
        app.get(path, native=answer)(take)
    app.get("/moved", native=RedirectResponse("/json"))(take)
    document = app.openapi()
    validate(document)
    found = {
        path: {
            status: list(each.get("content", ()))
            for status, each in got["get"]["responses"].items()
        }
        for path, got in document["paths"].items()
    }
    assert found == {
        "/json": {"200": ["application/json"]},
        "/text": {"200": ["text/plain"]},
        "/file": {"200": ["text/x-python"]},
        "/moved": {"307": []},
    }


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, True),
        ({"type": "integer"}, {"type": "integer"}),
        # What looks like a reference within a value is none.
        ({"const": {"$ref": "#/nowhere"}}, {"const": {"$ref": "#/nowhere"}}),
    ],
)
def test_any_schema_can_stand_in_the_document(schema, expected):
    app = JustAPI()
    app.post("/x", native=True, schema=schema)(take)
    described, _ = operation(app)
    assert body_schema(described) == expected


def test_references_within_a_schema_are_right_in_the_document():
    schema = {
        "properties": {
            "a": {"$ref": "#/properties/b"},
            "b": {"type": "null"},
            "c": {"$ref": "#"},
            "d": {"$ref": "#/$defs/x~1y"},
            "e": {"$ref": "#/$defs/x~1y/properties/z"},
        },
        "$defs": {"x/y": {"properties": {"z": {"type": "string"}}}},
    }
    app = JustAPI()
    app.post("/x", native=True, schema=schema)(take)
    described, components = operation(app)
    reference = "#/components/schemas/take_x_post_body"
    assert body_schema(described) == {"$ref": reference}
    properties = components["take_x_post_body"]["properties"]
    assert properties["a"] == {"$ref": reference + "/properties/b"}
    assert properties["c"] == {"$ref": reference}
    assert properties["d"] == {"$ref": "#/components/schemas/x_y"}
    assert properties["e"] == {"$ref": "#/components/schemas/x_y/properties/z"}


def test_a_schema_with_a_name_of_its_own_stays_as_it_is():
    schema = {"$id": "urn:example:order", "$anchor": "top", "properties": {"a": {"$ref": "#top"}}}
    app = JustAPI()
    app.post("/x", native=True, schema=schema)(take)
    assert body_schema(app.openapi()["paths"]["/x"]["post"]) == schema


def test_two_schemas_of_one_name_are_told_apart():
    class Order(pydantic.BaseModel):
        other: int

    app = JustAPI()

    @app.post("/plain")
    def plain(order: Order): ...

    app.post("/x", native=True, schema=globals()["Order"])(take)
    described, components = operation(app)
    assert body_schema(described) == {"$ref": "#/components/schemas/take_x_post_Order"}
    assert "other" in components["Order"]["properties"]
    assert "count" in components["take_x_post_Order"]["properties"]
