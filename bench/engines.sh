#!/usr/bin/env bash
# Compares an exported decoder in ONNX Runtime with its rewritten forms, with and without kvopt's library for ONNX Runtime,
# and writes the tables to bench/results/engines.md:
#   bash bench/engines.sh [--build BUILD] [--turns N] [--steps N] [--layers N] [--weights "TYPE…"] [--threads "N…"] [--dry-run]
# The decoder has 32 query heads and 8 key/value heads of 64, and a small vocabulary; there is a table for each type of weights
# and number of threads. All forms take turns, each in a process of its own, which runs prefills, or decodes N tokens after a
# past. A turn's ratio is that of the medians of its steps to the export's, and the table has the median over the turns.
# `kvopt` is kvopt's own runtime, which computes its past and is therefore measured after at most 4,096 tokens. The builder's
# graph has the same sizes, with GroupQueryAttention as GenAI's model builder writes it. A dash marks what was not measured,
# because the form does not exist or takes too long. --dry-run prints the tables only.
# Exits with 77 where ONNX Runtime or its headers cannot be fetched, or where the library was not built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release turns=3 steps=16 layers=4 weights="float32 float16 int4" threads="1 2" dry=
prompts=${ENGINES_PROMPTS-"128 512 2048"} pasts=${ENGINES_PASTS-"512 4096 16384 32768"}
while [ $# -gt 0 ]; do
  case $1 in
  --dry-run) dry=1 ;;
  --build | --turns | --steps | --layers | --weights | --threads)
    [ $# -gt 1 ] || exit 2
    printf -v "${1#--}" %s "$2"
    shift
    ;;
  *)
    echo "usage: bash bench/engines.sh [--build BUILD] [--turns N] [--steps N] [--layers N] [--weights \"TYPE…\"] \\
[--threads \"N…\"] [--dry-run]" >&2
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
# decoder NAME TYPE SPELLING
decoder() {
  "$build/bin/kvopt" gen llama --layers "$layers" --hidden 2048 --heads 32 --kv-heads 8 --head-dim 64 --intermediate 2048 \
    --vocab 256 --max-positions 40960 --dtype "$2" --spelling "$3" -o "$work/$1.onnx" >&2
}
for type in $weights; do
  decoder "$type-export" "$type" torchscript
  decoder "$type-written" "$type" gqa
  rewrite "$type-written" "$type-builder" --to ort # nothing but a manifest
  rewrite "$type-export" "$type-ort" --to ort
  rewrite "$type-export" "$type-kvopt" --to kvopt
  for rows in float16 int8 int4; do
    rewrite "$type-export" "$type-$rows" --to kvopt --rows "$rows" || true # rows of float16 stay as they are
  done
done

# Lines "NAME MODEL ENTRY"; ENTRY says how the library is loaded, or that kvopt's own runtime computes.
forms="export export none
--to_ort ort none
--to_ort,_provider ort provider
builder's_graph builder none
builder's_graph,_provider builder provider
--to_kvopt,_library kvopt operators
--to_kvopt_--rows_float16,_library float16 operators
--to_kvopt_--rows_int8,_library int8 operators
--to_kvopt_--rows_int4,_library int4 operators
export,_kvopt export own
--to_kvopt,_kvopt kvopt own
--to_kvopt_--rows_float16,_kvopt float16 own
--to_kvopt_--rows_int8,_kvopt int8 own"

# measure MODEL PAST TOKENS THREADS ENTRY: prints steps per second, a second number, and the milliseconds of the fastest step.
measure() {
  local count=$steps
  [ "$3" -eq 1 ] || count=2
  case $5 in
  own)
    local what=(-p 1 -d "$2" -n "$count" -r 1)
    [ "$3" -eq 1 ] || what=(-p "$3" -d 0 -n 0 -r "$count")
    "$build/bin/kvopt" bench "$work/$1.onnx" "${what[@]}" -t "$4" -o json | python3 -c 'import json, sys
row, tokens = json.load(sys.stdin)["rows"][0], int(sys.argv[1])
if row["error"]:
    sys.exit(row["error"])
if tokens == 1:
    print(1000 / row["decode_ms"]["median"], 0, row["decode_ms"]["min"])
else:
    print(row["prefill_tps"] / tokens, 0, 1000 * tokens / row["prefill_tps"])' "$3"
    ;;
  none) "$work/decode" "$work/$1.onnx" "$2" "$3" "$count" "$4" ;;
  *) "$work/decode" "$work/$1.onnx" "$2" "$3" "$count" "$4" "$5" "$library" ;;
  esac
}

busy=$(others)
while read -r type count past tokens turn; do
  while read -r name model entry; do
    [ "$entry" != own ] || [ "$past" -le 4096 ] || continue
    if ! read -r speed _ fastest < <(measure "$type-$model" "$past" "$tokens" "$count" "$entry" 2>"$work/error" </dev/null); then
      echo "$type, $name, $tokens tokens after $past: $(cat "$work/error")" >&2
      continue
    fi
    echo "$type $count $past $tokens $turn $name $speed $fastest" | tee -a "$work/turns" >&2
  done <<<"$forms"
done < <(for type in $weights; do for count in $threads; do for ((turn = 0; turn < turns; ++turn)); do
  for prompt in $prompts; do echo "$type $count 0 $prompt $turn"; done
  for past in $pasts; do echo "$type $count $past 1 $turn"; done
done; done; done)

python3 - "$work/turns" "$(cut -d ' ' -f 1 <<<"$forms")" >"$work/table" <<'PYTHON'
import statistics
import sys

names = sys.argv[2].split()
tables = {}  # of each type of weights and number of threads: of each case, of each form, of each turn
for line in open(sys.argv[1]):
    weights, threads, past, tokens, turn, name, speed, fastest = line.split()
    case = tables.setdefault((weights, int(threads)), {}).setdefault((int(past), int(tokens)), {})
    case.setdefault(name, {})[turn] = float(speed), float(fastest)
for place, ((weights, threads), cases) in enumerate(tables.items()):
    print("\n" * (place > 0) + f"## {weights} weights, {threads} thread{'s' * (threads > 1)}\n")
    print("| form | " + " | ".join(f"prefill of {tokens:,}" if tokens > 1 else f"decode after {past:,}"
                                   for past, tokens in cases) + " |")
    print("|---|" + "--:|" * len(cases))
    for name in names:
        cells = []
        for forms in cases.values():
            exported, runs = forms.get("export", {}), forms.get(name, {})
            ratios = [speed / exported[turn][0] for turn, (speed, _) in runs.items() if turn in exported]
            cells.append(f"{statistics.median(ratios):.2f}× ({min(fastest for _, fastest in runs.values()):.2f} ms)"
                         if ratios else "–")
        print(f"| {name.replace('_', ' ')} | " + " | ".join(cells) + " |")
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
