#!/usr/bin/env bash
# Compiles a C++ program that includes <onnxruntime_cxx_api.h>:
#   bash scripts/onnxruntime_cpp.sh PROGRAM.cc -o PROGRAM
# The headers are those of Debian's testing release, unpacked into build/debian/headers, because Debian 12 has none; the
# library is that of npm's onnxruntime-node. Exits with 77 where either cannot be fetched.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
library=$(bash "$here/../bench/baselines/install.sh")
root=$(bash "$here/debian_packages.sh" "$here/../build/debian/headers" --alone libonnxruntime-dev)
folder=$(dirname "$library")
exec "${CXX:-g++}" -std=c++17 -O2 -Wall -Wextra -isystem "$root/usr/include/onnxruntime" "$@" "$library" \
  -Wl,-rpath,"$folder"
