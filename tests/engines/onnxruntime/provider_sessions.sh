#!/usr/bin/env bash
# Decoders with the library and without: generated ones and, where there are corpora, models of the GenAI builder with the
# provider and with ONNX Runtime's own kernels; files that kvopt wrote with the provider, with the custom operators, and
# with their function bodies.
#   tests/engines/onnxruntime/provider_sessions.sh PROGRAM LIBRARY KVOPT
# Exits with 77 where ONNX Runtime cannot be installed.
set -euo pipefail
# shellcheck source=tests/engines/onnxruntime/engine.sh
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

generate() {
  "$kvopt" gen "${@:2}" -o "$work/$1.onnx" --vocab 160 >/dev/null
}
kvopt=$3
generate float32 llama --spelling gqa
generate float16 llama --spelling gqa --dtype float16
generate window window --spelling gqa --window 8
generate int8 llama --spelling gqa --cache-codes int8
generate int8_columns llama --spelling gqa --cache-codes int8 --column-scales
generate int4_columns llama --spelling gqa --cache-codes int4 --column-scales
models=("$work"/*.onnx)
for corpus in "${KVOPT_CORPUS:-}" "${KVOPT_CORPUS:-}2"; do
  # Without models in which no layer is claimed.
  for model in "$corpus"/*-genai-*/model.onnx; do
    [[ ! -e $model || $model = */mistral_sw-genai-fp32-cpu/* || $model = */qwen2-genai-fp16-cpu/* ]] || models+=("$model")
  done
done
# Products that round activations to int8 turn the last bit of a sum into a step of 1/127. The models are compared with
# exact products; without python3-onnx, those that round are left out.
for i in "${!models[@]}"; do
  result=$work/exact_$i.model
  /usr/bin/python3 "$here/exact_products.py" "${models[i]}" "$result" || unset "models[i]"
  [ ! -e "$result" ] || models[i]=$result
done
"$1" "${models[@]}"

# ONNX's Attention with a past and a present.
mkdir "$work/growing"
generate growing/float32 llama --spelling attention
generate growing/float16 llama --spelling attention --dtype float16
"$1" --growing "$work"/growing/*.onnx

rewrite() {
  "$kvopt" gen "${@:3}" -o "$work/export.model" --vocab 160 >/dev/null
  # shellcheck disable=SC2086 # options are words
  "$kvopt" rewrite "$work/export.model" -o "$work/written/$1.onnx" $2 --verify off -q >/dev/null
}
mkdir "$work/written"
# ONNX's Attention over caches that TensorScatter writes.
rewrite scattered "--to onnx" llama
rewrite scattered_float16 "--to onnx" llama --dtype float16
"$1" --written "$work"/written/*.onnx
rm "$work"/written/*
rewrite buffer "--to kvopt" llama
rewrite buffer_float16 "--to kvopt" llama --dtype float16
rewrite buffer_int8 "--to kvopt --rows int8" llama
rewrite buffer_int4 "--to kvopt --rows int4" llama
rewrite ring "--to kvopt --cache ring" window --window 16
rewrite ring_int8 "--to kvopt --cache ring --rows int8" window --window 16
rewrite latent "--to kvopt --latent" mla
"$1" --written "$work"/written/*.onnx
"$1" --custom-operators "$work"/written/*.onnx
