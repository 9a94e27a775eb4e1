"""What `justapi routes`, `openapi` and `check` ask an application; the program starts it.

The question is in the environment variable `JUSTAPI_INSPECT`; the answer is one line of JSON on a
descriptor of its own, so that whatever the application prints is no part of it. Nothing is served:
no socket, no lifespan, no request.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from justapi import _core, _run
from justapi._target import AppNotFound, hint_for, load
from justapi._tracebacks import format_from_user
from justapi._worker import set_up_diagnostics

__all__ = ["Opaque", "main", "name_of", "place_of", "routes_of_application"]

VARIABLE = "JUSTAPI_INSPECT"


class Opaque(Exception):
    """An application that cannot be asked what is wanted."""


class _DocumentFailed(Exception):
    """The application's document cannot be made; the cause says why."""


def main() -> NoReturn:
    """Answers one question, and ends the process."""
    given = json.loads(os.environ.pop(VARIABLE))
    _core.end_with_parent(given["parent"])
    descriptor: int = given["descriptor"]
    os.set_inheritable(descriptor, False)
    # Whoever presses Ctrl-C ends the program, and wants no traceback of it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    set_up_diagnostics()
    # A module that calls `run` as it is imported is no server here.
    _run.is_worker = True
    folder = given.get("app_dir") or str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    _tell(descriptor, _answer(given))
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            pass
    # Threads that the import has started would keep the interpreter.
    os._exit(0)


