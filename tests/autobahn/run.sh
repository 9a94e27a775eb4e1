#!/usr/bin/env bash
# Runs Autobahn's WebSocket suite (517 cases) against the demo's /ws and judges the report.
# usage: tests/autobahn/run.sh [--gate | CASES...]   e.g. '1.*' '12.*'; without any, all groups
# JUSTAPI_AUTOBAHN_SERVER names a built binary to test in place of one that is built here.
#
# --gate is what tests/run calls: groups 1 to 7 and 10 (247 cases, seconds) with the binary as the other tests have it,
# and one line in place of it where there is no Python 2.7. Groups 9, 12 and 13 take a quarter of an hour.
# The suite is Python 2.7 software, looked for on PATH and in pyenv; it is installed into target/autobahn.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec </dev/null

target_dir="${CARGO_TARGET_DIR:-$PWD/target}"
work="$target_dir/autobahn"
python="$work/suite/bin/python"
server_binary="${JUSTAPI_AUTOBAHN_SERVER:-}"
is_gate=false
if [[ "${1-}" == --gate ]]; then
  is_gate=true
  set -- '1.*' '2.*' '3.*' '4.*' '5.*' '6.*' '7.*' '10.*'
fi
cases=("$@")
if ((${#cases[@]} == 0)); then cases=('*'); fi

# fail MESSAGE HINT
fail() {
  printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
  exit 1
}

# python2: prints the path of an interpreter, or fails.
python2() {
  local candidate
  for candidate in "$(command -v python2.7 || true)" \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/2.7.*/bin/python2.7; do
    # A pyenv shim exists without the interpreter behind it.
    if [[ -n "$candidate" ]] && "$candidate" --version >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  return 1
}

# virtualenv of that age is the last that makes a Python 2.7 environment.
install_suite() {
  if [[ -x "$work/suite/bin/wstest" ]]; then return 0; fi
  rm -rf "$work/bootstrap" "$work/suite"
  python3 -m venv "$work/bootstrap"
  "$work/bootstrap/bin/pip" install --quiet --disable-pip-version-check 'virtualenv==20.21.1'
  "$work/bootstrap/bin/virtualenv" --quiet --python "$1" "$work/suite"
  "$python" -m pip install --quiet --disable-pip-version-check 'autobahntestsuite==25.10.1' 2>"$work/pip.log" ||
    fail "the suite cannot be installed" "see $work/pip.log"
}

if ! interpreter="$(python2)"; then
  if $is_gate; then
    echo "NOT RUN: there is no Python 2.7; pyenv install 2.7.18, then tests/autobahn/run.sh --gate"
    exit 0
  fi
  fail "there is no Python 2.7" "pyenv install 2.7.18"
fi
mkdir -p "$work"
install_suite "$interpreter"
if [[ -z "$server_binary" ]]; then
  server_binary="$target_dir/debug/justapi"
  settings=()
  if ! $is_gate; then
    # Unoptimised compression would make it an hour.
    settings=(--config 'profile.dev.package.zlib-rs.opt-level=3' --config 'profile.dev.package.justapi-core.opt-level=2')
  fi
  cargo build --locked -p justapi-cli "${settings[@]}"
fi

log="$work/server.log"
: >"$log"
"$server_binary" serve --port 0 >>"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
port=
for _ in $(seq 100); do
  port="$(sed -n 's|.*http://127\.0\.0\.1:\([0-9]*\).*|\1|p' "$log" | head -n 1)"
  if [[ -n "$port" ]]; then break; fi
  sleep 0.05
done
[[ -n "$port" ]] || fail "the server does not say where it listens" "see $log"

rm -rf "$work/report"
python3 - "$port" "$work" "${cases[@]}" <<'END'
import json, sys

port, work, *cases = sys.argv[1:]
spec = {
    "outdir": f"{work}/report",
    # Compression with context takeover: what is hard without it is hard with it too.
    "servers": [{"agent": "justapi", "url": f"ws://127.0.0.1:{port}/ws?context=keep"}],
    "cases": cases,
    "exclude-cases": [],
    "exclude-agent-cases": {},
}
with open(f"{work}/spec.json", "w", encoding="utf-8") as file:
    json.dump(spec, file)
END
"$work/suite/bin/wstest" -m fuzzingclient -s "$work/spec.json" >"$work/suite.log" 2>&1 ||
  fail "the suite failed" "see $work/suite.log"
kill -0 "$server" || fail "the server has died" "see $log"
python3 tests/autobahn/judge.py "$work/report/index.json"
