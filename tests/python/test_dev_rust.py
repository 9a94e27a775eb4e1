"""`justapi dev` of a package in Rust: built, served once it answers, and the last good one kept."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dev import Dev, replace, write
from serving import PROGRAM, eventually, is_alive, run

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
ENVIRONMENT = {"CARGO_TARGET_DIR": str(TARGET), "CARGO_NET_OFFLINE": "true"}
BUILD_PATIENCE = 180.0
"""Seconds for the compiler and the linker, which others may keep waiting."""

LIBRARY = """
use justapi_core::{Error, Request, Response, Router, inline};

pub fn routes() -> Result<Router, Error> {
    BEFORE
    Router::new().get("/", inline(|_: Request| Response::json("VERSION")))
}
"""


def library(version: str, before: str = "", after: str = "") -> str:
    """The text of a library whose server says its version on `/`."""
    return LIBRARY.replace("VERSION", version).replace("BEFORE", before) + after


def awaited(dev: Dev, name: str, count: int = 1) -> dict[str, Any]:
    """Waits for the event of this name and number for as long as a build may take."""
    deadline = time.monotonic() + BUILD_PATIENCE
    while len(dev.events(name)) < count:
        assert dev.process.poll() is None, dev.said
        assert time.monotonic() < deadline, f"no {name}: {dev.events()} {dev.said}"
        time.sleep(0.02)
    return dev.events(name)[count - 1]


def serves(dev: Dev, version: str) -> None:
    """Waits until a version is served, for as long as a build may take."""
    deadline = time.monotonic() + BUILD_PATIENCE
    while (text := dev.get().text) != f'"{version}"':
        assert time.monotonic() < deadline, f"{text} {dev.events()} {dev.said}"
        time.sleep(0.02)


class Package(Dev):
    """`justapi dev` of a package in Rust, once it has said whether that works."""

    def __init__(self, folder: Path, *arguments: str, **variables: str) -> None:
        super().__init__(folder, *arguments, waits=False, **ENVIRONMENT, **variables)
        try:
            self.url = awaited(self, "listening")["url"]
            self.wait_for("watching")
        except BaseException:
            self._end()
            raise

    def save(self, text: str, name: str = "app.py") -> None:
        """Saves a file by a rename: each save is one change, however slow the machine is."""
        replace(self.folder / name, text)

    def reloaded(self, count: int) -> dict[str, Any]:
        """Waits for a reload."""
        return awaited(self, "reload", count)

    def failed(self, count: int) -> dict[str, Any]:
        """Waits for a failure, and returns what was wrong."""
        error: dict[str, Any] = awaited(self, "failed", count)["error"]
        return error


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of the template, whose dependencies are built."""
    folder = tmp_path_factory.mktemp("rust") / "dev-sample"
    flags = ("--template=rust", f"--set=core={ROOT / 'core'}", "--set=docker=false")
    result = run(ROOT, "new", str(folder), "--yes", "--vcs=none", *flags, "--set=ci=false")
    assert result.returncode == 0, result.stderr
    # The versions that the checkout was tested with, and that the machine has.
    shutil.copy(ROOT / "Cargo.lock", folder / "Cargo.lock")
    subprocess.run(
        ["cargo", "build", "--bins"],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=1200,
    )
    return folder


@pytest.fixture
def package(made: Path, tmp_path: Path) -> Path:
    """A package with the main program of the template, which says `v1`."""
    folder = tmp_path / "dev-sample"
    shutil.copytree(made, folder)
    shutil.rmtree(folder / "tests")
    (folder / "src/notes.rs").unlink()
    write(folder / "src/lib.rs", library("v1"))
    return folder


def test_what_is_saved_is_built_and_served(package: Path) -> None:
    with Package(package) as dev:
        listening = dev.events("listening")[0]
        assert (listening["ok"], listening["application"]) == (True, "dev-sample")
        assert listening["python"] is None
        assert dev.get().text == '"v1"'
        # Of the server's own, so it is its header that is seen.
        assert dev.get("/ready").status_code == 200
        dev.save(library("v2"), "src/lib.rs")
        reload = dev.reloaded(1)
        assert reload["files"] == ["src/lib.rs"]
        assert reload["worker"] != listening["worker"]
        answer = dev.get()
        assert (answer.text, answer.headers.get("x-justapi-stale")) == ('"v2"', None)
        # What is for tests alone, and what tells nothing new, builds nothing.
        write(package / "tests/api.rs", "#[test] fn works() {}\n")
        (package / "src/lib.rs").touch()
        # A file that the compiler reads is a source; when it comes, and when it changes.
        write(package / "greeting.txt", "v3")
        text = library("XX").replace('"XX"', 'include_str!("../greeting.txt")')
        dev.save(text, "src/lib.rs")
        assert dev.reloaded(2)["files"] == ["src/lib.rs"]
        assert dev.get().text == '"v3"'
        assert len(dev.events("building")) == 3
        write(package / "greeting.txt", "v4")
        assert dev.reloaded(3)["files"] == ["greeting.txt"]
        assert dev.get().text == '"v4"'
        # The lock alone makes no other program: what serves goes on.
        worker = dev.events("reload")[-1]["worker"]
        num_built = len(dev.events("built"))
        with (package / "Cargo.lock").open("a") as lock:
            lock.write("\n# the same\n")
        assert awaited(dev, "built", num_built + 1)["changed"] is False
        assert dev.get().text == '"v4"'
        assert is_alive(worker)
        assert dev.stop() == 0
        assert not is_alive(worker)


