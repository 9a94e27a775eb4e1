#!/usr/bin/env bash
# Runs the suite of the wheel on another interpreter than the gate's, each in an environment of its own.
# Usage: tests/python/run_with.sh PYTHON [ARGUMENT...]   (arguments are pytest's)
set -euo pipefail

if (($# == 0)); then
  echo "usage: ${0##*/} PYTHON [ARGUMENT...]" >&2
  exit 2
fi
python=$(command -v "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target_dir="${CARGO_TARGET_DIR:-$PWD/target}"
name=$("$python" -c 'import sys; print("{}.{}".format(*sys.version_info), end=sys.abiflags)')
venv="$target_dir/wheel-venv-$name"
wheels="$target_dir/wheels-$name"

if [[ -z "${JUSTAPI_JSON_SCHEMA_SUITE:-}" && ! -e "$target_dir/json-schema-test-suite/fetched" ]]; then
  echo "error: the JSON-Schema-Test-Suite is missing" >&2
  echo "hint: tests/run fetches it; or JUSTAPI_JSON_SCHEMA_SUITE names a copy" >&2
  exit 1
fi

# What has no build for free-threaded interpreters is left out there; tests of it go with it.
requirements() {
  if [[ $name == *t ]]; then
    grep -v '^orjson==' tests/python/requirements.txt
  else
    cat tests/python/requirements.txt
  fi
}

wanted="$("$python" -VV) $(requirements | cksum)"
if [[ "$(cat "$venv/requirements-installed" 2>/dev/null)" != "$wanted" ]]; then
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --requirement <(requirements)
  printf '%s\n' "$wanted" >"$venv/requirements-installed"
fi
rm -rf "$wheels"
PYO3_PYTHON="$venv/bin/python" py/build_wheel.sh "$venv/bin/python" "$wheels" dev
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --force-reinstall --no-deps \
  "$wheels"/justapi-*.whl
"$venv/bin/python" -VV
cd tests/python
exec "$venv/bin/python" -X faulthandler -m pytest -o faulthandler_timeout=120 -p no:cacheprovider "$@"
