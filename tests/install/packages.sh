#!/usr/bin/env bash
# Makes the archive and the wheel of a build, once for all tests that install them:
#   tests/install/packages.sh BUILD     writes to BUILD/tests/packages
# What patchelf or a module of Python is missing for is left out.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
folder=$build/tests/packages
rm -rf "$folder"
mkdir -p "$folder"
command -v patchelf >/dev/null || { echo "no packages: patchelf is not installed"; exit 0; }
bash "$source/scripts/archive.sh" "$folder" "$build"
for module in numpy pip setuptools wheel; do
  /usr/bin/python3 -c "import $module" 2>/dev/null || { echo "no wheel: Python has no module $module"; exit 0; }
done
bash "$source/scripts/wheel.sh" "$folder" "$build"
