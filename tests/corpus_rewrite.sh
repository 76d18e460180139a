#!/usr/bin/env bash
# Every model of the corpora can be driven: `rewrite` with default options ends with exit code 0 or 1 (refused with
# a reason) for every target below, and `verify M M` with 0, never with another one.
#   tests/corpus_rewrite.sh KVOPT [TARGET…]
# The models are those of models/, of the folder KVOPT_CORPUS and of its sibling corpus2. Exits with 77 without corpora.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kvopt=$(realpath "$1")
shift
targets=("${@:-kvopt}")

corpus=${KVOPT_CORPUS:-}
if [ ! -d "$corpus" ] || [ ! -d "$corpus/../corpus2" ]; then
  echo "corpus_rewrite SKIPPED: KVOPT_CORPUS names no folder with a sibling corpus2" >&2
  exit 77
fi
folders=("$here/../models" "$corpus" "$corpus/../corpus2")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check MODEL: prints what must not be, and fails then.
check() {
  local model=$1 file=$work/$$ code=0 failed=0 name
  name=$(basename "$(dirname "$model")")
  "$kvopt" verify "$model" "$model" >"$file.out" 2>&1 || code=$?
  if [ "$code" != 0 ]; then
    echo "verify $name: exit code $code: $(tail -n 1 "$file.out")"
    failed=1
  fi
  for target in $target_list; do
    code=0
    "$kvopt" rewrite "$model" -o "$file.onnx" --to "$target" >"$file.out" 2>&1 || code=$?
    if [ "$code" -gt 1 ] || { [ "$code" = 1 ] && [ ! -s "$file.out" ]; }; then
      echo "rewrite --to $target $name: exit code $code: $(tail -n 1 "$file.out")"
      failed=1
    elif grep -q 'not verified' "$file.out"; then
      echo "rewrite --to $target $name: $(grep -m 1 'not verified' "$file.out")"
      failed=1
    fi
  done
  rm -f "$file".*
  return $failed
}
export -f check
export kvopt work
target_list="${targets[*]}"
export target_list

mapfile -t models < <(find "${folders[@]}" -mindepth 2 -maxdepth 2 -name model.onnx | sort)
failures=0
printf '%s\0' "${models[@]}" | xargs -0 -n 1 -P 2 bash -c 'check "$0"' || failures=1
echo "${#models[@]} models, targets: $target_list"
exit $failures
