#!/usr/bin/env bash
# Draws README's picture, one attention block before and after, into docs/pictures/attention.svg:
#   bash scripts/picture.sh [KVOPT]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kvopt=$(realpath "${1:-$root/build/release/bin/kvopt}")
picture=${PICTURE:-$root/docs/pictures/attention.svg}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp "$root/models/gpt2-dynamo18-eager/model.onnx" "$work/model.onnx"
cd "$work"
"$kvopt" rewrite model.onnx -o fused.onnx --to ort --padding none --verify off -q >/dev/null
"$kvopt" diff model.onnx fused.onnx --format svg >picture.svg
cp picture.svg "$picture"
