#!/usr/bin/env bash
# The operator oracle: random instances of single operators, in kvopt's runtime and in ONNX Runtime.
#   tests/oracle/operators.sh OPERATOR_RUNNER [OPTION OF operators.js …]
# Exits with 77 where ONNX Runtime cannot be installed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
runner=$(realpath "$1")
shift

engine "operator oracle"
node "$here/operators.js" "$runner" "$@"
