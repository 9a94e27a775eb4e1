"""Types that are deep, large or used in many places, and what a codec holds and meets in values."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any, Optional

import pytest
from pydantic import BaseModel, TypeAdapter, create_model

from justapi import JustAPIApp, _core, _shapes
from justapi._shapes import ABSENT, FieldShape, Kind, Shape, input_codec, output_codec
from lanes import Running, on_lane


def chain(length: int) -> type[BaseModel]:
    """Models one within the other."""
    model = create_model("Link0", number=(int, 1))
    for index in range(1, length):
        model = create_model(f"Link{index}", inner=(Optional[model], None))  # noqa: UP045
    return model


def pairs(length: int) -> type[BaseModel]:
    """Models that hold two of the one before: 2 to the power of `length` places."""
    model = create_model("Pair0", number=(int, ...))
    for index in range(1, length):
        model = create_model(f"Pair{index}", left=(model, ...), right=(model, ...))
    return model


def nested(length: int) -> dict[str, Any]:
    value: dict[str, Any] = {"number": 7}
    for _ in range(1, length):
        value = {"inner": value}
    return value


def both_codecs(annotation: Any) -> tuple[_core.Codec | None, _core.Codec | None]:
    adapter = TypeAdapter(annotation)
    return input_codec(adapter), output_codec(adapter, by_alias=True)


def schemas_read(annotation: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Counts what is read of a type."""
    num_read = 0
    read = _shapes._Reader.read

    def counted(reader: Any, schema: Any, *, is_validated: bool) -> Shape:
        nonlocal num_read
        num_read += 1
        assert num_read < 10_000, "reading does not end"
        return read(reader, schema, is_validated=is_validated)

    with monkeypatch.context() as patch:
        patch.setattr(_shapes._Reader, "read", counted)
        assert input_codec(TypeAdapter(annotation)) is not None
    return num_read


def test_a_model_used_in_many_places_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    per_level = schemas_read(pairs(9), monkeypatch) - schemas_read(pairs(8), monkeypatch)
    assert schemas_read(pairs(24), monkeypatch) == schemas_read(pairs(9), monkeypatch) + (
        15 * per_level
    )


def test_a_model_used_in_many_places_is_made_and_written() -> None:
    model = pairs(4)
    decoder, encoder = both_codecs(model)
    assert decoder is not None
    assert encoder is not None
    value: Any = {"number": 1}
    for _ in range(3):
        value = {"left": value, "right": value}
    text = json.dumps(value, separators=(",", ":")).encode()
    decoded = decoder.decode(text)
    assert decoded == model.model_validate(value)
    assert decoded.left is not decoded.right
    assert encoder.encode(decoded) == text


def test_a_model_that_may_break_its_bounds_is_read_apart() -> None:
    bounded = create_model("Bounded", tags=(list[str], ...))
    both = create_model("Both", one=(bounded, ...), two=(list[bounded], ...))
    codec = output_codec(TypeAdapter(dict[str, both]), by_alias=True)
    assert codec is not None
    value = {"a": both(one=bounded(tags=["x"]), two=[bounded(tags=[])])}
    assert codec.encode(value) == b'{"a":{"one":{"tags":["x"]},"two":[{"tags":[]}]}}'


def test_types_are_read_up_to_a_depth() -> None:
    for length in (1, _shapes.MAX_LEVELS):
        decoder, encoder = both_codecs(chain(length))
        assert decoder is not None
        assert encoder is not None
        text = json.dumps(nested(length), separators=(",", ":")).encode()
        assert encoder.encode(decoder.decode(text)) == text
    for length in (_shapes.MAX_LEVELS + 1, 55, 128, 150, 300):
        assert both_codecs(chain(length)) == (None, None)
    lists: Any = int
    for _ in range(_shapes.MAX_LEVELS):
        lists = list[lists]
    assert both_codecs(lists)[0] is not None
    assert both_codecs(list[lists]) == (None, None)


def test_a_model_that_was_read_counts_with_its_depth() -> None:
    inner = chain(_shapes.MAX_LEVELS - 1)
    beside: Any = inner
    for _ in range(2):
        beside = list[beside]
    flat = create_model("Flat", first=(inner, ...), second=(inner, ...))
    deep = create_model("Deep", first=(inner, ...), second=(beside, ...))
    assert None not in both_codecs(flat)
    assert both_codecs(deep) == (None, None)


def test_types_are_read_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    fields: dict[str, Any] = {f"field{index}": (int, 0) for index in range(20)}
    models = [create_model(f"Part{index}", **fields) for index in range(5)]
    whole = create_model("Whole", **{f"part{i}": (part, ...) for i, part in enumerate(models)})
    assert None not in both_codecs(whole)
    monkeypatch.setattr(_shapes, "MAX_SCHEMAS", 100)
    assert both_codecs(whole) == (None, None)
    assert None not in both_codecs(models[0])


def test_deep_types_are_served() -> None:
    app = JustAPIApp()

    def add(length: int) -> None:
        def handler(body: Any) -> Any:
            return body

        model = chain(length)
        handler.__annotations__ = {"body": model, "return": model}
        app.post(f"/{length}")(handler)

    add(55)
    add(150)

    async def use(running: Running) -> None:
        for length in (55, 150):
            answer = await running.client.post(f"/{length}", json=nested(length))
            assert answer.status_code == 200
            assert answer.json() == nested(length)
            answer = await running.client.post(f"/{length}", json={"inner": 1})
            assert answer.status_code == 422

    on_lane(app, use)


