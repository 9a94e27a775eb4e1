"""What `justapi dev` takes for a change, and what not."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dev import Dev, app, replace, write
from serving import eventually

if TYPE_CHECKING:
    from collections.abc import Callable


def reloads(dev: Dev) -> list[list[str]]:
    """The files that each reload was for."""
    return [event["files"] for event in dev.events("reload", "failed")]


def test_what_the_application_writes_reloads_nothing(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    write(tmp_path / "sub" / "module.py", "x = 1\n")
    write(tmp_path / "test_app.py", "")
    with Dev(tmp_path) as dev:
        database = sqlite3.connect(tmp_path / "x.db")
        for number in range(20):
            with (tmp_path / "app.log").open("a") as log:
                log.write(f"{number}\n")
            database.execute("pragma journal_mode=wal")
            database.execute("create table if not exists t(a)")
            database.execute("insert into t values (1)")
            database.commit()
            os.utime(tmp_path / "app.py")
            # The same content, as a formatter without effect writes it.
            replace(tmp_path / "app.py", app("1"))
            write(tmp_path / "sub" / "module.py", "x = 1\n")
            write(tmp_path / ".venv" / "lib" / "x.py", f"{number}")
            write(tmp_path / "__pycache__" / "x.py", f"{number}")
            write(tmp_path / "node_modules" / "x" / "x.py", f"{number}")
            write(tmp_path / "data.json", f"{number}")
            write(tmp_path / ".#app.py", f"{number}")
            write(tmp_path / "test_app.py", f"{number}")
            assert dev.get().text == '"1"'
        database.close()
        # What comes after it shows that all of it has been looked at.
        dev.save(app("2"))
        dev.wait_for("reload")
        assert reloads(dev) == [["app.py"]]


def save_like_vim(path: Path, text: str) -> None:
    folder = path.parent
    (folder / "4913").touch()
    (folder / "4913").unlink()
    (folder / f".{path.name}.swp").write_text("swap")
    path.rename(f"{path}~")
    path.write_text(text)
    Path(f"{path}~").unlink()
    (folder / f".{path.name}.swp").unlink()


def save_like_vs_code(path: Path, text: str) -> None:
    with path.open("r+") as file:
        file.truncate(0)
        file.write(text)


def save_like_jetbrains(path: Path, text: str) -> None:
    new, old = Path(f"{path}___jb_tmp___"), Path(f"{path}___jb_old___")
    new.write_text(text)
    path.rename(old)
    new.rename(path)
    old.unlink()


def save_like_emacs(path: Path, text: str) -> None:
    lock = path.with_name(f".#{path.name}")
    lock.symlink_to("somebody@somewhere")
    path.with_name(f"#{path.name}#").write_text(text)
    shutil.copy(path, f"{path}~")
    path.write_text(text)
    path.with_name(f"#{path.name}#").unlink()
    lock.unlink()


def save_like_sed(path: Path, text: str) -> None:
    subprocess.run(
        ["sed", "-i", f"s/^VERSION.*/{_version_line(text)}/", path.name],
        cwd=path.parent,
        check=True,
    )


def _version_line(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("VERSION"))


@pytest.mark.parametrize(
    "save",
    [write, replace, save_like_vim, save_like_vs_code, save_like_jetbrains, save_like_emacs,
     save_like_sed],
)  # fmt: skip
def test_each_save_is_one_reload(tmp_path: Path, save: Callable[[Path, str], None]) -> None:
    path = tmp_path / "app.py"
    write(path, app("0"))
    with Dev(tmp_path) as dev:
        for number in range(1, 9):
            save(path, app(str(number)))
            assert dev.get().text == f'"{number}"'
            dev.wait_for("reload", number)
        assert reloads(dev) == [["app.py"]] * 8


def test_a_file_that_is_written_in_two_steps_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    write(path, app("1"))
    with Dev(tmp_path) as dev:

        def is_no_failure(version: int) -> bool:
            before = len(dev.events("failed"))
            text = app(str(version))
            with path.open("w") as file:
                file.write(text[: len(text) // 2] + "(")
                file.flush()
                time.sleep(0.03)
                file.seek(0)
                file.truncate()
                file.write(text)
            dev.serves(str(version))
            return len(dev.events("failed")) == before

        # A machine that stalls between the two makes it one: not each time.
        assert any(is_no_failure(version) for version in range(2, 8))


def test_a_storm_is_one_reload(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    for number in range(300):
        write(tmp_path / "parts" / f"p{number}.py", "x = 1\n")
    with Dev(tmp_path) as dev:
        begun = time.monotonic()
        for number in range(300):
            write(tmp_path / "parts" / f"p{number}.py", "x = 2\n")
        write(tmp_path / "app.py", app("2"))
        elapsed = time.monotonic() - begun
        dev.serves("2")
        changed = eventually("all of them", lambda: _all_changed(dev, 301))
        # A machine that stalls makes pauses in it, which end a change.
        assert len(changed) <= 3 + elapsed / 0.02


def _all_changed(dev: Dev, count: int) -> list[list[str]] | None:
    found = reloads(dev)
    names = {name for files in found for name in files}
    return found if len(names) == count else None


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_checkout_is_one_change(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1", before="from parts import p0\n"))
    for number in range(50):
        write(tmp_path / "parts" / f"p{number}.py", "x = 1\n")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    git(tmp_path, "checkout", "-qb", "two")
    write(tmp_path / "app.py", app("2"))
    shutil.rmtree(tmp_path / "parts")
    git(tmp_path, "commit", "-qam", "two")
    git(tmp_path, "checkout", "-q", "main")
    with Dev(tmp_path) as dev:
        git(tmp_path, "checkout", "-q", "two")
        dev.serves("2")
        git(tmp_path, "checkout", "-q", "main")
        dev.serves("1")
        assert dev.events("failed") == []
        assert dev.get().text == '"1"'


def test_new_folders_and_moved_ones_are_seen(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1", before="from pkg.part import NAME\n"))
    write(tmp_path / "pkg" / "part.py", 'NAME = "a"\n')
    with Dev(tmp_path) as dev:
        (tmp_path / "pkg").rename(tmp_path / "old")
        dev.wait_for("failed")
        write(tmp_path / "pkg" / "deep" / "er" / "x.py", "")
        write(tmp_path / "pkg" / "part.py", "from pkg.deep.er.x import *\nNAME = 2\n")
        assert dev.get().text == '"1"'
        eventually("it works again", lambda: "x-justapi-stale" not in dev.get().headers)
        before = len(dev.events("reload"))
        # Below a folder that was not there at the start.
        write(tmp_path / "pkg" / "deep" / "er" / "x.py", "y = 1\n")
        dev.wait_for("reload", before + 1)


def renamed_over(folder: Path, other: Path) -> None:
    folder.rename(folder.with_name("away"))
    other.rename(folder)
    shutil.rmtree(folder.with_name("away"))


def made_anew(folder: Path, other: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    for inner in other.iterdir():
        inner.rename(folder / inner.name)
    other.rmdir()


@pytest.mark.parametrize("replaced", [renamed_over, made_anew])
@pytest.mark.parametrize("name", ["project", "project/gen", "project/ignored"])
def test_a_folder_that_is_replaced_is_watched_on(
    tmp_path: Path, name: str, replaced: Callable[[Path, Path], None]
) -> None:
    project = tmp_path / "project"
    write(project / ".gitignore", "ignored/\n")
    write(project / "gen" / "deep" / "x.py", "x = 0\n")
    write(project / "ignored" / "y.py", "y = 0\n")
    importing = "import sys\nsys.path.insert(0, 'ignored')\nimport y\n"
    write(project / "app.py", app("0", before=importing))
    with Dev(project) as dev:
        for number in range(1, 4):
            shutil.copytree(tmp_path / name, tmp_path / "next")
            replaced(tmp_path / name, tmp_path / "next")
            # Whatever it made of that.
            write(project / "app.py", app(str(number), before=importing))
            dev.serves(str(number))
            for inner in ("gen/deep/x.py", "ignored/y.py"):
                before = len(reloads(dev))
                write(project / inner, f"x = {number}\n")
                eventually(
                    f"{inner} is seen",
                    lambda inner=inner, before=before: any(
                        inner in files for files in reloads(dev)[before:]
                    ),
                )
            dev.serves(str(number))


def test_ignored_files_count_once_they_are_imported(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "_version.py\ngenerated/\nother.py\n")
    write(tmp_path / "_version.py", "V = 1\n")
    write(tmp_path / "generated" / "code.py", "V = 1\n")
    write(tmp_path / "other.py", "")
    write(tmp_path / "app.py", app("1", before="import _version\nfrom generated import code\n"))
    with Dev(tmp_path) as dev:
        write(tmp_path / "other.py", "V = 2\n")
        write(tmp_path / "_version.py", "V = 2\n")
        dev.wait_for("reload", 1)
        write(tmp_path / "generated" / "code.py", "V = 2\n")
        dev.wait_for("reload", 2)
        assert reloads(dev) == [["_version.py"], ["generated/code.py"]]


def test_patterns_leave_out_and_add(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    for name in ("data/deep/x.py", "data/keep.py", "settings.yaml"):
        write(tmp_path / name, "1\n")
    arguments = ["--reload-ignore", "data/**", "--reload-ignore", "!data/keep.py"]
    with Dev(tmp_path, *arguments, "--reload-include", "*.yaml") as dev:
        for count, name in enumerate(("data/keep.py", "settings.yaml"), 1):
            write(tmp_path / "data/deep/x.py", f"{count}\n\n")
            write(tmp_path / name, "2\n")
            dev.wait_for("reload", count)
        assert reloads(dev) == [["data/keep.py"], ["settings.yaml"]]


def test_polling_needs_no_events(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    with Dev(tmp_path, "--poll", "--poll-interval", "50ms") as dev:
        assert dev.wait_for("watching")["poll_ms"] == 50
        # Whoever asks does not even wait for the next look.
        for number in range(2, 5):
            dev.save(app(str(number)))
            assert dev.get().text == f'"{number}"'
        write(tmp_path / "new.py", "")
        dev.wait_for("reload", 4)
        assert reloads(dev)[-1] == ["new.py"]


def test_a_link_that_is_swapped_is_a_change(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for version in ("1", "2"):
        write(tmp_path / version / "config.py", f"V = {version}\n")
    project.mkdir()
    (project / "mounted").symlink_to(tmp_path / "1")
    (project / "around").symlink_to(project)
    importing = "import sys\nsys.path.insert(0, 'mounted')\nimport config\n"
    after = "\nVERSION = str(config.V)\n"
    write(project / "app.py", app("0", before=importing, after=after))
    with Dev(project) as dev:
        assert dev.get().text == '"1"'
        (project / "next").symlink_to(tmp_path / "2")
        (project / "next").rename(project / "mounted")
        dev.serves("2")


def test_odd_paths_are_served(tmp_path: Path) -> None:
    folder = tmp_path / "a b'ü$x\"\n-"
    folder.mkdir()
    write(folder / "app.py", app("1", before="import mödul\n"))
    write(folder / "mödul.py", "")
    with Dev(folder) as dev:
        write(folder / "mödul.py", "x = 1\n")
        dev.wait_for("reload")
        assert reloads(dev) == [["mödul.py"]]
        dev.save("oops(\n")
        assert dev.get().text == '"1"'
        assert "SyntaxError" in dev.wait_for("failed")["error"]["exception"]


def test_a_root_that_goes_and_comes_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    write(folder / "app.py", app("1"))
    with Dev(folder) as dev:
        folder.rename(tmp_path / "away")
        # Whatever it says, it says something.
        dev.get()
        (tmp_path / "away").rename(folder)
        dev.save(app("2"))
        dev.serves("2")


def test_many_files_are_no_hurdle(tmp_path: Path) -> None:
    write(tmp_path / "app.py", app("1"))
    for folder in range(100):
        (tmp_path / f"f{folder}").mkdir()
        for number in range(50):
            (tmp_path / f"f{folder}" / f"m{number}.py").write_text("x = 1\n")
    with Dev(tmp_path) as dev:
        assert dev.wait_for("watching")["files"] == 5001
        dev.save(app("2"))
        assert dev.get().text == '"2"'
        write(tmp_path / "f99" / "m49.py", "x = 2\n")
        dev.wait_for("reload", 2)
        assert reloads(dev)[-1] == ["f99/m49.py"]
