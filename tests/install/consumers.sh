#!/usr/bin/env bash
# Installs a build into a temporary folder, and builds and runs programs outside the tree against it.
#   tests/install/consumers.sh BUILD WAY     WAY: find_package, pkg_config, extend, subdirectory or archive
# The archive is that of packages.sh; exits with 77 where there is none. docs/install.md has it on another release.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
way=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
model=$source/models/llama_gqa-ts14-eager/model.onnx
expected=96,65,84,156,149,151,94,76,

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
mkdir "$work/project"
cp "$source"/tests/install/{CMakeLists.txt,consumer.*} "$work/project"

# Runs a program and compares its tokens and the model that it writes.
run() {
  local made
  made=$(env LD_LIBRARY_PATH="$work/prefix/lib" "$1" "$model" "$work/written.onnx")
  echo "$made"
  [[ $made == "$expected"* ]]
  [ -s "$work/written.onnx" ] && [ -s "$work/written.kv.json" ]
}

case $way in
find_package)
  cmake -S "$work/project" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log"
  cmake --build "$work/build" >"$work/build.log"
  run "$work/build/consumer"
  ;;
pkg_config)
  export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
  # shellcheck disable=SC2046 # flags are words
  cc -std=c11 -Wall -Wextra -Wpedantic -Werror "$work/project/consumer.c" -o "$work/consumer" \
    $(pkg-config --cflags --libs kvopt)
  run "$work/consumer"
  ;;
extend)
  cmake -S "$source/tests/install/extension" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DEXAMPLE="$source/examples/add_rule/main.cc" -DCONSUMER="$work/project/consumer.cc" >"$work/configure.log"
  cmake --build "$work/build" >"$work/build.log"
  "$work/build/extension"
  run "$work/build/consumer"
  ;;
subdirectory)
  # The library only: neither tests nor examples nor install rules, and no option of the other project changes.
  cat >"$work/project/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(consumer CXX)
add_subdirectory($source kvopt EXCLUDE_FROM_ALL)
add_executable(consumer consumer.cc)
target_link_libraries(consumer PRIVATE kvopt::kvopt)
EOF
  cmake -G Ninja -S "$work/project" -B "$work/build" >"$work/configure.log"
  steps=$(ninja -C "$work/build" -t commands consumer)
  [[ $steps == *libkvopt.so* && $steps != *_tests* && $steps != */example_* ]]
  [ ! -e "$work/build/cmake_install.cmake" ] || ! grep -q libkvopt "$work/build/cmake_install.cmake"
  echo "configured; the program needs $(grep -c . <<<"$steps") build steps"
  ;;
archive)
  archive=$(compgen -G "$build/tests/packages/kvopt-*.tar.gz") || { echo "skipped: there is no archive"; exit 77; }
  tar xzf "$archive" -C "$work"
  mv "$work"/kvopt-*/ "$work/moved"
  cmake -S "$work/project" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/moved" >"$work/configure.log"
  cmake --build "$work/build" >"$work/build.log"
  rm -r "$work/prefix"
  run "$work/build/consumer"
  # The archive's own libraries, but not its C++ runtime, which is the program's.
  loaded=$(ldd "$work/build/consumer" | grep -F "$work/moved")
  [[ $loaded == *libprotobuf* && $loaded != *libstdc++* ]]
  # Into files: a reader that closes a pipe early ends the writer.
  ldd "$work/moved/bin/kvopt" >"$work/loaded"
  grep -qF "$work/moved/bin/../lib/kvopt/runtime/libstdc++" "$work/loaded"
  "$work/moved/bin/kvopt" diff "$model" "$work/written.onnx" --format svg >"$work/block.svg"
  grep -q '<svg' "$work/block.svg"
  sed 's/kvopt 0.1/kvopt 0.1 COMPONENTS extend/' <"$source/tests/install/CMakeLists.txt" >"$work/project/CMakeLists.txt"
  if cmake -S "$work/project" -B "$work/extended" -DCMAKE_PREFIX_PATH="$work/moved" >"$work/configure.log" 2>&1; then
    echo "the archive has a component that needs the build's LLVM" >&2
    exit 1
  fi
  grep -q "extend" "$work/configure.log"
  ;;
*)
  echo "unknown way: $way" >&2
  exit 2
  ;;
esac
