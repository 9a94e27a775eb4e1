"""Each project's own tests and types, as its user runs them: offline, against what was built."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from urllib.request import urlopen

import pytest
from conftest import JUSTAPI, NAME, ROOT, TARGET, WHEEL_PYTHON, Make, run

MODULE = NAME.replace("-", "_")


def pytest_of(project: Path, **environment: str) -> str:
    command = (WHEEL_PYTHON, "-W", "error::DeprecationWarning:app", "-m", "pytest", "-q", "-rP")
    output = run(*command, "-p", "no:cacheprovider", cwd=project, **environment)
    assert " passed" in output and "skipped" not in output
    # Whoever looks at what a test has printed wants to see that alone.
    assert "alembic.runtime" not in output
    return output


def mypy_of(project: Path, *what: str) -> None:
    cache = f"--cache-dir={TARGET / 'mypy-cache-templates'}"
    run(WHEEL_PYTHON, "-m", "mypy", cache, *what, cwd=project)


def served(project: Path, path: str, *application: str, **environment: str) -> str:
    """What `justapi serve` answers in the project, of which it finds the application."""
    command = [JUSTAPI, "serve", *application, "--port=0", "--python", WHEEL_PYTHON, "--json"]
    with TemporaryFile() as errors:
        server = subprocess.Popen(
            [str(word) for word in command],
            cwd=project,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if '"listening"' in line:
                    url = line.split('"url":"')[1].split('"')[0]
                    with urlopen(f"{url}{path}", timeout=60) as answer:
                        return answer.read().decode()
            errors.seek(0)
            raise AssertionError(f"it ended before it listened: {errors.read().decode()}")
        finally:
            server.terminate()
            assert server.wait(60) == 0
            server.stdout.close()
            errors.seek(0)
            said = errors.read().decode()
            assert "alembic" not in said, said


def test_minimal(make: Make) -> None:
    project = make("minimal")
    pytest_of(project)
    mypy_of(project, ".")
    assert served(project, "/squares/4") == '{"number":4,"result":16}'


def test_api_on_sqlite(make: Make, tmp_path: Path) -> None:
    project = make("api", db="sqlite")
    pytest_of(project)
    mypy_of(project)
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path / 'app.db'}"}
    run(WHEEL_PYTHON, "-m", "alembic", "upgrade", "head", cwd=project, **environment)
    document = served(project, "/openapi.json", **environment)
    assert '"/notes/{note_id}"' in document
    # Where it is installed it has a name.
    environment["PYTHONPATH"] = "src"
    assert served(project, "/openapi.json", f"{MODULE}.main:app", **environment) == document


def programs_of_postgres() -> Path:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    # Debian keeps them off PATH, a folder for each version.
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    assert installed, "PostgreSQL is missing: apt-get install postgresql"
    return installed[-1].parent


@pytest.fixture
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on a socket of its own, with nothing to keep."""
    programs = programs_of_postgres()
    # The path of a socket is short.
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    # PostgreSQL does not run as root.
    prefix = []
    if os.geteuid() == 0:
        prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
        os.chown(folder, 65534, 65534)
    data = folder / "data"
    try:
        initdb = (programs / "initdb", "--no-sync", "--auth=trust", "--username=postgres")
        run(*prefix, *initdb, "--encoding=UTF8", "--locale=C", "-D", data, cwd=folder)
        flags = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        start = (programs / "pg_ctl", "start", "-w", "-t", "120", "-l", folder / "log")
        # Its log must not keep our pipes open.
        run(*prefix, *start, "-D", data, "-o", flags, cwd=folder)
        try:
            yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
        finally:
            run(*prefix, programs / "pg_ctl", "stop", "-m", "immediate", "-D", data, cwd=folder)
    finally:
        shutil.rmtree(folder)


def test_api_on_postgres(make: Make, postgres: str) -> None:
    project = make("api", db="postgres")
    # As hosting services write it.
    url = postgres.replace("postgresql+psycopg://", "postgres://")
    pytest_of(project, DATABASE_URL=url)
    mypy_of(project)


@pytest.mark.parametrize("name", ["x", "shop-2.v1", "A" * 48])
@pytest.mark.parametrize("template", ["minimal", "api"])
def test_any_name_that_is_taken_works(make: Make, template: str, name: str) -> None:
    project = make(template, name=name)
    code = "import app"
    if template == "api":
        module = name.lower().replace("-", "_").replace(".", "_")
        code = f"import sys; sys.path.insert(0, 'src'); import {module}.main"
    run(WHEEL_PYTHON, "-c", code, cwd=project, PYTHONDONTWRITEBYTECODE="1")


def test_odd_paths(tmp_path: Path) -> None:
    project = tmp_path / "a b'ü$x" / "my api"
    project.parent.mkdir()
    run(JUSTAPI, "new", project, "--yes", "--name=my-api", "--vcs=none", cwd=ROOT)
    pytest_of(project)
    assert served(project, "/") == '{"hello":"world"}'


def test_rust(make: Make) -> None:
    project = make("rust")
    # The versions that the checkout was tested with, and that the machine has.
    shutil.copy(ROOT / "Cargo.lock", project / "Cargo.lock")
    environment = {"CARGO_TARGET_DIR": str(TARGET), "CARGO_TERM_COLOR": "never"}
    run("cargo", "fmt", "--check", cwd=project)
    output = run("cargo", "test", "--offline", cwd=project, **environment)
    assert "test result: ok. 2 passed" in output
    clippy = ("cargo", "clippy", "--offline", "--quiet", "--all-targets", "--", "-D", "warnings")
    run(*clippy, cwd=project, **environment)


def test_rust_has_to_know_where_core_is(make: Make, tmp_path: Path) -> None:
    command = [JUSTAPI, "new", "shop", "--yes", "--template=rust", "--vcs=none"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "--set core=TEXT" in result.stderr and "git repository" in result.stderr
    assert not (tmp_path / "shop").exists()
    url = "https://git.example/justapi.git"
    for core, expected in ((url, f'git = "{url}"'), ("/a b/core", 'path = "/a b/core"')):
        project = make("rust", core=core)
        assert f"justapi-core = {{ {expected} }}\n" in (project / "Cargo.toml").read_text()
        is_path = not core.startswith("https")
        assert ("for this machine alone" in (project / "README.md").read_text()) == is_path
