#!/usr/bin/env bash
# Real clients against the router example: OpenAI's Python package and curl. Skips what cannot be had here, and says so.
#   engine/examples/router/clients/run.sh [PROGRAM]   PROGRAM: the built example; else it is built
set -euo pipefail
cd "$(dirname "$0")/../../../.."
target=${CARGO_TARGET_DIR:-target}
program=${1:-}
if [ -z "$program" ]; then
    cargo build --quiet -p tollgate --example router
    program=$target/debug/examples/router
fi

log=$(mktemp)
"$program" --listen 127.0.0.1:0 --mock-workers 2 --mock-decode 500 --policy bench/policies/premium_4x.yaml 2>"$log" &
router=$!
trap 'kill "$router" 2>/dev/null || true; wait "$router" 2>/dev/null || true; rm -f "$log"' EXIT
url=
for _ in $(seq 300); do
    url=$(sed -n 's/^listening on //p' "$log")
    [ -n "$url" ] && break
    sleep 0.1
done
[ -n "$url" ] || { echo "router clients: the router did not start:"; cat "$log"; exit 1; }

if command -v curl >/dev/null; then
    # The lines of the README, at the port that is free here.
    grep -o '^curl .*localhost:8000.*' README.md | while read -r line; do
        line=${line//http:\/\/localhost:8000/$url}
        line=${line//localhost:8000/${url#http://}}
        answer=$(bash -c "${line/curl/curl --fail-with-body -sS}") || { echo "router clients: $line"; echo "$answer"; exit 1; }
        case $answer in
            *'"object"'*) echo "curl: ${line:0:70} … ok" ;;
            *) echo "router clients: $line: $answer"; exit 1 ;;
        esac
    done
else
    echo "SKIPPED: curl against the router: there is no curl"
fi

python=$target/clients/bin/python
if ! command -v python3 >/dev/null; then
    echo "SKIPPED: OpenAI's client against the router: there is no python3"
elif ! { [ -x "$python" ] || python3 -m venv "$target/clients"; } ||
    ! { "$python" -c 'import openai' 2>/dev/null || "$python" -m pip install --quiet --timeout 20 --retries 1 openai==3.57.0; }; then
    echo "SKIPPED: OpenAI's client against the router: its package cannot be installed here"
else
    "$python" engine/examples/router/clients/openai_client.py "$url"
fi
