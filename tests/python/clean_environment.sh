#!/usr/bin/env bash
# The wheel as a user installs it: into a fresh environment, with what its own metadata asks for and nothing else,
# then served without any environment variable. Versions are those that the other tests run with.
# Usage: tests/python/clean_environment.sh PYTHON WHEEL
set -euo pipefail

python=$1
wheel=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")"
work=$(mktemp -d)
server=
finish() {
  if [[ -n "$server" ]]; then kill -KILL "$server" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT

# fail MESSAGE
fail() {
  printf 'error: %s\n' "$1" >&2
  sed 's/\x1b\[[0-9;]*m//g' "$work/log" 2>/dev/null | tail -n 40 >&2 || true
  exit 1
}

"$python" -m venv --without-pip "$work/venv"
pip=("$python" -m pip --python "$work/venv/bin/python" --disable-pip-version-check --no-input)
"${pip[@]}" install --quiet --constraint requirements.txt "$wheel"
"${pip[@]}" check >"$work/log" || fail "pip check complains"

cat >"$work/app.py" <<'APPLICATION'
import importlib.util
import os
from dataclasses import dataclass

from pydantic import BaseModel

import justapi.middleware
import justapi.responses
import justapi.schema
import justapi.staticfiles
from justapi import JustAPI, UploadFile
from justapi.responses import JSONResponse

app = JustAPI()


class Item(BaseModel):
    name: str


@dataclass
class Size:
    width: int


@app.post("/items/{number}")
async def item(number: int, item: Item, q: str = "none") -> JSONResponse:
    return JSONResponse({"number": number, "name": item.name, "q": q})


@app.post("/upload")
async def upload(file: UploadFile) -> Size:
    return Size(len(await file.read()))


@app.get("/around")
def around() -> list[list[str]]:
    names = ("email_validator", "fastapi", "httpx", "msgspec", "orjson", "starlette", "ujson")
    found = [name for name in names if importlib.util.find_spec(name) is not None]
    # What the server itself adds for its workers, and what the interpreter does for itself.
    return [found, sorted(name for name in os.environ if not name.startswith(("JUSTAPI_", "LC_")))]
APPLICATION

cd "$work"
env -i "$work/venv/bin/justapi" serve app:app --port 0 >"$work/log" 2>&1 &
server=$!
url=
for _ in $(seq 600); do
  url=$(sed -n 's|.*\(http://127\.0\.0\.1:[0-9]*\).*|\1|p' "$work/log" | head -n 1)
  if [[ -n "$url" ]]; then break; fi
  kill -0 "$server" 2>/dev/null || fail "the server has ended"
  sleep 0.05
done
[[ -n "$url" ]] || fail "the server does not listen"

"$work/venv/bin/python" - "$url" <<'CLIENT' || fail "a request was not answered as it should be"
import json
import sys
from urllib.request import Request, urlopen


def ask(path, body=None, kind="application/json"):
    request = Request(sys.argv[1] + path, body, {"content-type": kind})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


assert ask("/items/3?q=x", b'{"name": "a"}') == {"number": 3, "name": "a", "q": "x"}
form = b'--b\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n12345\r\n--b--\r\n'
assert ask("/upload", form, "multipart/form-data; boundary=b") == {"width": 5}
found, variables = ask("/around")
assert found == [], found
assert variables == [], variables
assert "/items/{number}" in ask("/openapi.json")["paths"]
CLIENT

kill -TERM "$server"
wait "$server" || fail "the server did not end well"
server=
echo "installed, imported and served without msgspec, httpx, orjson and environment variables"
