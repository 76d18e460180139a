#!/usr/bin/env bash
# Compares an exported decoder in ONNX Runtime with its rewritten forms, with and without kvopt's library for ONNX Runtime,
# and writes the table to bench/results/engines.md:
#   bash bench/engines.sh [--build BUILD] [--turns N] [--steps N] [--layers N] [--weights "TYPE…"] [--dry-run]
# The decoder has 32 query heads and 8 key/value heads of 64, and a small vocabulary; the table has rows for each type of weights.
# All forms take turns, each in a process of its own, which decodes N tokens after the past. A turn's ratio is that of the
# medians of its steps to the export's, and the table has the median over the turns. The last columns are kvopt's own runtime.
# A dash marks a form that the engine does not run. --dry-run prints the table only.
# Exits with 77 where ONNX Runtime or its headers cannot be fetched, or where the library was not built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release turns=3 steps=16 layers=4 weights="float32 float16 int4" dry=
pasts=${ENGINES_PASTS:-"512 4096 16384"}
while [ $# -gt 0 ]; do
  case $1 in
  --dry-run) dry=1 ;;
  --build | --turns | --steps | --layers | --weights)
    [ $# -gt 1 ] || exit 2
    printf -v "${1#--}" %s "$2"
    shift
    ;;
  *)
    echo "usage: bash bench/engines.sh [--build BUILD] [--turns N] [--steps N] [--layers N] [--weights \"TYPE…\"] \\
[--dry-run]" >&2
    exit 2
    ;;
  esac
  shift
done
# shellcheck source=bench/machine.sh
source bench/machine.sh
library=$(realpath "$build/lib/libkvopt_onnxruntime.so")
if [ ! -e "$library" ]; then
  echo "skipped: the library for ONNX Runtime was not built" >&2
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bash scripts/onnxruntime_cpp.sh bench/headline.cc -o "$work/decode"
engine=$(strings -n 5 "$(bash bench/baselines/install.sh)" 2>/dev/null | grep -oxm1 'VERS_[0-9.]*' || true)
# rewrite FROM TO [OPTION…]
rewrite() {
  "$build/bin/kvopt" rewrite "$work/$1.onnx" -o "$work/$2.onnx" --verify off -q "${@:3}" >/dev/null
}
for type in $weights; do
  "$build/bin/kvopt" gen llama --layers "$layers" --hidden 2048 --heads 32 --kv-heads 8 --head-dim 64 --intermediate 2048 \
    --vocab 256 --max-positions 32768 --dtype "$type" --spelling torchscript -o "$work/$type-export.onnx" >&2
  rewrite "$type-export" "$type-ort" --to ort
  rewrite "$type-export" "$type-kvopt" --to kvopt
  for rows in float16 int8; do
    rewrite "$type-export" "$type-$rows" --to kvopt --rows "$rows" || true # rows of float16 stay as they are
  done
done

# Lines "NAME MODEL ENTRY"; ENTRY says how the library is loaded, or that kvopt's own runtime decodes.
forms="export export none
--to_ort ort none
--to_ort,_provider ort provider
--to_kvopt,_library kvopt operators
--to_kvopt_--rows_float16,_library float16 operators
--to_kvopt_--rows_int8,_library int8 operators
kvopt_run kvopt own
kvopt_run,_--rows_float16 float16 own
kvopt_run,_--rows_int8 int8 own"

# measure MODEL PAST THREADS ENTRY: prints tokens per second, a second number, and the milliseconds of the fastest step.
measure() {
  case $4 in
  own)
    "$build/bin/kvopt" bench "$work/$1.onnx" -p 1 -d "$2" -n "$steps" -r 1 -t "$3" -o json |
      python3 -c 'import json, sys
row = json.load(sys.stdin)["rows"][0]
if row["error"]:
    sys.exit(row["error"])
print(1000 / row["decode_ms"]["median"], 0, row["decode_ms"]["min"])'
    ;;
  none) "$work/decode" "$work/$1.onnx" "$2" "$steps" "$3" ;;
  *) "$work/decode" "$work/$1.onnx" "$2" "$steps" "$3" "$4" "$library" ;;
  esac
}

busy=$(others)
while read -r type threads past turn; do
  while read -r name model entry; do
    if ! read -r speed _ fastest < <(measure "$type-$model" "$past" "$threads" "$entry" 2>"$work/error" </dev/null); then
      echo "$type, $name after $past tokens: $(cat "$work/error")" >&2
      continue
    fi
    echo "$type $threads $past $turn $name $speed $fastest" | tee -a "$work/turns" >&2
  done <<<"$forms"
done < <(for type in $weights; do for threads in 1 2; do for past in $pasts; do for ((turn = 0; turn < turns; ++turn)); do
  echo "$type $threads $past $turn"
done; done; done; done)

python3 - "$work/turns" "$(cut -d ' ' -f 1 <<<"$forms")" >"$work/table" <<'PYTHON'
import statistics
import sys

names = sys.argv[2].split()
cases = {}
for line in open(sys.argv[1]):
    weights, threads, past, turn, name, speed, fastest = line.split()
    case = cases.setdefault((weights, int(threads), int(past)), {})
    case.setdefault(name, {})[turn] = float(speed), float(fastest)
print("| weights | threads | tokens in the cache | " + " | ".join(f"`{name.replace('_', ' ')}`" if name != "export" else name
                                                                  for name in names) + " |")
print("|---|--:|--:|" + "--:|" * len(names))
for (weights, threads, past), forms in cases.items():
    cells, exported = [], forms.get("export", {})
    for name in names:
        runs = forms.get(name, {})
        ratios = [speed / exported[turn][0] for turn, (speed, _) in runs.items() if turn in exported]
        cells.append(f"{statistics.median(ratios):.1f}× ({min(fastest for _, fastest in runs.values()):.2f} ms)"
                     if ratios else "–")
    print(f"| {weights} | {threads} | {past:,} | " + " | ".join(cells) + " |")
PYTHON
if [ -n "$dry" ]; then
  cat "$work/table"
  exit
fi

note="ONNX Runtime ${engine#VERS_}, decoder of $layers layers; $machine; $(date -u +%F)"
[ "$busy" -eq 0 ] || note+="; other work ran on the machine: compare ratios"
result_page 'Export and rewritten forms in ONNX Runtime, with and without the library' bench/engines.sh "$work/table" \
  'Speed relative to the export, and the fastest step.' >bench/results/engines.md
echo "wrote bench/results/engines.md" >&2
