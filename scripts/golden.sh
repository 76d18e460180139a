#!/usr/bin/env bash
# What kvopt finds in the corpus of models (the folder KVOPT_CORPUS), as tests/golden/ has it.
#   scripts/golden.sh [--allow-more] [build folder]   writes the files anew (build/release unless named),
#                                                     and docs/reasons.md
#   scripts/golden.sh --check KVOPT                   compares the table; 77: there is no corpus
# A deviation of a model that had none of that kind, and was not missed, needs --allow-more.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
golden=$root/tests/golden
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

corpus=${KVOPT_CORPUS:-$root/../shared/corpus}
export KVOPT_WHOLE_CORPUS=1
if [ ! -d "$corpus" ]; then
  echo "golden.sh: no models: set KVOPT_CORPUS" >&2
  exit 77
fi

# A section: its title, then the files on stdin.
section() {
  local files code=0
  mapfile -t files
  printf '# %s\n' "$1"
  "$kvopt" inspect "${files[@]}" || code=$?
  # 3: some file is unreadable, which its row says.
  [ "$code" = 0 ] || [ "$code" = 3 ]
}

table() {
  export LC_ALL=C
  cd "$corpus"
  find . -mindepth 2 -maxdepth 2 -name model.onnx | sort | section decoders
  find real_models -name '*.onnx' | sort | section real_models
  find onnx_node_tests -name model.onnx | sort | section onnx_node_tests
}

# Optimized graphs and odd spellings, where they are next to the corpus.
table2() {
  export LC_ALL=C
  cd "$corpus/../corpus2"
  find . -mindepth 2 -maxdepth 2 -name model.onnx | sort | section 'harder decoders'
}

# Decoders without caches, with fixed extents, and with caches that are written in odd ways.
table3() {
  export LC_ALL=C
  cd "$corpus/../corpus3"
  find . -mindepth 2 -maxdepth 2 -name model.onnx | sort | section 'newest decoders'
}

if [ "${1:-}" = --check ]; then
  kvopt=$(realpath "$2")
  check() {
    ("$1") > "$work/$2" 2> "$work/errors" || { cat "$work/errors" >&2; exit 1; }
    if ! diff -u "$golden/$2" "$work/$2"; then
      echo "golden.sh: kvopt finds something else now. If that is right: bash scripts/golden.sh BUILD_FOLDER" >&2
      exit 1
    fi
  }
  check table corpus_sites.txt
  [ ! -d "$corpus/../corpus2" ] || check table2 corpus2_sites.txt
  [ ! -d "$corpus/../corpus3" ] || check table3 corpus3_sites.txt
  exit 0
fi

more=
if [ "${1:-}" = --allow-more ]; then
  more=1
  shift
fi
build=$(realpath "${1:-$root/build/release}")
kvopt=$build/bin/kvopt
"$kvopt" list reasons --markdown > "$root/docs/reasons.md"
(table) > "$work/corpus_sites.txt"
cp "$work/corpus_sites.txt" "$golden/corpus_sites.txt"
if [ -d "$corpus/../corpus2" ]; then
  (table2) > "$work/corpus2_sites.txt"
  cp "$work/corpus2_sites.txt" "$golden/corpus2_sites.txt"
fi
if [ -d "$corpus/../corpus3" ]; then
  (table3) > "$work/corpus3_sites.txt"
  cp "$work/corpus3_sites.txt" "$golden/corpus3_sites.txt"
fi

# The test writes the list of what still deviates from the models' descriptions.
KVOPT_CORPUS=$(realpath "$corpus") KVOPT_GOLDEN_OUTPUT=$work/corpus_deviations.txt \
  "$build/tests/cli_tests" --gtest_filter='CorpusFacts.*' --gtest_brief=1 > "$work/log" || {
  cat "$work/log"
  exit 1
}
touch "$golden/corpus_deviations.txt"
sort "$golden/corpus_deviations.txt" > "$work/before"
sort "$work/corpus_deviations.txt" > "$work/after"
# What a missed site turns out to be when it is found may still deviate.
new=$(comm -13 "$work/before" "$work/after" | while IFS= read -r line; do
  grep -qF "${line%%: *}: missed" "$work/before" || printf '%s\n' "$line"
done)
if [ -n "$new" ] && [ -z "$more" ]; then
  printf '%s\n' "$new" >&2
  echo "golden.sh: these deviations are new; --allow-more writes them all the same" >&2
  exit 1
fi
cp "$work/corpus_deviations.txt" "$golden/corpus_deviations.txt"

# Bytes that decode steps copy, for every model and target.
if [ -d "$corpus/../corpus2" ]; then
  KVOPT_CORPUS=$(realpath "$corpus") KVOPT_GOLDEN_COPIES=$work/cache_copies.txt \
    "$build/tests/equivalence_tests" --gtest_filter='CacheCopies.*' --gtest_brief=1
  cp "$work/cache_copies.txt" "$golden/cache_copies.txt"
fi

# Extents that become symbols again, of every model.
if [ -d "$corpus/../corpus2" ]; then
  KVOPT_CORPUS=$(realpath "$corpus") KVOPT_GOLDEN_FREED=$work/freed_extents.txt \
    "$build/tests/equivalence_tests" --gtest_filter='FreedCorpus.*' --gtest_brief=1
  cp "$work/freed_extents.txt" "$golden/freed_extents.txt"
fi

# Decoders that lose their caches and get others.
if [ -d "$corpus/../corpus2" ]; then
  KVOPT_CORPUS=$(realpath "$corpus") KVOPT_GOLDEN_ADDED=$work/added_caches.txt \
    "$build/tests/equivalence_tests" --gtest_filter='AddedCorpus.*' --gtest_brief=1
  cp "$work/added_caches.txt" "$golden/added_caches.txt"
fi

# ONNX's node cases, rewritten for every target, where they are next to the corpus.
if [ -d "$corpus/../onnx-nodes" ]; then
  KVOPT_CORPUS=$(realpath "$corpus") KVOPT_GOLDEN_NODES=$work/onnx_nodes.txt \
    "$build/tests/equivalence_tests" --gtest_filter='OnnxNodeTargets.*' --gtest_brief=1
  cp "$work/onnx_nodes.txt" "$golden/onnx_nodes.txt"
fi
echo "wrote the tables in $golden"
