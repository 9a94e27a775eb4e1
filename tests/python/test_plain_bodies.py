"""Bodies that are plain JSON are decoded by the lane itself, as Python would."""

from __future__ import annotations

import json
import random
from typing import Annotated, Any

import pytest

from justapi import Body, JustAPI
from justapi._plan import Coercion
from justapi.testclient import AsyncTestClient
from lanes import Running, on_lane

app = JustAPI()
last: list[Any] = []


def note(document: Any) -> None:
    last[:] = [document]


@app.post("/object")
def object_of_any(document: dict[str, Any]) -> None:
    note(document)


@app.post("/dict")
async def bare_dict(document: dict) -> None:  # type: ignore[type-arg]
    note(document)


@app.post("/list")
def list_of_any(document: Annotated[list[Any], Body()]) -> None:
    note(document)


@app.post("/any")
def anything(document: Annotated[Any, Body()]) -> None:
    note(document)


PATHS = ("/object", "/dict", "/list", "/any")
JSON = {"content-type": "application/json"}


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


DECODED = [
    b"{}",
    b"[]",
    b' \t\r\n{ "a" : [ 1 , 2 ] , "b" : { } } \n',
    b'{"a":1,"b":2,"a":3}',
    b'{"":"","\\u0061":1,"a":2}',
    b'{"%s":1,"%s":2}' % (b"k" * 32, b"k" * 33),
    b"[0,-0,1,-1,10,999999999999999999,-999999999999999999]",
    b"[0.0,-0.0,1.5,0.1,1e5,1E+2,1.5e-7,5e-324,1.7976931348623157e308,123456789.123456789,1e16]",
    b"[2.2250738585072011e-308,9007199254740993.0,0.30000000000000004,1e-400,123456789012345678.9]",
    b'[true,false,null,"true"]',
    b'["\\"\\\\\\/\\b\\f\\n\\r\\t","\\u20ac","\\ud83d\\ude00","\\u0000","x\\u0041y\\nz"]',
    b'["\x7f","12345678","1234567\\"","1234567\\\\8"]',
    '["ä€😀","1234567ä","123456ä8",{"ä":"é"}]'.encode(),
    b'["%s"]' % (b"long " * 5000),
    nested(64),
]
"""What the lane decodes."""

LEFT = [
    b"[1000000000000000000,-9223372036854775809,18446744073709551616]",
    b"[%s]" % (b"7" * 400),
    b"[NaN]",
    b"[Infinity,-Infinity]",
    b"[1e400]",
    nested(65),
    nested(190),
    nested(2000),
    b"[" * 100_000,
    b"",
    b"  ",
    b"{",
    b'{"a":1,}',
    b"[1,]",
    b"[,1]",
    b"[1 2]",
    b'{"a" 1}',
    b"{a:1}",
    b'{"a":1}x',
    b"{}{}",
    b"[01]",
    b"[-]",
    b"[-01]",
    b"[1.]",
    b"[.5]",
    b"[+1]",
    b"[1e]",
    b"[1e+]",
    b"[0x10]",
    b"[nul]",
    b"[True]",
    b'["]',
    b'["\\"]',
    b'["tab\there"]',
    b'["line\nhere"]',
    b'["\\x41"]',
    b'["\\u12"]',
    b'["\\u12g4"]',
    b'["\\u+123"]',
    b'["\\ud800"]',
    b'["\\ud800\\u0041"]',
    b'["\\ud800x"]',
    b'["\\udc00"]',
    b'["\\udc00\\ud800"]',
    b'{"\\ud800":1}',
    b'["\xff"]',
    b'["\xc3"]',
    b'["\xed\xa0\x80"]',
    b"\xef\xbb\xbf[]",
    "[1]".encode("utf-16"),
    "[1]".encode("utf-32-le"),
    b"// comment\n[]",
    b"'a'",
]
"""What the lane leaves to the route's converter, or to the slow path."""


async def outcome(client: Any, path: str, body: bytes) -> tuple[int, bytes, str]:
    """Status, body of an error, and how Python shows what the handler got."""
    last.clear()
    response = await client.post(path, content=body, headers=JSON)
    return response.status_code, response.content, repr(last)


