"""OpenAI's client for Node.js on a real model, by `openai_client.mjs`."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PATIENCE = 300.0


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the client is installed: `JUSTAPI_TEST_NPM`, or a folder for this run."""
    named = os.environ.get("JUSTAPI_TEST_NPM")
    folder = Path(named) if named else tmp_path_factory.mktemp("npm")
    if not (folder / "node_modules" / "openai").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "package.json", folder)
        subprocess.run(
            ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"],
            cwd=folder,
            check=True,
            timeout=PATIENCE,
        )
    return folder


@pytest.fixture(scope="session")
def seen(url: str, folder: Path) -> dict[str, Any]:
    """What the client has seen."""
    run = subprocess.run(
        ["node", str(HERE / "openai_client.mjs"), url, str(folder)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_a_stream_joined_is_the_answer(seen: dict[str, Any]) -> None:
    assert seen["whole"].strip()
    assert seen["streamed"] == seen["whole"]
    assert set(seen["reasons"][:-1]) == {None}
    assert seen["reasons"][-1] in ("stop", "length")
    assert seen["usage"]["completion_tokens"] == seen["wholeUsage"]["completion_tokens"]


def test_embeddings_are_decoded(seen: dict[str, Any]) -> None:
    assert len(seen["embeddings"]) == 2
    for embedding in seen["embeddings"]:
        assert math.hypot(*embedding) == pytest.approx(1.0, abs=1e-5)


def test_prompts_are_completed_in_order(seen: dict[str, Any]) -> None:
    assert len(seen["completions"]) == 2
    assert all(seen["completions"])


def test_failures_are_of_the_clients_own_kinds(seen: dict[str, Any]) -> None:
    assert seen["unknownModel"] == {
        "isBadRequest": False,
        "isNotFound": True,
        "code": "model_not_found",
        "param": "model",
    }
    assert seen["badTemperature"]["isBadRequest"]
    assert seen["badTemperature"]["param"] == "temperature"
