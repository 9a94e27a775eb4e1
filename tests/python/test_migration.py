"""docs/migrating-from-fastapi.md, followed on an application that was written for FastAPI.

The commands are taken from the page. What they make of the application answers as it did on
FastAPI: in process over ASGI, on a lane, and on a lane without middleware in Python. The
application's own tests pass before and after.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastapi.testclient import TestClient as FastAPITestClient
from websockets.asyncio.client import connect

from justapi.testclient import TestClient
from lanes import Running, on_lane
from twins import Answer, call, get, post, read

if TYPE_CHECKING:
    from types import ModuleType

PAGE = Path(__file__).parents[2] / "docs" / "migrating-from-fastapi.md"
APPLICATION = Path(__file__).parent / "migration"

ADA = {"x-clerk": "Ada"}
ADA_JSON = {**ADA, "content-type": "application/json"}
GRACE = {"receiver": "Grace", "weight_kg": 2}
PICTURE = {"picture": ("a.png", b"\x89PNG" * 1000, "image/png")}

CALLS = [
    get("/"),
    get("/parcels"),
    get("/parcels/"),
    post("/parcels/", json=GRACE),
    post("/parcels/", json=GRACE, headers={"x-clerk": "A" * 21}),
    post("/parcels/", json=GRACE, headers=ADA),
    post("/parcels/", json={**GRACE, "size": "large", "deliver_on": "2027-01-31"}, headers=ADA),
    post("/parcels/", json={"receiver": "", "weight_kg": "heavy", "size": 3}, headers=ADA),
    post(
        "/parcels/", content=b'{"receiver": ', headers={**ADA, "content-type": "application/json"}
    ),
    post("/parcels/", content=b"Grace", headers={**ADA, "content-type": "text/plain"}),
    post("/parcels/", headers=ADA),
    get("/parcels/?size=large&size=small&limit=1"),
    get("/parcels/?size=large"),
    get("/parcels/?size=medium&limit=1000"),
    get("/parcels/1"),
    get("/parcels/0"),
    get("/parcels/one"),
    get("/parcels/77"),
    call("PUT", "/parcels/1/label", data={"text": "this side up"}, files=PICTURE, headers=ADA),
    call("PUT", "/parcels/1/label", data={"text": "this side up"}, headers=ADA),
    call("PUT", "/parcels/1/label", files=PICTURE, headers=ADA),
    get("/parcels/export.csv"),
    call("DELETE", "/parcels/1", headers=ADA),
    call("DELETE", "/parcels/1", headers=ADA),
    call("DELETE", "/parcels/1"),
    call("PATCH", "/parcels/1"),
    get("/nothing"),
    get("/pages/about.txt"),
    get("/pages/about.txt", headers={"range": "bytes=3-7"}),
    get("/pages/nothing.txt"),
    get("/pages/../parcels.py"),
    get("/openapi.json"),
]
"""What clients ask; the parcels that they add stay for those after them."""

DOCUMENT = next(index for index, one in enumerate(CALLS) if one.url == "/openapi.json")

QUESTIONS = ["where?", {"when": [1, 2]}, None]


def commands(heading: str) -> str:
    """Returns the shell commands of a section of the page."""
    section = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S
    )
    assert section, f"the page has no section {heading!r}"
    blocks = re.findall(r"^```sh\n(.*?)^```", section[1], re.M | re.S)
    assert blocks, f"the section {heading!r} has no commands"
    return "\n".join(blocks)


def follow(folder: Path, *headings: str) -> Path:
    """Copies the application and follows sections of the page on it."""
    shutil.copytree(APPLICATION, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for heading in headings:
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands(heading)], cwd=folder, check=True
        )
    return folder


def load(folder: Path) -> ModuleType:
    """Imports the application in a folder."""
    name = f"parcels_in_{folder.name}"
    spec = importlib.util.spec_from_file_location(name, folder / "parcels.py")
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Story:
    """What happened: the answers, what the sockets said, and what it left in the depot."""

    def __init__(self, app: Any, answers: list[Answer], said: list[Any]) -> None:
        self.answers = answers
        document = answers[DOCUMENT]
        # 0 may be written as 0.0.
        document.headers = [pair for pair in document.headers if pair[0] != "content-length"]
        self.said = said
        depot = app.state.depot
        self.history: list[str] = depot.history
        # A session ends, and a letter is written, after its answer, so the next request may have
        # begun by then.
        self.left = (
            sorted(depot.parcels),
            sorted(depot.letters),
            sorted(depot.history),
            depot.num_sessions,
        )

    def assert_same(self, expected: Story) -> None:
        """Asserts that as much happened elsewhere."""
        for one, found, wanted in zip(CALLS, self.answers, expected.answers, strict=True):
            assert found == wanted, one
        assert self.said == expected.said
        assert self.left == expected.left


def in_process(make_client: Any, app: Any) -> Story:
    """Tells the story by a test client."""
    said = []
    with make_client(app, base_url="http://test", follow_redirects=False) as client:
        answers = [read(client.request(one.method, one.url, **one.options)) for one in CALLS]
        with client.websocket_connect("/parcels/2/track") as socket:
            for question in QUESTIONS:
                socket.send_json(question)
                said.append(socket.receive_json())
    return Story(app, answers, said)


def over_sockets(app: Any) -> tuple[Story, dict[str, int]]:
    """Tells the story on a lane, and what its counters have seen."""

    async def tell(running: Running) -> tuple[list[Answer], list[Any], dict[str, int]]:
        answers = [
            read(await running.client.request(one.method, one.url, **one.options)) for one in CALLS
        ]
        counters = running.counters
        said = []
        url = f"ws://127.0.0.1:{running.port}/parcels/2/track"
        async with connect(url, proxy=None) as socket:
            for question in QUESTIONS:
                await socket.send(json.dumps(question))
                said.append(json.loads(await socket.recv()))
        return answers, said, counters

    answers, said, counters = on_lane(app, tell)
    return Story(app, answers, said), counters


FIRST = "1. Change the imports"
SECOND = "2. Choose the shape of errors"


@pytest.fixture(scope="module")
def theirs() -> Story:
    return in_process(FastAPITestClient, load(APPLICATION).create_app())


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return load(follow(tmp_path_factory.mktemp("moved") / "both_steps", FIRST, SECOND))


def test_the_moved_application_answers_as_before(theirs: Story, ours: ModuleType) -> None:
    story = in_process(TestClient, ours.create_app())
    story.assert_same(theirs)
    assert story.history == theirs.history


def test_it_does_so_on_a_lane(theirs: Story, ours: ModuleType) -> None:
    story, counters = over_sockets(ours.create_app())
    story.assert_same(theirs)
    # Middleware in Python sees every request.
    assert counters["asgi"] == len(CALLS)


def test_it_does_so_on_a_lane_without_middleware(theirs: Story, ours: ModuleType) -> None:
    story, counters = over_sockets(ours.create_app(is_branded=False))
    for answer in story.answers:
        answer.headers = sorted([*answer.headers, ("x-depot", "north")])
    story.assert_same(theirs)
    # Only files and what no route answers go over ASGI.
    assert counters["asgi"] < len(CALLS) / 3


def test_without_the_second_step_errors_are_problem_documents(tmp_path: Path) -> None:
    module = load(follow(tmp_path / "one_step", FIRST))
    with TestClient(module.create_app(), headers=ADA) as client:
        answer = client.post("/parcels/", json={})
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == 422
        assert client.get("/nothing").json()["title"] == "Not Found"


@pytest.mark.parametrize("steps", [[], [FIRST], [FIRST, SECOND]])
def test_its_own_tests_pass(tmp_path: Path, steps: list[str]) -> None:
    folder = follow(tmp_path / "application", *steps)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "parcels_tests.py"],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "10 passed" in done.stdout
    assert ("from fastapi" in (folder / "parcels.py").read_text()) == (not steps)
