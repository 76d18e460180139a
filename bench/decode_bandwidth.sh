#!/usr/bin/env bash
# Decode speed of a llama of 1.1 G weights in float32 and float16, with one and two threads, as tokens
# a second and as a fraction of the bandwidth bound, the time to read the weights:
#   bash bench/decode_bandwidth.sh [KVOPT [OPTION OF kvopt bench …]]
# The models are written to the temporary folder, which needs 7 GB.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kvopt=${1:-build/release/bin/kvopt}
[ $# -gt 0 ] && shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

models=()
for dtype in float32 float16; do
  "$kvopt" gen llama --layers 16 --hidden 2048 --heads 32 --kv-heads 8 --dtype "$dtype" \
    -o "$folder/exported-$dtype.onnx" >&2
  "$kvopt" rewrite "$folder/exported-$dtype.onnx" -o "$folder/llama-$dtype.onnx" --to kvopt \
    --verify off >/dev/null
  models+=("$folder/llama-$dtype.onnx")
done
"$kvopt" bench "${models[@]}" -p 16 -n 32 -d 0 -r 5 -t 1,2 "$@"
