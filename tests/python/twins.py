"""Runs the same program on FastAPI and on justapi, and compares what they answer.

A program is text that imports from `fastapi` and makes `app`. For justapi the import is changed
and the application asked for FastAPI's shape of errors; nothing else.
"""

from __future__ import annotations

import asyncio
import json
import linecache
import re
import sys
from dataclasses import dataclass, field
from textwrap import dedent
from types import ModuleType
from typing import TYPE_CHECKING, Any

import httpx

from lanes import Running, on_lane

if TYPE_CHECKING:
    from collections.abc import Sequence

# What servers, not frameworks, decide, or where justapi says more on purpose.
NOT_COMPARED = {"allow", "date", "server", "transfer-encoding"}


@dataclass
class Call:
    """One request of a comparison."""

    method: str
    url: str
    options: dict[str, Any] = field(default_factory=dict)
    is_for_lane: bool = True
    """Whether a server of HTTP/1.1 without TLS gets it to the application."""

    def __str__(self) -> str:
        return f"{self.method} {self.url} {self.options or ''}".rstrip()[:200]


def call(method: str, url: str, **options: Any) -> Call:
    """Describes a request; the options are httpx's."""
    return Call(method, url, options)


def only_over_asgi(one: Call) -> Call:
    """Keeps a request away from the lane, whose server would answer it itself."""
    one.is_for_lane = False
    return one


def get(url: str, **options: Any) -> Call:
    """Describes a GET."""
    return Call("GET", url, options)


def post(url: str, **options: Any) -> Call:
    """Describes a POST."""
    return Call("POST", url, options)


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: list[tuple[str, str]]
    body: Any


def for_justapi(source: str) -> str:
    """Changes the import of a program."""
    source = re.sub(r"\bfastapi\b", "justapi", source)
    source = source.replace("starlette.", "justapi.")
    source = re.sub(r"\bFastAPI\(\s*\)", 'JustAPI(error_format="fastapi")', source)
    source = re.sub(r"\bFastAPI\((?=[^)])", 'JustAPI(error_format="fastapi", ', source)
    return re.sub(r"\bFastAPI\b", "JustAPI", source)


def load(source: str, name: str) -> dict[str, Any]:
    """Runs a program and returns its names."""
    filename = f"<{name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    # Dataclasses and forward references look their module up.
    module = sys.modules[name] = ModuleType(name)
    exec(compile(source, filename, "exec"), module.__dict__)
    return module.__dict__


def read(response: httpx.Response) -> Answer:
    """Reads what is compared of an answer."""
    body: Any = response.content
    kind = response.headers.get("content-type", "")
    if "jsonl" in kind or "event-stream" in kind:
        # FastAPI puts spaces into the JSON of streams.
        body = body.replace(b": ", b":").replace(b", ", b",")
    elif "json" in kind:
        body = json.loads(body) if body else body
    headers = sorted(
        (name.lower(), value)
        for name, value in response.headers.multi_items()
        if name.lower() not in NOT_COMPARED
    )
    # The way to the same place may be absolute or relative.
    headers = [
        (name, re.sub(r"^https?://[^/]+", "", value) if name == "location" else value)
        for name, value in headers
    ]
    return Answer(response.status_code, headers, body)


async def _ask(app: Any, calls: Sequence[Call]) -> list[Answer]:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return [read(await client.request(one.method, one.url, **one.options)) for one in calls]


def lane_answers(app: Any, *calls: Call, over_asgi: int | None = None) -> list[Answer]:
    """Asks an application on a lane, over a socket.

    Args:
        app: The application.
        *calls: The requests.
        over_asgi: How many of them may be given to the application over ASGI, if that matters.
    """

    async def ask(running: Running) -> list[Answer]:
        found = [
            read(await running.client.request(one.method, one.url, **one.options)) for one in calls
        ]
        if over_asgi is not None:
            assert running.counters["asgi"] == over_asgi, running.counters
            assert sum(running.counters.values()) > over_asgi, running.counters
        return found

    return on_lane(app, ask)


def answers(app: Any, *calls: Call) -> list[Answer]:
    """Asks an application."""
    return asyncio.run(_ask(app, calls))


def assert_same(
    source: str,
    *calls: Call,
    names: Sequence[str] = (),
    without: Sequence[str] = (),
    over_asgi: int | None = None,
) -> list[Answer]:
    """Asserts that both frameworks give the same answers, and returns them.

    Args:
        source: The program.
        *calls: The requests, in order.
        names: Names of the program whose values shall be equal afterwards.
        without: Headers that are not compared, in lower case.
        over_asgi: How many of them are given to the application over ASGI on the lane, such as
            those that no route answers; None where that does not matter.
    """

    def compared(answers: list[Answer]) -> list[Answer]:
        for one in answers:
            one.headers = [pair for pair in one.headers if pair[0] not in without]
        return answers

    source = dedent(source)
    theirs = load(source, "program_on_fastapi")
    ours = load(for_justapi(source), "program_on_justapi")
    expected = compared(answers(theirs["app"], *calls))
    found = compared(answers(ours["app"], *calls))
    different = [
        f"{one}\n  justapi: {have}\n  fastapi: {want}"
        for one, want, have in zip(calls, expected, found, strict=True)
        if have != want
    ]
    # Afresh, as the calls may have changed what the program keeps.
    again = load(for_justapi(source), "program_on_justapi")
    fit = [one.is_for_lane for one in calls]
    calls = tuple(one for one in calls if one.is_for_lane)
    expected = [answer for answer, is_fit in zip(expected, fit, strict=True) if is_fit]
    on_the_lane = compared(lane_answers(again["app"], *calls, over_asgi=over_asgi))
    different += [
        f"{one}\n  lane: {have}\n  fastapi: {want}"
        for one, want, have in zip(calls, expected, on_the_lane, strict=True)
        if have != want
    ]
    assert not different, "\n".join(different)
    for name in names:
        assert ours[name] == theirs[name], name
    return found
