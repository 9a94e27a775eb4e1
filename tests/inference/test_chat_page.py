"""The chat page in a real browser, on a real model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.append(str(Path(__file__).parent.parent / "python"))

from browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE = "document.getElementById('state').textContent"
LAST = "document.querySelector('#log article:last-child p').textContent"
NAMELESS = """
[...document.querySelectorAll('input, textarea, button, summary')].filter(
  (one) => !(one.labels?.length || one.textContent.trim())
).map((one) => one.id)
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that complains of nothing."""
    with Browser(tmp_path_factory.mktemp("browser")) as one:
        yield one
        assert one.said == []


@pytest.fixture
def page(browser: Browser, url: str) -> Browser:
    """The page, which knows its model."""
    browser.goto(f"{url}/")
    browser.wait_for("document.getElementById('about').textContent.includes('tokens of context')")
    return browser


def say(page: Browser, text: str) -> None:
    """Types a message and sends it by Enter, as most do."""
    page.js("document.getElementById('text').focus()")
    page.call("Input.insertText", text=text)
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r")


def set_value(page: Browser, name: str, value: str) -> None:
    """Fills in one of the settings."""
    page.js(f"document.getElementById({json.dumps(name)}).value = {json.dumps(value)}")


def test_a_message_is_answered_with_its_figures(page: Browser) -> None:
    set_value(page, "max", "16")
    say(page, "Name three colours.")
    page.wait_for(f"{STATE}.startsWith('The answer is')")
    assert page.js(LAST).strip()
    figures = page.js("document.querySelector('#log article:last-child .figures').textContent")
    for part in ("first token after", "tokens of prompt", " of answer", "tokens/s"):
        assert part in figures, figures
    said = page.js("document.querySelector('#log article.user p').textContent")
    assert said == "Name three colours."
    assert page.js("document.getElementById('text').value") == ""


def test_what_was_said_before_is_sent_again(page: Browser) -> None:
    set_value(page, "max", "4")
    for number in range(2):
        say(page, f"Message {number}")
        count = 2 * (number + 1)
        page.wait_for(
            f"document.querySelectorAll('#log article').length === {count} "
            "&& !document.getElementById('send').disabled"
        )
    figures = page.js(
        "[...document.querySelectorAll('.assistant .figures')].map((one) => one.textContent)"
    )
    prompts = [int(text.split(" tokens of prompt")[0].split()[-1]) for text in figures]
    assert prompts[1] > prompts[0]


def test_an_answer_can_be_stopped(page: Browser) -> None:
    set_value(page, "max", "4000")
    say(page, "Write a very long story.")
    page.wait_for(f"{LAST}.length > 10")
    page.js("document.getElementById('stop').click()")
    page.wait_for(f"{STATE} === 'Stopped.'")
    assert page.js("document.getElementById('stop').disabled")
    text = page.js(LAST)
    set_value(page, "max", "4")
    say(page, "And now?")
    page.wait_for(f"{STATE}.startsWith('The answer is')")
    assert text in page.js("document.getElementById('log').textContent"), "what was said stays"


def test_a_mistake_is_shown_in_the_servers_words(page: Browser) -> None:
    set_value(page, "temperature", "5")
    say(page, "Hello")
    page.wait_for(f"{STATE} === 'The answer failed.'")
    wrong = page.js("document.querySelector('.wrong').textContent")
    assert wrong.startswith("temperature:"), wrong
    # The browser itself tells of the refusal.
    refusals = [text for text in page.said if "400" in text]
    page.said[:] = [text for text in page.said if text not in refusals]
    assert len(refusals) == 1


def test_text_of_a_model_is_never_markup(page: Browser) -> None:
    say(page, "<img src=x onerror=alert(1)>")
    page.wait_for("document.querySelectorAll('#log article').length === 2")
    assert page.js("document.querySelectorAll('#log img, #log script').length") == 0
    page.js("document.getElementById('clear').click()")
    assert page.js("document.getElementById('log').children.length") == 0


def test_everything_has_a_name_and_room(page: Browser) -> None:
    page.js("document.getElementById('settings').open = true")
    assert page.js(NAMELESS) == []
    assert page.js("document.documentElement.lang") == "en"
    for width in (320, 1200):
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=640,
            deviceScaleFactor=1,
            mobile=False,
        )
        assert page.js("document.documentElement.scrollWidth") <= width
    page.call("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_the_page_follows_the_colours_of_the_system(
    page: Browser, scheme: str, is_dark: bool
) -> None:
    page.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    colour = page.js("getComputedStyle(document.body).backgroundColor")
    red = int(colour.removeprefix("rgb(").split(",")[0])
    assert (red < 128) == is_dark
