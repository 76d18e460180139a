#!/usr/bin/env bash
# Runs what `kvopt add-cache` and `kvopt make-dynamic` write in ONNX Runtime, against what was recorded of the models.
#   tests/oracle/changed_inputs.sh KVOPT [OPTION OF changed_inputs.js …]
# The models are two that are made here, whose steps kvopt's runtime records of the decoders that they are made of, and
# those of the folder KVOPT_CORPUS and of corpus2 and corpus3 next to it. Exits with 77 where ONNX Runtime is not available.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
kvopt=$(realpath "$1")
shift

engine "changed_inputs"

work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# record MODEL FOLDER: what kvopt computes for one prompt, and for two of which one is padded
record() {
  "$kvopt" run "$1" --tokens 5,6,7,8,9 --steps 6 --dump "$2/b1" >/dev/null
  "$kvopt" run "$1" --tokens 5,6,7,8,9 --tokens 3,4 --steps 4 --dump "$2/b2pad" >/dev/null
}

whole=$work/made/whole_sequences
mkdir -p "$whole/ref"
"$kvopt" opt "$here/inputs/whole_sequences.onnxtxt" --pipeline infer-shapes -o "$whole/model.onnx"
record "$whole/model.onnx" "$whole/ref"
echo '{"kind": "nocache"}' >"$whole/model.json"

# fixed NEW PAST: an export for steps of NEW tokens after PAST, of a decoder that takes any step
"$kvopt" opt "$here/inputs/any_step.onnxtxt" --pipeline infer-shapes -o "$work/any_step.onnx"
fixed() {
  local folder=$work/made/fixed_$1_$2
  mkdir -p "$folder/ref_dynamic"
  sed "s/BATCH/1/g; s/NEW/$1/g; s/PAST/$2/g; s/TOTAL/$(($1 + $2))/g; s/{0, 0,/{1, $1,/g" \
    "$here/inputs/any_step.onnxtxt" >"$work/fixed.onnxtxt"
  "$kvopt" opt "$work/fixed.onnxtxt" --pipeline infer-shapes -o "$folder/model.onnx"
  record "$work/any_step.onnx" "$folder/ref_dynamic"
}
fixed 1 7
fixed 4 3

folders=("$work/made")
for corpus in . ../corpus2 ../corpus3; do
  [ -d "${KVOPT_CORPUS:-}/$corpus" ] && [ -n "${KVOPT_CORPUS:-}" ] && folders+=("$KVOPT_CORPUS/$corpus")
done
[ "${#folders[@]}" -gt 1 ] || echo "changed_inputs: KVOPT_CORPUS names no folder; only the models that are made here are run" >&2
node "$here/changed_inputs.js" "$kvopt" "${folders[@]}" "$@"
