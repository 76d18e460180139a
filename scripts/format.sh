#!/usr/bin/env bash
# Formats every source file of the project; with --check only says which are not formatted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

arguments=(-i)
[ "${1:-}" = --check ] && arguments=(--dry-run -Werror)
find support ir meaning check passes runtime driver cli api include engines tests bench examples \
  \( -name '*.cc' -o -name '*.h' -o -name '*.hpp' \) -print0 |
  xargs -0 clang-format-14 "${arguments[@]}"
