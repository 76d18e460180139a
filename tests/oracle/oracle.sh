#!/usr/bin/env bash
# The outside oracle: models that kvopt wrote, run by ONNX Runtime over recorded steps, through their
# manifests alone, against what PyTorch computed. Prints the matrix model × target.
#   tests/oracle/oracle.sh KVOPT [OPTION OF matrix.js …]
# The models are those of models/, of the folder KVOPT_CORPUS and of corpus2 beside it, and some that
# are made here, whose steps kvopt's runtime records of the original. Exits with 77 where ONNX Runtime
# is not available, and says how many models were not run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
kvopt=$(realpath "$1")
shift

folders=("$root/models")
if [ -d "${KVOPT_CORPUS:-}" ]; then
  folders+=("$KVOPT_CORPUS")
  [ -d "$KVOPT_CORPUS/../corpus2" ] && folders+=("$KVOPT_CORPUS/../corpus2")
else
  echo "oracle: KVOPT_CORPUS names no folder; only the models of models/ are run" >&2
fi

count=$(find "${folders[@]}" -mindepth 2 -maxdepth 2 -name ref | wc -l)
engine "oracle of $count models"

work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
model=$root/models/llama_gqa-ts14-eager
"$kvopt" rewrite "$model/model.onnx" -o "$work/model.onnx" --to kvopt --verify off >/dev/null
node "$here/selfcheck.js" "$work/model.onnx" "$work/model.kv.json" "$model/ref/b1.onnx"

"$kvopt" opt "$root/tests/python/counted.onnxtxt" --pipeline '' -o "$work/counted.onnx"
for form in ort onnx primitive kvopt; do
  "$kvopt" rewrite "$work/counted.onnx" -o "$work/counted.$form.onnx" --to "$form" --verify off -q >/dev/null
done
node "$here/padding.js" "$work"/counted.*.onnx

# decodes WHAT EXPECTED ARGUMENT…: what the example prints or, for an error, its only line
decodes() {
  local what=$1 expected=$2 made
  shift 2
  made=$(node "$root/examples/decode.js" "$@" 2>&1) || true
  if [[ $made != $expected ]]; then
    echo "examples/decode.js, $what: $made instead of $expected" >&2
    exit 1
  fi
  echo "ok  examples/decode.js, $what: $made"
}

# rewritten MODEL TARGET OPTION…: writes $work/example.onnx
rewritten() {
  local from=$1 target=$2
  shift 2
  "$kvopt" rewrite "$from" -o "$work/example.onnx" --to "$target" "$@" --verify off -q >/dev/null
}

# The example decodes what targets write as kvopt decodes it.
for kind in float32 float16 large-vocabulary encoder-decoder; do
  options=(llama --dtype float32 --vocab 200)
  [ "$kind" = float16 ] && options=(llama --dtype float16 --vocab 200)
  [ "$kind" = large-vocabulary ] && options=(llama --vocab 128256 --layers 1 --hidden 32)
  [ "$kind" = encoder-decoder ] && options=(encoder-decoder --vocab 200)
  "$kvopt" gen "${options[@]}" -o "$work/$kind.onnx" >/dev/null
done
for kind in float32 float16 large-vocabulary; do
  targets="onnx24 ort-gqa primitive"
  # Products of bytes round in an order of their own, which decides between equal float16 scores.
  [ "$kind" = float32 ] && targets="$targets int8 int4 blocks int8-blocks"
  [ "$kind" = large-vocabulary ] && targets=onnx24
  for target in $targets; do
    options=()
    [[ "$target" = *blocks ]] && options=(--capacity 12)
    rewritten "$work/$kind.onnx" "$target" "${options[@]}"
    tokens=$("$kvopt" run "$work/example.onnx" --tokens 1,2,3 --steps 8)
    decodes "$kind --to $target" "$tokens" "$work/example.onnx" 1,2,3 8
  done
done
echo 1 2 3 50 100 150 7 30 90 >"$work/calibration"
for kind in float32 float16; do
  for dtype in int8 int4; do
    rewritten "$work/$kind.onnx" ort-gqa --cache-dtype "$dtype" --calibration-tokens "$work/calibration"
    decodes "$kind --to ort-gqa --cache-dtype $dtype" "$("$kvopt" run "$work/example.onnx" --tokens 1,2,3 --steps 8)" \
      "$work/example.onnx" 1,2,3 8
  done
