"""`app.run()` and `python -m justapi`: the server, started from Python.

Guarantee: a module that calls `run` as it is imported can be imported by a worker; the call
returns at once there.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import shutil
import signal
import socket
import sys
import sysconfig
import threading
from asyncio import _get_running_loop
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

from justapi import _core

__all__ = ["EnvironmentLacks", "Runnable", "exec_program", "target_of"]

EXIT_APP: Final = 4
EXIT_ADDRESS: Final = 5
EXIT_ENVIRONMENT: Final = 6
BACKLOG: Final = 1024
"""Connections that may wait to be accepted; the default of `justapi serve`."""

_ADDRESSES: Final = frozenset({"addr", "fd", "uds"})
"""Settings that take the place of host and port."""

is_worker = False
"""Whether this process is a worker of `justapi serve`, which serves already."""


class EnvironmentLacks(Exception):
    """The program `justapi` is not where this interpreter's programs are."""


class Runnable:
    """What an application has to serve itself."""

    def run(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        workers: int = 1,
        *,
        root_path: str = "",
        graceful: float = 30.0,
        **settings: Any,
    ) -> None:
        """Serves until SIGINT or SIGTERM, and finishes what is in flight.

        One worker without further settings is this process. Otherwise the program `justapi serve`
        takes its place and starts workers, which import the module that holds the application.
        In a worker the call does nothing, so it may stand anywhere in that module.

        Args:
            host: Address or name to listen on.
            port: TCP port; 0 picks a free one.
            workers: Number of worker processes.
            root_path: Where a proxy puts the application.
            graceful: Seconds for what is in flight after the signal.
            **settings: Further options of `justapi serve`, with underscores: `limit_body="1KiB"`,
                `access_log="json"`, `request_id=True`; a list repeats its option.

        Raises:
            ValueError: There is no such port, or no worker.
            RuntimeError: The call is not on the main thread, or an event loop runs already; or
                workers are asked for, and no module has the application in a variable.
            SystemExit: The exit codes of `justapi serve`: 4 when the application cannot start, 5
                when the address cannot be listened on, 6 when the program is missing.

        Example:
            >>> if __name__ == "__main__":
            ...     app.run(port=8080, workers=4)
        """
        if is_worker:
            return
        if workers < 1:
            raise ValueError(f"workers={workers} is none at all; 1 is the least")
        if not 0 <= port <= 0xFFFF:
            raise ValueError(f"port={port} is no TCP port")
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("run() takes the signals of its process: call it on the main thread")
        if _get_running_loop() is not None:
            raise RuntimeError("run() has an event loop of its own: call it outside of any other")
        if workers == 1 and not settings:
            _serve_here(self, host, port, root_path, graceful)
            return
        options = {"workers": workers, "graceful": f"{graceful:g}s", **settings}
        if not _ADDRESSES & settings.keys():
            options = {"host": host, "port": port, **options}
        if root_path:
            options["root_path"] = root_path
        target, folder = target_of(self)
        if folder is not None:
            options.setdefault("app_dir", folder)
        try:
            exec_program(["serve", target, *_flags(options)])
        except EnvironmentLacks as error:
            _fail(EXIT_ENVIRONMENT, str(error))


def _serve_here(app: Any, host: str, port: int, root_path: str, graceful: float) -> None:
    from justapi._serve import SettingRefused, StartupFailed, serve
    from justapi._worker import set_up_diagnostics

    try:
        listener = _listen(host, port)
    except OSError as error:
        _fail(EXIT_ADDRESS, _cannot_listen(host, port, error))
    set_up_diagnostics()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = serve(
            app,
            [listener],
            root_path=root_path,
            grace=graceful,
            owns_sockets=True,
            config=json.dumps(_config(host, listener.getsockname()[0])),
            when_ready=_say_listening,
        )
    except StartupFailed as error:
        _fail(EXIT_APP, f"the application failed to start\n{error}".rstrip())
    except SettingRefused as error:
        _fail(EXIT_APP, str(error))
    finally:
        # Signals that come now are for what stands after `run`.
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
    if code:
        sys.exit(code)


