#!/usr/bin/env bash
# What the type of the cached rows costs and keeps, one row for each model and type:
#   bash bench/cache_types.sh [BUILD [MODEL.onnx…]]
# Bytes are those that a token adds to all caches. Of 256 tokens, how often the most likely next one
# stays that of the model as exported; their ids are the first 257 bytes of models/kjv/heldout.txt,
# whatever they mean to the model. Perplexity is that of kjv on the last 12,288 bytes of that text;
# other models were not trained. The scales of GroupQueryAttention's codes are those of the first
# 4,096 bytes.
set -euo pipefail
build=$(realpath "${1:-build/release}")
shift || true
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -gt 0 ] || set -- models/kjv/model.onnx
kvopt=$build/bin/kvopt
text=models/kjv/heldout.txt
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
head -c 257 "$text" | od -An -v -tu1 >"$work/tokens.txt"
head -c 4096 "$text" >"$work/calibration.txt"
tail -c +4097 "$text" >"$work/measured.txt"

# number FILE KEY…: a number of a JSON report, or nothing.
number() {
  python3 - "$@" <<'PYTHON'
import json, sys
value = json.load(open(sys.argv[1]))
for key in sys.argv[2:]:
    value = value[int(key) if isinstance(value, list) else key]
print(value)
PYTHON
}

printf '| model | rows | bytes a token | tokens kept of 256 | mean divergence, nats | perplexity | change |\n'
printf '|---|---|---|---|---|---|---|\n'
for model in "$@"; do
  name=$(basename "$(dirname "$model")")
  for rows in float32 float16 bfloat16 int8 int4 gqa-int8 gqa-int4; do
    case $rows in
    float32) options=(--to kvopt) ;;
    float16 | bfloat16) options=(--to kvopt --rows "$rows") ;;
    gqa-*) options=(--to ort --rows "${rows#gqa-}" --calibration-text "$work/calibration.txt") ;;
    *) options=(--to "$rows") ;;
    esac
    if ! "$kvopt" rewrite "$model" -o "$work/rewritten.onnx" "${options[@]}" --verify off --format json \
      >"$work/rewrite.json" 2>"$work/refusal.txt"; then
      printf '| %s | %s | refused | | | | |\n' "$name" "$rows"
      continue
    fi
    measure() {
      "$kvopt" verify "$model" "$work/rewritten.onnx" --prompt 1 --steps 1 --batch 1 --format json "$@" \
        >"$work/verify.json" 2>/dev/null || [ $? -eq 1 ]
    }
    measure --token-file "$work/tokens.txt" --context 257
    kept=$(number "$work/verify.json" likelihood tokens_equal)
    divergence=$(number "$work/verify.json" likelihood mean_divergence)
    perplexity='' change=''
    if [ "$name" = kjv ]; then
      measure --text-file "$work/measured.txt"
      perplexity=$(number "$work/verify.json" likelihood perplexity 1)
      change=$(awk -v a="$(number "$work/verify.json" likelihood perplexity 0)" -v b="$perplexity" \
        'BEGIN { printf "%+.3f %%", 100 * (b / a - 1) }')
      perplexity=$(printf '%.4f' "$perplexity")
    fi
    printf '| %s | %s | %s | %s | %.1e | %s | %s |\n' "$name" "$rows" \
      "$(number "$work/rewrite.json" cache_bytes_copied_per_token after)" "$kept" "$divergence" "$perplexity" "$change"
  done
done
