#!/usr/bin/env bash
# The Debian 12 packages that kvopt needs: the one list for the quick start, the tests and CI.
#   scripts/packages.sh            print the list
#   scripts/packages.sh install    install what is missing (apt-get, through sudo when not root)
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache python3
  libonnx-dev libprotobuf-dev protobuf-compiler
  llvm-14-dev llvm-14-tools
  libhwy-dev libopenblas-dev
  libfmt-dev libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev
)
# Used by CI only: the second compiler with its libFuzzer, and the formatter.
ci_packages=(clang-14 libclang-rt-14-dev clang-format-14 git)

missing() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' ||
      echo "$package"
  done
}

case "${1:-list}" in
list) printf '%s\n' "${packages[@]}" ;;
install | install-ci)
  [ "$1" = install-ci ] && packages+=("${ci_packages[@]}")
  mapfile -t wanted < <(missing "${packages[@]}")
  if [ "${#wanted[@]}" -gt 0 ]; then
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
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
