#!/usr/bin/env bash
# Decode speed of a llama of 0.3 G weights (float32, float16, or int4 with caches in float32) after
# 4096 tokens: kvopt's runtime compared with ONNX Runtime's, which runs the original export, the same
# weights with GroupQueryAttention and caches in one buffer, and what `kvopt rewrite --to ort-gqa`
# makes of the original export:
#   bash bench/whole_model.sh [BUILD [DTYPE [OPTION OF bench_whole_model …]]]
# The models are written to the temporary folder, which needs 4 GB. Exits with 77 where ONNX Runtime
# is not available.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${1:-build/release}
dtype=${2:-float32}
shift $(($# < 2 ? $# : 2))
library=$(bash bench/baselines/install.sh)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for spelling in torchscript gqa; do
  "$build/bin/kvopt" gen llama --layers 4 --hidden 2048 --heads 32 --kv-heads 8 \
    --max-positions 8192 --dtype "$dtype" --spelling "$spelling" -o "$folder/$spelling.onnx" >&2
done
"$build/bin/kvopt" rewrite "$folder/torchscript.onnx" -o "$folder/kvopt.onnx" --to kvopt \
  --verify off >/dev/null
"$build/bin/kvopt" rewrite "$folder/torchscript.onnx" -o "$folder/ort-gqa.onnx" --to ort-gqa \
  --verify off >/dev/null
"$build/bench/bench_whole_model" --library "$library" --kvopt "$folder/kvopt.onnx" \
  --growing "$folder/torchscript.onnx" --shared "$folder/gqa.onnx" \
  --rewritten "$folder/ort-gqa.onnx" "$@"
