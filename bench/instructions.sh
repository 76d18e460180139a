#!/bin/bash
# Prints the instructions of decode attention per key and key/value head, which, unlike times, are
# the same on a busy machine:
#
#   bench/instructions.sh [BUILD]
#
# They are counted by callgrind, which knows instruction sets up to AVX2, in the vector code alone.
# Exits with 77 where valgrind is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
bench=${1:-build/release}/bench/attention_bench
length=1024
calls=4
command -v valgrind >/dev/null || exit 77
out=$(mktemp)
trap 'rm -f "$out"' EXIT
echo '| shape | dtype | T | instructions per key and kv head |'
echo '|---|---|--:|--:|'
while read -r shape heads; do
  for dtype in f32 f16 bf16; do
    count=$(valgrind --tool=callgrind --callgrind-out-file="$out" --collect-atstart=no \
      --toggle-collect='kvopt::simd::N_AVX2::attendRange(*' "$bench" --shape "$shape" --dtype "$dtype" \
      --phase decode --cache warm --length $length --threads 1 --rounds 1 --calls $calls 2>&1 >/dev/null |
      sed -n 's/.*Collected : //p')
    if [ -z "$count" ] || [ "$count" -eq 0 ]; then
      echo "callgrind has counted nothing" >&2
      exit 1
    fi
    awk -v n="$count" -v keys=$((length * calls * heads)) -v row="| $shape | $dtype | $length |" \
      'BEGIN { printf "%s %.1f |\n", row, n / keys }'
  done
done <<'SHAPES'
S1 8
S2 8
S3 16
latent 1
SHAPES
