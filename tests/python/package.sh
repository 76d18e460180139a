#!/usr/bin/env bash
# Runs the tests of the Python package:
#   tests/python/package.sh BUILD package       with the library of the build
#   tests/python/package.sh BUILD wheel         with the wheel of tests/install/packages.sh, in a virtual environment
#   tests/python/package.sh BUILD onnxruntime   kvopt.onnxruntime, with what the build's program writes
#   tests/python/package.sh BUILD types         the type hints, by mypy and by what the package returns
# Exits with 77 where Python's modules are missing.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
python=/usr/bin/python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export KVOPT_PROGRAM=$build/bin/kvopt

require() {
  local module
  for module in "$@"; do
    "$python" -c "import $module" 2>/dev/null || { echo "skipped: $python has no module $module"; exit 77; }
  done
}

case $2 in
package)
  require numpy
  KVOPT_LIBRARY=$build/lib/libkvopt.so.0 PYTHONPATH=$source/python PYTHONDONTWRITEBYTECODE=1 \
    "$python" "$source/tests/python/package_test.py"
  ;;
wheel)
  require numpy pip setuptools wheel venv
  wheel=$(compgen -G "$build/tests/packages/kvopt-*.whl") || { echo "skipped: tests/install/packages.sh made no wheel"; exit 77; }
  echo "$(basename "$wheel"): $(($(stat -c %s "$wheel") / 1024 / 1024)) MiB"
  "$python" -m venv --system-site-packages "$work/environment"
  "$work/environment/bin/pip" install -q --no-index --no-deps "$wheel"
  cd "$work"
  unset KVOPT_PROGRAM
  "$work/environment/bin/python" "$source/tests/python/package_test.py"
  [ "$("$work/environment/bin/kvopt" --version)" = "$("$build/bin/kvopt" --version)" ]
  "$work/environment/bin/python" -m kvopt inspect "$source/models/kjv/model.onnx" >/dev/null
  if [ -e "$build/lib/libkvopt_onnxruntime.so" ]; then
    "$work/environment/bin/kvopt" rewrite "$source/models/kjv/model.onnx" -o model.onnx --to kvopt --verify off -q \
      --genai-config genai_config.json >/dev/null
    "$work/environment/bin/python" - <<'PYTHON'
import ctypes
import json

import kvopt.onnxruntime

path = kvopt.onnxruntime.get_library_path()
assert ctypes.CDLL(path).RegisterCustomOps and ctypes.CDLL(path).CreateEpFactories
named = json.load(open("genai_config.json"))["model"]["decoder"]["session_options"]["custom_ops_library"]
assert named == path, (named, path)
PYTHON
  fi
  ;;
onnxruntime)
  written=()
  for form in ort primitive "onnx --opset 23"; do
    file=$work/${form%% *}.onnx
    # shellcheck disable=SC2086 # options are words
    "$KVOPT_PROGRAM" rewrite "$source/models/llama_gqa-ts14-eager/model.onnx" -o "$file" --to $form --verify off -q \
      >/dev/null
    written+=("$file")
  done
  limits=$work/limits
  mkdir "$limits"
  rewrite() { "$KVOPT_PROGRAM" rewrite "$1" -o "$limits/$2.onnx" --verify off -q "${@:3}" >/dev/null; }
  "$KVOPT_PROGRAM" opt "$source/tests/python/counted.onnxtxt" --pipeline '' -o "$work/counted.onnx"
  for form in ort primitive kvopt; do
    rewrite "$work/counted.onnx" "counted.$form" --to "$form"
    rewrite "$source/models/llama_gqa-ts14-eager/model.onnx" "masked.$form" --to "$form"
  done
  rewrite "$source/models/llama_gqa-ts14-eager/model.onnx" fixed --to kvopt --capacity 16 --padding none
  "$KVOPT_PROGRAM" gen encoder-decoder -o "$work/decoder.onnx" --hidden 32 --layers 1 --vocab 64 -q >/dev/null
  rewrite "$work/decoder.onnx" encoder
  bash "$source/scripts/onnxruntime_python.sh" "$source/tests/python/onnxruntime_limits_test.py" "$source/python" "$limits"
  library=$build/lib/libkvopt_onnxruntime.so # exists where it was built
  [ ! -e "$library" ] || export KVOPT_ONNXRUNTIME_LIBRARY=$library
  bash "$source/scripts/onnxruntime_python.sh" "$source/tests/python/onnxruntime_test.py" "$source/python" \
    "${written[@]}"
  ;;
types)
  command -v mypy >/dev/null || { echo "skipped: mypy is not installed"; exit 77; }
  require numpy typing_extensions
  (cd "$source/python" && mypy --python-executable "$python" --cache-dir "$build/mypy")
  KVOPT_LIBRARY=$build/lib/libkvopt.so.0 PYTHONPATH=$source/python PYTHONDONTWRITEBYTECODE=1 \
    "$python" "$source/tests/python/types_test.py" "$source/models/llama_gqa-ts14-eager/model.onnx"
  ;;
esac
