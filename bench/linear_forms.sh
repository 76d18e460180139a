#!/usr/bin/env bash
# Every form of weights at 1, 8, 64 and 512 rows, compared with ONNX Runtime on the same file, in turns:
#   bash bench/linear_forms.sh [BUILD [STEPS]]     BUILD: build/release
# Writes bench/results/linear.md. The build folder needs -DKVOPT_BUILD_BENCH=ON. Exits with 77 where ONNX Runtime is not
# available.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
steps=${2:-40}
library=$(bash bench/baselines/install.sh)
# shellcheck source=bench/machine.sh
source bench/machine.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
busy=$(others)
note=
[ "$busy" -eq 0 ] || note="; other work ran on the machine"
"$build/bench/bench_constant_weights" --library "$library" --steps "$steps" >"$work/table"
{
  printf '# Linear layers in every form of weights\n\n`bash bench/linear_forms.sh`, '
  sed -n 1,2p "$work/table" | paste -sd ';' | sed 's/;/; /; s/$/./'
  printf 'Below 1, kvopt is faster. `difference`: maximum difference of the results, in units of the largest. ONNX Runtime rounds '
  printf 'activations to 8 bits for `DequantizeLinear` and accuracy level 4; kvopt does not. A dash: ONNX Runtime does not run it.\n\n'
  grep '^|' "$work/table"
  printf '\n%s%s.\n' "$machine" "$note"
} >bench/results/linear.md
cat bench/results/linear.md
