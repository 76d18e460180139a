#!/usr/bin/env bash
# From a fresh Debian 12 to a rewritten model that talks: packages, build, rewrite, run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/packages.sh install
cmake --preset release
bash scripts/build.sh release kvopt

kvopt=build/release/bin/kvopt
"$kvopt" rewrite models/kjv/model.onnx -o build/kjv-fused.onnx --to kvopt --verify full
"$kvopt" run build/kjv-fused.onnx --text "In the beginning " --steps 64
