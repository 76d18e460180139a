#!/usr/bin/env bash
# Builds targets of a preset, or all, and says how far it is: "12 of 90 files, about 3 minutes left".
#   scripts/build.sh PRESET [TARGET…]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1
shift

# On a terminal the line is overwritten; in a log there is one for every tenth of the files. Whatever Ninja prints besides,
# such as a compiler's errors, is kept.
lines=log
[ ! -t 1 ] || lines=terminal
NINJA_STATUS='@ %f %t %e ' cmake --build --preset "$preset" ${1:+--target "$@"} 2>&1 | awk -v lines="$lines" '
  function say(text) {
    if (lines == "terminal") printf "\r\033[K%s", text
    else print text
    fflush()
  }
  $1 == "@" {
    text = sprintf("%d of %d files", $2, $3)
    if ($4 >= 20 && $2 < $3) {
      left = $4 / $2 * ($3 - $2)
      text = text (left < 45 ? ", less than a minute left" : sprintf(", about %d minute%s left", left / 60 + 0.5, left < 90 ? "" : "s"))
    }
    if (lines == "terminal" || $2 == $3 || int(10 * $2 / $3) > int(10 * ($2 - 1) / $3)) say(text)
    next
  }
  lines == "terminal" { printf "\r\033[K" }
  { print; fflush() }
  END { if (lines == "terminal") print "" }'
