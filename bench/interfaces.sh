#!/usr/bin/env bash
# What decoding through the C interface and through Python costs over kvopt's own session, on the demo model, in turns:
#   bash bench/interfaces.sh [BUILD] [TURNS]     BUILD: build/release
# Writes bench/results/interfaces.md: each ratio is the median over the turns.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
turns=${2:-9}
steps=400
# shellcheck source=bench/machine.sh
source bench/machine.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
decoder=$work/fused.onnx
"$build/bin/kvopt" rewrite models/kjv/model.onnx -o "$decoder" --to kvopt --verify off -q >/dev/null
c++ -std=c++17 -O2 -Iinclude bench/interfaces.cc -o "$work/interfaces" -L"$build/lib" -lkvopt -Wl,-rpath,"$PWD/$build/lib"
cat >"$work/interfaces.py" <<'PYTHON'
import sys
import time

import kvopt

steps = int(sys.argv[2])
session = kvopt.Session(sys.argv[1], capacity=steps + 8, threads=1)
tokens = [session.generate([1, 2, 3, 4], 1)[0][0]]
start = time.perf_counter_ns()
session.generate(tokens, steps)
print((time.perf_counter_ns() - start) // steps)
PYTHON
busy=$(others)
note=
[ "$busy" -eq 0 ] || note="; other work ran on the machine: compare ratios"
for ((turn = 0; turn < turns; ++turn)); do
  "$build/bin/kvopt" run "$decoder" --tokens 1,2,3,4 --steps $((steps + 1)) --capacity $((steps + 8)) --threads 1 --stats \
    --format json | python3 -c 'import json, sys; print(round(1e9 / json.load(sys.stdin)["stats"]["decode_tps"]))'
  "$work/interfaces" "$decoder" $steps
  KVOPT_LIBRARY=$build/lib/libkvopt.so.0 PYTHONPATH=python PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 \
    "$work/interfaces.py" "$decoder" $steps
done | paste - - - | tee /dev/stderr >"$work/turns"
python3 - "$work/turns" "$machine" "$note" >bench/results/interfaces.md <<'PYTHON'
import statistics
import sys

turns = [[float(word) for word in line.split()] for line in open(sys.argv[1])]
print("# Decoding through the interfaces\n")
print("`bash bench/interfaces.sh` on the demo model, one thread; a ratio is the median over "
      f"{len(turns)} turns of the time of a step over that of `kvopt run`.\n")
print("| interface | ratio |\n|---|--:|")
for column, name in ((1, "C"), (2, "Python")):
    print(f"| {name} | {statistics.median(turn[column] / turn[0] for turn in turns):.2f} |")
print(f"\n{sys.argv[2]}{sys.argv[3]}.")
PYTHON
cat bench/results/interfaces.md
