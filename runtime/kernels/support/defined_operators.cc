// Operators without a kernel of their own, by their definitions (all versions of ONNX,
// com.microsoft and ai.kvopt).
#include "meaning/definitions.h"
#include "runtime/exec/kernel.h"

namespace kvopt::kernels {

void register_defined_operators(runtime::KernelRegistry& kernels) {
  meaning::definitions().forEach([&](ir::OpName name, int64_t since, meaning::Define define) {
    kernels.addDefinition(name, since, define);
  });
}

} // namespace kvopt::kernels
