"""What is made and written without pydantic is what pydantic would make and write."""

from __future__ import annotations

import abc
import json
import math
import random
from datetime import datetime
from typing import Annotated, Any, Generic, Optional, TypeVar

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    RootModel,
    TypeAdapter,
    computed_field,
    create_model,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from justapi import JustAPIApp, _core
from justapi._shapes import input_codec, output_codec
from lanes import Running, on_lane


class Position(BaseModel):
    lat: float
    lng: float


class Order(BaseModel):
    id: int
    items: list[str]
    total: float


class User(BaseModel):
    active: bool
    position: Position
    name: str
    id: int
    orders: list[Order]
    note: str | None = None
    tags: list[str] = []
    counts: dict[str, int] = Field(default_factory=dict)
    extra: Any = None


class Bounded(BaseModel):
    name: str = Field(min_length=2, max_length=4)
    age: int = Field(ge=0, lt=100)
    share: float = Field(gt=0, le=1)


class Aliased(BaseModel):
    first: int = Field(alias="1st")
    second: int = Field(validation_alias="in", serialization_alias="out")
    größe: int = 1


class Strictly(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int


class Tree(BaseModel):
    children: list[Tree]


class Pair(BaseModel):
    left: Position
    right: Position


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    content: T


class Base(BaseModel):
    a: int


class Child(Base):
    b: str = "b"
    frozen: bool = Field(default=True, frozen=True)


USER = {
    "active": True,
    "position": {"lat": 52.52, "lng": 13},
    "name": 'Ada \N{SNOWMAN} "quoted"',
    "id": -7,
    "orders": [{"id": 1, "items": ["pen", ""], "total": 1e3}, {"id": 2, "items": [], "total": 0}],
}

PLAIN: list[tuple[Any, list[Any]]] = [
    (
        User,
        [USER, {**USER, "note": "n", "tags": ["a"], "counts": {"a": 1}, "extra": [1, {"a": {}}]}],
    ),
    (Bounded, [{"name": "ab", "age": 0, "share": 1}, {"name": "äöüß", "age": 99, "share": 5e-324}]),
    (Aliased, [{"1st": 1, "in": 2}, {"in": 2, "größe": 3, "1st": 1}]),
    (Strictly, [{"a": 1}]),
    (Pair, [{"right": {"lat": 1, "lng": 2}, "left": {"lng": 3.5, "lat": -0.0}}]),
    (Box[int], [{"content": 1}]),
    (Box[list[Position]], [{"content": [{"lat": 1, "lng": 2, "unknown": [None]}]}]),
    (Child, [{"a": 1}, {"b": "c", "a": 2, "frozen": False}]),
    (list[Position], [[], [{"lat": 1, "lng": 2}]]),
    (dict[str, Position], [{}, {"a": {"lat": 1, "lng": 2}, "b": {"lat": 3, "lng": 4}}]),
    (Optional[Position], [None, {"lat": 1, "lng": 2}]),  # noqa: UP045
    (list[int], [[1, -(10**17), 0]]),
    (create_model("Empty"), [{}, {"a": 1}]),
]
"""Types with documents that have to be decoded without pydantic."""

ODD: list[tuple[Any, list[str]]] = [
    (
        Order,
        [
            '{"id": "1", "items": [], "total": 1}',
            '{"id": 1.0, "items": [], "total": 1}',
            '{"id": true, "items": [], "total": 1}',
            '{"id": 1e2, "items": [], "total": 1}',
            '{"id": 123456789012345678901234567890, "items": [], "total": 1}',
            '{"id": 1, "items": [1], "total": 1}',
            '{"id": 1, "items": "a", "total": 1}',
            '{"id": 1, "items": [], "total": "1.5"}',
            '{"id": 1, "items": [], "total": NaN}',
            '{"id": 1, "items": [], "total": 1e999}',
            '{"id": 1, "items": []}',
            '{"id": 1, "items": [], "total": null}',
            '{"id": 1, "items": [], "total": 1',
            '{"id": 1, "items": [], "total": 1} x',
            '{"id": 1, "items": [], "total": 1,}',
            '{"id": 01, "items": [], "total": 1}',
            '{"id": 1, "items": ["\\ud800"], "total": 1}',
            '{"id": 1, "items": ["\n"], "total": 1}',
            '{"id" 1, "items": [], "total": 1}',
            '{id: 1, "items": [], "total": 1}',
            "[1, [], 1]",
            "null",
            "",
            '{"id": 1, "id": 2, "items": [], "total": 1}',
            '{"id": "x", "id": 2, "items": [], "total": 1}',
            '{"\\u0069d": 3, "items": [], "total": 1}',
            '{"id": 1, "items": [], "total": 1, "unknown": {"a": [NaN]}}',
            '{"id": 1, "items": [], "total": 1, "unknown": {"a": [1, "\\u00e4"]}}',
            ' \t{ "id" : 1 , "items" : [ "a" , "b" ] , "total" : -0 } \r\n',
        ],
    ),
    (
        Bounded,
        [
            '{"name": "a", "age": 1, "share": 1}',
            '{"name": "abcde", "age": 1, "share": 1}',
            '{"name": "abc", "age": 100, "share": 1}',
            '{"name": "abc", "age": -1, "share": 1}',
            '{"name": "abc", "age": 1, "share": 0}',
            '{"name": "abc", "age": 1, "share": 1.0000000000000002}',
        ],
    ),
    (Strictly, ['{"a": 1, "b": 2}', '{"b": 2}']),
    (
        Aliased,
        [
            '{"first": 1, "in": 2}',
            '{"1st": 1, "second": 2}',
            '{"1st": 1, "in": 2, "gr\\u00f6\\u00dfe": 5}',
        ],
    ),
    (dict[str, int], ['{"a": 1, "a": 2}', '{"a": "x", "a": 2}', '{"a": 1.5}']),
    (Optional[int], ["nul", "nulls", "1", '"1"']),  # noqa: UP045
]


def everything(value: Any) -> Any:
    """All that can be seen of a value, types included."""
    if isinstance(value, BaseModel):
        return (
            type(value),
            [(name, everything(member)) for name, member in vars(value).items()],
            value.model_fields_set,
            type(value.model_fields_set),
            value.__pydantic_extra__,
            value.__pydantic_private__,
            repr(value),
            hash(value) if value.model_config.get("frozen") else None,
        )
    if isinstance(value, dict):
        return dict, [(everything(key), everything(member)) for key, member in value.items()]
    if isinstance(value, list):
        return list, [everything(item) for item in value]
    if isinstance(value, float):
        return float, value, math.copysign(1, value)
    return type(value), value


def decoder(annotation: Any) -> tuple[_core.Codec, TypeAdapter[Any]]:
    adapter = TypeAdapter(annotation)
    codec = input_codec(adapter)
    assert codec is not None, annotation
    return codec, adapter


def encoder(annotation: Any, *, by_alias: bool = True) -> tuple[_core.Codec, TypeAdapter[Any]]:
    adapter = TypeAdapter(annotation)
    codec = output_codec(adapter, by_alias=by_alias)
    assert codec is not None, annotation
    return codec, adapter


@pytest.mark.parametrize(("annotation", "documents"), PLAIN, ids=str)
def test_plain_documents_are_what_pydantic_makes_of_them(
    annotation: Any, documents: list[Any]
) -> None:
    codec, adapter = decoder(annotation)
    for document in documents:
        for text in (json.dumps(document), json.dumps(document, ensure_ascii=False, indent=1)):
            expected = adapter.validate_json(text)
            assert everything(codec.decode(text.encode())) == everything(expected), text


@pytest.mark.parametrize(("annotation", "texts"), ODD, ids=str)
def test_odd_documents_are_left_to_pydantic_or_are_the_same(
    annotation: Any, texts: list[str]
) -> None:
    codec, adapter = decoder(annotation)
    for text in texts:
        try:
            decoded = codec.decode(text.encode())
        except ValueError:
            continue
        assert everything(decoded) == everything(adapter.validate_json(text)), text


def test_instances_are_as_any_other() -> None:
    codec, _ = decoder(User)
    first, second = (codec.decode(json.dumps(USER).encode()) for _ in range(2))
    assert first == second == User.model_validate(USER)
    first.tags.append("changed")
    first.counts["a"] = 1
    first.name = "Eve"
    assert second.tags == User.model_validate(USER).tags == []
    assert second.counts == {} and second.name != "Eve"
    assert first.model_fields_set - second.model_fields_set == set()
    assert first.model_copy(update={"id": 1}).model_dump()["id"] == 1
    first.model_fields_set.add("note")
    assert "note" not in codec.decode(json.dumps(USER).encode()).model_fields_set


@pytest.mark.parametrize(("annotation", "documents"), PLAIN, ids=str)
@pytest.mark.parametrize("by_alias", [True, False])
def test_plain_values_are_written_as_pydantic_writes_them(
    annotation: Any, documents: list[Any], by_alias: bool
) -> None:
    codec, adapter = encoder(annotation, by_alias=by_alias)
    for document in documents:
        value = adapter.validate_python(document)
        expected = adapter.dump_json(value, by_alias=by_alias)
        tiny = b"e-" in expected
        assert codec.encode(value) == (None if tiny else expected)


def test_values_that_are_not_of_the_shape_are_left_to_pydantic() -> None:
    class Sub(Position):
        more: int = 1

    order = Order(id=1, items=["a"], total=1)
    codec, _ = encoder(Order)
    for name, value in [
        ("id", "1"),
        ("id", True),
        ("id", 2**70),
        ("items", ("a",)),
        ("items", [1]),
        ("items", ["\ud800"]),
        ("total", 1),
        ("total", math.inf),
        ("total", math.nan),
        ("total", 1e16),
        ("total", 1e-7),
    ]:
        changed = order.model_copy(update={name: value})
        assert codec.encode(changed) is None, (name, value)
    incomplete = Order.model_construct(id=1)
    with_more = order.model_copy(update={"more": 1})
    for value in (incomplete, with_more, Sub(lat=1, lng=2), {"id": 1}, None, order.model_dump()):
        assert codec.encode(value) is None
    assert encoder(Position)[0].encode(Sub(lat=1, lng=2)) is None
    assert encoder(list[Position])[0].encode([Sub(lat=1, lng=2)]) is None
    assert encoder(Any)[0].encode({1: 2}) is None


def test_any_is_plain_all_through_or_left_to_pydantic() -> None:
    codec, adapter = encoder(Any)
    plain = {"a": [1, "b", None, True, 1.5, {}], "c": {"d": []}}
    assert codec.encode(plain) == adapter.dump_json(plain)
    endless: list[Any] = []
    endless.append(endless)
    for value in (endless, [datetime.now()], {"a": (1,)}, [Position(lat=1, lng=2)], {1}, b"a"):
        assert codec.encode(value) is None


def test_floats_are_spelt_as_pydantic_spells_them() -> None:
    codec, adapter = encoder(float)
    numbers = random.Random(1)
    for _ in range(20_000):
        number = numbers.choice([1, -1]) * numbers.random() * 10 ** numbers.randint(-12, 20)
        if numbers.random() < 0.3:
            number = round(number, numbers.randint(0, 3))
        encoded = codec.encode(number)
        if encoded is None:
            assert not 1e-4 <= abs(number) < 1e15
        else:
            assert encoded == adapter.dump_json(number)


def test_texts_are_spelt_as_pydantic_spells_them() -> None:
    codec, adapter = encoder(str)
    for code in [*range(0x300), 0x2028, 0x2029, 0xFEFF, 0xFFFF, 0x1F600]:
        text = f"a{chr(code)}b"
        assert codec.encode(text) == adapter.dump_json(text)


class Validated(BaseModel):
    a: int

    @field_validator("a")
    @classmethod
    def check(cls, value: int) -> int:
        return value + 1


class WholeValidated(BaseModel):
    a: int

    @model_validator(mode="after")
    def check(self) -> WholeValidated:
        return self


class Private(BaseModel):
    a: int
    _b: int = PrivateAttr(default=1)


class PostInit(BaseModel):
    a: int

    def model_post_init(self, context: Any) -> None:
        self.a += 1


class OwnInit(BaseModel):
    a: int

    def __init__(self, **given: Any) -> None:
        super().__init__(a=1)


class OwnNew(BaseModel):
    a: int

    def __new__(cls, *_: Any, **__: Any) -> OwnNew:
        return super().__new__(cls)


class Abstract(BaseModel, abc.ABC):
    a: int

    @abc.abstractmethod
    def method(self) -> None: ...


class WithEnd(BaseModel):
    a: int

    def __del__(self) -> None: ...


class Mixin:
    pass


class Mixed(Mixin, BaseModel):
    a: int


class Root(RootModel[list[int]]):
    pass


def configured(**config: Any) -> type[BaseModel]:
    return create_model("Configured", __config__=ConfigDict(**config), a=(str, ...))


@pytest.mark.parametrize(
    "annotation",
    [
        Tree,
        Validated,
        WholeValidated,
        Private,
        PostInit,
        OwnInit,
        OwnNew,
        Abstract,
        WithEnd,
        Mixed,
        Root,
        Box[Validated],
        list[Private],
        int | str,
        datetime,
        list[Annotated[str, Field(pattern="a")]],
        Annotated[list[int], Field(min_length=1)],
        dict[int, int],
        tuple[int, int],
        set[int],
        create_model("Many", **{f"field{index}": (int, 0) for index in range(40)}),
        configured(strict=True),
        configured(str_strip_whitespace=True),
        configured(extra="allow"),
        configured(populate_by_name=True),
        configured(coerce_numbers_to_str=True),
        configured(validate_default=True),
    ],
    ids=str,
)
def test_what_has_rules_of_its_own_is_pydantics(annotation: Any) -> None:
    assert input_codec(TypeAdapter(annotation)) is None


class Computed(BaseModel):
    a: int

    @computed_field
    def b(self) -> int:
        return self.a


class FieldSerialized(BaseModel):
    a: int

    @field_serializer("a")
    def write(self, value: int) -> str:
        return str(value)


class Serialized(BaseModel):
    a: int

    @model_serializer
    def write(self) -> str:
        return "a"


class Excluded(BaseModel):
    a: int = Field(exclude=True)


@pytest.mark.parametrize(
    "annotation",
    [
        Computed,
        FieldSerialized,
        Serialized,
        Excluded,
        list[Computed],
        Annotated[int, Field(ge=1)],
        list[Annotated[str, Field(min_length=1)]],
        configured(revalidate_instances="always"),
        configured(extra="allow"),
        configured(ser_json_inf_nan="constants"),
    ],
    ids=str,
)
def test_what_is_written_by_rules_of_its_own_is_pydantics(annotation: Any) -> None:
    assert output_codec(TypeAdapter(annotation), by_alias=True) is None


def test_absent_fields_whose_default_is_made_are_pydantics() -> None:
    class Made(BaseModel):
        a: list[int] = Field(default_factory=lambda: [1])
        b: list[int] = [1]
        c: Position = Position(lat=1, lng=2)
        d: int

    codec, adapter = decoder(Made)
    for text in ('{"d": 1}', '{"a": [], "d": 1, "c": {"lat": 1, "lng": 2}}'):
        with pytest.raises(ValueError, match="plainly"):
            codec.decode(text.encode())
    whole = '{"a": [], "b": [2], "c": {"lat": 1, "lng": 2}, "d": 1}'
    assert everything(codec.decode(whole.encode())) == everything(adapter.validate_json(whole))


def _random_type(choose: random.Random, depth: int) -> Any:
    kinds: list[Any] = [str, int, float, bool, Any]
    if depth > 0:
        kinds += ["list", "dict", "optional", "model", "model"]
    kind = choose.choice(kinds)
    if kind == "list":
        return list[_random_type(choose, depth - 1)]  # type: ignore[misc]
    if kind == "dict":
        return dict[str, _random_type(choose, depth - 1)]  # type: ignore[misc]
    if kind == "optional":
        return Optional[_random_type(choose, depth - 1)]  # noqa: UP045
    if kind == "model":
        names = choose.sample(["a", "b", "c", "ä", "long_name", "x1"], choose.randint(0, 5))
        fields: dict[str, Any] = {}
        for name in names:
            default = choose.choice([..., ..., None, 1, "d"])
            fields[name] = (_random_type(choose, depth - 1), default)
        return create_model(f"Model{choose.randint(0, 10**9)}", **fields)
    return kind


def _random_value(choose: random.Random, annotation: Any) -> Any:
    if choose.random() < 0.04:
        return choose.choice([None, 1, "1", 1.5, [], {}, True, 10**20, "ä\n"])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        members = {
            name: _random_value(choose, field.annotation)
            for name, field in annotation.model_fields.items()
            if field.is_required() or choose.random() < 0.7
        }
        if choose.random() < 0.1:
            members["unknown"] = [1]
        names = list(members)
        choose.shuffle(names)
        return {name: members[name] for name in names}
    origin = getattr(annotation, "__origin__", None)
    if origin is list:
        return [_random_value(choose, annotation.__args__[0]) for _ in range(choose.randint(0, 3))]
    if origin is dict:
        return {
            choose.choice("abcdef"): _random_value(choose, annotation.__args__[1])
            for _ in range(choose.randint(0, 3))
        }
    if origin is not None:
        return choose.choice([None, _random_value(choose, annotation.__args__[0])])
    return {
        str: choose.choice(["", "text", "ä\u2028", 'q"\\']),
        int: choose.randint(-(10**12), 10**12),
        float: choose.choice([0.1, -2.5, 3, 1e20, 1e-9]),
        bool: choose.random() < 0.5,
    }.get(annotation, choose.choice([1, "a", None, [1, {"a": 2.5}]]))


def test_random_models_and_documents_agree_with_pydantic() -> None:
    choose = random.Random(7)
    num_decoded = num_encoded = 0
    for _ in range(150):
        annotation = _random_type(choose, 3)
        codec, adapter = decoder(annotation)
        writer, _ = encoder(annotation)
        for _ in range(20):
            text = json.dumps(_random_value(choose, annotation), ensure_ascii=choose.random() < 0.5)
            if choose.random() < 0.1:
                place = choose.randint(0, len(text))
                text = text[:place] + choose.choice(' ,:"[]{}0e') + text[place + 1 :]
            try:
                decoded = codec.decode(text.encode())
            except ValueError:
                continue
            num_decoded += 1
            expected = adapter.validate_json(text)
            assert everything(decoded) == everything(expected), text
            encoded = writer.encode(decoded)
            if encoded is not None:
                num_encoded += 1
                assert encoded == adapter.dump_json(expected, by_alias=True)
    assert num_decoded > 1500
    assert num_encoded > 1000


def test_a_route_gives_and_takes_models_of_either_kind() -> None:
    app = JustAPIApp()
    seen: list[Any] = []

    @app.post("/user")
    async def user(user: User) -> User:
        seen.append(user)
        return user

    @app.post("/orders")
    def orders(orders: list[Order]) -> dict[str, Order]:
        seen.append(orders)
        return {str(order.id): order for order in orders}

    async def use(running: Running) -> None:
        for document in (USER, {**USER, "id": "5"}):
            answer = await running.client.post("/user", json=document)
            expected = User.model_validate(document)
            assert everything(seen.pop()) == everything(expected)
            assert answer.content == expected.model_dump_json().encode()
            assert answer.headers["content-type"] == "application/json"
        answer = await running.client.post("/orders", json=USER["orders"])
        assert everything(seen.pop()) == everything([Order(**o) for o in USER["orders"]])  # type: ignore[attr-defined]
        assert answer.json() == {str(o["id"]): o for o in USER["orders"]}  # type: ignore[attr-defined]
        answer = await running.client.post("/user", json={"id": "x"})
        assert answer.status_code == 422
        assert running.counters["slow_path"] == 1

    on_lane(app, use)
