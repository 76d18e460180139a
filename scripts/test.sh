#!/usr/bin/env bash
# Builds what is missing and runs every test of one preset (release unless named).
#   scripts/test.sh [dev | release | asan | tsan]
# The preset asan needs clang: scripts/packages.sh install-ci.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}

bash scripts/packages.sh install
cmake --preset "$preset"
cmake --build --preset "$preset"
ctest --preset "$preset" -j "$(nproc)"
