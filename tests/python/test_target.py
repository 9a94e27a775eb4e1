"""Which application a command means: by its name, by the settings, by the folder."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from dev import Dev
from serving import PROGRAM, Server, eventually, run

if TYPE_CHECKING:
    from pathlib import Path

APP = """
from justapi import JustAPI
{before}
{name} = JustAPI()

@{name}.get("/{route}")
def handler():
    return "{route}"
"""


def app(route: str, name: str = "app", before: str = "") -> str:
    """An application with one route."""
    return APP.format(route=route, name=name, before=before)


def write(folder: Path, files: dict[str, str]) -> None:
    """Writes modules, named by their paths without `.py`."""
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def routes(folder: Path, *arguments: str, **variables: str) -> set[str]:
    """The routes that `justapi routes` lists."""
    done = subprocess.run(
        [PROGRAM, "routes", "--json", *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done
    return {route["path"] for route in json.loads(done.stdout)["routes"] if not route["is_own"]}


def served(folder: Path, command: str, *arguments: str) -> dict[str, Any]:
    """What `serve` or `dev` says when it listens."""
    process = subprocess.Popen(
        [PROGRAM, command, "--json", "--port", "0", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        events = (json.loads(line) for line in process.stdout)
        listening = next((one for one in events if one["event"] == "listening"), None)
        process.terminate()
        _, errors = process.communicate(timeout=120)
        assert listening is not None, errors
        return {**listening, "said": errors}
    finally:
        process.kill()
        process.communicate()


def test_every_command_finds_the_application_of_the_folder(tmp_path: Path) -> None:
    write(tmp_path, {"app": app("mine")})
    assert routes(tmp_path) == {"/mine"}
    assert "/mine" in json.loads(run(tmp_path, "openapi").stdout)["paths"]
    checked = json.loads(run(tmp_path, "check", "--json").stdout)
    assert checked["application"] == "app:app"
    assert checked["routes"] == 1
    found = json.loads(run(tmp_path, "doctor", "--json").stdout)
    assert found["application"] == "app:app"
    said = [one["message"] for one in found["checks"] if one["name"] == "application"]
    assert said[0].startswith("app:app is imported in "), said
    assert said[0].endswith(" ms and has 1 route"), said
    assert served(tmp_path, "serve")["application"] == "app:app"
    assert served(tmp_path, "dev")["application"] == "app:app"
    profile = ["--path", "/mine", "-z", "300ms", "--warmup", "0s", "-c", "2", "--json"]
    report = json.loads(run(tmp_path, "profile", *profile).stdout.splitlines()[-1])
    assert report["application"]["name"] == "app:app"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"main": app("a"), "app": app("b")}, "/a"),
        ({"main": "print('a script')", "app": app("b")}, "/b"),
        ({"server": app("a", "shop")}, "/a"),
        ({"app/main": app("a"), "app/db": "x = 1"}, "/a"),
        ({"src/main": app("a", before="import db"), "src/db": ""}, "/a"),
        (
            {
                "src/shop/__init__": "",
                "src/shop/main": app("a", before="from . import db\nfrom shop.db import x"),
                "src/shop/db": "x = 1",
            },
            "/a",
        ),
        # Without an `__init__.py` it is a package, too.
        (
            {
                "src/shop/app": app("a", before="from .db import x\nimport db"),
                "src/shop/db": "x = 1",
            },
            "/a",
        ),
        ({"main": "from web import app", "web": app("a")}, "/a"),
        (
            {
                "main": "def create_app():\n    from web import shop\n    return shop",
                "web": app("a", "shop"),
            },
            "/a",
        ),
    ],
)
def test_where_a_folder_has_its_application(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    write(tmp_path, files)
    assert routes(tmp_path) == {expected}
    assert served(tmp_path, "serve")["said"].count("no application") == 0


def test_several_are_listed_and_none_is_guessed(tmp_path: Path) -> None:
    write(tmp_path, {"src/shop/main": app("a"), "src/admin/main": app("b")})
    for command in ("routes", "serve", "dev", "check", "openapi"):
        done = run(tmp_path, command)
        assert done.returncode == 4, done
        assert "2 applications: `src/admin/main.py:app`, `src/shop/main.py:app`" in done.stderr
        assert "name one of them" in done.stderr
    assert run(tmp_path, "doctor").stdout.count("2 applications: ") == 1
    assert routes(tmp_path, "src/admin/main.py:app") == {"/b"}
    # In one file as well.
    write(
        tmp_path, {"main": "from justapi import JustAPI\npublic = JustAPI()\nadmin = JustAPI()\n"}
    )
    done = run(tmp_path, "routes")
    assert done.returncode == 4
    assert "2 applications: `public`, `admin`" in done.stderr


def test_a_folder_stands_for_its_application(tmp_path: Path) -> None:
    write(tmp_path, {"main": app("here"), "shop/app/main": app("a", before="from app.db import x")})
    write(
        tmp_path,
        {"shop/app/db": "x = 1", "package/main": app("no"), "package/__init__": app("package")},
    )
    for name in ("shop", "shop/", "./shop", str(tmp_path / "shop")):
        assert routes(tmp_path, name) == {"/a"}, name
    assert routes(tmp_path / "shop", "..") == {"/here"}
    assert routes(tmp_path / "shop", ".") == {"/a"}
    # A package is a module first.
    assert routes(tmp_path, "package") == {"/package"}
    assert routes(tmp_path, "package/") == {"/no"}
    (tmp_path / "empty").mkdir()
    done = run(tmp_path, "serve", "empty")
    assert done.returncode == 4
    assert "there is no application in empty" in done.stderr
    with Dev(tmp_path, "shop") as dev:
        assert dev.get("/a").json() == "a"
        # The settings are read anew with the folder that the application is imported from.
        (tmp_path / ".env").write_text("A=1\n")
        dev.wait_for("reload")
        assert dev.get("/a").json() == "a"


def test_the_settings_may_name_it(tmp_path: Path) -> None:
    write(tmp_path, {"main": app("main"), "other/web": app("other"), "sub/empty": ""})
    assert routes(tmp_path, JUSTAPI_APP="other/web.py:app") == {"/other"}
    (tmp_path / "justapi.toml").write_text('app = "other/web.py"\n')
    assert routes(tmp_path) == {"/other"}
    assert routes(tmp_path, "main:app") == {"/main"}
    # It counts from the file, wherever the command is run.
    assert routes(tmp_path / "sub") == {"/other"}
    (tmp_path / "justapi.toml").write_text('app = "main:app"\n')
    assert routes(tmp_path / "sub") == {"/main"}
    assert served(tmp_path / "sub", "serve")["application"] == "main:app"
    with Dev(tmp_path / "sub") as dev:
        assert dev.get("/main").json() == "main"
        (tmp_path / "justapi.toml").write_text('app = "other.web:app"\n')
        note = eventually("it says so", lambda: dev.events("note"))[0]
        assert note["settings"] == ["app"]
    (tmp_path / "justapi.toml").write_text('[server]\napp = "main:app"\n')
    said = run(tmp_path, "routes").stderr
    assert "unknown key `server.app` in justapi.toml:2" in said
    assert "did you mean `app`?" in said


def test_the_demo_is_only_served_where_there_is_no_application(tmp_path: Path) -> None:
    said = served(tmp_path, "serve")
    assert "application" not in said
    assert "there is no application in this folder, so this is the demo" in said["said"]
    write(tmp_path, {"main": "print('a script')"})
    assert "main.py has no application, so this is the demo" in served(tmp_path, "serve")["said"]
    assert "so this is what `justapi serve` serves here: demo" in run(tmp_path, "routes").stderr
    # What flags say is served needs no application, and none is imported.
    write(tmp_path, {"main": app("main", before="open('imported', 'w').close()")})
    (tmp_path / "site").mkdir()
    said = served(tmp_path, "serve", "--static", "/=site")
    assert "application" not in said
    assert not (tmp_path / "imported").exists()
    assert served(tmp_path, "serve", "--static", "/files=site")["application"] == "main:app"
    assert (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("shop.mian:app", "did you mean `shop.main:app`?"),
        ("shpo.main:app", "did you mean `shop.main:app`?"),
        ("shop.main:ap", "did you mean `shop.main:app`?"),
        ("shop.main:App", "did you mean `shop.main:app`?"),
        ("shop.main:create", "its application is `shop.main:app`"),
        ("shop.main.app", "did you mean `shop.main:app`?"),
        ("shop.deep.webb:app", "did you mean `shop.deep.web:app`?"),
        ("shop/mian.py:app", "did you mean `shop/main.py:app`?"),
        ("shpo/main.py", "did you mean `shop/main.py`?"),
        ("shop/main:app", "did you mean `shop/main.py:app`?"),
        ("shop/main.py:ap", "did you mean `shop/main.py:app`?"),
        ("web:app", "did you mean `shop/web.py:app`?"),
        ("lonely.app", "'lonely' is a module, and no package with a module 'app'"),
        ("lonely:make", "if it makes one, name it `lonely:make()`"),
        ("lonely:NUMBER", "is no application but a int"),
        ("shop:app", "did you mean `shop.main:app`?"),
        ("shop:nothing", "'shop' has no attribute 'nothing'"),
        (":app", "'' is not the name of a module"),
        (".shop:app", "'.shop' is not the name of a module"),
        ("shop/deep:app", "shop/deep is a folder"),
    ],
)
def test_what_was_probably_meant_is_said(tmp_path: Path, target: str, expected: str) -> None:
    write(tmp_path, {"shop/main": app("a"), "shop/deep/web": app("b"), "shop/web": app("c")})
    write(
        tmp_path,
        {
            "shop/__init__": "",
            "shop/deep/__init__": "",
            "lonely": "NUMBER = 3\ndef make(): return print\n",
        },
    )
    done = run(tmp_path, "routes", target)
    assert done.returncode == 4, done
    assert expected in done.stderr, done.stderr
    failed = run(tmp_path, "serve", target, "--port", "0")
    assert failed.returncode == 4, failed
    assert expected in failed.stderr, failed.stderr


def test_a_missing_package_is_not_taken_for_a_misspelt_module(tmp_path: Path) -> None:
    broken = {"main": "import sqlbarn\n", "near": "import helperz\n", "helpers": ""}
    write(tmp_path, broken)
    write(tmp_path, {"shop/__init__": "", "shop/main": "from shop import nothing_of_it\n"})
    for command in (["routes"], ["serve", "--port", "0"]):
        done = run(tmp_path, *command, "main:app")
        assert "importing main:app failed" in done.stderr, done.stderr
        assert "that Python has no module `sqlbarn`: install it there" in done.stderr, done.stderr
        done = run(tmp_path, *command, "near:app")
        assert "no module `helperz`; did you mean `helpers`?" in done.stderr, done.stderr
    with Dev(tmp_path, "main:app") as dev:
        text = dev.get("/", accept="text/html").text
        assert "that Python has no module `sqlbarn`" in text
    write(tmp_path, {"selfish/__init__": "import selfish.gone\n"})
    done = run(tmp_path, "routes", "selfish.gone:app")
    assert "importing selfish.gone:app failed" in done.stderr, done.stderr
    done = run(tmp_path, "routes", "shop.main:app")
    assert "cannot import name 'nothing_of_it'" in done.stderr, done.stderr


def test_a_route_without_slash_is_said_at_the_start(tmp_path: Path) -> None:
    source = """
    from justapi import JustAPI
    app = JustAPI()
    @app.get("bare")
    def bare(): ...
    """
    with Server(tmp_path, source) as server:
        assert server.client.get("/bare").status_code == 404
        assert server.stop() == 0
        said = "".join(server.errors)
    assert "no request reaches the route 'bare': write its path as '/bare'" in said


def test_code_beside_a_file_of_a_package_is_found(tmp_path: Path) -> None:
    write(
        tmp_path, {"shop/main": app("a", before="import beside\nfrom shop import beside as other")}
    )
    write(
        tmp_path,
        {
            "shop/__init__": "",
            "shop/beside": "",
            "shop/types": "raise RuntimeError('the module of Python')",
        },
    )
    assert routes(tmp_path, "shop/main.py") == {"/a"}
    # A folder called `src` above the project is not of it.
    project = tmp_path / "src" / "project"
    write(project, {"main": app("b", before="import beside"), "beside": ""})
    assert routes(project, "main.py") == {"/b"}
    assert routes(project, str(project / "main.py")) == {"/b"}
