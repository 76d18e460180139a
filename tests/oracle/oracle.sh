#!/usr/bin/env bash
# The outside oracle: models that kvopt wrote, run by ONNX Runtime over recorded steps, through their
# manifests alone, against what PyTorch computed. Prints the matrix model × target.
#   tests/oracle/oracle.sh KVOPT [OPTION OF matrix.js …]
# The models are those of models/ and of the folder KVOPT_CORPUS, and some that are made here, whose
# steps kvopt's runtime records of the original. Exits with 77 where ONNX Runtime
# cannot be had, and says how many models were not run.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
kvopt=$(realpath "$1")
shift

folders=("$root/models")
if [ -d "${KVOPT_CORPUS:-}" ]; then
  folders+=("$KVOPT_CORPUS")
else
  echo "oracle: KVOPT_CORPUS names no folder; only the models of models/ are run" >&2
fi

skip() {
  local count
  count=$(find "${folders[@]}" -mindepth 2 -maxdepth 2 -name ref | wc -l)
  echo "oracle SKIPPED, $count models not run: $*" >&2
  exit 77
}
command -v node >/dev/null || skip "node is not installed"
bash "$root/bench/peers/install.sh" >/dev/null || skip "ONNX Runtime cannot be installed"
export NODE_PATH=$root/build/peers/node_modules

work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
model=$root/models/llama_gqa-ts14-eager
"$kvopt" rewrite "$model/model.onnx" -o "$work/model.onnx" --to kvopt --verify off >/dev/null
node "$here/selfcheck.js" "$work/model.onnx" "$work/model.kv.json" "$model/ref/b1"

# The example decodes what every target writes as kvopt decodes the original.
tokens=$("$kvopt" run "$model/model.onnx" --tokens 1,2,3 --steps 8)
for target in kvopt ort-gqa; do
  "$kvopt" rewrite "$model/model.onnx" -o "$work/example.onnx" --to "$target" --verify off >/dev/null
  made=$(node "$root/examples/decode.js" "$work/example.onnx" 1,2,3 8)
  if [ "$made" != "$tokens" ]; then
    echo "examples/decode.js makes $made of --to $target, kvopt run makes $tokens" >&2
    exit 1
  fi
  echo "ok  examples/decode.js --to $target: $made"
done

# record NAME DTYPE: what kvopt computes with $work/made/NAME/model.onnx, rounding as its type does
record() {
  mkdir -p "$work/made/$1/ref"
  "$kvopt" run "$work/made/$1/model.onnx" --tokens 5,6,7,8,9 --steps 9 \
    --dump "$work/made/$1/ref/recorded" >/dev/null
  echo "{\"dtype\": \"$2\", \"roundings\": 2}" >"$work/made/$1/model.json"
}
for text in "$here"/models/*.onnxtxt; do
  name=$(basename "$text" .onnxtxt)
  mkdir -p "$work/made/$name"
  "$kvopt" opt "$text" --pipeline infer-shapes -o "$work/made/$name/model.onnx"
  record "$name" float32
done
for kind in llama window packed-qkv encoder-decoder mla-latent; do
  for dtype in float32 float16; do
    name=$kind-$dtype
    options=()
    [ "$kind" = window ] && options=(--window 5)
    mkdir -p "$work/made/$name"
    "$kvopt" gen "$kind" --dtype "$dtype" --vocab 200 "${options[@]}" \
      -o "$work/made/$name/model.onnx" >/dev/null
    record "$name" "$dtype"
  done
done

node "$here/matrix.js" "$kvopt" "${folders[@]}" "$work/made" "$@"
