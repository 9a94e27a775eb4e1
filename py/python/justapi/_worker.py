"""The worker process that `justapi serve` starts: loads the application and serves it.

The supervisor says what to do in the environment variable `JUSTAPI_WORKER`, and reads one line
from a pipe: whether the worker serves.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import socket
import sys
import sysconfig
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from justapi import _core, _run
from justapi._target import AppNotFound, hint_for, load
from justapi._tracebacks import format_from_user

__all__ = ["main", "set_up_diagnostics"]

logger = logging.getLogger("justapi")

VARIABLE = "JUSTAPI_WORKER"
EXIT_APP = 4
_LAST_CALLS = 0.5
"""Seconds for threads of handlers whose grace time is over."""


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
    for descriptor in (given["ready_fd"], given.get("metrics_fd"), *given["fds"]):
        if descriptor is not None:
            os.set_inheritable(descriptor, False)
    set_up_diagnostics()
    _core.listen_for_crashes(given["ready_fd"])
    # For the supervisor, and for whoever wants to know what a worker does.
    faulthandler.register(signal.SIGQUIT)
    # A module that calls `run` as it is imported is served already.
    _run.is_worker = True
    ready = _Ready(given["ready_fd"])
    dev = given.get("dev")
    observer = None
    if dev is not None:
        from justapi import _dev

        observer = _dev.prepare(dev, ready.tell)

    def loaded() -> dict[str, Any]:
        if observer is None:
            return {}
        # What is told next is more than a pipe takes at once.
        observer.end()
        return {"dev": _dev.loaded()}

    folder = given.get("app_dir") or str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        app, server = _as_interface(load(given["app"]), given)
    except AppNotFound as error:
        ready.tell(failed=str(error), hint=error.hint, **loaded())
        _end_at_once(EXIT_APP)
    except BaseException as error:
        shown = format_from_user(error)
        what = f"importing {given['app']} failed"
        ready.tell(failed=what, traceback=shown, hint=hint_for(error), **loaded())
        _end_at_once(EXIT_APP)
    # Imported late, so that an application that fails to import says so at once.
    from justapi._lanes import num_alive
    from justapi._serve import SettingRefused, StartupFailed, serve
    from justapi.concurrency import close_pool

    if given.get("thread_queue") is not None:
        _core.limit_waiting_calls(given["thread_queue"])
    num_lanes = given.get("lanes", 1)
    if num_lanes > 1:
        _warn_of_lock()
    sockets = [socket.socket(fileno=descriptor) for descriptor in given["fds"]]
    try:
        code = serve(
            app,
            sockets,
            root_path=given.get("root_path", ""),
            grace=given.get("grace", 30.0),
            config=json.dumps(server),
            num_lanes=num_lanes,
            max_requests=given.get("max_requests"),
            stuck_timeout=None if _is_debugged() else given.get("stuck_timeout"),
            stuck_descriptor=given["ready_fd"],
            is_supervised=True,
            when_worn_out=lambda: ready.tell(recycle=True),
            owns_sockets=given.get("owns_sockets", False),
            public_address=given.get("public_address"),
            when_ready=lambda addresses: ready.tell(ready=True, addresses=addresses, **loaded()),
            observer=observer,
        )
    except StartupFailed as error:
        shown = str(error)
        ready.tell(failed="the application failed to start", traceback=shown, **loaded())
        _end_at_once(EXIT_APP)
    except SettingRefused as error:
        ready.tell(failed=str(error), hint=error.hint, **loaded())
        _end_at_once(EXIT_APP)
    # There is nothing left to stop, and a default action would hide how it went.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if not close_pool(_LAST_CALLS) or _has_busy_threads() or num_alive():
        logger.warning("a blocking handler has not returned; the worker ends without it")
        _end_at_once(code)
    return code


def _is_debugged() -> bool:
    """Whether somebody may hold a handler for as long as they like."""
    return sys.gettrace() is not None or "pydevd" in sys.modules


def _warn_of_lock() -> None:
    """Says so if lanes have to take turns."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        why = "an extension module that the application imports has switched the interpreter's on"
    else:
        why = "this interpreter has one; on a free-threaded build they run at the same time"
    logger.warning("lanes take turns at a global lock: %s", why)


def _has_busy_threads() -> bool:
    deadline = time.monotonic() + _LAST_CALLS
    while _core.Lane.num_busy_threads():
        if time.monotonic() > deadline:
            return True
        time.sleep(0.01)
    return False


def _end_at_once(code: int) -> NoReturn:
    """Ends the process around threads that have nothing left to do: the interpreter would wait."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def _as_interface(app: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns an application as it is to be called, and the settings of its server.

    Raises:
        AppNotFound: It is not what `--interface` says.
    """
    # Imported late, so that an application that fails to import says so at once.
    from justapi.app import JustAPIApp

    interface = given.get("interface", "auto")
    server: dict[str, Any] = given.get("server", {})
    is_ours = isinstance(app, JustAPIApp)
    if interface == "justapi" and not is_ours:
        kind = type(app)
        found = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        raise AppNotFound(
            f"{given['app']} is no JustAPIApp, as `--interface justapi` demands, but a {found}",
            "leave the option out, or use `--interface asgi`, to serve any ASGI application",
        )
    if is_ours and interface != "asgi":
        return app, server
    # It is whole in itself: what it answers is not known here, so all paths are its own.
    if not given.get("asks_for_health"):
        server["health"] = False
    if not given.get("asks_for_metrics") and "Path" in server.get("metrics", {}):
        server["metrics"] = "Off"
    return (_plain(app) if is_ours else app), server


def _plain(app: Any) -> Any:
    """Hides from the lane what an application is: it is called over ASGI only."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    return call


if __name__ == "__main__":
    sys.exit(main())