LATE_LIST: list[str] = []
LATE_DICT: dict[str, int] = {}


class Late(BaseModel):
    number: int
    tags: list[str] = LATE_LIST
    counts: dict[str, int] = LATE_DICT
    made: list[int] = list()  # noqa: C408


def test_defaults_that_are_filled_later_are_those_of_pydantic() -> None:
    adapter = TypeAdapter(Late)
    codec = input_codec(adapter)
    assert codec is not None
    document = b'{"number":1}'

    def check() -> None:
        expected = adapter.validate_json(document)
        try:
            assert codec.decode(document) == expected
        except ValueError:
            # Left to pydantic: because there is something to copy.
            assert expected.tags or expected.counts

    first = codec.decode(document)
    first.tags.append("of the instance")
    assert LATE_LIST == []
    check()
    for default, fill in (
        (LATE_LIST, lambda: LATE_LIST.append("late")),
        (LATE_DICT, lambda: LATE_DICT.update(late=1)),
    ):
        fill()
        check()
        default.clear()
        assert codec.decode(document) == adapter.validate_json(document)


def test_only_the_one_absent_stands_for_no_default() -> None:
    class _Absent:
        pass

    slots = tuple(vars(BaseModel)[name] for name in _shapes._SLOTS)
    model = create_model("Model", a=(Any, ...))
    decoded = {}
    for default in (ABSENT, _Absent()):
        field = FieldShape("a", "a", Shape(Kind.INT), default)
        codec = _core.Codec(Shape(Kind.MODEL, cls=model, fields=(field,), slots=slots))
        try:
            decoded[default] = codec.decode(b"{}").a
        except ValueError:
            decoded[default] = None
    assert list(decoded.values()) == [None, [*decoded][1]]


@pytest.mark.parametrize("make", [input_codec, lambda a: output_codec(a, by_alias=True)])
def test_a_class_goes_though_a_codec_of_it_is_in_a_cycle(make: Any) -> None:
    def in_a_cycle() -> weakref.ref[Any]:
        class Model(BaseModel):
            number: int
            tags: list[Any] = []

        codec = make(TypeAdapter(Model))
        assert codec is not None
        Model.codec = codec  # type: ignore[attr-defined]
        return weakref.ref(Model)

    gone = in_a_cycle()
    for _ in range(3):
        gc.collect()
    assert gone() is None


def test_a_default_goes_though_it_holds_the_codec() -> None:
    class List(list[Any]):
        """A list that can be watched."""

    def in_a_cycle() -> weakref.ref[Any]:
        default: list[Any] = []
        watched = List([default])
        field = FieldShape("a", "a", Shape(Kind.LIST, item=Shape(Kind.ANY)), default)
        slots = tuple(vars(BaseModel)[name] for name in _shapes._SLOTS)
        model = create_model("Model", a=(list, ...))
        shape = Shape(Kind.MODEL, cls=model, fields=(field,), slots=slots)
        default.extend([_core.Codec(shape), watched])
        return weakref.ref(watched)

    gone = in_a_cycle()
    for _ in range(3):
        gc.collect()
    assert gone() is None


def test_a_codec_that_a_route_shares_stays_whole() -> None:
    app = JustAPIApp()

    def register() -> None:
        class Model(BaseModel):
            number: int

        def handler(model: Model) -> Model:
            return model

        handler.__annotations__ = {"model": Model, "return": Model}
        app.post("/")(handler)

    register()

    async def use(running: Running) -> None:
        for _ in range(3):
            gc.collect()
            answer = await running.client.post("/", json={"number": 1})
            assert answer.content == b'{"number":1}'

    on_lane(app, use)


class Empty(BaseModel):
    pass


class Outer(BaseModel):
    first: Empty
    second: int
    third: int


def test_names_that_are_no_exact_texts_are_left_to_pydantic() -> None:
    codec = output_codec(TypeAdapter(Outer), by_alias=True)
    assert codec is not None
    value = Outer(first=Empty(), second=2, third=3)
    attributes = vars(value)

    class Key(str):
        """A text whose comparison changes what is compared."""

        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            attributes["more"] = 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    for name, member in list(attributes.items()):
        del attributes[name]
        attributes[Key(name)] = member
    attributes.pop("more", None)
    assert codec.encode(value) is None
    assert "more" not in list(attributes)


def test_finalisers_that_change_what_is_written_do_no_harm() -> None:
    codec = output_codec(TypeAdapter(list[Outer]), by_alias=True)
    assert codec is not None

    class Changer:
        """Once nothing but a cycle holds it, it changes an instance."""

        def __init__(self, value: Outer) -> None:
            self.value = value
            self.cycle = self

        def __del__(self) -> None:
            vars(self.value)["more"] = 1

    # Dictionaries of these are made when they are looked at, so that the collector runs then.
    values = [Outer(first=Empty.__new__(Empty), second=2, third=3) for _ in range(2000)]
    thresholds = gc.get_threshold()
    gc.collect()
    gc.disable()
    try:
        for value in values:
            Changer(value)
        gc.set_threshold(gc.get_count()[0] + 500)
        assert "more" not in vars(values[-1])
        gc.enable()
        encoded = codec.encode(values)
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    # Later interpreters have the collector wait for Python's own code.
    expected = b'{"first":{},"second":2,"third":3}'
    assert encoded in (None, b"[%b]" % b",".join([expected] * len(values)))
