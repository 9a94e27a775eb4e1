#!/usr/bin/env bash
# Builds the fuzz targets once and runs each from its seeds, one on each core at a time.
# usage: fuzz/run.sh [TARGET]...     JUSTAPI_FUZZ_SECONDS for each target, 10 by default;
# JUSTAPI_FUZZ_SEED for other inputs than the last time: a number, 0 for one by chance, 1 by default
# New inputs are kept in target/fuzz/corpus; one that breaks a property is left in target/fuzz/found.
set -euo pipefail

script=$(realpath "${BASH_SOURCE[0]}")
folder=$(realpath -m "${CARGO_TARGET_DIR:-$(dirname "$script")/../target}")/fuzz
cd "$(dirname "$script")"
seconds="${JUSTAPI_FUZZ_SECONDS:-10}"
seed="${JUSTAPI_FUZZ_SEED:-1}"
program="$folder/release/justapi-fuzz"

# run_one TARGET: one line of counts, or the end of the log and status 1.
run_one() {
  local target=$1 grown="$folder/corpus/$1" found="$folder/found/$1" log="$folder/$1.log"
  mkdir -p "$grown" "$found"
  if JUSTAPI_FUZZ_TARGET=$target "$program" -seed="$seed" -max_total_time="$seconds" -max_len=1024 -timeout=10 -rss_limit_mb=1024 \
    -print_final_stats=1 -artifact_prefix="$found/" "$grown" "corpus/$target" >"$log" 2>&1; then
    awk -v target="$target" '
      / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") edges = $(i + 1); else if ($i == "ft:") features = $(i + 1) }
      /^Done / { runs = $2; seconds = $5 }
      END { printf "%-16s %9d runs %5d s %6d edges %6d features\n", target, runs, seconds, edges, features }' "$log"
  else
    printf '%s broke a property; the input is in %s\n' "$target" "$found"
    grep -v '^#' "$log" | tail -n 40
    return 1
  fi
}

if [[ "${1-}" == --one ]]; then
  run_one "$2"
  exit
fi

# The versions that are shipped, and libFuzzer besides.
cp ../Cargo.lock Cargo.lock
CARGO_TARGET_DIR="$folder" RUSTC_WRAPPER="$PWD/rustc.sh" cargo build --release

if (($# > 0)); then targets=("$@"); else targets=(corpus/*/); fi
targets=("${targets[@]%/}")
printf '%s\n' "${targets[@]##*/}" | xargs -P "$(nproc)" -I{} bash "$script" --one {}
