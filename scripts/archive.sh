#!/usr/bin/env bash
# Packs a build with the libraries that it needs, and prints the archive's path: kvopt-<version>-linux-<architecture>.tar.gz.
#   bash scripts/archive.sh FOLDER [BUILD]     BUILD: build/release
# The archive works from the folder in which it is unpacked (scripts/bundle.sh). Needs patchelf.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(mkdir -p "$1" && cd "$1" && pwd)
build=${2:-build/release}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

version=$(sed -n 's/^project(kvopt VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=kvopt-$version-linux-$(uname -m)
bash scripts/bundle.sh "$work/$name" "$build"
# The same files give the same archive.
tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" "$name" |
  gzip --no-name >"$folder/$name.tar.gz"
echo "$folder/$name.tar.gz"
