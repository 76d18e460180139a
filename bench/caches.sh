#!/usr/bin/env bash
# What the form of a cache costs, in generated decoders of random weights, one table for each form:
#   bash bench/caches.sh [BUILD [REPETITIONS]]
# A sliding window at 32,768 tokens with room for all rows and as a ring; latent attention at 8,192
# tokens with keys and values of every head and with compressed rows; a decoder without caches at 512
# tokens and with the caches that it was given; a cache of 4,096 fixed rows, copied and in place.
set -euo pipefail
build=$(realpath "${1:-build/release}")
repetitions=${2:-3}
kvopt=$build/bin/kvopt
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$work"

made() { "$kvopt" gen "$1" --layers 4 --hidden 512 --heads 8 --vocab 1000 -o "$2" "${@:3}" -q >/dev/null; }
written() { "$kvopt" "$1" "$2" -o "$3" "${@:4}" --verify off -q >/dev/null; }
measured() { "$kvopt" bench "$@" -p 0 -r "$repetitions" -t 1 | sed -n '/^|/p'; }

# bytes MODEL CAPACITY: what the caches of a session of the manifest hold.
bytes() {
  "$kvopt" run "$1" --tokens 1 --steps 1 --mode shared --capacity "$2" --stats --format json |
    sed -n 's/.*"cache_bytes": *\([0-9]*\).*/\1/p' | head -n 1
}

made window window.onnx --window 1024 --max-positions 40000
written rewrite window.onnx full.onnx --to kvopt --hidden-rows undefined
written rewrite window.onnx ring.onnx --to ring --hidden-rows undefined
written rewrite window.onnx circular.onnx --to onnx24-ring:64 --hidden-rows undefined
printf 'A window of 1024 tokens after 32768: bytes held %s with room for 33000 rows, %s as a ring, %s as one of ONNX\n\n' \
  "$(bytes full.onnx 33000)" "$(bytes ring.onnx 33000)" "$(bytes circular.onnx 33000)"
measured full.onnx ring.onnx circular.onnx -n 32 -d 32768

made mla expanded.onnx --head-dim 128 --rope-dim 64 --value-dim 128 --latent-dim 512 --max-positions 16384
written rewrite expanded.onnx heads.onnx --to kvopt
written rewrite expanded.onnx latent.onnx --to latent
printf '\nLatent attention, 8 heads, after 8192 tokens: bytes held %s with keys and values of every head, %s with compressed rows\n\n' \
  "$(bytes heads.onnx 8256)" "$(bytes latent.onnx 8256)"
measured heads.onnx latent.onnx -n 32 -d 0,8192

made llama none.onnx --cache none
written add-cache none.onnx growing.onnx
written add-cache none.onnx added.onnx --to kvopt
printf '\nNo caches, 512 tokens: the whole sequence, growing caches, in place\n\n'
measured none.onnx growing.onnx added.onnx -n 8 -d 512

made llama static.onnx --cache static --max-positions 4096
written rewrite static.onnx in-place.onnx --to kvopt
printf '\nA cache of 4096 rows, after 4000 tokens: copied, in place\n\n'
measured static.onnx in-place.onnx -n 32 -d 4000
