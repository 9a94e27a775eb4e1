"""`python -m justapi`: the program `justapi`, for this interpreter."""

from __future__ import annotations

import sys

from justapi._run import EXIT_ENVIRONMENT, EnvironmentLacks, exec_program

try:
    exec_program(sys.argv[1:])
except EnvironmentLacks as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(EXIT_ENVIRONMENT)
