#!/usr/bin/env bash
# Compares an exported decoder with what `kvopt rewrite` makes of it, both in ONNX Runtime, and writes the table to
# bench/results/headline.md and into README.md:
#   bash bench/headline.sh [--build BUILD] [--turns N] [--steps N] [--dry-run]
# The decoder has the size of SmolLM2-135M: 30 layers of width 576, 9 query heads and 3 key/value heads of 64. Export and
# rewritten model take turns, each in a process of its own, which decodes N tokens after the past. A turn's ratio is that of
# the medians of its steps, and the table has the median over the turns. --dry-run prints the table only.
# Exits with 77 where ONNX Runtime or its headers cannot be fetched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release turns=3 steps=8 pasts=${HEADLINE_PASTS:-"128 1024 4096 16384"} threads=$(nproc) dry=
while [ $# -gt 0 ]; do
  case $1 in
  --dry-run) dry=1 ;;
  --build | --turns | --steps)
    [ $# -gt 1 ] || exit 2
    printf -v "${1#--}" %s "$2"
    shift
    ;;
  *)
    echo "usage: bash bench/headline.sh [--build BUILD] [--turns N] [--steps N] [--dry-run]" >&2
    exit 2
    ;;
  esac
  shift
done
# shellcheck source=bench/machine.sh
source bench/machine.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bash scripts/onnxruntime_cpp.sh bench/headline.cc -o "$work/headline"
library=$(bash bench/baselines/install.sh)
engine=$(strings -n 5 "$library" 2>/dev/null | grep -oxm1 'VERS_[0-9.]*' || true)
"$build/bin/kvopt" gen llama --layers 30 --hidden 576 --heads 9 --kv-heads 3 --head-dim 64 --intermediate 1536 \
  --vocab 49152 --max-positions 32768 --spelling torchscript -o "$work/decoder.onnx" >&2
"$build/bin/kvopt" rewrite "$work/decoder.onnx" -o "$work/fused.onnx" --to ort --verify off -q >/dev/null

busy=$(others)
for past in $pasts; do
  for ((turn = 0; turn < turns; ++turn)); do
    read -r before memory_before _ < <("$work/headline" "$work/decoder.onnx" "$past" 1 "$steps" "$threads")
    read -r after memory_after _ < <("$work/headline" "$work/fused.onnx" "$past" 1 "$steps" "$threads")
    echo "$past $before $after $memory_before $memory_after" | tee -a "$work/turns" >&2
  done
done

python3 - "$work/turns" >"$work/table" <<'PYTHON'
import statistics
import sys

turns = {}
for line in open(sys.argv[1]):
    past, *numbers = map(float, line.split())
    turns.setdefault(int(past), []).append(numbers)
print("| tokens in the cache | faster by | export, tokens/s | rewritten, tokens/s | export, memory | rewritten, memory |")
print("|--:|--:|--:|--:|--:|--:|")
for past, rows in turns.items():
    ratio = statistics.median(after / before for before, after, _, _ in rows)
    before, after, memory_before, memory_after = (statistics.median(column) for column in zip(*rows))
    print(f"| {past:,} | {ratio:.1f}× | {before:.1f} | {after:.1f} | {memory_before:,.0f} MiB | {memory_after:,.0f} MiB |")
PYTHON
if [ -n "$dry" ]; then
  cat "$work/table"
  exit
fi

note="ONNX Runtime ${engine#VERS_}, $threads threads, float32 decoder of 135 M weights; $machine; $(date -u +%F)"
[ "$busy" -eq 0 ] || note+="; other work ran on the machine: compare ratios"
result_page 'Export and rewritten model in ONNX Runtime' bench/headline.sh "$work/table" >bench/results/headline.md
python3 - "$work/table" "$note" <<'PYTHON'
import pathlib
import sys

table, note = pathlib.Path(sys.argv[1]).read_text(), sys.argv[2]
readme = pathlib.Path("README.md")
start, end = "<!-- headline -->\n", "<!-- end of headline -->"
before, rest = readme.read_text().split(start)
readme.write_text(f"{before}{start}{table}\n{note}.\n{rest[rest.index(end):]}")
PYTHON
echo "wrote bench/results/headline.md and README.md" >&2
