"""What README.md and docs/python.md show is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lanes import Running, on_lane

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


def section(page: str, heading: str) -> str:
    """Returns a section of a page of the checkout."""
    text = (ROOT / page).read_text()
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", _hidden(text), re.M | re.S)
    assert found, f"{page} has no section {heading!r}"
    return text[found.start(1) : found.end(1)]


def _hidden(text: str) -> str:
    """Blanks blocks of code, whose comments look like headings."""
    return re.sub(r"^```.*?^```", lambda match: re.sub("#", " ", match[0]), text, flags=re.M | re.S)


def blocks(text: str, language: str) -> list[str]:
    """Returns the blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def run(source: str) -> Any:
    """Runs a program and returns its application."""
    names: dict[str, Any] = {"__name__": "shown"}
    exec(compile(source, "<shown>", "exec"), names)
    return names["app"]


def requests(console: str) -> Iterator[tuple[str, str]]:
    """Yields the target of each GET by curl, and the output that is shown."""
    for command, output in re.findall(r"^\$ (curl .*)\n((?:(?!\$ ).*\n)*)", console, re.M):
        yield re.sub(r"^https?://[^/]+", "", shlex.split(command)[-1]), output.strip()


def test_the_quick_start_answers_what_it_shows() -> None:
    text = section("README.md", "Write an API in Python")
    [source] = blocks(text, "python")
    [console] = blocks(text, "console")
    shown = list(requests(console))
    assert len(shown) >= 2

    async def ask(running: Running) -> list[tuple[str, str]]:
        return [(target, (await running.client.get(target)).text) for target, _ in shown]

    assert on_lane(run(source), ask) == shown


def test_the_problem_document_is_what_an_unknown_path_answers() -> None:
    page = section("docs/migrating-from-fastapi.md", "2. Choose the shape of errors")
    [shown] = blocks(page, "json")

    async def ask(running: Running) -> str:
        return (await running.client.get("/nothing")).text

    assert on_lane(run("from justapi import JustAPI\napp = JustAPI()"), ask) == shown.strip()


@pytest.mark.parametrize(
    ("body", "status"),
    [('{"item":"pen","count":2}', 200), ('{"item":"pen","count":0}', 422), ('{"item":', 400)],
)
def test_native_routes_answer_as_the_guide_says(body: str, status: int) -> None:
    [source] = blocks(section("docs/python.md", "Native routes"), "python")

    async def ask(running: Running) -> tuple[str, Any]:
        client = running.client
        headers = {"content-type": "application/json"}
        checked = await client.post("/orders/check", content=body, headers=headers)
        assert checked.status_code == status
        if status == 200:
            assert checked.json() == {"item": "pen", "count": 2}
        version = await client.get("/version")
        return version.text, running.counters

    text, counters = on_lane(run(source), ask)
    assert text == '{"version":"1.0"}'
    assert counters.pop("native") == 2
    assert set(counters.values()) == {0}


def test_the_examples_of_tests_pass() -> None:
    source = (
        "from justapi import JustAPI\napp = JustAPI()\n"
        "@app.get('/items/{item}')\ndef read(item: int): return {'item': item}\n"
    )
    [shown] = blocks(section("docs/python.md", "Tests"), "python")
    calls = "import asyncio\ntest_reading()\nasyncio.run(test_reading_from_async_code())"
    run(source + shown + calls)
