#!/usr/bin/env bash
# The packages of Debian 12 or 13 that kvopt needs: the one list for the quick start, the tests and CI.
#   scripts/packages.sh            print the list
#   scripts/packages.sh install    install what is missing (apt-get, through sudo when not root)
#   scripts/packages.sh install-ci also what CI needs; this lets apt install packages for arm64
set -euo pipefail

llvm=14
llvm_needs=()
if [ "$(. /etc/os-release && echo "${VERSION_ID:-}")" = 13 ]; then
  llvm=19
  llvm_needs=(libzstd-dev) # LLVM's CMake package names it
fi
packages=(
  g++ cmake ninja-build python3
  libonnx-dev libprotobuf-dev protobuf-compiler
  "llvm-$llvm-dev" "llvm-$llvm-tools" "${llvm_needs[@]}"
  libhwy-dev libopenblas-dev libdnnl-dev
  libfmt-dev libcli11-dev nlohmann-json3-dev
  libgraphviz-dev libxxhash-dev libdlpack-dev
  libgtest-dev libgmock-dev
)
# Used by CI only: the second compiler with its libFuzzer, the formatter, and what the tests of the static site, of the
# Python package, of installed libraries and of packages need.
ci_packages=(
  "clang-$llvm" "libclang-rt-$llvm-dev" "clang-format-$llvm" git mkdocs
  python3-numpy python3-onnx python3-pip python3-setuptools python3-venv python3-wheel mypy python3-typing-extensions
  patchelf pkg-config dpkg-dev mmdebstrap
)
# Used by CI only: the kernels for 64-bit Arm, with Debian's libraries for that architecture beside
# the machine's own.
cross_packages=(
  g++-aarch64-linux-gnu qemu-user
  libhwy-dev:arm64 libfmt-dev:arm64 libgtest-dev:arm64 libgmock-dev:arm64
)

missing() {
  local package architecture
  for package in "$@"; do
    architecture=$(dpkg --print-architecture)
    [[ $package != *:* ]] || architecture=${package#*:}
    dpkg-query -W -f='${Architecture} ${Status}\n' "${package%:*}" 2>/dev/null |
      grep -Eq "^($architecture|all) install ok installed$" || echo "$package"
  done
}

case "${1:-list}" in
list) printf '%s\n' "${packages[@]}" ;;
install | install-ci)
  [ "$1" = install ] || packages+=("${ci_packages[@]}" "${cross_packages[@]}")
  mapfile -t wanted < <(missing "${packages[@]}")
  if [ "${#wanted[@]}" -gt 0 ]; then
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    if [[ "${wanted[*]}" == *:arm64* && $(dpkg --print-architecture) != arm64 ]]; then
      "${as_root[@]}" dpkg --add-architecture arm64
    fi
    "${as_root[@]}" apt-get update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y --no-install-recommends "${wanted[@]}"
  fi
  ;;
*)
  echo "usage: $0 [list | install | install-ci]" >&2
  exit 2
  ;;
esac
