#!/usr/bin/env bash
# Builds the Python wheel and prints its path: py3-none-manylinux_<glibc>_<architecture>, with the library and the program.
#   bash scripts/wheel.sh FOLDER [BUILD]     BUILD: build/release
# Needs patchelf, python3-pip, python3-setuptools and python3-wheel.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(mkdir -p "$1" && cd "$1" && pwd)
build=${2:-build/release}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bash scripts/bundle.sh "$work/bundle" "$build"
cp -rL python "$work/python"
package=$work/python/kvopt
mkdir -p "$package/lib" "$package/bin"
cp "$work/bundle/bin/kvopt" "$package/bin/"
# A wheel has no links: a library has the name that it is looked up by. That for ONNX Runtime exists where its headers were
# found.
cp -L "$work/bundle/lib/libkvopt.so.0" "$package/lib/"
[ ! -e "$work/bundle/lib/libkvopt_onnxruntime.so" ] || cp -L "$work/bundle/lib/libkvopt_onnxruntime.so" "$package/lib/"
cp -r "$work/bundle/lib/kvopt" "$package/lib/kvopt"
cp -r "$work/bundle/share/doc/kvopt" "$package/licenses"
glibc=$(ldd --version | sed -n '1s/.* //p' | tr . _)
KVOPT_VERSION=$(sed -n 's/^project(kvopt VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt) \
  KVOPT_WHEEL_PLATFORM=manylinux_${glibc}_$(uname -m) \
  /usr/bin/python3 -m pip wheel -q --no-deps --no-build-isolation --no-index -w "$folder" "$work/python"
ls "$folder"/kvopt-*.whl
