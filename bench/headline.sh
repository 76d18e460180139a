#!/usr/bin/env bash
# Compares an exported decoder with what `kvopt rewrite` makes of it, both in ONNX Runtime, and prints a table:
#   bash bench/headline.sh [--build BUILD] [--turns N] [--steps N] [--dry-run | --write]
# The decoder has the size of SmolLM2-135M: 30 layers of width 576, 9 query heads and 3 key/value heads of 64. Export and
# rewritten model take turns, each in a process of its own, which decodes N tokens after the past. A turn's ratio is that of
# the medians of its steps, and the table has the median over the turns. --dry-run takes one short turn, and ends within
# three minutes: it leaves out what it has no time for. --write also writes the table to bench/results/headline.md and into
# README.md. Exits with 77 where ONNX Runtime or its headers cannot be fetched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release turns=3 steps=8 pasts=${HEADLINE_PASTS:-"128 1024 4096 16384"} threads=$(nproc) dry='' write=''
while [ $# -gt 0 ]; do
  case $1 in
  --dry-run) dry=1 turns=1 steps=4 ;;
  --write) write=1 ;;
  --build | --turns | --steps)
    [ $# -gt 1 ] || exit 2
    printf -v "${1#--}" %s "$2"
    shift
    ;;
  *)
    echo "usage: bash bench/headline.sh [--build BUILD] [--turns N] [--steps N] [--dry-run | --write]" >&2
    exit 2
    ;;
  esac
  shift
done
[ -z "$dry$write" ] || [ "$dry$write" = 1 ] || {
  echo "headline.sh: --dry-run and --write exclude each other" >&2
  exit 2
}
# Seconds after which --dry-run starts no measurement, and after which it ends one.
start_limit=90 end_limit=150
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

# measure MODEL PAST: tokens per second and MiB of memory; fails if --dry-run has no time left.
measure() {
  local limit=0
  if [ -n "$dry" ]; then
    [ "$SECONDS" -lt "$start_limit" ] || return 1
    limit=$((end_limit - SECONDS))
  fi
  timeout "$limit" "$work/headline" "$1" "$2" 1 "$steps" "$threads"
}

busy=$(others) left_out=''
for past in $pasts; do
  for ((turn = 1; turn <= turns; ++turn)); do
    if ! { before=$(measure "$work/decoder.onnx" "$past") && after=$(measure "$work/fused.onnx" "$past"); }; then
      [ -n "$dry" ] || exit 1
      left_out+=" $past"
      continue 2
    fi
    read -r before memory_before _ <<<"$before"
    read -r after memory_after _ <<<"$after"
    echo "$past tokens in the cache, turn $turn of $turns: export $before tokens/s and $memory_before MiB," \
      "rewritten $after tokens/s and $memory_after MiB" >&2
    echo "$past $before $after $memory_before $memory_after" >>"$work/turns"
  done
done
[ -s "$work/turns" ] || {
  echo "headline.sh: three minutes do not suffice for one measurement: omit --dry-run" >&2
  exit 1
}

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

note="ONNX Runtime ${engine#VERS_}, $threads threads, float32 decoder of 135 M weights; $machine; $(date -u +%F)"
[ "$busy" -eq 0 ] || note+="; other work ran on the machine: compare ratios"
[ -z "$left_out" ] || note+="; no time was left for$left_out tokens"
if [ -z "$write" ]; then
  cat "$work/table"
  printf '\n%s.\n' "$note"
  exit
fi

result_page 'Export and rewritten model in ONNX Runtime' 'bench/headline.sh --write' "$work/table" \
  >bench/results/headline.md
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
