#!/usr/bin/env bash
# Compares exported encoder-decoders in ONNX Runtime with what `kvopt rewrite` makes of them without options, with and without
# kvopt's library for ONNX Runtime, and writes bench/results/encoder-decoders.md:
#   bash bench/encoder_decoders.sh [--build BUILD] [--steps N] [--threads "N…"] [--dry-run] [FOLDER…]
# A step of one token follows 16 tokens and reads 1,500 rows of an encoder. Both models take turns in one process; a ratio is the
# median of the steps' ratios. The models are generated ones of several widths, and each exported decoder in a FOLDER if
# kvopt finds attention over an encoder's caches. --dry-run prints the table only. Exits with 77 where ONNX Runtime or its headers
# cannot be fetched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release steps=60 threads=1 dry=
folders=()
while [ $# -gt 0 ]; do
  case $1 in
  --dry-run) dry=1 ;;
  --build | --steps | --threads)
    [ $# -gt 1 ] || exit 2
    printf -v "${1#--}" %s "$2"
    shift
    ;;
  -*)
    echo "usage: bash bench/encoder_decoders.sh [--build BUILD] [--steps N] [--threads \"N…\"] [--dry-run] [FOLDER…]" >&2
    exit 2
    ;;
  *) folders+=("$1") ;;
  esac
  shift
done
# shellcheck source=bench/machine.sh
source bench/machine.sh
library=$(realpath -q "$build/lib/libkvopt_onnxruntime.so" || true)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bash scripts/onnxruntime_cpp.sh bench/encoder_decoders.cc -o "$work/compare"
engine=$(strings -n 5 "$(bash bench/baselines/install.sh)" 2>/dev/null | grep -oxm1 'VERS_[0-9.]*' || true)

# gen NAME WIDTH HEADS
gen() {
  "$build/bin/kvopt" gen encoder-decoder --layers 4 --hidden "$2" --heads "$3" --kv-heads "$3" --vocab 1000 -o "$work/$1.onnx" >&2
  echo "$1 $work/$1.onnx"
}
# models: lines "NAME PATH"
models() {
  gen generated-256 256 4
  gen generated-512 512 8
  gen generated-1024 1024 16
  local folder path
  for folder in "${folders[@]}"; do
    for path in "$folder"/*/model.onnx; do
      # A pipe to `grep -q` would end kvopt at times, and the pipe's failure leave the model out.
      if [[ $("$build/bin/kvopt" inspect "$path" --format json) == *'"policy": "cross"'* ]]; then
        echo "$(basename "$(dirname "$path")") $path"
      fi
    done
  done
}
# cell EXPORT REWRITTEN THREADS [LIBRARY]
cell() {
  local ratio before after
  if read -r ratio before after _ < <("$work/compare" "$1" "$2" 16 1500 "$steps" "${@:3}" 2>"$work/error"); then
    echo "$ratio× ($before → $after ms)"
  else
    tail -n 1 "$work/error" >&2
    echo –
  fi
}

busy=$(others)
{
  echo "| model | threads | rewritten layers | without the library | with the library |"
  echo "|---|--:|--:|--:|--:|"
} >"$work/table"
while read -r name path; do
  answer=$("$build/bin/kvopt" rewrite "$path" -o "$work/rewritten.onnx" --format json) || continue
  layers=$(python3 -c 'import json, sys
sites = json.load(sys.stdin)["sites"]
print("%d of %d" % (sites["rewritten"], sites["total"]))' <<<"$answer")
  for count in $threads; do
    with=–
    [ -z "$library" ] || with=$(cell "$path" "$work/rewritten.onnx" "$count" "$library")
    echo "| $name | $count | $layers | $(cell "$path" "$work/rewritten.onnx" "$count") | $with |" | tee -a "$work/table" >&2
  done
done < <(models)
if [ -n "$dry" ]; then
  cat "$work/table"
  exit
fi

note="ONNX Runtime ${engine#VERS_}; $machine; $(date -u +%F)"
[ "$busy" -eq 0 ] || note+="; other work ran on the machine: compare ratios"
result_page 'Encoder-decoders in ONNX Runtime: the export and what kvopt writes by default' bench/encoder_decoders.sh \
  "$work/table" 'Speed relative to the export for a step of one token, and the fastest step of each.' \
  >bench/results/encoder-decoders.md
echo "wrote bench/results/encoder-decoders.md" >&2
