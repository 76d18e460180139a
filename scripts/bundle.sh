#!/usr/bin/env bash
# Installs a build with every library that it needs but the C library:
#   bash scripts/bundle.sh FOLDER [BUILD]     BUILD: build/release
# The folder can be moved to another place and to any Linux of this architecture with a C library as new as this machine's.
# The libraries are in lib/kvopt, where a linker does not find them by accident. Those of C++ in lib/kvopt/runtime serve the
# program only: a process that loads libkvopt.so may have a newer one, and loads only one.
# The static library and the headers that need LLVM are left out. Needs patchelf.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1
build=${2:-build/release}
command -v patchelf >/dev/null || { echo "patchelf is not installed: apt-get install patchelf" >&2 && exit 1; }

cmake --install "$build" --prefix "$folder" --strip >/dev/null
lib=$folder/lib
rm -r "$lib/libkvopt.a" "$folder/include/kvopt/extend"
mkdir -p "$lib/kvopt/runtime"
carried=()
carry() {
  local name arrow path to
  while read -r name arrow path _; do
    # The C library and its loader belong to the machine.
    [[ $arrow == "=>" && ! $name =~ ^(libc|libm|libdl|librt|libpthread)\.so ]] || continue
    to=$lib/kvopt
    [[ ! $name =~ ^lib(stdc\+\+|gcc_s)\.so ]] || to=$lib/kvopt/runtime
    if [ ! -e "$to/$name" ]; then
      cp -L "$path" "$to/$name"
      # Where Debian merged /lib into /usr/lib, packages know either name.
      carried+=("*/$(uname -m)-linux-gnu/*$(basename "$(readlink -f "$path")")")
    fi
  done < <(ldd "$1")
}
libraries=("$lib/libkvopt.so.0")
# The library for ONNX Runtime exists where its headers were found.
[ ! -e "$lib/libkvopt_onnxruntime.so" ] || libraries+=("$lib/libkvopt_onnxruntime.so")
carry "$folder/bin/kvopt"
for library in "${libraries[@]}"; do
  carry "$library"
done
# RPATH, in contrast to RUNPATH, also serves what the libraries need in turn. A linker reads only that of each library.
for library in "$lib"/kvopt/*.so*; do
  patchelf --force-rpath --set-rpath '$ORIGIN' "$library"
done
patchelf --force-rpath --set-rpath '$ORIGIN/../lib/kvopt/runtime:$ORIGIN/../lib/kvopt' "$folder/bin/kvopt"
for library in "${libraries[@]}"; do
  patchelf --force-rpath --set-rpath '$ORIGIN/kvopt' "$(readlink -f "$library")"
done

licenses=$folder/share/doc/kvopt
mkdir -p "$licenses"
cp LICENSE "$licenses/LICENSE"
llvm=$(sed -n 's,^LLVM_DIR:PATH=.*/llvm-\([0-9]*\)/.*,llvm-\1-dev,p' "$build/CMakeCache.txt")
inside=("$llvm" libonnx-dev libcli11-dev nlohmann-json3-dev libxxhash-dev)
for package in $(dpkg-query -S "${carried[@]}" | sed 's/:.*//' | sort -u) "${inside[@]}"; do
  cp -L "/usr/share/doc/$package/copyright" "$licenses/LICENSE.$package"
done
