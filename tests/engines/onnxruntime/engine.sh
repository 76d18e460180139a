# Sourced by tests whose second argument is kvopt's library: exports its path and that of ONNX Runtime. Exits with 77 where ONNX
# Runtime cannot be installed. `here` is the folder of the tests.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ONNXRUNTIME_LIBRARY=$(bash "$here/../../../bench/baselines/install.sh") || exit 77
KVOPT_ONNXRUNTIME_LIBRARY=$(realpath "$2")
export ONNXRUNTIME_LIBRARY KVOPT_ONNXRUNTIME_LIBRARY
