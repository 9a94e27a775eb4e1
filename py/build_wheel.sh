#!/usr/bin/env bash
# Builds the wheel: the extension module for one interpreter, the Python sources, the assets of the
# documentation pages and the program `justapi`. Needs Rust, npm and an interpreter with maturin.
# Usage: py/build_wheel.sh PYTHON OUT [PROFILE]   (PROFILE is release unless given)
set -euo pipefail

python=$1
out=$2
profile=${3:-release}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}"
folder=$profile
if [[ $profile == dev ]]; then folder=debug; fi

"$python" py/fetch_docs_assets.py
cargo build --locked --profile "$profile" -p justapi-cli
# maturin puts these files where an environment has its programs.
scripts=py/justapi.data/scripts
rm -rf "$scripts"
mkdir -p "$scripts"
cp "$target/$folder/justapi" "$scripts/justapi"
if [[ $profile == dev ]]; then strip --strip-debug "$scripts/justapi"; fi
"$python" -m maturin build --quiet --locked --manifest-path py/Cargo.toml --profile "$profile" \
  --interpreter "$python" --compatibility linux --out "$out"
