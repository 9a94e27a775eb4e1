"""Folders: what Starlette serves is served, and no path leads out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import starlette.exceptions
import starlette.staticfiles

from asgi import respond
from justapi.exceptions import HTTPException
from justapi.staticfiles import StaticFiles

MODULES = [
    (StaticFiles, HTTPException),
    (starlette.staticfiles.StaticFiles, starlette.exceptions.HTTPException),
]


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "static"
    (root / "sub").mkdir(parents=True)
    (root / "bare").mkdir()
    (root / "a.txt").write_text("text")
    (root / "sp ace é.css").write_text("css")
    (root / "sub" / "index.html").write_text("<p>index")
    (root / "404.html").write_text("<p>lost")
    sibling = tmp_path / "static_secret"
    sibling.mkdir()
    (sibling / "key").write_text("secret")
    (tmp_path / "outside").write_text("secret")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "inner").symlink_to(root / "a.txt")
    (root / "loop").symlink_to(root / "loop")
    return root


def outcome(pair, options, **scope):
    static_files, http_exception = pair
    try:
        answer = respond(static_files(**options), **scope)
    except http_exception as error:
        return error.status_code, dict(error.headers or {}), b""
    return answer.status, sorted(answer.raw_headers), answer.body


PATHS = [
    "/a.txt",
    "/sp ace é.css",
    "/absent",
    "/sub",
    "/sub/",
    "/bare/",
    "/",
    "/inner",
    "/link",
    "/../outside",
    "/../static_secret/key",
    "/sub/../a.txt",
    "//a.txt",
    "///etc/passwd",
    "/..\\outside",
    "/\0",
    "/a.txt/b",
    "/" + "n" * 5000,
    "/" + "../" * 1000 + "etc/passwd",
    "/.",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("html", [False, True])
def test_the_same_answers(folder, path, method, html):
    options = {"directory": folder, "html": html}
    mine, other = (outcome(pair, options, path=path, method=method) for pair in MODULES)
    assert mine == other
    assert b"secret" not in mine[2]


def test_a_link_that_leads_nowhere_or_in_circles_is_404(folder):
    for path in ("/loop", "/link"):
        assert outcome(MODULES[0], {"directory": folder}, path=path)[0] == 404


def test_links_are_followed_on_request(folder):
    options = {"directory": folder, "follow_symlink": True}
    assert outcome(MODULES[0], options, path="/link")[2] == b"secret"
    assert outcome(MODULES[0], options, path="/../outside")[0] == 404


def test_below_a_mount(folder):
    for root_path, path, status in [
        ("/static", "/static/a.txt", 200),
        ("/static", "/static", 404),
        ("/st", "/static/a.txt", 404),
    ]:
        scope = {"root_path": root_path, "path": path}
        mine, other = (outcome(pair, {"directory": folder}, **scope) for pair in MODULES)
        assert mine == other
        assert mine[0] == status


def test_conditions_and_ranges(folder):
    os.utime(folder / "a.txt", (1_700_000_000, 1_700_000_000))
    etag = respond(StaticFiles(directory=folder), path="/a.txt").headers["etag"]
    for headers, status in [
        ([("if-none-match", etag)], 304),
        ([("if-none-match", f'"x", W/{etag}')], 304),
        ([("if-none-match", "*")], 304),
        ([("if-none-match", '"x"')], 200),
        ([("if-modified-since", "Tue, 14 Nov 2023 22:13:20 GMT")], 304),
        ([("if-modified-since", "Tue, 14 Nov 2022 22:13:20 GMT")], 200),
        ([("range", "bytes=1-2")], 206),
    ]:
        scope = {"path": "/a.txt", "headers": headers}
        mine, other = (outcome(pair, {"directory": folder}, **scope) for pair in MODULES)
        assert mine == other
        assert mine[0] == status


def test_folders_of_packages(folder):
    for pair in MODULES:
        assert outcome(pair, {"packages": [("json", ".")]}, path="/decoder.py")[0] == 200
        with pytest.raises(AssertionError, match="could not be found"):
            pair[0](packages=["json"])
        with pytest.raises(AssertionError, match="could not be found"):
            pair[0](packages=["no_such_package"])


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(RuntimeError, match="does not exist"):
        StaticFiles(directory=tmp_path / "absent")
    app = StaticFiles(directory=tmp_path / "absent", check_dir=False)
    with pytest.raises(RuntimeError, match="does not exist"):
        respond(app)
    file = Path(tmp_path / "file")
    file.touch()
    with pytest.raises(RuntimeError, match="not a directory"):
        respond(StaticFiles(directory=file, check_dir=False))


def test_a_websocket_is_refused(folder):
    answer = respond(StaticFiles(directory=folder), type="websocket")
    assert answer.messages == [{"type": "websocket.close", "code": 1000, "reason": ""}]
