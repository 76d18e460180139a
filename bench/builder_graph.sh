#!/usr/bin/env bash
# Compares what `kvopt rewrite --to ort` makes of an export with the graph that ONNX Runtime GenAI's builder writes for the
# same weights, in ONNX Runtime:
#   bash bench/builder_graph.sh [--build BUILD] [--turns N] [--steps N] [--past "N …"]
# Prints nodes, and the time of a step over that of the builder's graph, for a decoder of 12 layers of width 64, whose step
# is the overhead of nodes, and for one of width 576. The models take turns in processes of their own; a time is the least
# of the turns' medians. "--padding none" removes the padding mask, which the builder's graph counts instead of reading.
# Exits with 77 where ONNX Runtime or its headers cannot be fetched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release turns=5 steps=32 past="1 2048"
while [ $# -gt 0 ]; do
  case $1 in
  --build | --turns | --steps | --past)
    [ $# -gt 1 ] || exit 2
    printf -v "${1#--}" %s "$2"
    shift
    ;;
  *)
    echo "usage: bash bench/builder_graph.sh [--build BUILD] [--turns N] [--steps N] [--past \"N …\"]" >&2
    exit 2
    ;;
  esac
  shift
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bash scripts/onnxruntime_cpp.sh bench/headline.cc -o "$work/headline"

models=(export ort ort-unpadded builder)
echo "| width | model | nodes | tokens in the cache | time of a step, builder's = 1 |"
echo "|--:|---|--:|--:|--:|"
for width in 64 576; do
  size=(llama --layers 12 --hidden "$width" --heads 4 --kv-heads 2 --head-dim 16 --intermediate 128 --vocab 256)
  [ "$width" = 576 ] && size=(llama --layers 12 --hidden 576 --heads 9 --kv-heads 3 --head-dim 64 --intermediate 1536 --vocab 8192)
  "$build/bin/kvopt" gen "${size[@]}" --max-positions 4096 --spelling torchscript -o "$work/export.onnx" >/dev/null
  "$build/bin/kvopt" gen "${size[@]}" --max-positions 4096 --spelling gqa -o "$work/gqa.onnx" >/dev/null
  # rewritten FROM TO OPTION…: prints nothing
  rewritten() {
    "$build/bin/kvopt" rewrite "$work/$1.onnx" -o "$work/$2.onnx" --to ort --verify off -q "${@:3}" >/dev/null
  }
  rewritten export ort
  rewritten export ort-unpadded --padding none
  rewritten gqa builder # unchanged, with a manifest
  for tokens in $past; do
    for ((turn = 0; turn < turns; ++turn)); do
      for model in "${models[@]}"; do
        read -r speed _ < <("$work/headline" "$work/$model.onnx" "$tokens" 1 "$steps" 1)
        echo "$model $speed"
      done
    done >"$work/speeds"
    for model in "${models[@]}"; do
      nodes=$("$build/bin/kvopt" opt "$work/$model.onnx" --pipeline "" | grep -cE '^ +.* = .*\(.*\)$')
      awk -v model="$model" -v nodes="$nodes" -v width="$width" -v tokens="$tokens" '
        $2 > best[$1] { best[$1] = $2 }
        END { printf "| %d | %s | %d | %d | %.2f |\n", width, model, nodes, tokens, best["builder"] / best[model] }
      ' "$work/speeds"
    done
  done
done
