"""What a worker does for `justapi dev` beside serving.

It says which files it has loaded, never runs code older than its source, and may be started ahead
of time: then it loads what comes from the environment, and waits for the word to load the
application.
"""

from __future__ import annotations

import importlib
import os
import signal
import site
import sys
import sysconfig
import time
from contextlib import contextmanager, suppress
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any

from justapi._where import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["loaded", "prepare"]

_OWN = f"{Path(__file__).parent}{os.sep}"
_REWRITES_THE_WORLD = frozenset({"eventlet", "gevent"})
"""Packages that have to come before all others, so that nothing is loaded ahead of them."""
_PACKAGES = frozenset({"dist-packages", "site-packages"})
"""Names of folders that packages are installed in."""
_RACY_SECONDS = 2.0
"""Bytecode names its source by a time of whole seconds and a size: two saves can share both."""


def _folders_of_environment() -> list[str]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names}
    if site.ENABLE_USER_SITE:
        folders.add(site.getusersitepackages())
    return sorted(folder for folder in folders if folder)


def _package_folders() -> list[str]:
    """Folders of the environment that packages are installed in."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    folders.update(entry for entry in sys.path if Path(entry).name in _PACKAGES)
    return sorted(folder for folder in folders if folder and Path(folder).is_dir())


def _is_of_environment(file: str, folders: Iterable[str]) -> bool:
    return (
        file.startswith(_OWN)
        or any(file.startswith(f"{folder}{os.sep}") for folder in folders)
        # That of another interpreter, which this one looks into.
        or not _PACKAGES.isdisjoint(Path(file).parts)
    )


def loaded() -> dict[str, Any]:
    """Says what this process has loaded, for the supervisor.

    Returns:
        Files of the application, modules of the environment in the order they came, and the
        folders of the environment that packages are installed in.
    """
    folders = _folders_of_environment()
    files: list[str] = []
    modules: list[str] = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        file = getattr(module, "__file__", None)
        if spec is None or name == "__main__":
            continue
        if not isinstance(file, str):
            if getattr(spec, "origin", None) in ("built-in", "frozen"):
                modules.append(name)
        elif _is_of_environment(file, folders):
            modules.append(name)
        else:
            files.append(str(Path(file).absolute()))
    return {"files": files, "modules": modules, "environment": _package_folders()}


def _refuse_racy_bytecode() -> None:
    """Has no module loaded from bytecode that may be older than its source."""
    stock: Callable[[SourceFileLoader, str], Mapping[str, Any]] = SourceFileLoader.path_stats

    def path_stats(self: SourceFileLoader, path: str) -> Mapping[str, Any]:
        stats = stock(self, path)
        saved = float(stats["mtime"])
        if time.time() - saved < _RACY_SECONDS:
            # The import system then neither reads bytecode nor writes any.
            raise OSError(f"{path} was saved a moment ago")
        with suppress(OSError, NotImplementedError):
            bytecode = Path(cache_from_source(path))
            if abs(bytecode.stat().st_mtime - saved) < _RACY_SECONDS:
                bytecode.unlink()
        return stats

    SourceFileLoader.path_stats = path_stats  # type: ignore[method-assign]


def _load_ahead(modules: Iterable[str]) -> str | None:
    """Imports what the last good worker had of the environment.

    Returns:
        A module that it has loaded although it may change, if there is one.
    """
    wanted = list(modules)
    if _REWRITES_THE_WORLD.intersection(wanted):
        return None
    # The application's own folder is not to be found: what lies there may change.
    path = sys.path
    sys.path = [entry for entry in path if entry not in ("", str(Path.cwd()))]
    try:
        for name in wanted:
            if name not in sys.modules:
                with suppress(BaseException):
                    importlib.import_module(name)
    finally:
        sys.path = path
    folders = _folders_of_environment()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and isinstance(file, str) and not _is_of_environment(file, folders):
            return name
    return None


@contextmanager
def _terminal(tell: Callable[..., None]) -> Iterator[None]:
    """Makes this process the one that the terminal belongs to, with lines and echo."""
    import termios

    descriptor = sys.stdin.fileno()
    owner = os.tcgetpgrp(descriptor)
    modes = termios.tcgetattr(descriptor)
    lines = list(modes)
    lines[3] |= termios.ICANON | termios.ECHO
    tell(dev={"debugged": True})
    os.tcsetpgrp(descriptor, os.getpgrp())
    termios.tcsetattr(descriptor, termios.TCSANOW, lines)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, modes)
        os.tcsetpgrp(descriptor, owner)
        tell(dev={"debugged": False})


def _share_terminal(tell: Callable[..., None]) -> None:
    """Has `breakpoint()` take the terminal while its prompt is there."""
    # Any other read of it fails, instead of stopping the process, and it may be taken.
    for number in (signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    # Nobody would continue it: the shell knows of the supervisor alone.
    signal.signal(signal.SIGTSTP, lambda *_: None)
    if sys.stdin is None or not sys.stdin.isatty():
        return

    def hook(*args: Any, **keywords: Any) -> Any:
        if os.environ.get("PYTHONBREAKPOINT"):
            return sys.__breakpointhook__(*args, **keywords)
        import pdb

        class Debugger(pdb.Pdb):
            def cmdloop(self, intro: Any = None) -> None:
                with _terminal(tell):
                    super().cmdloop(intro)

        Debugger().set_trace(sys._getframe(1))
        return None

    sys.breakpointhook = hook


def prepare(given: dict[str, Any], tell: Callable[..., None]) -> Observer:
    """Makes this process a worker of `justapi dev`; returns when it is to load the application.

    Args:
        given: What the supervisor says.
        tell: Says something to the supervisor.

    Returns:
        Who says where it is while that takes long.
    """
    _refuse_racy_bytecode()
    _share_terminal(tell)
    descriptor = given.get("go_fd")
    if descriptor is not None:
        _wait_to_go(descriptor, given, tell)
    folders = _folders_of_environment()
    observer = Observer(tell, lambda file: not _is_of_environment(file, folders))
    observer.begin("at")
    return observer


def _wait_to_go(descriptor: int, given: dict[str, Any], tell: Callable[..., None]) -> None:
    """Loads what comes from the environment, and returns at the word to go on."""
    os.set_inheritable(descriptor, False)
    spoilt = _load_ahead(given.get("modules", []))
    tell(dev={"standby": True, "spoilt": spoilt})
    if not os.read(descriptor, 1):
        # Nobody is left who could want it.
        os._exit(0)
    os.close(descriptor)
    importlib.invalidate_caches()
