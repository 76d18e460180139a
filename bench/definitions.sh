#!/usr/bin/env bash
# Time of single nodes by kernel and by definition:
#   bash bench/definitions.sh [BUILD]     BUILD: build/release, with -DKVOPT_BUILD_BENCH=ON
# Writes bench/results/definitions.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=bench/machine.sh
source bench/machine.sh
table=$(mktemp)
trap 'rm -f "$table"' EXIT
busy=$(others)
"${1:-build/release}/bench/bench_definitions" >"$table"
note="Least of many runs on one thread; $machine; $(date -u +%F)"
[ "$busy" -eq 0 ] || note+="; other work ran on the machine: compare ratios"
result_page 'Single nodes by kernel and by definition' bench/definitions.sh "$table" \
  'Sizes are in bench/definitions_bench.cc.' >bench/results/definitions.md
cat bench/results/definitions.md
