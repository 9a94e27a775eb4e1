"""The table of routes agrees with trying every pattern, and knows which one is best."""

from __future__ import annotations

import random
import re

import pytest

from justapi._paths import CONVERTORS
from justapi._routes import RouteTable

PIECES = [
    "a",
    "b",
    "",
    "{x}",
    "{y:int}",
    "{z:uuid}",
    "{w:float}",
    "{x}.json",
    "v{y:int}",
    "{x}-{y}",
    "{rest:path}",
]
SEGMENTS = ["a", "b", "", "7", "1.5", "a.json", "v3", "x-y-z", "%61", "k%2Fs", "c"]


def matches(pattern: str, path: str) -> bool:
    """Whether a pattern has a path, by one expression for all of it."""
    expression = ""
    position = 0
    for found in re.finditer(r"{(\w+?)(?::(\w+))?}", pattern):
        kind = found[2] or "str"
        expression += re.escape(pattern[position : found.start()]) + f"({CONVERTORS[kind].regex})"
        position = found.end()
    # An encoded slash is no slash: it stands as a letter of its own here.
    text = path.replace("%61", "a").replace("%2F", "\x00")
    return re.fullmatch(expression + re.escape(pattern[position:]), text) is not None


def make_pattern(chance: random.Random) -> str:
    pieces = [chance.choice(PIECES) for _ in range(chance.randint(1, 4))]
    # A name may stand only once.
    seen: set[str] = set()
    kept = []
    for piece in pieces:
        names = set(re.findall(r"{(\w+)", piece))
        if not names & seen:
            kept.append(piece)
            seen |= names
    return "/" + "/".join(kept)


@pytest.mark.parametrize("seed", range(60))
def test_it_finds_what_trying_all_patterns_finds(seed: int) -> None:
    chance = random.Random(seed)
    patterns = list(dict.fromkeys(make_pattern(chance) for _ in range(12)))
    methods = {pattern: chance.sample(["GET", "POST", "PUT"], 2) for pattern in patterns}
    table = RouteTable()
    for pattern in patterns:
        table.add(methods[pattern], pattern, pattern)
    for _ in range(200):
        path = "/" + "/".join(chance.choice(SEGMENTS) for _ in range(chance.randint(1, 4)))
        method = chance.choice(["GET", "POST", "PUT", "DELETE"])
        fitting = [pattern for pattern in patterns if matches(pattern, path)]
        answering = [pattern for pattern in fitting if method in methods[pattern]]
        outcome = table.find(method, path)
        if answering:
            assert outcome[0] == "found"
            assert outcome[1] in answering
        elif fitting:
            assert outcome[0] == "method_not_allowed"
            allowed = {name for pattern in fitting for name in methods[pattern]}
            assert set(outcome[1]) == allowed | {"OPTIONS"} | (
                {"HEAD"} if "GET" in allowed else set()
            )
        else:
            assert outcome[0] in ("not_found", "redirect")


def found(path: str, *patterns: str, method: str = "GET") -> tuple[str, dict[str, str]] | str:
    table = RouteTable()
    for pattern in patterns:
        table.add(["GET"], pattern, pattern)
    outcome = table.find(method, path)
    return outcome[1:] if outcome[0] == "found" else outcome[0]


@pytest.mark.parametrize("order", [1, -1])
def test_the_more_specific_pattern_wins_in_any_order(order: int) -> None:
    patterns = [
        "/x/{p:path}",
        "/x/{a}",
        "/x/{a:float}",
        "/x/{a:int}",
        "/x/{a:uuid}",
        "/x/{a}.json",
        "/x/me",
        "/x/{p:path}/end",
    ][::order]
    uuid = "00000000-0000-0000-0000-000000000001"
    assert found("/x/me", *patterns) == ("/x/me", {})
    assert found("/x/b.json", *patterns) == ("/x/{a}.json", {"a": "b"})
    assert found(f"/x/{uuid}", *patterns) == ("/x/{a:uuid}", {"a": uuid})
    assert found("/x/5", *patterns) == ("/x/{a:int}", {"a": "5"})
    assert found("/x/5.5", *patterns) == ("/x/{a:float}", {"a": "5.5"})
    assert found("/x/other", *patterns) == ("/x/{a}", {"a": "other"})
    assert found("/x/a/b/end", *patterns) == ("/x/{p:path}/end", {"p": "a/b"})
    assert found("/x/a/b", *patterns) == ("/x/{p:path}", {"p": "a/b"})
    assert found("/x/", *patterns) == ("/x/{p:path}", {"p": ""})


def test_encoded_segments() -> None:
    assert found("/units/kg%2Fs", "/units/{u}") == ("/units/{u}", {"u": "kg/s"})
    assert found("/units/kg%2Fs/x", "/units/{u}/x") == ("/units/{u}/x", {"u": "kg/s"})
    assert found("/caf%C3%A9", "/café") == ("/café", {})
    assert found("/a%20b", "/{x}") == ("/{x}", {"x": "a b"})
    assert found("/x/a/k%2Fs/e", "/x/{p:path}/{u}/e") == (
        "/x/{p:path}/{u}/e",
        {"p": "a", "u": "k/s"},
    )
    assert found("/%66iles/a%2Fb", "/files/{p:path}") == ("/files/{p:path}", {"p": "a/b"})
    for path in ("/%", "/%zz", "/%FF", "/a%2", "/a%00"):
        assert found(path, "/{x}") == "bad_path"


def test_head_options_and_any_method() -> None:
    table = RouteTable()
    table.add(["GET"], "/x", "get")
    table.add(["HEAD"], "/own", "head")
    table.add(["GET"], "/own", "get")
    table.add(None, "/any", "any")
    assert table.find("HEAD", "/x") == ("found", "get", {})
    assert table.find("HEAD", "/own") == ("found", "head", {})
    assert table.find("OPTIONS", "/x") == ("options", ["GET", "HEAD", "OPTIONS"])
    assert table.find("BREW", "/any") == ("found", "any", {})
    assert table.find("PUT", "/x") == ("method_not_allowed", ["GET", "HEAD", "OPTIONS"])


def test_the_first_of_two_equal_routes_answers() -> None:
    table = RouteTable()
    table.add(["GET"], "/{x}", "first")
    table.add(["GET", "POST"], "/{x}", "second")
    assert table.find("GET", "/a")[1] == "first"
    assert table.find("POST", "/a")[1] == "second"


def test_slashes_at_the_end() -> None:
    assert found("/a/", "/a") == "redirect"
    assert found("/a", "/a/") == "redirect"
    assert found("/", "/a") == "not_found"
    table = RouteTable()
    table.add(["GET"], "/{p:path}/x/", 1)
    assert table.find("GET", "/a%20b/x") == ("redirect", "/a%20b/x/")
    # It would be a URL of another host.
    assert table.find("GET", "//evil.example/x") == ("not_found",)
