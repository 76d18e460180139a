#!/usr/bin/env bash
# Runs a Python program that imports onnxruntime and numpy:
#   bash scripts/onnxruntime_python.sh PROGRAM.py [ARGUMENT…]
# python3 runs it if it has both modules. Otherwise, because Debian 12 has no such package, the interpreter and modules
# of Debian's testing release do, which are unpacked into build/debian/python. Exits with 77 where neither is possible.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

if python3 -c 'import numpy, onnxruntime' 2>/dev/null; then
  exec python3 "$@"
fi
root=$(bash "$here/debian_packages.sh" "$here/../build/debian/python" python3-onnxruntime)
libraries=$root/usr/lib/$(uname -m)-linux-gnu
loader=$(echo "$libraries"/ld-linux-*.so.*)
# Two libraries of that release register the same operators, and say so for each of them.
PYTHONHOME=$root/usr exec "$loader" --library-path "$libraries:$libraries/blas:$libraries/lapack" \
  "$root/usr/bin/python3" "$@" 2> >(grep -v -e '^Schema error' -e '^$' >&2)
