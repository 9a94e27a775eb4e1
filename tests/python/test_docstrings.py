"""The examples in the docstrings of the package: there are some where one would look, and they run.

Each docstring is run by itself, with the names that its reader would have imported and an
application at hand. `await` may stand at the top, as in a notebook.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import datetime
import doctest
import importlib
import inspect
import io
import itertools
import os
import pkgutil
import time
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel

import justapi
import justapi.middleware
import justapi.responses
import justapi.routing
import justapi.schema
import justapi.security
import justapi.sse
import justapi.staticfiles
from justapi.middleware.cors import CORSMiddleware
from justapi.middleware.gzip import GZipMiddleware
from justapi.middleware.httpsredirect import HTTPSRedirectMiddleware
from justapi.middleware.trustedhost import TrustedHostMiddleware
from justapi.testclient import AsyncTestClient, TestClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMED = [justapi, justapi.responses, justapi.middleware]
"""Modules whose every class and function has an example."""
WITHOUT = {"WebSocketDisconnect"}
"""Of those, what nobody makes or calls."""
ALSO = [
    (justapi.APIRouter, "include_router"),
    (justapi.APIRouter, "api_route"),
    (justapi.JustAPIApp, "include_router"),
    (justapi.JustAPIApp, "middleware"),
    (justapi.JustAPIApp, "exception_handler"),
]


class User(BaseModel):
    name: str


class OutOfStock(Exception):
    name: ClassVar[str] = "ink"


def current_user(name: str = "ada") -> User:
    return User(name=name)


def stage(module: Any) -> dict[str, Any]:
    """What an example of a module finds when it begins."""
    app = justapi.JustAPI()
    names: dict[str, Any] = {}
    for known in (*NAMED, justapi.schema, justapi.sse, justapi.staticfiles, module):
        listed = getattr(known, "__all__", [name for name in vars(known) if name[0] != "_"])
        names.update({name: getattr(known, name) for name in listed})
    return names | {
        "Annotated": Annotated,
        "Any": Any,
        "AsyncTestClient": AsyncTestClient,
        "BaseModel": BaseModel,
        "GZipMiddleware": GZipMiddleware,
        "APIRoute": justapi.routing.APIRoute,
        "OutOfStock": OutOfStock,
        "SecurityScopes": justapi.security.SecurityScopes,
        "TestClient": TestClient,
        "User": User,
        "app": app,
        "asyncio": asyncio,
        "client": TestClient(app, base_url="http://test"),
        "current_user": current_user,
        "datetime": datetime,
        "itertools": itertools,
        "os": os,
        "time": time,
    }


def modules() -> Iterator[Any]:
    yield justapi
    for found in pkgutil.walk_packages(justapi.__path__, "justapi."):
        if not found.name.endswith(("__main__", "_worker")):
            yield importlib.import_module(found.name)


def examples() -> dict[str, tuple[Any, doctest.DocTest]]:
    """Every docstring of the package that has examples, and its module, by name."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    return {
        test.name: (module, test)
        for module in modules()
        for test in finder.find(module, globs={})
        if test.examples
    }


EXAMPLES = examples()


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "style.css").write_text("body {}\n")
    (tmp_path / "report.pdf").write_bytes(b"%PDF")
    monkeypatch.chdir(tmp_path)


async def run(module: Any, test: doctest.DocTest) -> None:
    names = stage(module)
    checker = doctest.OutputChecker()
    with contextlib.closing(names["client"]):
        for example in test.examples:
            code = compile(
                example.source, f"<{test.name}>", "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            )
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                result = eval(code, names)
                if inspect.iscoroutine(result):
                    await result
            assert checker.check_output(example.want, said.getvalue(), 0), (
                f"{test.name}: {example.source}gave {said.getvalue()!r}, not {example.want!r}"
            )


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_example_runs(name: str) -> None:
    asyncio.run(run(*EXAMPLES[name]))


def test_there_is_an_example_where_one_would_look() -> None:
    missing = []
    for module in NAMED:
        for name in module.__all__:
            item = getattr(module, name)
            if not (inspect.isclass(item) or inspect.isfunction(item)) or name in WITHOUT:
                continue
            if ">>>" not in (item.__doc__ or ""):
                missing.append(f"{module.__name__}.{name}")
    missing += [
        f"{owner.__name__}.{name}"
        for owner, name in [*ALSO]
        if ">>>" not in (getattr(owner, name).__doc__ or "")
    ]
    assert not missing
    for named in (
        TestClient,
        AsyncTestClient,
        CORSMiddleware,
        GZipMiddleware,
        HTTPSRedirectMiddleware,
        TrustedHostMiddleware,
    ):
        assert ">>>" in (named.__doc__ or "")


def test_a_wrong_example_is_found() -> None:
    parser = doctest.DocTestParser()
    text = ">>> 1 + 1\n3\n"
    with pytest.raises(AssertionError, match="gave '2"):
        asyncio.run(run(justapi, parser.get_doctest(text, {}, "wrong", None, 0)))
