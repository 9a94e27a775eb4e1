#!/usr/bin/env bash
# Makes benches/.venv-predecessor, the environment of the `justapi` that is on PyPI: it has the name of
# our package and needs Python 3.12 or newer. An environment that is there is replaced; without it the
# rows of the predecessor are INVALID and say so.
# Usage: benches/peers/python/predecessor.sh PYTHON
set -euo pipefail

if [[ $# -ne 1 ]]; then
  echo "usage: benches/peers/python/predecessor.sh PYTHON" >&2
  exit 2
fi
python=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
environment=$(cd "$here/../.." && pwd)/.venv-predecessor

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then
  echo "predecessor.sh: $python is older than Python 3.12, which the predecessor needs" >&2
  exit 1
fi
"$python" -m venv --clear "$environment"
"$environment/bin/python" -m pip --disable-pip-version-check --quiet install --no-deps \
  --only-binary :all: justapi==2.0.10
"$environment/bin/python" "$here/versions.py" justapi
