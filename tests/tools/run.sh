#!/usr/bin/env bash
# The demo, and the Python package's examples, as other people's tools see them: slowhttptest, promtool, sslscan,
# openssl s_client, h2load and nghttp, schemathesis.
# usage: tests/tools/run.sh [BINARY]     target/debug/justapi by default
# The tools are on PATH, promtool in target/prometheus, schemathesis in target/test-venv, the package in target/wheel-venv:
# tests/run puts them there.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec </dev/null

target_dir="$(realpath "${CARGO_TARGET_DIR:-target}")"
binary="$(realpath "${1:-$target_dir/debug/justapi}")"
promtool="$target_dir/prometheus/usr/bin/promtool"
work="$(mktemp -d)"
servers=()
finish() {
  if ((${#servers[@]} > 0)); then kill "${servers[@]}" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT

# fail MESSAGE [FILE]
fail() {
  printf 'error: %s\n' "$1" >&2
  if (($# > 1)); then sed 's/\x1b\[[0-9;]*m//g' "$2" | tail -n 60 >&2; fi
  exit 1
}

# serve NAME FLAGS...: starts a server; its URL is in $url.
serve() {
  local log="$work/$1.log"
  shift
  : >"$log"
  "$binary" serve --port 0 "$@" >>"$log" 2>&1 &
  servers+=($!)
  url=
  for _ in $(seq 200); do
    url="$(sed -n 's|.*\(https\{0,1\}://127\.0\.0\.1:[0-9]*\).*|\1|p' "$log" | head -n 1)"
    if [[ -n "$url" ]]; then return 0; fi
    sleep 0.05
  done
  fail "the server does not say where it listens" "$log"
}

# counter NAME: the value of a series of $url.
counter() {
  curl -fsS "$url/metrics" | awk -v name="$1" '$1 == name { print $2 }'
}

# rejected REASONS: how many were rejected for these reasons, with commas between them.
rejected() {
  curl -fsS "$url/metrics" | awk -F '"' -v reasons=",$1," '
    /^justapi_rejected_total/ && index(reasons, "," $2 ",") { sub(/^} /, "", $3); sum += $3 }
    END { print sum + 0 }'
}

# slow NAME PATH LIMITS FLAGS...: 200 slow clients are cut off by LIMITS, while others are served.
slow() {
  local name=$1 path=$2 limit=$3 log="$work/slow.log" before connections cut
  shift 3
  before="$(rejected "$limit")"
  slowhttptest -c 200 -r 200 -l 12 -p 3 -u "$url$path" "$@" >"$log" 2>&1 || fail "slowhttptest $name" "$log"
  if grep -q 'service available:.*NO' "$log"; then fail "slowhttptest $name: others were not served" "$log"; fi
  grep -q 'service available:.*YES' "$log" || fail "slowhttptest $name has looked at nothing" "$log"
  cut="$(($(rejected "$limit") - before))"
  connections="$(counter justapi_connections)"
  ((cut == 200 && connections == 1)) || fail "slowhttptest $name: $cut of 200 cut off, $connections left" "$log"
  echo "slowhttptest $name: 200 of 200 cut off by $limit, others served"
}

slow_clients() {
  head -c 4194304 /dev/zero >"$work/large"
  serve slow --static "/files=$work" --timeout-header 3s --timeout-body 3s --timeout-write 3s
  slow headers /hello header_timeout -H -i 2
  slow body /echo body_stall -B -i 5 -s 8192
  # Whether a look finds that something was taken since the last one is the kernel's grain.
  slow read /files/large write_stall,write_rate -X -n 2 -w 10 -y 20 -z 8 -k 1 -l 6
}

metrics() {
  serve metrics
  curl -fsS "$url/hello" "$url/nowhere" "$url/metrics" >/dev/null 2>&1 || true
  curl -fsS "$url/metrics" | "$promtool" check metrics >"$work/promtool.log" 2>&1 ||
    fail "promtool check metrics" "$work/promtool.log"
  # And it does refuse what is wrong.
  if echo 'justapi_total{ 1' | "$promtool" check metrics >/dev/null 2>&1; then fail "promtool accepts anything"; fi
  echo "promtool: no complaint"
}

tls() {
  local log="$work/sslscan.log" wrong
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -keyout "$work/key.pem" -out "$work/certificate.pem" 2>/dev/null ||
    fail "openssl makes no certificate"
  serve tls --tls-cert "$work/certificate.pem" --tls-key "$work/key.pem"
  sslscan --no-colour "${url#https://}" >"$log" 2>&1 || fail "sslscan" "$log"
  wrong="$(grep -E '^(SSLv2|SSLv3|TLSv1\.0|TLSv1\.1) ' "$log" | grep -v disabled || true)"
  wrong+="$(grep -E '^(TLSv1\.2|TLSv1\.3) +disabled' "$log" || true)"
  wrong+="$(grep -E '^(Preferred|Accepted)' "$log" | grep -vE '_GCM_|-GCM-|CHACHA20' || true)"
  wrong+="$(grep -E '^(Preferred|Accepted) +TLSv1\.2' "$log" | grep -v ' ECDHE-' || true)"
  wrong+="$(grep -E ' vulnerable to heartbleed' "$log" | grep -v 'not vulnerable' || true)"
  if [[ -n "$wrong" ]]; then fail "sslscan: $wrong" "$log"; fi
  grep -q '^Preferred  TLSv1\.3\|^Preferred TLSv1\.3' "$log" || fail "sslscan has seen no suite" "$log"
  echo "sslscan: TLS 1.2 and 1.3 only, $(grep -cE '^(Preferred|Accepted)' "$log") suites, all of them AEAD"
}

# await FILE TEXT COUNT: waits until a file has a text so many times.
await() {
  for _ in $(seq 200); do
    if (($(grep -ao "$2" "$1" | wc -l) >= $3)); then return 0; fi
    sleep 0.05
  done
  fail "openssl s_client: not $3 times '$2'" "$1"
}

# New keys in the midst of requests, with each suite of TLS 1.3; reuses the server of `tls`.
key_updates() {
  local suite command client log="$work/s_client.log" answers updates
  local request='GET /hello HTTP/1.1\r\nHost: localhost\r\n'
  for suite in TLS_AES_128_GCM_SHA256 TLS_AES_256_GCM_SHA384 TLS_CHACHA20_POLY1305_SHA256; do
    rm -f "$work/s_client"
    mkfifo "$work/s_client"
    openssl s_client -connect "${url#https://}" -CAfile "$work/certificate.pem" -servername localhost \
      -alpn http/1.1 -tls1_3 -ciphersuites "$suite" -msg <"$work/s_client" >"$log" 2>&1 &
    client=$!
    exec 3>"$work/s_client"
    answers=0 updates=0
    # `k` gives the server new keys, `K` asks for some of its own besides.
    for command in - k K K k; do
      if [[ $command != - ]]; then
        echo "$command" >&3
        updates=$((updates + 1))
        await "$log" '>>> .*KeyUpdate' "$updates"
      fi
      printf '%b\r\n' "$request" >&3
      answers=$((answers + 1))
      await "$log" '"message":"hello"' "$answers"
    done
    printf '%bConnection: close\r\n\r\n' "$request" >&3
    wait "$client" || fail "openssl s_client $suite" "$log"
    exec 3>&-
    await "$log" '"message":"hello"' 6
    await "$log" '<<< .*KeyUpdate' 2
    await "$log" '<<< .*close_notify' 1
  done
  echo "openssl s_client: 6 answers around 4 key updates, with each of 3 suites"
}

# Reuses the server of `tls`, which is in $url, and starts one in cleartext.
http2_clients() {
  local log="$work/h2load.log" secure=$url each
  serve cleartext
  for each in "$url" "$secure"; do
    h2load -n 2000 -c 10 -m 10 "$each/hello" >"$log" 2>&1 || fail "h2load $each" "$log"
    grep -q '2000 done, 2000 succeeded, 0 failed, 0 errored, 0 timeout' "$log" || fail "h2load $each" "$log"
    head -c 300000 /dev/zero | tr '\0' ' ' >"$work/body"
    h2load -n 50 -c 5 -m 5 -d "$work/body" "$each/anything" >"$log" 2>&1 || fail "h2load -d $each" "$log"
    grep -q '50 done, 50 succeeded, 0 failed, 0 errored, 0 timeout' "$log" || fail "h2load -d $each" "$log"
    nghttp --null-out --stat --no-verify-peer "$each/hello" "$each/search?q=x" >"$log" 2>&1 || fail "nghttp $each" "$log"
    (($(grep -cE ' 200 +[0-9]+ /' "$log") == 2)) || fail "nghttp $each" "$log"
  done
  echo "h2load and nghttp: all answered, in cleartext and over TLS"
}

# probe FLAGS...: runs schemathesis on the paths that the flags leave. It leaves a folder where it runs.
probe() {
  local log="$work/schemathesis.log"
  (cd "$work" && "$target_dir/test-venv/bin/schemathesis" run "$url/openapi.json" --max-examples 100 --seed 1 \
    --no-color --generation-database none --request-timeout 10 "$@") >"$log" 2>&1 || fail "schemathesis" "$log"
  echo "schemathesis: $(sed -n 's/^ *\([0-9]* generated\).*/\1/p' "$log" | tail -n 1), none failed"
}

# Not /events, whose answers do not end. /anything answers every method, TRACE and QUERY included, and keeps nothing
# that could be gone once it is deleted.
contract() {
  serve contract
  probe --exclude-path-regex '^/(anything|events)'
  probe --include-path-regex '^/anything' --exclude-checks unsupported_method,use_after_free
}

# The examples of the Python package.
examples() {
  local example binary="$target_dir/wheel-venv/bin/justapi"
  for example in hello notes native; do
    serve "$example" "$example:app" --app-dir py/examples
    probe
  done
}

slow_clients
metrics
tls
key_updates
http2_clients
contract
examples
