#!/usr/bin/env bash
# Builds the libFuzzer targets and runs each for some seconds (60 unless given), two at a time. They start from
# generated decoders and from the models in models/, in the folder KVOPT_CORPUS, and in the folder KVOPT_ATTACK.
# Findings go to build/asan/fuzz/findings and make the script fail; inputs that reach new code stay in
# build/asan/fuzz/corpus for the next run. KVOPT_FUZZ_SEED makes the inputs the same each time.
#   scripts/fuzz.sh [seconds [target…]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
shift || true

cmake --preset asan
cmake --build --preset asan --target fuzz
targets=build/asan/tests/fuzz
work=build/asan/fuzz
corpus=$work/corpus
findings=$work/findings
[ "$#" -gt 0 ] || set -- $(cd "$targets" && ls -- *_fuzz | sed 's/_fuzz$//')

rm -rf "$work/seeds"
mapfile -t models < <(find models ${KVOPT_CORPUS:+"$KVOPT_CORPUS"} ${KVOPT_ATTACK:+"$KVOPT_ATTACK"} \
  -name '*.onnx' -size -2000k | sort)
# All seeds run before the time limit applies: with fewer seconds, structural changes are made at fewer places.
places=$((seconds / 30))
[ "$places" -ge 1 ] || places=1
[ "$places" -le 12 ] || places=12
"$targets/make_seeds" "$work/seeds" "$places" "${models[@]}"

run() {
  mkdir -p "$corpus/$1" "$findings" "$work/seeds/$1"
  UBSAN_OPTIONS=print_stacktrace=1 "$targets/$1_fuzz" -seed="${KVOPT_FUZZ_SEED:-0}" -max_total_time="$seconds" \
    -timeout=30 -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len=65536 -artifact_prefix="$findings/$1-" \
    -print_final_stats=1 \
    "$corpus/$1" "$work/seeds/$1" > "$work/$1.log" 2>&1
}

report() {
  if wait "$2"; then
    printf '%s: %s runs, no finding\n' "$1" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$1.log")"
  else
    failed=1
    tail -n 40 "$work/$1.log"
    printf '%s: a finding, see %s\n' "$1" "$findings"
  fi
}

failed=
running=()
jobs=()
for target in "$@"; do
  if [ "${#jobs[@]}" -eq 2 ]; then
    report "${running[0]}" "${jobs[0]}"
    running=("${running[@]:1}")
    jobs=("${jobs[@]:1}")
  fi
  run "$target" &
  running+=("$target")
  jobs+=("$!")
done
for i in "${!jobs[@]}"; do
  report "${running[$i]}" "${jobs[$i]}"
done
[ -z "$failed" ]