def _tell(descriptor: int, answer: dict[str, Any]) -> None:
    rest = memoryview(json.dumps(answer).encode() + b"\n")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _answer(given: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    try:
        app = load(given["app"])
    except AppNotFound as error:
        return {"failed": str(error), "hint": error.hint, "kind": "application"}
    except BaseException as error:
        return {
            "failed": f"importing {given['app']} failed",
            "kind": "application",
            "traceback": format_from_user(error),
            "hint": hint_for(error),
        }
    seconds = time.monotonic() - started
    try:
        answer = _QUESTIONS[given["question"]](app, given)
    except Opaque as error:
        return {"failed": str(error), "kind": "opaque"}
    except _DocumentFailed as error:
        return {
            "failed": str(error),
            "kind": "document",
            "traceback": "" if error.__cause__ is None else format_from_user(error.__cause__),
        }
    except BaseException as error:
        return {
            "failed": f"{given['app']} was imported, and cannot be looked at",
            "kind": "application",
            "traceback": format_from_user(error),
        }
    return {"import_seconds": seconds, **answer}


def _kind_of(app: Any) -> str:
    kind = type(app)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _routes(app: Any, given: dict[str, Any]) -> dict[str, Any]:
    return {
        "application": given["app"],
        "kind_of_application": _kind_of(app),
        "routes": list(routes_of_application(app)),
        "middleware": _middleware(app),
    }


def routes_of_application(app: Any) -> Iterator[dict[str, Any]]:
    """Describes the routes of an application, those of mounted ones with their whole paths.

    Args:
        app: One of ours, or any that has `routes`.

    Raises:
        Opaque: It does not say what its routes are.
    """
    routes = getattr(app, "routes", None)
    if not isinstance(routes, list | tuple):
        raise Opaque(f"the routes of an application of the kind {_kind_of(app)} are not known")
    for route in routes:
        yield from _described(route, "")


def _described(route: Any, prefix: str) -> Iterator[dict[str, Any]]:
    path = prefix + str(getattr(route, "path", ""))
    inner = getattr(route, "app", None)
    if not hasattr(route, "endpoint") and inner is not None:
        inside = getattr(route, "routes", None) or []
        if not inside:
            yield {
                "methods": None,
                "path": f"{path or '/'}",
                "protocol": "mount",
                "name": getattr(route, "name", None),
                "handler": _kind_of(inner),
                "file": None,
                "line": None,
                "runs": "asgi",
                "dependencies": [],
                "security": [],
                "in_schema": False,
                "is_own": False,
            }
        for one in inside:
            yield from _described(one, path)
        return
    yield _row(route, path)


def _row(route: Any, path: str) -> dict[str, Any]:
    endpoint = getattr(route, "endpoint", None)
    methods = getattr(route, "methods", None)
    is_socket = "WebSocket" in type(route).__name__
    file, line = place_of(endpoint)
    dependant = getattr(route, "dependant", None)
    handler = name_of(endpoint)
    return {
        # A set of another framework has no order.
        "methods": sorted(methods) if isinstance(methods, set | frozenset) else methods,
        "path": path,
        "protocol": "websocket" if is_socket else "http",
        "name": getattr(route, "name", None),
        "handler": handler,
        "file": file,
        "line": line,
        "runs": _runs(route, endpoint),
        "dependencies": [name_of(one.call) for one in getattr(dependant, "dependencies", ())],
        "security": _security(dependant),
        "in_schema": bool(getattr(route, "include_in_schema", False)) and not is_socket,
        "is_own": handler.startswith(("justapi.", "fastapi.", "starlette.")),
    }


def name_of(call: Any) -> str:
    """Returns the name of a callable with its module."""
    from justapi._callables import unwrapped

    inner = unwrapped(call)
    if not hasattr(inner, "__qualname__"):
        inner = type(inner)
    return f"{inner.__module__}.{inner.__qualname__}".replace(".<locals>", "")


def place_of(call: Any) -> tuple[str | None, int | None]:
    """Returns file and line of a callable; the file as one in this folder would name it."""
    from justapi._callables import unwrapped

    inner = unwrapped(call)
    code = getattr(inner, "__code__", None)
    if code is None:
        code = getattr(getattr(type(inner), "__call__", None), "__code__", None)  # noqa: B004
    if code is None:
        return None, None
    path = Path(code.co_filename)
    try:
        path = path.relative_to(Path.cwd())
    except ValueError:
        pass
    return str(path), code.co_firstlineno


def _runs(route: Any, endpoint: Any) -> str:
    from justapi._callables import is_async_callable, is_async_generator

    if getattr(route, "native_plan", None) is not None:
        return "native"
    if getattr(route, "is_function", True) is False:
        return "asgi"
    if is_async_callable(endpoint) or is_async_generator(endpoint):
        return "async"
    return "threads" if getattr(route, "blocking", None) is True else "sync"


def _security(dependant: Any) -> list[str]:
    from justapi._callables import unwrapped
    from justapi.dependencies import Dependant, iter_dependants
    from justapi.security import SecurityBase

    if not isinstance(dependant, Dependant):
        return []
    calls = [unwrapped(one.call) for one in iter_dependants(dependant)]
    schemes = [one.scheme_name for one in calls if isinstance(one, SecurityBase)]
    return list(dict.fromkeys(schemes))


def _middleware(app: Any) -> list[dict[str, Any]]:
    """Describes the middleware, outermost first, and whether a lane does it without Python."""
    from justapi._layers import layers_of, run_python
    from justapi.app import JustAPIApp

    described = []
    for one in getattr(app, "user_middleware", None) or []:
        cls = getattr(one, "cls", None)
        dispatch = getattr(one, "kwargs", {}).get("dispatch")
        layers = layers_of([one]) if isinstance(app, JustAPIApp) else None
        described.append(
            {
                "name": name_of(cls if dispatch is None else dispatch),
                "runs": "python" if layers is None or run_python(layers) else "rust",
            }
        )
    return described


def _openapi(app: Any, given: dict[str, Any]) -> dict[str, Any]:
    make = getattr(app, "openapi", None)
    if not callable(make):
        raise Opaque(f"an application of the kind {_kind_of(app)} has no OpenAPI document")
    try:
        document = make()
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    except Exception as error:
        raise _DocumentFailed(f"the document of {given['app']} cannot be made") from error
    return {"document": text}


def _check(app: Any, given: dict[str, Any]) -> dict[str, Any]:
    from justapi._check import findings_of

    try:
        num_routes = sum(not one["is_own"] for one in routes_of_application(app))
    except Opaque:
        num_routes = None
    return {
        "kind_of_application": _kind_of(app),
        "num_routes": num_routes,
        "findings": [one.as_json() for one in findings_of(app, given)],
    }


_QUESTIONS = {"routes": _routes, "openapi": _openapi, "check": _check}


if __name__ == "__main__":
    main()
