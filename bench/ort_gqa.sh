#!/usr/bin/env bash
# How much faster ONNX Runtime decodes what `kvopt rewrite --to ort-gqa` wrote than the original
# export, after 4096 tokens, in one run, with 1 and 2 threads: a llama of 4 layers of width 1024 with
# the attention of Llama 3 8B (32 query and 8 kv heads of 128).
#   bash bench/ort_gqa.sh [BUILD [OPTION OF bench_whole_model …]]
# The models are written to the temporary folder, which needs 1 GB. Exits with 77 where ONNX Runtime
# is not available.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${1:-build/release}
shift $(($# < 1 ? $# : 1))
library=$(bash bench/baselines/install.sh)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$build/bin/kvopt" gen llama --layers 4 --hidden 1024 --heads 32 --kv-heads 8 --head-dim 128 \
  --intermediate 2048 --vocab 2000 --max-positions 8192 --spelling torchscript \
  -o "$folder/original.onnx" >&2
for target in kvopt ort-gqa; do
  "$build/bin/kvopt" rewrite "$folder/original.onnx" -o "$folder/$target.onnx" --to "$target" \
    --verify off >/dev/null
done
"$build/bench/bench_whole_model" --library "$library" --kvopt "$folder/kvopt.onnx" \
  --growing "$folder/original.onnx" --rewritten "$folder/ort-gqa.onnx" "$@"
