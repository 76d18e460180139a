#!/usr/bin/env bash
# Installs a build with every library that it needs but the C library:
#   bash scripts/bundle.sh FOLDER [BUILD]     BUILD: build/release
# The folder can be moved to another place and to any Linux of this architecture with a C library as new as this machine's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1
build=${2:-build/release}

cmake --install "$build" --prefix "$folder" --strip >/dev/null
lib=$folder/lib
# The C library and its loader belong to the machine.
is_the_machines() {
  [[ $1 =~ ^(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread)\.so ]]
}
carry() {
  local name path
  ldd "$1" | while read -r name arrow path _; do
    if [ "$arrow" = "=>" ] && ! is_the_machines "$name" && [ ! -e "$lib/$name" ]; then
      cp -L "$path" "$lib/$name"
    fi
  done
}
for file in "$folder"/bin/kvopt "$lib"/libkvopt.so.0; do
  carry "$file"
done
# RPATH, in contrast to RUNPATH, also serves what the libraries need in turn.
patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$folder/bin/kvopt"
patchelf --force-rpath --set-rpath '$ORIGIN' "$(readlink -f "$lib/libkvopt.so.0")"
