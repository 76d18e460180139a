#!/usr/bin/env bash
# Builds what is missing and runs every test of one preset (release unless named).
#   scripts/test.sh [dev | release | asan | tsan]
# The preset asan needs clang: scripts/packages.sh install-ci.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}

bash scripts/packages.sh install
# With the headers of ONNX Runtime, where they can be fetched, its library is built and tested, too.
bash scripts/debian_packages.sh build/debian/headers --alone libonnxruntime-dev >/dev/null || true
# CI builds the benchmarks, too, which nothing runs: once is enough.
bench=
if [ -n "${CI:-}" ] && [ "$preset" = release ]; then
  bench=-DKVOPT_BUILD_BENCH=ON
fi
cmake --preset "$preset" $bench
bash scripts/build.sh "$preset"
printf "Built after %d s.\n" "$SECONDS"
ctest --preset "$preset" -j "$(nproc)"
