// The target `int4-ring`: the target `int4` with no more rows in a cache than attention reads.
#include "passes/targets/ring/quantized_ring_target.h"

namespace kvopt::targets {
namespace {

class Int4RingTarget final : public QuantizedRingTarget {
public:
  Int4RingTarget() : QuantizedRingTarget(CacheRows::Int4) {}

  llvm::StringRef name() const override { return "int4-ring"; }
  llvm::StringRef summary() const override {
    return "RingQuantizedKvSdpa with its function body: as many rows of four-bit codes as the "
           "window, with a "
           "scale each";
  }
};

} // namespace

void register_int4_ring(TargetRegistry& registry) {
  registry.add(std::make_unique<Int4RingTarget>());
}

} // namespace kvopt::targets
