"""Which object the name of an application means: `module:attribute`, or a file.

Guarantee: what is not there is named, with what was probably meant; whatever the application's own
code raises comes through as it is.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

__all__ = ["AppNotFound", "hint_for", "load"]

_NAMES: Final = ("app", "application", "api")
_FACTORIES: Final = ("create_app", "make_app")
_MODULES: Final = ("main", "app", "api")
"""Modules of a package that have its application most often."""
_SOURCES: Final = "src"
"""A folder of packages, whether they have an `__init__.py` or not."""


class AppNotFound(Exception):
    """The application cannot be had; the text says why, `hint` what to do.

    Args:
        text: Why.
        hint: What to do, if that is not said yet.
    """

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.hint = hint


def load(target: str) -> Any:
    """Imports an application.

    Args:
        target: `module:attribute`, or a module with an attribute `app`; a path to a Python file
            stands for its module, that of a package for the package's.

    Raises:
        AppNotFound: There is no such module or attribute.
        BaseException: Whatever the module raised.
    """
    shown, _, attribute = target.partition(":")
    is_file = shown.endswith(".py") or "/" in shown
    module_name = _module_of_file(shown, attribute) if is_file else shown
    module = _imported(module_name, attribute)
    if not attribute:
        attribute = _only_application(module, shown)
    app: Any = module
    for name in attribute.removesuffix("()").split("."):
        try:
            app = getattr(app, name)
        except AttributeError:
            raise AppNotFound(
                f"{module_name!r} has no attribute {attribute!r}",
                _attribute_meant(module, shown, name if app is module else None),
            ) from None
    if attribute.endswith("()") or attribute in _FACTORIES:
        app = app()
    elif _is_factory(app):
        raise AppNotFound(
            f"{target} is a function without parameters and no application",
            f"if it makes one, name it `{shown}:{attribute}()`",
        )
    if not callable(app):
        raise AppNotFound(
            f"{target} is no application but a {type(app).__name__}",
            _attribute_meant(module, shown, None),
        )
    return app


def hint_for(error: BaseException) -> str | None:
    """Says what to do about a module that the application's code imports and that is not there.

    Args:
        error: What the import has raised.

    Returns:
        The hint; None for any other error, and for a module that a package lacks.
    """
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if not name or "." in name:
        return None
    near = _near(name, _modules_in([sys.path[0] or "."]))
    if near is not None:
        return f"there is no module `{name}`; did you mean `{near}`?"
    return f"that Python has no module `{name}`: install it there, or name another with `--python`"


def _module_of_file(shown: str, attribute: str) -> str:
    """Has a file's module found, and returns its name."""
    path = Path(shown)
    if path.is_dir():
        raise AppNotFound(
            f"{shown} is a folder", f"name a file in it, such as `{path / 'main.py'}:app`"
        )
    if not path.is_file():
        file = _file_meant(path)
        raise AppNotFound(f"there is no file {shown}", _meant(file, attribute))
    path = path.resolve()
    names = [path.stem]
    folder = path.parent
    bases = (Path.cwd(), Path(sys.path[0] or ".").resolve())
    while (folder / "__init__.py").exists() or (
        # Above the project the name tells nothing.
        folder.parent.name == _SOURCES and any(base in folder.parent.parents for base in bases)
    ):
        names.insert(0, folder.name)
        folder = folder.parent
    if names[1:] and names[-1] == "__init__":
        names.pop()
    sys.path.insert(0, str(folder))
    if folder != path.parent:
        # What lies beside the file can be imported by itself, unless something else has its name.
        sys.path.append(str(path.parent))
    return ".".join(names)


