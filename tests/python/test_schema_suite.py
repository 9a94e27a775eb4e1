"""The JSON-Schema-Test-Suite for draft 2020-12 through `schema=` of native routes.

Each group's schema guards a route; a case passes when the route accepts or refuses its data as the
suite says. What a schema refers to is bundled into it, as JSON Schema Core §9.3 has it: a route
fetches nothing. `tests/run` puts the suite into the target folder.
"""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from serving import Server

ROOT = Path(__file__).parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SUITE = Path(os.environ.get("JUSTAPI_JSON_SCHEMA_SUITE", TARGET / "json-schema-test-suite"))
CASES = {"": (1257, 1299), "optional": (158, 162), "optional/format": (491, 764)}
"""Cases of the releases that have been counted, by folder; `tests/run` fetches the first."""
ASSERTS_FORMATS = "http://localhost:1234/draft2020-12/format-assertion-true.json"
OTHER_DRAFTS = {"draft3", "draft4", "draft6", "draft-next", "v1"}
CROSSED = {"draft7", "draft2019-09"}
"""Drafts that only optional cases refer to."""

APPLICATION = """
    import json

    from justapi import JustAPI

    app = JustAPI()


    def accept(document): ...


    for path, schema in json.load(open("schemas.json")).items():
        app.post(path, native=True, schema=schema)(accept)
"""


def documents(kind: str) -> dict[str, Path]:
    """What the suite expects at its host: each document by its address."""
    folder = SUITE / "remotes"
    left_out = OTHER_DRAFTS if kind == "optional" else OTHER_DRAFTS | CROSSED
    paths = [path for path in sorted(folder.rglob("*.json")) if not left_out & {*path.parts}]
    return {f"http://localhost:1234/{path.relative_to(folder)}": path for path in paths}


def bundled(schema: Any, remotes: dict[str, Path]) -> Any:
    """The schema with the documents inside that it refers to, and those refer to."""
    inner: dict[str, Any] = {}
    text = json.dumps(schema)
    while "localhost:1234" in text:
        missing = [one for one in remotes if one not in inner and Path(one).name in text]
        if not missing:
            break
        for address in missing:
            document = json.loads(remotes[address].read_text())
            text += json.dumps(document)
            own = urljoin(address, document.get("$id", address))
            inner[address] = {"$id": address, "$ref": own}
            inner[own] = {**document, "$id": own}
    return {**schema, "$defs": {**schema.get("$defs", {}), **inner}} if inner else schema


@pytest.mark.parametrize("kind", list(CASES))
def test_every_case_has_the_verdict_of_the_suite(tmp_path: Path, kind: str) -> None:
    folder = SUITE / "tests/draft2020-12" / kind
    remotes = documents(kind)
    schemas = {}
    cases = []
    for path in sorted(folder.glob("*.json")):
        for index, group in enumerate(json.loads(path.read_text())):
            schema = group["schema"]
            # A format that nobody knows cannot be asserted, and is refused at registration then.
            if kind == "optional/format" and path.stem != "unknown":
                schema = {**schema, "$schema": ASSERTS_FORMATS}
            route = f"/{path.stem}/{index}"
            schemas[route] = json.dumps(bundled(schema, remotes))
            name = f"{path.stem}: {group['description']}"
            cases += [(route, f"{name}: {case['description']}", case) for case in group["tests"]]
    assert len(cases) in CASES[kind], f"an unknown release, or none in {folder}: tests/run"
    (tmp_path / "schemas.json").write_text(json.dumps(schemas))
    wrong = []
    with Server(tmp_path, APPLICATION, "--workers", "1") as server:
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
        for route, name, case in cases:
            connection.request(
                "POST", route, json.dumps(case["data"]), {"content-type": "application/json"}
            )
            response = connection.getresponse()
            response.read()
            if response.status != (200 if case["valid"] else 422):
                wrong.append(f"{name}: {response.status}")
        connection.close()
    assert not wrong, f"{len(wrong)} of {len(cases)}"
