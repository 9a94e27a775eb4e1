"""Prints the installed versions of the named distributions and of the interpreter on one line."""

import platform
import sys
from importlib.metadata import version

names = [f"{name} {version(name)}" for name in sys.argv[1:]]
print(
    ", ".join(
        [*names, f"{platform.python_implementation()} {platform.python_version()}"]
    )
)