def _listen(host: str, port: int) -> socket.socket:
    """Listens on the first address of a name, with SO_REUSEADDR."""
    family, *_, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(address, family=family, backlog=BACKLOG)


def _cannot_listen(host: str, port: int, error: OSError) -> str:
    shown = f"[{host}]" if ":" in host else host
    # `create_server` adds to the kernel's text; errors of a name's look-up have their own.
    number = error.errno or 0
    reason = os.strerror(number) if number > 0 else error.strerror
    text = f"cannot listen on {shown}:{port}: {str(reason).lower()}"
    if error.errno == errno.EADDRINUSE:
        text += f"\n  hint      use `port={port + 1}`, or `port=0` to pick a free one"
    return text


def _config(host: str, address: str) -> dict[str, Any]:
    """Settings as `justapi serve` has them: on loopback, this machine's own names only."""
    if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return {}
    # A bare IPv6 address is no `Host`, and among the loopback names.
    return {"trusted_hosts": [] if ":" in host else [host], "trusts_loopback": True}


def _say_listening(addresses: list[str]) -> None:
    version = ".".join(map(str, sys.version_info[:2]))
    print(
        f"justapi {_core.VERSION}  run   Python {version}   pid {os.getpid()}",
        *(f"  \N{HEAVY ROUND-TIPPED RIGHTWARDS ARROW} {address}" for address in addresses),
        sep="\n",
        file=sys.stderr,
        flush=True,
    )


def _fail(code: int, text: str) -> NoReturn:
    print(f"error: {text}", file=sys.stderr)
    sys.exit(code)


def target_of(app: object) -> tuple[str, str | None]:
    """Names an application for workers.

    Args:
        app: The application.

    Returns:
        `module:attribute` or `file.py:attribute`, and the folder that the module is imported
        from, where that is not the current one.

    Raises:
        RuntimeError: No module has it in a variable.
    """
    main = sys.modules["__main__"]
    others = (module for name, module in list(sys.modules.items()) if name != "__main__")
    for module in (main, *others):
        name = _variable(module, app)
        if name is None:
            continue
        if module is not main:
            return f"{module.__name__}:{name}", sys.path[0] or None
        spec = getattr(main, "__spec__", None)
        if spec is not None and spec.name != "__main__":
            # `python -m package.module`
            return f"{spec.name}:{name}", sys.path[0] or None
        file = Path(getattr(main, "__file__", None) or "").resolve()
        if file.suffix == ".py" and file.stem != "__main__" and ":" not in str(file):
            return f"{file}:{name}", None
    raise RuntimeError(
        "workers import the application: put it into a variable of a module, such as `app` in "
        "app.py, or leave out `workers` and the settings"
    )


def _variable(module: ModuleType, app: object) -> str | None:
    """Returns the name that a module has for an application."""
    values = getattr(module, "__dict__", {})
    return next((name for name, value in list(values.items()) if value is app), None)


def _flags(options: dict[str, Any]) -> Iterator[str]:
    """Spells settings as the program's options."""
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        values = value if isinstance(value, list | tuple) else [value]
        for one in values:
            yield f"{flag}={str(one).lower() if isinstance(one, bool) else one}"


def exec_program(arguments: Sequence[str]) -> NoReturn:
    """Becomes the program `justapi`, which starts workers on this interpreter.

    Args:
        arguments: Its arguments.

    Raises:
        EnvironmentLacks: It is not installed beside this interpreter.
    """
    program = _program()
    os.environ.setdefault("JUSTAPI_PYTHON__INTERPRETER", sys.executable)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.execv(program, [program, *arguments])


def _program() -> str:
    """Finds the program: that of this environment before any other."""
    folders = [
        sysconfig.get_path("scripts"),
        str(Path(sys.executable).parent),
        sysconfig.get_path("scripts", f"{os.name}_user"),
    ]
    found = shutil.which("justapi", path=os.pathsep.join(folders)) or shutil.which("justapi")
    if found is None:
        raise EnvironmentLacks(
            "the program `justapi` is not installed beside this interpreter\n"
            f"  hint      install the wheel once more: `{sys.executable} -m pip install "
            "--force-reinstall wheels/justapi-*.whl`"
        )
    return found
