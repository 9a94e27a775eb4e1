"""The worker process that `justapi serve` starts: loads the application and serves it.

The supervisor says what to do in the environment variable `JUSTAPI_WORKER`, and reads one line
from a pipe: whether the worker serves.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import logging
import os
import socket
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from justapi import _core, _run

__all__ = ["AppNotFound", "load", "main", "set_up_diagnostics"]

logger = logging.getLogger("justapi")

VARIABLE = "JUSTAPI_WORKER"
EXIT_APP = 4
_LAST_CALLS = 0.5
"""Seconds for threads of handlers whose grace time is over."""
_OWN = str(Path(__file__).parent)
_NAMES = ("app", "application", "api")
_FACTORIES = ("create_app", "make_app")


class AppNotFound(Exception):
    """The application cannot be had; the text says why and what to do."""


def load(target: str) -> Any:
    """Imports an application.

    Args:
        target: `module:attribute`, or a module with an attribute `app`; a path to a Python file
            stands for its module.

    Raises:
        AppNotFound: There is no such module or attribute.
        BaseException: Whatever the module raised.
    """
    module_name, _, attribute = target.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        path = Path(module_name)
        if not path.exists():
            raise AppNotFound(f"there is no file {module_name}")
        sys.path.insert(0, str(path.parent.resolve()))
        module_name = path.stem
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        wanted = error.name or ""
        if module_name == wanted or module_name.startswith(f"{wanted}."):
            raise AppNotFound(
                f"there is no module {module_name!r} in {Path.cwd()}; name it as it is imported, "
                "such as `package.module:app`, or change the folder"
            ) from None
        raise
    if not attribute:
        found = [name for name in _NAMES if callable(getattr(module, name, None))]
        if not found:
            found = [name for name in _FACTORIES if callable(getattr(module, name, None))]
        if not found:
            raise AppNotFound(
                f"{module_name!r} has no `app`; name the application as `{module_name}:NAME`"
            )
        attribute = found[0]
    app: Any = module
    for name in attribute.removesuffix("()").split("."):
        try:
            app = getattr(app, name)
        except AttributeError:
            raise AppNotFound(f"{module_name!r} has no attribute {attribute!r}") from None
    if attribute.endswith("()") or attribute in _FACTORIES:
        app = app()
    if not callable(app):
        raise AppNotFound(f"{target} is no application but a {type(app).__name__}")
    return app


def _users_frames(error: BaseException) -> TracebackType | None:
    """Returns the traceback from the first frame that is not the loader's."""
    frames = error.__traceback__
    while frames is not None:
        name = frames.tb_frame.f_code.co_filename
        if not name.startswith((_OWN, "<frozen importlib")) and "/importlib/" not in name:
            return frames
        frames = frames.tb_next
    # A file that does not parse has no frames, but says itself where it is wrong.
    return None if isinstance(error, SyntaxError) else error.__traceback__


class _Ready:
    """The pipe to the supervisor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def tell(self, **what: Any) -> None:
        os.write(self._descriptor, json.dumps(what).encode() + b"\n")


def set_up_diagnostics() -> None:
    """Has crashes and log lines shown on standard error."""
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")


def main() -> int:
    """Runs a worker.

    Returns:
        The exit code.
    """
    given = json.loads(os.environ.pop(VARIABLE))
    _core.end_with_parent(given["supervisor"])
    for descriptor in (given["ready_fd"], *given["fds"]):
        os.set_inheritable(descriptor, False)
    set_up_diagnostics()
    # A module that calls `run` as it is imported is served already.
    _run.is_worker = True
    ready = _Ready(given["ready_fd"])
    folder = given.get("app_dir") or str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        app = load(given["app"])
    except AppNotFound as error:
        ready.tell(failed=str(error))
        return EXIT_APP
    except BaseException as error:
        shown = traceback.format_exception(type(error), error, _users_frames(error))
        ready.tell(failed=f"importing {given['app']} failed", traceback="".join(shown))
        return EXIT_APP
    # Imported late, so that an application that fails to import says so at once.
    from justapi._serve import StartupFailed, serve
    from justapi.concurrency import close_pool

    interface = given.get("interface", "auto")
    if interface == "asgi":
        app = _plain(app)
    sockets = [socket.socket(fileno=descriptor) for descriptor in given["fds"]]
    try:
        code = serve(
            app,
            sockets,
            root_path=given.get("root_path", ""),
            grace=given.get("grace", 30.0),
            config=json.dumps(given.get("server", {})),
            max_requests=given.get("max_requests"),
            when_worn_out=lambda: ready.tell(recycle=True),
            when_ready=lambda addresses: ready.tell(ready=True, addresses=addresses),
        )
    except StartupFailed as error:
        ready.tell(failed="the application failed to start", traceback=str(error))
        return EXIT_APP
    if not close_pool(_LAST_CALLS) or _has_busy_threads():
        _end_at_once(code)
    return code


def _has_busy_threads() -> bool:
    deadline = time.monotonic() + _LAST_CALLS
    while _core.Lane.num_busy_threads():
        if time.monotonic() > deadline:
            return True
        time.sleep(0.01)
    return False


def _end_at_once(code: int) -> NoReturn:
    """Ends the process around threads that have had their time: the interpreter would wait."""
    logger.warning("a blocking handler has not returned; the worker ends without it")
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def _plain(app: Any) -> Any:
    """Hides from the lane what an application is: it is called over ASGI only."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    return call


if __name__ == "__main__":
    sys.exit(main())
