#!/usr/bin/env bash
# What weights cost that exporters leave after a Transpose, Cast or DequantizeLinear node:
#   bash bench/constant_weights.sh [BUILD [STEPS]]
# First eight layers of 2048 x 2048 in each form, as ratios to plain float32 weights, once the
# session has started; then how long an 80-layer decoder with a Transpose on every weight takes to
# be rewritten and verified, as a ratio to the same decoder without (median of ROUNDS, default 3).
# The build folder needs -DKVOPT_BUILD_BENCH=ON.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${1:-build/release}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$build/bench/bench_constant_weights" --steps "${2:-40}" --rows 1,64

for form in plain transposed; do
  options=()
  [ "$form" = plain ] || options+=(--transposed-weights)
  "$build/bin/kvopt" gen llama --layers 80 --hidden 256 --heads 8 --kv-heads 4 --vocab 1024 \
    "${options[@]}" -o "$folder/$form.onnx" >/dev/null
done
python3 - "$build/bin/kvopt" "$folder" "${ROUNDS:-3}" <<'PYTHON'
import statistics, subprocess, sys, time

kvopt, folder, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])

def seconds(form):
    start = time.perf_counter()
    subprocess.run([kvopt, "rewrite", f"{folder}/{form}.onnx", "-o", f"{folder}/written.onnx",
                    "--to", "kvopt", "-q"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start

pairs = [(seconds("plain"), seconds("transposed")) for _ in range(rounds)]
print("\n80 layers, rewritten and verified with default options: "
      f"plain {statistics.median(a for a, _ in pairs):.2f} s, "
      f"transposed {statistics.median(b for _, b in pairs):.2f} s, "
      f"ratio {statistics.median(b / a for a, b in pairs):.2f}")
PYTHON
