#!/usr/bin/env bash
# The examples that decode take the tokens that kvopt's runtime takes with the exported model, with decoders and with what an
# encoder computes: examples/ort_decode.py and examples/ort_decode.cc in ONNX Runtime, and decode_from_manifest (PROGRAM).
#   bash tests/oracle/decoding_examples.sh KVOPT python|cpp|kvopt [PROGRAM]
# 77: the engine cannot be fetched.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
kvopt=$(realpath "$1")
language=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# example ARGUMENT…: runs the program; input NAME EXTENTS FILE: its argument for a tensor in a file of float32 numbers
case $language in
python)
  python() { bash "$root/scripts/onnxruntime_python.sh" "$@"; }
  python -c 'import onnxruntime; print("onnxruntime", onnxruntime.__version__)' || exit
  example() { python "$root/examples/ort_decode.py" "$@"; }
  # A file of numpy: a header of 128 bytes, and the numbers.
  input() {
    header="{'descr': '<f4', 'fortran_order': False, 'shape': ($2), }"
    printf '\223NUMPY\001\000\166\000%-117s\n' "$header" | cat - "$3" >"$3.npy"
    echo "--input $1=$3.npy"
  }
  ;;
cpp)
  bash "$root/scripts/onnxruntime_cpp.sh" "$root/examples/ort_decode.cc" -o "$work/ort_decode" || exit
  example() { "$work/ort_decode" "$@"; }
  input() { echo "--input $1=$2:$3"; }
  ;;
kvopt)
  program=$(realpath "$3")
  example() { "$program" "$@"; }
  input() { echo "--input $1=$2:$3"; }
  ;;
esac

# halves COUNT FILE: a file of COUNT float32 numbers, all 0.5
halves() { for ((i = 0; i < $1; ++i)); do printf '\0\0\0\077'; done >"$2"; }

failed=0
# decodes WHAT EXPECTED ARGUMENT…: the example prints the expected tokens
decodes() {
  local tokens
  tokens=$(example "${@:3}") || tokens="failed"
  if [ "$tokens" = "$2" ]; then
    echo "equal    $1: $tokens"
  else
    echo "FAILED   $1: $tokens, expected $2"
    failed=1
  fi
}

# Each model once, every other one without padding.
padding=''
for model in "$root"/models/*/model.onnx; do
  name=$(basename "$(dirname "$model")")
  expected=$("$kvopt" run "$model" --tokens 1,2,3 --steps 8)
  # shellcheck disable=SC2086
  "$kvopt" rewrite "$model" -o "$work/$name.onnx" --to ort --verify off -q $padding >/dev/null
  decodes "$name $padding" "$expected" "$work/$name.onnx" 1,2,3 8
  [ -z "$padding" ] && padding='--padding none' || padding=''
done

# What an encoder computed, from files.
"$kvopt" gen encoder-decoder -o "$work/cross.onnx" --vocab 100 >/dev/null
"$kvopt" rewrite "$work/cross.onnx" -o "$work/cross-ort.onnx" --to ort --verify off -q >/dev/null
given=() computed=()
for cache in past_key_values.{0,1}.encoder.{key,value}; do
  halves 320 "$work/$cache"
  given+=(--input "$cache=0.5@1,4,5,16")
  read -ra words <<<"$(input "$cache" 1,4,5,16 "$work/$cache")"
  computed+=("${words[@]}")
done
expected=$("$kvopt" run "$work/cross.onnx" --tokens 1,2,3 --steps 8 "${given[@]}")
decodes "caches of an encoder" "$expected" "$work/cross-ort.onnx" 1,2,3 8 "${computed[@]}"

# kvopt's session runs no other model first.
[ "$language" != kvopt ] || exit $failed

# An encoder, the decoder's first step, and the decoder. The heads get eight columns, as ONNX Runtime's attention wants.
cat >"$work/encoder.onnxtxt" <<'TEXT'
<ir_version: 8, opset_import: ["" : 17]>
encoder (float[B, T, 16] input_features) => (float[B, T, 16] last_hidden_state)
<float half = {0.5}> { last_hidden_state = Mul (input_features, half) }
TEXT
"$kvopt" opt "$work/encoder.onnxtxt" --pipeline '' -o "$work/encoder.onnx" >/dev/null
sed -E -e 's/, 8\]/, 16]/g; s/0, 2, 4\}/0, 2, 8}/; s/\{0, 0, 8\}/{0, 0, 16}/' \
  -e 's/= \{((0\.3|1, 2)[^}]*)\}/= {\1, \1}/' "$here/first_step.onnxtxt" >"$work/first_step.onnxtxt"
"$kvopt" opt "$work/first_step.onnxtxt" --pipeline 'infer-shapes,detect-sites,lower{to=primitive}' \
  -o "$work/no_caches.onnx" >/dev/null
"$kvopt" add-cache "$work/no_caches.onnx" -o "$work/steps.onnx" --to ort --verify off -q >/dev/null
halves 48 "$work/features"
read -ra features <<<"$(input input_features 1,3,16 "$work/features")"
expected=$("$kvopt" run "$work/no_caches.onnx" --tokens 1,2,3 --steps 8 --input=encoder_hidden_states=0.25@1,3,16)
decodes "an encoder and a first step" "$expected" "$work/steps.onnx" 1,2,3 8 "${features[@]}" \
  --first "$work/encoder.onnx"
exit $failed
