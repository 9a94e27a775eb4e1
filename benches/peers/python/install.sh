#!/usr/bin/env bash
# Makes benches/.venv, the environment of the Python matrix: the interpreter that is named, the
# peers of requirements.lock beside this script, and our wheel. An environment that is there is
# replaced. Without a wheel the peers are installed alone, and our arms cannot start.
# Usage: benches/peers/python/install.sh PYTHON [WHEEL]
set -euo pipefail

if [[ $# -lt 1 || $# -gt 2 ]]; then
  echo "usage: benches/peers/python/install.sh PYTHON [WHEEL]" >&2
  exit 2
fi
python=$1
wheel=${2:-}
if [[ -n $wheel ]]; then wheel=$(realpath "$wheel"); fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
environment=$(cd "$here/../.." && pwd)/.venv

"$python" -m venv --clear "$environment"
pip=("$environment/bin/python" -m pip --disable-pip-version-check --quiet)

# Where one peer has no build for this interpreter the others are installed all the same: its row in
# the matrix is INVALID and says why.
install=("${pip[@]}" install --no-deps --only-binary :all:)
missing=()
if ! "${install[@]}" --requirement "$here/requirements.lock"; then
  while read -r requirement; do
    if [[ -z $requirement || $requirement == \#* ]]; then continue; fi
    if ! "${install[@]}" "$requirement"; then missing+=("$requirement"); fi
  done <"$here/requirements.lock"
fi
if [[ -n $wheel ]]; then
  "${pip[@]}" install --no-deps "$wheel"
fi

if [[ ${#missing[@]} -gt 0 ]]; then
  echo "not installed: ${missing[*]}" >&2
  exit 1
fi
"${pip[@]}" check
"$environment/bin/python" "$here/versions.py" granian uvicorn uvloop httptools fastapi fastapi-cli watchfiles robyn litestar blacksheep django-bolt
