#!/usr/bin/env bash
# The operator oracle for the provider: random instances of the operators that it claims, with the provider and with ONNX
# Runtime's own kernels.
#   tests/engines/onnxruntime/provider_oracle.sh RUNNER LIBRARY OPERATOR [OPTION OF operators.js …]
# Exits with 77 where ONNX Runtime cannot be installed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
oracle=$here/../../oracle
ONNXRUNTIME_LIBRARY=$(bash "$here/../../../bench/baselines/install.sh") || exit 77
export ONNXRUNTIME_LIBRARY
KVOPT_ONNXRUNTIME_LIBRARY=$(realpath "$2")
export KVOPT_ONNXRUNTIME_LIBRARY
exec bash "$oracle/operators.sh" "$1" --only "$3" "${@:4}"
