#!/usr/bin/env bash
# The operator oracle: random instances of single operators, in kvopt's runtime and in ONNX Runtime.
#   tests/oracle/operators.sh OPERATOR_RUNNER [OPTION OF operators.js …]
# Exits with 77 where ONNX Runtime cannot be installed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
runner=$(realpath "$1")
shift

skip() {
  echo "operator oracle SKIPPED: $*" >&2
  exit 77
}
command -v node >/dev/null || skip "node is not installed"
bash "$root/bench/baselines/install.sh" >/dev/null || skip "ONNX Runtime cannot be installed"
export NODE_PATH=$root/build/baselines/node_modules
node "$here/operators.js" "$runner" "$@"