def test_errors_of_the_compiler_are_shown_and_the_last_good_goes_on(package: Path) -> None:
    write(package / "src/lib.rs", library("v1", "let x: u32 = nowhere;"))
    with Package(package) as dev:
        assert dev.events("listening")[0]["ok"] is False
        error = dev.failed(1)
        assert error["exception"] == "error[E0425]: cannot find value `nowhere` in this scope"
        assert (error["file"], error["line"]) == ("src/lib.rs", 5)
        assert {"line": 5, "text": "    let x: u32 = nowhere;"} in error["source"]
        page = dev.get(accept="text/html")
        assert page.status_code == 503
        for text in ("cannot find value", "src/lib.rs", "nowhere;", "not found in this scope"):
            assert text in page.text
        assert "\x1b" not in page.text
        assert "cannot find value" in dev.get().text
        # The terminal has what the compiler shows.
        eventually("it is said", lambda: "--> src/lib.rs:5:18" in dev.said)

        dev.save(library("v2"), "src/lib.rs")
        serves(dev, "v2")
        dev.save(library("v3", "}"), "src/lib.rs")
        assert dev.failed(2)["file"] == "src/lib.rs"
        answer = dev.get()
        assert (answer.text, answer.headers["x-justapi-stale"]) == ('"v2"', "1")
        # What cargo itself finds wrong.
        manifest = (package / "Cargo.toml").read_text()
        dev.save(manifest.replace("[dependencies]", "[dependencies]\nnone-such = 7"), "Cargo.toml")
        assert dev.failed(3)["exception"].startswith("error: ")
        dev.save(manifest, "Cargo.toml")
        dev.save(library("v4"), "src/lib.rs")
        serves(dev, "v4")
        assert "x-justapi-stale" not in dev.get().headers


@pytest.mark.parametrize(
    ("before", "what", "exception", "line"),
    [
        ('panic!("no luck");', "exit status 101", "panicked: no luck", 5),
        ("std::process::exit(3);", "exit status 3", None, None),
        ("std::process::abort();", "killed by SIGABRT", None, None),
    ],
)
def test_a_program_that_ends_at_its_start_is_a_failure(
    package: Path, before: str, what: str, exception: str | None, line: int | None
) -> None:
    with Package(package) as dev:
        dev.save(library("v2", "#[allow(unreachable_code)]\n    " + before), "src/lib.rs")
        error = dev.failed(1)
        assert what in error["what"]
        assert error["exception"] == exception
        if line is not None:
            assert (error["file"], error["line"]) == ("src/lib.rs", line + 1)
        answer = dev.get()
        assert (answer.text, answer.headers["x-justapi-stale"]) == ('"v1"', "1")
        dev.save(library("v3"), "src/lib.rs")
        serves(dev, "v3")


def test_a_server_that_does_not_answer_is_told_why(package: Path) -> None:
    write(package / "src/main.rs", "fn main() { loop { std::thread::park(); } }\n")
    with Package(package, "--start-timeout", "1s") as dev:
        error = dev.failed(1)
        assert error["what"] == "the application did not start in time"
        assert "LISTEN_FDS" in error["hint"]


BLOCKING = """
use std::{env, fs, path::Path, process, thread, time::Duration};

fn main() {
    println!("cargo::rerun-if-changed=src");
    let folder = env::var("HELD_IN").unwrap();
    if Path::new(&folder).join("hold").exists() {
        fs::write(Path::new(&folder).join("pid~"), process::id().to_string()).unwrap();
        fs::rename(Path::new(&folder).join("pid~"), Path::new(&folder).join("pid")).unwrap();
    }
    while Path::new(&folder).join("hold").exists() {
        thread::sleep(Duration::from_millis(10));
    }
}
"""


