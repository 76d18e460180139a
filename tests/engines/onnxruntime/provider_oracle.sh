#!/usr/bin/env bash
# The operator oracle for the provider: random instances of the operators that it claims, with the provider and with ONNX
# Runtime's own kernels.
#   tests/engines/onnxruntime/provider_oracle.sh RUNNER LIBRARY OPERATOR [OPTION OF operators.js …]
# Exits with 77 where ONNX Runtime cannot be installed.
set -euo pipefail
# shellcheck source=tests/engines/onnxruntime/engine.sh
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
oracle=$here/../../oracle
exec bash "$oracle/operators.sh" "$1" --only "$3" "${@:4}"
