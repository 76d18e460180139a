#!/usr/bin/env bash
# What building takes, for a commit and for the one that is checked out, one after the other on this machine:
#   bash bench/build.sh [--both] COMMIT
# Each is cloned and built from nothing, without a compiler cache: the program, as README's first command does, and with
# --both also all tests, as the second does. The table has processor seconds (user and system), the object that takes
# longest, compiled again alone, and the preprocessed lines of the ten headers that most files include. Uncommitted changes
# do not count. It takes about twenty minutes on two cores, with --both an hour.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

both=''
[ "${1:-}" != --both ] || { both=1 && shift; }
[ $# -eq 1 ] || {
  echo "usage: bash bench/build.sh [--both] COMMIT" >&2
  exit 2
}
export CCACHE_DISABLE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Processor seconds of a command, whose output goes to a log.
seconds() {
  local TIMEFORMAT='%U %S'
  { time "$@" >>"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2 && exit 1; }; } 2>&1 | awk '{ print $1 + $2 }'
}

build() { # COMMIT NAME
  git clone --quiet --no-checkout . "$work/$2"
  git -C "$work/$2" checkout --quiet --detach "$1"
  (
    cd "$work/$2"
    cmake --preset release >>"$work/log" 2>&1
    seconds cmake --build --preset release --target kvopt >"$work/$2.first"
    [ -z "$both" ] || seconds cmake --build --preset release >"$work/$2.second"
    longest=$(awk -F'\t' '$4 ~ /\.o$/ { print $2 - $1, $4 }' build/release/.ninja_log | sort -rn | head -n 1 | cut -d ' ' -f 2)
    rm "build/release/$longest"
    seconds cmake --build --preset release --target "$longest" >"$work/$2.longest"
    echo "${longest##*/}" >"$work/$2.object"
    git grep -hoE '^#include "[a-z0-9_/]+\.h"' -- '*.cc' '*.h' | cut -d '"' -f 2 | sort | uniq -c | sort -rn |
      awk '{ print $2 }' | head -n 10 >"$work/$2.headers"
    while read -r header; do
      echo "$header $(g++ -std=c++20 -DFMT_SHARED -I. -isystem "$(ls -d /usr/lib/llvm-*/include | head -n 1)" -E "$header" 2>/dev/null | wc -l)"
    done <"$work/$2.headers" >"$work/$2.lines"
  )
}

build "$1" before
build HEAD after
row() { # LABEL BEFORE AFTER
  awk -v label="$1" -v before="$2" -v after="$3" 'BEGIN { printf "| %s | %.0f | %.0f | %.2f |\n", label, before, after, after / before }'
}
printf '| | %s | %s | ratio |\n|---|--:|--:|--:|\n' "$(git rev-parse --short "$1")" "$(git rev-parse --short HEAD)"
row 'program, processor seconds' "$(cat "$work/before.first")" "$(cat "$work/after.first")"
[ -z "$both" ] || row 'tests besides, processor seconds' "$(cat "$work/before.second")" "$(cat "$work/after.second")"
row "longest object alone: $(cat "$work/before.object"), $(cat "$work/after.object")" "$(cat "$work/before.longest")" \
  "$(cat "$work/after.longest")"
while read -r header lines; do
  before=$(awk -v header="$header" '$1 == header { print $2 }' "$work/before.lines")
  [ -z "$before" ] || row "preprocessed lines of $header" "$before" "$lines"
done <"$work/after.lines"