done
rewritten "$work/float32.onnx" pyramid:4 --capacity 11
decodes "pyramid" "$("$kvopt" run "$work/float32.onnx" --tokens 1,2,3 --steps 8)" "$work/example.onnx" 1,2,3 8
rewritten "$work/float16.onnx" tiles:4 --capacity 11 --tile-state float16
decodes "tiles" "$("$kvopt" run "$work/example.onnx" --tokens 1,2,3 --steps 8)" "$work/example.onnx" 1,2,3 8
rewritten "$work/float32.onnx" tiles:4 --capacity 11
decodes "tiles" "$("$kvopt" run "$work/float32.onnx" --tokens 1,2,3 --steps 8)" "$work/example.onnx" 1,2,3 8
decodes "a full cache" "decode.js: 12 tokens do not fit into the 11 rows of cache *" "$work/example.onnx" 1,2,3 10
decodes "no manifest" "decode.js: *.kv.json does not exist: *" "$work/float32.onnx" 1,2,3 8
decodes "no prompt" "decode.js: usage: *" "$work/example.onnx" x 8
"$kvopt" gen window --window 6 --vocab 200 -o "$work/window.onnx" >/dev/null
rewritten "$work/window.onnx" onnx24-ring:4
decodes "a ring that comes round" "$("$kvopt" run "$work/window.onnx" --tokens 1,2,3,4,5,6,7 --steps 40)" \
  "$work/example.onnx" 1,2,3,4,5,6,7 40
for target in int8-ring int4-ring; do
  rewritten "$work/window.onnx" "$target"
  decodes "--to $target" "$("$kvopt" run "$work/example.onnx" --tokens 1,2,3,4,5,6,7 --steps 40)" \
    "$work/example.onnx" 1,2,3,4,5,6,7 40
done
rewritten "$work/encoder-decoder.onnx" kvopt
decodes "without what an encoder computes" "decode.js: input * must be given" "$work/example.onnx" 1,2,3 8
given=()
head -c 4096 /dev/zero >"$work/zeros"
for input in $("$kvopt" inspect "$work/encoder-decoder.onnx" --format json | grep -o '"[^"]*[.]encoder[.][^"]*"' | sort -u); do
  given+=(--input "${input//\"/}=$work/zeros")
done
decodes "with what an encoder computes" "*,*,*,*,*,*,*,*" "$work/example.onnx" 1,2,3 8 "${given[@]}"

# A first step gives what the decoder only reads.
"$kvopt" opt "$here/first_step.onnxtxt" --pipeline 'infer-shapes,detect-sites,lower{to=primitive}' -o "$work/no_caches.onnx" >/dev/null
head -c 96 /dev/zero | tr '\0' '?' >"$work/encoded" # three rows of eight numbers, each 0x3f3f3f3f
encoded=--input=encoder_hidden_states=0.747058808803558349609375@1,3,8
expected=$("$kvopt" run "$work/no_caches.onnx" --tokens 1,2,3 --steps 8 "$encoded")
for target in kvopt primitive; do
  "$kvopt" add-cache "$work/no_caches.onnx" -o "$work/example.onnx" --to "$target" --verify off -q >/dev/null
  decodes "a first step, --to $target" "$expected" "$work/example.onnx" 1,2,3 8 --input "encoder_hidden_states=$work/encoded"
done

# record NAME DTYPE: what kvopt computes with $work/made/NAME/model.onnx, rounding as its type does; for
# a batch with padding too, if the model has a mask
record() {
  mkdir -p "$work/made/$1/ref"
  "$kvopt" run "$work/made/$1/model.onnx" --tokens 5,6,7,8,9 --steps 9 \
    --dump "$work/made/$1/ref/recorded" >/dev/null
  "$kvopt" run "$work/made/$1/model.onnx" --tokens 5,6,7,8,9 --tokens 3,4 --steps 4 \
    --dump "$work/made/$1/ref/with_padding" >/dev/null 2>&1 || rm -rf "$work/made/$1/ref/with_padding"
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