def test_which_bodies_the_lane_decodes() -> None:
    def of(annotation: Any) -> Coercion:
        made = JustAPI(openapi_url=None)

        def handler(document: Any) -> None: ...

        handler.__annotations__["document"] = annotation
        made.post("/")(handler)
        [plan] = made.plans()
        [one] = plan.inputs
        return one.coercion

    assert of(dict[str, Any]) is Coercion.JSON_OBJECT
    assert of(dict[str, object]) is Coercion.JSON_OBJECT
    assert of(dict) is Coercion.JSON_OBJECT
    assert of(Annotated[list, Body()]) is Coercion.JSON_ARRAY  # type: ignore[type-arg]
    assert of(Annotated[list[Any], Body()]) is Coercion.JSON_ARRAY
    assert of(Annotated[Any, Body()]) is Coercion.JSON
    for checked in (
        dict[str, int],
        dict[int, Any],
        Annotated[list[str], Body()],
        Annotated[list[dict[str, Any]], Body()],
        dict[str, Any] | None,
        Annotated[dict[str, Any], Body(min_length=1)],
        Annotated[list[Any], Body(max_length=1)],
        Annotated[set[Any], Body()],
    ):
        assert of(checked) is Coercion.CALL, checked


@pytest.mark.parametrize("body", DECODED, ids=range(len(DECODED)))
def test_the_lane_decodes_what_python_does(body: bytes) -> None:
    expected = json.loads(body)

    async def use(running: Running) -> None:
        for path in PATHS:
            status, _, seen = await outcome(running.client, path, body)
            fits = path == "/any" or isinstance(expected, list if path == "/list" else dict)
            assert status == (200 if fits else 422), path
            assert seen == repr([expected] if fits else []), path
        assert running.counters["slow_path"] == (2 if isinstance(expected, list) else 1)

    on_lane(app, use)


def test_what_the_lane_leaves_is_answered_as_over_asgi() -> None:
    async def use(running: Running) -> None:
        async with AsyncTestClient(app, base_url="http://test") as client:
            for body in LEFT:
                for path in PATHS:
                    ours = await outcome(running.client, path, body)
                    assert ours == await outcome(client, path, body), (path, body[:80])
                    assert ours[0] in (200, 400, 422), (path, body[:80])

    on_lane(app, use)


def test_random_documents_are_decoded_alike() -> None:
    chance = random.Random(7)

    def document(depth: int) -> Any:
        kind = chance.randrange(9 if depth < 5 else 7)
        if kind == 0:
            return chance.choice((True, False, None))
        if kind == 1:
            return chance.randrange(-(10 ** chance.randrange(1, 22)), 10 ** chance.randrange(1, 22))
        if kind == 2:
            return chance.uniform(-1, 1) * 10.0 ** chance.randrange(-30, 30)
        if kind < 7:
            letters = 'ab"\\/\n\u007f\u0000ä€😀 '
            return "".join(chance.choice(letters) for _ in range(chance.randrange(20)))
        if kind == 7:
            return [document(depth + 1) for _ in range(chance.randrange(4))]
        return {repr(document(6))[:40]: document(depth + 1) for _ in range(chance.randrange(4))}

    def spoilt(text: bytes) -> bytes:
        at = chance.randrange(len(text))
        return text[:at] + chance.choice((b"", b'"', b"\\", b"{", b"0", b"\xe2")) + text[at + 1 :]

    async def use(running: Running) -> None:
        async with AsyncTestClient(app, base_url="http://test") as client:
            for _ in range(150):
                options = {"ensure_ascii": chance.random() < 0.5}
                text = json.dumps([document(0)], **options).encode()
                status, _, seen = await outcome(running.client, "/any", text)
                assert (status, seen) == (200, repr([json.loads(text)])), text
                text = spoilt(text)
                ours = await outcome(running.client, "/any", text)
                assert ours == await outcome(client, "/any", text), text

    on_lane(app, use)
