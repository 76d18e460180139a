#!/usr/bin/env bash
# Builds the SIMD kernels for 64-bit Arm and runs their tests under QEMU, for the vector extensions that are
# named, or for all: vectors of 128 to 1024 bits. Needs cross_packages of scripts/packages.sh (install-ci).
#   scripts/aarch64.sh [NEON | SVE2_128 | SVE_256 | SVE | SVE2]…
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
  if ! command -v "$tool" >/dev/null; then
    echo "$tool is missing: run scripts/packages.sh install-ci" >&2
    exit 1
  fi
done
cmake --preset aarch64
cmake --build --preset aarch64

# A target of Highway that the CPU does not have fails the tests: nothing is skipped silently.
run() {
  printf '\n%s on %s\n' "$1" "$2"
  KVOPT_SIMD_TARGETS=$1 QEMU_CPU=$2 ctest --preset aarch64 -j "$(nproc)"
}
[ "$#" -gt 0 ] || set -- NEON SVE2_128 SVE_256 SVE SVE2
for extension in "$@"; do
  case $extension in
  NEON) run NEON neoverse-n1 ;;
  SVE2_128) run SVE2_128 max,sve-default-vector-length=16 ;;
  SVE_256) run SVE_256 max,sve-default-vector-length=32 ;;
  SVE) run SVE max,sve-default-vector-length=64 ;;
  SVE2) run SVE2 max,sve-default-vector-length=128 ;;
  *)
    echo "no vector extension '$extension'" >&2
    exit 2
    ;;
  esac
done
