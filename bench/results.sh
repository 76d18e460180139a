#!/usr/bin/env bash
# Runs the benchmarks and writes their tables to bench/results/<cpu>.md, where <cpu> is the kind of
# processor. Each table has the machine class, the date, the commit and the command:
#   bash bench/results.sh [--quick] [--build BUILD] [--only NAME,…] [--list]
# BUILD (default: build/release) needs -DKVOPT_BUILD_BENCH=ON. --only runs some sections, which --list
# names, and keeps the others of the file. --quick takes short rounds and omits models of several GB.
# Exits with 1 if a section failed; the file then keeps that section's earlier table.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  echo "usage: bash bench/results.sh [--quick] [--build BUILD] [--only NAME,…] [--list]" >&2
  exit 2
}

build=build/release quick= only= list=
while [ $# -gt 0 ]; do
  case $1 in
  --quick) quick=1 ;;
  --list) list=1 ;;
  --build | --only)
    [ $# -gt 1 ] || usage
    printf -v "${1#--}" %s "${2%/}"
    shift
    ;;
  *) usage ;;
  esac
  shift
done
build=${build#"$PWD"/}

# shellcheck source=bench/machine.sh
source bench/machine.sh
result=bench/results/$slug.md

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# keep TITLE: the section that the file has; nothing while names are listed.
keep() {
  [ -n "$list" ] || [ ! -e "$result" ] ||
    awk -v title="## $1" '/^## / { on = $0 == title } on' "$result"
}

# section NAME TITLE COMMAND: runs COMMAND, a line of shell, and adds a section with what it prints.
section() {
  local name=$1 title=$2 command=$3 status=0 busy note
  if [ -n "$list" ]; then
    printf '%-16s %s\n' "$name" "$command"
    return
  fi
  if [ -n "$only" ] && [[ ,$only, != *,$name,* ]]; then
    keep "$title" >>"$work/sections"
    return
  fi
  echo "$name: $command" >&2
  busy=$(others)
  eval "$command" >"$work/output" || status=$?
  if [ $status -ne 0 ] && [ $status -ne 77 ]; then
    echo "$name failed with status $status" >&2
    failed=1
    keep "$title" >>"$work/sections"
    return
  fi
  note="$(date -u +%F), commit $commit, $machine"
  [ -z "$quick" ] || note+="; a quick run"
  [ "$busy" -eq 0 ] || note+="; **busy** with $busy other running threads: repeat before quoting"
  {
    printf '## %s\n\n%s:\n`%s`\n\n' "$title" "$note" "$command"
    if [ $status -eq 77 ]; then
      echo "Skipped: this machine does not have what it needs."
    elif grep -q '^|' "$work/output"; then
      cat "$work/output"
    else
      printf '```\n%s\n```\n' "$(cat "$work/output")"
    fi
    echo
  } | cat -s >>"$work/sections"
}

# unless CONDITION NAME TITLE COMMAND: a section that is kept as it is where CONDITION is not empty.
unless() {
  if [ -z "$1" ]; then section "${@:2}"; else keep "$3" >>"$work/sections"; fi
}

# pick QUICK FULL: the options of this run.
pick() { if [ -n "$quick" ]; then echo "$1"; else echo "$2"; fi; }

attention="$build/bench/attention_bench${quick:+ --quick}"
library='"$(bash bench/baselines/install.sh)"'

sections() {
  section linear "Linear layers" "$build/bench/bench_linear${quick:+ --quick}"
  section weights "Weights that pass through other nodes" \
    "${quick:+ROUNDS=1 }bash bench/constant_weights.sh $build${quick:+ 10}"
  section decode "Decode attention" "$attention --phase decode"
  [[ $simd == AVX-512* ]] && lacks_avx512= || lacks_avx512=1
  unless "$lacks_avx512" decode-avx2 "Decode attention with AVX2" \
    "$attention --phase decode --threads 1 --simd AVX2"
  section prefill "Prefill attention" "$attention --phase prefill"
  section instructions "Instructions of decode attention" "bash bench/instructions.sh $build"
  [ -x "$build/tests/simd_tests" ] && lacks_tests= || lacks_tests=1
  unless "$lacks_tests" errors "Errors of attention kernels" \
    "$build/tests/simd_tests --gtest_filter='AttentionUlp.*' | grep '^|'"
  section baselines "Attention compared with ONNX Runtime" "$attention --baselines $library"
  section blocks "Attention over blocks" \
    "$build/bench/bench_block_attention${quick:+ --rounds 2 --size 1024 --threads 1}"
  section updates "Cache updates" \
    "$build/bench/bench_cache_update $(pick '--rounds 1 --tokens 256,1024' '--rounds 5')"
  section caches "Forms of caches" "bash bench/caches.sh $build${quick:+ 1}"
  section cache-types "Types of cached rows" "bash bench/cache_types.sh $build"
  section code-rows "Decode attention over rows of codes" \
    "$attention --shape S1,S2 --dtype f16,int8,int4 --phase decode --length 8192"
  section session "Saving and loading caches" "$build/bench/bench_session"
  section recognition "Recovering attention" \
    "$build/bench/bench_recognition${quick:+ 2500 5000}"
  section layers "Growth with the number of layers" \
    "bash bench/layers.sh $build${quick:+ 35 70 140}"
  section large "Rewriting a large model" \
    "bash bench/large_model.sh $build/bin/kvopt${quick:+ 2}"
  section rewritten "Rewritten models compared with their exports" \
    "bash bench/rewritten.sh $build -t 1 $(pick '-n 8 -r 1' '-n 16 -r 3')"
  section ort-gqa "ONNX Runtime before and after --to ort-gqa" \
    "bash bench/ort_gqa.sh $build${quick:+ --turns 2}"
  for dtype in float32 float16 int4; do
    unless "$quick" "whole-$dtype" "Whole models compared with ONNX Runtime, $dtype" \
      "bash bench/whole_model.sh $build $dtype"
  done
  unless "$quick" bandwidth "Decode speed and the bandwidth bound" \
    "bash bench/decode_bandwidth.sh $build/bin/kvopt"
}

names=$(list=1 sections | cut -d ' ' -f 1)
if [ -n "$list" ]; then
  sections
  exit 0
fi
for name in ${only//,/ }; do
  if ! grep -qx -e "$name" <<<"$names"; then
    echo "this run has no section '$name': see --list" >&2
    exit 2
  fi
done
if [ ! -x "$build/bench/attention_bench" ]; then
  echo "$build has no benchmarks: configure it with -DKVOPT_BUILD_BENCH=ON and build it" >&2
  exit 2
fi
: >"$work/sections"
sections

# The file names no folder of this machine.
[[ $build != /* ]] || sed -i "s|$build|BUILD|g" "$work/sections"
mkdir -p "$(dirname "$result")"
{
  printf '# %s\n\nWritten by `bash bench/results.sh`; do not edit. ' "$model"
  printf '[README.md](../README.md) says what each section shows.\n\n'
  sed -e "s|$PWD/||g" -e 's|/[^ `]*/tmp\.[A-Za-z0-9]*/||g' "$work/sections"
} | sed -e '$ { /^$/d }' >"$work/result"
mv "$work/result" "$result"
echo "$result" >&2
exit $failed
