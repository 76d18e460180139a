#!/usr/bin/env bash
# How the processor time and the memory of `kvopt check` grow with the number of nodes, for two forms of generated decoders of
# thin layers, and for a decoder with 13 GiB of weights, which are a hole in a file:
#   bash bench/check.sh [BUILD [ROUNDS]]     BUILD: build/release
# Writes bench/results/check.md. Exits with 1 if a check does not prove equality.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
kvopt=$(realpath "${1:-build/release}/bin/kvopt")
rounds=${2:-5}
# shellcheck source=bench/machine.sh
source bench/machine.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
busy=$(others)
python3 - "$kvopt" "$rounds" "$work" >"$work/table" <<'PYTHON'
import json
import os
import subprocess
import sys

kvopt, rounds, work = sys.argv[1], int(sys.argv[2]), sys.argv[3]
layers = [12, 25, 50, 101, 202]
forms = ["kvopt", "ort"]
thin = "--hidden 32 --heads 4 --intermediate 32 --vocab 64".split()
wide = "--hidden 1536 --heads 16 --sparse".split()


def run(*command):
    subprocess.run([kvopt, *command, "-q"], cwd=work, stdout=subprocess.DEVNULL, check=True)


def check(form):
    """The report, the least processor time in seconds, and the peak in MiB."""
    seconds, peak = [], 0
    for _ in range(rounds):
        with open(os.path.join(work, "report.json"), "w+") as answer:
            process = subprocess.Popen([kvopt, "check", "model.onnx", f"{form}.onnx", "--format", "json"],
                                       cwd=work, stdout=answer)
            _, status, usage = os.wait4(process.pid, 0)
            if status != 0:
                sys.exit(f"the check of --to {form} failed with status {status}")
            seconds.append(usage.ru_utime + usage.ru_stime)
            peak = max(peak, usage.ru_maxrss / 1024)
            answer.seek(0)
            report = json.load(answer)
    return report, min(seconds), peak


smallest = {}
print("| decoder | `--to` | nodes | compared values | distinct regions | time per node | seconds | MiB |")
print("|---|---|--:|--:|--:|--:|--:|--:|")
for count, options, name in [(count, thin, f"{count} thin layers") for count in layers] + [
        (layers[-2], wide, f"{layers[-2]} layers, 13 GiB of weights")]:
    run("gen", "llama", "--layers", str(count), "--spelling", "torchscript", *options, "-o", "model.onnx")
    for form in forms:
        run("rewrite", "model.onnx", "-o", f"{form}.onnx", "--to", form, "--verify", "off")
        report, seconds, peak = check(form)
        nodes = report["nodes"]["before"]
        if options is thin:
            smallest.setdefault(form, seconds / nodes)
        ratio = seconds / nodes / smallest[form]
        compared = len(report["outputs"]) + len(report["regions"])
        print(f"| {name} | `{form}` | {nodes:,} | {compared} | {report['regions_evaluated']} | {ratio:.2f} | "
              f"{seconds:.2f} | {peak:.0f} |", flush=True)
PYTHON
note="\`time per node\` is relative to the fewest thin layers; seconds of processor time, the least of $rounds; $machine; $(date -u +%F)"
[ "$busy" -eq 0 ] || note+="; other work ran on the machine: compare ratios"
result_page 'Checks of growing decoders' bench/check.sh "$work/table" \
  'Each decoder is compared with its rewritten form; both files are read, and the caches of the first one are recovered.' \
  >bench/results/check.md
cat bench/results/check.md
