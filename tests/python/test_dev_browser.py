"""What `justapi dev` does to an open page, in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from browser import Browser
from dev import Dev, app, replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = """
from justapi.responses import HTMLResponse
from justapi.staticfiles import StaticFiles

app.mount("/static", StaticFiles(directory="static"))
STRICT = {"content-security-policy": "default-src 'self'"}

@app.get("/page")
def page(strict: bool = False):
    head = '<!doctype html><title>page</title><link rel="stylesheet" href="/static/x.css">'
    text = f"{head}<h1>version {VERSION}</h1>"
    return HTMLResponse(text, headers=STRICT if strict else None)
"""
MARKED = "window.marked === true"
"""Whether the page is still the one that was marked, and not loaded anew."""
OVERLAY = "document.querySelector('#justapi-overlay')"
HAS_OVERLAY = f"{OVERLAY} !== null"
NO_OVERLAY = f"{OVERLAY} === null"


def shown(text: str) -> str:
    """An expression: the heading of the page."""
    return f"document.querySelector('h1')?.textContent === '{text}'"


def colour(value: str) -> str:
    """An expression: the colour of the heading."""
    return f"getComputedStyle(document.querySelector('h1')).color === '{value}'"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(tmp_path / "app.py", app("1", after=PAGES))
    write(tmp_path / "static" / "x.css", "h1 { color: rgb(200, 0, 0) }")
    return tmp_path


def test_a_save_loads_the_page_anew(project: Path, browser: Browser) -> None:
    with Dev(project) as dev:
        browser.goto(f"{dev.url}/page")
        assert browser.js(shown("version 1"))
        for number in (2, 3):
            browser.js("window.marked = true")
            replace(project / "app.py", app(str(number), after=PAGES))
            browser.wait_for(shown(f"version {number}"))
            assert not browser.js(MARKED)


def test_a_style_is_changed_in_place(project: Path, browser: Browser) -> None:
    with Dev(project) as dev:
        browser.goto(f"{dev.url}/page")
        browser.wait_for(colour("rgb(200, 0, 0)"))
        browser.js("window.marked = true")
        for green in (100, 200):
            replace(project / "static" / "x.css", f"h1 {{ color: rgb(0, {green}, 0) }}")
            browser.wait_for(colour(f"rgb(0, {green}, 0)"))
            # The one that it replaces goes.
            browser.wait_for("document.querySelectorAll('link').length === 1")
        assert browser.js(MARKED)
        assert dev.events("reload") == []


@pytest.mark.parametrize("query", ["", "?strict=true"])
def test_an_error_lies_over_the_page_until_it_is_mended(
    project: Path, browser: Browser, query: str
) -> None:
    good = app("1", after=PAGES)
    with Dev(project) as dev:
        browser.goto(f"{dev.url}/page{query}")
        browser.wait_for(shown("version 1"))
        browser.js("window.marked = true")
        before = len(browser.said)
        replace(project / "app.py", f"{good}\ndef broken(:\n")
        browser.wait_for(HAS_OVERLAY)
        text = browser.js(f"{OVERLAY}.shadowRoot.textContent")
        line = len(good.splitlines()) + 2
        assert f"app.py:{line}" in text, text
        assert "SyntaxError" in text
        assert "def broken(:" in text
        # It covers the page, also where that allows no style but its own.
        width, position = browser.js(
            f"[{OVERLAY}.getBoundingClientRect().width, getComputedStyle({OVERLAY}).position]"
        )
        assert position == "fixed"
        assert width == browser.js("document.documentElement.clientWidth")
        assert browser.said[before:] == []
        assert browser.js(MARKED), "the page stays as it is"
        browser.js(f"{OVERLAY}.shadowRoot.querySelector('button').click()")
        assert browser.js(NO_OVERLAY)

        # Another error is shown again; what mends it goes without a word.
        replace(project / "app.py", f"{good}\nnowhere_to_be_found\n")
        browser.wait_for(HAS_OVERLAY)
        text = browser.js(f"{OVERLAY}.shadowRoot.textContent")
        assert "NameError" in text
        assert f"app.py:{line}" in text
        replace(project / "app.py", good)
        browser.wait_for(NO_OVERLAY)
        assert browser.wait_for(shown("version 1"))
        replace(project / "app.py", app("2", after=PAGES))
        browser.wait_for(shown("version 2"))
        assert browser.js(NO_OVERLAY)


def test_a_page_that_never_worked_becomes_the_application(project: Path, browser: Browser) -> None:
    replace(project / "app.py", "import nowhere_to_be_found\n")
    with Dev(project) as dev:
        browser.goto(f"{dev.url}/page")
        text = browser.js("document.body.innerText")
        assert "ModuleNotFoundError" in text
        assert "app.py:1" in text
        replace(project / "app.py", app("1", after=PAGES))
        browser.wait_for(shown("version 1"))
        browser.wait_for(colour("rgb(200, 0, 0)"))


def test_a_page_finds_the_server_again(project: Path, browser: Browser) -> None:
    with Dev(project) as dev:
        browser.goto(f"{dev.url}/page")
        browser.wait_for(shown("version 1"))
        browser.js("window.marked = true")
        url = dev.url
        assert dev.stop() == 0
    assert browser.js(MARKED), "nobody has told it anything"
    replace(project / "app.py", app("2", after=PAGES))
    with Dev(project, port=int(url.rpartition(":")[2])) as dev:
        assert dev.url == url
        browser.wait_for(shown("version 2"))
        # Once, and not for ever.
        browser.js("window.marked = true")
        replace(project / "static" / "x.css", "h1 { color: rgb(0, 0, 200) }")
        browser.wait_for(colour("rgb(0, 0, 200)"))
        assert browser.js(MARKED)
