#!/usr/bin/env bash
# Builds the libFuzzer targets and runs each for some seconds (60 unless given), starting from the models of
# models/ and of the folder KVOPT_CORPUS. What they find lies in build/fuzz/findings, and makes the script fail;
# what they learnt stays in build/fuzz/corpus for the next run.
#   scripts/fuzz.sh [seconds [target…]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
shift || true

cmake --preset fuzz
cmake --build --preset fuzz
targets=build/fuzz/tests/fuzz
corpus=build/fuzz/corpus
findings=build/fuzz/findings
[ "$#" -gt 0 ] || set -- $(cd "$targets" && ls -- *_fuzz | sed 's/_fuzz$//')

rm -rf build/fuzz/seeds
mapfile -t models < <(find models ${KVOPT_CORPUS:+"$KVOPT_CORPUS"} -name '*.onnx' -size -2000k | sort)
"$targets/make_seeds" build/fuzz/seeds "${models[@]}"

run() {
  mkdir -p "$corpus/$1" "$findings" "build/fuzz/seeds/$1"
  UBSAN_OPTIONS=print_stacktrace=1 "$targets/$1_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -malloc_limit_mb=1024 -max_len=65536 -artifact_prefix="$findings/$1-" -print_final_stats=1 \
    "$corpus/$1" "build/fuzz/seeds/$1" > "build/fuzz/$1.log" 2>&1
}

failed=
jobs=()
for target in "$@"; do
  run "$target" &
  jobs+=("$!")
done
for target in "$@"; do
  if wait "${jobs[0]}"; then
    printf '%s: %s runs, no finding\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$target.log")"
  else
    failed=1
    tail -n 40 "build/fuzz/$target.log"
    printf '%s: a finding, see %s\n' "$target" "$findings"
  fi
  jobs=("${jobs[@]:1}")
done
[ -z "$failed" ]
