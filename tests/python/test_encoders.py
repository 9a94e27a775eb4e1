"""The JSON encoder writes what the standard library writes."""

from __future__ import annotations

import json
import math
import random
import struct
from typing import Any

import pytest

from justapi.encoders import encode_json


def check(value: Any) -> None:
    """Encodes a value and compares it with the standard library's text."""
    expected = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert encode_json(value).decode() == expected


def test_floats() -> None:
    for value in (0.0, -0.0, 1.0, 1e15, 1e16, 1e21, 1e22, 1.5e300, 5e-324, 1e-5, 1e-7, 1 / 3):
        check(value)
        check(-value)
        check({value: [value]})
    chance = random.Random(7)
    for _ in range(5000):
        [value] = struct.unpack("d", chance.randbytes(8))
        if value - value == 0:
            check(value)
    # Where one spelling ends and the other begins, and around it.
    for exponent in range(-8, 25):
        for _ in range(200):
            value = chance.choice([1, -1]) * chance.uniform(1, 10) * 10.0**exponent
            check(value)
            check(round(value, chance.randint(0, 8)))
        border = 10.0**exponent
        for value in (border, math.nextafter(border, 0), math.nextafter(border, math.inf)):
            check(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [-float("inf")]])
def test_numbers_that_json_lacks_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode_json(value)


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        2**63 - 1,
        2**63,
        -(2**63),
        -(2**63) - 1,
        2**200,
        True,
        None,
        "",
        'quote " backslash \\ slash /',
        "".join(map(chr, range(0x20))),
        "\x7f\x80é\u2028\u2029\U0001f600",
        [],
        {},
        [[[]]],
        {"a": {"b": [1, {"c": None}]}},
        {"": 1, "\n": 2},
    ],
    ids=repr,
)
def test_values(value: Any) -> None:
    check(value)


def test_texts_of_any_letters() -> None:
    chance = random.Random(11)
    for _ in range(500):
        letters = [
            chr(chance.choice([chance.randrange(0x80), chance.randrange(0xD800)]))
            for _ in range(20)
        ]
        check("".join(letters))


def test_tuples_and_keys() -> None:
    assert encode_json((1, (2,))) == b"[1,[2]]"
    assert json.loads(encode_json({1: 2, None: 3, 1.5: 4, False: 5})) == {
        "1": 2,
        "null": 3,
        "1.5": 4,
        "false": 5,
    }
    with pytest.raises((ValueError, TypeError)):
        encode_json({(1, 2): 3})


def test_texts_that_cannot_be_encoded() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_json(["\ud800"])


def test_endless_values_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises((ValueError, RecursionError)):
        encode_json(endless)