def _imported(name: str, attribute: str) -> ModuleType:
    if not name or name.startswith("."):
        raise AppNotFound(
            f"{name!r} is not the name of a module",
            "name the application as it is imported, such as `package.module:app`",
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        package, _, last = missing.rpartition(".")
        is_ours = name == missing or name.startswith(f"{missing}.")
        # A package that is gone has failed by what it imports itself.
        if not is_ours or (package and package not in sys.modules):
            raise
        rest = name.removeprefix(missing)
    folder = Path(sys.path[0] or ".").resolve()
    if not package:
        near = _near(last, _modules_in([str(folder)]))
        meant = near and f"{near}{rest}"
        if near is None and not rest:
            meant = _file_below(folder, last)
        raise AppNotFound(
            f"there is no module {last!r} in {folder}; name it as it is imported, such as "
            "`package.module:app`, or change the folder",
            _meant(meant, attribute),
        )
    parent = sys.modules[package]
    folders = getattr(parent, "__path__", None)
    hint: str | None
    if not rest and hasattr(parent, last):
        hint = f"did you mean `{package}:{last}`?"
    else:
        near = _near(last, _modules_in(folders or []))
        hint = _meant(near and f"{package}.{near}{rest}", attribute)
    if folders is None:
        raise AppNotFound(f"{package!r} is a module, and no package with a module {last!r}", hint)
    raise AppNotFound(f"the package {package!r} has no module {last!r}", hint)


def _only_application(module: ModuleType, shown: str) -> str:
    found = _applications(module)
    if not found:
        raise AppNotFound(
            f"{module.__name__!r} has no `app`; name the application as `{shown}:NAME`"
        )
    if len(found) > 1:
        names = ", ".join(f"`{name}`" for name in found)
        raise AppNotFound(
            f"{module.__name__!r} has {len(found)} applications: {names}",
            f"choose one, such as `{shown}:{found[0]}`",
        )
    return found[0]


def _applications(module: ModuleType) -> list[str]:
    """Returns the name of a module's application, or of each where none stands out."""
    for names in (_NAMES, _FACTORIES):
        found = [name for name in names if callable(getattr(module, name, None))]
        if found:
            return found[:1]
    return _own_applications(module)


def _own_applications(module: ModuleType) -> list[str]:
    """Returns the names of a module's applications of ours; each stands there once."""
    if "justapi.app" not in sys.modules:
        return []
    from justapi.app import JustAPIApp

    names: dict[int, str] = {}
    for name, value in vars(module).items():
        if isinstance(value, JustAPIApp):
            names.setdefault(id(value), name)
    return list(names.values())


def _is_factory(app: Any) -> bool:
    if not isinstance(app, FunctionType):
        return False
    code = app.__code__
    takes_any = code.co_flags & 0x0C
    return not (code.co_argcount or code.co_kwonlyargcount or takes_any)


def _attribute_meant(module: ModuleType, shown: str, word: str | None) -> str | None:
    """Names the attribute that is near to `word`, or else the module's application."""
    if word is not None:
        known = [
            name for name, one in vars(module).items() if callable(one) and not name.startswith("_")
        ]
        near = _near(word, known)
        if near is not None:
            return _meant(shown, near)
        inside = _modules_in(getattr(module, "__path__", []))
        likely = [name for name in _MODULES if name in inside]
        if likely and word in _NAMES and not shown.endswith(".py"):
            return _meant(f"{shown}.{likely[0]}", word)
    found = _applications(module)
    return f"its application is `{shown}:{found[0]}`" if found else None


def _modules_in(folders: Iterable[str]) -> list[str]:
    """Returns the names of the modules and packages that lie in folders."""
    found = []
    for folder in folders:
        path = Path(folder)
        entries = list(path.iterdir()) if path.is_dir() else []
        found += [one.stem for one in entries if one.suffix == ".py"]
        found += [one.name for one in entries if one.is_dir()]
    return [name for name in found if name.isidentifier() and not name.startswith("__")]


def _file_below(folder: Path, name: str) -> str | None:
    """Returns a file of this name in a folder of the project, as it is named from here."""
    for pattern in (f"{_SOURCES}/{name}.py", f"*/{name}.py", f"{_SOURCES}/*/{name}.py"):
        # What is hidden is no part of a project.
        found = sorted(
            one for one in folder.glob(pattern) if "/." not in str(one)[len(str(folder)) :]
        )
        if found:
            file = found[0]
            return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)
    return None


def _file_meant(path: Path) -> str | None:
    """Returns the file that is there and whose path is near, part by part."""
    known = Path()
    for part in path.parts:
        if not (known / part).exists():
            entries = list(known.iterdir()) if known.is_dir() else []
            names = [one.name for one in entries if one.suffix == ".py" or one.is_dir()]
            near = _near(part, names)
            if near is None:
                return None
            part = near
        known /= part
    return str(known)


def _near(word: str, known: Iterable[str]) -> str | None:
    # Nobody needs it when all goes well.
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), list(names), n=1, cutoff=0.65)
    return names[near[0]] if near else None


def _meant(module: str | None, attribute: str) -> str | None:
    """Returns what was probably meant, as a hint; None where nothing is near."""
    if module is None:
        return None
    return f"did you mean `{module}:{attribute}`?" if attribute else f"did you mean `{module}`?"
