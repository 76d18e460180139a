#!/usr/bin/env bash
# What decoding through the C interface and through Python costs over kvopt's own session, on the demo model, in turns:
#   bash bench/interfaces.sh [BUILD] [TURNS]     BUILD: build/release
# The cost of a step is the processor time of a process with many steps minus that of one with a single step, so that neither
# the start nor other programs count. Writes bench/results/interfaces.md: each ratio is of the minima over the turns.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
turns=${2:-9}
# shellcheck source=bench/machine.sh
source bench/machine.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
decoder=$work/fused.onnx
"$build/bin/kvopt" rewrite models/kjv/model.onnx -o "$decoder" --to kvopt --verify off -q >/dev/null
c++ -std=c++17 -O2 -Iinclude bench/interfaces.cc -o "$work/interfaces" -L"$build/lib" -lkvopt -Wl,-rpath,"$PWD/$build/lib"
cat >"$work/interfaces.py" <<'PYTHON'
import sys

import kvopt

steps = int(sys.argv[2])
session = kvopt.Session(sys.argv[1], capacity=steps + 8, threads=1)
tokens = [session.generate([1, 2, 3, 4], 1)[0][0]]
session.generate(tokens, steps)
PYTHON
busy=$(others)
note=
[ "$busy" -eq 0 ] || note="; other work ran on the machine: compare ratios"
python3 - "$build" "$work" "$turns" "$machine" "$note" >bench/results/interfaces.md <<'PYTHON'
import os
import resource
import subprocess
import sys

build, work, turns, machine, note = sys.argv[1:]
decoder, steps = f"{work}/fused.onnx", 801
environment = dict(os.environ, KVOPT_LIBRARY=f"{build}/lib/libkvopt.so.0", PYTHONPATH="python", PYTHONDONTWRITEBYTECODE="1")

def seconds(command):
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime
    before = used()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return used() - before

def command(name, count):
    if name == "kvopt run":
        return [f"{build}/bin/kvopt", "run", decoder, "--tokens", "1,2,3,4", "--steps", str(count + 1),
                "--capacity", str(count + 8), "--threads", "1", "--stats", "--format", "json"]
    if name == "C":
        return [f"{work}/interfaces", decoder, str(count)]
    return ["/usr/bin/python3", f"{work}/interfaces.py", decoder, str(count)]

times = {name: [] for name in ("kvopt run", "C", "Python")}
for _ in range(int(turns)):
    for name, costs in times.items():
        costs.append((seconds(command(name, steps)), seconds(command(name, 1))))
cost = {name: min(many for many, _ in costs) - min(one for _, one in costs) for name, costs in times.items()}
print("# Decoding through the interfaces\n")
print("`bash bench/interfaces.sh` on the demo model, one thread; a ratio is the processor time of a step, the minimum over "
      f"{turns} turns, over that of `kvopt run`.\n")
print("| interface | ratio |\n|---|--:|")
for name in ("C", "Python"):
    print(f"| {name} | {cost[name] / cost['kvopt run']:.2f} |")
print(f"\n{machine}{note}.")
PYTHON
cat bench/results/interfaces.md
