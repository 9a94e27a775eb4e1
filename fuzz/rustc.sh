#!/usr/bin/env bash
# A wrapper of the compiler: coverage for the crates whose branches are worth finding, and for no others.
# The flags are those of cargo-fuzz without a sanitizer, and stable.
set -euo pipefail

crate=
for ((index = 1; index < $#; index++)); do
  if [[ "${!index}" == --crate-name ]]; then
    next=$((index + 1))
    crate=${!next}
  fi
done
case $crate in
  justapi_core | justapi_cli | justapi_inference | justapi_fuzz | http | jsonschema | referencing | safetensors | serde_json | toml | toml_parser)
    exec "$@" --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
      -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
      -Cllvm-args=-sanitizer-coverage-trace-compares
    ;;
  *) exec "$@" ;;
esac
