#!/usr/bin/env bash
# Models after ONNX Runtime's graph optimizer, at each of its levels: kvopt finds the sites that the models had
# before, and computes the same.
#   tests/transformations/optimizer.sh TRANSFORMATIONS_TESTS [--write]
# The models are those of models/, of the folder KVOPT_CORPUS and of its sibling corpus2. Models whose sites are known
# to differ are listed in optimizer_differences.txt, which --write writes anew (it needs both corpora). Exits with 77
# where ONNX Runtime is not available.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
tests=$(realpath "$1")

skip() {
  echo "optimizer SKIPPED: $*" >&2
  exit 77
}
command -v node >/dev/null || skip "node is not installed"
bash "$root/bench/baselines/install.sh" >/dev/null || skip "ONNX Runtime cannot be installed"
export NODE_PATH=$root/build/baselines/node_modules

folders=("$root/models")
for corpus in "${KVOPT_CORPUS:-}" "${KVOPT_CORPUS:-}/../corpus2"; do
  [ -n "${KVOPT_CORPUS:-}" ] && [ -d "$corpus" ] && folders+=("$corpus")
done
# Models that are not there are not looked for elsewhere.
export KVOPT_CORPUS=${KVOPT_CORPUS:-$root/no-corpus}

work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
mapfile -t models < <(find "${folders[@]}" -mindepth 2 -maxdepth 2 -name model.onnx | sort)
node "$here/optimize.js" "$work" "${models[@]}"
export KVOPT_OPTIMIZED_MODELS=$work

table=$here/optimizer_differences.txt
if [ "${2:-}" = --write ]; then
  [ "${#folders[@]}" = 3 ] || skip "--write needs both corpora"
  export KVOPT_OPTIMIZER_OUTPUT=$work/differences.txt
  touch "$work/differences.txt"
  "$tests" --gtest_filter='Levels/Optimizer.*' --gtest_brief=1
  {
    grep '^#' "$table"
    cat "$work/differences.txt"
  } >"$work/table.txt"
  cp "$work/table.txt" "$table"
  exit 0
fi
"$tests" --gtest_filter='Levels/Optimizer.*' --gtest_brief=1
