# Sourced by scripts that compare with ONNX Runtime: where the project is, and the engine.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

# skip WHAT WHY…: ends the script as one that was skipped
skip() {
  echo "$1 SKIPPED: ${*:2}" >&2
  exit 77
}

# engine WHAT: installs ONNX Runtime for node, or skips
engine() {
  command -v node >/dev/null || skip "$1" "node is not installed"
  bash "$root/bench/baselines/install.sh" >/dev/null || skip "$1" "ONNX Runtime cannot be installed"
  export NODE_PATH=$root/build/baselines/node_modules
}
