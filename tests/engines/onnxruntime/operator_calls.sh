#!/usr/bin/env bash
# ai.kvopt's operators one by one, and decoders with caches in blocks, in ONNX Runtime with the library.
#   tests/engines/onnxruntime/operator_calls.sh PROGRAM LIBRARY KVOPT
# Exits with 77 where ONNX Runtime cannot be installed.
set -euo pipefail
# shellcheck source=tests/engines/onnxruntime/engine.sh
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kvopt=$3
"$kvopt" gen llama -o "$work/export.onnx" --vocab 160 >/dev/null
rewrite() {
  "$kvopt" rewrite "$work/export.onnx" -o "$work/$1.onnx" "${@:2}" --capacity 64 --verify off -q >/dev/null
}
rewrite blocks --to kvopt --cache blocks:16
rewrite codes --to kvopt --cache blocks:16 --rows int8
rewrite tiles --to primitive --split tiles:16
"$1" "$work"/{blocks,codes,tiles}.onnx
