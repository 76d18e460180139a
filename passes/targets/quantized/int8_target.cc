// The target `int8`: the target `kvopt` with rows of caches kept as int8, a scale for each.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa(q, present_key, present_value[, mask])
//   after    o, present_key, present_key_scale, present_value, present_value_scale =
//                ai.kvopt.InPlaceQuantizedKvSdpa(q, k, v, past_key, past_key_scale, past_value,
//                                                past_value_scale, past_length, mask)
#include "passes/targets/quantized/quantized_target.h"

namespace kvopt::targets {
namespace {

class Int8Target final : public QuantizedTarget {
public:
  Int8Target() : QuantizedTarget(CacheRows::Int8) {}

  llvm::StringRef name() const override { return "int8"; }
  llvm::StringRef summary() const override {
    return "InPlaceQuantizedKvSdpa with its function body: int8 rows with a scale each, in one "
           "buffer";
  }
};

} // namespace

void register_int8(TargetRegistry& registry) { registry.add(std::make_unique<Int8Target>()); }

} // namespace kvopt::targets
