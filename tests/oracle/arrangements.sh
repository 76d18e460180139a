#!/usr/bin/env bash
# Runs what kvopt writes in ONNX Runtime in arrangements that were not recorded: padding on either side, holes, batches of
# unequal rows, chunks.
#   tests/oracle/arrangements.sh KVOPT [OPTION OF arrangements.js …]
# The models are those of models/, of the folder KVOPT_CORPUS, and of corpus2 and corpus3 next to it. Exits with 77 where
# the corpora or ONNX Runtime are not available.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
kvopt=$(realpath "$1")
shift

[ -d "${KVOPT_CORPUS:-}" ] || skip "arrangements" "KVOPT_CORPUS names no folder"
folders=("$root/models" "$KVOPT_CORPUS")
for other in corpus2 corpus3; do
  [ -d "$KVOPT_CORPUS/../$other" ] && folders+=("$KVOPT_CORPUS/../$other")
done
engine "arrangements"

work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
model=$root/models/llama_gqa-ts14-eager
"$kvopt" rewrite "$model/model.onnx" -o "$work/model.onnx" --to kvopt --verify off >/dev/null
node "$here/arrangements_selfcheck.js" "$model/model.onnx" "$model/ref/b1.onnx" "$work/model.onnx" "$work/model.kv.json"
node "$here/arrangements.js" "$kvopt" "${folders[@]}" "$@"
