"""Which Python interpreter `justapi serve` runs the workers with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from justapi import _core
from serving import PROGRAM

if TYPE_CHECKING:
    from pathlib import Path

VERSION = _core.VERSION
OURS = f"{sys.version_info.major}.{sys.version_info.minor}"


class Place:
    """A project, a home of the program, and interpreters that only say who they are.

    Args:
        folder: Where all of it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project" / "below"
        self.project.mkdir(parents=True)
        (folder / "project" / ".git").mkdir()
        self.program = folder / "program" / "justapi"
        self.program.parent.mkdir()
        shutil.copy(PROGRAM, self.program)
        (folder / "empty").mkdir()
        self.variables = {"PATH": str(folder / "empty")}

    def python(
        self,
        path: str,
        version: str = OURS,
        package: str | None = VERSION,
    ) -> Path:
        """Puts an interpreter at `path` that notes that it was asked, and is then this one."""
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        number = [int(part) for part in version.removesuffix("t").split(".")]
        answer = {
            "executable": str(place),
            "version": number,
            "is_free_threaded": version.endswith("t"),
            "package": package,
        }
        # As the program asks it: whatever comes after is a worker.
        place.write_text(
            "#!/bin/sh\n"
            f'if [ "$1" = -I ]; then echo {path} >>"{self.folder}/asked"; '
            f"echo '{json.dumps(answer)}'; "
            f'else echo {path} >"{self.folder}/taken"; exit 1; fi\n'
        )
        place.chmod(0o755)
        return place

    def serve(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs the program until its worker has ended, which it does at once."""
        for name in ("asked", "taken"):
            (self.folder / name).unlink(missing_ok=True)
        return subprocess.run(
            [str(self.program), "serve", "app:app", "--port", "0", *arguments],
            cwd=self.project,
            env={**self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def taken(self, *arguments: str, **variables: str) -> str:
        """The interpreter that ran the worker."""
        done = self.serve(*arguments, **variables)
        taken = self.folder / "taken"
        assert taken.exists(), done.stderr
        return taken.read_text().strip()

    def asked(self) -> list[str]:
        """The interpreters that were asked who they are."""
        asked = self.folder / "asked"
        return asked.read_text().split() if asked.exists() else []


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_order_in_which_interpreters_are_taken(place: Place) -> None:
    places = [
        "program/python3",
        "virtual/bin/python3",
        "project/environments/uv/bin/python3",
        "project/below/.venv/bin/python3",
        "project/below/venv/bin/python",
        "project/.venv/bin/python3",
        "project/venv/bin/python3",
        "conda/bin/python3",
        "first/python3",
        "second/python",
    ]
    for path in places:
        place.python(path)
    variables = {
        "VIRTUAL_ENV": str(place.folder / "virtual"),
        "CONDA_PREFIX": str(place.folder / "conda"),
        "UV_PROJECT_ENVIRONMENT": "environments/uv",
        "PATH": f"{place.folder}/first:{place.folder}/second",
    }
    # What is beside neither the project nor a variable is never taken.
    place.python(".venv/bin/python3")
    own = place.python("own/python")
    assert place.taken("--python", str(own), **variables) == "own/python"
    while places:
        assert place.taken(**variables) == places[0]
        assert place.asked() == places[:1]
        (place.folder / places.pop(0)).unlink()
    done = place.serve(**variables)
    assert done.returncode == 6
    assert "there is no Python interpreter" in done.stderr
    assert not (place.folder / "taken").exists()


def test_the_environment_of_uv_may_be_an_absolute_path(place: Place) -> None:
    place.python("uv/bin/python3")
    assert place.taken(UV_PROJECT_ENVIRONMENT=str(place.folder / "uv")) == "uv/bin/python3"
    assert place.asked() == ["uv/bin/python3"]


def test_what_does_not_fit_is_passed_over_and_the_first_is_named(place: Place) -> None:
    place.python("virtual/bin/python3", version="3.10")
    place.python("project/.venv/bin/python3", package=None)
    place.python("path/python3", package="77.1.0")
    variables = {
        "VIRTUAL_ENV": str(place.folder / "virtual"),
        "PATH": str(place.folder / "path"),
    }
    done = place.serve(**variables)
    assert done.returncode == 6
    assert "3.11 is the oldest" in done.stderr
    assert "VIRTUAL_ENV" in done.stderr
    (place.folder / "virtual/bin/python3").unlink()
    done = place.serve(**variables)
    shown = place.folder / "project/.venv/bin/python3"
    assert f"`{shown} -m pip install wheels/justapi-{VERSION}-*.whl`" in done.stderr
    shown.unlink()
    done = place.serve(**variables)
    assert done.returncode == 6
    assert f"has `justapi` 77.1.0, this is {VERSION}" in done.stderr
    shown = place.folder / "path/python3"
    assert f"`{shown} -m pip install wheels/justapi-{VERSION}-*.whl`" in done.stderr
    place.python("path/python3", package=f"{VERSION.rpartition('.')[0]}.99")
    assert place.taken(**variables) == "path/python3"


def test_one_that_cannot_be_run_is_named_if_no_other_fits(place: Place) -> None:
    broken = place.python("project/.venv/bin/python3")
    broken.write_text("#!/nowhere/at/all\n")
    done = place.serve()
    assert done.returncode == 6
    assert f"{broken} cannot be used" in done.stderr
    place.python("conda/bin/python3")
    assert place.taken(CONDA_PREFIX=str(place.folder / "conda")) == "conda/bin/python3"


def test_a_version_chooses_among_those_that_are_there(place: Place) -> None:
    place.python("project/.venv/bin/python3", version="3.11")
    place.python("path/python3", version="3.12")
    place.python("path/python3.13", version="3.13")
    place.python("path/python3.14t", version="3.14t")
    place.python("path/python3.14", version="3.14", package=None)
    variables = {"PATH": str(place.folder / "path")}
    for version, path in [
        ("3.11", "project/.venv/bin/python3"),
        ("3.12", "path/python3"),
        ("3.13", "path/python3.13"),
        ("3.14t", "path/python3.14t"),
    ]:
        assert place.taken("--python", version, **variables) == path
        assert place.taken(JUSTAPI_PYTHON__INTERPRETER=version, **variables) == path
        (place.project / "justapi.toml").write_text(f'[python]\ninterpreter = "{version}"\n')
        assert place.taken(**variables) == path
        (place.project / "justapi.toml").unlink()
    done = place.serve("--python", "3.14", **variables)
    assert done.returncode == 6
    assert "python3.14 does not have the package" in done.stderr
    done = place.serve("--python", "3.15", **variables)
    assert done.returncode == 6
    assert "there is no Python 3.15" in done.stderr


def test_an_interpreter_that_is_reached_twice_is_asked_once(place: Place) -> None:
    place.python("virtual/bin/python3", package=None)
    folder = str(place.folder / "virtual")
    place.serve(VIRTUAL_ENV=folder, CONDA_PREFIX=folder, PATH=f"{folder}/bin:{folder}/bin")
    assert place.asked() == ["virtual/bin/python3"]


def test_the_environment_needs_no_variables_at_all(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("raise RuntimeError('it was imported')")
    done = subprocess.run(
        [PROGRAM, "serve", "app:app", "--port", "0"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 4
    assert "it was imported" in done.stderr
    assert os.fspath(tmp_path) in done.stderr or "app.py" in done.stderr
