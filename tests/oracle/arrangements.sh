#!/usr/bin/env bash
# Runs what kvopt writes in ONNX Runtime in arrangements that were not recorded: padding on either side, holes, batches of
# unequal rows, chunks.
#   tests/oracle/arrangements.sh KVOPT [OPTION OF arrangements.js …]
# The models are those of models/, of the folder KVOPT_CORPUS, and of corpus2 and corpus3 next to it. Exits with 77 where
# the corpora or ONNX Runtime are not available.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
kvopt=$(realpath "$1")
shift

skip() {
  echo "arrangements SKIPPED: $*" >&2
  exit 77
}
[ -d "${KVOPT_CORPUS:-}" ] || skip "KVOPT_CORPUS names no folder"
folders=("$root/models" "$KVOPT_CORPUS")
for other in corpus2 corpus3; do
  [ -d "$KVOPT_CORPUS/../$other" ] && folders+=("$KVOPT_CORPUS/../$other")
done
command -v node >/dev/null || skip "node is not installed"
bash "$root/bench/baselines/install.sh" >/dev/null || skip "ONNX Runtime cannot be installed"
export NODE_PATH=$root/build/baselines/node_modules

work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
model=$root/models/llama_gqa-ts14-eager
"$kvopt" rewrite "$model/model.onnx" -o "$work/model.onnx" --to kvopt --verify off >/dev/null
node "$here/arrangements_selfcheck.js" "$model/model.onnx" "$model/ref/b1.onnx" "$work/model.onnx" "$work/model.kv.json"
node "$here/arrangements.js" "$kvopt" "${folders[@]}" "$@"
