#!/usr/bin/env bash
# How much faster kvopt's runtime decodes a rewritten model than the export: attention and caches only,
# since the other layers of these models are next to nothing. S1 has 8 heads of 128, each with its own
# keys; S2 has 32 query heads on 8 key heads. Several layers, so that caches come from memory.
#   bash bench/rewritten.sh [BUILD [OPTION OF kvopt bench …]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${1:-build/release}
shift $(($# < 1 ? $# : 1))
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# measure NAME HEADS KV_HEADS LAYERS DEPTHS OPTION…
measure() {
  "$build/bin/kvopt" gen llama --layers "$4" --hidden 64 --heads "$2" --kv-heads "$3" --head-dim 128 \
    --intermediate 64 --vocab 64 --max-positions 8448 --spelling torchscript \
    -o "$folder/$1.onnx" >/dev/null
  "$build/bin/kvopt" rewrite "$folder/$1.onnx" -o "$folder/$1-kvopt.onnx" --to kvopt --verify off >/dev/null
  printf '\n%s: %s query heads, %s key heads of 128, %s layers\n\n' "$1" "$2" "$3" "$4"
  "$build/bin/kvopt" bench "$folder/$1.onnx" "$folder/$1-kvopt.onnx" -p 0 -d "$5" "${@:6}"
}
measure S1 8 8 4 256,1024,4096 "$@"
measure S2 32 8 4 512,2048,8192 "$@"
