#!/usr/bin/env bash
# Installs the libraries that benchmarks compare kvopt with into a folder (build/baselines), from
# npm's registry, at the versions of package-lock.json, and prints the path of ONNX Runtime's library:
#   library=$(bash bench/baselines/install.sh [FOLDER])
# Without npm or the registry it says "baselines skipped: …" on stderr and exits with 77.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-$source/../../build/baselines}

skip() {
  echo "baselines skipped: $*" >&2
  exit 77
}

case "$(uname -sm)" in
"Linux x86_64") platform=linux/x64 ;;
"Linux aarch64") platform=linux/arm64 ;;
*) skip "onnxruntime-node has no library for $(uname -sm) that this script knows" ;;
esac
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# Tests that run side by side install once.
exec 9>"$folder/.lock"
flock 9
library=$folder/node_modules/onnxruntime-node/bin/napi-v6/$platform/libonnxruntime.so.1
if [ ! -e "$library" ] || ! cmp -s "$source/package-lock.json" "$folder/package-lock.json"; then
  command -v npm >/dev/null || skip "npm is not installed"
  cp "$source/package.json" "$source/package-lock.json" "$folder"
  # Its install script would fetch libraries for graphics cards from elsewhere.
  if ! npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund >"$folder/npm.log" 2>&1; then
    rm -f "$folder/package-lock.json"
    skip "npm could not install onnxruntime-node: see $folder/npm.log"
  fi
  [ -e "$library" ] || skip "onnxruntime-node has no $library"
fi
echo "$library"
