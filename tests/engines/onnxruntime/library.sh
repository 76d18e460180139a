#!/usr/bin/env bash
# What the library for ONNX Runtime exports, contains and needs.
#   tests/engines/onnxruntime/library.sh LIBRARY
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fail() {
  echo "FAILED: $*"
  exit 1
}

# Exported functions: those of the version script that exist.
allowed=$(sed -n 's/.*global: //p' "$here/../../../engines/onnxruntime/exports.map" | tr -d ' ' | tr ';' '\n')
exported=$(nm -D --defined-only "$1" | awk '{ print $3 }')
for name in $exported; do
  grep -qx "$name" <<<"$allowed" || fail "$name is exported"
done
for name in CreateEpFactories ReleaseEpFactory RegisterCustomOps kvopt_onnxruntime_version; do
  grep -qx "$name" <<<"$exported" || fail "$name is not exported"
done

stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$1"
size=$(stat -c %s "$stripped")
[ "$size" -lt $((3 * 1024 * 1024)) ] || fail "the library has $size bytes"
! nm -C "$1" | grep -E ' (llvm|google::protobuf|fmt)::' || fail "the library contains another one"
! readelf -d "$1" | grep NEEDED | grep -E 'LLVM|protobuf|fmt|blas|dnnl|onnxruntime' || fail "the library needs another one"
echo "$size bytes, exports $(tr '\n' ' ' <<<"$exported")"
