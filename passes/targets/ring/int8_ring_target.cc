// The target `int8-ring`: the target `int8` with no more rows in a cache than attention reads.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa<window = W>(q, present_key, present_value[, mask])
//   after    o, present_key, present_key_scale, present_value, present_value_scale =
//                ai.kvopt.RingQuantizedKvSdpa<window = W>(q, k, v, past_key, past_key_scale,
//                                                         past_value, past_value_scale,
//                                                         past_length, mask)
#include "passes/targets/ring/quantized_ring_target.h"

namespace kvopt::targets {
namespace {

class Int8RingTarget final : public QuantizedRingTarget {
public:
  Int8RingTarget() : QuantizedRingTarget(CacheRows::Int8) {}

  llvm::StringRef name() const override { return "int8-ring"; }
  llvm::StringRef summary() const override {
    return "RingQuantizedKvSdpa with its function body: as many int8 rows as the window, with a "
           "scale each";
  }
};

} // namespace

void register_int8_ring(TargetRegistry& registry) {
  registry.add(std::make_unique<Int8RingTarget>());
}

} // namespace kvopt::targets
