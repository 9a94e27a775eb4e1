"""Projects as `justapi new` makes them, in every option, each made once."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
JUSTAPI = TARGET / "debug/justapi"
# The environment that has the wheel, and nothing of the checkout.
WHEEL_PYTHON = TARGET / "wheel-venv/bin/python"
# A name with a dash, so that module and distribution differ.
NAME = "my-api"

Make = Callable[..., Path]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Runs a command to its end; what it printed, all of it in the failure where it fails."""
    result = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=600,
    )
    output = f"{result.stdout}{result.stderr}"
    assert result.returncode == 0, f"{command} in {cwd}: {result.returncode}\n{output[-8000:]}"
    return output


def options() -> list[pytest.param]:
    """Every template with every combination of its answers."""
    listed = json.loads(run(JUSTAPI, "new", "--list", "--json", cwd=ROOT))
    cases = []
    for template in listed["templates"]:
        questions = {
            question["name"]: question["expected"].split("|")
            for question in template["questions"]
            if question["expected"] != "TEXT"
        }
        for chosen in itertools.product(*questions.values()):
            answers = dict(zip(questions, chosen, strict=True))
            words = [template["name"], *(f"{name}={answer}" for name, answer in answers.items())]
            cases.append(pytest.param((template["name"], answers), id=" ".join(words)))
    return cases


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    made: dict[str, Path] = {}

    def make(template: str, name: str = NAME, **answers: str) -> Path:
        if template == "rust":
            answers.setdefault("core", str(ROOT / "core"))
        key = f"{template} {name} {sorted(answers.items())}"
        if key not in made:
            folder = tmp_path_factory.mktemp(template) / name
            pairs = [f"--set={question}={answer}" for question, answer in answers.items()]
            command = [JUSTAPI, "new", folder, "--yes", "--vcs=none", f"--template={template}"]
            run(*command, *pairs, cwd=ROOT)
            made[key] = folder
        return made[key]

    return make


@pytest.fixture(params=options())
def project(request: pytest.FixtureRequest, make: Make) -> Path:
    """A project, once for every option of every template."""
    template, answers = request.param
    return make(template, **answers)
