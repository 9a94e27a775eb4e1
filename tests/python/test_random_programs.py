"""Random programs answer random requests as they do on FastAPI.

A program has up to three dependencies and a handler; their parameters have random types, places,
constraints, aliases and defaults. What FastAPI answers with 500, we may answer with better.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from twins import Call, answers, for_justapi, load

HEAD = """
from typing import Annotated, Any, Literal, Optional
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID
from fastapi import *
from pydantic import BaseModel, Field
app = FastAPI()
class Color(str, Enum):
    red = "red"
    blue = "blue"
class Inner(BaseModel):
    n: int
    s: str = "s"
class Model(BaseModel):
    a: int
    b: str | None = None
    c: list[Inner] = []
    d: dict[str, float] = {}
class Filter(BaseModel):
    limit: int = Field(10, ge=1)
    tags: list[str] = []
    name_x: str | None = None
"""
SCALARS = [
    "int", "str", "float", "bool", "date", "Color", "Literal['a','b']", "UUID", "int | None", "str | None", "int | str",
    "float | None", "Decimal", "Optional[bool]", "datetime", "bytes",
]  # fmt: skip
SEQUENCES = [
    "list[int]",
    "list[str]",
    "list[int] | None",
    "set[int]",
    "tuple[int, str]",
    "list[Color]",
]
BODIES = [
    "Model",
    "Inner",
    "Model | None",
    "list[Inner]",
    "dict[str, int]",
    "dict",
    "list[int]",
    "Model | Inner",
    "Any",
    "int",
]
CONSTRAINTS = {
    "int": ["ge=2", "lt=5", "multiple_of=2"],
    "str": ["min_length=2", "max_length=3", "pattern='^a'"],
    "float": ["gt=0.5"],
    "list[int]": ["min_length=2"],
    "list[str]": ["max_length=2"],
}
DEFAULTS = {
    "int": "3",
    "str": "'d'",
    "float": "1.5",
    "bool": "True",
    "Color": "Color.red",
    "list[int]": "[1]",
}
TEXTS = [
    "1", "0", "-3", "a", "ab", "abcd", "true", "x y", "2020-01-02", "red", "00000000-0000-0000-0000-000000000001", "1.5", "",
    "null", "é", "9999999999999999999999", "1e3", " 5 ", "on",
]  # fmt: skip
PLAIN_TEXTS = [
    text for text in TEXTS if text.isascii() and text.strip() == text and text and " " not in text
]
DOCUMENTS: list[Any] = [
    {"a": 1}, {"a": "x", "b": 3}, {"n": 1}, {"n": "z"}, [{"n": 1}], [1, 2], ["x"], None, 3, "s",
    {"a": 1, "c": [{"n": "q"}], "d": {"x": "1.5", "y": "z"}},
]  # fmt: skip


@dataclass
class Parameter:
    """A parameter of a random program."""

    name: str
    wire_name: str
    place: str
    declaration: str
    has_default: bool


@dataclass
class Program:
    """A random program."""

    source: str
    parameters: list[Parameter] = field(default_factory=list)
    is_form: bool = False


def make_parameter(chance: random.Random, number: int, place: str) -> Parameter:
    name = f"{chance.choice(['p', 'x_a', 'item', 'foo_bar'])}{number}"
    types = {"Body": BODIES, "Path": SCALARS[:9], "Form": SCALARS[:12], "Cookie": SCALARS}.get(
        place, SCALARS
    )
    if place in ("Query", "Header", "Form") and chance.random() < 0.25:
        types = SEQUENCES[:3]
    annotation = chance.choice(types)
    if place == "Query" and chance.random() < 0.1:
        return Parameter(
            name, name, "Filter", f"{name}: Annotated[Filter, Query()]", has_default=False
        )
    options = []
    wire_name = name.replace("_", "-") if place == "Header" else name
    if place != "Path" and chance.random() < 0.2:
        wire_name = f"al-{number}"
        options.append(f"alias='{wire_name}'")
    if annotation in CONSTRAINTS and chance.random() < 0.4:
        options.append(chance.choice(CONSTRAINTS[annotation]))
    if place == "Body" and chance.random() < 0.15:
        options.append("embed=True")
    default = ""
    if place != "Path" and chance.random() < 0.4:
        default = f" = {DEFAULTS.get(annotation, 'None')}"
    marked = f"{name}: Annotated[{annotation}, {place}({', '.join(options)})]{default}"
    plain = f"{name}: {annotation}{default}"
    is_plain = place in ("Query", "Path") or annotation in (
        "Model",
        "Inner",
        "Model | None",
        "dict",
    )
    use_plain = not options and is_plain and annotation not in SEQUENCES and chance.random() < 0.4
    return Parameter(
        name, wire_name, place, plain if use_plain else marked, has_default=bool(default)
    )


def make_program(chance: random.Random) -> Program:
    program = Program(HEAD, is_form=chance.random() < 0.2)
    places = ["Query", "Query", "Query", "Header", "Cookie", "Form" if program.is_form else "Body"]
    number = 0

    def parameters(count: int, places: list[str]) -> list[Parameter]:
        nonlocal number
        made = []
        for _ in range(count):
            made.append(make_parameter(chance, number, chance.choice(places)))
            number += 1
        program.parameters += made
        return made

    def function(head: str, own: list[Parameter], dependencies: list[int], result: str) -> str:
        own = sorted(own, key=lambda one: one.has_default)
        declared = [one.declaration for one in own] + [
            f"d{index}=Depends(dep{index})" for index in dependencies
        ]
        names = [one.name for one in own] + [f"d{index}" for index in dependencies]
        star = "*, " if declared else ""
        return f"{head}({star}{', '.join(declared)}): {result.replace('...', ', '.join(names))}\n"

    num_dependencies = chance.randint(0, 3)
    for index in range(num_dependencies):
        result = chance.choice(
            [f"return ['dep{index}', ...]"] * 6
            + [f"yield ['dep{index}', ...]"] * 3
            + ["raise HTTPException(401)"]
        )
        needed = [other for other in range(index) if chance.random() < 0.4]
        head = f"{chance.choice(['def', 'async def'])} dep{index}"
        program.source += function(head, parameters(chance.randint(0, 2), places), needed, result)
    own = parameters(chance.randint(0, 4), [*places, "Path"])
    path = "/r" + "".join(f"/{{{one.name}}}" for one in own if one.place == "Path")
    needed = [index for index in range(num_dependencies) if chance.random() < 0.7]
    program.source += f"@app.post({path!r})\n"
    head = f"{chance.choice(['def', 'async def'])} handler"
    program.source += function(head, own, needed, "return [...]")
    return program


def make_call(chance: random.Random, program: Program) -> Call:
    url = "/r"
    query: list[tuple[str, str]] = []
    headers: list[tuple[str, str]] = []
    cookies: list[str] = []
    form: dict[str, list[str]] = {}
    body: dict[str, Any] = {}
    for one in program.parameters:
        if one.place == "Path":
            url += f"/{chance.choice(PLAIN_TEXTS)}"
            continue
        if chance.random() < 0.2:
            continue
        repeated = chance.choice([1, 1, 1, 2])
        if one.place == "Header":
            headers += [(one.wire_name, chance.choice(PLAIN_TEXTS)) for _ in range(repeated)]
        elif one.place == "Cookie":
            cookies.append(f"{one.wire_name}={chance.choice(PLAIN_TEXTS)}")
        elif one.place == "Form":
            form[one.wire_name] = [chance.choice(TEXTS) for _ in range(repeated)]
        elif one.place == "Body":
            body[one.wire_name] = chance.choice(DOCUMENTS)
        elif one.place == "Filter":
            names = chance.sample(["limit", "tags", "tags", "name_x", "other"], 3)
            query += [(name, chance.choice(TEXTS)) for name in names]
        else:
            query += [(one.wire_name, chance.choice(TEXTS)) for _ in range(repeated)]
    if cookies:
        headers.append(("cookie", "; ".join(cookies)))
    options: dict[str, Any] = {"params": query, "headers": headers}
    kind = chance.random()
    if program.is_form:
        options["data"] = form
    elif kind < 0.5:
        options["json"] = body
    elif kind < 0.8:
        options["json"] = chance.choice([*body.values(), {}])
    elif kind < 0.9:
        options |= {
            "content": b'{"a": 1',
            "headers": [*headers, ("content-type", "application/json")],
        }
    return Call("POST", url, options)


@pytest.mark.parametrize("seed", range(80))
def test_random_programs(seed: int) -> None:
    chance = random.Random(seed)
    program = make_program(chance)
    calls = [make_call(chance, program) for _ in range(8)]
    theirs = load(program.source, "random_on_fastapi")["app"]
    ours = load(for_justapi(program.source), "random_on_justapi")["app"]
    for call, want, have in zip(calls, answers(theirs, *calls), answers(ours, *calls), strict=True):
        assert want.status == 500 or have == want, f"{call}\n{have}\n{want}\n{program.source}"
