#!/usr/bin/env bash
# How long a model of 20,000 nodes with 6 GB of external weights takes to be rewritten, and how much
# memory: wall-clock seconds and peak resident memory of the process.
#   bash bench/large_model.sh [KVOPT [ROUNDS]]
# The weights are a hole in a file, which takes no room on the disk.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kvopt=$(realpath "${1:-build/release/bin/kvopt}")
rounds=${2:-7}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

"$kvopt" gen llama --layers 101 --hidden 1024 --heads 16 --spelling torchscript --sparse \
  -o model.onnx --format json | grep -E '"(nodes|weight_bytes)"' | tr -d ' ,"' | tr '\n' ' '
echo
python3 - "$kvopt" "$rounds" <<'PYTHON'
import os, statistics, subprocess, sys, time

kvopt, rounds = sys.argv[1], int(sys.argv[2])
rewrite = [kvopt, "rewrite", "model.onnx", "-o", "written.onnx", "--verify", "off"]
commands = {
    "inspect": [kvopt, "inspect", "model.onnx"],
    "rewrite --to kvopt": rewrite + ["--to", "kvopt"],
    "rewrite --to onnx24": rewrite + ["--to", "onnx24"],
    "rewrite --to onnx24 --external-data copy": rewrite + ["--to", "onnx24",
                                                           "--external-data", "copy"],
}
print(f"{'':42}{'best':>8}{'median':>8}{'peak':>10}")
for name, command in commands.items():
    seconds, peak = [], 0
    for _ in range(rounds):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds.append(time.perf_counter() - start)
        if status != 0:
            sys.exit(f"{name}: failed with status {status}")
        peak = max(peak, usage.ru_maxrss)
    print(f"{name:42}{min(seconds):7.3f}s{statistics.median(seconds):7.3f}s{peak / 1024:7.0f} MiB")
PYTHON