@pytest.fixture
def held(package: Path, tmp_path: Path) -> Callable[[], int]:
    """Has the builds of the package wait while there is a file; returns who waits."""
    write(package / "build.rs", BLOCKING)

    def waiting() -> int:
        pid = tmp_path / "pid"
        deadline = time.monotonic() + BUILD_PATIENCE
        while not pid.exists():
            assert time.monotonic() < deadline, "nothing is built"
            time.sleep(0.02)
        number = int(pid.read_text())
        pid.unlink()
        return number

    return waiting


def test_a_save_during_a_build_begins_the_next_one(
    package: Path, held: Callable[[], int], tmp_path: Path
) -> None:
    with Package(package, HELD_IN=str(tmp_path)) as dev:
        (tmp_path / "hold").touch()
        dev.save(library("v2"), "src/lib.rs")
        first = held()
        # The last good one serves while it is built.
        answer = dev.get()
        assert (answer.text, answer.headers["x-justapi-stale"]) == ('"v1"', "1")
        dev.save(library("v3"), "src/lib.rs")
        second = held()
        eventually("the first build has gone", lambda: not is_alive(first))
        assert is_alive(second)
        (tmp_path / "hold").unlink()
        dev.reloaded(1)
        assert dev.get().text == '"v3"'
        assert len(dev.events("building")) == 3
        assert dev.events("failed") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_build_outlives_it(
    package: Path, held: Callable[[], int], tmp_path: Path, number: int
) -> None:
    (tmp_path / "hold").touch()
    variables = {**ENVIRONMENT, "HELD_IN": str(tmp_path)}
    with Dev(package, waits=False, **variables) as dev:
        builder = held()
        cargo = int(Path(f"/proc/{builder}/stat").read_text().rsplit(")", 1)[1].split()[1])
        assert "cargo" in Path(f"/proc/{cargo}/cmdline").read_text()
        dev.signal(number)
        assert dev.wait() == 0
        assert not is_alive(builder)
        assert not is_alive(cargo)


def test_one_at_a_time_goes_only_for_code_that_was_built(
    package: Path, held: Callable[[], int], tmp_path: Path
) -> None:
    with Package(package, "--reload-strategy=stop-first", HELD_IN=str(tmp_path)) as dev:
        (tmp_path / "hold").touch()
        dev.save(library("v2", "nowhere"), "src/lib.rs")
        held()
        assert dev.get().text == '"v1"'
        (tmp_path / "hold").unlink()
        dev.failed(1)
        assert dev.get().text == '"v1"'
        dev.save(library("v3"), "src/lib.rs")
        dev.reloaded(1)
        assert dev.get().text == '"v3"'


def test_the_server_ends_with_it(package: Path) -> None:
    with Package(package) as dev:
        worker = dev.events("listening")[0]["worker"]
        assert Path(f"/proc/{worker}/exe").readlink().name == "dev-sample"
        os.kill(worker, signal.SIGKILL)
        # As with every worker.
        awaited(dev, "reload")
        assert dev.get().text == '"v1"'
        worker = dev.events("reload")[0]["worker"]
        dev.process.kill()
        dev.wait()
        eventually("the server has gone", lambda: not is_alive(worker))


def test_one_of_several_binaries_is_named(package: Path, tmp_path: Path) -> None:
    shutil.copy(package / "src/main.rs", package / "src/other.rs")
    write(package / "src/bin/other.rs", (package / "src/main.rs").read_text())
    (package / "src/other.rs").unlink()
    with Package(package) as dev:
        error = dev.failed(1)
        assert error["what"] == "there are several binaries: dev-sample, other"
        assert "--bin dev-sample" in error["hint"]
    # Run from elsewhere, by its folder.
    with Package(tmp_path, "dev-sample", "--bin", "other") as dev:
        listening = dev.events("listening")[0]
        assert (listening["ok"], listening["application"]) == (True, "other")
        assert Path(f"/proc/{listening['worker']}/exe").readlink().name == "other"
        dev.save(library("v2"), "dev-sample/src/lib.rs")
        dev.reloaded(1)
        assert dev.get().text == '"v2"'


def test_cargo_is_needed(package: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    command = [PROGRAM, "dev", "--json"]
    result = subprocess.run(
        command,
        cwd=package,
        env={**os.environ, "PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 6
    assert json.loads(result.stdout)["error"]["code"] == "JA603"
    assert "rustup" in result.stderr + result.stdout


def test_bin_is_for_packages(tmp_path: Path) -> None:
    result = run(tmp_path, "dev", "--bin", "x")
    assert result.returncode == 4
    assert "there is no Cargo.toml" in result.stderr


def test_metrics_of_their_own_are_for_the_program_to_have(package: Path) -> None:
    result = run(package, "dev", "--metrics", "127.0.0.1:0")
    assert result.returncode == 2
    assert "a server in Rust has its own" in result.stderr
